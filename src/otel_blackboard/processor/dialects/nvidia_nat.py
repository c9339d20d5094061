"""NVIDIA NeMo Agent Toolkit (captured: 1.9): dialects.md §23. Beside OpenInference's attributes it has its own kind of span
and ids. What it does not know it calls `unknown`: taken as an id, all its runs would be one conversation.
"""

from __future__ import annotations

from otel_blackboard.processor.dialects.dialect import (
    AGENT,
    CHAT,
    EMBEDDINGS,
    EXECUTE_TOOL,
    GUARDRAIL,
    NO_ROLE,
    NODE,
    RERANK,
    RETRIEVAL,
    RUN,
    VERIFIER,
    Dialect,
    Role,
    Source,
    value_at,
)
from otel_blackboard.processor.values import first_text
from otel_blackboard.records import Span, Value

_KINDS: dict[str, Role] = {
    "WORKFLOW": RUN,
    "FUNCTION": NODE,  # a component of the workflow's configuration, by name
    "TASK": NODE,
    "AGENT": AGENT,
    "LLM": CHAT,
    "TOOL": EXECUTE_TOOL,
    "EMBEDDER": EMBEDDINGS,
    "RETRIEVER": RETRIEVAL,
    "RERANKER": RERANK,
    "GUARDRAIL": GUARDRAIL,
    "EVALUATOR": VERIFIER,
    "CUSTOM": NO_ROLE,
    "SPAN": NO_ROLE,
}

_PREFIXES = ("nat.", "aiq.")
"""Of today and before 1.2 (NAT_SPAN_PREFIX may set another)."""


def _role(span: Span) -> Role | None:
    for prefix in _PREFIXES:
        if kind := first_text(span.attributes.get(prefix + "span.kind")):
            return _KINDS.get(kind.upper())
    return None


def _names(span: Span, role: Role) -> dict[str, str]:
    if role.is_agent:
        return {"agent_id": span.name}
    return {"step_name": span.name} if role.is_node else {}


def _known(value: Value) -> Value:
    return None if value == "unknown" else value


def _sources(key: str) -> tuple[Source, ...]:
    return tuple(Source(prefix + key, _known) for prefix in _PREFIXES)


def _tools(metadata: Value) -> Value:
    return value_at(metadata, "tools_schema") or None


def _is_framework(span: Span, value: Value) -> bool:
    """`llm.provider` is the framework that called."""
    return value == "unknown" or any(value == span.attributes.get(prefix + "framework") for prefix in _PREFIXES)


DIALECT = Dialect(
    name="nvidia_nat",
    lacks=(
        "The provider: its attribute names the framework. Ids that are not known are the word `unknown`, which is "
        "read as none."
    ),
    keys=_PREFIXES,
    scopes=("nat", "aiq"),
    role=_role,
    facts={"conversation_id": _sources("conversation.id"), "user_id": _sources("user.id")},
    content={
        "input": ("input.value_obj",),
        "output": ("output.value_obj",),
        "tools": tuple(Source(prefix + "metadata", _tools) for prefix in _PREFIXES),
    },
    labels={"nat_run_id": _sources("workflow.run_id")},
    ignore={"provider": _is_framework},
    names=_names,
)
