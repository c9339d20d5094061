"""Spans of Temporal's OpenTelemetry interceptors (read: temporalio 1.x for Python, Go, Java, Ruby, .NET).

`RunWorkflow:<type>` is the run and `RunActivity:<type>` a step of it; workflow and run id bring the traces of one execution
together. An activity id is one execution of an activity: what runs again under the same id is the next attempt.
"""

from __future__ import annotations

from otel_blackboard.processor.dialects.dialect import NODE, RUN, Dialect, Role
from otel_blackboard.processor.identity import slug
from otel_blackboard.processor.values import first_text
from otel_blackboard.records import Light, Span

_WORKFLOW, _RUN, _ACTIVITY = "temporalWorkflowID", "temporalRunID", "temporalActivityID"


def _role(span: Span) -> Role | None:
    return {"RunWorkflow": RUN, "RunActivity": NODE}.get(span.name.partition(":")[0])


def _names(span: Span, role: Role) -> dict[str, str]:
    what = span.name.partition(":")[2]
    return {"run_name": what} if role is RUN else {"step_name": what} if role is NODE else {}


def _complete(light: Light, span: Span) -> None:
    if light.role == NODE.role:
        light.step_id = light.step_id or "step_" + slug(light.step_name or light.name)
        if activity := first_text(span.attributes.get(_ACTIVITY)):  # counted anew in each workflow
            light.labels["pass_key"] = f"{first_text(span.attributes.get(_RUN))}/{activity}"


def _join_key(span: Span) -> str:
    workflow, run = first_text(span.attributes.get(_WORKFLOW)), first_text(span.attributes.get(_RUN))
    return f"{workflow}/{run}" if run else ""


DIALECT = Dialect(
    name="temporal",
    lacks=("Content: it carries where a call ran, and which attempt it was."),
    keys=(_WORKFLOW, _RUN, _ACTIVITY),
    role=_role,
    labels={"workflow_id": (_WORKFLOW,), "workflow_run_id": (_RUN,), "activity_id": (_ACTIVITY,)},
    names=_names,
    complete=_complete,
    join_key=_join_key,
)
