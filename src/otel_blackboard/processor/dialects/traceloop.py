"""OpenLLMetry (Traceloop), old (0.4x, 2025) and new (0.6x, 2026) (dialects.md §3).

Decorators and frameworks: `traceloop.span.kind` with `traceloop.entity.*`. Model calls have no such kind: the new ones
are the GenAI conventions', the old ones say `llm.request.type`, and content is flattened (`gen_ai.prompt.N.*`,
`gen_ai.completion.N.*`, `llm.request.functions.N.*`). Association properties are whatever the application set.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from otel_blackboard.processor.dialects.dialect import (
    AGENT,
    CHAT,
    EMBEDDINGS,
    EXECUTE_TOOL,
    FLOW_RUN,
    NO_ROLE,
    NODE,
    PROVIDER_CALL,
    RUN,
    TOOL,
    Dialect,
    Role,
    Source,
    inside,
    not_provider,
)
from otel_blackboard.processor.values import first_text, parsed
from otel_blackboard.processor.wrappers import call_arguments, python_literal, tool_message
from otel_blackboard.records import Light, Span, Value

_CREWAI, _CREW = "opentelemetry.instrumentation.crewai", "crewai.workflow"
"""What runs a crew has no kind; 0.62 calls it an agent's, 0.45 nothing (read)."""

_KINDS = {"workflow": RUN, "agent": AGENT, "task": NODE, "tool": EXECUTE_TOOL}
_REQUESTS = {"chat": CHAT, "completion": CHAT, "embedding": EMBEDDINGS, "rerank": Role(PROVIDER_CALL, "rerank")}


def _role(span: Span) -> Role | None:
    attributes = span.attributes
    kind = first_text(attributes.get("traceloop.span.kind"))
    if not kind and span.name == _CREW and span.scope.name == _CREWAI:
        return RUN
    if attributes.get("gen_ai.operation.name") == "create_agent":  # LangGraph: a trace of its own
        return NO_ROLE
    # Only what runs inside a task or a tool has a path: a workflow there is a part of the run, not a run.
    if kind == "workflow" and first_text(attributes.get("traceloop.entity.path")):
        return NODE
    return _KINDS.get(kind) or _REQUESTS.get(first_text(attributes.get("llm.request.type")))


_NAMED = {FLOW_RUN: "run_name", TOOL: "tool_name"}


def _names(span: Span, role: Role) -> dict[str, str]:
    fact = "agent_id" if role.is_agent else "step_name" if role.is_node else _NAMED.get(role.role)
    name = first_text(span.attributes.get("traceloop.entity.name"))
    return {fact: name} if fact and name else {}


# gen_ai.system of 0.4x → gen_ai.provider.name.
_PROVIDERS = {
    "OpenAI": "openai",
    "Anthropic": "anthropic",
    "Azure": "azure.ai.openai",
    "AWS": "aws.bedrock",
    "Google": "gcp.gen_ai",
    "VertexAI": "gcp.vertex_ai",
    "Cohere": "cohere",
    "Groq": "groq",
    "MistralAI": "mistral_ai",
    "Watsonx": "ibm.watsonx.ai",
}


def _complete(light: Light, span: Span) -> None:
    light.provider = _PROVIDERS.get(light.provider, light.provider)


def _arguments(value: Value) -> Value:
    """LangGraph tools: `{"input_str": "{'city': 'Paris'}", "tags": …, "metadata": …}`, a Python repr inside JSON."""
    data = parsed(value)
    if isinstance(data, dict) and isinstance(data.get("input_str"), str):
        text = data["input_str"]
        inner = parsed(text)
        return python_literal(text) if inner is text else inner
    return call_arguments(value)


def _result(value: Value) -> Value:
    """LangGraph tools: `{"output": {"lc": 1, …}}`."""
    data = parsed(value)
    if isinstance(data, dict) and data.keys() == {"output"}:
        inner = data["output"]
        said = tool_message(inner)
        return value if said is inner else said
    return tool_message(value)


def _crew_tokens(name: str) -> Callable[[Value], Value]:
    """`total_tokens=276 prompt_tokens=240 …`, the whole crew's."""
    pattern = re.compile(rf"\b{name}=(\d+)")

    def read(value: Value) -> Value:
        found = pattern.search(value) if isinstance(value, str) else None
        return found[1] if found else None

    return read


_PROPERTIES = "traceloop.association.properties."

DIALECT = Dialect(
    name="traceloop",
    lacks=(
        "0.45: failed Anthropic requests have no span, Anthropic streams no usage. 0.62: LlamaIndex's model calls, "
        "usage of its embeddings. Names of positional tool arguments."
    ),
    keys=("traceloop.", "llm.request.type", "gen_ai.task.", "crewai."),
    scopes=(
        "traceloop.tracer",
        "opentelemetry.instrumentation.langchain",
        _CREWAI,
    ),
    role=_role,
    facts={
        # In 0.45 a nested agent overwrites it for all below: the run goes by its root.
        "run_name": ("traceloop.workflow.name",),
        "step_name": ("gen_ai.task.name", "crewai.task.name"),
        "agent_id": ("crewai.agent.role",),
        "conversation_id": (f"{_PROPERTIES}session_id", f"{_PROPERTIES}thread_id"),
        "user_id": (f"{_PROPERTIES}user_id",),
        "tool_call_id": (inside("gen_ai.tool.call.result", "output", "kwargs", "tool_call_id"),),
        "input_tokens": (Source("crewai.crew.token_usage", _crew_tokens("prompt_tokens")),),
        "output_tokens": (Source("crewai.crew.token_usage", _crew_tokens("completion_tokens")),),
    },
    content={
        "input": ("gen_ai.task.input", "traceloop.entity.input"),
        "output": ("gen_ai.task.output", "traceloop.entity.output", "crewai.crew.result"),
        "tools": ("llm.request.functions.*",),
        "arguments": ("traceloop.entity.input",),
        "result": ("traceloop.entity.output",),
    },
    labels={
        "prompt_name": ("traceloop.prompt.key",),
        "prompt_version": ("traceloop.prompt.version",),
    },
    ignore={"provider": not_provider("langchain", "Langchain", "langgraph", "crewai", "llamaindex")},
    unwrap={"arguments": _arguments, "result": _result},
    names=_names,
    complete=_complete,
)
