"""Which record of each call is billed, and which containers count because nothing below them reports usage."""

from __future__ import annotations

from collections.abc import Sequence

from otel_blackboard.processor.dialects.dialect import TOOL
from otel_blackboard.processor.nodes import USAGE, Node, has_usage
from otel_blackboard.records import Light, Resolved


def bill(
    nodes: list[Node], rows: dict[str, Resolved], groups: dict[str, list[Node]], elsewhere: Sequence[Node]
) -> None:
    """One record of each call is billed: the one with most usage figures, the innermost of equals. Usage on anything
    above only restates it; where nothing below has usage, the innermost container counts once, as an aggregate."""
    covered: set[str] = set()
    billed_calls = {node.light.span_id for node in elsewhere}
    for node in elsewhere:
        _cover(node, covered)
    for members in sorted(groups.values(), key=lambda members: -max(node.depth for node in members)):
        reporting = [node for node in members if has_usage(node.light)]
        # A tool that reports what the agent below it used only restates it; a model call above a tool never does.
        restates = members[0].light.role == TOOL and any(node.light.span_id in covered for node in members)
        if reporting and not restates:
            chosen = max(reporting, key=lambda n: (_detail(n.light), n.depth, n.light.start_ns, n.light.span_id))
            row = rows[chosen.light.span_id]
            row.billed = True
            stated = [node.light for node in reporting if node.light.cost_source == "span"]
            if stated and row.cost_source != "span":  # another record of the same request says what it cost
                row.cost_usd, row.cost_source = stated[0].cost_usd, "span"
            billed_calls.update(node.light.span_id for node in members)
            for node in members:
                _cover(node, covered)
    containers = [node for node in nodes if not rows[node.light.span_id].call_span_id and has_usage(node.light)]
    for node in sorted(containers, key=lambda node: (-node.depth, *node.key)):
        light, row = node.light, rows[node.light.span_id]
        if light.span_id in covered:
            continue
        if node.marked is not None and node.marked.light.span_id in billed_calls:
            continue  # a detail of a call that is billed already
        row.billed, row.is_aggregate = True, True
        _cover(node, covered)
    for node in nodes:
        row = rows[node.light.span_id]
        if not row.billed:
            row.cost_usd, row.cost_source = None, ""


def _cover(node: Node, covered: set[str]) -> None:
    above: Node | None = node
    while above is not None and above.light.span_id not in covered:
        covered.add(above.light.span_id)
        above = above.parent


def _detail(light: Light) -> int:
    return sum(getattr(light, name) is not None for name in USAGE) + (light.cost_source == "span")
