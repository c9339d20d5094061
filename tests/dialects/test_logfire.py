"""Logfire's wrappers (dialects.md §5; B2, B7)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from otel_blackboard.processor.dialects.dialect import PROVIDER_CALL
from otel_blackboard.records import Span
from tests.dialects.reading import artifact_of, fields_of, light_of, sent, tree_of
from tests.spans import Trace

MESSAGES = json.dumps([{"role": "user", "content": "hello"}])


def logfire_call(trace: Trace, *place: Any, **more: Any) -> Span:
    said = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4o-mini",
        "gen_ai.input.messages": MESSAGES,
        "logfire.span_type": "span",
    }
    return sent(trace, "logfire.openai", "Chat Completion with {request_data[model]!r}", said | more, *place)


def test_logfire_tells_a_streamed_answer_beside_its_request() -> None:
    trace = Trace()
    root = sent(trace, "logfire", "my run {q}", {"logfire.msg": "my run x", "logfire.span_type": "span"}, 0, 9)
    answer = {
        "gen_ai.output.messages": '[{"role":"assistant","parts":[{"type":"text","content":"done"}]}]',
        "gen_ai.usage.input_tokens": 120,
        "gen_ai.usage.output_tokens": 18,
        "gen_ai.response.id": "r1",
        "gen_ai.usage.raw": '{"completion_tokens_details":{"reasoning_tokens":7}}',
        "operation.cost": 2.4e-05,
        "logfire.span_type": "log",
    }
    whole = logfire_call(trace, 1, 2, root, **(answer | {"logfire.span_type": "span", "gen_ai.response.id": "r0"}))
    request = logfire_call(trace, 3, 4, root)
    told = logfire_call(trace, 5, 5, root, **answer)
    lost = logfire_call(trace, 6, 7, root)  # the stream was never read to its end
    sent(trace, "logfire", "a log {x}", {"logfire.span_type": "log", "logfire.msg": "a log 1"}, 8, 8, root)
    rows, part = tree_of(trace.spans)
    calls = {span.span_id: rows[span.span_id].call_span_id for span in (whole, request, told, lost)}
    assert calls == {whole.span_id: whole.span_id, request.span_id: request.span_id, told.span_id: request.span_id,
                     lost.span_id: lost.span_id}  # fmt: skip
    assert (part.name, part.counts, part.calls_with_usage) == ("my run x", {"provider_call": 3}, 2)
    assert (part.input_tokens, part.reasoning_tokens, str(part.cost_usd)) == (240, 14, "0.000048000000")


@pytest.mark.parametrize("asked", ["gen_ai.input.messages", "request_data"], ids=["since 4.0", "before"])
@pytest.mark.parametrize("first", ["A", "B"])
def test_logfire_answers_of_streams_at_once_join_their_own_requests(asked: str, first: str) -> None:
    trace = Trace()

    def told(text: str, *place: Any, **more: Any) -> Span:
        request = {"request_data": '{"model":"gpt-4o-mini"}'} | {asked: json.dumps([{"role": "user", "content": text}])}
        return logfire_call(trace, *place, **(request | more))

    root = sent(trace, "logfire", "root", {"logfire.span_type": "span"}, 0, 9)
    requests = {"A": told("A", 1, 1.1, root), "B": told("B", 1.2, 1.3, root)}
    again = told("A", 2, 2.1, root)
    answers = {}
    for place, text in enumerate(sorted("AB", key=lambda text: text != first)):
        more = {"logfire.span_type": "log", "gen_ai.usage.input_tokens": 9, "gen_ai.response.id": f"r{text}"}
        answers[text] = told(text, 5 + place, 5 + place, root, **more)
    rows, part = tree_of(trace.spans)
    assert rows[answers["B"].span_id].call_span_id == requests["B"].span_id
    assert (
        rows[answers["A"].span_id].call_span_id == again.span_id
    )  # nothing tells it from the other that asks the same
    assert part.counts["provider_call"] == 3
    whole = told("C", 7, 8, root, **{"gen_ai.usage.input_tokens": 9})
    assert "request_sha256" not in light_of(whole).labels


def test_logfire_copies_of_open_spans_are_no_calls() -> None:
    trace = Trace()
    call = logfire_call(trace, 1, 2, **{"gen_ai.usage.input_tokens": 120, "gen_ai.usage.output_tokens": 18})
    copy = logfire_call(trace, 1, 1, call, **{"logfire.span_type": "pending_span"})
    agent = trace.agent("bot", 3, 4)
    copied = sent(trace, "logfire", agent.name, agent.attributes | {"logfire.span_type": "pending_span"}, 3, 3, agent)
    rows, part = tree_of(trace.spans)
    assert (rows[copy.span_id].role, rows[copied.span_id].role) == ("", "")
    assert part.counts == {"provider_call": 1, "step": 1}


def test_logfire_before_the_conventions() -> None:
    span = sent(Trace(), "logfire.openai", "Chat Completion with {request_data[model]!r}", {
        "gen_ai.system": "openai", "gen_ai.request.model": "gpt-4o-mini",
        "request_data": json.dumps({"model": "gpt-4o-mini", "messages": json.loads(MESSAGES)}),
        "response_data": json.dumps({"message": {"role": "assistant", "content": "done"},
                                     "usage": {"prompt_tokens": 120, "completion_tokens": 18}}),
    })  # fmt: skip
    light = light_of(span)
    assert (light.role, light.input_tokens, light.output_tokens) == (PROVIDER_CALL, 120, 18)
    assert fields_of(span, "llm_prompt") == ["request_data#input"]
    output = artifact_of(span, "agent_output")
    assert output is not None and output.summary == "done"
