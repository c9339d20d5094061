"""Gemini CLI (dialects.md §8; read: its source, of 0.61 and before).

Every span is a trace of its own, and a session has no span: `gen_ai.conversation.id` brings them together. Usage and
content stand on the spans only where tracing is asked for; the events always have them, and those of a stream are written
outside of its span. Both count candidates alone as output, without the thoughts.
"""

from __future__ import annotations

from otel_blackboard.processor.dialects.dialect import (
    AGENT,
    CHAT,
    EXECUTE_TOOL,
    NO_ROLE,
    PROVIDER_CALL,
    Dialect,
    Role,
    Source,
    inside,
)
from otel_blackboard.processor.dialects.log_spans import FROM_LOG, in_trace, span_of, text
from otel_blackboard.processor.values import first_text, truth, whole_number
from otel_blackboard.records import Light, LogRecord, Span, Value

AGENT_NAME = "gemini-cli"

_EVENTS = {
    "gemini_cli.api_response": CHAT,
    "gemini_cli.api_error": CHAT,
    "gemini_cli.tool_call": EXECUTE_TOOL,
    "gen_ai.client.inference.operation.details": CHAT,
}


def _role(span: Span) -> Role | None:
    attributes = span.attributes
    if FROM_LOG in attributes:
        return _EVENTS.get(first_text(attributes[FROM_LOG]), NO_ROLE)
    operation = first_text(attributes.get("gen_ai.operation.name"))
    if operation == "llm_call":
        # Without usage it says no more than that there was a call: then its event tells of it.
        told = "gen_ai.usage.input_tokens" in attributes or "gen_ai.output.messages" in attributes
        return CHAT if told or span.status_code == 2 else NO_ROLE
    return {"tool_call": EXECUTE_TOOL, "agent_call": AGENT}.get(operation, NO_ROLE)


def _complete(light: Light, span: Span) -> None:
    attributes = span.attributes
    event = first_text(attributes.get(FROM_LOG))
    if light.role != PROVIDER_CALL:
        if event and "success" in attributes and not truth(attributes["success"]):
            light.status = "failed"
        return
    if not light.provider:
        light.provider = "gcp.gemini"
    if event == "gemini_cli.api_error":
        light.status = "failed"
    elif light.input_tokens is not None and light.conversation_id:
        # No id stands in span and event alike: a session does not have two calls of the same figures at one moment.
        light.response_id = f"{light.conversation_id}:{light.input_tokens}:{light.output_tokens}"
    thoughts = whole_number(attributes.get("thoughts_token_count"))
    if thoughts and light.output_tokens is not None:
        light.output_tokens += thoughts


def _names(span: Span, role: Role) -> dict[str, str]:
    return {"agent_id": AGENT_NAME, "run_name": AGENT_NAME}


def _join_key(span: Span) -> str:
    attributes = span.attributes
    return first_text(attributes.get("gen_ai.conversation.id")) or first_text(attributes.get("session.id"))


def _log_spans(record: LogRecord, event_name: str) -> list[Span]:
    if record.scope.name != "gemini-cli" or event_name not in _EVENTS:
        return []
    sent, attributes = in_trace(record), record.attributes
    if event_name == "gen_ai.client.inference.operation.details":
        if (
            sent or "gen_ai.usage.input_tokens" not in attributes
        ):  # its span is there; or a request that an answer follows
            return []
    elif event_name != "gemini_cli.api_response" and sent:
        return []
    # Every call is a trace of its own, as its span is. The two events of one answer bear the same time, to the text.
    trace = (DIALECT.name, text(record, "session.id"), text(record, "event.timestamp"), text(record, "function_name"))
    return [span_of(record, event_name, event_name, trace, (event_name,), duration=attributes.get("duration_ms"))]


def _of_tool_call(*path: str | int) -> Source:
    """Out of the completed call that a tool's span has as its output messages; a model's messages are not opened."""
    found = inside("gen_ai.output.messages", *path)

    def read(value: Value) -> Value:
        assert found.read is not None
        return found.read(value) if isinstance(value, str) and '"responseParts"' in value else None

    return Source("gen_ai.output.messages", read)


def _arguments(value: Value) -> Value:
    """Out of `{callId, name, args}`."""
    named = inside("", "args").read
    assert named is not None
    return named(value) if isinstance(value, str) and value[:1] == "{" and '"args"' in value else None


DIALECT = Dialect(
    name="gemini_cli",
    lacks=("A span of the run: calls are traces of their own. Read from its source, not from a recording."),
    keys=(),
    scopes=("gemini-cli",),
    role=_role,
    facts={
        "request_model": ("model",),
        "tool_name": ("function_name",),
        "input_tokens": ("input_token_count",),
        "output_tokens": ("output_token_count",),
        "cached_input_tokens": ("cached_content_token_count",),
        "reasoning_tokens": ("thoughts_token_count",),
    },
    content={
        "arguments": (Source("gen_ai.input.messages", _arguments), "function_args"),
        "result": (_of_tool_call("response", "responseParts", 0, "functionResponse", "response"),),
        "response": ("response_text",),
    },
    names=_names,
    complete=_complete,
    log_spans=_log_spans,
    join_key=_join_key,
    satellite=lambda span: FROM_LOG in span.attributes,
)
