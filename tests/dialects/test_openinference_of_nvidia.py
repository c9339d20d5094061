"""What NVIDIA's toolkit and relay say in OpenInference's words, and mean otherwise."""

from __future__ import annotations

from otel_blackboard.processor.reading import read_span
from tests.spans import TENANT, Trace

ABOVE = "00000000000000aa"


def test_the_toolkits_provider_is_its_framework_and_the_models_name_says_who_answered() -> None:
    for framework, provider in (("langchain", "openai"), ("unknown", "langchain")):
        span = Trace().span(
            "m", 0, 1, ABOVE, openinference__span__kind="LLM", nat__span__kind="LLM", llm__provider="langchain",
            nat__framework=framework, llm__token_count__prompt=120, llm__model_name="gpt-4o-mini",
        )  # fmt: skip
        light = read_span(TENANT, span).light
        assert (light.provider, light.input_tokens, light.response_model) == (provider, 120, "gpt-4o-mini")


def test_the_relays_openinference_has_the_arguments_as_parameters() -> None:
    span = Trace().span(
        "look", 0, 1, ABOVE, nemo_relay__scope_type="tool", openinference__span__kind="TOOL", tool__name="look",
        tool__parameters='{"city": "Paris"}',
        tool_call__id="c1", output__value="sunny",
    )  # fmt: skip
    span.attributes["$duplicates"] = [["metadata", "{}"]]
    reading = read_span(TENANT, span)
    (draft,) = reading.drafts
    assert (draft.row.arguments, reading.light.tool_call_id, draft.row.summary) == ('{"city":"Paris"}', "c1", "sunny")
