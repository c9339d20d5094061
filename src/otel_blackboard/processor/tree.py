"""Runs, steps, passes and calls out of the spans of one trace, in whatever order they came; and who is billed.

`resolve` is a pure function of the set of spans and log records of a trace: every order of arrival gives the same rows.
Missing roots, parents that never come, cycles and clocks that disagree are all shown; none loops, none hides a span.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal

from otel_blackboard.processor.billing import bill
from otel_blackboard.processor.calls import group_calls, told_elsewhere
from otel_blackboard.processor.completion import complete_from_logs, take_usage, without_restated
from otel_blackboard.processor.dialects.dialect import FLOW_RUN, PROVIDER_CALL, TOOL
from otel_blackboard.processor.identity import run_of_trace, slug
from otel_blackboard.processor.nodes import USAGE, Node, node_of
from otel_blackboard.processor.passes import assign_steps, choose_outputs, judge_guards, row_of
from otel_blackboard.processor.prices import set_price
from otel_blackboard.processor.requested import match_requests
from otel_blackboard.records import SATELLITE, Light, LogLight, Resolved, RunPart

READER_VERSION = 3
"""Raised when a better reading should be applied to old traces (`otel-blackboard rederive`)."""


def resolve(
    spans: Sequence[Light],
    logs: Iterable[LogLight] = (),
    hosts: Mapping[str, str] = {},
    usage: Mapping[str, Mapping[str, int]] = {},
) -> tuple[list[Resolved], list[RunPart]]:
    """The rows of one trace. `spans` holds each span id once. `hosts`: span id of a satellite → the run of the call in
    another trace that it restates. `usage`: span id → the usage that its satellite tells: it is what counts."""
    if not spans:
        return [], []
    complete_from_logs(spans, logs)
    for light in spans:
        if light.span_id in usage:
            take_usage(light, usage[light.span_id])
    nodes = sorted(map(node_of, without_restated(spans)), key=lambda node: node.key)
    order = _tree(nodes)
    _name_models(order)
    _assign_parts(order, hosts)
    by_part: dict[str, list[Node]] = defaultdict(list)
    for node in order:
        by_part[node.part].append(node)
    resolved: list[Resolved] = []
    parts: list[RunPart] = []
    for name in sorted(by_part):
        rows, part = _resolve_part(name, by_part[name], hosts)
        resolved += rows
        parts.append(part)
    return sorted(resolved, key=lambda row: row.span_id), parts


def _tree(nodes: list[Node]) -> list[Node]:
    """Links parents, cuts cycles at their earliest span, and returns all nodes with parents before children."""
    by_id = {node.light.span_id: node for node in nodes}
    for node in nodes:
        parent = by_id.get(node.light.parent_span_id)
        node.parent = parent if parent is not node else None
    children: dict[str, list[Node]] = defaultdict(list)
    for node in nodes:
        if node.parent is not None:
            children[node.parent.light.span_id].append(node)
    order: list[Node] = []
    seen: set[str] = set()

    def descend(root: Node) -> None:
        stack = [root]
        while stack:
            node = stack.pop()
            if node.light.span_id in seen:
                continue
            seen.add(node.light.span_id)
            node.depth = node.parent.depth + 1 if node.parent is not None else 0
            order.append(node)
            stack.extend(reversed(children[node.light.span_id]))

    for node in nodes:
        if node.parent is None:
            descend(node)
    for node in nodes:  # what is left is below a cycle: cut it at the earliest span that lies on it
        if node.light.span_id not in seen:
            cut = _earliest_on_cycle(node)
            cut.parent = None
            descend(cut)
    return order


def _name_models(order: list[Node]) -> None:
    """A model call that names no model has the one of the nearest call, or span of its own dialect, above that names one."""
    if all(node.light.role != PROVIDER_CALL or node.light.request_model or node.light.response_model for node in order):
        return
    named: dict[str, dict[str | None, Node]] = {}
    """Span id → dialect, None for calls of any → the nearest span at or above that names a model."""
    for node in order:
        light = node.light
        known = named[node.parent.light.span_id] if node.parent is not None else {}
        if light.role == PROVIDER_CALL and not (light.request_model or light.response_model):
            above = max((known[of] for of in (None, light.dialect) if of in known), key=lambda n: n.depth, default=None)
            if above is not None:
                provider = light.provider or above.light.provider
                node.light = light = replace(light, request_model=above.light.request_model, provider=provider)
                set_price(light)
        if light.request_model:
            known = known | ({None: node} if light.role == PROVIDER_CALL else {}) | {light.dialect: node}
        named[light.span_id] = known


def _earliest_on_cycle(node: Node) -> Node:
    met: dict[str, int] = {}
    path: list[Node] = []
    while node.light.span_id not in met:
        met[node.light.span_id] = len(path)
        path.append(node)
        assert node.parent is not None
        node = node.parent
    return min(path[met[node.light.span_id] :], key=lambda each: each.key)


def _assign_parts(order: list[Node], hosts: Mapping[str, str]) -> None:
    """A span's run: its own id, else its nearest ancestor's, else the only explicit id of the trace, else the one that it
    shares with other traces (its host's, that of a key of its dialect), else the trace's."""
    explicit = {node.light.run_id for node in order if node.light.run_id}
    only = next(iter(explicit)) if len(explicit) == 1 else ""
    joined = {} if only else _joined(order)
    for node in order:
        node.part = node.light.run_id or (node.parent.part if node.parent is not None else "") or only
        if not node.part and node.parent is None:
            node.part = hosts.get(node.light.span_id) or joined.get(node.light.span_id, "")
    if len({node.part for node in order}) > 1:  # inside its run a span hangs under its nearest ancestor of that run
        path: list[Node] = []
        open_of: dict[str, list[Node]] = defaultdict(list)
        for node in order:
            while len(path) > node.depth:
                open_of[path.pop().part].pop()
            node.parent = open_of[node.part][-1] if open_of[node.part] else None
            path.append(node)
            open_of[node.part].append(node)


def _joined(order: list[Node]) -> dict[str, str]:
    """Top of the trace → the run that it shares with other traces: by its own key, or where it has no role by the first
    below it."""
    found: dict[str, tuple[bool, int, str, str]] = {}
    tops: dict[str, Node] = {}
    for node in order:
        top = tops[node.light.span_id] = node if node.parent is None else tops[node.parent.light.span_id]
        key = node.light.join_key.removeprefix(SATELLITE)
        if key and (node is top or not top.light.role):
            known = found.get(top.light.span_id)
            found[top.light.span_id] = min(known or (True, 2**64, "", ""), (node is not top, *node.key, key))
    return {span_id: key for span_id, (*_, key) in found.items()}


def _resolve_part(name: str, nodes: list[Node], hosts: Mapping[str, str]) -> tuple[list[Resolved], RunPart]:
    trace_id = nodes[0].light.trace_id
    run_id = name or run_of_trace(trace_id)
    root = _root(nodes)
    agents = {node.light.agent_id for node in nodes} - {""}
    only_agent = root.light.agent_id if len(agents) == 1 else ""
    implicit_step = "step_" + slug(root.light.agent_id or _run_name(root, nodes))
    use_case = next((n.light.use_case_id for n in [root, *nodes] if n.light.use_case_id), "")
    assign_steps(nodes, root)
    rows = {node.light.span_id: row_of(node, name, run_id, implicit_step, only_agent, use_case) for node in nodes}
    judge_guards(nodes, rows)
    groups = group_calls(nodes, rows)
    bill(nodes, rows, groups, told_elsewhere(nodes, rows, groups, hosts))
    match_requests(nodes, rows)
    choose_outputs(nodes, rows, root)
    return list(rows.values()), _summary(name, run_id, trace_id, root, nodes, rows, groups)


def _root(nodes: list[Node]) -> Node:
    """What the run is called by and how it went: the flow_run at the top, else the topmost span with a role, the earliest
    of each. Where several with a role stand side by side below one without (a web server's), that one."""
    runs = [node for node in nodes if node.light.role == FLOW_RUN]
    roles = [node for node in nodes if node.light.role]
    root = min(runs or roles or nodes, key=lambda node: (node.depth, *node.key))
    top = _top(root)
    if runs or top is root:
        return root
    below: set[str] = set()  # the top, and what has no role between it and those
    beside = 0
    for node in nodes:
        if node is top or (node.parent is not None and node.parent.light.span_id in below):
            if node.light.role:
                beside += 1
            else:
                below.add(node.light.span_id)
    return top if beside > 1 else root


def _top(node: Node) -> Node:
    while node.parent is not None:
        node = node.parent
    return node


def _run_name(root: Node, nodes: list[Node]) -> str:
    return root.light.run_name or next((n.light.run_name for n in nodes if n.light.run_name), "") or root.light.name


def _summary(
    name: str,
    run_id: str,
    trace_id: str,
    root: Node,
    nodes: list[Node],
    rows: dict[str, Resolved],
    groups: dict[str, list[Node]],
) -> RunPart:
    lights = [node.light for node in nodes]
    part = RunPart(trace_id, name, run_id, root_span_id=_top(root).light.span_id)
    part.original_run_id = next(
        (light.labels["original_run_id"] for light in lights if "original_run_id" in light.labels), ""
    )
    part.name = _run_name(root, nodes)
    part.is_root = root.light.role == FLOW_RUN
    part.status = {"running": "running", "failed": "failed"}.get(root.light.status, "complete")
    part.error = root.light.error if root.light.status == "failed" else ""
    part.start_ns = min(light.start_ns for light in lights)
    part.end_ns = max(light.end_ns for light in lights)
    part.open_spans = sum(light.status == "running" for light in lights)
    if part.open_spans:
        part.status = "running"
    part.span_count, part.role_spans = len(lights), sum(bool(light.role) for light in lights)
    part.failed_spans = sum(light.status == "failed" for light in lights)
    part.agents = tuple(dict.fromkeys(row.agent_id for row in _by_start(rows.values()) if row.agent_id))
    inside = _inside_a_run(nodes)
    counts = Counter(
        node.light.role
        for node in nodes
        if node.light.role
        and node.light.role not in (PROVIDER_CALL, TOOL)
        and not (node.light.role == FLOW_RUN and node.light.span_id in inside)
    )
    for span_id in groups:
        counts[rows[span_id].role] += 1
    part.counts = dict(sorted(counts.items()))
    for key in USAGE:
        known = [value for row in rows.values() if row.billed and (value := getattr(row, key)) is not None]
        setattr(part, key, sum(known) if known else None)
    costs = [row.cost_usd for row in rows.values() if row.billed and row.cost_usd is not None]
    part.cost_usd = sum(costs, Decimal(0)) if costs else None
    for members in groups.values():
        if members[0].light.role != PROVIDER_CALL or all(
            rows[node.light.span_id].status != "succeeded" for node in members
        ):
            continue
        billed = [rows[node.light.span_id] for node in members if rows[node.light.span_id].billed]
        part.calls_succeeded += 1
        part.calls_with_usage += bool(billed)
        part.calls_without_cost += not any(row.cost_usd is not None for row in billed)
    first = [root.light, *lights]
    part.conversation_id = next((light.conversation_id for light in first if light.conversation_id), "")
    part.use_case_id = next((light.use_case_id for light in first if light.use_case_id), "")
    part.user_id = next((light.user_id for light in first if light.user_id), "")
    part.trigger = next((light.labels["trigger"] for light in first if "trigger" in light.labels), "manual")
    part.last_stored_ns = max(light.stored_at_ns for light in lights)
    return part


def _inside_a_run(nodes: list[Node]) -> set[str]:
    """The spans below a flow_run: another one there is a piece of that run, as a workflow called by a workflow. `nodes`:
    parents before children."""
    inside: set[str] = set()
    for node in nodes:
        above = node.parent
        if above is not None and (above.light.role == FLOW_RUN or above.light.span_id in inside):
            inside.add(node.light.span_id)
    return inside


def _by_start(rows: Iterable[Resolved]) -> list[Resolved]:
    return sorted(rows, key=lambda row: (row.start_ns, row.span_id))
