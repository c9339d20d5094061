"""Google's Agent Development Kit (dialects.md §8; captured: 1.14, 2.13).

1.x has names of its own (`invocation`, `agent_run [X]`, `call_llm`) and content as JSON of its Python objects; a tool call
is a child of the model call that asked for it. 2.x speaks OpenTelemetry's conventions; its content comes in log records.
1.x counts candidates alone as output tokens, 2.x the thoughts with them. Where another instrumentation opens no span for
2.x's model calls, they are all written onto the agent's span, each over the one before (captured: 2.13 with OpenInference):
the log record of each call still has its usage, and the event id that span and record share.
"""

from __future__ import annotations

from otel_blackboard.processor.dialects.dialect import AGENT, CHAT, NO_ROLE, RUN, Dialect, Role, inside, not_provider
from otel_blackboard.processor.dialects.log_spans import FROM_LOG, in_trace, span_of, text
from otel_blackboard.processor.values import first_text, whole_number
from otel_blackboard.records import Light, LogRecord, Span

_REQUEST, _RESPONSE = "gcp.vertex.agent.llm_request", "gcp.vertex.agent.llm_response"
_AGENT_RUN = "agent_run ["
_MERGED = "(merged"
"""In the name of a span that repeats the results of tool calls made side by side (read: 1.x)."""


def _role(span: Span) -> Role | None:
    if FROM_LOG in span.attributes:
        return CHAT
    if span.name == "call_llm":
        return CHAT
    if span.name.startswith(_AGENT_RUN):
        return AGENT
    if span.name == "invocation":
        return RUN
    if span.name.startswith("execute_tool") and _MERGED in span.name:
        return NO_ROLE
    return None


def _names(span: Span, role: Role) -> dict[str, str]:
    if role.is_agent and span.name.startswith(_AGENT_RUN):
        return {"agent_id": span.name[len(_AGENT_RUN) :].removesuffix("]")}
    return {}


_CANDIDATES = inside(_RESPONSE, "usage_metadata", "candidates_token_count")


def _complete(light: Light, span: Span) -> None:
    if light.reasoning_tokens and light.output_tokens is not None and _RESPONSE in span.attributes:
        assert _CANDIDATES.read is not None
        if whole_number(_CANDIDATES.read(span.attributes[_RESPONSE])) == light.output_tokens:
            light.output_tokens += light.reasoning_tokens
    if light.role == CHAT.role and (event := first_text(span.attributes.get("gcp.vertex.agent.event_id"))):
        light.response_id = light.response_id or f"event:{event}"
    if light.role == CHAT.role and not light.provider and light.request_model.startswith("gemini"):
        light.provider = "gcp.gemini"
    if light.status == "succeeded" and (code := first_text(span.attributes.get("error_code"))):
        light.status, light.error = "failed", light.error or code


_DETAILS = "gen_ai.client.inference.operation.details"
_CONTENT = ("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions", "gen_ai.tool.definitions")


def _log_spans(record: LogRecord, event_name: str) -> list[Span]:
    if record.scope.name != "gcp.vertex.agent" or event_name != _DETAILS or not in_trace(record):
        return []
    event = text(record, "gcp.vertex.agent.event_id")
    if not event or "gen_ai.usage.input_tokens" not in record.attributes:
        return []
    span = span_of(record, event_name, "generate_content", (DIALECT.name, record.trace_id), (event,))
    for key in _CONTENT:  # completes the span that the record names
        span.attributes.pop(key, None)
    return [span]


DIALECT = Dialect(
    name="google_adk",
    lacks=(
        "Version 1: passes have no attributes but their name. Version 2: arguments and results of tools unless "
        "span capture is on, content only as log records by default. Under OpenInference one span tells of two "
        "calls."
    ),
    keys=("gcp.vertex.agent.",),
    scopes=("gcp.vertex.agent",),
    role=_role,
    ignore={"provider": not_provider("gcp.vertex.agent")},
    facts={
        "conversation_id": ("gcp.vertex.agent.session_id",),
        "cached_input_tokens": (inside(_RESPONSE, "usage_metadata", "cached_content_token_count"),),
        "reasoning_tokens": (inside(_RESPONSE, "usage_metadata", "thoughts_token_count"),),
    },
    content={
        "system": (inside(_REQUEST, "config", "system_instruction"),),
        "input": (inside(_REQUEST, "contents"),),
        "tools": (inside(_REQUEST, "config", "tools"),),
        "output": (inside(_RESPONSE, "content"),),
        "arguments": ("gcp.vertex.agent.tool_call_args",),
        "result": ("gcp.vertex.agent.tool_response",),
    },
    names=_names,
    complete=_complete,
    log_spans=_log_spans,
)
