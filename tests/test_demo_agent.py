"""The demo's agent and its story, against the model stub and a service that only collects."""

from __future__ import annotations

import json
import threading
from collections import Counter
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from otel_blackboard.demo.agent import QUESTION, RECALL_NUDGE, DemoRun, ModelRefused, fetch_page, run_agent, tide_lookup
from otel_blackboard.demo.model_stub import MODEL, ModelStub, Refusal
from otel_blackboard.demo.story import WIDTH, print_story

Json = dict[str, Any]

LEDGER_HEAD = """## Actions already taken this run
You have already performed these tool calls in this run. Do NOT repeat an
identical call (same tool + same arguments); reuse the stated outcome or
refine your approach. For the full result of any call, use the blackboard.

"""
TOKEN = "token-of-the-run"


@dataclass(frozen=True)
class SentSpan:
    trace_id: str
    span_id: str
    parent_span_id: str
    name: str
    kind: int
    start_ns: int
    attributes: Json
    failed: bool
    message: str
    resource: Json

    def __getitem__(self, key: str) -> Any:
        return self.attributes.get(key)

    def messages(self, key: str) -> list[Json]:
        return list(json.loads(self.attributes[key]))


class FakeService:
    """Takes OTLP, and answers ledger, tokens and recall from the spans it has. answers: more routes, by path suffix."""

    def __init__(self, *, helpful: bool = True, answers: dict[str, Json] | None = None) -> None:
        self.helpful = helpful
        self.answers = answers or {}
        self.spans: list[SentSpan] = []
        self.asked: list[tuple[str, str, dict[str, str], Json, str]] = []
        """(method, path, query, body, authorization) of every request to the API."""
        service = self

        class Handler(BaseHTTPRequestHandler):
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                self._send(*service.answer_api("GET", self.path, b"", self.headers.get("Authorization", "")))

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["Content-Length"]))
                if self.path == "/v1/traces":
                    service.spans += decode(raw)
                    self._send(200, {})
                else:
                    self._send(*service.answer_api("POST", self.path, raw, self.headers.get("Authorization", "")))

            def _send(self, status: int, value: Json) -> None:
                body = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer_api(self, method: str, address: str, raw: bytes, authorization: str) -> tuple[int, Json]:
        parts = urlsplit(address)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        self.asked.append((method, parts.path, query, json.loads(raw or b"{}"), authorization))
        if not self.helpful:
            return 503, {"title": "not now"}
        if parts.path.endswith("/ledger"):
            lines = self.ledger(parts.path.split("/")[4], query["agent_id"])
            return 200, {"text": LEDGER_HEAD + "\n".join(lines) if lines else "", "lines": lines}
        if parts.path.endswith("/tokens"):
            return 200, {"token": TOKEN, "expires_at": "2030-01-01T00:00:00Z"}
        if parts.path == "/api/v1/recall":
            page = fetch_page("https://harbour.example/brest")
            result = {"artifact_id": "art_1", "step_id": "step_search", "pass_seq": 1, "label": "fetch_page"}
            return 200, {"results": [{**result, "summary": page[:500], "content": page, "truncated": False}]}
        for suffix, answer in self.answers.items():
            if parts.path.endswith(suffix):
                return 200, answer
        return 404, {"title": "not found"}

    def ledger(self, run_id: str, agent: str) -> list[str]:
        """A line for each different call of the agent in the run that has arrived; recall calls are left out."""
        agents = [span for span in self.spans if span["gen_ai.agent.name"] == agent]
        passes = {span.span_id for span in agents if span["blackboard.run.id"] == run_id}
        lines: dict[str, str] = {}
        for span in self.spans:
            if (
                span.parent_span_id in passes
                and span["gen_ai.operation.name"] == "execute_tool"
                and span["blackboard.tool.class"] != "recall"
            ):
                call = f"{span['gen_ai.tool.name']}({span['gen_ai.tool.call.arguments']})"
                outcome = span.message if span.failed else " ".join(span["gen_ai.tool.call.result"].split())[:199]
                lines[call] = f"- {call}{' (failed)' if span.failed else ''} -> {outcome}"
        return list(lines.values())


