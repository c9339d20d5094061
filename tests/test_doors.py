"""Every door keeps the same promises: what is acknowledged was stored, what is refused is refused by the contract."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import logging
import sys
import threading
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
import uvicorn
from google.rpc import error_details_pb2, status_pb2
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as GrpcLogExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpanExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpanExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from otel_blackboard.access import KeyRing, new_key
from otel_blackboard.collector.answers import ANSWERS, LONGEST_REASONS
from otel_blackboard.collector.arrival import (
    Arrival,
    Counters,
    QueueFull,
    ShuttingDown,
    StoreUnavailable,
    UndecodedBytes,
)
from otel_blackboard.collector.grpc import start_grpc_door
from otel_blackboard.collector.http import make_http_door
from otel_blackboard.config import Settings
from otel_blackboard.records import Tenant

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CAPTURES = Path(__file__).parents[2] / "shared" / "captures"
PROTOBUF = "application/x-protobuf"
TRACE_EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
LOGS_EXPORT = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
METRICS_EXPORT = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
LIMIT = 200_000


class FakeIntake:
    """Takes every arrival at once, unless told how to fail."""

    def __init__(self, refuse: Exception | None = None, fail: Exception | None = None, wait: bool = False) -> None:
        self.arrivals: list[Arrival] = []
        self.futures: list[Future[None]] = []
        self._refuse, self._fail, self._wait = refuse, fail, wait

    def prepare(self, arrival: Arrival) -> None:
        pass

    def submit(self, arrival: Arrival) -> Future[None]:
        if self._refuse is not None:
            raise self._refuse
        future: Future[None] = Future()
        if self._fail is not None:
            future.set_exception(self._fail)
        elif not self._wait:
            future.set_result(None)
        self.arrivals.append(arrival)
        self.futures.append(future)
        return future

    def names(self) -> list[str]:
        return [span.name for arrival in self.arrivals for _, span in arrival.spans]

    def tenants(self) -> list[Tenant]:
        return [tenant for arrival in self.arrivals for tenant, _ in arrival.spans]


def settings(**changes: Any) -> Settings:
    return Settings(**{"otlp_grpc": "127.0.0.1:0", "max_request_bytes": LIMIT, "retry_after": 7} | changes)


def spans(*names: str, project: str | None = None, **fields: Any) -> ExportTraceServiceRequest:
    made = ExportTraceServiceRequest()
    resource = made.resource_spans.add()
    if project is not None:
        attribute = resource.resource.attributes.add(key="blackboard.project.id")
        attribute.value.string_value = project
    scope = resource.scope_spans.add()
    for position, name in enumerate(names, 1):
        scope.spans.add(**{"trace_id": bytes([1] * 16), "span_id": position.to_bytes(8, "big"), "name": name} | fields)
    return made


def logs(text: str = "hello") -> ExportLogsServiceRequest:
    made = ExportLogsServiceRequest()
    record = made.resource_logs.add().scope_logs.add().log_records.add(time_unix_nano=1)
    record.body.string_value = text
    return made


def spans_json(*names: str) -> bytes:
    made = [{"traceId": "01" * 16, "spanId": f"{n:016x}", "name": name} for n, name in enumerate(names, 1)]
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": made}]}]}).encode()


def key_ring(tmp_path: Any, **roles: tuple[str, list[str]]) -> tuple[KeyRing, dict[str, str]]:
    """A ring of keys by id, each (role, projects) of organization acme, and their texts."""
    secrets, entries = {}, []
    for id, (role, projects) in roles.items():
        secrets[id], entry = new_key(id, role, "acme", projects)
        entries.append(entry)
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": entries}))
    return KeyRing.load(path), secrets


# ---- one call at either door, with an answer in the same words ----


class Answered:
    """What a door answered: `code` is the HTTP status or the name of the gRPC code."""

    def __init__(self, code: int | str, status: status_pb2.Status | None, body: bytes, headers: dict[str, str]) -> None:
        self.code, self.status, self.body, self.headers = code, status, body, headers

    @property
    def retry_after(self) -> int | None:
        """Seconds of the RetryInfo."""
        for detail in self.status.details if self.status is not None else ():
            hint = error_details_pb2.RetryInfo()
            if detail.Unpack(hint):
                return int(hint.retry_delay.seconds)
        return None


Send = Callable[..., Any]


@asynccontextmanager
async def http_door(
    intake: FakeIntake, keys: KeyRing | None = None, counters: Counters | None = None, **changes: Any
) -> AsyncIterator[Send]:
    app = make_http_door(intake, keys, settings(**changes), counters)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://door") as client:

        async def send(
            body: Any,
            path: str = "/v1/traces",
            method: str = "POST",
            content_type: str | None = PROTOBUF,
            **headers: str,
        ) -> Answered:
            sent = {name.replace("_", "-"): value for name, value in headers.items()}
            if content_type is not None:
                sent["content-type"] = content_type
            answer = await client.request(method, path, content=body, headers=sent)
            status = None
            if answer.status_code != 200 and answer.headers["content-type"] == PROTOBUF:
                status = status_pb2.Status.FromString(answer.content)
            return Answered(answer.status_code, status, answer.content, dict(answer.headers))

        yield send


@asynccontextmanager
async def grpc_door(
    intake: FakeIntake, keys: KeyRing | None = None, counters: Counters | None = None, **changes: Any
) -> AsyncIterator[Send]:
    server, port = await start_grpc_door(intake, keys, settings(**changes), counters)
    options = [("grpc.max_send_message_length", -1)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:

        async def send(body: bytes, path: str = TRACE_EXPORT, compression: Any = None, **metadata: str) -> Answered:
            try:
                call = channel.unary_unary(path)(body, metadata=tuple(metadata.items()), compression=compression)
                return Answered("OK", None, await call, {})
            except grpc.aio.AioRpcError as error:
                trailing = dict(error.trailing_metadata() or ())
                details = trailing.get("grpc-status-details-bin")
                status = status_pb2.Status.FromString(details) if isinstance(details, bytes) else None
                if status is not None:
                    assert (status.code, status.message) == (error.code().value[0], error.details())
                return Answered(error.code().name, status, b"", {})

        yield send
    await server.stop(0)


DOORS = pytest.mark.parametrize("door", [http_door, grpc_door])


# ---- acknowledgement ----


@DOORS
async def test_an_acknowledgement_waits_until_the_intake_has_stored(door: Any) -> None:
    intake, counters = FakeIntake(wait=True), Counters()
    async with door(intake, counters=counters) as send:
        sending = asyncio.ensure_future(send(spans("a").SerializeToString()))
        while not intake.futures:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.02)
        assert not sending.done() and counters.spans == 0
        intake.futures[0].set_result(None)
        assert (await sending).code in (200, "OK")
    assert intake.names() == ["a"] and counters.spans == 1


@DOORS
async def test_requests_are_taken_while_others_wait(door: Any) -> None:
    intake = FakeIntake(wait=True)
    async with door(intake) as send:
        sending = [asyncio.ensure_future(send(spans(f"s{n}").SerializeToString())) for n in range(20)]
        while len(intake.futures) < 20:
            await asyncio.sleep(0.001)
        for future in intake.futures:
            future.set_result(None)
        assert {(await answer).code for answer in sending} <= {200, "OK"}


async def test_a_grpc_sender_that_goes_away_does_not_cancel_the_intakes_future() -> None:
    intake = FakeIntake(wait=True)
    server, port = await start_grpc_door(intake, None, settings())
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary(TRACE_EXPORT)(spans("a").SerializeToString())
        waiting = asyncio.ensure_future(call.wait_for_connection())
        while not intake.futures:
            await asyncio.sleep(0.001)
        call.cancel()
        await asyncio.sleep(0.05)
        assert not intake.futures[0].cancelled()
        intake.futures[0].set_result(None)
        waiting.cancel()
    await server.stop(0)


@DOORS
async def test_an_empty_request_is_acknowledged_without_asking_the_intake(door: Any) -> None:
    intake = FakeIntake(refuse=QueueFull())
    async with door(intake) as send:
        assert (await send(b"")).code in (200, "OK")
    assert intake.arrivals == []


@DOORS
async def test_logs_have_their_own_path(door: Any) -> None:
    intake, counters = FakeIntake(), Counters()
    async with door(intake, counters=counters) as send:
        path = "/v1/logs" if door is http_door else LOGS_EXPORT
        assert (await send(logs().SerializeToString(), path)).code in (200, "OK")
    [(tenant, log)] = intake.arrivals[0].logs
    assert (tenant, log.body) == (("default", "default"), "hello")
    assert (counters.requests, counters.logs, counters.spans) == (1, 1, 0)


@DOORS
async def test_metrics_are_accepted_not_stored_and_said_once(door: Any, caplog: pytest.LogCaptureFixture) -> None:
    intake, counters = FakeIntake(refuse=QueueFull()), Counters()
    path = "/v1/metrics" if door is http_door else METRICS_EXPORT
    with caplog.at_level(logging.WARNING):
        async with door(intake, counters=counters) as send:
            for _ in range(3):
                answer = await send(b"whatever it says", path)
                assert answer.code in (200, "OK")
                assert ExportMetricsServiceResponse.FromString(answer.body) == ExportMetricsServiceResponse()
    assert counters.metrics_requests == 3
    assert len([record for record in caplog.records if "metrics" in record.getMessage()]) == 1


async def test_json_is_answered_in_json() -> None:
    intake = FakeIntake()
    async with http_door(intake) as send:
        for content_type in ("application/json", "Application/JSON; charset=utf-8"):
            answer = await send(spans_json("a"), content_type=content_type)
            assert (answer.code, answer.body) == (200, b"{}")
            assert answer.headers["content-type"] == "application/json"
    assert intake.names() == ["a", "a"]


@pytest.mark.parametrize(
    ("encoding", "compress"),
    [("gzip", gzip.compress), ("deflate", zlib.compress), ("zstd", zstd.compress), ("identity", bytes)],
)
async def test_http_bodies_come_compressed(encoding: str, compress: Callable[[bytes], bytes]) -> None:
    intake = FakeIntake()
    async with http_door(intake) as send:
        body = spans("a" * 1_000).SerializeToString()
        assert (await send(compress(body), content_encoding=encoding)).code == 200
    assert intake.arrivals[0].size == len(body)


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
async def test_grpc_messages_come_compressed(compression: Any) -> None:
    intake = FakeIntake()
    async with grpc_door(intake) as send:
        body = spans("a" * 1_000).SerializeToString()
        assert (await send(body, compression=compression)).code == "OK"
    assert intake.arrivals[0].size == len(body)


# ---- partial success ----


@DOORS
async def test_what_is_rejected_is_named_in_the_partial_success(door: Any) -> None:
    intake, counters = FakeIntake(), Counters()
    request = spans("good", "bad")
    request.resource_spans[0].scope_spans[0].spans[1].trace_id = b"short"
    async with door(intake, counters=counters) as send:
        answer = await send(request.SerializeToString())
    partial = ExportTraceServiceResponse.FromString(answer.body).partial_success
    assert partial.rejected_spans == 1
    assert (
        "1 spans rejected: resourceSpans[0].scopeSpans[0].spans[1] 'bad': trace id has 5 bytes" in partial.error_message
    )
    assert intake.names() == ["good"]
    assert (counters.spans, counters.rejected) == (1, 1)


async def test_a_partial_success_in_json_has_the_fields_of_otlp_json() -> None:
    body = json.loads(spans_json("good", "bad"))
    body["resourceSpans"][0]["scopeSpans"][0]["spans"][1]["spanId"] = ""
    async with http_door(FakeIntake()) as send:
        answer = await send(json.dumps(body).encode(), content_type="application/json")
    partial = json.loads(answer.body)["partialSuccess"]
    assert partial["rejectedSpans"] == "1"
    assert "spans[1] 'bad': span id is missing" in partial["errorMessage"]


async def test_the_message_of_a_partial_success_is_bounded() -> None:
    request = spans(*("x" * 300 for _ in range(2_000)), trace_id=b"short")
    async with http_door(FakeIntake(), max_request_bytes=10_000_000) as send:
        answer = await send(request.SerializeToString())
    partial = ExportTraceServiceResponse.FromString(answer.body).partial_success
    assert partial.rejected_spans == 2_000
    assert len(partial.error_message) <= LONGEST_REASONS


# ---- the retry contract ----

FAILURES = [
    (FakeIntake(refuse=QueueFull()), 429, "RESOURCE_EXHAUSTED", "queue_full"),
    (FakeIntake(refuse=ShuttingDown()), 503, "UNAVAILABLE", "shutting_down"),
    (FakeIntake(fail=StoreUnavailable("http://user:password@host refused")), 503, "UNAVAILABLE", "store_down"),
    (FakeIntake(fail=ShuttingDown()), 503, "UNAVAILABLE", "shutting_down"),
    (FakeIntake(fail=ValueError("content of a span")), 500, "INTERNAL", "internal"),
]


@DOORS
@pytest.mark.parametrize(("intake", "http", "code", "situation"), FAILURES)
async def test_what_the_intake_refuses_is_told_by_the_contract(
    door: Any, intake: FakeIntake, http: int, code: str, situation: str, caplog: pytest.LogCaptureFixture
) -> None:
    counters = Counters()
    async with door(intake, counters=counters) as send:
        answer = await send(spans("a").SerializeToString())
    assert answer.code == (http if door is http_door else code)
    retryable = ANSWERS[situation].retryable
    assert answer.retry_after == (7 if retryable else None)
    if door is http_door:
        assert answer.headers.get("retry-after") == ("7" if retryable else None)
    assert counters.refused == {situation: 1}
    assert (counters.requests, counters.spans) == (1, 0)
    for hidden in ("content of a span", "password"):
        assert hidden not in answer.status.message and hidden not in caplog.text


async def test_an_unforeseen_error_is_logged_with_its_place_and_without_content(
    caplog: pytest.LogCaptureFixture,
) -> None:
    intake = FakeIntake(refuse=KeyError("content of a span"))
    async with http_door(intake) as send:
        await send(spans("a").SerializeToString())
    assert "KeyError" in caplog.text and "in submit" in caplog.text
    assert "content of a span" not in caplog.text


@DOORS
async def test_a_future_that_the_intake_cancels_asks_the_sender_to_try_again(door: Any) -> None:
    intake = FakeIntake(wait=True)
    async with door(intake) as send:
        sending = asyncio.ensure_future(send(spans("a").SerializeToString()))
        while not intake.futures:
            await asyncio.sleep(0.001)
        intake.futures[0].cancel()
        assert (await sending).code in (503, "UNAVAILABLE")


@DOORS
async def test_an_undecodable_body_is_the_senders_fault(door: Any) -> None:
    intake, counters = FakeIntake(), Counters()
    async with door(intake, counters=counters) as send:
        answer = await send(b"\xff\xff\xff")
        assert answer.code in (400, "INVALID_ARGUMENT") and answer.retry_after is None
        assert "not an OTLP protobuf request" in answer.status.message
        answer = await send(logs().SerializeToString())
        assert answer.code in (400, "INVALID_ARGUMENT")
        assert "this is a logs request; post it to /v1/logs" in answer.status.message
    assert counters.refused == {"bad_body": 2} and intake.arrivals == []


@DOORS
async def test_a_request_above_the_limit_is_refused_and_one_at_it_is_taken(door: Any) -> None:
    intake, counters = FakeIntake(), Counters()
    empty = len(spans("x" * 100_000).SerializeToString()) - 100_000
    async with door(intake, counters=counters) as send:
        assert (await send(spans("x" * (LIMIT - empty)).SerializeToString())).code in (200, "OK")
        answer = await send(spans("x" * (LIMIT - empty + 1)).SerializeToString())
        assert answer.code in (413, "INVALID_ARGUMENT")
        assert f"larger than {LIMIT} bytes" in answer.status.message
    assert counters.refused == {"too_large": 1}


async def test_a_bomb_is_refused_at_either_door() -> None:
    intake = FakeIntake()
    bomb = bytes(30_000_000)
    async with http_door(intake) as send:
        for encoding, compress in (("gzip", gzip.compress), ("deflate", zlib.compress), ("zstd", zstd.compress)):
            assert (await send(compress(bomb), content_encoding=encoding)).code == 413
    async with grpc_door(intake) as send:
        # Beyond twice the limit grpc stops by itself; without a retry hint the sender drops it.
        answer = await send(bomb, compression=grpc.Compression.Gzip)
        assert (answer.code, answer.retry_after) == ("RESOURCE_EXHAUSTED", None)
    assert intake.arrivals == []


async def test_a_body_without_announced_length_is_not_read_beyond_the_limit() -> None:
    given = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal given
        while True:
            given += 10_000
            yield bytes(10_000)

    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": await anext(body), "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    body = endless()
    app = make_http_door(FakeIntake(), None, settings())
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/traces",
        "query_string": b"",
        "headers": [(b"content-type", PROTOBUF.encode())],
    }
    await app(scope, receive, send)
    assert sent[0]["status"] == 413
    assert given <= LIMIT + 10_000


async def test_an_announced_length_above_the_limit_is_refused_unread() -> None:
    async def receive() -> dict[str, Any]:
        raise AssertionError("the body was read")

    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"content-type", PROTOBUF.encode()), (b"content-length", str(LIMIT + 1).encode())]
    scope = {"type": "http", "method": "POST", "path": "/v1/traces", "query_string": b"", "headers": headers}
    await make_http_door(FakeIntake(), None, settings())(scope, receive, send)
    assert sent[0]["status"] == 413


async def test_a_body_that_stays_away_may_be_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sender may be there still, behind a bad line; a final answer would make it drop the data."""
    monkeypatch.setattr("otel_blackboard.collector.http._STALLED", 0.1)

    async def begun() -> AsyncIterator[bytes]:
        yield b"\n"
        await asyncio.sleep(30)

    intake, counters = FakeIntake(), Counters()
    async with http_door(intake, counters=counters) as send:
        answer = await send(begun())
    assert (answer.code, answer.retry_after, intake.arrivals) == (503, 7, [])
    assert counters.refused == {"stalled": 1}


