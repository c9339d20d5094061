"""What deploy/ promises: files that parse and agree with the product, and a Collector that loses nothing it acknowledged."""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import shlex
import subprocess
import sys
import time
import urllib.error
import urllib.request
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
import yaml
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2, logs_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_blackboard.cli import serve
from otel_blackboard.config import Settings
from tests.servers import free_ports
from tests.servers.otel_collector import Collector, find_collector, otel_collector

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"

needs_collector = pytest.mark.skipif(
    find_collector() is None, reason="not on this machine: the OpenTelemetry Collector (.ci/servers builds it)"
)


def read_yaml(*path: str) -> dict[str, Any]:
    document = yaml.safe_load(DEPLOY.joinpath(*path).read_text())
    assert isinstance(document, dict)
    return document


# --- the files


@pytest.mark.parametrize("path", sorted(DEPLOY.rglob("*.yaml")), ids=lambda path: str(path.relative_to(DEPLOY)))
def test_yaml_files_parse(path: Path) -> None:
    assert isinstance(yaml.safe_load(path.read_text()), dict)


def test_the_service_is_started_with_options_that_the_command_line_has() -> None:
    words = shlex.split(read_yaml("compose.yaml")["services"]["otel-blackboard"]["command"])
    assert words[0] == "serve"
    options = dict(zip(words[1::2], words[2::2], strict=True))
    assert set(options) <= {option for parameter in serve.params for option in parameter.opts}
    # Containers are reached from others, so the service must have keys, or it would refuse to start.
    assert options["--otlp-grpc"] == "0.0.0.0:4317"
    environment = read_yaml("compose.yaml")["services"]["otel-blackboard"]["environment"]
    assert environment["BLACKBOARD_KEYS_FILE"] == "/run/secrets/blackboard_keys"


def test_the_service_is_given_settings_that_exist() -> None:
    environment = read_yaml("compose.yaml")["services"]["otel-blackboard"]["environment"]
    known = {f"BLACKBOARD_{name.upper()}" for name in Settings.model_fields}
    assert set(environment) <= known


def test_compose_publishes_on_loopback_only() -> None:
    for name, service in read_yaml("compose.yaml")["services"].items():
        for port in service.get("ports", []):
            assert str(port).startswith("127.0.0.1:"), f"{name} publishes {port}"


def test_compose_has_no_secret_of_its_own() -> None:
    """Every password comes from .env and has no default; the example leaves all of them open."""
    text = (DEPLOY / "compose.yaml").read_text()
    asked = set(re.findall(r"\$\{(\w+):\?", text))
    assert not re.findall(r"\$\{\w+(?::?-[^}]*)?\}", text), "a variable with a default, or with none and no check"
    example = dict(
        line.split("=", 1)
        for line in (DEPLOY / ".env.example").read_text().splitlines()
        if line and not line.startswith("#")
    )
    assert set(example) == asked
    assert not any(example.values())


def test_compose_services_say_when_they_are_healthy_and_pin_what_they_run() -> None:
    for name, service in read_yaml("compose.yaml")["services"].items():
        assert "healthcheck" in service, name
        if "build" not in service:
            version = service["image"].partition(":")[2]
            assert version[:1].isdigit(), f"{name} runs {service['image']}"
        else:
            build = service["build"]
            context, file = (build, "Dockerfile") if isinstance(build, str) else (build["context"], build["dockerfile"])
            assert (DEPLOY / context / file).is_file(), name


def test_containers_and_ci_build_the_same_servers() -> None:
    script = (ROOT / ".ci" / "servers").read_text()
    minio = re.search(r"^MINIO_VERSION=(\S+)", script, re.M)
    builder = re.search(r"^BUILDER_VERSION=(\S+)", script, re.M)
    assert minio is not None
    assert builder is not None
    assert f"ARG MINIO={minio[1]}\n" in (DEPLOY / "minio" / "Dockerfile").read_text()
    assert f"ARG BUILDER={builder[1]}\n" in (DEPLOY / "collector" / "Dockerfile").read_text()
    manifest = read_yaml("collector", "manifest.yaml")
    modules = [
        entry["gomod"] for kind in ("receivers", "processors", "exporters", "extensions") for entry in manifest[kind]
    ]
    assert {module.split()[1] for module in modules} == {builder[1]}


def test_a_request_has_the_same_limit_at_every_door() -> None:
    limit = Settings.model_fields["max_request_bytes"].default
    configuration = read_yaml("collector", "config.yaml")
    doors = configuration["receivers"]["otlp"]["protocols"]
    assert doors["grpc"]["max_recv_msg_size_mib"] * 1024 * 1024 == limit
    assert doors["http"]["max_request_body_size"] == limit
    queue = configuration["exporters"]["otlp_grpc"]["sending_queue"]
    assert queue["sizer"] == "bytes"
    assert queue["batch"]["max_size"] == limit


