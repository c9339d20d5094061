"""Haystack 2 and 3, its own tracing (dialects.md §16): keys `haystack.*`, under a scope of the user's choice.

What a span is stands in its name (`haystack.agent.step.llm`), of a component in the end of its type
(`OpenAIChatGenerator`). Model and usage of a call are in the JSON of its answer alone: `replies[].meta`, of an embedder
`meta`. Tool calls have no id, agents no name. Content needs HAYSTACK_CONTENT_TRACING_ENABLED; without it there is no usage.
"""

from __future__ import annotations

from typing import Any

from otel_blackboard.processor.dialects.dialect import (
    AGENT,
    CHAT,
    EMBEDDINGS,
    EXECUTE_TOOL,
    NO_ROLE,
    NODE,
    PROVIDER_CALL,
    RETRIEVAL,
    RUN,
    Dialect,
    Role,
    inside,
)
from otel_blackboard.processor.usage import take_usage
from otel_blackboard.processor.values import first_text, parsed
from otel_blackboard.records import Light, Span, Value

_SPANS: dict[str, Role] = {
    "haystack.pipeline.run": RUN,
    "haystack.agent.run": AGENT,
    "haystack.agent.step": NO_ROLE,
    "haystack.agent.step.llm": CHAT,
    "haystack.agent.step.tool": EXECUTE_TOOL,
}
_COMPONENTS = (("Generator", CHAT), ("Retriever", RETRIEVAL), ("Embedder", EMBEDDINGS), ("", NODE))


def _role(span: Span) -> Role | None:
    if span.name == "haystack.component.run":
        kind = first_text(span.attributes.get("haystack.component.type"))
        return next(role for ending, role in _COMPONENTS if kind.endswith(ending))
    return _SPANS.get(span.name)


def _names(span: Span, role: Role) -> dict[str, str]:
    component = first_text(span.attributes.get("haystack.component.name"))
    return {"tool_name": component} if role is RETRIEVAL else {"step_name": component} if role is NODE else {}


def _complete(light: Light, span: Span) -> None:
    if light.role != PROVIDER_CALL:
        return
    attributes = span.attributes
    answer = attributes.get("haystack.agent.step.llm.output", attributes.get("haystack.component.output"))
    if (meta := _meta(answer)) is not None:
        light.response_model = light.response_model or first_text(meta.get("model"))
        take_usage(light, meta.get("usage"))


def _meta(value: Value) -> dict[str, Any] | None:
    """Of the first reply; of generators of plain text `{replies: [text], meta: [{…}]}`; of embedders `{meta: {…}}`."""
    answer = parsed(value)
    if not isinstance(answer, dict):
        return None
    replies = answer.get("replies")
    first = replies[0] if isinstance(replies, list) and replies else None
    meta = first.get("meta") if isinstance(first, dict) else answer.get("meta")
    meta = meta[0] if isinstance(meta, list) and meta else meta
    return meta if isinstance(meta, dict) else None


DIALECT = Dialect(
    name="haystack",
    lacks=(
        "Ids of tool calls. Everything but names and times, unless content tracing is on: usage and model stand "
        "inside the content."
    ),
    keys=("haystack.",),
    role=_role,
    facts={
        "run_name": (inside("haystack.pipeline.metadata", "name"),),
        "tool_name": ("haystack.tool.name",),
    },
    content={
        "input": (
            "haystack.agent.step.llm.input",
            "haystack.component.input",
            "haystack.agent.input",
            "haystack.pipeline.input_data",
        ),
        "output": (
            "haystack.agent.step.llm.output",
            "haystack.component.output",
            "haystack.agent.output",
            "haystack.pipeline.output_data",
        ),
        "arguments": ("haystack.agent.step.tool.input", "haystack.component.input"),
        "result": ("haystack.agent.step.tool.output", "haystack.component.output"),
    },
    names=_names,
    complete=_complete,
)
