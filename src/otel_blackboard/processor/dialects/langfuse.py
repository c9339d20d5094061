"""Langfuse SDK 3 to 5 (dialects.md §18): keys `langfuse.*`, role by `langfuse.observation.type`.

An observation is called as its function is, or as was said where it began. The input of an observed function is
`{"args": […], "kwargs": {…}}`. Its usage has OpenAI's keys, or `input`, `output` and free keys, each of which then counts
what no other does. What holds for the whole trace stands on every span. Scores do not come over OTLP.
"""

from __future__ import annotations

from datetime import UTC, datetime

from otel_blackboard.processor.dialects.answers import TIME_TO_FIRST_TOKEN
from otel_blackboard.processor.dialects.dialect import (
    AGENT,
    CHAT,
    EMBEDDINGS,
    EXECUTE_TOOL,
    GUARD,
    GUARDRAIL,
    NO_ROLE,
    NODE,
    RETRIEVAL,
    Dialect,
    Role,
    inside,
)
from otel_blackboard.processor.usage import take_usage
from otel_blackboard.processor.values import first_text, parsed
from otel_blackboard.processor.wrappers import call_arguments
from otel_blackboard.records import Light, Span, Value

_TYPES: dict[str, Role] = {
    "generation": CHAT,
    "embedding": EMBEDDINGS,
    "agent": AGENT,
    "tool": EXECUTE_TOOL,
    "retriever": RETRIEVAL,
    "guardrail": GUARDRAIL,
    "evaluator": Role("verifier", "evaluate"),
    "event": NO_ROLE,
    # A `span` is what an observation is that says nothing of itself: something else on it may.
}


def _role(span: Span) -> Role | None:
    kind = first_text(span.attributes.get("langfuse.observation.type"))
    if kind == "chain":  # metadata passes down: the node of a graph is what is called as it says
        node = parsed(span.attributes.get("langfuse.observation.metadata.langgraph_node"))
        return NODE if node and node == span.name else NO_ROLE
    return _TYPES.get(kind)


def _names(span: Span, role: Role) -> dict[str, str]:
    return {"agent_id": span.name} if role is AGENT else {"step_name": span.name} if role is NODE else {}


def _time_ns(value: Value) -> int:
    """A moment as ISO 8601, in JSON's quotes; -1 = none."""
    if not isinstance(value, str):
        return -1
    try:
        moment = datetime.fromisoformat(value.strip('"'))
    except ValueError:
        return -1
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1_000


def _complete(light: Light, span: Span) -> None:
    attributes = span.attributes
    if (usage := attributes.get("langfuse.observation.usage_details")) is not None:
        take_usage(light, parsed(usage))
    if (began := _time_ns(attributes.get("langfuse.observation.completion_start_time"))) >= span.start_ns:
        light.labels.setdefault(TIME_TO_FIRST_TOKEN, str((began - span.start_ns) // 1_000_000))
    if attributes.get("langfuse.observation.level") == "ERROR" and light.status != "running":
        light.status = "failed"
        light.error = light.error or first_text(attributes.get("langfuse.observation.status_message"))
    if light.role == GUARD and "langfuse.observation.type" in attributes:
        light.labels.setdefault("guard_name", span.name)
        if verdict := first_text(attributes.get("langfuse.observation.output")):
            light.labels.setdefault("guard_result", verdict[:500])


DIALECT = Dialect(
    name="langfuse",
    lacks=("Ids of tool calls. That a generation was told by hand. Scores, which go to Langfuse alone."),
    keys=("langfuse.",),
    scopes=("langfuse-sdk",),
    role=_role,
    facts={
        "run_name": ("langfuse.trace.name",),
        "conversation_id": ("session.id", "langfuse.session.id"),
        "user_id": ("langfuse.user.id",),
        "response_model": ("langfuse.observation.model.name",),
        "cost_usd": (inside("langfuse.observation.cost_details", "total"),),
    },
    content={
        "input": ("langfuse.observation.input",),
        "output": ("langfuse.observation.output",),
        "arguments": ("langfuse.observation.input",),
        "result": ("langfuse.observation.output",),
    },
    labels={
        "tags": ("langfuse.trace.tags",),
        "prompt_name": ("langfuse.observation.prompt.name",),
        "prompt_version": ("langfuse.observation.prompt.version",),
        "release": ("langfuse.release",),
        "environment": ("langfuse.environment",),
    },
    unwrap={"arguments": call_arguments},
    names=_names,
    complete=_complete,
)
