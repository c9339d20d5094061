"""Mastra's exporter, scope `@mastra/…` (dialects.md §28; names read from @mastra/otel-exporter, not captured).

The GenAI conventions on model, agent and tool spans; usage on `model_generation` alone, whose `model_step`s and
`model_chunk`s only take it apart. What other spans got and gave is `mastra.<span type>.input` and `.output`.
"""

from __future__ import annotations

from otel_blackboard.processor.dialects.dialect import (
    AGENT,
    CHAT,
    EMBEDDINGS,
    EXECUTE_TOOL,
    NO_ROLE,
    NODE,
    RUN,
    Dialect,
    Role,
)
from otel_blackboard.processor.values import first_text
from otel_blackboard.records import Span

_TYPES = {
    "agent_run": AGENT,
    "workflow_run": RUN,
    "workflow_step": NODE,
    "model_generation": CHAT,
    "rag_embedding": EMBEDDINGS,
    "tool_call": EXECUTE_TOOL,
    "mcp_tool_call": EXECUTE_TOOL,
    "provider_tool_call": EXECUTE_TOOL,
}


def _role(span: Span) -> Role | None:
    kind = first_text(span.attributes.get("mastra.span.type"))
    return _TYPES.get(kind, NO_ROLE) if kind else None


_NAMED = {"workflow_run": "run_name", "workflow_step": "step_name", "agent_run": "agent_id"}


def _names(span: Span, role: Role) -> dict[str, str]:
    """`invoke_workflow weather`, `workflow_step fetch`, `invoke_agent bot`: operation and entity."""
    fact = _NAMED.get(first_text(span.attributes.get("mastra.span.type")))
    name = span.name.partition(" ")[2]
    return {fact: name} if fact and name else {}


DIALECT = Dialect(
    name="mastra",
    lacks=("Ids of tool calls. Read from its source."),
    keys=("mastra.",),
    scopes=("@mastra/",),
    role=_role,
    facts={},
    content={
        "input": ("mastra.agent_run.input", "mastra.workflow_run.input", "mastra.workflow_step.input"),
        "output": ("mastra.agent_run.output", "mastra.workflow_run.output", "mastra.workflow_step.output"),
    },
    names=_names,
)
