"""AgentOps (dialects.md §28; names read from agentops/semconv, not captured): decorated functions by `agentops.span.kind`,
with `agentops.entity.*`; model calls are flattened like the oldest GenAI conventions.
"""

from __future__ import annotations

from otel_blackboard.processor.dialects.dialect import (
    AGENT,
    CHAT,
    EXECUTE_TOOL,
    GUARDRAIL,
    NO_ROLE,
    NODE,
    RUN,
    Dialect,
    Role,
)
from otel_blackboard.processor.values import first_text
from otel_blackboard.processor.wrappers import call_arguments
from otel_blackboard.records import Span

_KINDS = {
    "session": RUN,
    "workflow": RUN,
    "agent": AGENT,
    "task": NODE,
    "operation": NODE,
    "tool": EXECUTE_TOOL,
    "llm": CHAT,
    "guardrail": GUARDRAIL,
    "team": NO_ROLE,
    "chain": NO_ROLE,
    "text": NO_ROLE,
    "http": NO_ROLE,
    "unknown": NO_ROLE,
}


def _role(span: Span) -> Role | None:
    return _KINDS.get(first_text(span.attributes.get("agentops.span.kind")).lower())


_NAMED = {
    "agent": "agent_id",
    "task": "step_name",
    "operation": "step_name",
    "tool": "tool_name",
    "workflow": "run_name",
}


def _names(span: Span, role: Role) -> dict[str, str]:
    fact = _NAMED.get(first_text(span.attributes.get("agentops.span.kind")).lower())
    name = first_text(span.attributes.get("agentops.entity.name"))
    return {fact: name} if fact and name else {}


DIALECT = Dialect(
    name="agentops",
    lacks=("Usage under names of its own. Read from its source."),
    keys=("agentops.",),
    role=_role,
    facts={},
    content={
        "input": ("agentops.entity.input",),
        "output": ("agentops.entity.output",),
        "arguments": ("agentops.entity.input",),
        "result": ("agentops.entity.output",),
    },
    unwrap={"arguments": call_arguments},
    names=_names,
)