def test_nothing_is_acknowledged_before_it_is_in_the_queue() -> None:
    """A `batch` processor would: it answers once it holds a request in memory."""
    configuration = read_yaml("collector", "config.yaml")
    for signal in ("traces", "logs"):
        pipeline = configuration["service"]["pipelines"][signal]
        assert pipeline["processors"] == ["memory_limiter"]
        assert pipeline["exporters"] == ["otlp_grpc"]
    exporter = configuration["exporters"]["otlp_grpc"]
    assert exporter["sending_queue"]["storage"] == "file_storage"
    assert exporter["retry_on_failure"]["max_elapsed_time"] == "0s"
    assert configuration["extensions"]["file_storage"]["fsync"] is True


def test_clickhouse_keeps_no_log_of_itself_without_an_end(tmp_path: Path) -> None:
    """Read by the engine: a server configuration that turns on every log it may have, and ours beside it."""
    ours = DEPLOY / "clickhouse" / "config.d" / "blackboard.xml"
    logs = [element.tag for element in ElementTree.parse(ours).getroot() if element.tag.endswith("_log")]
    everything = "".join(f"<{log}><database>system</database><table>{log}</table></{log}>" for log in logs)
    (tmp_path / "config.xml").write_text(f"<clickhouse>{everything}</clickhouse>")
    query = (
        "SELECT name, engine_full FROM system.tables "
        "WHERE database = 'system' AND engine LIKE '%MergeTree' FORMAT JSONEachRow"
    )
    program = (
        "import chdb, sys\n"
        "connection = chdb.connect(f'{sys.argv[1]}?config-file={sys.argv[2]}')\n"
        "connection.query('SYSTEM FLUSH LOGS')\n"
        "print(connection.query(sys.argv[3]), end='')\n"
    )

    def kept(data: str) -> dict[str, str]:
        # A process of its own: an engine reads its configuration once.
        command = [sys.executable, "-c", program, str(tmp_path / data), str(tmp_path / "config.xml"), query]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        return {row["name"]: row["engine_full"] for row in map(json.loads, filter(str.strip, done.stdout.splitlines()))}

    assert {"trace_log", "metric_log", "text_log", "query_log"} <= set(kept("without"))
    (tmp_path / "config.d").mkdir()
    (tmp_path / "config.d" / ours.name).write_bytes(ours.read_bytes())
    remaining = kept("with")
    assert set(remaining) == {"query_log", "error_log", "crash_log"}
    assert all(" TTL event_date + toIntervalDay(" in engine for engine in remaining.values()), remaining


# --- the Collector


