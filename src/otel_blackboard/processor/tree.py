"""Runs, steps, passes and calls out of the spans of one trace, in whatever order they came; and who is billed.

`resolve` is a pure function of the set of spans and log records of a trace: every order of arrival gives the same rows.
Missing roots, parents that never come, cycles and clocks that disagree are all shown; none loops, none hides a span.
"""

from __future__ import annotations

import copy
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import pairwise

from otel_blackboard.processor.dialects.dialect import FLOW_RUN, GUARD, PROVIDER_CALL, STEP, TOOL
from otel_blackboard.processor.identity import run_of_trace, slug
from otel_blackboard.processor.prices import set_price
from otel_blackboard.processor.providers import INFERRED
from otel_blackboard.records import SATELLITE, Light, LogLight, RequestedCall, Resolved, RunPart

READER_VERSION = 2
"""Raised when a better reading should be applied to old traces (`otel-blackboard rederive`)."""

SAME_CALL_NS = 5_000_000_000
"""Two records of one response id are one call when their times overlap within this."""

USAGE = ("input_tokens", "output_tokens", "cached_input_tokens", "cache_write_tokens", "reasoning_tokens")


@dataclass(slots=True)
class _Node:
    light: Light
    parent: _Node | None = None
    part: str = ""
    step: _Node | None = None
    """Innermost pass this span belongs to, by its identity-giving (outermost) span."""
    inner_step: _Node | None = None
    agents: set[str] = field(default_factory=set)
    """The agents that the steps inside this pass name."""
    depth: int = 0
    marked: _Node | None = None
    """The nearest pass or call above."""
    agent_id: str = ""
    """Of the span, else of the nearest span above that names one."""
    step_id: str = ""
    pass_seq: int | None = None
    attempt: int | None = None
    """What is stamped on the pass; on its outermost span also what only an inner one says."""

    @property
    def key(self) -> tuple[int, str]:
        return (self.light.start_ns, self.light.span_id)


def _node(light: Light) -> _Node:
    return _Node(light, agent_id=light.agent_id, step_id=light.step_id, pass_seq=light.pass_seq, attempt=light.attempt)


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
            _take_usage(light, usage[light.span_id])
    nodes = sorted(map(_node, _without_restated(spans)), key=lambda node: node.key)
    order = _tree(nodes)
    _name_models(order)
    _assign_parts(order, hosts)
    by_part: dict[str, list[_Node]] = defaultdict(list)
    for node in order:
        by_part[node.part].append(node)
    resolved: list[Resolved] = []
    parts: list[RunPart] = []
    for name in sorted(by_part):
        rows, part = _resolve_part(name, by_part[name], hosts)
        resolved += rows
        parts.append(part)
    return sorted(resolved, key=lambda row: row.span_id), parts


_FROM_LOGS = (
    "conversation_id",
    "user_id",
    "provider",
    "request_model",
    "response_model",
    "response_id",
    "requested",
    *USAGE,
)
_PRICED_BY = frozenset(("provider", "request_model", "response_model", *USAGE))


def _take_usage(light: Light, told: Mapping[str, int]) -> None:
    for name, count in told.items():
        setattr(light, name, count)
    if light.cost_source != "span":
        light.cost_usd, light.cost_source = None, ""
        set_price(light)


def complete_from_logs(spans: Sequence[Light], logs: Iterable[LogLight]) -> None:
    """Log records complete their span: what an attribute said stays, several logs count by time, then hash."""
    by_span = {light.span_id: light for light in spans}
    priced_anew: dict[str, Light] = {}
    for log in sorted(logs, key=lambda log: (log.time_ns, log.record_sha256)):
        light = by_span.get(log.span_id)
        if light is None:
            continue
        for name in _FROM_LOGS:
            said = getattr(log, name)
            if said in (None, "", ()):
                continue
            inferred = name == "provider" and INFERRED in light.labels
            if inferred or getattr(light, name) in (None, "", ()):
                setattr(light, name, said)
                if inferred:
                    light.labels = {label: value for label, value in light.labels.items() if label != INFERRED}
                if name in _PRICED_BY and light.cost_source != "span":
                    priced_anew[light.span_id] = light
        light.has_input = light.has_input or log.has_input
        light.has_output = light.has_output or log.has_output
        if log.labels:
            light.labels = light.labels | log.labels
    for light in priced_anew.values():  # by all that is known in the end
        light.cost_usd, light.cost_source = None, ""
        set_price(light)


