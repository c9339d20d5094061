"""What a span is, and what it and its agent, tool, step and run are called, is for its own emitter to say (dialects.md D):
neither the words of another dialect in the resource of the process, nor such a word on the span itself, change it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from otel_blackboard.collector import otlp_json, otlp_protobuf
from otel_blackboard.processor.dialects import BY_FIELD
from otel_blackboard.processor.dialects.dialect import FLOW_RUN, STEP, TOOL
from otel_blackboard.records import Resource, Span
from tests.dialects.reading import light_of, scoped, sent
from tests.recordings import CAPTURES, NAMES
from tests.spans import Trace

WORDS = {
    dialect.name: {key + "made_up" if key.endswith(".") else key: "x" for key in dialect.keys} for dialect in BY_FIELD
}
"""Dialect → attributes that make a span known to it, and say nothing."""

SAY_WHAT_IT_IS = ("codex", "logfire", "openlit")
"""Dialects of which one such attribute on a span does say something: that it is one of Codex' own, what it is called in
Logfire, that it is a guard."""

KEPT = "role operation is_agent is_node dialect agent_id tool_name step_name run_name error".split()


def facts(span: Span) -> dict[str, Any]:
    light = light_of(span)
    return {name: getattr(light, name) for name in KEPT}


Case = tuple[str, str, dict[str, Any], str, dict[str, str]]
CASES: list[Case] = [
    ("", "invoke_agent bot", {"gen_ai.operation.name": "invoke_agent"}, STEP, {"agent_id": "bot"}),
    ("", "execute_tool look", {"gen_ai.operation.name": "execute_tool"}, TOOL, {"tool_name": "look"}),
    ("", "tools/call search", {"mcp.method.name": "tools/call"}, TOOL, {"tool_name": "search"}),
    ("haystack", "haystack.agent.run", {"haystack.agent.max_steps": 9}, STEP, {"agent_id": ""}),
    ("ai", "ai.generateText", {"ai.operationId": "ai.generateText"}, STEP, {"agent_id": ""}),
    ("gen_ai", "invoke_agent gpt-4o-mini", {"gen_ai.operation.name": "invoke_agent", "gen_ai.request.model": "gpt-4o-mini"},
     STEP, {"agent_id": ""}),
    ("gcp.vertex.agent", "agent_run [weather]", {}, STEP, {"agent_id": "weather"}),
    ("gcp.vertex.agent", "invocation", {}, FLOW_RUN, {"run_name": ""}),
    ("com.anthropic.sdk.python", "anthropic.custom_tool_use get_w", {}, TOOL, {"tool_name": "get_w"}),
    ("", "pass", {"blackboard.span.role": "step"}, STEP, {"agent_id": ""}),
    ("openinference.instrumentation.smolagents", "CodeAgent.run", {"openinference.span.kind": "AGENT"}, STEP,
     {"agent_id": "CodeAgent", "run_name": "CodeAgent"}),
    ("", "bot", {"mlflow.spanType": '"AGENT"'}, STEP, {"agent_id": "bot"}),
    ("", "bot", {"langfuse.observation.type": "agent"}, STEP, {"agent_id": "bot"}),
    ("", "bot", {"nemo_relay.scope_type": "agent"}, STEP, {"agent_id": "bot"}),
    ("", "look", {"nemo_relay.scope_type": "tool"}, TOOL, {"tool_name": "look"}),
    ("nat", "bot", {"nat.span.kind": "AGENT"}, STEP, {"agent_id": "bot"}),
    ("nat", "part", {"nat.span.kind": "FUNCTION"}, STEP, {"step_name": "part", "agent_id": ""}),
    ("", "look", {"lmnr.span.type": "TOOL"}, TOOL, {"tool_name": "look"}),
    ("", "look.tool", {"traceloop.span.kind": "tool", "traceloop.entity.name": "look"}, TOOL, {"tool_name": "look"}),
    ("", "invoke_workflow w", {"mastra.span.type": "workflow_run"}, FLOW_RUN, {"run_name": "w"}),
    ("", "GET /", {}, "", {"run_name": "", "agent_id": ""}),
    ("", "guardrail", {}, "", {}),
    ("", "call_llm", {}, "", {}),
]  # fmt: skip


@pytest.mark.parametrize(("scope", "name", "attributes", "role", "named"), CASES)
def test_only_who_says_what_a_span_is_takes_names_out_of_its_name(
    scope: str, name: str, attributes: dict[str, Any], role: str, named: dict[str, str]
) -> None:
    expected = facts(sent(Trace(), scope, name, attributes))
    assert {"role": role} | named == {key: expected[key] for key in ("role", *named)}
    for dialect, words in WORDS.items():
        if words:
            within = sent(Trace(resource=dict(words)), scope, name, attributes)
            assert facts(within) == expected, f"{dialect} in the resource"
        if words and role and dialect not in SAY_WHAT_IT_IS:
            beside = sent(Trace(), scope, name, words | attributes)
            assert facts(beside) == expected, f"{dialect} on the span"


def test_langfuse_names_no_span_that_it_only_adds_to() -> None:
    """Its span processor writes the trace's name, session and environment onto the spans of every library."""
    own = {"langfuse.trace.name": "x", "langfuse.environment": "prod", "langfuse.observation.type": "span"}
    assert light_of(sent(Trace(), "gcp.vertex.agent", "agent_run [weather]", own)).agent_id == "weather"


def test_a_role_said_on_purpose_leaves_the_names_to_who_says_the_same() -> None:
    own = {"blackboard.span.role": "step"}
    assert light_of(sent(Trace(), "gcp.vertex.agent", "agent_run [weather]", own)).agent_id == "weather"
    own = {"blackboard.span.role": "tool_invocation", "gen_ai.operation.name": "execute_tool"}
    assert light_of(sent(Trace(), "", "execute_tool look", own)).tool_name == "look"
    own = {"blackboard.span.role": "guard", "mlflow.spanType": '"AGENT"'}
    assert light_of(sent(Trace(), "", "bot", own)).agent_id == "", "it is no pass"


def test_the_resource_may_say_what_holds_for_the_whole_process() -> None:
    trace = Trace(resource={"langfuse.trace.name": "nightly", "blackboard.use_case.id": "u", "session.id": "s"})
    light = light_of(scoped("gcp.vertex.agent", trace.span("agent_run [weather]")))
    said = (light.run_name, light.use_case_id, light.conversation_id, light.agent_id)
    assert said == ("nightly", "u", "s", "weather")


def _recorded(name: str) -> Iterator[Span]:
    for path in sorted((CAPTURES / name / "raw").iterdir()):
        if "traces" in path.name:
            yield from (otlp_protobuf if path.suffix == ".pb" else otlp_json).decode_traces(path.read_bytes()).spans


@pytest.mark.skipif(not NAMES, reason=f"not on this machine: no recordings in {CAPTURES}")
def test_words_of_every_dialect_in_the_resource_leave_every_recorded_span_what_it_is() -> None:
    everything = {key: value for words in WORDS.values() for key, value in words.items()}
    for name in NAMES:
        for span in _recorded(name):
            more = Resource(everything | span.resource.attributes)
            assert facts(replace(span, resource=more)) == facts(span), (name, span.name)