async def test_a_grpc_message_that_stays_away_may_be_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("otel_blackboard.collector.grpc._STALLED", 0.1)

    async def silent() -> AsyncIterator[bytes]:
        await asyncio.sleep(30)
        yield b""

    server, port = await start_grpc_door(FakeIntake(), None, settings())
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await channel.stream_unary(TRACE_EXPORT)(silent())
    await server.stop(0)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "google.rpc.retryinfo-bin" in dict(refused.value.trailing_metadata() or ())


async def test_a_sender_that_disconnects_in_mid_body_leaves_nothing_behind() -> None:
    messages = [{"type": "http.request", "body": b"abc", "more_body": True}, {"type": "http.disconnect"}]

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None:
        pass

    intake, counters = FakeIntake(), Counters()
    headers = [(b"content-type", PROTOBUF.encode())]
    scope = {"type": "http", "method": "POST", "path": "/v1/traces", "query_string": b"", "headers": headers}
    await make_http_door(intake, None, settings(), counters)(scope, receive, send)
    assert intake.arrivals == [] and counters.refused == {"bad_body": 1}


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/protobuf", "application/x-ndjson"])
async def test_another_content_type_is_refused(content_type: str | None) -> None:
    async with http_door(FakeIntake()) as send:
        answer = await send(spans("a").SerializeToString(), content_type=content_type)
    assert answer.code == 415
    assert json.loads(answer.body)["message"] == "Content-Type must be application/x-protobuf or application/json"


