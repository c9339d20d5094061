"""CPU by stage: the service's own pipeline in process, and a baseline that does the least anyone could. Each in a process
of its own, over the same requests.

The stages are real functions of the product, wrapped from here; what the flush does beside them is its own row. Jobs of
the flush run one after another and background merges wait, so that all CPU that passes during a stage is the stage's,
threads of the engine included. What is missing to the CPU of the real service is HTTP, merges, and threads in each other's way.
"""

from __future__ import annotations

import gc
import multiprocessing
import resource
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from bench import payload

STAGES = ("decode", "map", "bodies", "encode", "insert", "read-back", "resolve", "flush, all else")

_PREPARATION, _FLUSH = "otel_blackboard.exporter.preparation", "otel_blackboard.exporter.flush"
# (module, name in it): stage. `Class.method` for methods.
_WRAPPED = {
    (_PREPARATION, "read_span"): "map",
    (_PREPARATION, "compress"): "bodies",
    (_FLUSH, "pack"): "bodies",
    (_FLUSH, "write_packs"): "bodies",
    (_FLUSH, "column_values"): "encode",
    (_FLUSH, "_row_values"): "encode",
    (_FLUSH, "_tenants"): "encode",
    (_FLUSH, "insert"): "insert",
    (_FLUSH, "Exporter._read_back"): "read-back",
    (_FLUSH, "Exporter._resolve"): "resolve",
}
_A_FLUSH = 4
"""Requests that one flush takes when four senders wait for their answers."""

T = TypeVar("T")
R = TypeVar("R")


def apart(work: Callable[[T], R], given: T) -> R:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, given).result()


def pipeline(bodies: Sequence[bytes]) -> dict[str, float]:
    """CPU µs a span by stage, in STAGES."""
    from otel_blackboard.collector.arrival import admit
    from otel_blackboard.collector.otlp_protobuf import decode_traces
    from otel_blackboard.config import Settings
    from otel_blackboard.exporter.clickhouse import connect
    from otel_blackboard.records import Tenant
    from otel_blackboard.service import open_stores

    clock = _Clock()
    for (module, name), stage in _WRAPPED.items():
        clock.wrap(module, name, stage)

    def flush(some: Sequence[bytes]) -> None:
        with clock("decode"):
            arrivals = [admit(decode_traces(body), None, Tenant("", ""))[0] for body in some]
        with clock("flush, all else"):
            stores.exporter.commit([stores.exporter.prepare(arrival.spans, []) for arrival in arrivals])

    with tempfile.TemporaryDirectory() as folder, open_stores(Settings(data=Path(folder))) as stores:
        stores.exporter._pool.shutdown()
        stores.exporter._pool = _OneAfterAnother()
        client = connect(stores.settings)
        client.command("SYSTEM STOP MERGES")
        flush([payload.request(99_000_000)])  # the first one costs seconds
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 20)  # as the service does
        clock.spent.clear()
        for first in range(0, len(bodies), _A_FLUSH):
            flush(bodies[first : first + _A_FLUSH])
        client.close()
    spans = len(bodies) * payload.SPANS_A_BODY
    return {stage: clock.spent[stage] / spans * 1e6 for stage in STAGES}


class Baseline(NamedTuple):
    spans_per_second: float
    megabytes_per_second: float
    cpu: float
    """µs a span, merges included."""
    stages: dict[str, float]
    disk: float
    """Bytes a span."""
    memory_mib: float


def baseline(bodies: Sequence[bytes]) -> Baseline:
    """For each request: parse it, make rows, insert them with one INSERT into one plain table, texts and all."""
    import orjson
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    from otel_blackboard.config import Settings
    from otel_blackboard.exporter.clickhouse import connect

    types = {
        **dict.fromkeys(("trace_id", "span_id", "parent_span_id"), "String"),
        "name": "LowCardinality(String)",
        "kind": "UInt8",
        **dict.fromkeys(("start_ns", "end_ns"), "UInt64"),
        "attributes": "String",
    }
    clock = _Clock()
    with tempfile.TemporaryDirectory() as folder:
        client = connect(Settings(data=Path(folder)), database="default")
        client.command("CREATE DATABASE bench ENGINE = Atomic")
        columns = ", ".join(f"{name} {type_}" for name, type_ in types.items())
        client.command(f"CREATE TABLE bench.spans ({columns}) ENGINE = MergeTree ORDER BY (trace_id, span_id)")

        def store(body: bytes) -> None:
            with clock("decode"):
                request = ExportTraceServiceRequest.FromString(body)
            with clock("encode"):
                rows = [
                    (
                        span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex(), span.name, span.kind,
                        span.start_time_unix_nano, span.end_time_unix_nano,
                        orjson.dumps({a.key: getattr(a.value, a.value.WhichOneof("value")) for a in span.attributes}),
                    )
                    for resource_spans in request.resource_spans
                    for scope_spans in resource_spans.scope_spans
                    for span in scope_spans.spans
                ]  # fmt: skip
            with clock("insert"):
                client.insert(
                    "bench.spans", list(zip(*rows, strict=True)), column_names=list(types),
                    column_type_names=list(types.values()), column_oriented=True,
                )  # fmt: skip

        store(payload.request(99_000_000))
        clock.spent.clear()
        cpu, begun = time.process_time(), time.perf_counter()
        for body in bodies:
            store(body)
        seconds = time.perf_counter() - begun
        client.command("OPTIMIZE TABLE bench.spans FINAL")  # as the merges end that the service is charged for
        cpu = time.process_time() - cpu
        size, count = client.query(
            "SELECT sum(bytes_on_disk), sum(rows) FROM system.parts WHERE active AND database = 'bench'"
        ).result_rows[0]
        client.close()
    spans = len(bodies) * payload.SPANS_A_BODY
    stages = {stage: spent / spans * 1e6 for stage, spent in clock.spent.items()}
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    megabytes = sum(map(len, bodies)) / 1e6
    return Baseline(spans / seconds, megabytes / seconds, cpu / spans * 1e6, stages, size / count, memory)


class _Clock:
    """CPU seconds of this process by stage. What a stage calls that is a stage itself is charged to that one alone."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = defaultdict(float)
        self._stages = [""]
        self._at = time.process_time()

    def _charge(self) -> None:
        now = time.process_time()
        self.spent[self._stages[-1]] += now - self._at
        self._at = now

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        self._charge()
        self._stages.append(stage)
        try:
            yield
        finally:
            self._charge()
            self._stages.pop()

    def wrap(self, module: str, name: str, stage: str) -> None:
        owner = __import__(module, fromlist=["*"])
        *outer, last = name.split(".")
        for part in outer:
            owner = getattr(owner, part)
        work = getattr(owner, last)

        @wraps(work)
        def timed(*given: Any, **named: Any) -> Any:
            # As `with self(stage)`, for less: this is done for every span.
            self._charge()
            self._stages.append(stage)
            try:
                return work(*given, **named)
            finally:
                self._charge()
                self._stages.pop()

        setattr(owner, last, timed)


class _OneAfterAnother(Executor):
    def submit(self, work: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(work(*given, **named))
        except BaseException as error:
            future.set_exception(error)
        return future
