"""MLflow (dialects.md §7; B4)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from otel_blackboard.processor.dialects.dialect import FLOW_RUN, GUARD, PROVIDER_CALL, STEP, TOOL
from otel_blackboard.records import Span
from tests.dialects.reading import artifact_of, body_of, event, light_of, sent, tree_of
from tests.spans import Trace

MESSAGES = json.dumps([{"role": "user", "content": "hello"}])


def mlflow(trace: Trace, kind: str, name: str, *place: Any, error: str | None = None, **attributes: Any) -> Span:
    """Every value as MLflow writes it: JSON in a string."""
    said = {"mlflow.spanType": kind, "mlflow.traceRequestId": "tr-1"}
    more = {key.replace("__", "."): value for key, value in attributes.items()}
    quoted = {key: json.dumps(value) for key, value in (said | more).items()}
    return sent(trace, "mlflow.tracing.provider", name, quoted, *place, error=error)


def test_mlflow_quotes_every_value() -> None:
    trace = Trace()
    agent = mlflow(trace, "AGENT", "bot", 0, 9, mlflow__spanOutputs="done")
    call = mlflow(trace, "CHAT_MODEL", "Completions", 1, 2, agent, model="gpt-4o-mini",
                  mlflow__llm__model="gpt-4o-mini-2024-07-18", mlflow__chat__tokenUsage={
                      "input_tokens": 120, "output_tokens": 18, "cache_read_input_tokens": 64},
                  mlflow__llm__cost={"total_cost": 0.5}, mlflow__spanInputs={"messages": json.loads(MESSAGES)},
                  mlflow__spanOutputs={"id": "r1", "model": "m", "choices": [{"message": {"role": "assistant", "tool_calls": [
                      {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"x": 1}'}}]}}]})  # fmt: skip
    tool = mlflow(trace, "TOOL", "look", 3, 4, agent, mlflow__spanInputs={"x": 1}, mlflow__spanOutputs="found")
    rows, part = tree_of(trace.spans)
    assert (part.agents, part.counts) == (("bot",), {"provider_call": 1, "step": 1, "tool_invocation": 1})
    assert (part.input_tokens, part.cached_input_tokens, str(part.cost_usd)) == (120, 64, "0.500000000000")
    light = light_of(call)
    assert (light.request_model, light.response_model) == ("gpt-4o-mini", "gpt-4o-mini-2024-07-18")
    assert (light.response_id, light.provider) == ("r1", "openai")
    assert (rows[tool.span_id].requested_by, rows[tool.span_id].tool_call_id) == (call.span_id, "c1")
    row = artifact_of(tool, "tool_result")
    assert row is not None and (row.arguments, row.summary) == ('{"x":1}', "found")
    output = artifact_of(agent, "agent_output")
    assert output is not None and output.summary == "done" and body_of(agent, "agent_output") == b'"done"'


@pytest.mark.parametrize(
    ("kind", "role"),
    [("WORKFLOW", FLOW_RUN), ("TASK", STEP), ("CHAIN", ""), ("GUARDRAIL", GUARD), ("EVALUATOR", "verifier"),
     ("EMBEDDING", PROVIDER_CALL), ("RETRIEVER", TOOL), ("PARSER", ""), ("UNKNOWN", "")],
)  # fmt: skip
def test_mlflow_types(kind: str, role: str) -> None:
    span = mlflow(Trace(), kind, "x", mlflow__spanOutputs=[0.1])
    assert light_of(span).role == role
    assert artifact_of(span, "agent_output") is None or role in (STEP, FLOW_RUN)


def test_mlflow_chunks_of_a_stream_are_no_content() -> None:
    span = mlflow(Trace(), "CHAT_MODEL", "Completions", model="m")
    event(span, "mlflow.chunk.item.0", mlflow__chunk__value='{"choices": [{"delta": {"content": "d"}}]}')
    assert artifact_of(span, "agent_output") is None


@pytest.mark.parametrize(("read", "whole"), [(1000, 1530), (1530, 1530)], ids=["3.10", "since 3.12"])
@pytest.mark.parametrize("kind", ["CHAT_MODEL", "LLM"])
def test_mlflow_handed_anthropics_figures_on_at_first(kind: str, read: int, whole: int) -> None:
    cache = {"cache_read_input_tokens": 500, "cache_creation_input_tokens": 30}
    usage = {"input_tokens": 1000, "output_tokens": 18} | cache
    answer = {"id": "msg_1", "type": "message", "content": [{"type": "text", "text": "Sunny."}], "usage": usage}
    span = mlflow(Trace(), kind, "Messages.create", model="claude-sonnet-4-5", mlflow__message__format="anthropic",
                  mlflow__chat__tokenUsage={"input_tokens": read, "output_tokens": 18, "total_tokens": read + 18} | cache,
                  mlflow__spanOutputs=answer)  # fmt: skip
    light = light_of(span)
    assert (light.input_tokens, light.cached_input_tokens, light.response_id) == (whole, 500, "msg_1")


@pytest.mark.parametrize(
    "answer",
    [None, "done", {"usage": "x"}, {"usage": {"input_tokens": 120, "input_tokens_details": {"cached_tokens": 64}}}],
)
def test_mlflow_has_the_cache_in_its_input(answer: Any) -> None:
    span = mlflow(Trace(), "CHAT_MODEL", "Completions", mlflow__spanOutputs=answer, mlflow__chat__tokenUsage={
        "input_tokens": 120, "output_tokens": 18, "cache_read_input_tokens": 64})  # fmt: skip
    assert light_of(span).input_tokens == 120
