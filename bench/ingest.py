"""Ingest: rate, CPU a span, memory, disk, latency, start, and one long trace; each beside a yardstick of this machine."""

from __future__ import annotations

import contextlib
import http.client
import multiprocessing
import os
import queue
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TypeVar

from bench import PROJECT, Figure, Service, payload, percentile

_HEADERS = {"Content-Type": "application/x-protobuf"}
FLUSHED = 4
"""Bodies of 512 spans that one flush takes (8 MiB)."""

T = TypeVar("T")
R = TypeVar("R")


class Sender:
    """Posts bodies to the OTLP/HTTP door on one kept connection; refused ones again, as an exporter does."""

    def __init__(self, service: Service) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", service.otlp_http, timeout=300)
        self.refused = 0

    def __call__(self, body: bytes) -> None:
        while True:
            self._connection.request("POST", "/v1/traces", body, _HEADERS)
            response = self._connection.getresponse()
            answer = response.read()
            if response.status == 200:
                if answer:
                    raise RuntimeError(f"spans were rejected: {answer[:300]!r}")
                return
            if response.status not in (429, 503):
                raise RuntimeError(f"{response.status}: {answer[:300]!r}")
            self.refused += 1
            time.sleep(float(response.headers.get("Retry-After") or 1))

    def close(self) -> None:
        self._connection.close()


def send(service: Service, bodies: Iterable[bytes], threads: int = 8) -> int:
    """Sends all with `threads` senders at once; returns when the last is acknowledged. Gives the refusals."""
    waiting: queue.Queue[bytes | None] = queue.Queue(maxsize=2 * threads)
    senders = [Sender(service) for _ in range(threads)]
    errors: list[BaseException] = []

    def work(sender: Sender) -> None:
        while (body := waiting.get()) is not None:
            if errors:
                continue
            try:
                sender(body)
            except BaseException as error:
                errors.append(error)

    workers = [threading.Thread(target=work, args=(sender,)) for sender in senders]
    for worker in workers:
        worker.start()
    for body in bodies:
        waiting.put(body)
    for _ in workers:
        waiting.put(None)
    for worker in workers:
        worker.join()
    for sender in senders:
        sender.close()
    if errors:
        raise errors[0]
    return sum(sender.refused for sender in senders)


def first_insert(service: Service) -> list[Figure]:
    idle = service.memory_mib()
    started = time.perf_counter()
    send(service, [payload.body(900_001, 16)], threads=1)
    first = time.perf_counter() - started
    return [
        Figure("start to ready and first 16 spans visible", service.start_seconds + first, "s", "budget 6"),
        Figure("  of which start to ready", service.start_seconds, "s"),
        Figure("memory, idle", idle, "MiB", "budget 550"),
    ]


def throughput(service: Service, bodies: Sequence[bytes], rounds: int) -> list[Figure]:
    """The same bodies a round, as new traces each time; the yardsticks run before and after each round."""
    spans = len(bodies) * payload.SPANS_A_BODY
    rates, costs, refused = [], [], 0
    yards = [yardsticks(bodies[:FLUSHED])]
    for number in range(rounds):
        fresh = bodies if number == 0 else [payload.body(number * 100_000 + i) for i in range(len(bodies))]
        cpu, started = service.cpu_seconds(), time.perf_counter()
        refused += send(service, fresh)
        rates.append(spans / (time.perf_counter() - started))
        service.settle()  # background merges are part of the price
        costs.append((service.cpu_seconds() - cpu) / spans * 1e6)
        yards.append(yardsticks(bodies[:FLUSHED]))
    parse, rows = (min(each[i] for each in yards) for i in (0, 1))
    cost = min(costs)
    return [
        Figure("ingest, acknowledged and visible", max(rates), "spans/s", f"best of {rounds}; {_list(rates)}"),
        Figure("CPU of the service", cost, "µs/span", f"merges included; best of {rounds}; {_list(costs)}"),
        Figure("yardstick a: upb parse of the same bodies", parse, "µs/span"),
        Figure("yardstick b: plain insert of the light rows", rows, "µs/span", "clickhouse-connect, chDB, 2,048 rows"),
        Figure("CPU of the service / a", cost / parse, "×"),
        Figure("CPU of the service / b", cost / rows, "×"),
        Figure("requests refused and sent again", refused, ""),
        Figure("memory, most so far", service.memory_mib("VmHWM"), "MiB", "budget 1,229"),
    ]


def over_grpc(service: Service, bodies: Sequence[bytes]) -> list[Figure]:
    import grpc

    cpu = service.cpu_seconds()
    with grpc.insecure_channel(f"127.0.0.1:{service.otlp_grpc}") as channel:
        export = channel.unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")
        started = time.perf_counter()
        for call in [export.future(body) for body in bodies]:
            call.result()
        seconds = time.perf_counter() - started
    service.settle()
    spans = len(bodies) * payload.SPANS_A_BODY
    return [
        Figure("OTLP/gRPC, acknowledged and visible", spans / seconds, "spans/s", f"{len(bodies)} requests at once"),
        Figure("OTLP/gRPC, CPU of the service", (service.cpu_seconds() - cpu) / spans * 1e6, "µs/span"),
    ]


