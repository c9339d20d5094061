"""LangSmith's OpenTelemetry export (dialects.md §6): scope `langsmith`, role by `langsmith.span.kind`.

`gen_ai.prompt` and `gen_ai.completion` are the inputs and outputs of every run, whatever its kind, as JSON; of a model call
through LangChain its serialised messages and `LLMResult`. `gen_ai.operation.name` is wrong for prompts and retrievers.
Metadata passes down to all runs below, so a graph node is a chain that is called as `langgraph_node` says, and an agent one
that is called as `lc_agent_name` says or lies in no node.
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
    Dialect,
    Role,
    Source,
    inside,
    not_provider,
)
from otel_blackboard.processor.values import first_text, parsed
from otel_blackboard.processor.wrappers import response_id, tool_message
from otel_blackboard.records import Light, Span, Value

_KINDS: dict[str, Role] = {
    "llm": CHAT,
    "tool": EXECUTE_TOOL,
    "retriever": RETRIEVAL,
    "embedding": EMBEDDINGS,
    "prompt": NO_ROLE,
    "parser": NO_ROLE,
}


def _role(span: Span) -> Role | None:
    kind = first_text(span.attributes.get("langsmith.span.kind"))
    return _chain(span) if kind == "chain" else _KINDS.get(kind)


def _chain(span: Span) -> Role:
    agent = first_text(span.attributes.get("langsmith.metadata.lc_agent_name"))
    node = first_text(span.attributes.get("langsmith.metadata.langgraph_node"))
    if agent and (not node or span.name == agent):
        return AGENT
    return NODE if node and span.name == node else NO_ROLE


def _names(span: Span, role: Role) -> dict[str, str]:
    names = {}
    if not span.parent_span_id:
        names["run_name"] = first_text(span.attributes.get("langsmith.trace.name"))
    if role is NODE:
        names["step_name"] = span.name
    return names


def _complete(light: Light, span: Span) -> None:
    """Model and response id stand inside the answer alone. A failure may be told by its exception alone: where a run's
    begin and end are exported apart, its span has status OK from the first, which no later one replaces (0.15)."""
    if light.status == "succeeded" and any(event.name == "exception" for event in span.events):
        light.status = "failed"
    if light.role != PROVIDER_CALL or light.operation != "chat":
        return
    answer = parsed(span.attributes.get("gen_ai.completion"))
    if not isinstance(answer, dict):
        return
    said = _response_metadata(answer)
    light.response_model = light.response_model or first_text(said.get("model_name")) or first_text(said.get("model"))
    light.response_id = light.response_id or (response_id(answer) if said is answer else first_text(said.get("id")))


def _response_metadata(answer: dict[str, Any]) -> dict[str, Any]:
    """Of the first generation of an `LLMResult`; without LangChain the answer is the provider's own."""
    found: Any = answer.get("generations")
    while isinstance(found, list) and found:
        found = found[0]
    for name in ("message", "kwargs", "response_metadata"):
        if isinstance(found, dict):
            found = found.get(name, found if name == "kwargs" else None)
    return found if isinstance(found, dict) else answer


def _of_usage(*path: str) -> Source:
    return inside("langsmith.metadata.usage_metadata", *path)


def _tags(value: Value) -> Value:
    return [*value.split(", ")] if isinstance(value, str) else value


def _something(value: Value) -> Value:
    """The outputs of a run that failed are `{}`."""
    return None if value == "{}" else value


def _tool_result(value: Value) -> Value:
    """What a tool gave, out of `{"output": …}`, and out of LangChain's ToolMessage in it."""
    data = parsed(value)
    if not isinstance(data, dict) or data.keys() != {"output"}:
        return value
    output = data["output"]
    if isinstance(output, dict) and output.get("type") == "tool" and "content" in output:
        return output["content"]  # type: ignore[no-any-return]
    return tool_message(output)


DIALECT = Dialect(
    name="langsmith",
    lacks=("Embeddings, usage of streams, the provider of calls that are none of a model."),
    keys=("langsmith.",),
    scopes=("langsmith",),
    role=_role,
    facts={
        "agent_id": ("langsmith.metadata.lc_agent_name",),
        "conversation_id": ("langsmith.metadata.session_id", "langsmith.metadata.thread_id"),
        "user_id": ("langsmith.metadata.user_id",),
        "provider": ("langsmith.metadata.ls_provider",),
        "request_model": ("langsmith.metadata.ls_model_name",),
        "input_tokens": (_of_usage("input_tokens"),),
        "output_tokens": (_of_usage("output_tokens"),),
        "cached_input_tokens": (_of_usage("input_token_details", "cache_read"),),
        "cache_write_tokens": (_of_usage("input_token_details", "cache_creation"),),
        "reasoning_tokens": (_of_usage("output_token_details", "reasoning"),),
    },
    content={
        "arguments": ("gen_ai.prompt",),
        "result": (Source("gen_ai.completion", _something),),
    },
    labels={"tags": (Source("langsmith.span.tags", _tags),)},
    unwrap={"result": _tool_result},
    names=_names,
    ignore={"provider": not_provider("langchain")},
    complete=_complete,
)
