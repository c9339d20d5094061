"""NVIDIA NeMo Agent Toolkit (dialects.md §23) and NeMo Relay (§24)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from otel_blackboard.processor.reading import SpanReading, read_span
from otel_blackboard.records import Span
from tests.spans import TENANT, Trace, board_of, by_span, derive, listed

ABOVE = "00000000000000aa"


def one(name: str = "x", parent: str = ABOVE, **attributes: Any) -> SpanReading:
    return read_span(TENANT, Trace().span(name, 0, 1, parent, **attributes))


@pytest.mark.parametrize("prefix", ["nat", "aiq"])
@pytest.mark.parametrize(
    ("kind", "also", "role"),
    [
        ("WORKFLOW", "CHAIN", "flow_run"),
        ("FUNCTION", "CHAIN", "step"),
        ("TASK", "CHAIN", "step"),
        ("AGENT", "AGENT", "step"),
        ("LLM", "LLM", "provider_call"),
        ("TOOL", "TOOL", "tool_invocation"),
        ("RETRIEVER", "RETRIEVER", "tool_invocation"),
        ("EMBEDDER", "EMBEDDING", "provider_call"),
        ("GUARDRAIL", "GUARDRAIL", "guard"),
        ("EVALUATOR", "EVALUATOR", "verifier"),
        ("CUSTOM", "UNKNOWN", ""),
    ],
)
def test_kinds_of_the_toolkit(prefix: str, kind: str, also: str, role: str) -> None:
    for other in (also, None):
        span = Trace().span("x", 0, 1, ABOVE, openinference__span__kind=other)
        span.attributes[f"{prefix}.span.kind"] = kind
        assert read_span(TENANT, span).light.role == role


def test_unknown_is_no_id_and_the_framework_no_provider() -> None:
    said = {"nat__span__kind": "LLM", "nat__framework": "agno"}
    light = one(
        **said, nat__conversation__id="unknown", nat__user__id="unknown", nat__workflow__run_id="unknown",
        gen_ai__provider__name="agno",
    ).light  # fmt: skip
    assert (light.conversation_id, light.user_id, light.provider, light.labels) == ("", "", "", {})
    light = one(**said, nat__conversation__id="c", nat__user__id="u", gen_ai__provider__name="openai").light
    assert (light.conversation_id, light.user_id, light.provider) == ("c", "u", "openai")


def test_functions_are_steps_and_the_tools_of_the_request_are_known() -> None:
    trace = Trace()
    root = trace.span("flow", 0, 9, nat__span__kind="WORKFLOW", openinference__span__kind="CHAIN")
    step = trace.span("react", 1, 8, root, nat__span__kind="FUNCTION", openinference__span__kind="CHAIN")
    tools = json.dumps({"tools_schema": [{"name": "look"}]})
    call = trace.span("m", 2, 3, step, nat__span__kind="LLM", openinference__span__kind="LLM", nat__metadata=tools,
                      input__value_obj='"user: hi"', output__value_obj='"ho"')  # fmt: skip
    for spans in (trace.spans, trace.spans[::-1]):
        resolved, parts, _ = derive(spans)
        assert by_span(resolved)[call.span_id].step_name == "react"
        assert parts[0].name == "flow"
    (prompt,) = listed(board_of(trace.spans), "llm_prompt")
    assert [body.field for body in prompt.bodies] == ["input.value_obj", "nat.metadata#tools"]


def relay(kind: str, name: str = "x", **attributes: Any) -> Span:
    return Trace().span(name, 0, 1, ABOVE, nemo_relay__scope_type=kind, **attributes)


@pytest.mark.parametrize(
    ("kind", "role"),
    [
        ("agent", "step"),
        ("function", ""),
        ("tool", "tool_invocation"),
        ("llm", "provider_call"),
        ("retriever", "tool_invocation"),
        ("embedder", "provider_call"),
        ("reranker", "provider_call"),
        ("guardrail", "guard"),
        ("evaluator", "verifier"),
        ("custom", ""),
    ],
)
def test_scopes_of_the_relay(kind: str, role: str) -> None:
    assert read_span(TENANT, relay(kind)).light.role == role


def test_a_call_through_the_relay() -> None:
    request = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "hi"}], "tools": [{"name": "look"}]}
    usage = {"prompt_tokens": 120, "completion_tokens": 18, "prompt_tokens_details": {"cached_tokens": 64},
             "completion_tokens_details": {"reasoning_tokens": 7}}  # fmt: skip
    call = {"id": "c1", "function": {"name": "look", "arguments": "{}"}}
    choice = {"index": 0, "message": {"role": "assistant", "content": None, "tool_calls": [call]}}
    reading = read_span(
        TENANT,
        relay(
            "llm", "openai", nemo_relay__start__input__content=json.dumps(request), session__id="s",
            nemo_relay__end__output__usage=json.dumps(usage), nemo_relay__end__output__id="chatcmpl-1",
            nemo_relay__end__output__model="gpt-4o-mini-x", nemo_relay__end__output__choices=json.dumps([choice]),
        ),
    )  # fmt: skip
    light = reading.light
    assert (light.request_model, light.response_model, light.response_id) == (
        "gpt-4o-mini",
        "gpt-4o-mini-x",
        "chatcmpl-1",
    )
    assert (light.input_tokens, light.output_tokens, light.cached_input_tokens, light.reasoning_tokens) == (
        120,
        18,
        64,
        7,
    )
    assert ([each.name for each in light.requested], light.conversation_id) == (["look"], "s")
    prompt, _ = reading.drafts
    assert [reading.contents[index].field for index in prompt.contents] == [
        "nemo_relay.start.input.content#input",
        "nemo_relay.start.input.content#tools",
    ]


def test_anthropics_cache_is_counted_beside_its_input() -> None:
    usage = {"input_tokens": 20, "cache_read_input_tokens": 70, "cache_creation_input_tokens": 30, "output_tokens": 18}
    light = read_span(TENANT, relay("llm", nemo_relay__end__output__usage=json.dumps(usage))).light
    assert (light.input_tokens, light.output_tokens, light.cached_input_tokens, light.cache_write_tokens) == (
        120,
        18,
        70,
        30,
    )


def test_arguments_and_results_that_were_flattened() -> None:
    span = relay(
        "tool", "look", nemo_relay__tool_call_id="c1", nemo_relay__start__input__city="Paris",
        nemo_relay__start__input__days="[1,2]", nemo_relay__end__output__temp_c=22, nemo_relay__end__output__id="r1",
    )  # fmt: skip
    reading = read_span(TENANT, span)
    (draft,) = reading.drafts
    assert (reading.light.tool_name, reading.light.tool_call_id, reading.light.response_id) == ("look", "c1", "")
    assert draft.row.arguments == '{"city":"Paris","days":[1,2]}'
    assert reading.contents[draft.contents[0]].data == b'{"temp_c":22,"id":"r1"}'


@pytest.mark.parametrize("value", [None, 5, [], {}, "", "{", "[1", {"a": None}, b"\xff", True, float("nan")])
def test_nothing_that_is_sent_breaks_the_reading(value: Any) -> None:
    keys = ("nat.span.kind", "nat.metadata", "nat.conversation.id", "nat.framework", "llm.provider", "input.value_obj",
            "nemo_relay.start.input.content", "nemo_relay.end.output.usage", "nemo_relay.end.output.choices",
            "nemo_relay.start.input", "nemo_relay.end.output.id")  # fmt: skip
    for kind in ("llm", "tool", "agent", "retriever", "nonsense"):
        span = relay(kind)
        span.attributes |= dict.fromkeys(keys, value)
        derive([span])