async def test_another_content_encoding_is_refused() -> None:
    async with http_door(FakeIntake()) as send:
        answer = await send(b"", content_encoding="br")
    assert answer.code == 415 and "identity, gzip, deflate, zstd" in answer.status.message


async def test_errors_are_google_rpc_status_in_the_encoding_of_the_request() -> None:
    async with http_door(FakeIntake(refuse=QueueFull())) as send:
        answer = await send(spans_json("a"), content_type="application/json")
        assert answer.headers["content-type"] == "application/json"
        status = json.loads(answer.body)
        assert (status["code"], status["details"][0]["retryDelay"]) == (8, "7s")
        assert status["details"][0]["@type"] == "type.googleapis.com/google.rpc.RetryInfo"
        answer = await send(spans("a").SerializeToString())
        assert answer.status.code == 8


async def test_other_paths_and_methods_are_told_where_to_go() -> None:
    async with http_door(FakeIntake()) as send:
        for path in ("/", "/v1/traces/", "/v1/metric", "/v1development/profiles"):
            answer = await send(b"", path)
            assert (answer.code, answer.status.message) == (
                404,
                "OTLP is taken at /v1/traces, /v1/logs and /v1/metrics",
            )
        answer = await send(b"", method="GET")
        assert (answer.code, answer.headers["allow"]) == (405, "POST")
        assert answer.status.message == "OTLP is sent with POST"
    async with grpc_door(FakeIntake()) as send:
        assert (await send(b"", "/opentelemetry.proto.collector.profiles.v1.ProfilesService/Export")).code == (
            "UNIMPLEMENTED"
        )


