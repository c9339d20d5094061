"""Vercel AI SDK 4 to 7 (dialects.md §4): scope `ai`, `opencode` the same under its own, role by `ai.operationId`.

`ai.generateText` is the pass of an agent, `ai.generateText.doGenerate` a model call in it. The pass restates usage: of its
last call (4, and 5 where it does not stream), or of all (5 streaming, 6, 7). Version 7's own tracer (scope `gen_ai`) speaks
the conventions; only the name of its agent needs help.
"""

from __future__ import annotations

from collections.abc import Callable

from otel_blackboard.processor.dialects.answers import FINISH_REASON, TIME_TO_FIRST_TOKEN, milliseconds
from otel_blackboard.processor.dialects.dialect import (
    AGENT,
    CHAT,
    EMBEDDINGS,
    EXECUTE_TOOL,
    PROVIDER_CALL,
    Dialect,
    Role,
    Source,
)
from otel_blackboard.processor.usage import include_cache
from otel_blackboard.processor.values import first_text, parsed, whole_number
from otel_blackboard.records import Attributes, Light, Span, Value

_ROLES: dict[str, Role] = {
    "generateText": AGENT,
    "streamText": AGENT,
    "generateObject": AGENT,
    "streamObject": AGENT,
    "toolCall": EXECUTE_TOOL,
    # The outer span and the request inside it are one call; `embedMany` over several requests sums them up.
    "embed": EMBEDDINGS,
    "embedMany": EMBEDDINGS,
    "rerank": Role(PROVIDER_CALL, "rerank"),
    "transcribe": Role(PROVIDER_CALL, "transcribe"),
    "generateSpeech": Role(PROVIDER_CALL, "generate_speech"),
}


def _role(span: Span) -> Role | None:
    operation = first_text(span.attributes.get("ai.operationId"))
    function, _, request = operation.removeprefix("ai.").partition(".")
    role = _ROLES.get(function)
    return CHAT if role is AGENT and request else role


def _names(span: Span, role: Role) -> dict[str, str]:
    return {} if span.parent_span_id else {"run_name": first_text(span.attributes.get("ai.telemetry.functionId"))}


# `ai.model.provider` is `<provider>.<API>`; those that the conventions call otherwise:
_PROVIDERS = {
    "google": "gcp.gemini",
    "google.vertex": "gcp.vertex_ai",
    "vertex": "gcp.vertex_ai",
    "amazon-bedrock": "aws.bedrock",
    "azure": "azure.ai.openai",
    "azure-openai": "azure.ai.openai",
    "mistral": "mistral_ai",
    "xai": "x_ai",
}


def _complete(light: Light, span: Span) -> None:
    attributes = span.attributes
    provider = first_text(attributes.get("ai.model.provider"))
    if provider and light.provider == provider:
        first, _, rest = provider.partition(".")
        wider = f"{first}.{rest.partition('.')[0]}"
        light.provider = _PROVIDERS.get(wider) or _PROVIDERS.get(first) or first
    if light.cached_input_tokens or light.cache_write_tokens:
        include_cache(light, beside=_is_raw(light, attributes, provider))
    if span.scope.name == "gen_ai" and light.is_agent and light.agent_id == light.request_model:
        light.agent_id = ""  # `invoke_agent <model>`: no agent has a name without a functionId


def _is_raw(light: Light, attributes: Attributes, provider: str) -> bool:
    """Whether the figures are Anthropic's or Bedrock's own, which count the cache beside: 4 and 5 hand them on, 6 adds them
    up and tells the details (read: @ai-sdk/anthropic 1 to 3, @ai-sdk/amazon-bedrock 3)."""
    if "anthropic" not in provider and not provider.startswith("amazon-bedrock"):
        return False
    raw = whole_number(_input_said(attributes.get(_METADATA))) if light.role == PROVIDER_CALL else None
    if raw is not None:  # what Anthropic said of this call, since 5
        return raw == light.input_tokens
    if "ai.prompt.format" in attributes:  # 4 alone has it
        return True
    if any(key in attributes for key in _DETAILS):
        return False
    # Of objects 6 tells no details either.
    return "Object" not in first_text(attributes.get("ai.operationId"))