def _without_restated(spans: Sequence[Light]) -> Sequence[Light]:
    """Spans made of log records have no part in a derived trace once one of its records was written inside another trace:
    then the emitter sends spans, which say the same (captured: Codex, whose records of usage name no call)."""
    if not any("traced" in light.labels for light in spans):
        return spans
    restated = [copy.copy(light) for light in spans]
    for light in restated:
        if "from_log" in light.labels:
            light.role, light.cost_usd, light.cost_source = "", None, ""
            for name in USAGE:
                setattr(light, name, None)
    return restated


# ---------------------------------------------------------------------------------------------------------------- tree


def _tree(nodes: list[_Node]) -> list[_Node]:
    """Links parents, cuts cycles at their earliest span, and returns all nodes with parents before children."""
    by_id = {node.light.span_id: node for node in nodes}
    for node in nodes:
        parent = by_id.get(node.light.parent_span_id)
        node.parent = parent if parent is not node else None
    children: dict[str, list[_Node]] = defaultdict(list)
    for node in nodes:
        if node.parent is not None:
            children[node.parent.light.span_id].append(node)
    order: list[_Node] = []
    seen: set[str] = set()

    def descend(root: _Node) -> None:
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


def _name_models(order: list[_Node]) -> None:
    """A model call that names no model has the one of the nearest call, or span of its own dialect, above that names one."""
    for node in order:
        light = node.light
        if light.role != PROVIDER_CALL or light.request_model or light.response_model:
            continue
        above = node.parent
        while above is not None and not (
            above.light.request_model and (above.light.role == PROVIDER_CALL or above.light.dialect == light.dialect)
        ):
            above = above.parent
        if above is not None:
            provider = light.provider or above.light.provider
            node.light = replace(light, request_model=above.light.request_model, provider=provider)
            set_price(node.light)


def _earliest_on_cycle(node: _Node) -> _Node:
    met: dict[str, int] = {}
    path: list[_Node] = []
    while node.light.span_id not in met:
        met[node.light.span_id] = len(path)
        path.append(node)
        assert node.parent is not None
        node = node.parent
    return min(path[met[node.light.span_id] :], key=lambda each: each.key)


def _assign_parts(order: list[_Node], hosts: Mapping[str, str]) -> None:
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
        path: list[_Node] = []
        open_of: dict[str, list[_Node]] = defaultdict(list)
        for node in order:
            while len(path) > node.depth:
                open_of[path.pop().part].pop()
            node.parent = open_of[node.part][-1] if open_of[node.part] else None
            path.append(node)
            open_of[node.part].append(node)


def _joined(order: list[_Node]) -> dict[str, str]:
    """Top of the trace → the run that it shares with other traces: by its own key, or where it has no role by the first
    below it."""
    found: dict[str, tuple[bool, int, str, str]] = {}
    tops: dict[str, _Node] = {}
    for node in order:
        top = tops[node.light.span_id] = node if node.parent is None else tops[node.parent.light.span_id]
        key = node.light.join_key.removeprefix(SATELLITE)
        if key and (node is top or not top.light.role):
            known = found.get(top.light.span_id)
            found[top.light.span_id] = min(known or (True, 2**64, "", ""), (node is not top, *node.key, key))
    return {span_id: key for span_id, (*_, key) in found.items()}


# ---------------------------------------------------------------------------------------------------------------- part


def _resolve_part(name: str, nodes: list[_Node], hosts: Mapping[str, str]) -> tuple[list[Resolved], RunPart]:
    trace_id = nodes[0].light.trace_id
    run_id = name or run_of_trace(trace_id)
    root = _root(nodes)
    part_agent = root.light.agent_id
    implicit_step = "step_" + slug(part_agent or root.light.agent_id or root.light.name)
    use_case = next((n.light.use_case_id for n in [root, *nodes] if n.light.use_case_id), "")
    _assign_steps(nodes, root)
    rows = {node.light.span_id: _row(node, name, run_id, implicit_step, part_agent, use_case) for node in nodes}
    _judge_guards(nodes, rows)
    groups = _calls(nodes, rows, hosts)
    _bill(nodes, rows, groups, hosts)
    _match_requests(nodes, rows)
    _choose_outputs(nodes, rows)
    return list(rows.values()), _summary(name, run_id, trace_id, root, nodes, rows, groups)