def test_only_what_a_sender_should_send_again_is_retryable() -> None:
    for situation, answer in ANSWERS.items():
        retried = answer.http in (429, 503) and answer.grpc in (8, 14)
        assert answer.retryable == retried, situation


# ---- keys and tenants ----


@DOORS
async def test_without_or_with_an_unknown_key_nothing_is_taken(door: Any, tmp_path: Any) -> None:
    keys, secrets = key_ring(tmp_path, agents=("writer", ["research"]))
    intake, counters = FakeIntake(), Counters()
    async with door(intake, keys, counters) as send:
        body = spans("a").SerializeToString()
        for metadata in ({}, {"authorization": "Bearer bbk_unknown"}, {"authorization": secrets["agents"]}):
            answer = await send(body, **metadata)
            assert answer.code in (401, "UNAUTHENTICATED")
            assert secrets["agents"] not in str(answer.status)
        assert (await send(body, authorization=f"Bearer {secrets['agents']}")).code in (200, "OK")
    assert intake.tenants() == [("acme", "research")]
    assert counters.refused == {"unauthenticated": 3}


@DOORS
async def test_a_key_decides_before_the_body_is_looked_at(door: Any, tmp_path: Any) -> None:
    keys, _ = key_ring(tmp_path, agents=("writer", ["research"]))
    async with door(FakeIntake(), keys) as send:
        assert (await send(b"\xff" * (LIMIT + 1))).code in (401, "UNAUTHENTICATED")
        metrics = "/v1/metrics" if door is http_door else METRICS_EXPORT
        assert (await send(b"", metrics)).code in (401, "UNAUTHENTICATED")


