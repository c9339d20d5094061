"""NVIDIA NeMo Relay (captured: 0.10): dialects.md §24. Its `full` export has the request and the answer of every scope,
flattened one level: `nemo_relay.start.input.<name>`, `nemo_relay.end.output.<name>`, what nests as JSON text. Its other
exports speak other conventions; the one that speaks OpenInference has these attributes as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from otel_blackboard.processor.dialects.dialect import (
    AGENT,
    CHAT,
    EMBEDDINGS,
    EXECUTE_TOOL,
    GUARDRAIL,
    NO_ROLE,
    RERANK,
    RETRIEVAL,
    STEP,
    TOOL,
    VERIFIER,
    Dialect,
    Part,
    Role,
    Source,
    inside,
)
from otel_blackboard.processor.values import first_text, parsed
from otel_blackboard.records import Span, Value

_SCOPES: dict[str, Role] = {
    "agent": AGENT,
    "function": NO_ROLE,
    "tool": EXECUTE_TOOL,
    "llm": CHAT,
    "retriever": RETRIEVAL,
    "embedder": EMBEDDINGS,
    "reranker": RERANK,
    "guardrail": GUARDRAIL,
    "evaluator": VERIFIER,
    "custom": NO_ROLE,
}

_REQUEST = "nemo_relay.start.input.content"
"""The request body of a model call, as the provider takes it."""
_USAGE = "nemo_relay.end.output.usage"


def _scope_type(span: Span) -> str:
    return first_text(span.attributes.get("nemo_relay.scope_type")).lower()


def _role(span: Span) -> Role | None:
    return _SCOPES.get(_scope_type(span))


def _names(span: Span, role: Role) -> dict[str, str]:
    if role.is_agent:
        return {"agent_id": span.name}
    return {"tool_name": span.name} if role.role == TOOL else {}


_PIECES = {
    TOOL: (("arguments", "nemo_relay.start.input"), ("result", "nemo_relay.end.output")),
    STEP: (("input", "nemo_relay.start.input"), ("output", "nemo_relay.end.output")),
}


def _pieces(span: Span, role: Role) -> list[Part]:
    found = []
    for meaning, name in _PIECES.get(role.role, ()):
        if (value := _gathered(span, name + ".")) is not None:
            found.append(Part(meaning, f"{name}#{meaning}", value))
    return found


def _gathered(span: Span, beginning: str) -> Value:
    cut = len(beginning)
    values: dict[str, Value] = {
        key[cut:]: parsed(value) for key, value in span.attributes.items() if key.startswith(beginning)
    }
    return values or None


def _said_to_model(take: Callable[[dict[str, Any]], Value]) -> Source:
    def read(value: Value) -> Value:
        request = parsed(value)
        return take(request) if isinstance(request, dict) else None

    return Source(_REQUEST, read)


def _all_input(value: Value) -> Value:
    """Anthropic counts the tokens of its cache beside `input_tokens`, not among them."""
    usage = parsed(value)
    if not isinstance(usage, dict):
        return None
    beside = [usage.get(key) for key in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")]
    counts = [count for count in beside if isinstance(count, int)]
    return sum(counts) if isinstance(beside[0], int) else None


DIALECT = Dialect(
    name="nemo_relay",
    lacks=("The provider. Results of retrievers."),
    keys=("nemo_relay.",),
    role=_role,
    facts={
        "tool_call_id": ("nemo_relay.tool_call_id", "tool_call.id"),
        "conversation_id": ("session.id", "nemo_relay.start.metadata.session_id"),
        "request_model": (inside(_REQUEST, "model"),),
        "response_model": ("nemo_relay.end.output.model", "nemo_relay.model_name"),
        "response_id": ("nemo_relay.end.output.id",),
        "input_tokens": (inside(_USAGE, "prompt_tokens"), Source(_USAGE, _all_input)),
        "output_tokens": (inside(_USAGE, "completion_tokens"), inside(_USAGE, "output_tokens")),
        "cached_input_tokens": (
            inside(_USAGE, "prompt_tokens_details", "cached_tokens"),
            inside(_USAGE, "input_tokens_details", "cached_tokens"),
            inside(_USAGE, "cache_read_input_tokens"),
        ),
        "cache_write_tokens": (inside(_USAGE, "cache_creation_input_tokens"),),
        "reasoning_tokens": (
            inside(_USAGE, "completion_tokens_details", "reasoning_tokens"),
            inside(_USAGE, "output_tokens_details", "reasoning_tokens"),
        ),
    },
    content={
        "system": (_said_to_model(lambda request: request.get("instructions") or request.get("system")),),
        "input": (_said_to_model(lambda request: request.get("messages") or request.get("input")), _REQUEST),
        "output": ("nemo_relay.end.output.choices", "nemo_relay.end.output.output", "nemo_relay.end.output.content"),
        "tools": (_said_to_model(lambda request: request.get("tools")),),
        "arguments": ("nemo_relay.start.input", "tool.parameters"),
        "result": ("nemo_relay.end.output",),
    },
    # What a tool returns may have an `id` of its own.
    ignore={"response_id": lambda span, value: _scope_type(span) != "llm"},
    pieces=_pieces,
    names=_names,
)
