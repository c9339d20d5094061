"""MCP (dialects.md §27): three nested spans of one call, and the agent's own above (B4)."""

from __future__ import annotations

from otel_blackboard.records import Span
from tests.dialects.reading import light_of, scoped, tree_of
from tests.spans import Trace


def _call(
    trace: Trace, parent: Span | str = "", tool: str = "get_weather", start: float = 1, error: str | None = None
) -> Span:
    """fastmcp's client, the SDK's client below it, the server; the outermost."""
    name = f"tools/call {tool}"
    said = {"gen_ai__operation__name": "execute_tool", "gen_ai__tool__name": tool, "mcp__method__name": "tools/call"}
    outer = scoped("fastmcp", trace.span(name, start, start + 3, parent, error=error, **said))
    sdk = scoped(
        "mcp-python-sdk", trace.span(f"MCP send {name}", start, start + 2, outer, mcp__method__name="tools/call")
    )
    scoped("fastmcp", trace.span(name, start, start + 1, sdk, error=error, mcp__session__id="s1", **said))
    return outer


def test_an_mcp_call_is_one_tool_invocation() -> None:
    trace = Trace()
    outer = _call(trace)
    rows, part = tree_of(trace.spans)
    assert part.counts == {"tool_invocation": 1}
    assert {row.call_span_id for row in rows.values()} == {outer.span_id}
    assert {row.tool_name for row in rows.values()} == {"get_weather"}


def test_so_it_is_below_the_agents_own_tool_span() -> None:
    trace = Trace()
    agent = trace.agent("bot", 0, 9)
    own = trace.tool("get_weather", 0, 8, agent, arguments='{"city": "Paris"}', result="22C", call_id="call_1")
    _call(trace, own)
    rows, part = tree_of(trace.spans)
    assert part.counts["tool_invocation"] == 1
    assert {row.call_span_id for row in rows.values()} - {""} == {own.span_id}


def test_two_calls_in_a_row_are_two() -> None:
    trace = Trace()
    agent = trace.agent("bot", 0, 9)
    first, second = _call(trace, agent, start=1), _call(trace, agent, start=5, error="boom")
    rows, part = tree_of(trace.spans)
    assert part.counts["tool_invocation"] == 2
    assert {row.call_span_id for row in rows.values()} - {""} == {first.span_id, second.span_id}
    assert rows[second.span_id].status == "failed"


def test_everything_else_that_is_asked_of_a_server_has_no_role() -> None:
    for method in ("server/discover", "tools/list", "resources/read", "prompts/get"):
        light = light_of(
            Trace().span(method, mcp__method__name=method, mcp__resource__uri="res://a", mcp__session__id="s1")
        )
        assert light.role == ""
        assert (light.labels["mcp_session"], light.labels["mcp_resource"]) == ("s1", "res://a")
