"""Workers side by side over one row store and one body store, both over the wire: what the next step costs.

The row store is the front over chDB of tests/servers (one process, its HTTP in Python: a real server is cheaper), the body
store MinIO where it is to be had, else SeaweedFS. Every sender stays with its worker and sends whole traces, as a Collector
does that routes by trace id.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench import Table, payload
from bench.processes import cpu_seconds, measured, settle
from bench.sending import Load, send
from tests.running_service import service
from tests.servers.clickhouse_over_chdb import clickhouse_over_chdb
from tests.servers.minio_server import find_minio, minio_server
from tests.servers.otel_collector import find_collector, otel_collector
from tests.servers.seaweedfs import seaweedfs

_PARTS = {
    "workers": "otel_blackboard.cli", "row store": "clickhouse_over_chdb", "body store": " server ",
    "Collector": "otelcol-blackboard",
}  # fmt: skip
"""What stands in the command line of each part's processes."""


def table(requests: int) -> Table:
    rows = [(str(count), *_measure(count, requests)) for count in (1, 2)]
    if find_collector():
        rows.append(("1, behind a Collector", *_measure(1, requests, behind_collector=True)))
    body_store = "MinIO" if find_minio() else "SeaweedFS"
    return Table(
        f"Workers over the wire, {body_store}; CPU in µs/span",
        ("workers", "visible spans/s", "cores", *(f"CPU of the {part}" for part in _PARTS)),
        rows,
    )


def _measure(count: int, requests: int, behind_collector: bool = False) -> tuple[float | None, ...]:
    load = Load()
    with tempfile.TemporaryDirectory(prefix="blackboard-bench-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        dsn = stack.enter_context(clickhouse_over_chdb(folder))
        s3 = stack.enter_context(minio_server(folder) if find_minio() else seaweedfs(folder))
        stores = {"BLACKBOARD_CLICKHOUSE": dsn, "BLACKBOARD_S3": s3}
        # One after the other: the first one makes the tables.
        workers = [stack.enter_context(service(folder / str(n), environment=stores)) for n in range(count)]
        doors = [worker.http for worker in workers]
        if behind_collector:
            doors = [stack.enter_context(otel_collector(folder / "collector", workers[0].grpc)).http]

        def runs() -> int:
            return int(workers[0].get("/runs", limit=1, total="true")["total"])

        def work() -> None:
            with ThreadPoolExecutor(count) as pool:
                list(pool.map(send, doors, shares, [4 // count] * count))
            wanted, deadline = load.spans // payload.SPANS_A_RUN, time.monotonic() + 300
            while (listed := runs()) != wanted:
                # A Collector acknowledges first; for the service itself this would be a broken promise.
                if not behind_collector or time.monotonic() > deadline:
                    raise RuntimeError(f"{wanted} runs were acknowledged, {listed} are listed")
                time.sleep(0.3)

        shares = [list(load.next(1)) for _ in doors]
        work()  # what each part does once is not what a span costs
        shares = [list(load.next(requests // count)) for _ in doors]
        settle()
        before = {part: cpu_seconds(command) for part, command in _PARTS.items()}
        cost = measured(work)
        spans = sum(map(len, shares)) * payload.SPANS_A_BODY
        each = {part: (cpu_seconds(command) - before[part]) / spans * 1e6 for part, command in _PARTS.items()}
        return (spans / cost.seconds, cost.cores, *(used or None for used in each.values()))
