"""Haystack (dialects.md §16; B4)."""

from __future__ import annotations

import json
from typing import Any

from otel_blackboard.records import Span
from tests.dialects.reading import artifact_of, light_of, sent, tree_of
from tests.spans import Trace


def haystack(trace: Trace, name: str, *place: Any, **attributes: Any) -> Span:
    more = {f"haystack.{key.replace('__', '.')}": value for key, value in attributes.items()}
    return sent(trace, "my app", f"haystack.{name}", more, *place)


USAGE = {"prompt_tokens": 120, "completion_tokens": 18, "prompt_tokens_details": {"cached_tokens": 64}}


def reply(content: Any, usage: dict[str, Any] = USAGE) -> str:
    meta = {"model": "gpt-4o-mini-2024-07-18", "usage": usage}
    return json.dumps({"replies": [{"role": "assistant", "meta": meta, "content": [content]}]})


def test_haystack_agent() -> None:
    trace = Trace()
    agent = haystack(trace, "agent.run", 0, 9, agent__output='{"messages": [], "token_usage": {"prompt_tokens": 240}}')
    first = haystack(trace, "agent.step", 1, 5, agent, agent__step=0)
    asks = {"tool_call": {"tool_name": "look", "arguments": {"x": 1}, "id": "c1"}}
    call = haystack(trace, "agent.step.llm", 2, 3, first, agent__step__llm__output=reply(asks))
    tool = haystack(trace, "agent.step.tool", 4, 5, first, tool__name="look", agent__step__tool__input='{"x": 1}',
                    agent__step__tool__output="found")  # fmt: skip
    second = haystack(trace, "agent.step", 6, 8, agent, agent__step=1)
    haystack(trace, "agent.step.llm", 6, 7, second, agent__step__llm__output=reply({"text": "done"}))
    rows, part = tree_of(trace.spans)
    assert part.counts == {"provider_call": 2, "step": 1, "tool_invocation": 1}
    assert (part.input_tokens, part.output_tokens, part.cached_input_tokens) == (240, 36, 128)
    assert (rows[call.span_id].model, rows[call.span_id].provider) == ("gpt-4o-mini-2024-07-18", "openai")
    assert (rows[tool.span_id].requested_by, rows[tool.span_id].tool_call_id) == (call.span_id, "c1")
    row = artifact_of(tool, "tool_result")
    assert row is not None and (row.arguments, row.summary) == ('{"x":1}', "found")


def test_haystack_pipeline_components_by_their_type() -> None:
    trace = Trace()
    run = haystack(trace, "pipeline.run", 0, 9, pipeline__metadata='{"name": "rag"}')

    def component(name: str, kind: str, start: float, **more: Any) -> Span:
        return haystack(
            trace, "component.run", start, start + 1, run, component__name=name, component__type=kind, **more
        )

    vectors = json.dumps(
        {"embedding": [0.1], "meta": {"model": "text-embedding-3-small", "usage": {"prompt_tokens": 9}}}
    )
    embedder = component("embedder", "OpenAITextEmbedder", 1, component__output=vectors)
    retriever = component("retriever", "InMemoryEmbeddingRetriever", 2, component__input='{"query": "q"}',
                          component__output='{"documents": []}')  # fmt: skip
    builder = component("prompt", "ChatPromptBuilder", 3, component__output="{}")
    joiner = component("joiner", "BranchJoiner", 4)
    model = component("llm", "OpenAIChatGenerator", 5, component__output=reply({"text": "done"}))
    rows, part = tree_of(trace.spans)
    assert (part.name, part.input_tokens) == ("rag", 129)
    assert part.counts == {"flow_run": 1, "provider_call": 2, "step": 2, "tool_invocation": 1}
    assert (rows[embedder.span_id].operation, rows[model.span_id].operation) == ("embeddings", "chat")
    assert artifact_of(embedder, "agent_output") is None
    assert (rows[retriever.span_id].tool_name, rows[retriever.span_id].tool_class) == ("retriever", "knowledge_base")
    steps = [(rows[span.span_id].step_id, rows[span.span_id].step_name) for span in (builder, joiner)]
    assert steps == [("step_prompt", "prompt"), ("step_joiner", "joiner")]


def test_haystack_without_content_has_calls_without_usage() -> None:
    trace = Trace()
    haystack(trace, "component.run", component__name="llm", component__type="OpenAIGenerator")
    _, part = tree_of(trace.spans)
    assert (part.counts, part.calls_with_usage, part.input_tokens) == ({"provider_call": 1}, 0, None)
    old = haystack(trace, "component.run", component__type="OpenAIGenerator", component__output=json.dumps(
        {"replies": ["done"], "meta": [{"model": "m", "usage": {"prompt_tokens": 120, "completion_tokens": 18}}]}))  # fmt: skip
    assert (light_of(old).input_tokens, light_of(old).response_model) == (120, "m")


def test_haystack_anthropic_and_bedrock_count_their_cache_beside() -> None:
    anthropic = {"prompt_tokens": 1000, "completion_tokens": 18, "cache_read_input_tokens": 500,
                 "cache_creation_input_tokens": 30, "cache_creation": {"ephemeral_5m_input_tokens": 30}}  # fmt: skip
    bedrock = {"prompt_tokens": 1000, "completion_tokens": 18, "total_tokens": 1548, "cache_read_input_tokens": 500,
               "cache_write_input_tokens": 30, "cache_details": {}}  # fmt: skip
    for usage in (anthropic, bedrock):
        light = light_of(
            haystack(Trace(), "component.run", component__type="ChatGenerator", component__output=reply({}, usage))
        )
        assert (light.input_tokens, light.cached_input_tokens, light.cache_write_tokens) == (1530, 500, 30)