@DOORS
@pytest.mark.parametrize(("role", "allowed"), [("reader", False), ("reviewer", False), ("admin", True)])
async def test_only_roles_that_write_may_send(door: Any, role: str, allowed: bool, tmp_path: Any) -> None:
    keys, secrets = key_ring(tmp_path, someone=(role, ["research"]))
    async with door(FakeIntake(), keys) as send:
        answer = await send(spans("a").SerializeToString(), authorization=f"Bearer {secrets['someone']}")
    assert answer.code in ((200, "OK") if allowed else (403, "PERMISSION_DENIED"))


@DOORS
async def test_spans_of_a_foreign_tenant_are_rejected_alone(door: Any, tmp_path: Any) -> None:
    keys, secrets = key_ring(tmp_path, agents=("writer", ["research", "ops"]))
    request = spans("mine", "foreign", "unnamed")
    for span, project in zip(request.resource_spans[0].scope_spans[0].spans, ("ops", "other", None), strict=True):
        if project is not None:
            span.attributes.add(key="blackboard.project.id").value.string_value = project
    intake, counters = FakeIntake(), Counters()
    async with door(intake, keys, counters) as send:
        answer = await send(request.SerializeToString(), authorization=f"Bearer {secrets['agents']}")
    partial = ExportTraceServiceResponse.FromString(answer.body).partial_success
    assert partial.rejected_spans == 2
    assert "'foreign': blackboard.project.id 'other' is not a project of the key" in partial.error_message
    assert "name one of: research, ops" in partial.error_message
    assert intake.names() == ["mine"] and intake.tenants() == [("acme", "ops")]
    assert (counters.spans, counters.rejected) == (1, 2)


