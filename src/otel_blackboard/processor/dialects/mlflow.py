"""MLflow tracing (dialects.md §7): keys `mlflow.*`, role by `mlflow.spanType`. Every value is JSON text, a string in its
quotes. With MLFLOW_ENABLE_OTEL_GENAI_SEMCONV the spans speak the conventions instead. Session and user are no attributes of
spans. A streamed answer comes once more as an event per chunk, which is not read."""

from __future__ import annotations

from otel_blackboard.processor.dialects.dialect import (
    AGENT,
    CHAT,
    EMBEDDINGS,
    EXECUTE_TOOL,
    GUARD,
    GUARDRAIL,
    NO_ROLE,
    NODE,
    PROVIDER_CALL,
    RETRIEVAL,
    RUN,
    TOOL,
    Dialect,
    Role,
    Source,
    inside,
)
from otel_blackboard.processor.usage import include_cache
from otel_blackboard.processor.values import first_text, parsed, whole_number
from otel_blackboard.processor.wrappers import response_id
from otel_blackboard.records import Light, Span, Value

_TYPES: dict[str, Role] = {
    "AGENT": AGENT,
    "CHAIN": NO_ROLE,
    "CHAT_MODEL": CHAT,
    "LLM": CHAT,
    "TOOL": EXECUTE_TOOL,
    "RETRIEVER": RETRIEVAL,
    "EMBEDDING": EMBEDDINGS,
    "RERANKER": Role(PROVIDER_CALL, "rerank"),
    "PARSER": NO_ROLE,
    "MEMORY": Role(TOOL, "memory"),
    "WORKFLOW": RUN,
    "TASK": NODE,
    "GUARDRAIL": GUARDRAIL,
    "EVALUATOR": Role("verifier", "evaluate"),
}


def _role(span: Span) -> Role | None:
    return _TYPES.get(first_text(parsed(span.attributes.get("mlflow.spanType"))))


def _names(span: Span, role: Role) -> dict[str, str]:
    """A span is called as its function is, or as was said where it began."""
    if role is AGENT:
        return {"agent_id": span.name}
    return {"run_name": span.name} if role is RUN else {}


def _complete(light: Light, span: Span) -> None:
    if light.role == GUARD and "mlflow.spanType" in span.attributes:
        light.labels.setdefault("guard_name", span.name)
    if light.role != PROVIDER_CALL:
        return
    outputs = span.attributes.get("mlflow.spanOutputs")
    if light.operation == "chat" and not light.response_id:
        light.response_id = response_id(outputs)
    if light.cached_input_tokens or light.cache_write_tokens:
        answer = parsed(outputs)
        include_cache(light, beside=_is_raw(light, answer.get("usage") if isinstance(answer, dict) else None))


def _is_raw(light: Light, usage: Value) -> bool:
    """Whether the figures are those of an answer of Anthropic's, which counts its cache beside. Autologging handed them on
    as they are at first (read: 3.10, mlflow#20956), and adds them up since (mlflow#22516)."""
    if not isinstance(usage, dict) or not any(name in usage for name in _OF_ANTHROPIC):
        return False
    return whole_number(usage.get("input_tokens")) == light.input_tokens


_OF_ANTHROPIC = ("cache_read_input_tokens", "cache_creation_input_tokens")


def _unquoted(key: str) -> Source:
    return Source(key, parsed)


DIALECT = Dialect(
    name="mlflow",
    lacks=(
        "Session and user: they are metadata of the trace and not in its spans. With its GenAI switch also the "
        "inputs of agents and retrievers."
    ),
    keys=("mlflow.spanType", "mlflow.traceRequestId"),
    role=_role,
    facts={
        "request_model": (_unquoted("model"),),
        "response_model": (_unquoted("mlflow.llm.model"),),
        "provider": (_unquoted("mlflow.llm.provider"),),
        "input_tokens": (inside("mlflow.chat.tokenUsage", "input_tokens"),),
        "output_tokens": (inside("mlflow.chat.tokenUsage", "output_tokens"),),
        "cached_input_tokens": (inside("mlflow.chat.tokenUsage", "cache_read_input_tokens"),),
        "cache_write_tokens": (inside("mlflow.chat.tokenUsage", "cache_creation_input_tokens"),),
        "cost_usd": (inside("mlflow.llm.cost", "total_cost"),),
    },
    content={
        "input": ("mlflow.spanInputs",),
        "output": ("mlflow.spanOutputs",),
        "tools": ("mlflow.chat.tools",),
        "arguments": ("mlflow.spanInputs",),
        "result": ("mlflow.spanOutputs",),
    },
    names=_names,
    complete=_complete,
)
