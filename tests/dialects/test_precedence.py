"""Facts that several dialects may say of one span: which one wins (dialects.md D)."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from otel_blackboard.processor.dialects import BY_FACT, BY_FIELD
from otel_blackboard.records import Event
from tests.dialects.reading import light_of, sent
from tests.spans import Trace, at

CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-4o"}

SESSIONS = (
    ("session.id", {}),
    ("langfuse.session.id", {}),
    ("gen_ai.conversation.id", {}),
    ("traceloop.association.properties.session_id", {}),
    ("gcp.vertex.agent.session_id", {}),
    ("ai.telemetry.metadata.sessionId", {"ai.operationId": "ai.generateText"}),
    ("langsmith.metadata.session_id", {}),
    ("spring.ai.chat.client.conversation.id", {}),
)
"""Row "conversation / session" of D, in its order, and what makes the span known where the key does not."""


@pytest.mark.parametrize(("first", "second"), [*combinations(SESSIONS, 2)], ids=lambda each: str(each[0]))
@pytest.mark.parametrize("scope", ["gcp.vertex.agent", "pydantic-ai", "strands.telemetry.tracer", ""])
def test_the_session_of_the_application_comes_before_that_of_a_framework(
    scope: str, first: tuple[str, dict[str, Any]], second: tuple[str, dict[str, Any]]
) -> None:
    said = {second[0]: "theirs", first[0]: "mine"} | first[1] | second[1]
    assert light_of(sent(Trace(), scope, "chat", said)).conversation_id == "mine"
    process = Trace(resource=said)
    assert light_of(sent(process, scope, "chat", CHAT)).conversation_id == "mine", "said once for the process"


def test_a_session_that_is_none_leaves_it_to_the_next() -> None:
    said = {"session.id": "", "langfuse.session.id": "", "gen_ai.conversation.id": "c"}
    assert light_of(sent(Trace(), "pydantic-ai", "chat", said)).conversation_id == "c"


def test_who_comes_first_for_a_fact_says_that_fact() -> None:
    for fact, first in BY_FACT.items():
        assert len(set(map(id, first))) == len(first)
        assert all(dialect in BY_FIELD and fact in dialect.facts for dialect in first)


@pytest.mark.parametrize("spelled", [0.5, "0.5"])
def test_the_whole_cost_comes_before_the_cost_of_usage(spelled: Any) -> None:
    said = CHAT | {"gen_ai.usage.cost": 0.1, "gen_ai.cost.total_cost": spelled}
    for order in (said, dict(reversed(said.items()))):
        assert str(light_of(sent(Trace(), "", "chat", order)).cost_usd) == "0.500000000000"
    assert str(light_of(sent(Trace(), "", "chat", CHAT | {"gen_ai.usage.cost": 0.1})).cost_usd) == "0.100000000000"


# --------------------------------------------------------------------------------- how an answer ended and when it began


@pytest.mark.parametrize(
    ("scope", "attributes", "reason"),
    [
        ("", {"gen_ai.response.finish_reasons": ["stop"]}, "stop"),
        ("", {"gen_ai.response.finish_reasons": ["length", "stop"]}, "length"),
        ("", {"gen_ai.response.finish_reasons": ["", "stop"]}, "stop"),
        ("agent_framework", {"gen_ai.response.finish_reasons": '["tool_calls"]'}, "tool_calls"),
        ("", {"gen_ai.response.finish_reasons": "[STOP]"}, "STOP"),
        ("", {"gen_ai.response.finish_reasons": "['STOP', 'x']"}, "STOP"),
        ("", {"gen_ai.response.finish_reasons": "stop"}, "stop"),
        ("", {"gen_ai.completion.0.finish_reason": "stop", "gen_ai.completion.0.content": "x"}, "stop"),
        ("openinference.instrumentation.openai", {"llm.finish_reason": "stop"}, "stop"),
        ("ai", {"ai.response.finishReason": "tool-calls"}, "tool-calls"),
        ("semantic_kernel.x", {"gen_ai.response.finish_reason": "FinishReason.STOP"}, "FinishReason.STOP"),
        ("com.anthropic.sdk.python", {"anthropic.message.stop_reason": "end_turn"}, "end_turn"),
        ("com.anthropic.claude_code.tracing", {"span.type": "llm_request", "stop_reason": "tool_use"}, "tool_use"),
        ("", {"gen_ai.response.finish_reasons": ["stop"], "gen_ai.response.finish_reason": "x"}, "stop"),
        ("", {"gen_ai.response.finish_reasons": [], "gen_ai.response.finish_reason": "x"}, "x"),
        ("", {"gen_ai.response.finish_reasons": "[]"}, None),
        ("", {"gen_ai.response.finish_reasons": ""}, None),
        ("", {"gen_ai.response.finish_reasons": [None, {"a": 1}, True]}, None),
        ("", {"gen_ai.response.finish_reasons": '["' + "x" * 2_000}, None),
        ("", {"gen_ai.response.finish_reasons": b"\xff"}, None),
    ],
)
def test_the_finish_reason_is_a_label(scope: str, attributes: dict[str, Any], reason: str | None) -> None:
    assert light_of(sent(Trace(), scope, "chat", CHAT | attributes)).labels.get("finish_reason") == reason


@pytest.mark.parametrize(
    ("scope", "attributes", "milliseconds"),
    [
        ("", {"gen_ai.response.time_to_first_chunk": 0.0804}, "80"),
        ("", {"gen_ai.response.time_to_first_chunk": "0.5"}, "500"),
        ("pydantic-ai", {"gen_ai.client.operation.time_to_first_chunk": 0.06469}, "64"),
        ("ai", {"ai.response.msToFirstChunk": 39.65}, "39"),
        ("ai", {"ai.stream.msToFirstChunk": 39}, "39"),
        ("com.anthropic.claude_code.tracing", {"span.type": "llm_request", "ttft_ms": 17}, "17"),
        ("strands.telemetry.tracer", {"gen_ai.server.time_to_first_token": 75}, "75"),
        ("openlit", {"gen_ai.server.time_to_first_token": 0.075}, "75"),
        ("langfuse-sdk", {"langfuse.observation.completion_start_time": '"2026-09-21T14:13:20.250Z"'}, "250"),
        ("langfuse-sdk", {"langfuse.observation.completion_start_time": "2026-09-21T14:13:20.250000"}, "250"),
        ("langfuse-sdk", {"langfuse.observation.completion_start_time": '"2026-09-21T14:13:19Z"'}, None),
        ("langfuse-sdk", {"langfuse.observation.completion_start_time": "soon"}, None),
        ("langfuse-sdk", {"langfuse.observation.completion_start_time": "9999-12-31T23:59:59-23:59"}, ...),
        ("", {"gen_ai.response.time_to_first_chunk": 0.0}, "0"),
        ("", {"gen_ai.response.time_to_first_chunk": -1}, None),
        ("", {"gen_ai.response.time_to_first_chunk": "NaN"}, None),
        ("", {"gen_ai.response.time_to_first_chunk": float("inf")}, None),
        ("", {"gen_ai.response.time_to_first_chunk": 1.7e9}, None),
        ("", {"gen_ai.response.time_to_first_chunk": True}, None),
        ("", {"gen_ai.response.time_to_first_chunk": "x"}, None),
    ],
)
def test_the_time_to_the_first_token_is_a_label_in_milliseconds(
    scope: str, attributes: dict[str, Any], milliseconds: Any
) -> None:
    found = light_of(sent(Trace(), scope, "chat", CHAT | attributes)).labels.get("time_to_first_token_ms")
    assert milliseconds is ... or found == milliseconds


def test_a_stated_time_to_the_first_token_comes_before_that_of_an_event() -> None:
    span = sent(Trace(), "openinference.instrumentation.anthropic", "Messages", {"openinference.span.kind": "LLM"})
    span.events.append(Event(at(0.25), "First Token Stream Event", {}))
    assert light_of(span).labels["time_to_first_token_ms"] == "250"
    span.attributes["gen_ai.response.time_to_first_chunk"] = 0.2
    assert light_of(span).labels["time_to_first_token_ms"] == "200"
