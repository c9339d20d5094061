"""AWS Strands (dialects.md §9)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from otel_blackboard.processor.dialects.strands import SCOPE
from otel_blackboard.records import Span
from tests.dialects.reading import artifact_of, body_of, event, fields_of, light_of, scoped, tree_of
from tests.spans import Trace

FRAMEWORK = {"gen_ai__system": "strands-agents"}


def _tool(status_key: str, status: str, block: Any) -> Span:
    tool = scoped(SCOPE, Trace().tool("get_weather", call_id="call_1", **{status_key: status} | FRAMEWORK))
    event(tool, "gen_ai.tool.message", 0.1, role="tool", content='{"city": "Paris"}', id="call_1")
    event(tool, "gen_ai.choice", 0.2, message=json.dumps([block]), id="call_1")
    tool.status_code = 1
    return tool


def test_a_tools_arguments_and_result_are_its_events() -> None:
    tool = _tool("gen_ai__tool__status", "success", {"json": {"temp_c": 22}})
    row = artifact_of(tool, "tool_result")
    assert row is not None and (row.arguments, row.summary, row.status) == ('{"city":"Paris"}', '{"temp_c":22}', "ok")
    assert body_of(tool, "tool_result") == b'[{"json": {"temp_c": 22}}]'


@pytest.mark.parametrize("key", ["tool__status", "gen_ai__tool__status"])
def test_a_failed_tool_says_ok_and_means_its_status_attribute(key: str) -> None:
    light = light_of(_tool(key, "error", {"text": "Error: boom"}))
    assert (light.status, light.error) == ("failed", "Error: boom")


def _chat(trace: Trace, start: float, parent: Span) -> Span:
    return scoped(SCOPE, trace.span(
        "chat", start, start + 1, parent, gen_ai__operation__name="chat", gen_ai__request__model="gpt-4o-mini",
        gen_ai__usage__prompt_tokens=120, gen_ai__usage__input_tokens=120, gen_ai__usage__completion_tokens=18,
        gen_ai__usage__output_tokens=18, gen_ai__usage__cache_read_input_tokens=64,
        gen_ai__usage__cache_read__input_tokens=64, **FRAMEWORK,
    ))  # fmt: skip


def test_a_pass_with_cycles_bills_each_call_once() -> None:
    trace = Trace()
    agent = scoped(SCOPE, trace.agent("bot", 0, 9, gen_ai__usage__input_tokens=240, gen_ai__usage__output_tokens=36,
                                      **FRAMEWORK))  # fmt: skip
    event(agent, "gen_ai.choice", 8, message="Sunny.\n", finish_reason="end_turn")
    calls = []
    for place, name in enumerate(("execute_event_loop_cycle", "Cycle 1")):
        operation = {"gen_ai__operation__name": name} if place == 0 else {}
        cycle = scoped(SCOPE, trace.span(name, 4 * place, 4 * place + 3, agent, **operation))
        calls.append(_chat(trace, 4 * place + 1, cycle))
        assert light_of(cycle).role == ""
    rows, part = tree_of(trace.spans)
    assert (part.input_tokens, part.output_tokens, part.cached_input_tokens) == (240, 36, 128)
    assert part.counts == {"provider_call": 2, "step": 1}
    assert rows[calls[0].span_id].provider == "openai" and rows[agent.span_id].provider == ""
    output = artifact_of(agent, "agent_output")
    assert output is not None and output.summary == "Sunny."


@pytest.mark.parametrize(
    ("read", "total", "whole"),
    [(1000, 1548, 1530), (1530, 1548, 1530), (1530, 2078, 2060)],
    ids=["Bedrock's own", "added up since August 2026", "by the total alone"],
)
def test_the_total_says_whether_the_cache_is_in_the_input(read: int, total: int, whole: int) -> None:
    usage = {"input_tokens": read, "prompt_tokens": read, "output_tokens": 18, "total_tokens": total,
             "cache_read_input_tokens": 500, "cache_write_input_tokens": 30}  # fmt: skip
    attributes = {f"gen_ai__usage__{name}": count for name, count in usage.items()} | FRAMEWORK
    call = scoped(SCOPE, Trace().span("chat", gen_ai__operation__name="chat", **attributes,
                                      gen_ai__request__model="us.anthropic.claude-sonnet-4-5-20250929-v1:0"))  # fmt: skip
    light = light_of(call)
    assert (light.input_tokens, light.cached_input_tokens, light.cache_write_tokens) == (whole, 500, 30)
    assert light.provider == "aws.bedrock" and light.cost_usd is not None


def test_messages_are_events_of_the_call_in_either_form() -> None:
    trace = Trace()
    agent = scoped(SCOPE, trace.agent("bot", 0, 9))
    old = _chat(trace, 1, agent)
    event(old, "gen_ai.system.message", 1.1, content='[{"text": "Be brief."}]')
    event(
        old,
        "gen_ai.tool.message",
        1.2,
        content='[{"toolResult": {"toolUseId": "call_1", "content": [{"text": "22C"}]}}]',
    )
    event(old, "gen_ai.choice", 1.9, message='[{"toolUse": {"toolUseId": "call_2", "name": "f", "input": {}}}]')
    assert fields_of(old, "llm_prompt") == ["events.0.*", "events.1.*"]
    assert [(call.id, call.name) for call in light_of(old).requested] == [("call_2", "f")]
    new = _chat(trace, 3, agent)
    for key, value in (
        ("gen_ai.system_instructions", '[{"type": "text", "content": "Be brief."}]'),
        ("gen_ai.input.messages", '[{"role": "user", "parts": [{"type": "text", "content": "Weather?"}]}]'),
        ("gen_ai.output.messages", '[{"role": "assistant", "parts": [{"type": "text", "content": "Sunny."}]}]'),
    ):
        event(new, "gen_ai.client.inference.operation.details", 3.1, **{key: value})
    assert fields_of(new, "llm_prompt") == ["events.0.gen_ai.system_instructions", "events.1.gen_ai.input.messages"]
    output = artifact_of(new, "agent_output")
    assert output is not None and output.summary == "Sunny."


@pytest.mark.parametrize("operation", ["invoke_graph", "invoke_swarm"])
def test_agents_that_work_together_are_a_run(operation: str) -> None:
    assert light_of(scoped(SCOPE, Trace().span(operation, gen_ai__operation__name=operation))).role == "flow_run"


@pytest.mark.parametrize(
    ("model", "provider"),
    [
        ("gpt-4o-mini", "openai"),
        ("o3-mini", "openai"),
        ("claude-sonnet-4-5", "anthropic"),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "aws.bedrock"),
        ("amazon.nova-pro-v1:0", "aws.bedrock"),
        ("arn:aws:bedrock:us-east-1:1:inference-profile/x", "aws.bedrock"),
        ("gemini-2.5-pro", "gcp.gemini"),
        ("my-deployment", ""),
        ("", ""),
    ],
)
def test_the_framework_is_no_provider_and_the_models_name_says_who_answered(model: str, provider: str) -> None:
    call = scoped(
        SCOPE, Trace().span("chat", gen_ai__operation__name="chat", gen_ai__request__model=model, **FRAMEWORK)
    )
    assert light_of(call).provider == provider
