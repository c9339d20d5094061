"""Which model answer asked for each tool call."""

from __future__ import annotations

from collections import defaultdict

from otel_blackboard.processor.dialects.dialect import TOOL
from otel_blackboard.processor.nodes import Node, own_pass
from otel_blackboard.records import RequestedCall, Resolved


def match_requests(nodes: list[Node], rows: dict[str, Resolved]) -> None:
    """Which model answer asked for each tool call, and at which place: by call id, else by name and arguments in order.

    Looked for in the call's own pass, then around it (graphs whose model and whose tools are two nodes), then in the whole
    run, where a name alone says nothing."""
    answers: list[Node] = []
    tools: list[Node] = []
    for node in sorted(nodes, key=lambda node: node.key):
        representative = rows[node.light.span_id].call_span_id
        if node.light.role == TOOL and representative == node.light.span_id:
            tools.append(node)
        elif node.light.requested and representative and not _asked_above(node, rows):
            answers.append(node)
    taken: set[tuple[str, int]] = set()
    for within, by_name in ((own_pass, True), (_around_pass, True), (_whole_run, False)):
        asked: dict[str, list[_Asked]] = defaultdict(list)
        called: dict[str, list[Node]] = defaultdict(list)
        for node in answers:
            asked[within(node)] += [(node, index, call) for index, call in enumerate(node.light.requested)]
        for node in tools:
            if not rows[node.light.span_id].requested_by:
                called[within(node)].append(node)
        for place, wanting in called.items():
            _match(wanting, asked[place], taken, rows, by_name)


def _around_pass(node: Node) -> str:
    above = (node.step or node).parent
    return above.light.span_id if above is not None else ""


def _whole_run(node: Node) -> str:
    return ""


def _match(
    tools: list[Node], asked: list[_Asked], taken: set[tuple[str, int]], rows: dict[str, Resolved], by_name: bool
) -> None:
    """What was asked before the tool call at hand, latest last: both lists are in order of time and walked once."""
    by_id: dict[str, list[_Asked]] = defaultdict(list)
    of_name: dict[str, list[_Asked]] = defaultdict(list)
    place = 0
    for node in tools:
        row, light = rows[node.light.span_id], node.light
        while place < len(asked) and asked[place][0].light.start_ns <= light.start_ns:
            by_id[asked[place][2].id].append(asked[place])
            of_name[asked[place][2].name].append(asked[place])
            place += 1
        if light.tool_call_id:
            latest = _latest_open(by_id[light.tool_call_id], taken)[-1:]
        else:
            latest = _latest_open(of_name[light.tool_name], taken)
        same = [each for each in latest if each[2].arguments_sha256 == light.arguments_sha256]
        if not (light.tool_call_id or by_name):
            latest = same = same if light.arguments_sha256 else []
        if latest:
            answer, index, call = (same or latest)[0]
            taken.add((answer.light.span_id, index))
            row.requested_by, row.requested_index = answer.light.span_id, index
            row.tool_call_id = row.tool_call_id or call.id


_Asked = tuple[Node, int, RequestedCall]
"""An answer, and a call that it asks for at a place."""


def _latest_open(asked: list[_Asked], taken: set[tuple[str, int]]) -> list[_Asked]:
    """Of the latest answer that has any: what no tool call has taken yet. Drops from the list what was taken."""
    found: list[_Asked] = []
    while asked and (not found or asked[-1][0] is found[0][0]):
        each = asked.pop()
        if (each[0].light.span_id, each[1]) not in taken:
            found.append(each)
    found.reverse()
    asked.extend(found)
    return found


def _asked_above(answer: Node, rows: dict[str, Resolved]) -> bool:
    """Whether the same request's representative already lists the calls that this record repeats."""
    representative = rows[answer.light.span_id].call_span_id
    above = answer.parent if representative != answer.light.span_id else None
    while above is not None:
        if above.light.span_id == representative:
            return bool(above.light.requested)
        above = above.parent
    return False