def _root(nodes: list[_Node]) -> _Node:
    """The flow_run at the top, else the topmost span with a role, else the topmost: the earliest of each."""
    runs = [node for node in nodes if node.light.role == FLOW_RUN]
    roles = [node for node in nodes if node.light.role]
    return min(runs or roles or nodes, key=lambda node: (node.depth, *node.key))


def _assign_steps(nodes: list[_Node], root: _Node) -> None:
    """Each span's pass. A step directly holding one of the same agent is that same pass: the outer gives the identity.

    A span whose parent is missing is shown under the run's root, so where that is a pass, it belongs to it.
    """
    root_pass = root if root.light.role == STEP and not root.light.parent_span_id else None
    for node in nodes:
        parent = node.parent
        if parent is None and node.light.parent_span_id and node.light.role != STEP:
            parent = root_pass
        if parent is not None:
            node.marked = parent if parent.light.role in (STEP, TOOL, PROVIDER_CALL) else parent.marked
            node.agent_id = node.agent_id or parent.agent_id
        if parent is None or parent is root_pass or _is_agent_tool(parent.light):
            node.step = node.inner_step = parent
        else:
            node.step, node.inner_step = parent.step, parent.inner_step
        above = node.step
        if node.light.role == STEP:
            node.step = node.inner_step = node
            if above is not None and _same_pass(above, node) and _directly(above, node):
                node.step = above
                above.step_id = above.step_id or node.step_id
                if above.pass_seq is None:
                    above.pass_seq, above.attempt = node.pass_seq, node.attempt
    for node in nodes:  # a step that names no agent is the pass of the one agent that it holds
        inner = node.inner_step
        if inner is not None and node.step is not None and inner is not node.step and inner.light.agent_id:
            node.step.agents.add(inner.light.agent_id)
    _number_retries(nodes)


def _number_retries(nodes: list[_Node]) -> None:
    """Steps that say which pass they are without a number (label `pass_key`): one that comes again is its next attempt."""
    keyed = [node for node in nodes if "pass_key" in node.light.labels and node.pass_seq is None]
    passes: dict[tuple[str, str], dict[str, list[_Node]]] = defaultdict(lambda: defaultdict(list))
    for node in sorted(keyed, key=lambda node: node.key):
        passes[(node.step_id, node.light.agent_id)][node.light.labels["pass_key"]].append(node)
    for of_step in passes.values():
        for pass_seq, attempts in enumerate(of_step.values(), 1):
            if len(attempts) > 1:
                for attempt, node in enumerate(attempts, 1):
                    node.pass_seq, node.attempt = pass_seq, attempt


def _is_agent_tool(light: Light) -> bool:
    """A tool call that runs an agent: a call of the pass above, and itself the pass of what is below."""
    return light.role == TOOL and light.is_agent


def _same_pass(outer: _Node, inner: _Node) -> bool:
    one, other = outer.light.agent_id, inner.light.agent_id
    if one and one == other:
        # Both numbered and different: an outer pass that really holds another pass of its own agent.
        numbers = [(node.pass_seq, node.attempt or 1) for node in (outer, inner) if node.pass_seq is not None]
        return len(set(numbers)) < 2
    return bool(outer.step_id) and outer.step_id == inner.step_id and not (one and other)


def _directly(outer: _Node, inner: _Node) -> bool:
    """Whether no call stands between them: what is right above is the outer step, or another span of its pass."""
    above = inner.marked
    return above is not None and above.light.role == STEP and above.step is outer