@DOORS
async def test_without_keys_tenant_attributes_are_believed(door: Any) -> None:
    intake = FakeIntake()
    async with door(intake, organization="home", project="desk") as send:
        await send(spans("a", project="ops").SerializeToString())
        await send(spans("b").SerializeToString())
    assert intake.tenants() == [("home", "ops"), ("home", "desk")]


@DOORS
async def test_credentials_in_attributes_are_blanked_and_counted(door: Any) -> None:
    intake, counters = FakeIntake(), Counters()
    request = spans("a")
    attribute = (
        request.resource_spans[0].scope_spans[0].spans[0].attributes.add(key="http.request.header.authorization")
    )
    attribute.value.string_value = "Bearer s3cret"
    async with door(intake, counters=counters) as send:
        await send(request.SerializeToString())
    assert "s3cret" not in repr(intake.arrivals)
    assert counters.blanked == intake.arrivals[0].blanked == 1


# ---- memory ahead of the queue ----


def test_bodies_that_wait_to_be_decoded_are_bounded() -> None:
    undecoded = UndecodedBytes(100)
    undecoded.hold(60)
    with pytest.raises(QueueFull):
        undecoded.hold(41)
    undecoded.hold(40)
    undecoded.release(100)
    undecoded.hold(100)


class Refusing:
    """A fake intake: every arrival is refused, at once or when a store has failed."""

    def __init__(self, at_once: bool) -> None:
        self.at_once = at_once

    def prepare(self, arrival: Arrival) -> None:
        pass

    def submit(self, arrival: Arrival) -> Future[None]:
        if self.at_once:
            raise QueueFull
        future: Future[None] = Future()
        future.set_exception(StoreUnavailable())
        return future


