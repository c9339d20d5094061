"""The OpenAI Agents SDK through Logfire's bridge (dialects.md §10; read: logfire/_internal/integrations/openai_agents.py):
scope `logfire.openai_agents`. Role by the template that is a span's name; what it is called stands in plain attributes
(`name`, `input`, `output`). Sums of a turn or task are JSON in `usage`, which is not read."""

from __future__ import annotations

import re

from otel_blackboard.processor.dialects.dialect import (
    AGENT,
    CHAT,
    EXECUTE_TOOL,
    FLOW_RUN,
    GUARD,
    GUARDRAIL,
    NO_ROLE,
    PROVIDER_CALL,
    RUN,
    TOOL,
    Dialect,
    Role,
    Source,
    inside,
)
from otel_blackboard.processor.event_lists import answered
from otel_blackboard.processor.values import first_text, parsed, truth
from otel_blackboard.records import Light, Span

_ROLES = (
    ("OpenAI Agents trace", RUN),
    ("Agent run", AGENT),
    ("Responses API", CHAT),
    ("Chat completion with", CHAT),
    ("Function", EXECUTE_TOOL),
    ("Handoff", EXECUTE_TOOL),
    ("Guardrail", GUARDRAIL),
    ("Speech → Text", Role(PROVIDER_CALL, "transcribe")),
    ("", NO_ROLE),  # Task, Turn, Custom span, MCP: list tools …
)


def _role(span: Span) -> Role | None:
    return next(role for beginning, role in _ROLES if span.name.startswith(beginning))


def _names(span: Span, role: Role) -> dict[str, str]:
    name = first_text(span.attributes.get("name"))
    if role is AGENT:
        return {"agent_id": name}
    if role.role == TOOL:
        return {"tool_name": name or _handoff(first_text(span.attributes.get("to_agent")))}
    return {}


def _handoff(agent: str) -> str:
    """The tool that the SDK offers the model for a hand-off."""
    return "transfer_to_" + re.sub(r"[^a-z0-9_]", "_", agent.lower()) if agent else ""


def _complete(light: Light, span: Span) -> None:
    if light.role == FLOW_RUN:
        light.run_name = first_text(span.attributes.get("name"))
    error = parsed(span.attributes.get("error"))
    if isinstance(error, dict) and light.status != "running":
        data = error.get("data")
        said = data.get("error") if isinstance(data, dict) else None
        light.status, light.error = "failed", light.error or first_text(said) or first_text(error.get("message"))
    if light.role == GUARD and (triggered := span.attributes.get("triggered")) is not None:
        light.labels["guard_name"] = first_text(span.attributes.get("name"))
        light.labels["guard_status"] = "blocked" if truth(triggered) else "passed"


DIALECT = Dialect(
    name="openai_agents_logfire",
    lacks=("Ids of tool calls."),
    keys=(),
    scopes=("logfire.openai_agents",),
    role=_role,
    facts={"conversation_id": ("group_id",), "response_id": (inside("response", "id"),)},
    content={
        "input": ("events", "raw_input", "input"),
        "output": (Source("events", answered), inside("response", "output"), "output"),
        "arguments": ("input",),
        "result": ("output",),
    },
    names=_names,
    complete=_complete,
)
