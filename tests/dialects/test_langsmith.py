"""LangSmith (dialects.md §6)."""

from __future__ import annotations

import json
from typing import Any

from otel_blackboard.processor.dialects.dialect import PROVIDER_CALL, STEP, TOOL
from otel_blackboard.records import Event, Span
from tests.dialects.reading import artifact_of, body_of, light_of, sent, tree_of
from tests.spans import Trace


def langsmith(trace: Trace, kind: str, name: str, *place: Any, error: str | None = None, **attributes: Any) -> Span:
    said = {"langsmith.span.kind": kind, "langsmith.trace.name": name, "gen_ai.system": "langchain"}
    more = {key.replace("__", "."): value for key, value in attributes.items()}
    return sent(trace, "langsmith", name, said | more, *place, error=error)


def test_langsmith_roles_come_from_its_kinds() -> None:
    for kind, operation, role in (
        ("llm", "chat", PROVIDER_CALL),
        ("prompt", "chat", ""),
        ("parser", "parser", ""),
        ("retriever", "embeddings", TOOL),
        ("tool", "execute_tool", TOOL),
        ("chain", "chain", ""),
    ):
        light = light_of(langsmith(Trace(), kind, "x", gen_ai__operation__name=operation, gen_ai__request__model="m"))
        assert light.role == role, kind


def test_langsmith_nodes_and_agents_are_told_from_what_passes_down() -> None:
    trace = Trace()
    agent = {"langsmith__metadata__lc_agent_name": "bot", "langsmith__metadata__session_id": "s1"}
    node = agent | {"langsmith__metadata__langgraph_node": "model", "langsmith__span__tags": "t1, t2"}
    root = langsmith(trace, "chain", "outer", 0, 9)
    graph = langsmith(trace, "chain", "my run", 1, 8, root, **agent)
    model = langsmith(trace, "chain", "model", 2, 7, graph, **node)
    inside = langsmith(trace, "chain", "RunnableSequence", 3, 6, model, **node)
    call = langsmith(trace, "llm", "ChatOpenAI", 4, 5, inside, gen_ai__request__model="m", **node)
    rows, part = tree_of(trace.spans)
    assert (part.name, part.conversation_id, part.agents) == ("outer", "s1", ("bot",))
    assert [rows[span.span_id].role for span in (graph, model, inside)] == [STEP, STEP, ""]
    assert (rows[call.span_id].step_span_id, rows[call.span_id].agent_id) == (graph.span_id, "bot")
    assert rows[call.span_id].labels["tags"] == '["t1","t2"]'
    plain = langsmith(Trace("plain"), "chain", "lookup", langsmith__metadata__langgraph_node="lookup")
    light = light_of(plain)
    assert (light.role, light.is_node, light.step_name) == (STEP, True, "lookup")


def test_langsmith_model_id_and_details_stand_inside_json() -> None:
    message = {"lc": 1, "type": "constructor", "id": ["langchain", "AIMessage"],
               "kwargs": {"content": "done", "response_metadata": {"id": "r1", "model_name": "m-1"}}}  # fmt: skip
    usage = {"input_tokens": 120, "output_tokens": 18, "input_token_details": {"cache_read": 64},
             "output_token_details": {"reasoning": 7}}  # fmt: skip
    span = langsmith(Trace(), "llm", "ChatOpenAI", gen_ai__request__model="m",
                     gen_ai__completion=json.dumps({"generations": [[{"text": "done", "message": message}]]}),
                     langsmith__metadata__usage_metadata=json.dumps(usage),
                     langsmith__metadata__ls_provider="openai")  # fmt: skip
    light = light_of(span)
    assert (light.response_id, light.response_model, light.provider) == ("r1", "m-1", "openai")
    assert (light.input_tokens, light.cached_input_tokens, light.reasoning_tokens) == (120, 64, 7)
    output = artifact_of(span, "agent_output")
    assert output is not None and output.summary == "done"
    span.attributes["gen_ai.completion"] = json.dumps({"id": "r2", "model": "m-2", "choices": []})  # without LangChain
    assert (light_of(span).response_id, light_of(span).response_model) == ("r2", "m-2")
    span.attributes["gen_ai.completion"] = '{"generations": [[{"text'
    assert light_of(span).response_id == ""


def test_langsmith_tools() -> None:
    told = {"output": {"content": '{"temp_c": 22}', "type": "tool", "tool_call_id": "c1", "status": "success"}}
    tool = langsmith(Trace(), "tool", "look", gen_ai__prompt='{"x":1}', gen_ai__completion=json.dumps(told))
    row = artifact_of(tool, "tool_result")
    assert row is not None and (row.arguments, row.summary) == ('{"x":1}', '{"temp_c":22}')
    assert body_of(tool, "tool_result") == json.dumps(told).encode()
    failed = langsmith(Trace(), "tool", "look", error="no", gen_ai__prompt='{"x":1}', gen_ai__completion="{}")
    assert body_of(failed, "tool_result") == b"no"
    found = langsmith(
        Trace(), "retriever", "store", gen_ai__prompt='{"query":"q"}', gen_ai__completion='{"documents":[]}'
    )
    row = artifact_of(found, "tool_result")
    assert row is not None and row.arguments == '{"query":"q"}' and light_of(found).tool_class == "knowledge_base"


def test_langsmith_tells_a_failure_by_its_exception_where_the_status_was_ok_before() -> None:
    """0.15: a run whose begin and end are exported apart keeps the status OK of its begin."""
    for kind in ("llm", "tool", "chain"):
        span = langsmith(Trace(), kind, "x", langsmith__metadata__lc_agent_name="bot")
        span.status_code = 1
        assert light_of(span).status == "succeeded"
        span.events.append(Event(span.end_ns, "exception", {"exception.message": "rejected"}))
        assert (light_of(span).status, light_of(span).error) == ("failed", "rejected")
