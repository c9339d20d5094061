"""The product's own attributes (TRC-09): first in every order, for they are said on purpose."""

from __future__ import annotations

from otel_blackboard.processor.dialects.dialect import PROVIDER_CALL, ROLES, STEP, TOOL, Dialect, Role
from otel_blackboard.processor.values import first_text
from otel_blackboard.records import Span

_OPERATIONS = {PROVIDER_CALL: "chat", TOOL: "execute_tool", STEP: "invoke_agent", "flow_run": "invoke_workflow"}


def _role(span: Span) -> Role | None:
    role = first_text(span.attributes.get("blackboard.span.role"))
    if role not in ROLES:
        return None
    return Role(role, _OPERATIONS.get(role, ""), is_agent=role == STEP, is_node="blackboard.step.id" in span.attributes)


DIALECT = Dialect(
    name="blackboard",
    keys=("blackboard.",),
    role=_role,
    facts={
        "run_id": ("blackboard.run.id",),
        "run_name": ("blackboard.run.name",),
        "step_id": ("blackboard.step.id",),
        "step_name": ("blackboard.step.name",),
        "use_case_id": ("blackboard.use_case.id",),
        "mode": ("blackboard.agent.mode",),
        "pass_seq": ("blackboard.pass.seq",),
        "attempt": ("blackboard.pass.attempt",),
        "call_seq": ("blackboard.call.seq",),
        "loop_iteration": ("blackboard.loop.iteration",),
        "output_retry": ("blackboard.output.retry",),
        "retry_count": ("blackboard.retry.count",),
        "tool_class": ("blackboard.tool.class",),
        "cost_usd": ("blackboard.cost.usd",),
    },
    content={
        "request": ("blackboard.request.body",),
        "response": ("blackboard.response.body",),
        "summary": ("blackboard.summary",),
    },
    labels={
        "outcome": ("blackboard.outcome",),
        "failure_reason": ("blackboard.failure.reason",),
        "skill_name": ("blackboard.skill.name",),
        "skill_version": ("blackboard.skill.version",),
        "guard_name": ("blackboard.guard.name",),
        "guard_status": ("blackboard.guard.status",),
        "guard_type": ("blackboard.guard.type",),
        "fallback_from": ("blackboard.fallback.from",),
        "fallback_to": ("blackboard.fallback.to",),
        "simulated": ("blackboard.simulated",),
        "trigger": ("blackboard.trigger",),
        "client_id": ("blackboard.client.id",),
        "autonomous": ("blackboard.agent.autonomous",),
        "brand_id": ("blackboard.brand.id",),
        "object_id": ("blackboard.object.id",),
        "from_log": ("blackboard.from_log",),
        "traced": ("blackboard.traced",),
        "stream_id": ("blackboard.stream.id",),
        "script_id": ("blackboard.script.id",),
    },
)
