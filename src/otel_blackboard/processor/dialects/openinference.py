"""OpenInference (Arize): dialects.md §2, and what its instrumentations of frameworks do otherwise (§10 … §12, §15, §25, §26).

The kind of a span is explicit, and says little of a CHAIN: that is the run where it has no parent, a step where it is a
node of a graph, else only a wrapper. Content stands in `input.value` and `output.value` of every kind of span, messages in
flattened families beside them. Facts that have no attribute stand inside those values, or in `metadata` (JSON).
"""

from __future__ import annotations

import re

from otel_blackboard.processor.dialects.answers import FINISH_REASON, TIME_TO_FIRST_TOKEN
from otel_blackboard.processor.dialects.dialect import (
    AGENT,
    CHAT,
    EMBEDDINGS,
    EXECUTE_TOOL,
    FLOW_RUN,
    GUARDRAIL,
    NO_ROLE,
    NODE,
    PROVIDER_CALL,
    RERANK,
    RETRIEVAL,
    RUN,
    TOOL,
    VERIFIER,
    Dialect,
    Role,
    Source,
    inside,
    value_at,
)
from otel_blackboard.processor.values import first_text, parsed, to_json
from otel_blackboard.processor.wrappers import (
    call_arguments,
    function_response,
    python_literal,
    response_id,
    tool_message,
    tool_message_fields,
)
from otel_blackboard.records import Light, Span, Value

_KINDS: dict[str, Role] = {
    "LLM": CHAT,
    "EMBEDDING": EMBEDDINGS,
    "RERANKER": RERANK,
    "TOOL": EXECUTE_TOOL,
    "RETRIEVER": RETRIEVAL,
    "GUARDRAIL": GUARDRAIL,
    "EVALUATOR": VERIFIER,
    "AGENT": AGENT,
    "PROMPT": NO_ROLE,
    "DECISION": NO_ROLE,
}

_OPENAI_AGENTS = "openinference.instrumentation.openai_agents"
_LANGCHAIN = "openinference.instrumentation.langchain"
_LITELLM = "openinference.instrumentation.litellm"
_HARBOR = "harbor-atif2otel"

_UNNAMED_AGENTS = {_OPENAI_AGENTS: RUN, _HARBOR: NO_ROLE}
"""Scope → what a span of kind AGENT without the name of an agent really is: the trace (it has no parent, and a CHAIN
`Agent workflow` says the same once more below it), and a turn of a trajectory (captured)."""

_METHODS = frozenset(
    "run arun stream astream invoke ainvoke query kickoff kickoff_async kickoff_for_each run_stream on_messages "
    "on_messages_stream retrieve aretrieve _retrieve _aretrieve".split()
)
"""Spans are often called `<name>.<method>`."""


def _role(span: Span) -> Role | None:
    attributes = span.attributes
    kind = first_text(attributes.get("openinference.span.kind")).upper()
    if kind == "AGENT" and span.scope.name in _UNNAMED_AGENTS and not _agent_name(span):
        return _UNNAMED_AGENTS[span.scope.name]
    if kind == "LLM" and span.name.endswith("._prepare_chat_with_tools"):  # LlamaIndex makes a request, and sends none
        return NO_ROLE
    if kind == "CHAIN":
        return _chain(span)
    return _KINDS.get(kind)


def _chain(span: Span) -> Role | None:
    """A CHAIN says no more; another dialect may."""
    if not span.parent_span_id or span.name.endswith(".kickoff"):  # a crew is a run also inside a flow
        return RUN
    return NODE if _node_name(span) else None


def _node_name(span: Span) -> str:
    """The node of a graph that the span is. In LangGraph everything that runs inside a node has its name in the metadata;
    the node is the span that is called so."""
    if name := first_text(span.attributes.get("graph.node.id")):
        return name
    metadata = span.attributes.get("metadata")
    if isinstance(metadata, str) and "langgraph_node" not in metadata:
        return ""
    return span.name if value_at(metadata, "langgraph_node") == span.name else ""


def _agent_name(span: Span) -> str:
    return first_text(span.attributes.get("agent.name")) or first_text(span.attributes.get("graph.node.id"))