@DOORS
@pytest.mark.parametrize("at_once", [True, False])
async def test_a_refused_request_is_let_go_at_once(door: Any, at_once: bool) -> None:
    """Not when cycles are looked for, which is seldom here: in an outage every request is refused."""
    body = spans("x" * 100_000).SerializeToString()
    async with door(Refusing(at_once)) as send:
        await send(body)
        gc.collect()
        gc.disable()
        tracemalloc.start()
        try:
            for _ in range(20):
                answer = await send(body)
                assert answer.code in (429, 503, "RESOURCE_EXHAUSTED", "UNAVAILABLE")
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            gc.enable()
    assert held < 5 * len(body)


@DOORS
async def test_what_was_held_is_released_whatever_happened(door: Any) -> None:
    # Each request holds more than half of what may be held: a leak would refuse the second one.
    intake = FakeIntake()
    body = spans("x" * 150_000).SerializeToString()
    async with door(intake, max_queue_bytes=LIMIT) as send:
        for sent in (body, b"\xff" * 150_000, bytes(LIMIT + 1), body, body):
            assert (await send(sent)).code not in (429, "RESOURCE_EXHAUSTED")
    assert len(intake.arrivals) == 3


# ---- addresses ----


async def test_a_grpc_port_in_use_is_said() -> None:
    server, port = await start_grpc_door(FakeIntake(), None, settings())
    try:
        with pytest.raises(OSError, match=f"cannot listen at 127.0.0.1:{port}"):
            await start_grpc_door(FakeIntake(), None, settings(otlp_grpc=f"127.0.0.1:{port}"))
    finally:
        await server.stop(0)


# ---- real agents ----


