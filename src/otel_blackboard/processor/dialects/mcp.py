"""Model Context Protocol, client and server (dialects.md §27): the conventions' `mcp.*`, mcp-python-sdk, fastmcp.

One call is up to three nested spans (`tools/call X` of fastmcp's client, `MCP send tools/call X` of the SDK below it,
`tools/call X` of the server), and the agent's own tool span above: all of them are tool invocations of the same name.
Everything else that a client asks a server (lists, resources, prompts, discovery) has no role.
"""

from __future__ import annotations

import re

from otel_blackboard.processor.dialects.dialect import EXECUTE_TOOL, NO_ROLE, TOOL, Dialect, Role
from otel_blackboard.processor.values import first_text
from otel_blackboard.records import Span

_NAMED = re.compile(r"(?:MCP send )?tools/call (.+)", re.DOTALL)


def _role(span: Span) -> Role | None:
    method = first_text(span.attributes.get("mcp.method.name"))
    if not method:
        return None
    return EXECUTE_TOOL if method == "tools/call" else NO_ROLE


def _names(span: Span, role: Role) -> dict[str, str]:
    named = _NAMED.fullmatch(span.name) if role.role == TOOL else None
    return {"tool_name": named[1]} if named else {}


DIALECT = Dialect(
    name="mcp",
    lacks=("Arguments and results, unless they are switched on; ids of tool calls."),
    keys=("mcp.",),
    role=_role,
    facts={},
    content={"arguments": ("mcp.request.argument",), "result": ("mcp.response.value",)},
    labels={
        "mcp_method": ("mcp.method.name",),
        "mcp_session": ("mcp.session.id",),
        "mcp_server": ("fastmcp.server.name",),
        "mcp_resource": ("mcp.resource.uri",),
    },
    names=_names,
)