_METADATA = "ai.response.providerMetadata"
_DETAILS = tuple(f"ai.usage.inputTokenDetails.{name}Tokens" for name in ("noCache", "cacheRead", "cacheWrite"))


def _said(*names: str) -> Callable[[Value], Value]:
    """A number in `{<provider>: {<name>: …, usage: {<name>: …}}}`."""

    def read(value: Value) -> Value:
        if not isinstance(value, str) or not any(name in value for name in names):
            return None
        metadata = parsed(value)
        for said in metadata.values() if isinstance(metadata, dict) else ():
            if isinstance(said, dict):
                usage = said.get("usage")
                for place in (said, usage if isinstance(usage, dict) else {}):
                    for name in names:
                        if place.get(name) is not None:
                            return place[name]  # type: ignore[no-any-return]
        return None

    return read


_input_said = _said("input_tokens")


def _in_metadata(*names: str) -> Source:
    """What has no attribute of its own in 4, nor where 5 does not stream."""
    return Source(_METADATA, _said(*names))


def _texts(value: Value) -> Value:
    """`ai.values` is a list of JSON texts."""
    return [parsed(item) for item in value] if isinstance(value, list) else parsed(value)


def _reasoning(value: Value) -> Value:
    text = parsed(value)
    return text if isinstance(text, list) else [{"type": "reasoning", "content": value}]


DIALECT = Dialect(
    name="ai_sdk",
    lacks=(
        "Version 4: usage of streams, unless the provider was asked for it. Version 7 without the legacy tracer: "
        "telemetry metadata, so session and user. What a provider's client makes of a failed tool's result after "
        "the span."
    ),
    keys=("ai.operationId",),
    scopes=("ai", "gen_ai"),
    role=_role,
    facts={
        "agent_id": ("ai.telemetry.functionId",),
        "conversation_id": (
            "ai.telemetry.metadata.sessionId",
            "ai.telemetry.metadata.session_id",
            "ai.telemetry.metadata.threadId",
        ),
        "user_id": ("ai.telemetry.metadata.userId", "ai.telemetry.metadata.user_id"),
        "provider": ("ai.model.provider",),
        "request_model": ("ai.model.id",),
        "response_model": ("ai.response.model",),
        "response_id": ("ai.response.id",),
        "tool_name": ("ai.toolCall.name",),
        "tool_call_id": ("ai.toolCall.id",),
        "input_tokens": ("ai.usage.inputTokens", "ai.usage.promptTokens", "ai.usage.tokens"),
        "output_tokens": ("ai.usage.outputTokens", "ai.usage.completionTokens"),
        "cached_input_tokens": (
            "ai.usage.inputTokenDetails.cacheReadTokens",
            "ai.usage.cachedInputTokens",
            _in_metadata("cachedPromptTokens", "cacheReadInputTokens", "cache_read_input_tokens"),
        ),
        "cache_write_tokens": (
            "ai.usage.inputTokenDetails.cacheWriteTokens",
            _in_metadata("cacheCreationInputTokens", "cacheWriteInputTokens", "cache_creation_input_tokens"),
        ),
        "reasoning_tokens": (
            "ai.usage.outputTokenDetails.reasoningTokens",
            "ai.usage.reasoningTokens",
            _in_metadata("reasoningTokens"),
        ),
    },
    content={
        "input": ("ai.prompt.messages", "ai.prompt", Source("ai.values", _texts), "ai.value"),
        "output": ("ai.response.text", "ai.response.object", "ai.result.text", "ai.result.object"),
        "calls": ("ai.response.toolCalls", "ai.result.toolCalls"),
        "reasoning": (Source("ai.response.reasoning", _reasoning),),
        "tools": ("ai.prompt.tools",),
        "arguments": ("ai.toolCall.args",),
        "result": ("ai.toolCall.result",),
    },
    plain=("ai.response.text", "ai.response.object", "ai.result.text", "ai.result.object"),
    labels={
        "tags": ("ai.telemetry.metadata.tags",),
        FINISH_REASON: ("ai.response.finishReason",),
        TIME_TO_FIRST_TOKEN: (milliseconds("ai.response.msToFirstChunk"), milliseconds("ai.stream.msToFirstChunk")),
    },
    names=_names,
    complete=_complete,
)