@pytest.mark.skipif(not CAPTURES.is_dir(), reason=f"not on this machine: no recordings of real agents at {CAPTURES}")
@DOORS
async def test_requests_of_real_agents_are_taken_as_they_were_sent(door: Any) -> None:
    intake, counters = FakeIntake(), Counters()
    files = sorted(CAPTURES.glob("*/raw/*.pb" if door is grpc_door else "*/raw/*-*.*"))
    assert files
    async with door(intake, counters=counters, max_request_bytes=48 << 20) as send:
        for file in files:
            signal = file.stem.partition("-")[2]
            if door is http_door:
                content_type = "application/json" if file.suffix == ".json" else PROTOBUF
                answer = await send(file.read_bytes(), f"/v1/{signal}", content_type=content_type)
            else:
                path = {"traces": TRACE_EXPORT, "logs": LOGS_EXPORT, "metrics": METRICS_EXPORT}[signal]
                answer = await send(file.read_bytes(), path)
            assert answer.code in (200, "OK"), file
            assert answer.body in (b"", b"{}"), file
    assert counters.requests == len(files) and counters.refused == {}


# ---- real exporters ----


def record(provider: TracerProvider) -> None:
    tracer = provider.get_tracer("test.library", "1.2.3")
    with tracer.start_as_current_span("flow", attributes={"tags": ["a", "b"], "n": 5, "ok": True, "f": 0.5}) as span:
        span.add_event("noted", {"why": "é"})
        with tracer.start_as_current_span("step"):
            pass
    provider.shutdown()


def check(intake: FakeIntake) -> None:
    arrived = {span.name: span for arrival in intake.arrivals for _, span in arrival.spans}
    flow, step = arrived["flow"], arrived["step"]
    assert flow.attributes == {"tags": ["a", "b"], "n": 5, "ok": True, "f": 0.5}
    assert [(event.name, event.attributes) for event in flow.events] == [("noted", {"why": "é"})]
    assert (step.trace_id, step.parent_span_id) == (flow.trace_id, flow.span_id)
    assert (flow.scope.name, flow.scope.version) == ("test.library", "1.2.3")
    assert flow.resource.attributes["service.name"] == "agent"
    assert 0 < flow.start_ns <= step.start_ns <= step.end_ns <= flow.end_ns
    assert intake.tenants() == [("acme", "research")] * 2


@contextmanager
def served(app: Any) -> Iterator[int]:
    """The application behind uvicorn on a port of its own."""
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        threading.Event().wait(0.005)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(5)


def test_the_real_http_exporter_is_understood(tmp_path: Any) -> None:
    keys, secrets = key_ring(tmp_path, agents=("writer", ["research"]))
    intake = FakeIntake()
    with served(make_http_door(intake, keys, settings())) as port:
        provider = TracerProvider(resource=Resource.create({"service.name": "agent"}))
        provider.add_span_processor(
            SimpleSpanProcessor(
                HttpSpanExporter(
                    endpoint=f"http://127.0.0.1:{port}/v1/traces",
                    headers={"authorization": f"Bearer {secrets['agents']}"},
                    compression=Compression.Gzip,
                )
            )
        )
        record(provider)
    check(intake)


async def test_the_real_grpc_exporters_are_understood(tmp_path: Any) -> None:
    keys, secrets = key_ring(tmp_path, agents=("writer", ["research"]))
    intake = FakeIntake()
    server, port = await start_grpc_door(intake, keys, settings())
    sent: dict[str, Any] = {
        "endpoint": f"127.0.0.1:{port}",
        "insecure": True,
        "headers": (("authorization", f"Bearer {secrets['agents']}"),),
    }

    def export() -> None:
        provider = TracerProvider(resource=Resource.create({"service.name": "agent"}))
        provider.add_span_processor(SimpleSpanProcessor(GrpcSpanExporter(compression=grpc.Compression.Gzip, **sent)))
        record(provider)
        logger = LoggerProvider(resource=Resource.create({"service.name": "agent"}))
        logger.add_log_record_processor(SimpleLogRecordProcessor(GrpcLogExporter(**sent)))
        logger.get_logger("test.library").emit(body={"role": "user", "parts": [1, None]}, event_name="gen_ai.choice")
        logger.shutdown()

    await asyncio.to_thread(export)
    await server.stop(0)
    [log] = [log for arrival in intake.arrivals for _, log in arrival.logs]
    assert (log.event_name, log.body) == ("gen_ai.choice", {"role": "user", "parts": [1, None]})
    check(intake)
