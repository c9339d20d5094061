"""Codex (dialects.md §21; captured: 0.171).

Its traces are the spans of its Rust code: 622 in 21 traces for a turn of two calls, of which a few tell of the agent. A
turn is a run, and `turn.id` brings its traces together. A model call is a `run_sampling_request`, which lasts until its
tools are done; its usage stands on the last `handle_responses` of the stream below. Content, arguments and results come
in log records alone. The records of usage (`response.completed`, which comes twice, once without counts) name no call and
no turn, only the conversation: they count where no spans are sent. One key stands twice on a span: `thread.id`, once of
the system's thread (a number), once of the conversation.
"""

from __future__ import annotations

from otel_blackboard.processor.dialects.dialect import (
    CHAT,
    EXECUTE_TOOL,
    NO_ROLE,
    PROVIDER_CALL,
    RUN,
    SKILL,
    TOOL,
    Dialect,
    Role,
    Source,
)
from otel_blackboard.processor.dialects.log_spans import FROM_LOG, TRACED, derived_id, in_trace, span_of, text
from otel_blackboard.processor.values import first_text, truth, whole_number
from otel_blackboard.records import Light, LogRecord, Span, Value

AGENT_NAME = "codex"
_WITHHELD = "[REDACTED]"

_ROLES = {
    "codex.conversation_starts": RUN,
    "codex.sse_event": CHAT,
    "codex.api_request": CHAT,
    "codex.tool_result": EXECUTE_TOOL,
    "codex.skill_invocation": SKILL,
}
"""Of the spans that log records become, by the name of the event."""


def _role(span: Span) -> Role | None:
    attributes = span.attributes
    if FROM_LOG in attributes:
        return _ROLES.get(first_text(attributes[FROM_LOG]), NO_ROLE)
    if span.name == "session_task.turn":
        return RUN
    if span.name == "run_sampling_request":
        return CHAT
    if span.name == "handle_responses" and "gen_ai.usage.input_tokens" in attributes:
        return CHAT
    if "codex.tool.phase" in attributes and "call_id" in attributes:
        return EXECUTE_TOOL
    return NO_ROLE


def _names(span: Span, role: Role) -> dict[str, str]:
    return {"agent_id": AGENT_NAME, "run_name": span.name} if role.role == "flow_run" else {}


def _complete(light: Light, span: Span) -> None:
    attributes = span.attributes
    if light.role == TOOL and "success" in attributes and not truth(attributes["success"]):
        light.status = "failed"
    elif light.role == PROVIDER_CALL and attributes.get(FROM_LOG) == "codex.api_request":
        light.status = "failed"
        light.error = light.error or f"HTTP {first_text(attributes.get('http.response.status_code'))}"


def _thread(value: Value) -> Value:
    return value if isinstance(value, str) and "-" in value else None


def _earlier_thread(value: Value) -> Value:
    for pair in value if isinstance(value, list) else []:
        if isinstance(pair, list) and len(pair) == 2 and pair[0] == "thread.id" and _thread(pair[1]):
            return str(pair[1])
    return None


def _join_key(span: Span) -> str:
    if FROM_LOG in span.attributes:
        return ""
    return first_text(span.attributes.get("turn.id")) or first_text(span.attributes.get("turn_id"))


def _log_spans(record: LogRecord, event_name: str) -> list[Span]:
    if not record.scope.name.startswith("codex_otel"):
        return []
    name = text(record, "event.name")
    conversation = text(record, "conversation.id")
    run, sent = (DIALECT.name, conversation), in_trace(record)
    root = derived_id(16, *run, "conversation")
    order = (text(record, "event.timestamp"), str(record.time_ns or record.observed_time_ns))
    made = []
    if name == "codex.conversation_starts" and not sent:
        made = [span_of(record, name, name, run, ("conversation",))]
    elif name == "codex.tool_result":
        identity = (name, text(record, "call_id") or order[0])
        made = [span_of(record, name, name, run, identity, root, duration=record.attributes.get("duration_ms"))]
    elif name == "codex.skill_invocation" or (name == "codex.user_prompt" and not sent):
        made = [span_of(record, name, name, run, (name, *order), root)]
    elif (name == "codex.sse_event" and _completed(record) and not sent) or (
        name == "codex.api_request" and _rejected(record)
    ):
        made = [
            span_of(record, name, name, run, (name, *order), root, duration=record.attributes.get("duration_ms"))
        ]  # fmt: skip
    if sent and conversation and name in _IN_TRACES:
        made.append(span_of(record, name, "traced", run, ("traced",), attributes={TRACED: True}, derived=True))
    return made


_IN_TRACES = ("codex.conversation_starts", "codex.user_prompt", "codex.api_request")
"""Events that are written inside a span wherever spans are sent (captured); usage never is."""


def _completed(record: LogRecord) -> bool:
    return text(record, "event.kind") == "response.completed" and "input_token_count" in record.attributes


def _rejected(record: LogRecord) -> bool:
    status = whole_number(record.attributes.get("http.response.status_code"))
    return "error.message" in record.attributes or (status is not None and status >= 400)


DIALECT = Dialect(
    name="codex",
    lacks=("Prompts and answers. With logs alone, the text of tool arguments and results in current versions."),
    keys=("codex.",),
    scopes=(
        "codex_exec",
        "codex_cli_rs",
        "codex_tui",
        "codex-app-server",
        "codex_mcp_server",
        "codex_otel",
        "codex_otel.",
    ),
    role=_role,
    facts={
        "conversation_id": (
            "conversation.id",
            Source("thread.id", _thread),
            Source("$duplicates", _earlier_thread),
        ),
        "request_model": ("model",),
        "tool_name": ("tool_name",),
        "tool_call_id": ("call_id",),
        "input_tokens": ("input_token_count", "codex.turn.token_usage.input_tokens"),
        "output_tokens": ("output_token_count", "codex.turn.token_usage.output_tokens"),
        "cached_input_tokens": ("cached_token_count", "codex.turn.token_usage.cached_input_tokens"),
        "cache_write_tokens": ("cache_write_token_count", "codex.turn.token_usage.cache_write_input_tokens"),
        "reasoning_tokens": (
            "codex.usage.reasoning_output_tokens",
            "reasoning_token_count",
            "codex.turn.token_usage.reasoning_output_tokens",
        ),
    },
    content={
        "input": (Source("prompt", lambda value: None if value == _WITHHELD else value),),
        "arguments": ("arguments",),
        "result": ("output",),
    },
    labels={
        "skill_name": ("skill.name",),
        "skill_source": ("skill.scope",),
        "skill_trigger": ("skill.invocation_type",),
    },
    names=_names,
    complete=_complete,
    log_spans=_log_spans,
    join_key=_join_key,
)
