"""`python -m bench`: measures a real service on this machine and prints the figures, and the budgets beside them."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from bench import Cell, Table, ingest, payload, peers, percentile, reads, stages, workers
from bench.processes import memory_mib
from bench.sending import Load, send
from tests.running_service import RunningService

_LIBRARIES = ("chdb", "clickhouse-connect", "protobuf", "orjson", "grpcio")
_SENDERS = (1, 2, 4)


class Sizes(NamedTuple):
    stores: tuple[int, ...]
    """Spans in the store when reads and ingest are measured."""
    requests: int
    """Of 512 spans, of one measurement of ingest."""
    samples: int
    """Of each latency."""
    long: int
    """Requests of 100 spans of the long run."""
    peers: float
    """Share of what a peer takes in a minute."""


TINY = Sizes((1_000,), 2, 2, 2, 0.02)
QUICK = Sizes((1_000, 10_000), 8, 10, 20, 0.2)
USUAL = Sizes((1_000, 100_000), 32, 40, 100, 1)
FULL = Sizes((1_000, 100_000, 1_000_000), 64, 100, 500, 1)


class Report:
    """Tables as they come, and the budgets at the end."""

    def __init__(self, markdown: bool) -> None:
        self.tables: list[Table] = []
        self._markdown = markdown
        self._budgets: list[tuple[Cell, ...]] = []

    def show(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        self.tables.append(Table(title, columns, rows))
        print(self.tables[-1].markdown() if self._markdown else self.tables[-1].text(), flush=True)

    def judge(self, what: str, figure: float, side: str, budget: float, unit: str = "") -> None:
        met = figure <= budget if side == "at most" else figure >= budget
        self._budgets.append((what, figure, f"{side} {budget:g} {unit}".strip(), "met" if met else "missed"))

    def close(self) -> None:
        if self._budgets:
            self.show("Budgets", ("what", "figure", "budget", ""), self._budgets)


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options(arguments)
    report, begun = Report(options.markdown), time.perf_counter()
    print(f"otel-blackboard {version('otel-blackboard')}, Python {platform.python_version()}, ", end="")
    print(f"{len(os.sched_getaffinity(0))} cores, " + ", ".join(f"{name} {version(name)}" for name in _LIBRARIES))
    if options.only is None or "service" in options.only:
        _service(options.sizes, report)
    if options.only is None or "long" in options.only:
        _long_run(options.sizes, report)
    if options.only is None or "workers" in options.only:
        report.show(*workers.table(options.sizes.requests))
    if options.peers:
        table, ratios = peers.compare(options.sizes.peers)
        report.show(*table)
        for ratio in ratios:
            report.judge(*ratio)
    report.close()
    print(f"\n{time.perf_counter() - begun:.0f} s")
    if options.json:
        found = {each.title: [dict(zip(each.columns, row, strict=True)) for row in each.rows] for each in report.tables}
        options.json.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n")


def _service(sizes: Sizes, report: Report) -> None:
    requests = list(Load().next(sizes.requests))
    plain = stages.apart(stages.baseline, requests)
    by_stage = stages.apart(stages.pipeline, requests)
    load, rates, times = Load(), [], {}
    with _folder() as folder:
        with ingest.started(folder) as (running, start):
            visible = ingest.latency(running, sizes.samples)
            report.show("Send → visible, 16 spans, idle service", ("p50 ms", "p95 ms", "CPU ms"), [visible])
            for spans in sizes.stores:
                _fill(running, load, spans)
                where = f"{load.spans:,} spans"
                times[where] = reads.at_rest(running, load, sizes.samples)
                rates += (here := [ingest.ingest(running, load, senders, sizes.requests) for senders in _SENDERS])
                report.show(*_ingest_table(where, here, plain))
                report.show(*_reads_table(where, times[where]))
            rates.append(ingest.over_grpc(running, load, sizes.requests))
            where = f"{load.spans:,} spans, {_SENDERS[1]} senders at work"
            working, meanwhile = reads.while_spans_arrive(running, load, sizes.requests, _SENDERS[1])
            most = memory_mib("VmHWM")
            report.show(*_ingest_table("over gRPC", rates[-1:], plain))
            report.show(*_reads_table(f"{where}, {meanwhile:,.0f} spans/s", working))
        sent = load.spans + payload.SPANS_A_RUN * (1 + sizes.samples)
        ingest.check_stored(folder / "data", sent)
        stored = ingest.stored_bytes(folder / "data")

    report.show(
        "Start and memory",
        ("start to ready, s", "and 16 spans visible, s", "memory, idle, MiB", "memory, most, MiB"),
        [(start.ready, start.visible, start.idle_mib, most)],
    )
    # The flushes of the stages are those of four senders.
    total = next(rate.cpu for rate in rates if rate.senders == str(_SENDERS[-1]))
    rows: list[tuple[Cell, ...]] = [(stage, by_stage[stage], plain.stages.get(stage)) for stage in stages.STAGES]
    rows.append(("HTTP, merges, all else", total - sum(by_stage.values()), plain.cpu - sum(plain.stages.values())))
    report.show("CPU by stage, µs/span", ("stage", "service", "baseline"), [*rows, ("together", total, plain.cpu)])
    report.show(
        "Disk, bytes/span",
        ("what", "service", "baseline"),
        [(name, size / sent, None) for name, size in stored.items() if size > sent]
        + [(f"together, {sent:,} spans", sum(stored.values()) / sent, plain.disk)],
    )
    report.judge("start to ready and 16 spans visible", start.visible, "at most", 6, "s")
    report.judge("memory, idle", start.idle_mib, "at most", 550, "MiB")
    report.judge("memory, most", most, "at most", 1229, "MiB")
    report.judge("send → visible, p50", visible.p50, "at most", 80, "ms")
    at, measured = list(times.items())[-1]
    for route in ("run list", "artifact list", "ledger", "recall"):
        for part, budget in ((0.5, 40), (0.95, 80)):
            figure = percentile(measured[route], part)
            report.judge(f"{route}, p{part * 100:.0f} at {at}", figure, "at most", budget, "ms at 1,000,000")


def _ingest_table(where: str, rates: Sequence[ingest.Rate], plain: stages.Baseline) -> Table:
    base = (
        "baseline", "", plain.spans_per_second, plain.megabytes_per_second, plain.cpu, "", "", "", plain.memory_mib, 1, 1,
    )  # fmt: skip
    return Table(
        f"Ingest, requests of {payload.SPANS_A_BODY} spans, {where}",
        ("spans in the store", "senders", "spans/s", "MB/s", "CPU µs/span", "cores", "busiest thread", "refused",
         "memory, most, MiB", "spans/s, × baseline", "CPU, × baseline"),
        [(*rate, rate.spans / plain.spans_per_second, rate.cpu / plain.cpu) for rate in rates] + [base],
    )  # fmt: skip


def _reads_table(where: str, times: reads.Times) -> Table:
    rows = [(route, percentile(each, 0.5), percentile(each, 0.95)) for route, each in times.items() if each]
    return Table(f"Reads, {where}", ("route", "p50 ms", "p95 ms"), rows)


def _fill(running: RunningService, load: Load, spans: int) -> None:
    send(running.http, load.next(max(0, -(-(spans - load.spans) // payload.SPANS_A_BODY))), _SENDERS[-1])


def _long_run(sizes: Sizes, report: Report) -> None:
    with _folder() as folder, ingest.started(folder) as (running, _):
        found = ingest.long_run(running, sizes.long)
        most = memory_mib("VmHWM")
    spans = sizes.long * 100
    ratio = found.one.seconds / found.apart.seconds
    report.show(
        f"One run of {spans:,} spans in {sizes.long} requests, against {sizes.long} runs of 100",
        ("what", "wall s", "CPU s", "whole after the last answer, s", "memory, most, MiB"),
        [
            (f"{sizes.long} runs", found.apart.seconds, found.apart.cpu, None, None),
            ("one run", found.one.seconds, found.one.cpu, found.derived, most),
            ("ratio", ratio, found.one.cpu / found.apart.cpu, None, None),
        ],
    )
    report.judge(f"a run of {spans:,} spans, to {sizes.long} runs", ratio, "at most", 2, "at 50,000")


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="blackboard-bench-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    size = parser.add_mutually_exclusive_group()
    add = {"action": "store_const", "dest": "sizes"}
    size.add_argument("--tiny", **add, const=TINY, help="as its test runs it: the figures mean nothing")
    size.add_argument("--quick", **add, const=QUICK, help="a minute or two: up to 35,000 spans")
    size.add_argument("--full", **add, const=FULL, help="as the budgets say: 1,000,000 spans, one run of 50,000")
    parser.set_defaults(sizes=USUAL)
    parser.add_argument(
        "--only", nargs="*", choices=("service", "long", "workers"), help="these parts; none: the peers alone"
    )
    parser.add_argument("--peers", action="store_true", help="the peers too (bench/peers.py)")
    parser.add_argument("--markdown", action="store_true", help="tables as Markdown, for docs/")
    parser.add_argument("--json", type=Path, help="also write the figures there")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