def _names(span: Span, role: Role) -> dict[str, str]:
    owner, _, method = span.name.rpartition(".")
    owner = owner if method in _METHODS else ""
    if role.is_agent:
        run_name = "" if span.parent_span_id else owner  # an agent that nothing called is the run
        return {"agent_id": _agent_name(span) or _langchain_agent(span) or owner or span.name, "run_name": run_name}
    if role.is_node:
        return {"step_name": _node_name(span)}
    if role.role == FLOW_RUN:
        return {"run_name": owner, "agent_id": _langchain_agent(span)}
    if role.role == TOOL:
        return {"tool_name": owner or span.name}
    return {"agent_id": _langchain_agent(span)} if role == NO_ROLE else {}


def _langchain_agent(span: Span) -> str:
    """`create_agent` tells its name to everything below it (captured: LangChain 1.5)."""
    metadata = span.attributes.get("metadata")
    if isinstance(metadata, str) and "lc_agent_name" not in metadata:
        return ""
    return first_text(value_at(metadata, "lc_agent_name"))


# --------------------------------------------------------------------------------------------------- what no table can say


def _complete(light: Light, span: Span) -> None:
    if light.role == PROVIDER_CALL:
        _complete_model_call(light, span)
    elif light.role == TOOL:
        _complete_tool_call(light, span)
    if light.error and span.scope.name == _LANGCHAIN:  # repr of the exception and its whole traceback
        light.error = light.error.partition("Traceback (most recent call last)")[0].strip() or light.error
    if (
        span.scope.name == _HARBOR and not span.end_ns and span.status_code
    ):  # a step without a time of its own has ended
        light.status, light.end_ns = "failed" if span.status_code == 2 else "succeeded", light.start_ns
    if span.status_code == 2 and (tripped := _TRIPWIRE.match(span.status_message)):
        light.labels["tripped_guard"] = tripped[1]
    for key, value in span.attributes.items():
        if key.startswith(_EVALUATIONS) and value is not None:
            light.labels[key[:_LABEL]] = (first_text(value) or to_json(value))[:_LABEL]


_TRIPWIRE = re.compile(r"Guardrail tripwire triggered: \{'guardrail': '([^']{1,256})'\}")
"""OpenAI Agents: the turn around a guardrail fails with this; the guardrail's own span has no verdict."""

_EVALUATIONS = ("annotation.", "annotations.", "evaluation.", "evaluations.")
_LABEL = 1_024
"""Characters of a text that is kept as a label."""


