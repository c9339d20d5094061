"""Langfuse (dialects.md §18; B4)."""

from __future__ import annotations

import json
from typing import Any

from otel_blackboard.processor.dialects.dialect import PROVIDER_CALL
from otel_blackboard.records import Span
from tests.dialects.reading import artifact_of, light_of, sent, tree_of
from tests.spans import Trace

MESSAGES = json.dumps([{"role": "user", "content": "hello"}])


def langfuse(trace: Trace, kind: str, name: str, *place: Any, error: str | None = None, **attributes: Any) -> Span:
    said = {"langfuse.observation.type": kind, "langfuse.trace.name": "my trace", "langfuse.trace.tags": ["a"],
            "session.id": "s1", "user.id": "u1"}  # fmt: skip
    more = {f"langfuse.observation.{key.replace('__', '.')}": value for key, value in attributes.items()}
    return sent(trace, "langfuse-sdk", name, said | more, *place, error=error)


def test_langfuse_observations() -> None:
    trace = Trace()
    root = langfuse(trace, "span", "flow", 0, 9)
    agent = langfuse(trace, "agent", "bot", 1, 8, root, output="done")
    usage = {"prompt_tokens": 120, "completion_tokens": 18, "prompt_tokens_details": {"cached_tokens": 64},
             "completion_tokens_details": {"reasoning_tokens": 7}}  # fmt: skip
    call = langfuse(trace, "generation", "OpenAI-generation", 2, 3, agent, model__name="gpt-4o-mini", input=MESSAGES,
                    usage_details=json.dumps(usage), cost_details='{"total": 0.5}', prompt__name="greet",
                    prompt__version=3, output=json.dumps({"role": "assistant", "content": None, "tool_calls": [
                        {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"x": 1}'}}]}))  # fmt: skip
    tool = langfuse(trace, "tool", "look", 4, 5, agent, input='{"args": [], "kwargs": {"x": 1}}', output='{"y": 2}')
    guard = langfuse(trace, "guardrail", "safe", 6, 7, agent, output='{"ok": true}')
    rows, part = tree_of(trace.spans)
    assert (part.name, part.conversation_id, part.user_id, part.agents) == ("my trace", "s1", "u1", ("bot",))
    assert part.counts == {"guard": 1, "provider_call": 1, "step": 1, "tool_invocation": 1}
    assert (part.input_tokens, part.cached_input_tokens, part.reasoning_tokens) == (120, 64, 7)
    assert str(part.cost_usd) == "0.500000000000" and rows[call.span_id].provider == "openai"
    assert rows[call.span_id].labels == {
        "tags": '["a"]', "prompt_name": "greet", "prompt_version": "3", "provider_inferred_from": "model",
    }  # fmt: skip
    assert (rows[tool.span_id].requested_by, rows[tool.span_id].tool_call_id) == (call.span_id, "c1")
    row = artifact_of(tool, "tool_result")
    assert row is not None and row.arguments == '{"x":1}'
    assert rows[guard.span_id].labels | {"tags": ""} == {
        "tags": "",
        "guard_name": "safe",
        "guard_result": '{"ok": true}',
    }


def test_langfuse_buckets_of_usage_exclude_each_other() -> None:
    usage = {"input": 1000, "output": 18, "cache_read_input_tokens": 500, "output_reasoning_tokens": 7}
    span = langfuse(Trace(), "generation", "gen", model__name="gpt-4o-mini", usage_details=json.dumps(usage))
    light = light_of(span)
    assert (light.input_tokens, light.output_tokens) == (1500, 25)
    assert (light.cached_input_tokens, light.reasoning_tokens, light.labels["cached_input"]) == (500, 7, "beside")


def test_langfuse_chains_are_steps_where_they_are_nodes() -> None:
    node = langfuse(Trace(), "chain", "lookup", metadata__langgraph_node='"lookup"')
    light = light_of(node)
    assert (light.role, light.is_node, light.step_name) == ("step", True, "lookup")
    inside = langfuse(Trace(), "chain", "RunnableSequence", metadata__langgraph_node='"lookup"')
    assert (light_of(inside).role, light_of(inside).dialect) == ("", "langfuse")


def test_langfuse_level_error_is_a_failure() -> None:
    light = light_of(langfuse(Trace(), "generation", "gen", level="ERROR", status_message="too long"))
    assert (light.status, light.error) == ("failed", "too long")
    assert light_of(langfuse(Trace(), "generation", "gen", level="WARNING", status_message="sm")).status == "succeeded"


def test_langfuse_marks_of_the_trace_on_the_span_of_another_say_no_role() -> None:
    span = Trace().chat(tokens=(1, 1))
    span.attributes |= {"langfuse.trace.name": "my trace", "session.id": "s1"}
    light = light_of(span)
    assert (light.role, light.dialect, light.run_name) == (PROVIDER_CALL, "gen_ai", "my trace")
