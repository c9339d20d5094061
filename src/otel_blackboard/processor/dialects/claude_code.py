"""Claude Code and the Claude Agent SDK's spans and events (dialects.md §20; captured: 2.1.197, 2.1.332).

An interaction is a run; spanning the caller's trace, it is a pass of that run. A sub-agent has no span of its own: its
calls nest under the tool call `Agent`. `input_tokens` are the uncached ones alone; `gen_ai.response.id` is the HTTP
request id. The same calls come as events, which alone state the cost and the answer; they name the request or the tool
call, never the span of it, so each becomes a record of that call.
"""

from __future__ import annotations

from otel_blackboard.processor.dialects.answers import FINISH_REASON, TIME_TO_FIRST_TOKEN, milliseconds
from otel_blackboard.processor.dialects.dialect import (
    AGENT,
    CHAT,
    EXECUTE_TOOL,
    NO_ROLE,
    PROVIDER_CALL,
    RUN,
    SKILL,
    TOOL,
    Dialect,
    Part,
    Role,
    Source,
)
from otel_blackboard.processor.dialects.log_spans import derived_id, in_trace, span_of, text
from otel_blackboard.processor.usage import include_cache
from otel_blackboard.processor.values import first_text, parsed, truth, whole_number
from otel_blackboard.records import Event, Light, LogRecord, Span, Value

AGENT_NAME = "claude-code"
_SUB_AGENT = EXECUTE_TOOL._replace(is_agent=True)
_SUB_AGENT_TOOLS = ("Agent", "Task")
_WITHHELD = "<REDACTED>"
_RESPONSE_BODY = "claude_code.api_response_body"
"""Attribute of the span made of such a record: `body` is too plain a key for content."""


def _role(span: Span) -> Role | None:
    attributes = span.attributes
    kind = attributes.get("span.type")
    if kind == "interaction":
        return AGENT if span.parent_span_id else RUN
    if kind == "llm_request":
        return CHAT
    if kind == "tool":
        return _SUB_AGENT if attributes.get("tool_name") in _SUB_AGENT_TOOLS else EXECUTE_TOOL
    if kind == "tool.execution" and _failed(span):  # the tool's own span does not say so
        return EXECUTE_TOOL
    if kind == "skill":
        return SKILL
    return NO_ROLE


def _failed(span: Span) -> bool:
    return "success" in span.attributes and not truth(span.attributes["success"])


def _names(span: Span, role: Role) -> dict[str, str]:
    if role is RUN:
        return {"agent_id": AGENT_NAME, "run_name": span.name}
    return {"agent_id": AGENT_NAME} if role is AGENT else {}


def _complete(light: Light, span: Span) -> None:
    attributes = span.attributes
    if light.role == PROVIDER_CALL:
        request_id = first_text(attributes.get("request_id"))
        light.response_id = f"request:{request_id}" if request_id else ""
        if not light.provider and light.request_model.startswith("claude"):
            light.provider = "anthropic"
        uncached = whole_number(attributes.get("input_tokens"))
        if uncached is not None and "gen_ai.usage.input_tokens" not in attributes:
            light.input_tokens = uncached
            include_cache(light, beside=True)
        attempt = whole_number(attributes.get("attempt"))
        light.retry_count = attempt - 1 if attempt else light.retry_count
    if light.role in (PROVIDER_CALL, TOOL) and light.status == "succeeded" and _failed(span):
        light.status = "failed"
        light.error = light.error or first_text(attributes.get("error"))


def _tool_input(value: Value) -> Value:
    """`[TOOL INPUT: Bash]\\n{json}` of the detailed traces; the events have the JSON alone."""
    if isinstance(value, str) and value.startswith("[TOOL INPUT: "):
        return value.partition("\n")[2]
    return value


def _event(event: Event) -> list[Part]:
    if event.name != "tool.output":
        return []
    for key in ("output", "content"):
        if (value := event.attributes.get(key)) is not None:
            return [Part("result", key, value)]
    return []