def _complete_model_call(light: Light, span: Span) -> None:
    if not light.response_id and light.operation == "chat":
        answer = span.attributes.get("output.value")
        light.response_id = response_id(answer) or _langchain_id(answer)
    if span.scope.name == _LITELLM:  # `openai/gpt-4o-mini`
        for fact in ("request_model", "response_model"):
            provider, _, model = getattr(light, fact).partition("/")
            if model:
                light.provider = light.provider or provider
                setattr(light, fact, model)
    for event in span.events:
        if event.name == "First Token Stream Event" and event.time_ns >= span.start_ns:
            light.labels.setdefault(TIME_TO_FIRST_TOKEN, str((event.time_ns - span.start_ns) // 1_000_000))
            break


def _langchain_id(answer: Value) -> str:
    if isinstance(answer, str) and '"generations"' not in answer:
        return ""
    return first_text(value_at(answer, *_LANGCHAIN_ID))


_LANGCHAIN_ID = ("generations", 0, 0, "message", "kwargs", "response_metadata", "id")


def _complete_tool_call(light: Light, span: Span) -> None:
    said = tool_message_fields(span.attributes.get("output.value"))
    if not light.tool_call_id:
        light.tool_call_id = first_text(said.get("tool_call_id"))
    if said.get("status") == "error" and light.status == "succeeded":
        light.status = "failed"
        light.error = light.error or first_text(said.get("content"))
    if span.name.startswith("handoff to "):  # OpenAI Agents: from `input.value` to `output.value`
        light.labels["handoff_to"] = span.name.removeprefix("handoff to ")[:_LABEL]


def _arguments(value: Value) -> Value:
    """LangChain sends several arguments as a Python repr (and a single one bare), smolagents args and kwargs."""
    return python_literal(call_arguments(value))


def _result(value: Value) -> Value:
    return function_response(tool_message(value))


def _texts(embeddings: Value) -> Value:
    """The texts that were embedded, out of pairs of key and value; the vectors beside them are no content."""
    texts: list[Value] = []
    for pair in embeddings if isinstance(embeddings, list) else []:
        if isinstance(pair, list) and str(pair[0]).endswith(".embedding.text"):
            texts.append(pair[1])
    return texts or None


def _crew_answer(value: Value) -> Value:
    """CrewAI's task and crew outputs say their answer as `raw`; their `summary` is the beginning of the task."""
    if not isinstance(value, str) or '"json_dict"' not in value:
        return None
    output = parsed(value)
    return output.get("raw") if isinstance(output, dict) and "json_dict" in output else None


def _short(value: Value) -> Value:
    return first_text(value)[:_LABEL]


DIALECT = Dialect(
    name="openinference",
    lacks=(
        "Ids of tool calls, except inside a serialised ToolMessage. The verdict of a guard. What the SDK's limit "
        "of 128 attributes dropped, which is the oldest messages first. Model calls of CrewAI's native client and "
        "of the Claude Agent SDK, of which only a wrong sum is sent. Usage of LangChain streams, and LangChain's "
        "embeddings."
    ),
    keys=("openinference.", "llm.input_messages.", "llm.output_messages.", "llm.token_count."),
    scopes=("openinference.instrumentation.", _HARBOR),
    role=_role,
    facts={
        "agent_id": ("agent.name",),
        "step_name": ("task_name",),
        "conversation_id": (
            "session.id",
            inside("metadata", "session_id"),
            inside("metadata", "thread_id"),
            inside("metadata", "conversation_id"),
        ),
        "user_id": ("user.id", inside("metadata", "user_id")),
        "provider": ("llm.provider", "llm.system"),
        "request_model": (
            "llm.request.model_name",
            "embedding.model_name",
            "reranker.model_name",
            inside("llm.invocation_parameters", "model"),
            inside("llm.invocation_parameters", "model_name"),
        ),
        "response_model": ("llm.response.model_name", "llm.model_name"),
        "tool_name": ("tool.name",),
        "tool_call_id": ("tool.id", "tool_call.id"),
        "input_tokens": ("llm.token_count.prompt",),
        "output_tokens": ("llm.token_count.completion",),
        "cached_input_tokens": (
            "llm.token_count.prompt_details.cache_read",
            "llm.token_count.prompt_details.cache_input",
        ),
        "cache_write_tokens": ("llm.token_count.prompt_details.cache_write",),
        "reasoning_tokens": ("llm.token_count.completion_details.reasoning",),
        "cost_usd": ("llm.cost.total",),
    },
    content={
        "input": (
            "llm.input_messages.*",
            "llm.prompts.*",
            Source("embedding.embeddings.*", _texts),
            "reranker.query",
            "input.value",
        ),
        "output": ("llm.output_messages.*", "llm.choices.*", "reranker.output_documents.*", "output.value"),
        "tools": ("llm.tools.*",),
        "arguments": ("input.value",),
        "result": ("output.value",),
        "query": ("input.value",),
        "documents": ("retrieval.documents.*",),
        "summary": (Source("output.value", _crew_answer),),
    },
    labels={
        FINISH_REASON: ("llm.finish_reason",),
        "prompt_id": ("prompt.id",),
        "prompt_url": ("prompt.url",),
        "prompt_vendor": ("prompt.vendor",),
        "prompt_template": (Source("llm.prompt_template.template", _short),),
        "prompt_version": ("llm.prompt_template.version",),
        "prompt_variables": (Source("llm.prompt_template.variables", _short),),
        "tags": ("tag.tags",),
    },
    unwrap={"arguments": _arguments, "result": _result},
    names=_names,
    complete=_complete,
)
