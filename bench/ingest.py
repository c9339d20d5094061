"""Ingest of a running service: start, latency, rate and CPU by number of senders, one long run, disk."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import clickhouse_connect
import grpc

from bench import payload, percentile
from bench.processes import Measured, cpu_seconds, measured, memory_mib, settle
from bench.reads import Client
from bench.sending import Load, Sender, send
from tests.running_service import RunningService, service

_APART = 10_000_000
"""Seeds from here on are those of runs sent one by one."""


class Start(NamedTuple):
    ready: float
    """Seconds from the start of the process."""
    visible: float
    """The same until the first 16 spans are acknowledged."""
    idle_mib: float


@contextlib.contextmanager
def started(folder: Path) -> Iterator[tuple[RunningService, Start]]:
    """A fresh service with an empty store."""
    begun = time.perf_counter()
    with service(folder / "data", environment={"BLACKBOARD_RETRIEVAL": "true"}) as running:
        ready, idle = time.perf_counter() - begun, memory_mib()
        send(running.http, [payload.request(_APART, 16)], senders=1)
        yield running, Start(ready, time.perf_counter() - begun, idle)


class Latency(NamedTuple):
    """ms"""

    p50: float
    p95: float
    cpu: float


def latency(running: RunningService, samples: int) -> Latency:
    """16 spans to an idle service: the POST's answer means visible, which a read of the run then proves."""
    sender, ask = Sender(running.http), Client(running.api)
    times, cpu = [], 0.0
    for seed in range(_APART + 1, _APART + 1 + samples):
        body = payload.request(seed, 16)
        settle(quiet=0.1, most=5)
        before, begun = cpu_seconds(), time.perf_counter()
        sender(body)
        times.append((time.perf_counter() - begun) * 1000)
        cpu += cpu_seconds() - before
        run = ask(f"/api/v1/runs/{payload.run_of(payload.traces(body)[0])}?project_id=default")
        if run["span_count"] != payload.SPANS_A_RUN:
            raise RuntimeError(f"acknowledged and not visible: {run}")
    return Latency(percentile(times, 0.5), percentile(times, 0.95), cpu / samples * 1000)


class Rate(NamedTuple):
    """What one measurement of ingest found; `cores` and `busiest` are shares of wall time (bench/processes.py)."""

    before: int
    """Spans in the store."""
    senders: str
    spans: float
    """A second, acknowledged and visible."""
    megabytes: float
    """A second, of requests."""
    cpu: float
    """µs a span, merges included."""
    cores: float
    busiest: float
    refused: int
    memory: float
    """MiB, the most since the start."""


def ingest(running: RunningService, load: Load, senders: int, requests: int) -> Rate:
    """New runs from so many senders, each waiting for its answer."""
    before, bodies = load.spans, list(load.next(requests))
    refused = 0

    def work() -> None:
        nonlocal refused
        refused = send(running.http, bodies, senders)

    return _rate(before, str(senders), bodies, measured(work), refused)


def over_grpc(running: RunningService, load: Load, requests: int) -> Rate:
    """The same over OTLP/gRPC, four requests at a time on one channel."""
    before, bodies = load.spans, list(load.next(requests))
    with grpc.insecure_channel(running.grpc) as channel:
        export = channel.unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")

        def work() -> None:
            for first in range(0, len(bodies), 4):
                for call in [export.future(body) for body in bodies[first : first + 4]]:
                    call.result()

        return _rate(before, "4 on gRPC", bodies, measured(work), 0)


def _rate(before: int, senders: str, bodies: list[bytes], cost: Measured, refused: int) -> Rate:
    spans = len(bodies) * payload.SPANS_A_BODY
    return Rate(
        before,
        senders,
        spans / cost.seconds,
        sum(map(len, bodies)) / cost.seconds / 1e6,
        cost.cpu / spans * 1e6,
        cost.cores,
        cost.busiest,
        refused,
        memory_mib("VmHWM"),
    )


class LongRun(NamedTuple):
    apart: Measured
    one: Measured
    derived: float
    """Seconds from the last acknowledgement until the run shows all of its spans."""


def long_run(running: RunningService, requests: int, spans: int = 100) -> LongRun:
    """As many runs of one request each, then one run in many requests; one request after another."""
    *apart, one = (payload.traces(payload.request(2 * _APART + i, 16))[0] for i in range(requests + 1))

    def sent(bodies: Iterable[bytes]) -> Measured:
        prepared, sender = list(bodies), Sender(running.http)
        cost = measured(lambda: [sender(body) for body in prepared])
        sender.close()
        return cost

    each = sent(payload.part_body(1, trace, 0, spans) for trace in apart)
    together = sent(payload.part_body(2, one, part, spans) for part in range(requests))
    path, ask = f"/api/v1/runs/{payload.run_of(one)}?project_id=default", Client(running.api)
    begun = time.perf_counter()
    while (found := ask(path)["span_count"]) != requests * spans:
        if time.perf_counter() - begun > 60:
            raise RuntimeError(f"the long run shows {found} of its {requests * spans} spans")
        time.sleep(0.05)
    return LongRun(each, together, time.perf_counter() - begun)


def check_stored(data: Path, sent: int) -> None:
    """Raises when a stopped service has not kept exactly what it acknowledged."""
    with contextlib.closing(clickhouse_connect.get_client(interface="chdb", path=str(data / "rows"))) as client:
        spans = client.query("SELECT count() FROM blackboard.spans FINAL").result_rows[0][0]
    if spans != sent:
        raise RuntimeError(f"{sent} spans were acknowledged, {spans} are stored")


def stored_bytes(data: Path) -> dict[str, int]:
    """Bytes by what is stored in this folder of a stopped service."""
    tables = {f"rows: {name}": size for name, size in table_bytes(data / "rows", "blackboard").items()}
    return tables | {"bodies": sum(path.stat().st_size for path in data.rglob("*.pack"))}


def table_bytes(folder: Path, database: str) -> dict[str, int]:
    """Table → bytes of its active parts, in a chDB folder that nobody has open."""
    with contextlib.closing(clickhouse_connect.get_client(interface="chdb", path=str(folder))) as client:
        found = client.query(
            f"SELECT table, sum(bytes_on_disk) FROM system.parts WHERE active AND database = '{database}' GROUP BY table"
        ).result_rows
    return {name: int(size) for name, size in found}
