"""Semantic Kernel (dialects.md §13): the GenAI conventions of the first events, by Python's logging.

The content of a model call is in log records alone: `event.name` is an attribute, the body a JSON string, the order
`CHAT_MESSAGE_INDEX`. The finish reason is singular and an enum's name (`FinishReason.STOP`).
"""

from __future__ import annotations

from otel_blackboard.processor.dialects.dialect import NO_ROLE, Dialect, Role
from otel_blackboard.records import Span

SCOPE = "semantic_kernel."


def _role(span: Span) -> Role | None:
    return NO_ROLE if span.name == "AutoFunctionInvocationLoop" and span.scope.name.startswith(SCOPE) else None


DIALECT = Dialect(
    name="semantic_kernel",
    lacks=("Content, except as log records of Python's logging."),
    keys=("sk.available_functions",),
    scopes=(SCOPE,),
    role=_role,
    facts={},
)