def _row(node: _Node, part: str, run_id: str, implicit_step: str, part_agent: str, use_case: str) -> Resolved:
    light = node.light
    row = Resolved(light.trace_id, light.span_id, part, run_id)
    row.parent_span_id = node.parent.light.span_id if node.parent is not None else ""
    row.role, row.name, row.operation = light.role, light.name, light.operation
    row.start_ns, row.end_ns, row.status, row.error = light.start_ns, light.end_ns, light.status, light.error
    row.labels, row.requested = light.labels, light.requested
    row.loop_iteration, row.output_retry, row.retry_count = light.loop_iteration, light.output_retry, light.retry_count
    row.provider, row.model = light.provider, light.response_model or light.request_model
    row.tool_name, row.tool_class, row.tool_call_id = light.tool_name, light.tool_class, light.tool_call_id
    row.use_case_id = light.use_case_id or use_case
    for name in USAGE:
        setattr(row, name, getattr(light, name))
    row.cost_usd, row.cost_source = light.cost_usd, light.cost_source
    step = node.step
    if step is None:
        row.step_id = light.step_id or implicit_step
        row.step_name = light.step_name
        row.agent_id = ("" if _is_agent_tool(light) else light.agent_id) or part_agent
        row.pass_seq, row.attempt = light.pass_seq, light.attempt
    else:
        own = step.light
        named = _named(node)
        row.step_span_id = own.span_id
        said = light.agent_id if light.role in (TOOL, PROVIDER_CALL) and not _is_agent_tool(light) else ""
        row.agent_id = own.agent_id or named or said or step.agent_id
        row.step_id = step.step_id or light.step_id or "step_" + slug(own.agent_id or own.step_name or own.name)
        row.step_name = own.step_name or own.agent_id or own.name
        row.pass_seq = step.pass_seq if step.pass_seq is not None else light.pass_seq
        row.attempt = step.attempt if step.attempt is not None else light.attempt
    row.call_seq = light.call_seq
    return row


def _named(node: _Node) -> str:
    """The agent that a step inside the pass names, where the outer one names none."""
    if node.step is not None and len(node.step.agents) == 1:
        return next(iter(node.step.agents))
    return node.inner_step.light.agent_id if node.inner_step is not None else ""


def _judge_guards(nodes: list[_Node], rows: dict[str, Resolved]) -> None:
    """A guard whose verdict only the span above it tells, by failing: it names the guard (label `tripped_guard`)."""
    for node in nodes:
        light = node.light
        if light.role == GUARD and node.parent is not None and "guard_status" not in light.labels:
            tripped = node.parent.light.labels.get("tripped_guard")
            if tripped and tripped == light.labels.get("guard_name", light.name):
                rows[light.span_id].labels = light.labels | {"guard_status": "blocked"}


# --------------------------------------------------------------------------------------------------------------- calls


def _calls(nodes: list[_Node], rows: dict[str, Resolved], hosts: Mapping[str, str]) -> dict[str, list[_Node]]:
    """Groups the records of one request: representative span id → its spans. Sets call_span_id on every call."""
    calls = [node for node in nodes if node.light.role in (PROVIDER_CALL, TOOL)]
    by_id = {node.light.span_id: node for node in calls}
    leader: dict[str, str] = {node.light.span_id: node.light.span_id for node in calls}

    def find(span_id: str) -> str:
        while leader[span_id] != span_id:
            leader[span_id] = leader[leader[span_id]]
            span_id = leader[span_id]
        return span_id

    def join(one: _Node, other: _Node) -> None:
        first, second = find(one.light.span_id), find(other.light.span_id)
        if first != second:
            low, high = sorted((by_id[first], by_id[second]), key=lambda node: (node.depth, *node.key))
            leader[high.light.span_id] = low.light.span_id

    directly_below: dict[str, list[_Node]] = defaultdict(list)
    for node in calls:
        above = node.marked  # with no pass and no other kind of call in between
        if above is not None and above.light.role == node.light.role:
            directly_below[above.light.span_id].append(node)
    restating = set(hosts)
    for span_id in sorted(directly_below, key=lambda span_id: -by_id[span_id].depth):
        outer, below = by_id[span_id], directly_below[span_id]
        if outer.light.role == TOOL:
            for node in below:
                if _same_tool_call(outer, node) or (len(below) == 1 and _restates_tool(outer, node)):
                    join(outer, node)
        elif len(below) == 1 and _same_model(outer, below[0]) and below[0].light.span_id not in restating:
            join(outer, below[0])
        elif same := [node for node in below if _same_answer(outer.light, node.light)]:
            for node in same:  # the others came to stand below it
                join(outer, node)
        else:
            restating.add(span_id)  # calls of its own below: it only sums them up
    for key in ("response_id", "tool_call_id"):
        shared: dict[tuple[str, str, str], list[_Node]] = defaultdict(list)
        for node in calls:
            if (value := getattr(node.light, key)) and node.light.span_id not in restating:
                passed = rows[node.light.span_id].step_span_id if key == "tool_call_id" else ""
                shared[(node.light.role, value, passed)].append(node)
        for same in shared.values():
            latest: _Node | None = None  # the one that ends last of those before
            for node in sorted(same, key=lambda node: node.key):
                if latest is not None and (
                    _overlap(latest.light, node.light) or (key == "tool_call_id" and _same_arguments(latest, node))
                ):
                    join(latest, node)
                if latest is None or _end(node.light) > _end(latest.light):
                    latest = node
    own = [node for node in calls if node.light.span_id not in restating]
    for one, other in [*_told_in_two_passes(own), *_twins(own), *_streamed(own)]:
        join(one, other)
    groups: dict[str, list[_Node]] = defaultdict(list)
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


