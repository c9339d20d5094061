"""Google's Agent Development Kit (dialects.md §8; captured: 1.14, 2.13).

1.x has names of its own (`invocation`, `agent_run [X]`, `call_llm`) and content as JSON of its Python objects; a tool call
is a child of the model call that asked for it. 2.x speaks OpenTelemetry's conventions; its content comes in log records.
1.x counts candidates alone as output tokens, 2.x the thoughts with them.
"""

from __future__ import annotations

from otel_blackboard.processor.dialects.dialect import AGENT, CHAT, NO_ROLE, RUN, Dialect, Role, inside
from otel_blackboard.processor.values import first_text, whole_number
from otel_blackboard.records import Light, Span

_REQUEST, _RESPONSE = "gcp.vertex.agent.llm_request", "gcp.vertex.agent.llm_response"
_AGENT_RUN = "agent_run ["
_MERGED = "(merged"
"""In the name of a span that repeats the results of tool calls made side by side (read: 1.x)."""


def _role(span: Span) -> Role | None:
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
    if light.role == CHAT.role and not light.provider and light.request_model.startswith("gemini"):
        light.provider = "gcp.gemini"
    if light.status == "succeeded" and (code := first_text(span.attributes.get("error_code"))):
        light.status, light.error = "failed", light.error or code


DIALECT = Dialect(
    name="google_adk",
    keys=("gcp.vertex.agent.",),
    scopes=("gcp.vertex.agent",),
    role=_role,
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
)
