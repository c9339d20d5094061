"""Microsoft Agent Framework (dialects.md §14): the GenAI conventions, content in attributes and once more as log events.

`workflow.run` > `executor.process X` > `invoke_agent X`; what only builds or carries messages has no role.
"""

from __future__ import annotations

import re

from otel_blackboard.processor.dialects.dialect import NO_ROLE, NODE, RUN, Dialect, Role, not_provider
from otel_blackboard.processor.values import first_text
from otel_blackboard.records import Span, Value

SCOPE = "agent_framework"
_UNNAMED = re.compile(r"WorkflowBuilder-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

# First word of the span's name → role.
_ROLES = {
    "workflow.run": RUN,
    "executor.process": NODE,
    "workflow.build": NO_ROLE,
    "edge_group.process": NO_ROLE,
    "message.send": NO_ROLE,
}


def _role(span: Span) -> Role | None:
    return _ROLES.get(span.name.partition(" ")[0]) if span.scope.name == SCOPE else None


def _names(span: Span, role: Role) -> dict[str, str]:
    """An executor that runs an agent has the agent's name and is its pass."""
    executor = first_text(span.attributes.get("executor.id"))
    runs_agent = first_text(span.attributes.get("executor.type")) == "AgentExecutor"
    return {"agent_id": executor} if runs_agent and executor else {}


def _is_previous_response(span: Span, value: Value) -> bool:
    """The previous response's id: another value with every call."""
    return span.scope.name == SCOPE and isinstance(value, str) and value.startswith("resp_")


def _is_made_up(span: Span, value: Value) -> bool:
    """What the framework calls a workflow without a name: another one with every run."""
    return isinstance(value, str) and _UNNAMED.fullmatch(value) is not None


DIALECT = Dialect(
    name="agent_framework",
    lacks=(
        "The conversation: its id is that of the previous response, another one with each call. Messages that the "
        "provider keeps: a later call has only what is new."
    ),
    keys=(),
    scopes=(SCOPE,),
    role=_role,
    facts={"run_name": ("workflow.name",), "step_name": ("executor.id",)},
    ignore={
        "provider": not_provider("microsoft.agent_framework"),
        "conversation_id": _is_previous_response,
        "run_name": _is_made_up,
    },
    names=_names,
)