def decode(raw: bytes) -> list[SentSpan]:
    return [
        SentSpan(
            trace_id=span.trace_id.hex(),
            span_id=span.span_id.hex(),
            parent_span_id=span.parent_span_id.hex(),
            name=span.name,
            kind=span.kind,
            start_ns=span.start_time_unix_nano,
            attributes={item.key: plain(item.value) for item in span.attributes},
            failed=span.status.code == 2,
            message=span.status.message,
            resource={item.key: plain(item.value) for item in resource.resource.attributes},
        )
        for resource in ExportTraceServiceRequest.FromString(raw).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def plain(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [plain(item) for item in value.array_value.values]
    return getattr(value, kind) if kind else None


@dataclass
class Told:
    """One run with everything that was seen of it."""

    run: DemoRun
    service: FakeService
    requests: list[bytes]
    lines: list[str]

    def __post_init__(self) -> None:
        self.spans = sorted(self.service.spans, key=lambda span: span.start_ns)
        self.steps = [span for span in self.spans if span["blackboard.span.role"] == "step"]
        self.chats = [span for span in self.spans if span["gen_ai.operation.name"] == "chat"]
        self.tools = [span for span in self.spans if span["gen_ai.operation.name"] == "execute_tool"]

    def below(self, spans: list[SentSpan], step: str, pass_seq: int, attempt: int = 1) -> list[SentSpan]:
        wanted = (f"step_{step}", pass_seq, attempt)
        keys = ("blackboard.step.id", "blackboard.pass.seq", "blackboard.pass.attempt")
        return [span for span in spans if tuple(span[key] for key in keys) == wanted]


def tell(service: FakeService) -> Told:
    lines: list[str] = []
    with ModelStub(retry_after=0) as stub, service:
        run = run_agent(service.url, service.url, stub.url, "harbours", lines.append)
        return Told(run, service, stub.requests, lines)


@pytest.fixture(scope="module")
def told() -> Told:
    return tell(FakeService())


@pytest.fixture(scope="module")
def alone() -> Told:
    """The same with a service whose API fails."""
    return tell(FakeService(helpful=False))


def test_the_question_is_answered_with_what_the_tools_found(told: Told) -> None:
    assert told.run.answer.startswith("Yes, you can sail from Brest on day 2.")
    for fact in ("06:12", "SW 12 knots", "three hours before until three hours after high water"):
        assert fact in told.run.answer


def test_the_run_is_one_trace_under_one_flow_run(told: Told) -> None:
    assert {span.trace_id for span in told.spans} == {told.run.trace_id}
    (root,) = [span for span in told.spans if not span.parent_span_id]
    assert root["blackboard.span.role"] == "flow_run"
    assert root["blackboard.run.id"] == told.run.run_id
    assert root["blackboard.run.name"] == root.name == "Harbour passage"
    assert root["gen_ai.conversation.id"].startswith("conv_")
    assert not root.failed
    for span in told.spans:
        assert span.resource["service.name"] == "harbour-agent"
        assert span.resource["blackboard.project.id"] == "harbours"


def test_search_is_retried_and_entered_again(told: Told) -> None:
    keys = ("blackboard.step.id", "gen_ai.agent.name", "blackboard.pass.seq", "blackboard.pass.attempt")
    assert [(*(step[key] for key in keys), step.failed) for step in told.steps] == [
        ("step_search", "researcher", 1, 1, True),
        ("step_search", "researcher", 1, 2, False),
        ("step_write", "writer", 1, 1, False),
        ("step_search", "researcher", 2, 1, False),
        ("step_write", "writer", 2, 1, False),
    ]
    for step in told.steps:
        assert step.name == f"invoke_agent {step['gen_ai.agent.name']}"
        assert step["gen_ai.operation.name"] == "invoke_agent"
        assert step["blackboard.step.name"] == step["blackboard.step.id"].removeprefix("step_")
        assert QUESTION in step.messages("gen_ai.input.messages")[0]["parts"][0]["content"]
        assert ("gen_ai.output.messages" in step.attributes) is not step.failed
    assert told.steps[-1].messages("gen_ai.output.messages")[0]["parts"][0]["content"] == told.run.answer
    assert told.steps[0]["error.type"] == "rate_limit_exceeded"


def test_every_call_is_stamped_with_its_pass_but_not_numbered(told: Told) -> None:
    steps = {step.span_id: step for step in told.steps}
    (root,) = [span for span in told.spans if not span.parent_span_id]
    for call in told.chats + told.tools:
        step = steps[call.parent_span_id]
        for key in ("blackboard.step.id", "blackboard.pass.seq", "blackboard.pass.attempt"):
            assert call[key] == step[key]
        assert call["blackboard.run.id"] == told.run.run_id
        assert call["gen_ai.conversation.id"] == root["gen_ai.conversation.id"]
        assert call["blackboard.call.seq"] is None
        assert call["blackboard.span.role"] is None


def test_request_bodies_are_the_bytes_the_model_got(told: Told) -> None:
    assert [chat["blackboard.request.body"].encode() for chat in told.chats] == told.requests


def test_model_calls_follow_the_genai_conventions(told: Told) -> None:
    answered = [chat for chat in told.chats if not chat.failed]
    for chat in told.chats:
        request = json.loads(chat["blackboard.request.body"])
        assert chat.name == f"chat {MODEL}"
        assert chat.kind == 3  # CLIENT
        assert chat["gen_ai.provider.name"] == "openai"
        assert chat["gen_ai.request.model"] == MODEL
        assert chat["server.address"] == "127.0.0.1"
        messages = chat.messages("gen_ai.input.messages")
        assert [message["role"] for message in messages] == [message["role"] for message in request["messages"]]
        assert ("gen_ai.tool.definitions" in chat.attributes) is ("tools" in request)
    for chat in answered:
        (message,) = chat.messages("gen_ai.output.messages")
        (reason,) = chat["gen_ai.response.finish_reasons"]
        assert (reason, message["finish_reason"]) in {("stop", "stop"), ("tool_calls", "tool_call")}
        assert chat["gen_ai.response.model"] == "gpt-4o-mini-2024-07-18"
        assert chat["gen_ai.usage.input_tokens"] > chat["gen_ai.usage.cache_read.input_tokens"] >= 0
        assert chat["gen_ai.usage.output_tokens"] > 0
    assert len({chat["gen_ai.response.id"] for chat in answered}) == len(answered)
    assert any(chat["gen_ai.usage.cache_read.input_tokens"] for chat in answered)


def test_loop_iterations_count_from_one_in_every_attempt(told: Told) -> None:
    iterations = [
        [chat["blackboard.loop.iteration"] for chat in told.chats if chat.parent_span_id == step.span_id]
        for step in told.steps
    ]
    # The writer's request is sent twice in its first iteration: with the rejected parameter and without.
    assert iterations == [[1, 2], [1, 2, 3], [1, 1], [1, 2, 3], [1]]


def test_rejected_calls_keep_their_prompt(told: Told) -> None:
    rejected = [chat for chat in told.chats if chat.failed]
    assert [(chat["error.type"], chat.message[:8]) for chat in rejected] == [
        ("rate_limit_exceeded", "HTTP 429"),
        ("invalid_request_error", "HTTP 400"),
    ]
    for chat in rejected:
        assert json.loads(chat["blackboard.request.body"])["messages"]
        assert "gen_ai.output.messages" not in chat.attributes
        assert "gen_ai.usage.input_tokens" not in chat.attributes
    assert [told.chats.index(chat) for chat in rejected] == [1, 5]
    with_it, without = (json.loads(told.chats[index]["blackboard.request.body"]) for index in (5, 6))
    assert with_it.pop("reasoning_effort") == "low"
    assert with_it == without


def test_three_tools_are_used_and_one_call_fails(told: Told) -> None:
    names = Counter(tool["gen_ai.tool.name"] for tool in told.tools)
    assert set(names) == {"tide_lookup", "fetch_page", "weather_report", "__query_blackboard"}
    for tool in told.tools:
        assert tool.name == f"execute_tool {tool['gen_ai.tool.name']}"
        assert tool["gen_ai.tool.call.id"].startswith("call_")
        assert isinstance(json.loads(tool["gen_ai.tool.call.arguments"]), dict)
        assert ("gen_ai.tool.call.result" in tool.attributes) is not tool.failed
    failed = [tool for tool in told.tools if tool.failed]
    assert {(tool["gen_ai.tool.name"], tool.message, tool["error.type"]) for tool in failed} == {
        ("fetch_page", "404 Not Found", "PageNotFound")
    }
    tides = next(tool for tool in told.tools if tool["gen_ai.tool.name"] == "tide_lookup")
    assert json.loads(tides["gen_ai.tool.call.result"])["summary"].startswith("4 tides; next high water 06:12")


def test_tools_asked_for_together_belong_to_one_model_call(told: Told) -> None:
    (asked,) = told.chats[0].messages("gen_ai.output.messages")
    ids = [part["id"] for part in asked["parts"] if part["type"] == "tool_call"]
    run = told.below(told.tools, "search", 1, 1)
    assert len(ids) == 2
    assert sorted(ids) == sorted(tool["gen_ai.tool.call.id"] for tool in run)
    answers = [message for message in told.chats[1].messages("gen_ai.input.messages") if message["role"] == "tool"]
    assert [answer["parts"][0]["id"] for answer in answers] == ids


def test_the_retry_repeats_its_calls_and_goes_on(told: Told) -> None:
    first, second = (told.below(told.tools, "search", 1, attempt) for attempt in (1, 2))
    assert sorted(map(call, first)) == sorted(map(call, second[:2]))
    assert call(second[2]) == ("fetch_page", '{"url":"https://harbour.example/brest"}')
    assert not {tool["gen_ai.tool.call.id"] for tool in first} & {tool["gen_ai.tool.call.id"] for tool in second}


def test_the_second_pass_reads_its_ledger_and_repeats_nothing(told: Told) -> None:
    prompts = [json.loads(chat["blackboard.request.body"]) for chat in told.below(told.chats, "search", 2)]
    system = prompts[0]["messages"][0]["content"]
    assert LEDGER_HEAD in system
    # Visible before the pass began, the failed call included: the agent has flushed.
    assert '- tide_lookup({"port":"Brest","day":2}) -> ' in system
    assert '- fetch_page({"url":"https://harbour.example/brest/notices"}) (failed) -> 404 Not Found' in system
    assert '- fetch_page({"url":"https://harbour.example/brest"}) -> ' in system
    before = set(map(call, told.below(told.tools, "search", 1, 2)))
    again = set(map(call, told.below(told.tools, "search", 2)))
    assert again and not before & again
    step = next(step for step in told.steps if step["blackboard.pass.seq"] == 2)
    assert LEDGER_HEAD in json.loads(step["gen_ai.system_instructions"])[0]["content"]
    assert LEDGER_HEAD not in told.steps[0]["gen_ai.system_instructions"]


def test_the_second_pass_recalls_with_a_token_of_its_run(told: Told) -> None:
    (recall,) = [tool for tool in told.tools if tool["gen_ai.tool.name"] == "__query_blackboard"]
    assert recall["blackboard.tool.class"] == "recall"
    assert recall["blackboard.pass.seq"] == 2
    assert json.loads(recall["gen_ai.tool.call.result"])["results"][0]["label"] == "fetch_page"
    prompt = json.loads(told.below(told.chats, "search", 2)[0]["blackboard.request.body"])
    assert prompt["messages"][0]["content"].endswith(RECALL_NUDGE)

    run = f"/api/v1/runs/{told.run.run_id}"
    ledger, token, asked = told.service.asked
    assert ledger[:3] == ("GET", f"{run}/ledger", {"project_id": "harbours", "agent_id": "researcher"})
    assert token[:3] == ("POST", f"{run}/tokens", {"project_id": "harbours"})
    assert token[3] == {"agent_id": "researcher", "capabilities": ["query_blackboard"]}
    assert asked[:3] == ("POST", "/api/v1/recall", {})
    assert asked[3] == {"query": "Brest marina gate open high water", "top_k": 3}
    assert asked[4] == f"Bearer {TOKEN}"


def test_a_service_that_fails_costs_the_agent_nothing_but_repetition(alone: Told) -> None:
    assert alone.run.answer.startswith("Yes, you can sail")
    assert not any(step.failed for step in alone.steps[1:])
    before = set(map(call, alone.below(alone.tools, "search", 1, 2)))
    again = set(map(call, alone.below(alone.tools, "search", 2)))
    assert before < again
    assert not any(name == "__query_blackboard" for name, _ in again)
    assert any("not available" in line for line in alone.lines)


def test_what_happens_is_written_as_it_happens(told: Told) -> None:
    text = "\n".join(told.lines)
    for expected in (
        "researcher enters step search, pass 2",
        "attempt 1 failed, attempt 2 in 0 s",
        "404 Not Found",
        "without reasoning_effort",
    ):
        assert expected in text


def test_a_model_that_refuses_for_good_fails_the_run_and_the_spans_say_so() -> None:
    refusal = Refusal(401, "Incorrect API key provided.", code="invalid_api_key")
    with FakeService() as service, ModelStub(lambda request: refusal) as stub:
        with pytest.raises(ModelRefused, match="HTTP 401: Incorrect API key"):
            run_agent(service.url, service.url, stub.url)
        assert [span["gen_ai.operation.name"] for span in service.spans] == ["chat", "invoke_agent", None]
        assert all(span.failed and span["error.type"] == "invalid_api_key" for span in service.spans)


def test_a_second_run_against_the_same_model_goes_the_same_way() -> None:
    with FakeService() as service, ModelStub(retry_after=0) as stub:
        first, second = (run_agent(service.url, service.url, stub.url) for _ in range(2))
    assert first.answer == second.answer
    assert first.run_id != second.run_id
    names = [Counter(span.name for span in service.spans if span.trace_id == run.trace_id) for run in (first, second)]
    assert names[0] == names[1]
    responses = [span["gen_ai.response.id"] for span in service.spans if span["gen_ai.response.id"]]
    assert len(responses) == len(set(responses)) == 2 * names[0][f"chat {MODEL}"] - 4


def test_tides_go_over_midnight() -> None:
    tides = json.loads(tide_lookup("Brest", 2))["tides"]
    assert [(tide["kind"], tide["day"], tide["time"]) for tide in tides] == [
        ("high", 2, "06:12"),
        ("low", 2, "12:24"),
        ("high", 2, "18:37"),
        ("low", 3, "00:49"),
    ]


def call(tool: SentSpan) -> tuple[str, str]:
    return tool["gen_ai.tool.name"], tool["gen_ai.tool.call.arguments"]


# --- The story --------------------------------------------------------------------------------------

RUN: Json = {
    "run_id": "run_1",
    "name": "Harbour passage",
    "status": "complete",
    "start_time": "2026-01-02T03:04:05.000000006Z",
    "duration_ms": 1204,
    "agents": ["researcher", "writer"],
    "counts": {"step": 5, "provider_call": 11},
    "usage": {"input_tokens": 9120, "output_tokens": 612, "cached_input_tokens": 3328, "reasoning_tokens": 0},
    "cost_usd": "0.001736",
    "usage_coverage": 1.0,
    "conversation_id": "conv_1",
}


def artifact(step: str, pass_seq: int, attempt: int, call_seq: int, kind: str, label: str, **more: Any) -> Json:
    fields: Json = {"step_id": step, "pass_seq": pass_seq, "attempt": attempt, "call_seq": call_seq, "kind": kind}
    return {
        **fields,
        "label": label,
        "agent_id": "researcher",
        "status": "ok",
        "token_size": 1234,
        "summary": "",
        **more,
    }


ARTIFACTS: list[Json] = [
    artifact("step_search", 1, 1, 9, "tool_result", "fetch_page", summary="404 Not Found", status="failed"),
    artifact("step_search", 1, 2, 2, "tool_result", "tide_lookup", summary="4 tides;\n next high water 06:12 " * 9),
    artifact("step_search", 2, 1, 0, "agent_output", "researcher", summary=None, token_size=None, status=None),
]
ANSWERS: dict[str, Json] = {
    "/runs/run_1": RUN,
    "/artifacts": {"run_id": "run_1", "artifacts": ARTIFACTS, "count": 3, "next_cursor": None},
    "/paths": {
        "paths": [
            {
                "step_id": "step_search",
                "agent_id": "researcher",
                "pass_seq": 1,
                "attempt": 2,
                "path": "tide_lookup -> fetch_page x2",
            }
        ]
    },
    "/prompts": {
        "prompts": [
            {"label": "LLM call 1", "exact": True, "status": "ok"},
            {"label": "LLM call 2", "exact": True, "status": "failed", "attempt": 2},
            {"label": "LLM call 3", "exact": False, "status": None, "attempt": 2},
        ],
        "count": 3,
    },
}


def story(answers: dict[str, Json], *, helpful: bool = True) -> str:
    lines: list[str] = []
    with FakeService(helpful=helpful, answers=answers) as service:
        print_story(service.url, "run_1", "harbours", lines.append, "http://127.0.0.1:4999")
    assert all(len(line) <= WIDTH for line in lines)
    return "\n".join(lines)


def test_the_story_tells_what_the_service_knows() -> None:
    text = story(ANSWERS)
    for expected in (
        "complete, 1,204 ms",
        "researcher, writer",
        "9,120 in (3,328 of them cached), 612 out",
        "0.001736 USD; usage known for 100% of the answered model calls",
        "[failed, earlier attempt] 404 Not Found",
        "1/2/2  tool_result   tide_lookup  ~1,234",
        "Action ledger of researcher",
        "fetch_page (step_search pass 1, art_1)",
        "| Brest, Moulin Blanc marina.",
        "tide_lookup -> fetch_page x2",
        "LLM call 1 (exact, earlier attempt), LLM call 2 (exact, rejected), LLM call 3 (reconstructed)",
        "/api/docs",
        'curl -s "$RUN/artifacts?project_id=harbours"',
        "export OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4999",
    ):
        assert expected in text


def test_the_story_bears_what_is_unknown() -> None:
    nothing: Json = {"artifacts": [], "paths": None, "prompts": None}
    text = story({"/runs/run_1": dict.fromkeys(RUN), "/artifacts": nothing, "/paths": nothing, "/prompts": nothing})
    assert "? in (? of them cached), ? out" in text
    assert "cost          unknown" in text


def test_the_story_goes_on_without_what_it_cannot_get() -> None:
    text = story({}, helpful=False)
    assert text.count("not available: HTTP Error 503") == 5
    assert "no pass is known" in text
    assert "/api/docs" in text
