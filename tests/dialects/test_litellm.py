"""LiteLLM (dialects.md §17; B2, C)."""

from __future__ import annotations

import json
from typing import Any

from otel_blackboard.processor.dialects.dialect import GUARD, PROVIDER_CALL
from otel_blackboard.records import Span
from tests.dialects.reading import fields_of, light_of, sent, tree_of
from tests.spans import Trace


def litellm(trace: Trace, name: str, *place: Any, error: str | None = None, **attributes: Any) -> Span:
    said = {"litellm.call_id": "x", "metadata.user_api_key_alias": ""}
    more = {key.replace("__", "."): value for key, value in attributes.items()}
    return sent(trace, "litellm", name, said | more, *place, error=error)


def test_litellm_request_and_its_raw_copy_are_one_call() -> None:
    trace = Trace()
    usage = {"prompt_tokens": 120, "completion_tokens_details": {"reasoning_tokens": 7},
             "prompt_tokens_details": {"cached_tokens": 70, "cache_write_tokens": 30}}  # fmt: skip
    call = litellm(trace, "litellm_request", 0, 2, llm__request__type="acompletion", gen_ai__operation__name="chat",
                   gen_ai__request__model="gpt-4o-mini", gen_ai__system="openai", llm__user="u1",
                   gen_ai__usage__input_tokens=120, gen_ai__usage__output_tokens=18, metadata__usage_object=repr(usage),
                   gen_ai__cost__total_cost=0.5, hidden_params='{"response_cost": 0.4}',
                   gen_ai__output__messages='[{"role": "assistant", "parts": []}]',
                   gen_ai__completion__0__function_call__name="look",
                   gen_ai__completion__0__function_call__arguments='{"x": 1}')  # fmt: skip
    raw = litellm(trace, "raw_gen_ai_request", 0, 2, call, llm__openai__usage=repr(usage), llm__openai__id="r1")
    rows, part = tree_of(trace.spans)
    assert (part.counts, part.user_id, rows[raw.span_id].role) == ({"provider_call": 1}, "u1", "")
    assert (part.input_tokens, part.cached_input_tokens, part.cache_write_tokens, part.reasoning_tokens) == (
        120,
        70,
        30,
        7,
    )
    assert str(part.cost_usd) == "0.500000000000"
    assert [each.name for each in light_of(call).requested] == ["look"]
    assert fields_of(call, "agent_output") == ["gen_ai.output.messages", "gen_ai.completion.*"]
    # Should a later version list the calls where they belong, they are not there twice.
    call.attributes["gen_ai.output.messages"] = json.dumps([{"role": "assistant", "parts": [
        {"type": "tool_call", "id": "c1", "name": "look", "arguments": {"x": 1}}]}])  # fmt: skip
    assert [each.id for each in light_of(call).requested] == ["c1"]


def test_litellm_counts_in_reprs_of_objects_are_read() -> None:
    usage = (
        "{'prompt_tokens': 9, 'prompt_tokens_details': PromptTokensDetailsWrapper(audio_tokens=None, cached_tokens=4)}"
    )
    light = light_of(
        litellm(Trace(), "litellm_request", metadata__usage_object=usage, litellm__provider__model="groq/m")
    )
    assert (light.cached_input_tokens, light.reasoning_tokens, light.provider) == (4, None, "groq")


def test_litellm_failed_calls_cost_nothing_known() -> None:
    span = litellm(Trace(), "litellm_request", error="RateLimitError", llm__request__type="completion",
                   gen_ai__request__model="m", metadata__usage_object="{}", hidden_params='{"response_cost": 0.0}')  # fmt: skip
    light = light_of(span)
    assert (light.role, light.status, light.cost_usd, light.input_tokens) == (PROVIDER_CALL, "failed", None, None)
    for zero in (0.0, 0, "0.0"):
        span.attributes["gen_ai.cost.total_cost"] = zero
        assert light_of(span).cost_usd is None
    span.attributes["gen_ai.cost.total_cost"] = 0.25
    assert light_of(span).cost_usd is not None, "a stream that broke off was billed"


def test_litellm_answers_that_cost_nothing_cost_nothing() -> None:
    """Out of its cache, or of a model without a price: no price of ours is put in."""
    for said in ({"gen_ai__cost__total_cost": 0.0}, {"hidden_params": '{"response_cost": 0.0}'}):
        light = light_of(
            litellm(Trace(), "litellm_request", llm__request__type="completion", gen_ai__request__model="gpt-4o",
                    gen_ai__usage__input_tokens=120, gen_ai__usage__output_tokens=18, **said)
        )  # fmt: skip
        assert (light.cost_usd, light.cost_source) == (0, "span")


def test_litellm_embeddings_and_guardrails() -> None:
    light = light_of(
        litellm(Trace(), "litellm_request", gen_ai__operation__name="embedding", llm__request__type="aembedding")
    )
    assert (light.role, light.operation) == (PROVIDER_CALL, "embeddings")
    light = light_of(litellm(Trace(), "guardrail", guardrail_name="pii", guardrail_status="guardrail_intervened"))
    assert (light.role, light.labels) == (GUARD, {"guard_name": "pii", "guard_status": "blocked"})
    assert light_of(litellm(Trace(), "Received Proxy Server Request")).role == ""
