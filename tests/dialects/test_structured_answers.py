"""Answers that are an application's own structure: nothing in them is read as a message, a call or an id, whatever its
keys are called (dialects.md A, D: pass result, response id). And what says nothing is no answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from otel_blackboard.processor.messages import read_messages
from otel_blackboard.processor.reading import read_log, read_span
from otel_blackboard.query.artifacts import assemble
from otel_blackboard.records import Span
from tests.dialects.reading import artifact_of, body_of, event, fields_of, light_of, sent, tree_of
from tests.spans import DETAILS, TENANT, Trace, board_of, listed

CALL = {"id": "c1", "type": "function", "function": {"name": "rm", "arguments": "{}"}}

STRUCTURES: list[Any] = [
    {"title": "Report", "content": "Long text", "score": 5},
    {"content": "c", "title": "Important"},
    {"output": "yes", "confidence": 0.2, "model": "m"},
    {"input": "x", "output": "y", "model": "z"},
    {"prompt": "draw a cat", "style": "ink", "model": "m"},
    {"messages": ["a", "b"], "verdict": "reject"},
    {"messages": [{"content": "Dear Bob", "to": "bob"}], "count": 1},
    {"choices": ["red", "green"], "question": "which?"},
    {"candidates": [{"name": "Ann", "content": "x", "rank": 1}], "post": "pilot"},
    {"contents": "chapter one", "title": "t"},
    {"replies": ["yes", "no"], "to": "ann"},
    {"tool_calls": [CALL], "verdict": "reject"},
    {"tool_call": {"name": "rm", "arguments": {}}, "reason": "clean up"},
    {"function": {"name": "rm", "arguments": "{}"}, "why": "clean up"},
    {"function_call": {"name": "rm", "arguments": "{}"}, "why": "clean up"},
    {"name": "rm", "arguments": {"path": "/"}},
    {"message": "disk full", "severity": 3},
    {"message": {"subject": "hi", "content": "x"}, "to": "bob"},
    {"delta": {"price": 3}, "why": "rise"},
    {"parts": [{"name": "bolt"}], "total": 3},
    {"blocks": [{"text": "a"}], "title": "x"},
    {"text": "Bonjour", "language": "fr"},
    {"text": "cut", "finish_reason": "length", "pages": 2},
    {"image": "https://x/a.png", "caption": "a cat"},
    {"role": "CEO", "content": "leads", "since": 2019},
    {"kwargs": {"a": 1}, "response": "x"},
    {"type": "message", "content": "hi", "to": "bob"},
    {"type": "alert", "message": {"subject": "hi"}, "level": 2},
    ["a", "b"],
    [{"text": "chunk one", "score": 0.3}, {"text": "chunk two", "score": 0.2}],
    [{"title": "t", "content": "c"}],
]


@pytest.mark.parametrize("value", STRUCTURES, ids=json.dumps)
def test_a_structure_is_said_as_a_whole(value: Any) -> None:
    sent_as = json.dumps(value)
    (message,) = read_messages(sent_as, "assistant")
    assert (message.text, message.tool_calls) == (sent_as, [])
    if isinstance(value, dict):  # as a map it is a part that nobody knows, or its JSON text
        (message,) = read_messages(value, "assistant")
        assert (message.parts == [value] or json.loads(message.text) == value) and not message.tool_calls


PLAIN: dict[str, Callable[[Trace, str], Span]] = {
    "pydantic-ai": lambda trace, value: sent(
        trace, "pydantic-ai", "agent run", {"agent_name": "bot", "model_name": "m", "final_result": value}
    ),
    "AI SDK's text": lambda trace, value: sent(
        trace, "ai", "ai.generateText", {"ai.operationId": "ai.generateText", "ai.response.text": value}
    ),
    "AI SDK's object": lambda trace, value: sent(
        trace,
        "ai",
        "ai.generateObject.doGenerate",
        {"ai.operationId": "ai.generateObject.doGenerate", "ai.response.object": value},
    ),
    "AI SDK 3": lambda trace, value: sent(
        trace, "ai", "ai.generateObject", {"ai.operationId": "ai.generateObject", "ai.result.object": value}
    ),
    "Claude Code": lambda trace, value: sent(
        trace,
        "com.anthropic.claude_code.tracing",
        "claude_code.llm_request",
        {"span.type": "llm_request", "response.model_output": value},
    ),
}
GENERIC: dict[str, Callable[[Trace, str], Span]] = {
    "Langfuse": lambda trace, value: sent(
        trace, "langfuse-sdk", "bot", {"langfuse.observation.type": "agent", "langfuse.observation.output": value}
    ),
    "OpenInference": lambda trace, value: sent(
        trace, "x", "bot", {"openinference.span.kind": "AGENT", "output.value": value}
    ),
    "Traceloop": lambda trace, value: sent(
        trace,
        "traceloop.tracer",
        "bot.agent",
        {"traceloop.span.kind": "agent", "traceloop.entity.name": "bot", "traceloop.entity.output": value},
    ),
    "MLflow": lambda trace, value: sent(
        trace, "mlflow", "bot", {"mlflow.spanType": '"AGENT"', "mlflow.spanOutputs": value}
    ),
}


@pytest.mark.parametrize("emitter", PLAIN | GENERIC)
@pytest.mark.parametrize("value", STRUCTURES, ids=json.dumps)
def test_ledger_search_and_body_see_all_of_it(emitter: str, value: Any) -> None:
    text = json.dumps(value)
    span = (PLAIN | GENERIC)[emitter](Trace(), text)
    output = artifact_of(span, "agent_output")
    assert output is not None and output.summary == text
    assert text.lower() in output.search_text
    assert light_of(span).requested == ()
    assert body_of(span, "agent_output") == text.encode()


READS_LIKE_MESSAGES = [
    '[{"role": "user", "content": "draft"}]',
    '{"role": "assistant", "content": "hi"}',
    '{"output": "22C"}',
    '{"choices": [{"message": {"role": "assistant", "content": "a"}}], "model": "m"}',
    "assistant: hi",
    "[{'role': 'user', 'content': 'hi'}]",
    "[]",
    "{}",
]


@pytest.mark.parametrize("emitter", PLAIN)
@pytest.mark.parametrize("text", READS_LIKE_MESSAGES)
def test_a_plain_value_is_never_read(emitter: str, text: str) -> None:
    span = PLAIN[emitter](Trace(), text)
    output = artifact_of(span, "agent_output")
    assert output is not None and output.summary == text
    assert body_of(span, "agent_output") == text.encode()


def test_a_plain_value_beside_other_pieces_of_the_answer_is_a_text_among_them() -> None:
    value = '{"messages": [{"role": "user", "content": "draft"}], "verdict": "reject"}'
    trace = Trace()
    span = PLAIN["AI SDK's object"](trace, value)
    span.attributes["ai.response.reasoning"] = "hm"
    assert artifact_of(span, "agent_output").summary == value  # type: ignore[union-attr]
    (artifact,) = listed(board_of(trace.spans), "agent_output")
    contents = {content.field: content.data for content in read_span(TENANT, span).contents}
    said = json.loads(assemble(artifact, [contents[body.field] for body in artifact.bodies]))
    assert [part for message in said for part in message["parts"]] == [
        {"type": "reasoning", "content": "hm"},
        {"type": "text", "content": value},
    ]


@pytest.mark.parametrize("emitter", GENERIC)
@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"output": "22C"}, "22C"),
        ({"output": "22C", "model": "m", "usage": {"total_tokens": 3}}, "22C"),
        ({"content": "22C"}, "22C"),
        ({"content": "22C", "finish_reason": "stop", "usage": {}, "cached": False, "thought": None}, "22C"),
        ({"replies": ["22C"], "meta": [{"model": "m"}]}, "22C"),
        ({"messages": [{"role": "assistant", "content": "22C"}], "structured_response": {"temp": 22}}, "22C"),
        ({"outputs": {"messages": [{"type": "ai", "content": "22C"}]}, "kwargs": {"tags": []}}, "22C"),
        ({"output": {"message": {"role": "assistant", "content": [{"text": "22C"}]}}, "metrics": {}}, "22C"),
        ({"content": {"role": "model", "parts": [{"text": "22C"}]}, "author": "bot", "actions": {}}, "22C"),
        ({"message": {"role": "assistant", "content": "22C"}, "done": True, "eval_count": 3}, "22C"),
        ({"role": "assistant", "content": "22C", "sentiment": "warm"}, "22C"),
        ({"input": [{"role": "user", "content": "hi"}], "output": [{"role": "assistant", "content": "22C"}]}, "22C"),
    ],
)  # fmt: skip
def test_an_answer_in_a_known_envelope_is_still_taken_out_of_it(emitter: str, value: Any, text: str) -> None:
    output = artifact_of(GENERIC[emitter](Trace(), json.dumps(value)), "agent_output")
    assert output is not None and output.summary == text


# -------------------------------------------------------------------------------------------------- ids inside the answer

CALLS: dict[str, Callable[[Trace, Span, int, str, int], Span]] = {
    "OpenInference": lambda trace, root, start, value, tokens: sent(
        trace, "x", "llm", {"openinference.span.kind": "LLM", "output.value": value, "llm.token_count.prompt": tokens},
        start, start + 1, root,
    ),
    "MLflow": lambda trace, root, start, value, tokens: sent(
        trace, "mlflow", "llm", {"mlflow.spanType": '"LLM"', "mlflow.spanOutputs": value,
        "mlflow.chat.tokenUsage": json.dumps({"input_tokens": tokens, "output_tokens": 5})}, start, start + 1, root,
    ),
    "LangSmith": lambda trace, root, start, value, tokens: sent(
        trace, "langsmith", "llm", {"langsmith.span.kind": "llm", "gen_ai.operation.name": "chat",
        "gen_ai.completion": value, "gen_ai.usage.input_tokens": tokens}, start, start + 1, root,
    ),
}  # fmt: skip


@pytest.mark.parametrize("emitter", CALLS)
@pytest.mark.parametrize(
    "data",
    [
        {"id": 42},
        {"id": "T-1"},
        {"id": "T-1", "content": "x"},
        {"id": "q1", "choices": ["a", "b"]},
        {"id": "T-1", "model": "Golf", "usage": "daily"},
        {"id": "T-1", "output": "done", "object": "table"},
    ],
)
def test_an_id_in_the_data_of_two_calls_makes_them_no_one_call(emitter: str, data: dict[str, Any]) -> None:
    trace = Trace()
    root = trace.flow("f", 0, 9)
    spans = [
        CALLS[emitter](trace, root, 1 + place, json.dumps(data | {"name": name}), 100 + place)
        for place, name in enumerate(("Bob", "Eve"))
    ]
    _, part = tree_of(trace.spans)
    assert (part.counts["provider_call"], part.input_tokens) == (2, 201)
    assert [light_of(span).response_id for span in spans] == ["", ""]


@pytest.mark.parametrize("emitter", CALLS)
@pytest.mark.parametrize(
    "answer",
    [
        {"id": "a1", "object": "chat.completion", "model": "m", "choices": [], "usage": {}},
        {"id": "a1", "object": "response", "model": "m", "output": [], "usage": {}},
        {"id": "a1", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": {}},
        {"id": "a1", "message": {"role": "assistant", "content": []}, "finish_reason": "COMPLETE", "usage": {}},
    ],
)
def test_the_id_of_a_providers_own_answer_is_its_response_id(emitter: str, answer: dict[str, Any]) -> None:
    trace = Trace()
    span = CALLS[emitter](trace, trace.flow("f", 0, 9), 1, json.dumps(answer), 100)
    assert light_of(span).response_id == "a1"


# ---------------------------------------------------------------------------------------------------- what says nothing


@pytest.mark.parametrize("nothing", ["[]", [], "{}", {}, "null", ""], ids=repr)
def test_an_empty_value_is_no_answer_of_a_pass(nothing: Any) -> None:
    trace = Trace()
    agent = trace.agent("bot", 0, 9)
    agent.attributes |= {"gen_ai.input.messages": nothing, "gen_ai.output.messages": nothing}
    call = trace.chat(1, 2, agent, said="Hello")
    light = light_of(agent)
    assert (light.has_input, light.has_output, artifact_of(agent, "agent_output")) == (False, False, None)
    rows, _ = tree_of(trace.spans)
    assert (rows[agent.span_id].stands, rows[call.span_id].stands) == (False, True)
    agent.attributes["output.value"] = "said elsewhere"
    agent.attributes["openinference.span.kind"] = "AGENT"
    assert fields_of(agent, "agent_output") == ["output.value"]
    told = Trace("told")
    call = told.chat(1, 2)
    details = {"gen_ai__output__messages": nothing, "gen_ai__input__messages": nothing}
    assert read_log(TENANT, told.log(call, DETAILS, 1.5, **details)).drafts == []
    event(call, DETAILS, 1, **details)
    assert artifact_of(call, "agent_output") is None


@pytest.mark.parametrize("empty", ["[]", "{}", "null"])
def test_an_empty_result_is_what_the_tool_returned(empty: str) -> None:
    trace = Trace()
    tool = trace.tool("find", 1, 2, arguments="{}", result=empty)
    row = artifact_of(tool, "tool_result")
    assert row is not None and (row.arguments, row.summary) == ("{}", empty)
    assert body_of(tool, "tool_result") == empty.encode()


# --------------------------------------------------------------------------------------- events whose body is JSON text


def _by_events(**content: str) -> Span:
    span = Trace().chat(1, 2)
    for place, (name, said) in enumerate(content.items()):
        event(span, f"gen_ai.{name}", 1 + place / 10, gen_ai__event__content=said)
    return span


def test_a_body_in_gen_ai_event_content_is_the_event_s() -> None:
    """Azure AI Inference (read: azure/ai/inference/tracing.py): each message as JSON, the choice with a message in it."""
    choice = {"message": {"content": "yo", "tool_calls": [CALL]}, "finish_reason": "tool_calls", "index": 0}
    span = _by_events(
        **{
            "system.message": json.dumps({"role": "system", "content": "be brief"}),
            "user.message": json.dumps({"role": "user", "content": "hi"}),
            "tool.message": json.dumps({"id": "c0", "content": "sunny"}),
            "choice": json.dumps(choice),
        }
    )
    output = artifact_of(span, "agent_output")
    assert output is not None and output.summary == "yo"
    assert [(call.id, call.name) for call in light_of(span).requested] == [("c1", "rm")]
    (prompt,) = listed(board_of([span]), "llm_prompt")
    contents = {content.field: content.data for content in read_span(TENANT, span).contents}
    said = json.loads(assemble(prompt, [contents[body.field] for body in prompt.bodies]))["messages"]
    assert said == [
        {"role": "system", "parts": [{"type": "text", "content": "be brief"}]},
        {"role": "user", "parts": [{"type": "text", "content": "hi"}]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c0", "response": "sunny"}]},
    ]


@pytest.mark.parametrize("text", ["hi", '{"city": "Paris"}', "[1]", '{"cut'])
def test_any_other_gen_ai_event_content_is_what_was_said(text: str) -> None:
    output = artifact_of(_by_events(choice=text), "agent_output")
    assert output is not None and output.summary == text
