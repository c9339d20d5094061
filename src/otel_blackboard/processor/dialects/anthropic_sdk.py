"""Anthropic's own SDK, from version 2 on, where it is on by default (dialects.md §19): G3 attributes and `anthropic.*`.

An application emits these spans besides those of its framework or instrumentation: below them, or, where that span is
not the current one, as a trace of their own with the same response id (captured). A failed request has no id at all.
Input tokens include what was cached. Content only where the application asked for it.
"""

from __future__ import annotations

import re

from otel_blackboard.processor.dialects.answers import FINISH_REASON
from otel_blackboard.processor.dialects.dialect import AGENT, CHAT, EXECUTE_TOOL, NO_ROLE, TOOL, Dialect, Role
from otel_blackboard.records import Span

SCOPE = "com.anthropic.sdk."

_CALL = re.compile(r"anthropic\.(?:beta\.)?messages\.(?:create|stream|parse)")
_RUNNER = re.compile(r"anthropic\.(?:beta\.)?messages\.tool_runner")
_TOOL = "anthropic.custom_tool_use"


def _role(span: Span) -> Role | None:
    if not span.scope.name.startswith(SCOPE):
        return None
    if _CALL.match(span.name):
        return CHAT
    if _RUNNER.match(span.name):
        return AGENT
    if span.name.startswith(_TOOL):
        return EXECUTE_TOOL
    return NO_ROLE  # token counting, batches, sessions, environments: nothing that a model answered


def _names(span: Span, role: Role) -> dict[str, str]:
    name = span.name.removeprefix(_TOOL).strip()
    return {"tool_name": name} if role.role == TOOL and name != span.name else {}


DIALECT = Dialect(
    name="anthropic_sdk",
    lacks=("Content, unless its mode is `content`. Response ids of failed requests."),
    keys=("anthropic.",),
    scopes=(SCOPE,),
    role=_role,
    facts={},
    content={"result": ("anthropic.tool_result.content",)},
    labels={"request_id": ("anthropic.request.id",), FINISH_REASON: ("anthropic.message.stop_reason",)},
    names=_names,
    satellite=lambda span: span.scope.name.startswith(SCOPE) and not span.parent_span_id,
)
