"""AWS Strands (dialects.md §9)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from otel_blackboard.processor.dialects.strands import SCOPE
from otel_blackboard.records import Span
from tests.dialects.reading import artifact_of, body_of, event, fields_of, light_of, scoped, tree_of
from tests.spans import DETAILS, Trace

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


def _experimental(status: str, content: Any, call: dict[str, Any] | None = None) -> Span:
    """1.x before 1.62 with `gen_ai_latest_experimental` (read: its tracer)."""
    tool = scoped(SCOPE, Trace().tool("get_weather", call_id="call_1", gen_ai__tool__status=status, **FRAMEWORK))
    asked = {"type": "tool_call", "name": "get_weather", "id": "call_1", "arguments": {"city": "Paris"}} | (call or {})
    said = {"type": "tool_call_response", "id": "call_1", "response": content}
    for time, key, part in ((0.1, "input", asked), (0.2, "output", said)):
        messages = json.dumps([{"role": "tool", "parts": [part]}])
        event(tool, DETAILS, time, **{f"gen_ai__{key}__messages": messages})
    tool.status_code = 1
    return tool


@pytest.mark.parametrize(
    ("content", "summary"),
    [
        ([{"json": {"temp_c": 22}}], '{"temp_c":22}'),
        ([{"text": "22C"}], "22C"),
        ([{"text": "22C"}, {"text": "sunny"}], '[{"text":"22C"},{"text":"sunny"}]'),
        ("22C", "22C"),
        (0, "0"),
        (False, "false"),
    ],
)
@pytest.mark.parametrize("reverse", [False, True])
def test_a_tools_arguments_and_result_are_parts_of_its_messages(content: Any, summary: str, reverse: bool) -> None:
    tool = _experimental("success", content)
    if reverse:
        tool.events.reverse()
    row = artifact_of(tool, "tool_result")
    assert row is not None and (row.arguments, row.summary, row.status) == ('{"city":"Paris"}', summary, "ok")
    output = next(each for each in tool.events if "gen_ai.output.messages" in each.attributes)
    assert body_of(tool, "tool_result") == str(output.attributes["gen_ai.output.messages"]).encode()
    light = light_of(tool)
    assert light.has_input and light.has_output
    assert light.arguments_sha256 == light_of(_tool("gen_ai__tool__status", "success", {})).arguments_sha256


def test_a_tool_that_failed_says_so_in_its_messages() -> None:
    light = light_of(_experimental("error", [{"text": "Error: boom"}]))
    assert (light.status, light.error) == ("failed", "Error: boom")


def test_parts_of_another_call_are_not_its_own() -> None:
    tool = _experimental("success", "22C", {"id": "call_0"})
    assert not light_of(tool).has_input and light_of(tool).has_output
    tool = _experimental("success", "22C", {"id": None, "name": "other"})
    assert not light_of(tool).has_input
    tool = _experimental("success", "22C", {"id": None})
    assert light_of(tool).has_input


def test_messages_stand_back_behind_arguments_and_a_result_of_their_own() -> None:
    tool = _experimental("success", "22C")
    tool.attributes |= {"gen_ai.tool.call.arguments": '{"city": "Rome"}', "gen_ai.tool.call.result": "30C"}
    row = artifact_of(tool, "tool_result")
    assert row is not None and (row.arguments, row.summary) == ('{"city":"Rome"}', "30C")
    assert body_of(tool, "tool_result") == b"30C"


@pytest.mark.parametrize(
    "messages", [None, "", "tool_call", '[{"parts": "tool_call"}]', '"tool_call"', '{"tool_call": 1', 3, [[1]],
                 [{"parts": [{"type": "tool_call"}, 1]}], {"parts": [{"type": "tool_call", "id": {}, "name": 1}]}]
)  # fmt: skip
def test_messages_of_any_shape_do_not_raise(messages: Any) -> None:
    tool = _experimental("error", "x")
    for each in tool.events:
        each.attributes = dict.fromkeys(each.attributes, messages)
    assert light_of(tool).status == "failed"
    tool.attributes |= {"gen_ai.input.messages": messages, "gen_ai.output.messages": messages}
    assert light_of(tool).role == "tool_invocation"


def test_parts_in_messages_are_read_whatever_the_emitter() -> None:
    """D: tool arguments and result, the last sources."""
    said = {"gen_ai__input__messages": [{"role": "tool", "parts": [{"type": "tool_call", "arguments": {"a": 1}}]}],
            "gen_ai__output__messages": [{"role": "tool", "parts": [{"type": "tool_call_response", "result": "x"}]}]}  # fmt: skip
    row = artifact_of(Trace().tool("look", **said), "tool_result")
    assert row is not None and (row.arguments, row.summary, row.origin) == ('{"a":1}', "x", "attribute")


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