def _fail_unanswered(row: Resolved, same_call: list[_Node]) -> None:
    """A model call that failed by one of its records, and has an answer by none: not every emitter knows a failure."""
    if len(same_call) < 2 or row.role != PROVIDER_CALL or row.status != "succeeded":
        return
    failed = next((node.light for node in same_call if node.light.status == "failed"), None)
    if failed and not any(node.light.has_output or _has_usage(node.light) for node in same_call):
        row.status, row.error = "failed", failed.error


def _told_in_two_passes(calls: Iterable[_Node]) -> list[tuple[_Node, _Node]]:
    """Records of one tool call under two spans for one pass: an instrumentation's of an agent, and the agent's own below.

    Some servers count call ids anew with each answer, so id, name and time have to be the same."""
    by_call: dict[tuple[str, str], list[_Node]] = defaultdict(list)
    for node in calls:
        if node.light.role == TOOL and node.light.tool_call_id:
            by_call[(node.light.tool_call_id, node.light.tool_name)].append(node)
    found = []
    for same in by_call.values():
        same.sort(key=lambda node: node.key)
        for node, later in pairwise(same):
            nested = _holds(node.step, later.step) or _holds(later.step, node.step)
            if node.step is not later.step and nested and later.light.start_ns < _end(node.light):
                found.append((node, later))
    return found


def _holds(outer: _Node | None, inner: _Node | None) -> bool:
    """Whether the outer pass holds the inner one; what belongs to no pass holds all."""
    while inner is not None and inner is not outer:
        inner = inner.parent
    return inner is outer


SAME_MOMENT_NS = 50_000_000
"""Two instrumentations of one client begin and end their spans of one call within this (captured: a few ms)."""

_MOST_TWINS = 16
"""Spans that one is compared with: more instrumentations than anyone installs."""


def _twins(calls: Iterable[_Node]) -> list[tuple[_Node, _Node]]:
    """Model calls side by side that two instrumentations tell of: same parent, moment, model and tokens, and no id that
    says otherwise."""
    beside: dict[str, list[_Node]] = defaultdict(list)
    for node in calls:
        if node.light.role == PROVIDER_CALL and _has_usage(node.light):
            beside[node.parent.light.span_id if node.parent is not None else ""].append(node)
    found = []
    for group in beside.values():
        group.sort(key=lambda node: node.key)
        for place, node in enumerate(group):
            for later in group[place + 1 : place + 1 + _MOST_TWINS]:
                one, other = node.light, later.light
                if other.start_ns - one.start_ns > SAME_MOMENT_NS:
                    break
                ids = {one.response_id, other.response_id} - {""}
                if (
                    one.scope != other.scope
                    and len(ids) < 2
                    and abs(_end(one) - _end(other)) <= SAME_MOMENT_NS
                    and _same_model(node, later)
                    and (one.input_tokens, one.output_tokens) == (other.input_tokens, other.output_tokens)
                ):
                    found.append((node, later))
    return found