def latency(service: Service, samples: int) -> list[Figure]:
    """16 spans to an idle service: the POST's answer means visible, which a read of the run then proves."""
    sender = Sender(service)
    service.settle()
    times, cpu = [], service.cpu_seconds()
    for i in range(samples):
        body = payload.body(910_000 + i, 16)
        started = time.perf_counter()
        sender(body)
        times.append((time.perf_counter() - started) * 1000)
        status, run = service.get(f"/api/v1/runs/{payload.run_id(910_000 + i, 0)}?project_id={PROJECT}")
        if status != 200 or run["span_count"] != payload.SPANS_A_RUN:
            raise RuntimeError(f"acknowledged and not visible: {status} {run}")
        time.sleep(0.05)
    cpu = (service.cpu_seconds() - cpu) / samples * 1000
    sender.close()
    return [
        Figure("send → visible, 16 spans, idle, p50", percentile(times, 0.5), "ms", "budget 80"),
        Figure("send → visible, 16 spans, idle, p95", percentile(times, 0.95), "ms"),
        Figure("  CPU of the service for each, the read included", cpu, "ms"),
    ]


def long_trace(service: Service, batches: int, spans: int = 100) -> list[Figure]:
    """One run in `batches` requests, one after another, against as many runs of one request each."""

    def cost(bodies: Iterable[bytes]) -> tuple[float, float]:
        prepared = list(bodies)
        sender = Sender(service)
        service.settle()
        cpu, started = service.cpu_seconds(), time.perf_counter()
        for body in prepared:
            sender(body)
        seconds = time.perf_counter() - started
        sender.close()
        return seconds, service.cpu_seconds() - cpu

    apart = cost(payload.part_body(1, payload.trace_id(920_000, i), 0, spans) for i in range(batches))
    one = payload.trace_id(930_000, 0)
    together = cost(payload.part_body(2, one, part, spans) for part in range(batches))
    total = batches * spans
    return [
        Figure(f"{batches} runs of {spans} spans, one request each", apart[0], "s", f"CPU {apart[1]:.1f} s"),
        Figure(f"one run of {total:,} spans in {batches} requests", together[0], "s", f"CPU {together[1]:.1f} s"),
        Figure("  ratio, wall", together[0] / apart[0], "×", "budget 2 (at 50,000 spans)"),
        Figure("  ratio, CPU", together[1] / apart[1], "×"),
        Figure("memory, most so far", service.memory_mib("VmHWM"), "MiB", "budget 1,229"),
    ]


def disk(folder: Path) -> list[Figure]:
    """What lies in the stores of a stopped service: active parts by table, and the packs."""
    tables = _apart(_table_bytes, folder / "data" / "rows")
    spans = tables["spans"][0]
    packs = [path.stat().st_size for path in (folder / "data").rglob("*.pack")]
    rows = sum(size for _, size in tables.values())
    by_table = ", ".join(f"{name} {size / spans:.0f}" for name, (_, size) in sorted(tables.items()) if size > spans)
    return [
        Figure("disk: rows", rows / spans, "B/span", by_table),
        Figure("disk: bodies", sum(packs) / spans, "B/span", f"{len(packs):,} packs"),
        Figure("disk: together", (rows + sum(packs)) / spans, "B/span", f"{spans:,} spans"),
    ]


# ---- yardsticks: in processes of their own, so that their CPU is theirs alone ----


def yardsticks(bodies: Sequence[bytes]) -> tuple[float, float]:
    """CPU µs a span of (a) parsing the bodies with upb, (b) inserting their light rows into chDB."""
    return _apart(_parse, list(bodies)), _apart(_insert_light, list(bodies))


def _apart(work: Callable[[T], R], given: T) -> R:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, given).result()


def _parse(bodies: list[bytes]) -> float:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    times = []
    for _ in range(5):
        started = time.process_time()
        for body in bodies:
            ExportTraceServiceRequest.FromString(body)
        times.append(time.process_time() - started)
    return min(times) / (len(bodies) * payload.SPANS_A_BODY) * 1e6


def _insert_light(bodies: list[bytes]) -> float:
    from otel_blackboard.collector.otlp_protobuf import decode_traces
    from otel_blackboard.config import Settings
    from otel_blackboard.exporter.clickhouse import connect, insert
    from otel_blackboard.exporter.tables import LIGHT, column_values
    from otel_blackboard.processor.reading import read_span
    from otel_blackboard.records import Tenant

    tenant = Tenant("default", PROJECT)
    lights = [read_span(tenant, span).light for body in bodies for span in decode_traces(body).spans]
    values = column_values(lights, LIGHT)
    with tempfile.TemporaryDirectory() as folder:
        client = connect(Settings(data=Path(folder)), database="default")
        client.command("CREATE DATABASE bench ENGINE = Atomic")
        columns = ", ".join(f"{column.name} {column.type}" for column in LIGHT)
        client.command(f"CREATE TABLE bench.light ({columns}) ENGINE = MergeTree ORDER BY (trace_id, span_id)")
        times = []
        for _ in range(6):  # the first one costs seconds
            started = time.process_time()
            insert(client, "bench.light", LIGHT, values)
            times.append(time.process_time() - started)
        client.close()
    return statistics.median(times[1:]) / len(lights) * 1e6


def _table_bytes(rows: Path) -> dict[str, tuple[int, int]]:
    """Table → (rows, bytes) of its active parts."""
    from otel_blackboard.config import Settings
    from otel_blackboard.exporter.clickhouse import connect

    with contextlib.closing(connect(Settings(data=rows.parent))) as client:
        found = client.query(
            "SELECT table, sum(rows), sum(bytes_on_disk) FROM system.parts "
            "WHERE active AND database = currentDatabase() GROUP BY table"
        ).result_rows
    return {name: (int(count), int(size)) for name, count, size in found}


def _list(values: Sequence[float]) -> str:
    return " ".join(f"{value:,.0f}" for value in values)


def cores() -> int:
    return len(os.sched_getaffinity(0))
