"""Anthropic's own SDK (dialects.md §19), B2 below another instrumentation and beside it."""

from __future__ import annotations

from typing import Any

import pytest

from otel_blackboard.records import SATELLITE, Span
from tests.dialects.reading import artifact_of, light_of, scoped, tree_of
from tests.spans import Trace

SCOPE = "com.anthropic.sdk.python"
USAGE = {"gen_ai__usage__cache_read__input_tokens": 70, "gen_ai__usage__cache_write__input_tokens": 30}


def _call(trace: Trace, start: float, end: float, parent: Span | str = "", **more: Any) -> Span:
    made = trace.chat(start, end, parent, "claude-sonnet-4-5", tokens=(120, 18), **USAGE | more)
    made.name = "anthropic.messages.create"
    return scoped(SCOPE, made)


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("anthropic.messages.create", "provider_call"),
        ("anthropic.beta.messages.stream", "provider_call"),
        ("anthropic.messages.tool_runner", "step"),
        ("anthropic.custom_tool_use get_weather", "tool_invocation"),
        ("anthropic.messages.count_tokens", ""),
        ("anthropic.sessions.create", ""),
        ("anthropic.messages.batches.create", ""),
    ],
)
def test_roles(name: str, role: str) -> None:
    assert light_of(scoped(SCOPE, Trace().span(name, gen_ai__request__model="claude", gen_ai__system="x"))).role == role


def test_below_another_instrumentation_it_is_the_same_call() -> None:
    trace = Trace()
    outer = trace.chat(0, 5, model="claude-sonnet-4-5", tokens=(120, 18), gen_ai__response__id="msg_1")
    inner = _call(trace, 1, 4, outer, gen_ai__response__id="msg_1", anthropic__request__id="req_1")
    rows, part = tree_of(trace.spans)
    assert (part.counts["provider_call"], part.input_tokens, part.output_tokens) == (1, 120, 18)
    assert (part.cached_input_tokens, part.cache_write_tokens) == (70, 30)
    assert rows[inner.span_id].billed and not rows[outer.span_id].billed
    assert rows[inner.span_id].labels["request_id"] == "req_1"


def test_in_a_trace_of_its_own_it_may_be_a_satellite() -> None:
    trace = Trace()
    alone = light_of(_call(trace, 0, 1, gen_ai__response__id="msg_1"))
    assert (alone.join_key, alone.response_id) == (SATELLITE, "msg_1")
    parent = trace.span("app")
    assert light_of(_call(trace, 0, 1, parent, gen_ai__response__id="msg_1")).join_key == ""
    assert light_of(trace.chat(gen_ai__response__id="msg_1")).join_key == ""


def test_a_tool_by_its_span_name() -> None:
    tool = scoped(
        SCOPE,
        Trace().span(
            "anthropic.custom_tool_use get_weather", gen_ai__operation__name="execute_tool",
            anthropic__tool_result__content="22C",
        ),
    )  # fmt: skip
    row = artifact_of(tool, "tool_result")
    assert light_of(tool).tool_name == "get_weather" and row is not None and row.summary == "22C"
