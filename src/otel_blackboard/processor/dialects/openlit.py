"""OpenLIT (dialects.md §28; names only, not captured): the GenAI conventions with additions of its own, and guards."""

from __future__ import annotations

from otel_blackboard.processor.dialects.answers import TIME_TO_FIRST_TOKEN, seconds
from otel_blackboard.processor.dialects.dialect import GUARDRAIL, Dialect, Role
from otel_blackboard.records import Span

SCOPE = "openlit."


def _role(span: Span) -> Role | None:
    return GUARDRAIL if "guard.verdict" in span.attributes and "gen_ai.operation.name" not in span.attributes else None


DIALECT = Dialect(
    name="openlit",
    lacks=("Ids of tool calls. Read from its documentation."),
    keys=("guard.verdict", "gen_ai.tool.args", "gen_ai.request.user"),
    scopes=(SCOPE, "openlit"),
    role=_role,
    facts={"user_id": ("gen_ai.request.user",)},
    content={
        "input": ("gen_ai.workflow.input",),
        "output": ("gen_ai.workflow.output",),
        "arguments": ("gen_ai.tool.args",),
    },
    labels={
        "guard_name": ("guard.name", "guard.validator"),
        "guard_status": ("guard.verdict",),
        "guard_type": ("guard.phase",),
        "guard_score": ("guard.score",),
        "guard_reason": ("guard.explanation",),
        TIME_TO_FIRST_TOKEN: (seconds("gen_ai.server.time_to_first_token"),),
    },
)
