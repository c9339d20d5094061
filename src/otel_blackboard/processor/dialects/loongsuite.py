"""LoongSuite, Qwen, Alibaba (dialects.md §28, §29; names only, not captured): the GenAI conventions, the kind of a span in
`gen_ai.span.kind`, and skills on the tool span that loads them."""

from __future__ import annotations

from otel_blackboard.processor.dialects.dialect import (
    AGENT,
    CHAT,
    EMBEDDINGS,
    EXECUTE_TOOL,
    GUARDRAIL,
    NO_ROLE,
    NODE,
    PROVIDER_CALL,
    RETRIEVAL,
    Dialect,
    Role,
)
from otel_blackboard.processor.values import first_text
from otel_blackboard.records import Span

_KINDS = {
    "AGENT": AGENT,
    "LLM": CHAT,
    "EMBEDDING": EMBEDDINGS,
    "RERANKER": Role(PROVIDER_CALL, "rerank"),
    "RETRIEVER": RETRIEVAL,
    "TOOL": EXECUTE_TOOL,
    "TASK": NODE,
    "GUARDRAIL": GUARDRAIL,
    "STEP": NO_ROLE,
    "CHAIN": NO_ROLE,
    "ENTRY": NO_ROLE,
}


def _role(span: Span) -> Role | None:
    """The operation says more where there is one (invoke_agent and create_agent are both AGENT); `load_skill` is a tool."""
    operation = first_text(span.attributes.get("gen_ai.operation.name"))
    if operation == "load_skill":
        return EXECUTE_TOOL
    return None if operation else _KINDS.get(first_text(span.attributes.get("gen_ai.span.kind")).upper())


DIALECT = Dialect(
    name="loongsuite",
    lacks=("What the GenAI conventions do not say already. Read from its documentation."),
    keys=("gen_ai.span.kind", "gen_ai.skill."),
    role=_role,
    facts={},
    labels={"skill_id": ("gen_ai.skill.id",)},
)
