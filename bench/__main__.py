"""`python -m bench`: measures a real service on this machine and prints the figures beside their budgets."""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from bench import Figure, ingest, payload, reads, running

_LIBRARIES = ("chdb", "clickhouse-connect", "protobuf", "orjson", "grpcio", "opentelemetry-proto")


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options(arguments)
    print(f"otel-blackboard {version('otel-blackboard')}, Python {platform.python_version()}, {ingest.cores()} cores")
    print("  " + ", ".join(f"{name} {version(name)}" for name in _LIBRARIES))
    report: dict[str, list[Figure]] = {}

    def show(title: str, figures: list[Figure]) -> None:
        print(f"\n{title}")
        for figure in figures:
            print(figure, flush=True)
        report.setdefault(title, []).extend(figures)

    begun = time.perf_counter()
    bodies = [payload.body(seed) for seed in range(options.bodies)]
    with running() as service:
        show("Start", ingest.first_insert(service))
        show("Latency", ingest.latency(service, options.samples))
        show(
            f"Ingest, {len(bodies)} requests of {payload.SPANS_A_BODY} spans",
            ingest.throughput(service, bodies, options.rounds),
        )
        grpc = [payload.body(800_000 + i) for i in range(min(16, options.bodies))]
        show("Ingest over gRPC", ingest.over_grpc(service, grpc))
        sent = (options.rounds * len(bodies) + len(grpc)) * payload.SPANS_A_BODY
        more = range(1_000_000, 1_000_000 + max(0, options.spans - sent) // payload.SPANS_A_BODY)
        if more:
            reads.fill(service, more)
            show("While filling", [Figure("memory, most so far", service.memory_mib("VmHWM"), "MiB", "budget 1,229")])
        total = sent + len(more) * payload.SPANS_A_BODY
        show(f"Reads at {total:,} spans", reads.measure(service, more or range(len(bodies)), options.samples))
        service.stop()
        show("Disk", ingest.disk(service.folder))
    if options.long:
        with running() as service:
            show("One long run", ingest.long_trace(service, options.long))
    print(f"\n{time.perf_counter() - begun:.0f} s")
    if options.json:
        rows = {title: [figure._asdict() for figure in figures] for title, figures in report.items()}
        options.json.write_text(json.dumps(rows, indent=2, ensure_ascii=False) + "\n")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="about a minute: 20,000 spans, one run of 2,000")
    size.add_argument("--full", action="store_true", help="as the budgets say: 1,000,000 spans, one run of 50,000")
    parser.add_argument("--spans", type=int, help="spans in the store when reads are measured [200,000]")
    parser.add_argument("--bodies", type=int, help="requests of 512 spans of one round of ingest [64]")
    parser.add_argument("--rounds", type=int, help="rounds of ingest [3]")
    parser.add_argument("--samples", type=int, help="samples of each latency [40]")
    parser.add_argument("--long", type=int, help="requests of 100 spans of the long run [100]; 0 leaves it out")
    parser.add_argument("--json", type=Path, help="also write the figures there")
    options = parser.parse_args(arguments)
    names = ("spans", "bodies", "rounds", "samples", "long")
    sizes = (
        (20_000, 16, 2, 20, 20)
        if options.quick
        else (1_000_000, 64, 3, 100, 500)
        if options.full
        else (200_000, 64, 3, 40, 100)
    )
    for name, value in zip(names, sizes, strict=True):
        if getattr(options, name) is None:
            setattr(options, name, value)
    return options


if __name__ == "__main__":
    main()
