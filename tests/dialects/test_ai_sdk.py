"""Vercel AI SDK 4 to 7 (dialects.md §4; B1, B2)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from otel_blackboard.processor.dialects.dialect import PROVIDER_CALL
from otel_blackboard.records import Span
from tests.dialects.reading import artifact_of, body_of, fields_of, light_of, sent, tree_of
from tests.spans import Trace

MESSAGES = json.dumps([{"role": "user", "content": "hello"}])


def ai(trace: Trace, operation: str, *place: Any, error: str | None = None, **attributes: Any) -> Span:
    said = {
        "ai.operationId": f"ai.{operation}",
        "ai.telemetry.functionId": "weather",
        "ai.model.provider": "openai.chat",
        "ai.model.id": "gpt-4o-mini",
    }
    more = {f"ai.{key.replace('__', '.')}": value for key, value in attributes.items()}
    return sent(trace, "ai", f"ai.{operation}", said | more, *place, error=error)


@pytest.mark.parametrize("outer_usage", [(120, 18), (240, 36)], ids=["of the last call", "of all calls"])
def test_ai_sdk_bills_the_calls_and_not_their_pass(outer_usage: tuple[int, int]) -> None:
    trace = Trace()
    reading, writing = outer_usage
    outer = ai(trace, "generateText", 0, 9, usage__promptTokens=reading, usage__completionTokens=writing,
               telemetry__metadata__sessionId="s1", telemetry__metadata__userId="u1",
               telemetry__metadata__tags=["a"], response__text="done")  # fmt: skip
    first = ai(trace, "generateText.doGenerate", 1, 2, outer, usage__promptTokens=120, usage__completionTokens=18,
               prompt__messages=MESSAGES, response__id="r1",
               response__toolCalls='[{"toolCallId":"c1","toolName":"look","args":"{\\"x\\": 1}"}]')  # fmt: skip
    tool = ai(trace, "toolCall", 3, 4, outer, toolCall__name="look", toolCall__id="c1", toolCall__args='{"x":1}',
              toolCall__result='"found"')  # fmt: skip
    ai(trace, "generateText.doGenerate", 5, 6, outer, usage__promptTokens=120, usage__completionTokens=18,
       response__id="r2", response__text="done")  # fmt: skip
    rows, part = tree_of(trace.spans)
    assert (part.name, part.agents, part.conversation_id, part.user_id) == ("weather", ("weather",), "s1", "u1")
    assert part.counts == {"provider_call": 2, "step": 1, "tool_invocation": 1}
    assert (part.input_tokens, part.output_tokens) == (240, 36)
    assert rows[first.span_id].provider == "openai" and rows[outer.span_id].labels["tags"] == '["a"]'
    assert (rows[tool.span_id].requested_by, rows[tool.span_id].tool_call_id) == (first.span_id, "c1")
    row = artifact_of(tool, "tool_result")
    assert row is not None and (row.arguments, row.summary) == ('{"x":1}', "found")
    assert body_of(tool, "tool_result") == b'"found"'


def test_ai_sdk_4_tells_cache_and_reasoning_inside_the_provider_metadata() -> None:
    trace = Trace()
    metadata = {"openai": {"reasoningTokens": 7, "cachedPromptTokens": 64}}
    light = light_of(ai(trace, "generateText.doGenerate", usage__promptTokens=120, usage__completionTokens=18,
                        response__providerMetadata=json.dumps(metadata)))  # fmt: skip
    assert (light.cached_input_tokens, light.reasoning_tokens, light.cache_write_tokens) == (64, 7, None)
    light = light_of(ai(trace, "generateText.doGenerate", response__providerMetadata='{"openai":{"cachedPromptTok'))
    assert light.cached_input_tokens is None


def test_ai_sdk_4_counts_anthropics_cache_beside_the_input() -> None:
    metadata = json.dumps({"anthropic": {"cacheCreationInputTokens": 30, "cacheReadInputTokens": 70}})
    call = ai(Trace(), "generateText.doGenerate", usage__promptTokens=200, response__providerMetadata=metadata)
    call.attributes |= {"ai.model.provider": "anthropic.messages", "ai.prompt.format": "prompt"}
    light = light_of(call)
    assert (light.input_tokens, light.cached_input_tokens, light.cache_write_tokens) == (300, 70, 30)
    call.attributes["ai.model.provider"] = "openai.chat"
    assert light_of(call).input_tokens == 200


ANTHROPIC_SAID = {"input_tokens": 1000, "cache_read_input_tokens": 500, "cache_creation_input_tokens": 30}


@pytest.mark.parametrize(
    ("operation", "attributes", "found"),
    [
        # 5 hands on what Anthropic and Bedrock say, whether it streams …
        ("streamText.doStream", {"ai.usage.inputTokens": 1000, "ai.usage.cachedInputTokens": 500}, (1500, 500, None)),
        ("streamText.doStream", {"ai.usage.inputTokens": 1000, "ai.usage.cachedInputTokens": 500,
                                 "ai.model.provider": "amazon-bedrock"}, (1500, 500, None)),
        ("streamText.doStream", {"ai.usage.inputTokens": 1000, "ai.usage.cachedInputTokens": 500,
                                 "ai.model.provider": "vertex.anthropic.messages"}, (1500, 500, None)),
        # … or not, where the metadata alone tells of the cache
        ("generateText.doGenerate", {"ai.usage.promptTokens": 1000, "metadata": ANTHROPIC_SAID}, (1530, 500, 30)),
        ("generateObject.doGenerate", {"ai.usage.promptTokens": 1000, "metadata": ANTHROPIC_SAID}, (1530, 500, 30)),
        # 6 adds it up and says so, of objects only in the metadata
        ("streamText.doStream", {"ai.usage.inputTokens": 1500, "ai.usage.cachedInputTokens": 500,
                                 "ai.usage.inputTokenDetails.cacheReadTokens": 500}, (1500, 500, None)),
        ("generateText.doGenerate", {"ai.usage.inputTokens": 1530, "metadata": ANTHROPIC_SAID,
                                     "ai.usage.inputTokenDetails.cacheReadTokens": 500}, (1530, 500, 30)),
        ("generateObject.doGenerate", {"ai.usage.promptTokens": 1530, "metadata": ANTHROPIC_SAID}, (1530, 500, 30)),
        # with a provider's package of 5 under 6, the metadata tell
        ("generateText.doGenerate", {"ai.usage.inputTokens": 1000, "metadata": ANTHROPIC_SAID,
                                     "ai.usage.inputTokenDetails.cacheReadTokens": 500}, (1530, 500, 30)),
        # of a streamed object nothing tells 5 from 6
        ("streamObject.doStream", {"ai.usage.inputTokens": 1000, "ai.usage.cachedInputTokens": 500}, (1000, 500, None)),
        # OpenAI's figures hold it in every version
        ("streamText.doStream", {"ai.usage.inputTokens": 1000, "ai.usage.cachedInputTokens": 500,
                                 "ai.model.provider": "openai.responses"}, (1000, 500, None)),
    ],
)  # fmt: skip
def test_ai_sdk_counts_the_cache_once(
    operation: str, attributes: dict[str, Any], found: tuple[int | None, ...]
) -> None:
    call = ai(Trace(), operation)
    said = {"ai.model.provider": "anthropic.messages"} | attributes
    if metadata := said.pop("metadata", None):
        said["ai.response.providerMetadata"] = json.dumps({"anthropic": {"usage": metadata}})
    call.attributes |= said
    light = light_of(call)
    assert (light.input_tokens, light.cached_input_tokens, light.cache_write_tokens) == found


def test_ai_sdk_metadata_of_any_shape_are_read() -> None:
    for metadata in ("{", '["input_tokens"]', '{"a": "input_tokens"}', '{"a": {"usage": ["input_tokens"]}}'):
        call = ai(Trace(), "generateText.doGenerate", usage__promptTokens=9, usage__cachedInputTokens=4,
                  response__providerMetadata=metadata)  # fmt: skip
        call.attributes["ai.model.provider"] = "anthropic.messages"
        assert light_of(call).input_tokens == 13


def test_ai_sdk_streams_without_usage_are_unknown() -> None:
    light = light_of(ai(Trace(), "streamText.doStream", usage__promptTokens=float("nan"), usage__completionTokens=None))
    assert (light.role, light.input_tokens, light.output_tokens, light.cost_usd) == (PROVIDER_CALL, None, None, None)


def test_ai_sdk_text_reasoning_and_tool_calls_are_one_answer() -> None:
    call = ai(Trace(), "generateText.doGenerate", response__text="Let me look.", response__reasoning="hm",
              response__toolCalls='[{"toolCallId":"c1","toolName":"look","input":{"x":1}}]')  # fmt: skip
    assert fields_of(call, "agent_output") == [
        "ai.response.reasoning#reasoning",
        "ai.response.text",
        "ai.response.toolCalls",
    ]
    assert [(each.id, each.name) for each in light_of(call).requested] == [("c1", "look")]
    row = artifact_of(call, "agent_output")
    assert row is not None and row.summary == "Let me look."
    pass_ = ai(Trace(), "generateText", response__text="done", response__toolCalls="[]")  # 7 lists all of its calls
    assert fields_of(pass_, "agent_output") == ["ai.response.text"]


def test_ai_sdk_embedding_twice_nested_is_one_call_without_an_output() -> None:
    trace = Trace()
    outer = ai(trace, "embed", 0, 3, value='"hi"', embedding="[0.1]", usage__tokens=9)
    inner = ai(trace, "embed.doEmbed", 1, 2, outer, values=['"hi"'], embeddings=["[0.1]"], usage__tokens=9)
    rows, part = tree_of(trace.spans)
    assert (part.counts, part.input_tokens, part.name) == ({"provider_call": 1}, 9, "weather")
    assert rows[inner.span_id].call_span_id == outer.span_id
    assert artifact_of(outer, "agent_output") is None and artifact_of(inner, "agent_output") is None
    many = Trace("many")
    outer = ai(many, "embedMany", 0, 9, usage__tokens=18)
    for start in (1, 3):
        ai(many, "embedMany.doEmbed", start, start + 1, outer, usage__tokens=9)
    _, part = tree_of(many.spans)
    assert (part.counts, part.input_tokens) == ({"provider_call": 2}, 18)


def test_ai_sdk_tool_errors_fail_the_tool_alone() -> None:
    trace = Trace()
    outer = ai(trace, "generateText", 0, 9)
    tool = ai(trace, "toolCall", 1, 2, outer, error="boom", toolCall__name="look", toolCall__id="c1")
    rows, part = tree_of(trace.spans)
    assert (part.status, rows[tool.span_id].status, rows[tool.span_id].error) == ("complete", "failed", "boom")


def test_ai_sdk_7_names_no_agent_without_a_function_id() -> None:
    said = {"gen_ai.operation.name": "invoke_agent", "gen_ai.request.model": "gpt-4o-mini"}
    span = sent(Trace(), "gen_ai", "invoke_agent gpt-4o-mini", said)
    assert (light_of(span).is_agent, light_of(span).agent_id) == (True, "")
    span.attributes["gen_ai.agent.name"] = "weather"
    assert light_of(span).agent_id == "weather"


@pytest.mark.parametrize(
    ("sent_as", "provider"),
    [
        ("google.generative-ai", "gcp.gemini"),
        ("google.vertex.chat", "gcp.vertex_ai"),
        ("amazon-bedrock", "aws.bedrock"),
        ("xai.chat", "x_ai"),
        ("anthropic.messages", "anthropic"),
        ("groq.chat", "groq"),
    ],
)
def test_ai_sdk_providers(sent_as: str, provider: str) -> None:
    span = ai(Trace(), "generateText.doGenerate")
    span.attributes |= {"ai.model.provider": sent_as, "gen_ai.system": sent_as}
    assert light_of(span).provider == provider
