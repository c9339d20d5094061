"""LlamaIndex under OpenLLMetry (dialects.md §15): the class says what a span is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from otel_blackboard.processor.dialects.llamaindex import SCOPE
from otel_blackboard.records import Span
from tests.dialects.reading import artifact_of, light_of, scoped, tree_of
from tests.spans import Trace


def _span(trace: Trace, name: str, parent: Span | str = "", start: float = 0, end: float = 9, **more: Any) -> Span:
    kind = name.rpartition(".")[2]
    more = {"traceloop__span__kind": kind, "traceloop__entity__name": name} | more
    return scoped(SCOPE, trace.span(name, start, end, parent, **more))


@pytest.mark.parametrize(
    ("name", "role", "operation"),
    [
        ("FunctionAgent.workflow", "step", "invoke_agent"),
        ("RetrieverQueryEngine.workflow", "flow_run", "invoke_workflow"),
        ("BaseWorkflowAgent.task", "", ""),
        ("CompactAndRefine.task", "", ""),
        ("FunctionTool.task", "tool_invocation", "execute_tool"),
        ("VectorIndexRetriever.task", "tool_invocation", "retrieval"),
    ],
)
def test_roles(name: str, role: str, operation: str) -> None:
    light = light_of(_span(Trace(), name))
    assert (light.role, light.operation) == (role, operation)


def test_an_agents_answer_and_a_tool_that_is_said_twice() -> None:
    trace = Trace()
    answer = {"role": "assistant", "blocks": [{"block_type": "text", "text": "Sunny."}]}
    agent = _span(
        trace, "FunctionAgent.workflow",
        traceloop__entity__output=json.dumps({"result": {"response": answer, "current_agent_name": "bot"}}),
    )  # fmt: skip
    ran = {"blocks": [], "tool_name": "get_weather", "raw_output": {"temp_c": 22}, "is_error": False}
    outer = _span(
        trace, "BaseWorkflowAgent.task", agent, 1, 5, tool__name="get_weather", tool__arguments='{"city": "Paris"}',
        traceloop__entity__output=json.dumps({"tool_name": "get_weather", "tool_id": "call_1", "tool_output": ran}),
    )  # fmt: skip
    inner = _span(
        trace, "FunctionTool.task", outer, 2, 4, traceloop__entity__input='{"kwargs": {"city": "Paris"}}',
        traceloop__entity__output=json.dumps(ran),
    )  # fmt: skip
    rows, part = tree_of(trace.spans)
    assert (part.name, part.agents, part.counts["tool_invocation"]) == ("FunctionAgent", ("bot",), 1)
    assert rows[inner.span_id].call_span_id == outer.span_id
    assert (rows[outer.span_id].tool_name, rows[outer.span_id].tool_call_id) == ("get_weather", "call_1")
    for span in (outer, inner):
        row = artifact_of(span, "tool_result")
        assert row is not None and (row.arguments, row.summary) == ('{"city":"Paris"}', '{"temp_c":22}')
    assert artifact_of(agent, "agent_output") is not None


def test_a_failed_tool_says_so_in_its_output() -> None:
    said = {
        "blocks": [{"block_type": "text", "text": "boom"}],
        "tool_name": "boom",
        "raw_output": "boom",
        "is_error": True,
    }
    light = light_of(_span(Trace(), "FunctionTool.task", traceloop__entity__output=json.dumps(said)))
    assert (light.status, light.error, light.tool_name) == ("failed", "boom", "boom")


def test_a_retrieval_is_there_once_and_its_embedding_is_a_call_without_vectors() -> None:
    trace = Trace()
    run = _span(trace, "RetrieverQueryEngine.workflow")
    query = {"query_str": "weather?", "embedding": None}
    documents = json.dumps(['{"node": {"text": "sunny"}, "score": 0.9}'])
    outer = _span(trace, "VectorIndexRetriever.task", run, 1, 5, traceloop__entity__output=documents,
                  traceloop__entity__input=json.dumps({"str_or_query_bundle": query}))  # fmt: skip
    inner = _span(trace, "VectorIndexRetriever.task", outer, 1, 5, traceloop__entity__output=documents,
                  traceloop__entity__input=json.dumps({"query_bundle": query}))  # fmt: skip
    embedding = _span(
        trace, "OpenAIEmbedding.task", inner, 2, 3, traceloop__entity__output="[0.1, 0.2]",
        gen_ai__operation__name="embeddings", gen_ai__request__model="text-embedding-3-small",
    )  # fmt: skip
    _span(trace, "OpenAIEmbedding.task", embedding, 2, 3, traceloop__entity__output="[0.1, 0.2]")
    rows, part = tree_of(trace.spans)
    assert part.counts == {"flow_run": 1, "provider_call": 1, "tool_invocation": 1}
    assert (part.calls_succeeded, part.calls_with_usage, part.input_tokens) == (1, 0, None)
    assert rows[inner.span_id].call_span_id == outer.span_id
    row = artifact_of(outer, "tool_result")
    assert row is not None and row.arguments == '{"query":"weather?"}'
    assert artifact_of(embedding, "agent_output") is None