def _named(key: str, argument: str) -> Source:
    """One argument that a span tells apart from the others, under the name that the tool gives it."""
    return Source(key, lambda value: {argument: value} if isinstance(value, str) and value else None)


def _of_parameters(key: str) -> Source:
    def read(value: Value) -> Value:
        return value.get(key) if isinstance(value := parsed(value), dict) else None

    return Source("tool_parameters", read)


def _sub_agent(value: Value) -> Value:
    """`agent:builtin:general-purpose`; `sdk`, `main` and others are no agent."""
    return value.rpartition(":")[2] if isinstance(value, str) and value.startswith("agent:") else None


def _said(key: str) -> Source:
    return Source(key, lambda value: None if value == _WITHHELD else value)


_CALLS = ("api_request", "assistant_response", "api_response_body")


def _log_spans(record: LogRecord, event_name: str) -> list[Span]:
    if record.scope.name != "com.anthropic.claude_code.events":
        return []
    session, prompt, request = text(record, "session.id"), text(record, "prompt.id"), text(record, "request_id")
    run = (DIALECT.name, session, prompt)
    root = derived_id(16, *run, "interaction")
    order = text(record, "event.sequence") or str(record.time_ns)
    kind = ""
    identity: tuple[str, ...] = (event_name, request or order)
    if event_name == "user_prompt" and not in_trace(record):
        kind, identity = "interaction", ("interaction",)
    elif event_name == "api_request" or (event_name in _CALLS and request):
        kind = "llm_request"
    elif event_name == "api_error" and (request or not in_trace(record)):
        kind, identity = "llm_request", (event_name, order)
    elif event_name == "tool_result":
        kind, identity = "tool", (event_name, text(record, "tool_use_id") or order)
    elif event_name == "skill_activated":
        kind, identity = "skill", (event_name, order)
    if not kind:
        return []
    more: dict[str, Value] = {"span.type": kind}
    if event_name == "api_error":
        more["success"] = False
    span = span_of(
        record, event_name, f"claude_code.{kind}", run, identity, "" if kind == "interaction" else root, more,
        record.attributes.get("duration_ms"),
    )  # fmt: skip
    if event_name == "api_response_body" and "body" in span.attributes:
        span.attributes[_RESPONSE_BODY] = span.attributes.pop("body")
    return [span]


DIALECT = Dialect(
    name="claude_code",
    lacks=(
        "Prompts: the wire has a preview and a hash of the system prompt. The result of the tool `Agent`. With "
        "logs alone, whose call a sub-agent's tool is."
    ),
    keys=(),
    scopes=("com.anthropic.claude_code.",),
    role=_role,
    facts={
        "agent_id": (
            "subagent_type",
            "agent.name",
            Source("query_source", _sub_agent),
            _of_parameters("subagent_type"),
        ),
        "agent_instance": ("agent_id",),
        "user_id": ("user.account_uuid",),
        "request_model": ("model",),
        "tool_name": ("tool_name",),
        "tool_call_id": ("tool_use_id",),
        "output_tokens": ("output_tokens",),
        "cached_input_tokens": ("cache_read_tokens",),
        "cache_write_tokens": ("cache_creation_tokens",),
        "cost_usd": ("cost_usd",),
    },
    content={
        "system": ("system_prompt_preview",),
        "input": ("new_context", _said("user_prompt"), _said("prompt")),
        "output": ("response.model_output", _said("response")),
        "response": (_RESPONSE_BODY,),
        "arguments": (
            "tool_input",
            _named("full_command", "command"),
            _named("file_path", "file_path"),
        ),
    },
    plain=("response.model_output", "response"),
    labels={
        "skill_name": ("skill_name", "skill.name", _of_parameters("skill_name")),
        "skill_source": ("skill.source",),
        "request_id": ("request_id",),
        FINISH_REASON: ("stop_reason",),
        TIME_TO_FIRST_TOKEN: (milliseconds("ttft_ms"),),
    },
    unwrap={"arguments": _tool_input},
    names=_names,
    complete=_complete,
    event=_event,
    log_spans=_log_spans,
)
