"""AutoGen's own spans (dialects.md §12; captured: 0.7).

A team's run is some thirty traces, one for each message: what they share is the team's id, a UUID in the names of its
topics and agents. Passes and tool calls follow OpenTelemetry's conventions, without model calls, content or usage; the
messages that repeat the usage are delivered to several agents, so it is not taken from them.
"""

from __future__ import annotations

import re

from otel_blackboard.processor.dialects.dialect import Dialect, Role, not_provider
from otel_blackboard.processor.values import first_text
from otel_blackboard.records import Span

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_MANAGER = re.compile(r"autogen [a-z]+ (\w+?)Manager_" + _UUID.pattern)
"""The span of a message to the agent that runs a team: `RoundRobinGroupChatManager_<team id>`."""

_NAMING_THE_TEAM = ("team_id", "gen_ai.agent.id", "messaging.destination", "sender_agent_type", "recipient_agent_type")


def _join_key(span: Span) -> str:
    for key in _NAMING_THE_TEAM:
        if found := _UUID.search(first_text(span.attributes.get(key))):
            return found[0]
    return ""


def _names(span: Span, role: Role) -> dict[str, str]:
    found = _MANAGER.match(span.name)
    return {"run_name": found[1]} if found else {}


DIALECT = Dialect(
    name="autogen",
    lacks=("Model calls, usage and content."),
    keys=(),
    scopes=(
        "autogen-core",
        "autogen SingleThreadedAgentRuntime",
        "autogen GrpcWorkerAgentRuntime",
        "openinference.instrumentation.autogen_agentchat",
    ),
    ignore={"provider": not_provider("autogen")},
    names=_names,
    join_key=_join_key,
)