def _streamed(calls: Iterable[_Node]) -> list[tuple[_Node, _Node]]:
    """Requests whose streamed answer is told by a record of its own, of no length, beside them (Logfire): each with the
    latest request before it from the same scope and for the same model that tells neither answer nor usage."""
    open_requests: dict[tuple[str, str, str], list[_Node]] = defaultdict(list)
    found = []
    for node in sorted(calls, key=lambda node: node.key):
        light = node.light
        if light.role != PROVIDER_CALL or light.status != "succeeded":
            continue
        place = (node.parent.light.span_id if node.parent is not None else "", light.scope, light.request_model)
        if not (light.has_output or light.response_id or _has_usage(light)):
            open_requests[place].append(node)
        elif light.start_ns == light.end_ns and open_requests[place]:
            found.append((open_requests[place].pop(), node))
    return found


def _restates_tool(outer: _Node, inner: _Node) -> bool:
    """Whether the only tool span below one of the same name is the same invocation: an agent's tool, the MCP client that it
    asks, the server that answers. Nothing may say otherwise."""
    one, other = outer.light, inner.light
    ids = {one.tool_call_id, other.tool_call_id} - {""}
    return bool(one.tool_name) and one.tool_name == other.tool_name and len(ids) < 2 and _same_arguments(outer, inner)


def _same_model(outer: _Node, inner: _Node) -> bool:
    one = {outer.light.request_model, outer.light.response_model} - {""}
    other = {inner.light.request_model, inner.light.response_model} - {""}
    return not one or not other or bool(one & other)


def _same_answer(one: Light, other: Light) -> bool:
    """By response id and usage: a sum over several calls may bear the id of the last one."""
    usage = (one.input_tokens, one.output_tokens) == (other.input_tokens, other.output_tokens)
    return bool(one.response_id) and one.response_id == other.response_id and usage


def _same_tool_call(one: _Node, other: _Node) -> bool:
    return bool(one.light.tool_call_id) and one.light.tool_call_id == other.light.tool_call_id


def _same_arguments(one: _Node, other: _Node) -> bool:
    """Whether nothing says otherwise. Some servers count call ids anew with each answer: those are other calls."""
    sent = {one.light.arguments_sha256, other.light.arguments_sha256} - {""}
    return len(sent) < 2


def _overlap(one: Light, other: Light) -> bool:
    return one.start_ns - SAME_CALL_NS <= _end(other) and other.start_ns - SAME_CALL_NS <= _end(one)


def _end(light: Light) -> int:
    return light.end_ns or 2**64


# ------------------------------------------------------------------------------------------------------------- billing


def _bill(
    nodes: list[_Node], rows: dict[str, Resolved], groups: dict[str, list[_Node]], hosts: Mapping[str, str]
) -> None:
    """One record of each call is billed: the one with most usage figures, the innermost of equals. Usage on anything
    above only restates it; where nothing below has usage, the innermost container counts once, as an aggregate."""
    covered = set(hosts)
    billed_calls: set[str] = set()
    for members in sorted(groups.values(), key=lambda members: -max(node.depth for node in members)):
        reporting = [node for node in members if _has_usage(node.light)]
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
    containers = [node for node in nodes if not rows[node.light.span_id].call_span_id and _has_usage(node.light)]
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


def _cover(node: _Node, covered: set[str]) -> None:
    above: _Node | None = node
    while above is not None and above.light.span_id not in covered:
        covered.add(above.light.span_id)
        above = above.parent


def _has_usage(light: Light) -> bool:
    return light.cost_usd is not None or light.input_tokens is not None or light.output_tokens is not None


def _detail(light: Light) -> int:
    return sum(getattr(light, name) is not None for name in USAGE) + (light.cost_source == "span")


# -------------------------------------------------------------------------------------------------------------- passes


