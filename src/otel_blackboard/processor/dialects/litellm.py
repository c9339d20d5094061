"""LiteLLM's own tracing, callbacks=["otel"] (dialects.md §17): scope `litellm`.

`litellm_request` is the call, in the words of the conventions but for the tool calls of its answer, which stand in
`gen_ai.completion.N.function_call.*` without their ids. `raw_gen_ai_request` below it says the same once more, as Python
reprs. What the proxy does around it (`Received Proxy Server Request`, `auth`, `router` …) has no role of its own.
"""

from __future__ import annotations

import re

from otel_blackboard.processor.dialects.dialect import (
    CHAT,
    EMBEDDINGS,
    GUARDRAIL,
    NO_ROLE,
    PROVIDER_CALL,
    Dialect,
    Role,
    Source,
    inside,
)
from otel_blackboard.processor.values import first_text
from otel_blackboard.records import Span, Value


def _role(span: Span) -> Role | None:
    if span.name == "raw_gen_ai_request":
        return NO_ROLE
    if span.name == "guardrail":
        return GUARDRAIL
    kind = first_text(span.attributes.get("llm.request.type"))  # completion, acompletion, embedding, aembedding …
    if "embedding" in kind:
        return EMBEDDINGS
    if "rerank" in kind:
        return Role(PROVIDER_CALL, "rerank")
    return CHAT if span.name == "litellm_request" else None


def _counted(*names: str) -> Source:
    """A count in the Python repr `{'prompt_tokens_details': {'cached_tokens': 64, …}, …}`, or of the objects that some
    providers leave in it (`PromptTokensDetailsWrapper(cached_tokens=64)`)."""
    pattern = re.compile(rf"\b(?:{'|'.join(names)})\b['\"]?\s*[:=]\s*(\d+)")

    def read(value: Value) -> Value:
        found = pattern.search(value) if isinstance(value, str) else None
        return found[1] if found else None

    return Source("metadata.usage_object", read)


def _provider(value: Value) -> Value:
    """`openai/gpt-4o-mini`; without a provider it is a model alone."""
    provider, slash, _ = first_text(value).partition("/")
    return provider if slash else None


def _is_no_cost(span: Span, value: Value) -> bool:
    """Calls that failed have a cost, too, of 0.0: then it is not known. An answer out of its cache did cost 0."""
    return span.status_code == 2 and first_text(value) in ("0", "0.0")


_GUARD_STATUS = {"success": "passed", "guardrail_intervened": "blocked"}


def _guard_status(value: Value) -> Value:
    return _GUARD_STATUS.get(first_text(value))


DIALECT = Dialect(
    name="litellm",
    lacks=(
        "Tool calls in the messages: they are taken from the older attributes. Reported usage of streams: LiteLLM "
        "counts tokens itself (24 and 10 where 120 and 18 were billed). Under a span of the application's own, every call "
        "but the last: each is written onto that span, over the one before, unless USE_OTEL_LITELLM_REQUEST_SPAN is true."
    ),
    keys=("litellm.",),
    scopes=("litellm",),
    role=_role,
    facts={
        "conversation_id": ("metadata.session_id",),
        "user_id": ("llm.user",),
        "provider": (Source("litellm.provider.model", _provider), "error.llm_provider"),
        "cached_input_tokens": (_counted("cached_tokens", "cache_read_input_tokens"),),
        "cache_write_tokens": (_counted("cache_write_tokens", "cache_creation_tokens", "cache_creation_input_tokens"),),
        "reasoning_tokens": (_counted("reasoning_tokens"),),
        "cost_usd": (inside("hidden_params", "response_cost"),),
    },
    ignore={"cost_usd": _is_no_cost},
    content={"calls": ("gen_ai.completion.*",), "tools": ("llm.request.functions.*",)},
    labels={
        "guard_name": ("guardrail_name",),
        "guard_type": ("guardrail_mode",),
        "guard_status": (Source("guardrail_status", _guard_status),),
    },
)
