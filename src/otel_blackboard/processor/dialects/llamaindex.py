"""LlamaIndex under OpenLLMetry's instrumentation (dialects.md §15): every method is a span, named after its class.

`<Class>.workflow` for what has nothing above, `<Class>.task` for all else; model calls are missing (0.62). So the class
says what a span is, and only an agent, a tool, a retriever or an embedding is more than plumbing. Names and ids of the
agent and the tool stand in `traceloop.entity.output` alone.
"""

from __future__ import annotations

from otel_blackboard.processor.dialects.dialect import (
    AGENT,
    EMBEDDINGS,
    EXECUTE_TOOL,
    NO_ROLE,
    RETRIEVAL,
    RUN,
    TOOL,
    Dialect,
    Role,
    inside,
)
from otel_blackboard.processor.values import first_text, parsed
from otel_blackboard.records import Light, Span

_INPUT, _OUTPUT = "traceloop.entity.input", "traceloop.entity.output"
SCOPE = "opentelemetry.instrumentation.llamaindex"


def _class_and_kind(span: Span) -> tuple[str, str]:
    name, _, kind = first_text(span.attributes.get("traceloop.entity.name")).rpartition(".")
    return name, kind


def _role(span: Span) -> Role | None:
    if span.scope.name != SCOPE:
        return None
    attributes = span.attributes
    name, kind = _class_and_kind(span)
    operation = first_text(attributes.get("gen_ai.operation.name"))
    if operation == "embeddings":
        return EMBEDDINGS
    if operation or not kind:
        return None
    if "tool.name" in attributes or name.endswith("Tool"):
        return EXECUTE_TOOL
    if name.endswith("Retriever"):
        return RETRIEVAL
    if kind != "workflow":
        return NO_ROLE
    return AGENT if name.endswith("Agent") else RUN


def _names(span: Span, role: Role) -> dict[str, str]:
    if span.scope.name != SCOPE:
        return {}
    name, kind = _class_and_kind(span)
    named = {"agent_id": name} if role.is_agent else {"tool_name": name} if role.role == TOOL else {}
    return named | ({"run_name": name} if kind == "workflow" else {})


def _complete(light: Light, span: Span) -> None:
    """A tool that failed says so in its output only: `{"tool_output": {"is_error": true, …}}` or without the wrapper."""
    output = span.attributes.get(_OUTPUT)
    if (
        light.role != TOOL
        or light.status != "succeeded"
        or not isinstance(output, str)
        or '"is_error": true' not in output
    ):
        return
    said = parsed(output)
    said = said.get("tool_output", said) if isinstance(said, dict) else said
    if isinstance(said, dict) and said.get("is_error") is True:
        blocks = said.get("blocks")
        texts = [block.get("text") for block in blocks if isinstance(block, dict)] if isinstance(blocks, list) else []
        light.status, light.error = "failed", "".join(text for text in texts if isinstance(text, str))[:2_000]


DIALECT = Dialect(
    name="llamaindex",
    lacks=("Model calls, and usage of embeddings."),
    keys=(),
    scopes=(SCOPE,),
    role=_role,
    facts={
        "agent_id": (inside(_OUTPUT, "result", "current_agent_name"), inside(_OUTPUT, "current_agent_name")),
        "tool_name": ("tool.name", inside(_OUTPUT, "tool_name")),
        "tool_call_id": (inside(_OUTPUT, "tool_id"),),
    },
    content={
        "arguments": ("tool.arguments", inside(_INPUT, "kwargs")),
        "result": (inside(_OUTPUT, "tool_output", "raw_output"), inside(_OUTPUT, "raw_output")),
        "query": (
            inside(_INPUT, "query_bundle", "query_str"),
            inside(_INPUT, "str_or_query_bundle", "query_str"),
            inside(_INPUT, "str_or_query_bundle"),
        ),
        "documents": (_OUTPUT,),
        "output": (inside(_OUTPUT, "result", "response"),),
    },
    names=_names,
    complete=_complete,
)
