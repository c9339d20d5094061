"""Claude Code, Codex, Gemini CLI, Google ADK, AutoGen and Temporal: what they send, made by hand, and what it means."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from otel_blackboard.processor.identity import joined_run
from otel_blackboard.processor.reading import read_span, spans_of_log
from otel_blackboard.query.artifacts import Blackboard, blackboard, metadata
from otel_blackboard.records import DUPLICATES, SATELLITE, Event, Light, LogRecord, Resolved, RunPart, Scope, Span
from otel_blackboard.service import Stores
from tests.conftest import Project, new_project
from tests.spans import TENANT, Trace, at, derive, hex_id, listed

BOTH_ORDERS = pytest.mark.parametrize("turn", [1, -1])


class Told(Trace):
    """A trace of one instrumentation scope, and log records of another."""

    def __init__(self, scope: str, log_scope: str = "", **more: Any) -> None:
        super().__init__(**more)
        self.scope, self.log_scope = Scope(scope), Scope(log_scope or scope)

    def say(self, name: str, start: float = 0, end: float | None = None, parent: Span | str = "", **more: Any) -> Span:
        span = self.span(name, start, end, parent, **more)
        span.scope = self.scope
        return span

    def record(
        self, event_name: str, time: float = 0, span: Span | None = None, sent: dict[str, Any] | None = None
    ) -> LogRecord:
        made = LogRecord(time_ns=at(time), attributes={"event.name": event_name} | (sent or {}), scope=self.log_scope)
        if span is not None:
            made.trace_id, made.span_id = span.trace_id, span.span_id
        self.logs.append(made)
        return made


def runs_of(
    spans: Iterable[Span], logs: Sequence[LogRecord] = ()
) -> tuple[dict[str, list[RunPart]], list[Resolved], dict[str, Blackboard]]:
    """What becomes of spans and log records, by run; runs of which nothing has a role are left out, as lists do."""
    made = [span for record in logs for span in spans_of_log(record)]
    resolved, parts, rows = derive([*spans, *made], logs)
    by_run: dict[str, list[RunPart]] = {}
    for part in parts:
        by_run.setdefault(part.run_id, []).append(part)
    shown = {run: of_run for run, of_run in by_run.items() if any(part.role_spans for part in of_run)}
    boards = {
        run: blackboard(TENANT, run, [row for row in resolved if row.run_id == run], rows, paths=False) for run in shown
    }
    return shown, resolved, boards


def light_of(span: Span) -> Light:
    return read_span(TENANT, span).light


def calls_of(resolved: Iterable[Resolved]) -> list[Resolved]:
    return [row for row in resolved if row.role == "provider_call" and row.call_span_id == row.span_id]


# --------------------------------------------------------------------------------------------------------- Claude Code


CLAUDE = "com.anthropic.claude_code.tracing", "com.anthropic.claude_code.events"
USAGE = {"input_tokens": 20, "output_tokens": "18", "cache_read_tokens": 70, "cache_creation_tokens": 30}


def claude_request(trace: Told, parent: Span, number: int, start: float, **more: Any) -> Span:
    sent = {
        "gen_ai.system": "anthropic", "gen_ai.request.model": "claude-sonnet-4-5", "model": "claude-sonnet-4-5",
        "request_id": f"req_{number}", "gen_ai.response.id": f"req_{number}", "success": True, "attempt": 1,
    }  # fmt: skip
    return trace.say(
        "claude_code.llm_request", start, start + 0.5, parent, span__type="llm_request", **sent | USAGE | more
    )


def claude_events(trace: Told, parent: Span | None) -> None:
    """What Claude Code writes about a turn of one tool call (captured)."""
    turn = {"session.id": "s1", "prompt.id": "p1", "user.id": "0af"}
    model = {"model": "claude-sonnet-4-5"}

    def event(name: str, time: float, **sent: Any) -> None:
        trace.record(name, time, parent, turn | {"event.sequence": len(trace.logs)} | sent)

    event("user_prompt", 0.1, prompt="Weather?")
    event("api_request", 1.5, request_id="req_1", cost_usd=0.25, duration_ms=500, **model | USAGE)
    event("assistant_response", 1.5, request_id="req_1", response="Let me check.", **model)
    event(
        "tool_result", 2.4, tool_name="Bash", tool_use_id="toolu_1", success="true", duration_ms="134",
        tool_input='{"command":"echo sunny","description":"print weather"}',
    )  # fmt: skip
    event("api_request", 3.5, request_id="req_2", cost_usd=0.25, duration_ms=500, **model | USAGE)
    event("assistant_response", 3.5, request_id="req_2", response="Sunny.", **model)


def claude_turn(*, events: bool) -> Told:
    trace = Told(*CLAUDE)
    turn = trace.say(
        "claude_code.interaction", 0, 4, span__type="interaction", user_prompt="Weather?", session__id="s1"
    )
    claude_request(trace, turn, 1, 1)
    tool = trace.say(
        "claude_code.tool", 2, 2.5, turn, span__type="tool", tool_name="Bash", tool_use_id="toolu_1",
        full_command="echo sunny",
    )  # fmt: skip
    tool.events.append(Event(at(2.4), "tool.output", {"bash_command": "echo sunny", "output": "sunny"}))
    trace.say("claude_code.tool.blocked_on_user", 2, 2.1, tool, span__type="tool.blocked_on_user")
    trace.say("claude_code.tool.execution", 2.1, 2.5, tool, span__type="tool.execution", success=True)
    claude_request(trace, turn, 2, 3)
    if events:
        claude_events(trace, turn)
    return trace


def test_claude_code_counts_cached_input_apart_and_calls_its_request_id_a_response_id() -> None:
    trace = claude_turn(events=False)
    light = light_of(trace.spans[1])
    assert (light.role, light.operation, light.provider) == ("provider_call", "chat", "anthropic")
    assert (light.input_tokens, light.output_tokens) == (120, 18)
    assert (light.cached_input_tokens, light.cache_write_tokens) == (70, 30)
    assert light.response_id == "request:req_1" and light.retry_count == 0
    newer = claude_request(trace, trace.spans[0], 3, 5, **{"gen_ai.usage.input_tokens": 120})
    assert light_of(newer).input_tokens == 120


@BOTH_ORDERS
def test_spans_and_events_of_claude_code_are_the_same_calls(turn: int) -> None:
    trace = claude_turn(events=True)
    shown, _resolved, boards = runs_of(trace.spans[::turn], trace.logs[::turn])
    (run,) = shown
    (part,) = shown[run]
    assert run == f"run_{trace.trace_id}" and (part.name, part.agents) == ("claude_code.interaction", ("claude-code",))
    assert part.counts == {"flow_run": 1, "provider_call": 2, "tool_invocation": 1}
    assert (part.input_tokens, part.output_tokens, float(part.cost_usd or 0)) == (240, 36, 0.5)
    assert part.conversation_id == "s1" and part.calls_with_usage == part.calls_succeeded == 2
    (output,) = listed(boards[run], "agent_output")
    assert output.row.summary == "Sunny."
    (tool,) = listed(boards[run], "tool_result")
    assert metadata(tool)["arguments"] == {"command": "echo sunny", "description": "print weather"}
    assert tool.row.summary == "sunny" and tool.resolved.tool_call_id == "toolu_1"


@BOTH_ORDERS
def test_a_run_out_of_claude_code_s_events_alone(turn: int) -> None:
    trace = Told(*CLAUDE)
    claude_events(trace, None)
    shown, resolved, boards = runs_of([], [*trace.logs, *trace.logs][::turn])
    ((run, (part,)),) = shown.items()
    assert (part.name, part.status, part.is_root) == ("claude_code.interaction", "complete", True)
    assert part.counts == {"flow_run": 1, "provider_call": 2, "tool_invocation": 1}
    assert (part.input_tokens, part.output_tokens, float(part.cost_usd or 0)) == (240, 36, 0.5)
    assert {row.status for row in resolved} == {"succeeded"} and len(resolved) == len(trace.logs)
    (tool,) = listed(boards[run], "tool_result")
    assert (tool.label, tool.call_seq) == ("Bash", 2)
    assert [row.labels.get("from_log") for row in resolved if row.role == "flow_run"] == ["user_prompt"]


def test_turns_of_one_session_are_runs_of_one_conversation() -> None:
    trace = Told(*CLAUDE)
    for prompt in ("p1", "p2"):
        trace.record("api_request", 1, None, {"session.id": "s1", "prompt.id": prompt, "request_id": prompt} | USAGE)
    shown, *_ = runs_of([], trace.logs)
    assert len(shown) == 2 and {part.conversation_id for parts in shown.values() for part in parts} == {"s1"}


def test_what_claude_code_asks_in_a_caller_s_trace_is_a_pass_of_the_caller() -> None:
    trace = Told(*CLAUDE)
    flow = trace.flow("nightly", 0, 9)
    trace.say("claude_code.interaction", 1, 2, flow, span__type="interaction")
    ((_, (part,)),) = runs_of(trace.spans)[0].items()
    assert part.name == "nightly" and part.agents == ("claude-code",)
    assert part.counts == {"flow_run": 1, "step": 1}


@BOTH_ORDERS
def test_a_tool_call_that_an_instrumentation_of_the_sdk_tells_of_as_well_is_one(turn: int) -> None:
    trace = Told(*CLAUDE)
    agent = trace.agent("app", 0, 9, **{"gen_ai.usage.input_tokens": 240, "gen_ai.usage.output_tokens": 2})
    interaction = trace.say("claude_code.interaction", 1, 8, agent, span__type="interaction")
    claude_request(trace, interaction, 1, 2)
    trace.say(
        "claude_code.tool", 4, 5, interaction, span__type="tool", tool_name="Bash", tool_use_id="toolu_1",
        full_command="ls",
    )  # fmt: skip
    trace.tool(
        "Bash", 4.01, 4.9, agent, arguments='{"command":"ls","description":"list"}', call_id="toolu_1", result="a"
    )
    shown, _, boards = runs_of(trace.spans[::turn])
    ((run, (part,)),) = shown.items()
    assert part.counts == {"provider_call": 1, "step": 2, "tool_invocation": 1}
    assert (part.input_tokens, part.output_tokens) == (120, 18)
    (tool,) = listed(boards[run], "tool_result")
    assert metadata(tool)["arguments"] == {"command": "ls", "description": "list"}


@BOTH_ORDERS
def test_a_sub_agent_is_the_pass_of_what_nests_under_its_tool_call(turn: int) -> None:
    trace = Told(*CLAUDE)
    top = trace.say("claude_code.interaction", 0, 9, span__type="interaction")
    claude_request(trace, top, 1, 1)
    tool = trace.say(
        "claude_code.tool", 2, 6, top, span__type="tool", tool_name="Agent", subagent_type="researcher",
        tool_use_id="toolu_1",
    )  # fmt: skip
    inside = trace.say("claude_code.tool.execution", 2, 6, tool, span__type="tool.execution", success=True)
    request = claude_request(trace, inside, 2, 3, agent_id="a4e9")
    bash = trace.say(
        "claude_code.tool", 4, 5, inside, span__type="tool", tool_name="Bash", tool_use_id="toolu_2", agent_id="a4e9"
    )
    trace.record(
        "tool_result", 6, top,
        {"session.id": "s1", "tool_name": "Agent", "tool_use_id": "toolu_1", "success": "true",
         "tool_parameters": '{"subagent_type":"researcher"}', "tool_input": '{"prompt":"look"}'},
    )  # fmt: skip
    shown, resolved, boards = runs_of(trace.spans[::turn], trace.logs)
    (run,) = shown
    rows = {row.span_id: row for row in resolved}
    assert (rows[tool.span_id].agent_id, rows[tool.span_id].step_span_id) == ("claude-code", "")
    for span in (request, bash):
        assert (rows[span.span_id].agent_id, rows[span.span_id].step_id) == ("researcher", "step_researcher")
    assert shown[run][0].counts == {"flow_run": 1, "provider_call": 2, "tool_invocation": 2}
    assert [(a.label, a.attempt.agent_id) for a in listed(boards[run], "tool_result")] == [
        ("Agent", "claude-code"),
        ("Bash", "researcher"),
    ]


def test_a_failed_tool_of_claude_code() -> None:
    trace = Told(*CLAUDE)
    top = trace.say("claude_code.interaction", 0, 9, span__type="interaction")
    tool = trace.say("claude_code.tool", 1, 2, top, span__type="tool", tool_name="Bash", tool_use_id="toolu_1")
    trace.say(
        "claude_code.tool.execution", 1, 2, tool, span__type="tool.execution", tool_use_id="toolu_1", success="false",
        error="exit code 1",
    )  # fmt: skip
    trace.record(
        "tool_result",
        2,
        top,
        {"tool_name": "Bash", "tool_use_id": "toolu_1", "success": "false", "error": "exit code 1"},
    )
    for logs in (trace.logs, []):
        shown, _resolved, boards = runs_of(trace.spans, logs)
        (run,) = shown
        (artifact,) = listed(boards[run], "tool_result")
        assert artifact.resolved.status == "failed" and artifact.resolved.error == "exit code 1"
        assert (artifact.label, metadata(artifact)["tool_name"]) == ("Bash", "Bash")


def test_failed_requests_detailed_tool_input_and_withheld_text_of_claude_code() -> None:
    trace = Told(*CLAUDE)
    failed = claude_request(trace, "", 1, 1, success=False, error="overloaded", attempt=3)  # type: ignore[arg-type]
    assert (light_of(failed).status, light_of(failed).error, light_of(failed).retry_count) == (
        "failed",
        "overloaded",
        2,
    )
    tool = trace.say(
        "claude_code.tool", span__type="tool", tool_name="Bash", tool_input='[TOOL INPUT: Bash]\n{"command":"ls"}'
    )
    (draft,) = read_span(TENANT, tool).drafts
    assert draft.row.arguments == '{"command":"ls"}'
    trace.record("assistant_response", 1, None, {"request_id": "req_1", "response": "<REDACTED>", "session.id": "s1"})
    trace.record("api_error", 1, None, {"session.id": "s1", "error": "429", "model": "claude-sonnet-4-5"})
    made = [light_of(span) for record in trace.logs for span in spans_of_log(record)]
    assert [(light.status, light.has_output) for light in made] == [("succeeded", False), ("failed", False)]


def test_skills_of_claude_code() -> None:
    trace = Told(*CLAUDE)
    tool = trace.say("claude_code.tool", span__type="tool", tool_name="Skill", skill_name="pdf", tool_use_id="toolu_1")
    assert (light_of(tool).role, light_of(tool).labels["skill_name"]) == ("tool_invocation", "pdf")
    (made,) = spans_of_log(trace.record("skill_activated", 1, None, {"session.id": "s1", "skill.name": "pdf"}))
    assert (light_of(made).role, light_of(made).labels["skill_name"]) == ("skill", "pdf")


# --------------------------------------------------------------------------------------------------------------- Codex


CODEX = "codex_exec", "codex_otel.log_only"
COUNTS = {
    "input_token_count": "120", "output_token_count": "18", "cached_token_count": 64, "cache_write_token_count": 0,
    "reasoning_token_count": 7.0, "tool_token_count": "138",
}  # fmt: skip


def codex_turn() -> Told:
    trace = Told(*CODEX)
    top = trace.say("turn/start", 0, 0.1, turn__id="turn-1")
    turn = trace.say(
        "session_task.turn", 0.1, 9, top, turn__id="turn-1", model="gpt-5-codex", thread__id="01a2-c1",
        codex__turn__token_usage__input_tokens=240, codex__turn__token_usage__output_tokens=36,
    )  # fmt: skip
    turn.attributes[DUPLICATES] = [["thread.id", 4]]
    for number in (0, 1):
        start = 1 + 4 * number
        request = trace.say("run_sampling_request", start, start + 3, turn, model="gpt-5-codex")
        trace.say("handle_responses", start, start + 0.1, request, codex__request__reasoning_effort="default")
        last = trace.say(
            "handle_responses", start + 0.9, start + 1, request, gen_ai__usage__input_tokens=120,
            gen_ai__usage__output_tokens=18, gen_ai__usage__cache_read__input_tokens=64,
            codex__usage__reasoning_output_tokens=7,
        )  # fmt: skip
        if not number:
            tool = trace.say(
                "exec_command", start + 0.9, start + 2.9, last, tool_name="exec_command", call_id="call_1",
                codex__tool__phase="dispatch",
            )  # fmt: skip
            trace.say("unified_exec.exec_command", start + 1, start + 2, tool, call_id="call_1")
    return trace


def codex_events(trace: Told, inside: Span | None) -> None:
    """`inside`: the span in which those records are written that have a trace where spans are sent (captured)."""
    conversation = {"conversation.id": "01a2-c1", "model": "gpt-5-codex"}

    def event(name: str, time: float, span: Span | None = None, **sent: Any) -> None:
        made = trace.record(name, time, span, conversation | {"event.timestamp": f"T{time}"} | sent)
        made.event_name, made.observed_time_ns, made.time_ns = "event otel/src/events.rs:1123", made.time_ns, 0

    event("codex.conversation_starts", 0, inside)
    event("codex.user_prompt", 0.2, inside, prompt="[REDACTED]")
    for time in (2, 6):
        event("codex.api_request", time - 0.9, inside, **{"http.response.status_code": 200})
        event("codex.sse_event", time, **{"event.kind": "response.created"})
        event("codex.sse_event", time, **{"event.kind": "response.completed"})
        event("codex.sse_event", time, **{"event.kind": "response.completed"} | COUNTS)
    event(
        "codex.tool_result", 4, inside, tool_name="exec_command", call_id="call_1", duration_ms="1900", success="true",
        arguments='{"cmd":"echo sunny"}', output="sunny",
    )  # fmt: skip


@BOTH_ORDERS
def test_a_turn_of_codex_out_of_its_spans(turn: int) -> None:
    trace, beside = codex_turn(), Told(*CODEX, name="exec")
    beside.say("codex.exec", 0, 9, turn__id="turn-1", thread__id="01a2-c1")
    noise = Told(*CODEX, name="noise")
    noise.say("fs.get_metadata")
    spans = [*trace.spans, *beside.spans, *noise.spans]
    shown, resolved, _ = runs_of(spans[::turn])
    ((run, parts),) = shown.items()
    assert run == joined_run("codex", "turn-1") and len(parts) == 2
    (part,) = [part for part in parts if part.is_root]
    assert part.counts == {"flow_run": 1, "provider_call": 2, "tool_invocation": 1} and part.agents == ("codex",)
    assert (part.input_tokens, part.output_tokens, part.reasoning_tokens) == (240, 36, 14)
    assert part.conversation_id == "01a2-c1" and part.cost_usd
    assert {row.model for row in calls_of(resolved)} == {"gpt-5-codex"}


def test_the_thread_of_the_system_is_no_conversation_of_codex() -> None:
    trace = Told(*CODEX)
    assert light_of(trace.say("codex.exec", thread__id=3)).conversation_id == ""
    span = trace.say("codex.exec", thread__id=3)
    span.attributes[DUPLICATES] = [["thread.id", "01a2-c1"]]
    assert light_of(span).conversation_id == "01a2-c1"


@BOTH_ORDERS
def test_a_conversation_of_codex_out_of_its_events_alone(turn: int) -> None:
    trace = Told(*CODEX)
    codex_events(trace, None)
    shown, _resolved, boards = runs_of([], [*trace.logs, *trace.logs][::turn])
    ((run, (part,)),) = shown.items()
    assert part.counts == {"flow_run": 1, "provider_call": 2, "tool_invocation": 1}
    assert (part.input_tokens, part.output_tokens, part.cached_input_tokens, part.reasoning_tokens) == (
        240,
        36,
        128,
        14,
    )
    assert part.conversation_id == "01a2-c1" and part.agents == ("codex",)
    (tool,) = listed(boards[run], "tool_result")
    assert (tool.label, tool.row.summary, metadata(tool)["arguments"]) == (
        "exec_command",
        "sunny",
        {"cmd": "echo sunny"},
    )


@BOTH_ORDERS
def test_what_codex_says_in_events_and_in_spans_counts_once(turn: int) -> None:
    trace = codex_turn()
    codex_events(trace, next(span for span in trace.spans if span.name == "exec_command"))
    shown, _, boards = runs_of(trace.spans[::turn], trace.logs[::turn])
    ((run, (part,)),) = shown.items()
    assert run == joined_run("codex", "turn-1")
    assert part.counts == {"flow_run": 1, "provider_call": 2, "tool_invocation": 1}
    assert (part.input_tokens, part.output_tokens) == (240, 36)
    (tool,) = listed(boards[run], "tool_result")
    assert (tool.row.summary, metadata(tool)["arguments"]) == ("sunny", {"cmd": "echo sunny"})


def test_rejected_requests_of_codex() -> None:
    trace = Told(*CODEX)
    turn = trace.say("session_task.turn", 0, 9, turn__id="turn-1", model="gpt-5-codex")
    request = trace.say("run_sampling_request", 1, 3, turn, model="gpt-5-codex")
    inner = trace.say("endpoint_session.stream", 1, 2, request)
    trace.record(
        "codex.api_request", 2, inner,
        {"conversation.id": "c", "http.response.status_code": "429", "model": "gpt-5-codex", "event.timestamp": "T"},
    )  # fmt: skip
    shown, resolved, _ = runs_of(trace.spans, trace.logs)
    ((_, (part,)),) = shown.items()
    assert part.counts["provider_call"] == 1 and part.calls_succeeded == 0
    (call,) = calls_of(resolved)
    assert (call.status, call.error) == ("failed", "HTTP 429")
    for record in trace.logs:
        record.trace_id = record.span_id = ""
    (alone,) = calls_of(runs_of([], trace.logs)[1])
    assert (alone.status, alone.model) == ("failed", "gpt-5-codex")


def test_skills_of_codex() -> None:
    trace = Told(*CODEX)
    sent = {"conversation.id": "c", "skill.name": "pdf", "skill.scope": "user", "skill.invocation_type": "explicit"}
    (made,) = spans_of_log(trace.record("codex.skill_invocation", 1, None, sent))
    light = light_of(made)
    assert (light.role, light.labels["skill_name"], light.labels["skill_trigger"]) == ("skill", "pdf", "explicit")


# ---------------------------------------------------------------------------------------------------------- Gemini CLI


def gemini(number: int) -> Told:
    return Told("gemini-cli", name=f"gemini {number}")


def gemini_call(trace: Told, start: float, **more: Any) -> Span:
    return trace.say(
        "llm_call", start, start + 1, gen_ai__operation__name="llm_call", gen_ai__agent__name="gemini-cli",
        gen_ai__conversation__id="s1", gen_ai__request__model="gemini-2.5-flash", **more,
    )  # fmt: skip


def gemini_answer(trace: Told, time: float, span: Span | None = None, written: str = "T1") -> list[LogRecord]:
    sent = {"session.id": "s1", "event.timestamp": written}
    details = {"gen_ai.usage.input_tokens": 120, "gen_ai.usage.output_tokens": 18, "gen_ai.request.model": "gemini-2.5-flash",
               "gen_ai.output.messages": '[{"role":"model","parts":[{"type":"text","content":"Sunny."}]}]'}  # fmt: skip
    counts = {"model": "gemini-2.5-flash", "input_token_count": 120, "output_token_count": 18, "duration_ms": 1000,
              "cached_content_token_count": 64, "thoughts_token_count": 7, "prompt_id": "s1####1"}  # fmt: skip
    return [
        trace.record("gemini_cli.api_response", time, span, sent | counts),
        trace.record("gen_ai.client.inference.operation.details", time, span, sent | details),
    ]


def test_the_calls_of_a_session_of_gemini_cli_are_one_run() -> None:
    first, tool, last = gemini(0), gemini(1), gemini(2)
    usage = {"gen_ai.usage.input_tokens": 120, "gen_ai.usage.output_tokens": 18}
    gemini_call(first, 0, **usage)
    tool.say(
        "tool_call", 2, 3, gen_ai__operation__name="tool_call", gen_ai__tool__name="ls", gen_ai__tool__call_id="c1",
        gen_ai__conversation__id="s1", gen_ai__input__messages='{"callId":"c1","name":"ls","args":{"path":"."}}',
        gen_ai__output__messages=json.dumps(
            {"response": {"responseParts": [{"functionResponse": {"id": "c1", "name": "ls", "response": {"output": "a"}}}]}}
        ),
    )  # fmt: skip
    gemini_call(last, 4, **usage)
    shown, _, boards = runs_of([*first.spans, *tool.spans, *last.spans])
    ((run, parts),) = shown.items()
    assert run == joined_run("gemini_cli", "s1") and {part.name for part in parts} == {"gemini-cli"}
    assert sum(part.counts.get("provider_call", 0) for part in parts) == 2
    (called,) = listed(boards[run], "tool_result")
    assert (metadata(called)["arguments"], called.row.summary) == ({"path": "."}, '{"output":"a"}')
    assert called.resolved.tool_call_id == "c1"


@BOTH_ORDERS
def test_a_run_out_of_gemini_cli_s_events_alone(turn: int) -> None:
    trace = gemini(0)
    gemini_answer(trace, 1)
    trace.record("gemini_cli.tool_call", 2, None, {
        "session.id": "s1", "event.timestamp": "T2", "function_name": "ls", "function_args": '{"path":"."}',
        "success": False, "error": "no such folder", "error.message": "no such folder", "duration_ms": 5,
    })  # fmt: skip
    gemini_answer(trace, 3, written="T3")
    trace.record("gemini_cli.api_error", 4, None, {"session.id": "s1", "event.timestamp": "T4", "error.message": "429"})
    shown, resolved, boards = runs_of([], [*trace.logs, *trace.logs][::turn])
    ((run, parts),) = shown.items()
    assert run == joined_run("gemini_cli", "s1")
    assert (sum(part.input_tokens or 0 for part in parts), sum(part.output_tokens or 0 for part in parts)) == (240, 50)
    assert sorted(row.status for row in calls_of(resolved)) == ["failed", "succeeded", "succeeded"]
    (tool,) = listed(boards[run], "tool_result")
    assert (tool.label, tool.resolved.status, metadata(tool)["arguments"]) == ("ls", "failed", {"path": "."})
    assert {output.row.summary for output in listed(boards[run], "agent_output")} == {"Sunny."}


def test_an_event_of_gemini_cli_may_stand_beside_its_span() -> None:
    trace, usage = gemini(0), {"gen_ai.usage.input_tokens": 120, "gen_ai.usage.output_tokens": 18}
    host = light_of(gemini_call(trace, 0, **usage))
    made = [light_of(span) for record in gemini_answer(trace, 1) for span in spans_of_log(record)]
    assert {light.response_id for light in made} == {host.response_id} and host.response_id
    assert {light.join_key for light in made} == {SATELLITE + host.join_key}
    assert len({light.trace_id for light in made}) == 1  # both events of one answer
    # With tracing off, a span only says that there was a call; the event says the rest, inside it where it can.
    silent = gemini_call(gemini(1), 5)
    assert light_of(silent).role == ""
    inside, _ = gemini_answer(trace, 6, silent)
    assert [span.parent_span_id for span in spans_of_log(inside)] == [silent.span_id]


# ---------------------------------------------------------------------------------------------------------- Google ADK


def test_google_adk_1() -> None:
    trace = Told("gcp.vertex.agent")
    top = trace.say("invocation", 0, 9)
    agent = trace.say("agent_run [weather_agent]", 0, 9, top)
    request = {"model": "gemini-2.5-flash", "contents": [{"role": "user", "parts": [{"text": "Weather?"}]}],
               "config": {"system_instruction": "You are a weather bot.", "tools": [{"function_declarations": []}]}}  # fmt: skip
    answer = {"content": {"role": "model", "parts": [{"text": "Sunny."}]},
              "usage_metadata": {"prompt_token_count": 120, "cached_content_token_count": 64,
                                 "candidates_token_count": 18, "thoughts_token_count": 7}}  # fmt: skip
    call = trace.say("call_llm", 1, 2, agent, gen_ai__system="gcp.vertex.agent", gen_ai__request__model="gemini-2.5-flash",
                     gen_ai__usage__input_tokens=120, gen_ai__usage__output_tokens=18,
                     gcp__vertex__agent__session_id="sess-1", gcp__vertex__agent__llm_request=json.dumps(request),
                     gcp__vertex__agent__llm_response=json.dumps(answer))  # fmt: skip
    trace.say("execute_tool get_weather", 1.5, 1.9, call, gen_ai__operation__name="execute_tool",
              gen_ai__tool__name="get_weather", gcp__vertex__agent__tool_call_args='{"city": "Paris"}',
              gcp__vertex__agent__tool_response='{"temp_c": 22}', gcp__vertex__agent__llm_request="{}")  # fmt: skip
    trace.say("execute_tool (merged tools)", 1.9, 1.9, call, gen_ai__operation__name="execute_tool")
    shown, _resolved, boards = runs_of(trace.spans)
    ((run, (part,)),) = shown.items()
    assert part.counts == {"flow_run": 1, "provider_call": 1, "step": 1, "tool_invocation": 1}
    assert (part.input_tokens, part.output_tokens, part.cached_input_tokens, part.reasoning_tokens) == (120, 25, 64, 7)
    assert part.conversation_id == "sess-1" and part.agents == ("weather_agent",)
    assert light_of(call).provider == "gcp.gemini"
    (prompt,) = listed(boards[run], "llm_prompt")
    assert [body.field.partition("#")[2] for body in prompt.bodies] == ["system", "input", "tools"]
    assert [a.row.summary for a in listed(boards[run], "agent_output")] == ["Sunny."]
    (tool,) = listed(boards[run], "tool_result")
    assert (metadata(tool)["arguments"], tool.row.summary) == ({"city": "Paris"}, '{"temp_c": 22}')


DETAILS = "gen_ai.client.inference.operation.details"


def adk_details(trace: Told, span: Span, event: str, time: float) -> None:
    trace.record(DETAILS, time, span, {
        "gcp.vertex.agent.event_id": event, "gen_ai.usage.input_tokens": 120, "gen_ai.usage.output_tokens": 25,
        "gen_ai.system_instructions": [{"type": "text", "content": "Be brief."}],
        "gen_ai.input.messages": [{"role": "user", "parts": [{"type": "text", "content": "Weather?"}]}],
        "gen_ai.output.messages": [{"role": "assistant", "parts": [{"type": "text", "content": "Sunny."}]}],
    })  # fmt: skip


def adk_call(trace: Told, parent: Span | str, event: str) -> Span:
    return trace.say(
        "generate_content gemini-2.5-flash", 1, 3, parent, gen_ai__operation__name="generate_content",
        gen_ai__request__model="gemini-2.5-flash", gcp__vertex__agent__event_id=event, gen_ai__usage__input_tokens=120,
        gen_ai__usage__output_tokens=25, gen_ai__tool__definitions='[{"name":"get_weather"}]',
    )  # fmt: skip


@BOTH_ORDERS
def test_a_call_of_google_adk_2_is_its_span_and_its_log_record(turn: int) -> None:
    trace = Told("gcp.vertex.agent")
    span = adk_call(trace, "", "e1")
    adk_details(trace, span, "e1", 3)
    made = [each for record in trace.logs for each in spans_of_log(record)]
    assert [key for each in made for key in each.attributes if "messages" in key] == []
    shown, _resolved, boards = runs_of(trace.spans[::turn], trace.logs)
    ((run, (part,)),) = shown.items()
    assert part.counts == {"provider_call": 1} and (part.input_tokens, part.output_tokens) == (120, 25)
    (prompt,) = listed(boards[run], "llm_prompt")
    assert sorted(body.field for body in prompt.bodies) == [
        "gen_ai.input.messages", "gen_ai.system_instructions", "gen_ai.tool.definitions",
    ]  # fmt: skip


@BOTH_ORDERS
def test_calls_that_google_adk_2_writes_over_each_other_are_told_apart_by_their_log_records(turn: int) -> None:
    trace = Told("gcp.vertex.agent")
    span = adk_call(trace, "", "e2")
    adk_details(trace, span, "e1", 1.5)
    adk_details(trace, span, "e2", 3)
    shown, resolved, _ = runs_of(trace.spans, trace.logs[::turn])
    ((_, (part,)),) = shown.items()
    assert part.counts == {"provider_call": 2} and (part.input_tokens, part.output_tokens) == (240, 50)
    assert {row.model for row in calls_of(resolved)} == {"gemini-2.5-flash"} and part.calls_without_cost == 0


# ------------------------------------------------------------------------------------------------------------- AutoGen


TEAM = "0f9cd4f1-cf1f-4991-9848-b2909e95a432"


@BOTH_ORDERS
def test_the_messages_of_an_autogen_team_are_one_run(turn: int) -> None:
    def message(number: int, name: str, to: str) -> Told:
        trace = Told("autogen SingleThreadedAgentRuntime", name=f"autogen {number}")
        where = f"{to}_{TEAM}.({TEAM})-A"
        trace.say(
            f"autogen {name} {where}", number, number + 0.9, messaging__operation=name, messaging__destination=where
        )
        return trace

    traces = [message(0, "create", "RoundRobinGroupChatManager"), message(1, "publish", "weather_agent")]
    traces += [message(2, "publish", "weather_agent"), Told("autogen-core", name="autogen 3")]
    for trace in traces[1:3]:
        agent = trace.agent("weather_agent", 1, 2, trace.spans[0], gen_ai__system="autogen")
        agent.attributes["gen_ai.agent.id"] = f"weather_agent_{TEAM}/{TEAM}"
        agent.scope = Scope("autogen-core")
    traces[3].say("create_agent critic", gen_ai__operation__name="create_agent", gen_ai__agent__name="critic")
    shown, _, boards = runs_of([span for trace in traces for span in trace.spans][::turn])
    ((run, parts),) = shown.items()
    assert run == joined_run("autogen", TEAM) and len(parts) == 3
    assert min(parts, key=lambda part: part.start_ns).name == "RoundRobinGroupChat"
    assert [(a.agent_id, a.pass_seq) for a in boards[run].numbering.attempts] == [
        ("weather_agent", 1),
        ("weather_agent", 2),
    ]


# ------------------------------------------------------------------------------------------------------------ Temporal


def activity(trace: Trace, number: str, start: float, parent: Span, **more: Any) -> Span:
    return trace.span("RunActivity:fetch", start, start + 0.5, parent, temporalWorkflowID="order-7",
                      temporalRunID="r-1", temporalActivityID=number, **more)  # fmt: skip


@BOTH_ORDERS
def test_a_workflow_of_temporal_is_a_run_and_an_activity_that_runs_again_the_next_attempt(turn: int) -> None:
    trace, elsewhere = Trace(), Trace("elsewhere")
    start = trace.span("StartWorkflow:Order", 0, 0.1, temporalWorkflowID="order-7")
    workflow = trace.span("RunWorkflow:Order", 0.1, 9, start, temporalWorkflowID="order-7", temporalRunID="r-1")
    trace.span("StartActivity:fetch", 1, 1, workflow, temporalWorkflowID="order-7", temporalRunID="r-1")
    first = activity(trace, "1", 1, workflow)
    failed = activity(trace, "2", 2, workflow, error="timed out")
    again = activity(trace, "2", 3, workflow)
    last = activity(trace, "3", 4, workflow)
    trace.chat(4.1, 4.2, last, tokens=(120, 18))
    activity(elsewhere, "4", 5, Span("", ""))
    shown, resolved, boards = runs_of([*trace.spans, *elsewhere.spans][::turn])
    ((run, parts),) = shown.items()
    assert run == joined_run("temporal", "order-7/r-1") and len(parts) == 2
    assert max(parts, key=lambda part: part.is_root).name == "Order"
    spans = boards[run].numbering.spans
    numbers = [spans[(span.trace_id, span.span_id)].attempt for span in (first, failed, again, last)]
    assert [(a.step_id, a.pass_seq, a.attempt) for a in numbers] == [
        ("step_fetch", 1, 1), ("step_fetch", 2, 1), ("step_fetch", 2, 2), ("step_fetch", 3, 1),
    ]  # fmt: skip
    (call,) = calls_of(resolved)
    assert (call.step_id, call.step_name) == ("step_fetch", "fetch")


def test_made_spans_have_ids_of_their_own_kind() -> None:
    trace = Told(*CLAUDE)
    claude_events(trace, None)
    for record in trace.logs:
        for span in spans_of_log(record):
            assert (
                len(span.trace_id) == 32
                and len(span.span_id) == 16
                and int(span.trace_id, 16)
                and int(span.span_id, 16)
            )
            assert spans_of_log(record) == [span]
    assert hex_id("other", 32) not in {span.trace_id for record in trace.logs for span in spans_of_log(record)}


# ------------------------------------------------------------------------------------------------- through the service


def usage(project: Project) -> list[tuple[int | None, int, int]]:
    """(input tokens, model calls, tool calls) of every run that is listed."""
    runs = project.api().json("/runs")["runs"]
    counts = [(run["usage"]["input_tokens"], run["counts"]) for run in runs]
    return [(tokens, each.get("provider_call", 0), each.get("tool_invocation", 0)) for tokens, each in counts]


def claude() -> Told:
    return claude_turn(events=True)


def codex() -> Told:
    trace = codex_turn()
    codex_events(trace, next(span for span in trace.spans if span.name == "exec_command"))
    return trace


def gemini_session() -> Told:
    trace = gemini(0)
    gemini_call(trace, 0, **{"gen_ai.usage.input_tokens": 120, "gen_ai.usage.output_tokens": 18})
    gemini_answer(trace, 1)
    return trace


@pytest.mark.parametrize(
    ("made", "alone"), [(claude, (240, 2, 1)), (codex, (240, 2, 1)), (gemini_session, (120, 1, 0))]
)
def test_spans_and_events_in_any_order_and_events_alone(
    embedded: Stores, made: Callable[[], Told], alone: tuple[int, int, int]
) -> None:
    trace = made()
    for flushes in (
        [(trace.spans, []), ([], trace.logs)],
        [([], trace.logs), (trace.spans, [])],
        [(trace.spans[::-1], []), ([], trace.logs[::-1]), (trace.spans, trace.logs)],
        *[[([], [record]) for record in (*trace.logs, *trace.logs)] + [([span], []) for span in trace.spans]],
    ):
        project = new_project(embedded)
        for spans, logs in flushes:
            project.store(spans, logs)
        assert usage(project) == [alone]
    for record in trace.logs:
        record.trace_id = record.span_id = ""
    project = new_project(embedded)
    for record in trace.logs:
        project.store([], [record])
    assert usage(project) == [alone]
