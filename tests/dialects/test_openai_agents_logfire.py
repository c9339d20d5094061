"""The OpenAI Agents SDK through Logfire (dialects.md §10)."""

from __future__ import annotations

import json

from tests.dialects.reading import body_of, light_of, sent, tree_of
from tests.spans import Trace


def test_openai_agents_through_logfire() -> None:
    trace, scope = Trace(), "logfire.openai_agents"
    root = sent(trace, scope, "OpenAI Agents trace: {name}", {
        "name": "flow", "group_id": "g1", "logfire.msg": "OpenAI Agents trace: flow"}, 0, 9)  # fmt: skip
    agent = sent(trace, scope, "Agent run: {name!r}", {"name": "bot", "gen_ai.system": "openai"}, 1, 8, root)
    turn = sent(
        trace, scope, "Turn {turn} for agent {name!r}", {"name": "bot", "usage": '{"input_tokens":120}'}, 1, 5, agent
    )
    asked = {"event.name": "gen_ai.user.message", "content": "hello", "role": "user"}
    choice = {"event.name": "gen_ai.choice", "index": 0, "message": {"role": "assistant", "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"x": 1}'}}]}}  # fmt: skip
    call = sent(trace, scope, "Responses API with {gen_ai.request.model!r}", {
        "gen_ai.request.model": "gpt-4o-mini", "gen_ai.usage.input_tokens": 120, "gen_ai.usage.output_tokens": 18,
        "events": json.dumps([asked, choice]), "response": '{"id": "resp_1"}',
    }, 2, 3, turn)  # fmt: skip
    tool = sent(trace, scope, "Function: {name}", {"name": "look", "input": '{"x":1}', "output": "found",
                "gen_ai.system": "openai"}, 4, 5, agent)  # fmt: skip
    broken = sent(trace, scope, "Function: {name}", {"name": "look", "input": '{"x":2}', "error": json.dumps(
        {"message": "Error running tool (non-fatal)", "data": {"error": "no such x"}})}, 5, 6, agent)  # fmt: skip
    handoff = sent(
        trace, scope, "Handoff: {from_agent} → {to_agent}", {"from_agent": "bot", "to_agent": "Boss 2"}, 6, 7, agent
    )
    guard = sent(trace, scope, "Guardrail {name!r} {triggered=}", {"name": "safe", "triggered": True}, 7, 8, agent)
    rows, part = tree_of(trace.spans)
    assert (part.name, part.conversation_id, part.agents) == ("flow", "g1", ("bot",))
    assert part.counts == {"flow_run": 1, "guard": 1, "provider_call": 1, "step": 1, "tool_invocation": 3}
    assert (part.input_tokens, rows[turn.span_id].role) == (120, "")
    assert (rows[tool.span_id].requested_by, rows[tool.span_id].tool_call_id) == (call.span_id, "c1")
    assert light_of(call).response_id == "resp_1"
    assert (rows[broken.span_id].status, rows[broken.span_id].error) == ("failed", "no such x")
    assert body_of(broken, "tool_result") == b"no such x"
    assert rows[handoff.span_id].tool_name == "transfer_to_boss_2"
    assert rows[guard.span_id].labels == {"guard_name": "safe", "guard_status": "blocked"}
