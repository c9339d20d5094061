"""Which spans record the same model call or tool invocation: nested, side by side, with one id, or told in two pieces."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from otel_blackboard.processor.dialects.dialect import PROVIDER_CALL, TOOL
from otel_blackboard.processor.nodes import Node, end_of, has_usage, own_pass
from otel_blackboard.records import REQUEST, Light, Resolved

SAME_CALL_NS = 5_000_000_000
"""Two records of one response id are one call when their times overlap within this."""


def group_calls(nodes: list[Node], rows: dict[str, Resolved]) -> dict[str, list[Node]]:
    """Groups the records of one request: representative span id → its spans. Sets call_span_id on every call."""
    calls = [node for node in nodes if node.light.role in (PROVIDER_CALL, TOOL)]
    by_id = {node.light.span_id: node for node in calls}
    leader: dict[str, str] = {node.light.span_id: node.light.span_id for node in calls}

    def find(span_id: str) -> str:
        while leader[span_id] != span_id:
            leader[span_id] = leader[leader[span_id]]
            span_id = leader[span_id]
        return span_id

    def join(one: Node, other: Node) -> None:
        first, second = find(one.light.span_id), find(other.light.span_id)
        if first != second:
            low, high = sorted((by_id[first], by_id[second]), key=lambda node: (node.depth, *node.key))
            leader[high.light.span_id] = low.light.span_id

    directly_below: dict[str, list[Node]] = defaultdict(list)
    for node in calls:
        above = node.marked  # with no pass and no other kind of call in between
        if above is not None and above.light.role == node.light.role:
            directly_below[above.light.span_id].append(node)
    restating: set[str] = set()
    for span_id in sorted(directly_below, key=lambda span_id: -by_id[span_id].depth):
        outer, below = by_id[span_id], directly_below[span_id]
        if outer.light.role == TOOL:
            for node in below:
                if _same_tool_call(outer, node) or (len(below) == 1 and _restates_tool(outer, node)):
                    join(outer, node)
            continue
        beside = [node for node in below if node.light.span_id not in restating]
        for one, other in [*_same_response(beside), *_twins(beside)]:  # several instrumentations tell of one request
            join(one, other)
        requests = {find(node.light.span_id) for node in below}
        if len(requests) == 1 and len(beside) == len(below) and all(_same_model(outer, node) for node in below):
            join(outer, below[0])
        elif same := [node for node in beside if _same_answer(outer.light, node.light)]:
            for node in same:  # the others came to stand below it
                join(outer, node)
        else:
            restating.add(span_id)  # calls of its own below: it only sums them up
    own = [node for node in calls if node.light.span_id not in restating]
    same_id = [*_same_response(own), *_same_tool_call_of_pass(own)]
    for one, other in [*same_id, *_told_in_two_passes(nodes, own), *_twins(own), *_streamed(own)]:
        join(one, other)
    groups: dict[str, list[Node]] = defaultdict(list)
    for node in calls:
        if node.light.span_id not in restating:
            representative = find(node.light.span_id)
            rows[node.light.span_id].call_span_id = representative
            groups[representative].append(node)
    for representative, same_call in groups.items():
        _fail_unanswered(rows[representative], same_call)
        for node in same_call:
            row = rows[node.light.span_id]
            if row.role == TOOL and row.tool_name == row.name:  # it names no tool
                row.tool_name = rows[representative].tool_name
    return groups


def told_elsewhere(
    nodes: list[Node], rows: dict[str, Resolved], groups: dict[str, list[Node]], hosts: Mapping[str, str]
) -> list[Node]:
    """Takes out of the calls those that are counted in another trace: satellites, with all other records of theirs."""
    elsewhere = [node for node in nodes if node.light.span_id in hosts]
    for representative in {rows[node.light.span_id].call_span_id for node in elsewhere} - {""}:
        for node in groups.pop(representative):
            rows[node.light.span_id].call_span_id = ""
            if node.light.span_id not in hosts:
                elsewhere.append(node)
    return elsewhere


def _fail_unanswered(row: Resolved, same_call: list[Node]) -> None:
    """A model call that failed by one of its records, and has an answer by none: not every emitter knows a failure."""
    if len(same_call) < 2 or row.role != PROVIDER_CALL or row.status != "succeeded":
        return
    failed = next((node.light for node in same_call if node.light.status == "failed"), None)
    if failed and not any(node.light.has_output or has_usage(node.light) for node in same_call):
        row.status, row.error = "failed", failed.error


def _same_response(calls: Iterable[Node]) -> list[tuple[Node, Node]]:
    """Records of one response id whose times overlap."""
    by_id: dict[tuple[str, str], list[Node]] = defaultdict(list)
    for node in calls:
        if node.light.response_id:
            by_id[(node.light.role, node.light.response_id)].append(node)
    return [
        (last, node) for same in by_id.values() for last, node in _successive(same) if _overlap(last.light, node.light)
    ]


def _same_tool_call_of_pass(calls: Iterable[Node]) -> list[tuple[Node, Node]]:
    """Records of one tool call id in one pass that are of one call: some servers count ids anew with each answer."""
    by_id: dict[tuple[str, str, str], list[Node]] = defaultdict(list)
    for node in calls:
        if node.light.tool_call_id:
            by_id[(node.light.role, node.light.tool_call_id, own_pass(node))].append(node)
    return [(last, node) for same in by_id.values() for last, node in _successive(same) if _same_invocation(last, node)]


def _same_invocation(one: Node, later: Node) -> bool:
    """Whether two records of one id are one call: at one time they are, soon after each other where nothing says otherwise,
    at another time only where both say that they are (a message told again)."""
    if later.light.start_ns < end_of(one.light):
        return True
    names = {_tool_named(one.light), _tool_named(later.light)} - {""}
    if len(names) > 1 or not _same_arguments(one, later):
        return False
    return _overlap(one.light, later.light) or "" not in (one.light.arguments_sha256, later.light.arguments_sha256)


def _tool_named(light: Light) -> str:
    """'' where the name is only that of the span."""
    return light.tool_name if light.tool_name != light.name else ""


def _successive(nodes: list[Node]) -> Iterable[tuple[Node, Node]]:
    """Each but the first by start, with the one that ends last of those before it."""
    nodes = sorted(nodes, key=lambda node: node.key)
    last = nodes[0]
    for node in nodes[1:]:
        yield last, node
        if end_of(node.light) > end_of(last.light):
            last = node


def _told_in_two_passes(nodes: Sequence[Node], calls: Iterable[Node]) -> list[tuple[Node, Node]]:
    """Records of one tool call under two spans for one pass: an instrumentation's of an agent, and the agent's own below.

    Some servers count call ids anew with each answer, so id, name and time have to be the same."""
    by_call: dict[tuple[str, str], list[Node]] = defaultdict(list)
    for node in calls:
        if node.light.role == TOOL and node.light.tool_call_id:
            by_call[(node.light.tool_call_id, node.light.tool_name)].append(node)
    told = [sorted(same, key=lambda node: node.key) for same in by_call.values() if len(same) > 1]
    pairs = [
        (node, later)
        for same in told
        for node, later in pairwise(same)
        if node.step is not later.step and later.light.start_ns < end_of(node.light)
    ]
    if not pairs:
        return []
    extent = _extents(nodes)

    def holds(outer: Node | None, inner: Node | None) -> bool:  # what belongs to no pass holds all
        if outer is None or inner is None:
            return outer is None
        first, last = extent[outer.light.span_id]
        return first <= extent[inner.light.span_id][0] <= last

    return [(one, other) for one, other in pairs if holds(one.step, other.step) or holds(other.step, one.step)]


def _extents(nodes: Sequence[Node]) -> dict[str, tuple[int, int]]:
    """Span id → its place among the nodes, and the place of the last one below it."""
    extent = {node.light.span_id: (place, place) for place, node in enumerate(nodes)}
    for node in reversed(nodes):
        if node.parent is not None:
            first, last = extent[node.parent.light.span_id]
            extent[node.parent.light.span_id] = (first, max(last, extent[node.light.span_id][1]))
    return extent


SAME_MOMENT_NS = 50_000_000
"""Two instrumentations of one client begin and end their spans of one call within this (captured: a few ms)."""

_MOST_TWINS = 16
"""Records that one is compared with: more instrumentations than anyone installs."""


def _twins(calls: Iterable[Node]) -> list[tuple[Node, Node]]:
    """Model calls side by side that several instrumentations tell of: same parent, moment, model and tokens, and no id that
    says otherwise. An instrumentation tells of a call once: of two calls alike at one moment each has records of its own."""
    beside: dict[str, list[Node]] = defaultdict(list)
    for node in calls:
        if node.light.role == PROVIDER_CALL and has_usage(node.light):
            beside[node.parent.light.span_id if node.parent is not None else ""].append(node)
    found = []
    for group in beside.values():
        told: list[list[Node]] = []  # calls that began at this moment, by their records
        for node in sorted(group, key=lambda node: node.key):
            moment = node.light.start_ns - SAME_MOMENT_NS
            told = [records for records in told if records[0].light.start_ns >= moment][-_MOST_TWINS:]
            same = next((each for each in told if all(_is_twin(other, node) for other in each[:_MOST_TWINS])), None)
            if same is None:
                told.append([node])
            else:
                found.append((same[0], node))
                same.append(node)
    return found


def _is_twin(node: Node, later: Node) -> bool:
    one, other = node.light, later.light
    return (
        one.scope != other.scope
        and (not one.response_id or not other.response_id or one.response_id == other.response_id)
        and abs(end_of(one) - end_of(other)) <= SAME_MOMENT_NS
        and (one.input_tokens, one.output_tokens) == (other.input_tokens, other.output_tokens)
        and _same_model(node, later)
    )


def _streamed(calls: Iterable[Node]) -> list[tuple[Node, Node]]:
    """Requests whose streamed answer is told by a record of its own, of no length, beside them (Logfire): each with the
    latest request before it of the same scope, model and content that tells neither answer nor usage."""
    open_requests: dict[tuple[str, ...], list[Node]] = defaultdict(list)
    found = []
    for node in sorted(calls, key=lambda node: node.key):
        light = node.light
        if light.role != PROVIDER_CALL or light.status != "succeeded":
            continue
        parent = node.parent.light.span_id if node.parent is not None else ""
        place = (parent, light.scope, light.request_model, light.labels.get(REQUEST, ""))
        if not (light.has_output or light.response_id or has_usage(light)):
            open_requests[place].append(node)
        elif light.start_ns == light.end_ns and open_requests[place]:
            found.append((open_requests[place].pop(), node))
    return found


def _restates_tool(outer: Node, inner: Node) -> bool:
    """Whether the only tool span below one of the same name is the same invocation: an agent's tool, the MCP client that it
    asks, the server that answers. Nothing may say otherwise."""
    one, other = outer.light, inner.light
    ids = {one.tool_call_id, other.tool_call_id} - {""}
    return bool(one.tool_name) and one.tool_name == other.tool_name and len(ids) < 2 and _same_arguments(outer, inner)


def _same_model(outer: Node, inner: Node) -> bool:
    one = {outer.light.request_model, outer.light.response_model} - {""}
    other = {inner.light.request_model, inner.light.response_model} - {""}
    return not one or not other or bool(one & other)


def _same_answer(one: Light, other: Light) -> bool:
    """By response id and usage: a sum over several calls may bear the id of the last one."""
    usage = (one.input_tokens, one.output_tokens) == (other.input_tokens, other.output_tokens)
    return bool(one.response_id) and one.response_id == other.response_id and usage


def _same_tool_call(one: Node, other: Node) -> bool:
    return bool(one.light.tool_call_id) and one.light.tool_call_id == other.light.tool_call_id


def _same_arguments(one: Node, other: Node) -> bool:
    """Whether nothing says otherwise."""
    sent = {one.light.arguments_sha256, other.light.arguments_sha256} - {""}
    return len(sent) < 2


def _overlap(one: Light, other: Light) -> bool:
    return one.start_ns - SAME_CALL_NS <= end_of(other) and other.start_ns - SAME_CALL_NS <= end_of(one)