class FakeService(NamedTuple):
    """Stands in for otel-blackboard: an OTLP/gRPC door that keeps every request it was sent."""

    traces: list[trace_service_pb2.ExportTraceServiceRequest]
    logs: list[logs_service_pb2.ExportLogsServiceRequest]
    headers: list[dict[str, str]]

    def spans(self) -> list[Span]:
        return [
            span
            for request in self.traces
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


@contextlib.contextmanager
def fake_service(port: int) -> Iterator[FakeService]:
    fake = FakeService([], [], [])

    class Traces(trace_service_pb2_grpc.TraceServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:
            fake.headers.append(dict(context.invocation_metadata()))
            fake.traces.append(request)
            return trace_service_pb2.ExportTraceServiceResponse()

    class Logs(logs_service_pb2_grpc.LogsServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:
            fake.logs.append(request)
            return logs_service_pb2.ExportLogsServiceResponse()

    server = grpc.server(
        futures.ThreadPoolExecutor(4),
        options=[("grpc.max_receive_message_length", Settings.model_fields["max_request_bytes"].default + 1024)],
    )
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Traces(), server)
    logs_service_pb2_grpc.add_LogsServiceServicer_to_server(Logs(), server)
    assert server.add_insecure_port(f"127.0.0.1:{port}") == port
    server.start()
    try:
        yield fake
    finally:
        server.stop(None).wait()


def trace_request(number: int, content: str = "Paris") -> trace_service_pb2.ExportTraceServiceRequest:
    """One span whose trace id is the number, encoded as the Collector does it: empty messages are there."""
    request = trace_service_pb2.ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.resource.attributes.add(key="service.name").value.string_value = "weather"
    scope = resource.scope_spans.add()
    scope.scope.SetInParent()
    span = scope.spans.add(
        trace_id=number.to_bytes(16, "big"),
        span_id=number.to_bytes(8, "big"),
        name="execute_tool get_weather",
        start_time_unix_nano=1_700_000_000_123_456_789,
        end_time_unix_nano=1_700_000_001_123_456_789,
    )
    span.attributes.add(key="gen_ai.tool.call.result").value.string_value = content
    span.status.SetInParent()
    return request


def post(url: str, body: bytes, content_type: str = "application/x-protobuf", encoding: str = "") -> int:
    headers = {"Content-Type": content_type, **({"Content-Encoding": encoding} if encoding else {})}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def post_trace(collector: Collector, number: int, content: str = "Paris") -> int:
    return post(f"{collector.http}/v1/traces", trace_request(number, content).SerializeToString())


def eventually(reached: Callable[[], bool], seconds: float = 30) -> bool:
    deadline = time.monotonic() + seconds
    while not reached():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@needs_collector
def test_the_collector_forwards_what_it_was_sent_with_its_key(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with fake_service(port) as fake, otel_collector(tmp_path, f"127.0.0.1:{port}", "key-of-the-collector") as collector:
        assert post_trace(collector, 1) == 200
        compressed = gzip.compress(trace_request(2).SerializeToString())
        assert post(f"{collector.http}/v1/traces", compressed, encoding="gzip") == 200
        with grpc.insecure_channel(collector.grpc) as channel:
            trace_service_pb2_grpc.TraceServiceStub(channel).Export(trace_request(3), timeout=10)
        log = {"timeUnixNano": "1", "traceId": f"{1:032x}", "spanId": f"{1:016x}", "body": {"stringValue": "hello"}}
        logs = {"resourceLogs": [{"scopeLogs": [{"logRecords": [log]}]}]}
        assert post(f"{collector.http}/v1/logs", json.dumps(logs).encode(), "application/json") == 200
        # Agents that send metrics too are not told off.
        assert post(f"{collector.http}/v1/metrics", b'{"resourceMetrics": []}', "application/json") == 200

        assert eventually(lambda: len(fake.spans()) == 3 and len(fake.logs) == 1), collector.log.read_text()
        sent = {number: trace_request(number).resource_spans[0] for number in (1, 2, 3)}
        received = {
            int.from_bytes(resource.scope_spans[0].spans[0].trace_id, "big"): resource
            for request in fake.traces
            for resource in request.resource_spans
        }
        assert received == sent
        assert {headers["authorization"] for headers in fake.headers} == {"Bearer key-of-the-collector"}


@needs_collector
def test_the_collector_delivers_after_an_outage(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with otel_collector(tmp_path, f"127.0.0.1:{port}") as collector:
        for number in range(1, 6):
            assert post_trace(collector, number) == 200
        with fake_service(port) as fake:
            assert eventually(lambda: len(fake.spans()) >= 5), collector.log.read_text()
            assert {int.from_bytes(span.trace_id, "big") for span in fake.spans()} == set(range(1, 6))


@needs_collector
def test_what_the_collector_acknowledged_survives_its_kill(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with otel_collector(tmp_path, f"127.0.0.1:{port}") as collector:
        for number in range(1, 21):
            assert post_trace(collector, number) == 200
        collector.kill()
    with fake_service(port) as fake, otel_collector(tmp_path, f"127.0.0.1:{port}") as collector:
        delivered = {0}

        def all_there() -> bool:
            delivered.update(int.from_bytes(span.trace_id, "big") for span in fake.spans())
            return delivered >= set(range(1, 21))

        assert eventually(all_there), f"{sorted(delivered)}\n{collector.log.read_text()}"


@needs_collector
def test_the_collector_makes_no_request_too_large_for_the_service(tmp_path: Path) -> None:
    """Requests that wait together are batched, and a batch that the service refuses would be dropped."""
    (port,) = free_ports(1)
    limit = Settings.model_fields["max_request_bytes"].default
    # The second is one span of nearly all that a request may be.
    contents = {1: "a" * (30 << 20), 2: "b" * (limit - 512), 3: "c" * (30 << 20)}
    assert limit - 512 < len(trace_request(2, contents[2]).SerializeToString()) < limit
    with otel_collector(tmp_path, f"127.0.0.1:{port}") as collector:
        for number, content in contents.items():
            assert post_trace(collector, number, content) == 200
        assert post_trace(collector, 4, "d" * limit) in (400, 413)
        with fake_service(port) as fake:
            assert eventually(lambda: len(fake.spans()) >= 3, 60), collector.log.read_text()
            assert max(request.ByteSize() for request in fake.traces) <= limit
            assert {
                int.from_bytes(span.trace_id, "big"): span.attributes[0].value.string_value for span in fake.spans()
            } == contents


@needs_collector
def test_the_collector_keeps_a_copy_that_import_reads(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    configuration = ("config.yaml", "record.yaml")
    with fake_service(port) as fake, otel_collector(tmp_path, f"127.0.0.1:{port}", None, configuration) as collector:
        assert post_trace(collector, 7) == 200
        assert eventually(lambda: len(fake.spans()) == 1), collector.log.read_text()
        assert eventually(lambda: collector.file.exists() and b"\n" in collector.file.read_bytes())
        (line,) = collector.file.read_text().splitlines()
        (span,) = json.loads(line)["resourceSpans"][0]["scopeSpans"][0]["spans"]
        assert span["traceId"] == f"{7:032x}"
        assert span["startTimeUnixNano"] == "1700000000123456789"
