"""Laminar, also below the OpenHands SDK (dialects.md §28; names only, not captured).

`lmnr.span.type` = LLM, TOOL, DEFAULT, CACHED (an answer that was not asked for again) and the kinds of evaluations; model
calls have the GenAI conventions' attributes besides.
"""

from __future__ import annotations

from otel_blackboard.processor.dialects.dialect import CHAT, EXECUTE_TOOL, NO_ROLE, TOOL, Dialect, Role
from otel_blackboard.processor.values import first_text
from otel_blackboard.records import Span

_TYPES = {"LLM": CHAT, "TOOL": EXECUTE_TOOL, "CACHED": NO_ROLE}


def _role(span: Span) -> Role | None:
    return _TYPES.get(first_text(span.attributes.get("lmnr.span.type")))


def _names(span: Span, role: Role) -> dict[str, str]:
    return {"tool_name": span.name} if role.role == TOOL else {}


_PROPERTIES = "lmnr.association.properties."

DIALECT = Dialect(
    name="laminar",
    lacks=("Ids of tool calls. Read from its source."),
    keys=("lmnr.",),
    role=_role,
    facts={"conversation_id": (f"{_PROPERTIES}session_id",), "user_id": (f"{_PROPERTIES}user_id",)},
    content={
        "input": ("lmnr.span.input",),
        "output": ("lmnr.span.output",),
        "arguments": ("lmnr.span.input",),
        "result": ("lmnr.span.output",),
    },
    names=_names,
)