def _match_requests(nodes: list[_Node], rows: dict[str, Resolved]) -> None:
    """Which model answer asked for each tool call, and at which place: by call id, else by name and arguments in order."""
    answers: dict[str, list[_Node]] = defaultdict(list)
    tools: dict[str, list[_Node]] = defaultdict(list)
    for node in sorted(nodes, key=lambda node: node.key):
        row = rows[node.light.span_id]
        if row.call_span_id:
            if node.light.role == TOOL:
                tools[row.step_span_id].append(node)
            elif node.light.requested:
                answers[row.step_span_id].append(node)
    for step, called in tools.items():
        asked = [
            (answer, index, call)
            for answer in answers[step]
            for index, call in enumerate(answer.light.requested)
            if rows[answer.light.span_id].call_span_id == answer.light.span_id or not _asked_above(answer, rows)
        ]
        # What was asked before the tool call at hand, latest last: both lists are in order of time and walked once.
        by_id: dict[str, list[_Asked]] = defaultdict(list)
        by_name: dict[str, list[_Asked]] = defaultdict(list)
        taken: set[tuple[str, int]] = set()
        place = 0
        for node in called:
            row, light = rows[node.light.span_id], node.light
            while place < len(asked) and asked[place][0].light.start_ns <= light.start_ns:
                by_id[asked[place][2].id].append(asked[place])
                by_name[asked[place][2].name].append(asked[place])
                place += 1
            if row.call_span_id != light.span_id:
                continue
            if light.tool_call_id:
                latest = _latest_open(by_id[light.tool_call_id], taken)[-1:]
            else:
                latest = _latest_open(by_name[light.tool_name], taken)
            same = [each for each in latest if each[2].arguments_sha256 == light.arguments_sha256]
            if latest:
                answer, index, call = (same or latest)[0]
                taken.add((answer.light.span_id, index))
                row.requested_by, row.requested_index = answer.light.span_id, index
                row.tool_call_id = row.tool_call_id or call.id


_Asked = tuple[_Node, int, RequestedCall]
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


def _asked_above(answer: _Node, rows: dict[str, Resolved]) -> bool:
    """Whether the same request's representative already lists the calls that this record repeats."""
    above = answer.parent
    representative = rows[answer.light.span_id].call_span_id
    while above is not None:
        if above.light.span_id == representative:
            return bool(above.light.requested)
        above = above.parent
    return False


def _choose_outputs(nodes: list[_Node], rows: dict[str, Resolved]) -> None:
    """Which span's output stands for each pass: the pass's own (outermost first), else that of its last model call."""
    best: dict[tuple[str, str, str, int | None, int | None], tuple[tuple[int, int, int, str], str]] = {}
    for node in nodes:
        light, row = node.light, rows[node.light.span_id]
        if not light.has_output or light.role not in (STEP, PROVIDER_CALL) or light.operation == "embeddings":
            continue
        if light.role == PROVIDER_CALL and not row.call_span_id:
            continue
        rank = (
            (1, -node.depth, -light.start_ns, light.span_id)
            if light.role == STEP
            else (0, light.start_ns, -node.depth, light.span_id)
        )
        key = (row.step_span_id, row.step_id, row.agent_id, row.pass_seq, row.attempt)
        if key not in best or rank > best[key][0]:
            best[key] = (rank, light.span_id)
    for _, span_id in best.values():
        rows[span_id].stands = True


# ------------------------------------------------------------------------------------------------------------- summary


def _summary(
    name: str,
    run_id: str,
    trace_id: str,
    root: _Node,
    nodes: list[_Node],
    rows: dict[str, Resolved],
    groups: dict[str, list[_Node]],
) -> RunPart:
    lights = [node.light for node in nodes]
    part = RunPart(trace_id, name, run_id, root_span_id=root.light.span_id)
    part.original_run_id = next(
        (light.labels["original_run_id"] for light in lights if "original_run_id" in light.labels), ""
    )
    part.name = (
        root.light.run_name or next((light.run_name for light in lights if light.run_name), "") or root.light.name
    )
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
    counts = Counter(light.role for light in lights if light.role and light.role not in (PROVIDER_CALL, TOOL))
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


def _by_start(rows: Iterable[Resolved]) -> list[Resolved]:
    return sorted(rows, key=lambda row: (row.start_ns, row.span_id))
