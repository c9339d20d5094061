"""Spring AI over Micrometer and its bridge to OpenTelemetry (dialects.md §22, read from its source and reference).

Every value is a string, Java lists included; `none` stands for a value that was not known. Model calls are the conventions'
own; prompts and answers of version 1.0 and later are lines of the application's log, and on no span.
"""

from __future__ import annotations

from otel_blackboard.processor.dialects.dialect import (
    AGENT,
    EXECUTE_TOOL,
    NO_ROLE,
    RETRIEVAL,
    TOOL,
    Dialect,
    Role,
    not_provider,
)
from otel_blackboard.processor.values import first_text
from otel_blackboard.records import Span, Value

# spring.ai.kind → role. Advisors are middleware around the same call, one inside the other: no steps of the agent.
_KINDS = {"chat_client": AGENT, "advisor": NO_ROLE, "tool_call": EXECUTE_TOOL}


def _role(span: Span) -> Role | None:
    kind = first_text(span.attributes.get("spring.ai.kind"))
    if kind == "vector_store":  # to add or delete documents is no call of a tool
        return RETRIEVAL if first_text(span.attributes.get("db.operation.name")) == "query" else NO_ROLE
    return _KINDS.get(kind)


def _is_none(span: Span, value: Value) -> bool:
    return first_text(value) == "none"


def _is_no_conversation(span: Span, value: Value) -> bool:
    """`default` is what the chat memory takes where the application names no conversation."""
    return first_text(value) in ("none", "default")


def _names(span: Span, role: Role) -> dict[str, str]:
    return {"tool_name": span.name.removeprefix("tool_call ")} if role.role == TOOL else {}


DIALECT = Dialect(
    name="spring_ai",
    keys=("spring.ai.",),
    scopes=("org.springframework.boot",),
    lacks="Prompts and answers, which Spring AI 1.0 and later writes to the application's log alone. Names of agents. "
    "Arguments and results of tools, unless `spring.ai.tools.observations.include-content` is set.",
    role=_role,
    facts={
        "tool_name": ("spring.ai.tool.definition.name",),
        "tool_call_id": ("spring.ai.tool.call.id",),
        "conversation_id": ("spring.ai.chat.client.conversation.id",),
    },
    content={
        "arguments": ("spring.ai.tool.call.arguments",),
        "result": ("spring.ai.tool.call.result",),
        "query": ("db.vector.query.content",),
        "documents": ("db.vector.query.response.documents",),
    },
    ignore={
        "provider": not_provider("spring_ai", "none"),
        "request_model": _is_none,
        "response_model": _is_none,
        "response_id": _is_none,
        "tool_name": _is_none,
        "tool_call_id": _is_none,
        "conversation_id": _is_no_conversation,
    },
    names=_names,
)
