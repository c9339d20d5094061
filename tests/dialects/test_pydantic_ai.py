"""Pydantic AI (dialects.md §5; B1)."""

from __future__ import annotations

import json

from tests.dialects.reading import artifact_of, fields_of, sent, tree_of
from tests.spans import Trace


def test_pydantic_ai_before_1_0() -> None:
    trace = Trace()
    agent = sent(trace, "pydantic-ai", "agent run", {
        "agent_name": "bot", "model_name": "gpt-4o-mini", "final_result": "done",
        "gen_ai.usage.input_tokens": 120, "gen_ai.usage.output_tokens": 18,
    }, 0, 9)  # fmt: skip
    asked = {"event.name": "gen_ai.user.message", "content": "hello", "role": "user"}
    choice = {"event.name": "gen_ai.choice", "index": 0, "message": {"role": "assistant", "content": "done"}}
    call = sent(trace, "pydantic-ai", "chat gpt-4o-mini", {
        "gen_ai.operation.name": "chat", "gen_ai.system": "openai", "gen_ai.request.model": "gpt-4o-mini",
        "gen_ai.usage.input_tokens": 120, "gen_ai.usage.output_tokens": 18, "gen_ai.usage.details.reasoning_tokens": 7,
        "gen_ai.usage.details.cached_tokens": 64, "operation.cost": 0.001, "events": json.dumps([asked, choice]),
    }, 1, 2, agent)  # fmt: skip
    wrapper = sent(trace, "pydantic-ai", "running 1 tools", {"tools": ["look"]}, 3, 6, agent)
    tool = sent(trace, "pydantic-ai", "running tool", {
        "gen_ai.tool.name": "look", "gen_ai.tool.call.id": "c1", "tool_arguments": '{"x":1}', "tool_response": "found",
    }, 4, 5, wrapper)  # fmt: skip
    rows, part = tree_of(trace.spans)
    assert (part.agents, part.counts) == (("bot",), {"provider_call": 1, "step": 1, "tool_invocation": 1})
    assert (part.input_tokens, part.cached_input_tokens, part.reasoning_tokens) == (120, 64, 7)
    assert str(part.cost_usd) == "0.001000000000" and rows[wrapper.span_id].role == ""
    row = artifact_of(tool, "tool_result")
    assert row is not None and (row.arguments, row.summary) == ('{"x":1}', "found")
    assert fields_of(agent, "agent_output") == ["final_result"]
    assert fields_of(call, "llm_prompt") == ["events"] and fields_of(call, "agent_output") == ["events#output"]
    output = artifact_of(call, "agent_output")
    assert output is not None and output.summary == "done"


def test_pydantic_ai_sums_stand_only_for_calls_that_are_not_told() -> None:
    trace = Trace()
    agent = sent(trace, "pydantic-ai", "invoke_agent bot", {
        "gen_ai.operation.name": "invoke_agent", "agent_name": "bot", "model_name": "m",
        "gen_ai.aggregated_usage.input_tokens": 240, "gen_ai.aggregated_usage.output_tokens": 36,
    }, 0, 9)  # fmt: skip
    rows, part = tree_of(trace.spans)
    assert (part.input_tokens, rows[agent.span_id].is_aggregate) == (240, True)
    trace.chat(1, 2, agent, tokens=(120, 18))
    rows, part = tree_of(trace.spans)
    assert (part.input_tokens, rows[agent.span_id].billed) == (120, False)


def test_pydantic_ai_answer_of_a_pass_is_what_ends_its_conversation() -> None:
    said = [{"role": "user", "parts": []}, {"role": "assistant", "parts": [{"type": "text", "content": "done"}]}]
    span = sent(Trace(), "pydantic-ai", "invoke_agent bot", {
        "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "bot", "pydantic_ai.all_messages": json.dumps(said),
    })  # fmt: skip
    output = artifact_of(span, "agent_output")
    assert output is not None and output.summary == "done"
    span.attributes["pydantic_ai.all_messages"] = json.dumps(said[:1])  # it failed before there was one
    assert artifact_of(span, "agent_output") is None
