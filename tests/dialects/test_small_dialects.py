"""Dialects of which only the names are known (dialects.md §28)."""

from __future__ import annotations

import pytest

from tests.dialects.reading import artifact_of, light_of, scoped, tree_of
from tests.spans import Trace


@pytest.mark.parametrize(
    ("key", "value", "role"),
    [
        ("mastra.span.type", "agent_run", "step"),
        ("mastra.span.type", "workflow_run", "flow_run"),
        ("mastra.span.type", "workflow_step", "step"),
        ("mastra.span.type", "model_generation", "provider_call"),
        ("mastra.span.type", "model_step", ""),
        ("mastra.span.type", "model_chunk", ""),
        ("mastra.span.type", "mcp_tool_call", "tool_invocation"),
        ("mastra.span.type", "generic", ""),
        ("agentops.span.kind", "session", "flow_run"),
        ("agentops.span.kind", "AGENT", "step"),
        ("agentops.span.kind", "operation", "step"),
        ("agentops.span.kind", "tool", "tool_invocation"),
        ("agentops.span.kind", "llm", "provider_call"),
        ("agentops.span.kind", "guardrail", "guard"),
        ("lmnr.span.type", "LLM", "provider_call"),
        ("lmnr.span.type", "TOOL", "tool_invocation"),
        ("lmnr.span.type", "CACHED", ""),
        ("lmnr.span.type", "DEFAULT", ""),
        ("gen_ai.span.kind", "LLM", "provider_call"),
        ("gen_ai.span.kind", "AGENT", "step"),
        ("gen_ai.span.kind", "STEP", ""),
        ("guard.verdict", "yes", "guard"),
    ],
)
def test_roles(key: str, value: str, role: str) -> None:
    assert light_of(Trace().span("x", **{key: value})).role == role


def test_mastras_usage_is_its_generations() -> None:
    trace = Trace()
    agent = trace.span(
        "invoke_agent bot", 0, 9, **{"mastra.span.type": "agent_run", "mastra.agent_run.output": "Sunny."}
    )
    said = {"mastra.span.type": "model_generation", "gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-4o-mini",
            "gen_ai.usage.input_tokens": 240, "gen_ai.usage.output_tokens": 36}  # fmt: skip
    generation = trace.span("chat gpt-4o-mini", 1, 8, agent, **said)
    for start in (1, 5):
        trace.span("model_step", start, start + 1, generation,
                   **{"mastra.span.type": "model_step", "gen_ai.operation.name": "model_step"})  # fmt: skip
    _, part = tree_of(trace.spans)
    assert (part.counts, part.input_tokens, part.agents) == ({"provider_call": 1, "step": 1}, 240, ("bot",))
    output = artifact_of(agent, "agent_output")
    assert output is not None and output.summary == "Sunny."


def test_a_laminar_tool_and_session() -> None:
    tool = Trace().span("get_weather", **{"lmnr.span.type": "TOOL", "lmnr.span.input": '{"city": "Paris"}',
                                          "lmnr.span.output": "22C", "lmnr.association.properties.session_id": "s1"})  # fmt: skip
    row, light = artifact_of(tool, "tool_result"), light_of(tool)
    assert row is not None and (row.arguments, row.summary) == ('{"city":"Paris"}', "22C")
    assert (light.tool_name, light.conversation_id) == ("get_weather", "s1")


def test_an_agentops_tool() -> None:
    tool = Trace().span("get_weather.tool", **{"agentops.span.kind": "tool", "agentops.entity.name": "get_weather",
                                               "agentops.entity.input": '{"args": [], "kwargs": {"city": "Paris"}}',
                                               "agentops.entity.output": "22C"})  # fmt: skip
    row = artifact_of(tool, "tool_result")
    assert row is not None and (row.arguments, row.summary) == ('{"city":"Paris"}', "22C")


def test_copilots_cost_is_no_money() -> None:
    call = scoped(
        "github.copilot", Trace().chat(model="no-such-model", tokens=(120, 18), **{"github.copilot.cost": 1.5})
    )
    light = light_of(call)
    assert light.cost_usd is None and light.labels["premium_requests"] == "1.5"


def test_an_openlit_guard() -> None:
    guard = light_of(
        Trace().span("guard", **{"guard.verdict": "yes", "guard.validator": "prompt_injection", "guard.score": 0.9})
    )
    assert guard.labels == {"guard_name": "prompt_injection", "guard_status": "yes", "guard_score": "0.9"}


def test_a_loongsuite_skill() -> None:
    light = light_of(Trace().span("load_skill", **{"gen_ai.operation.name": "load_skill", "gen_ai.span.kind": "TOOL",
                                                   "gen_ai.skill.name": "pdf", "gen_ai.skill.version": "2"}))  # fmt: skip
    assert (light.role, light.labels["skill_name"], light.labels["skill_version"]) == ("tool_invocation", "pdf", "2")
