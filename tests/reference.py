"""The oracle of test_any_order.py: what the routes must answer about a project, out of all its spans and records at once.

Written from design.md §4 and requirements.md, slowly and simply, and apart from processor/tree.py, processor/numbers.py
and query/: every question about a span is answered by looking at all the others. What one span or record alone says comes
from the product's reader (processor/reading.py), which has tests of its own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from otel_blackboard.processor.dialects import BY_FIELD
from otel_blackboard.processor.drafts import arguments_text, sameness
from otel_blackboard.processor.identity import artifact_id, slug
from otel_blackboard.processor.prices import set_price
from otel_blackboard.query.times import duration_ms, rfc3339
from otel_blackboard.records import (
    CACHED_INPUT,
    REQUEST,
    SATELLITE,
    ArtifactRow,
    Body,
    Light,
    LogLight,
    LogRecord,
    RequestedCall,
    Span,
    Tenant,
)
from tests.spans import readings_of

STEP, TOOL, MODEL, FLOW, GUARD = "step", "tool_invocation", "provider_call", "flow_run", "guard"
CALLS = (TOOL, MODEL)
USAGE = ("input_tokens", "output_tokens", "cached_input_tokens", "cache_write_tokens", "reasoning_tokens")
FIVE_SECONDS = 5 * 10**9
TEN_MINUTES = 600 * 10**9
A_DAY = 86_400 * 10**9
FIFTY_MILLISECONDS = 50 * 10**6

SpanKey = tuple[str, str]
"""(trace id, span id)"""


@dataclass(eq=False)
class Node:
    """A span and what the others make of it."""

    light: Light
    above: Node | None = None
    """Its parent in the trace; cycles are cut."""
    depth: int = 0
    part: str = ""
    parent: Node | None = None
    """The nearest span above of the same run."""
    hung: Node | None = None
    """The span under which it counts: its parent, or the root's pass where the parent never came."""
    agent: str = ""
    """Named by it or by the nearest span above."""
    holds: Node | None = None
    """The pass it belongs to, by the outermost step span of it."""
    inner: Node | None = None
    """The innermost step span above or at it."""
    said_step: str = ""
    said_pass: int | None = None
    said_attempt: int | None = None
    """On a pass: the numbers of its own, or of the first step inside that is the same pass."""
    step_id: str = ""
    step_name: str = ""
    agent_id: str = ""
    use_case: str = ""
    pass_seq: int | None = None
    attempt: int | None = None
    call: Node | None = None
    """The span that stands for the call it records."""
    elsewhere: bool = False
    """Its call is counted in another trace."""
    tool_name: str = ""
    status: str = ""
    error: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    """Of the span, unless others say it better."""
    billed: bool = False
    aggregate: bool = False
    cost: Decimal | None = None
    cost_source: str = ""
    asked_by: Node | None = None
    asked_at: int = 0
    call_id: str = ""
    stands: bool = False

    def __post_init__(self) -> None:
        self.tool_name, self.status, self.error = self.light.tool_name, self.light.status, self.light.error
        self.labels = self.light.labels

    @property
    def key(self) -> tuple[int, str]:
        return (self.light.start_ns, self.light.span_id)

    @property
    def place(self) -> tuple[int, str, str]:
        return (self.light.start_ns, self.light.trace_id, self.light.span_id)

    @property
    def role(self) -> str:
        return self.light.role

    @property
    def runs_agent(self) -> bool:
        """A tool that runs an agent: a call of the pass above, and the pass of what is below."""
        return self.light.role == TOOL and self.light.is_agent


@dataclass(eq=False)
class Part:
    """The spans of one run inside one trace, parents before children."""

    trace_id: str
    name: str
    run_id: str
    nodes: list[Node]
    root: Node


@dataclass(eq=False)
class Pass:
    """One attempt of one pass."""

    step_id: str
    agent_id: str
    stamped: bool
    seq: int
    attempt: int
    steps: list[Node] = field(default_factory=list)
    calls: list[Node] = field(default_factory=list)
    numbers: dict[Node, int] = field(default_factory=dict)

    @property
    def start(self) -> int:
        return min(node.light.start_ns for node in (*self.steps, *self.calls))

    @property
    def first(self) -> Node:
        return (self.steps or self.calls)[0]

    @property
    def identity(self) -> tuple[str, str, int]:
        return (self.step_id, self.agent_id, self.seq)

    @property
    def tie(self) -> tuple[str, str, str, str]:
        return (self.step_id, self.agent_id, self.first.light.trace_id, self.first.light.span_id)


@dataclass(eq=False)
class Found:
    """One artifact."""

    identity: str
    also: set[str]
    kind: str
    node: Node
    of: Pass
    call_seq: int
    label: str
    summary: str
    bodies: tuple[Body, ...]
    exact: bool
    arguments: str
    sameness: str
    stands: bool = True
    earlier: bool = False
    text: str = ""


# -------------------------------------------------------------------------------------------- what each alone says


def said(
    tenant: Tenant, spans: Iterable[Span], logs: Iterable[LogRecord]
) -> tuple[list[Light], list[LogLight], list[ArtifactRow]]:
    """Of each span id, record and artifact the version that wins by content."""
    lights: dict[tuple[str, str], Light] = {}
    records: dict[tuple[str, str], LogLight] = {}
    rows: dict[tuple[str, str, str, str], ArtifactRow] = {}
    for reading in readings_of(spans, logs, tenant):
        light = reading.light
        if isinstance(light, Light):
            known = lights.get((light.trace_id, light.span_id))
            lights[(light.trace_id, light.span_id)] = max(
                [light, *([known] if known else [])], key=lambda each: each.version
            )
        else:
            records[(light.trace_id, light.record_sha256)] = light
        for draft in reading.drafts:
            row = draft.row
            row.bodies = tuple(_body(reading.contents[index]) for index in draft.contents)
            key = (row.trace_id, row.span_id, row.kind, row.source)
            if key not in rows or rows[key].version < row.version:
                rows[key] = row
    return list(lights.values()), list(records.values()), list(rows.values())


def _body(content: Any) -> Body:
    return Body(content.field, (), len(content.data), hashlib.sha256(content.data).hexdigest(), content.encoding)


_COMPLETED = ("conversation_id", "user_id", "provider", "request_model", "response_model", "response_id", "requested")


def completed(light: Light, records: Iterable[LogLight]) -> Light:
    """What the span leaves open, its log records say: the earliest first."""
    own = [each for each in records if (each.trace_id, each.span_id) == (light.trace_id, light.span_id)]
    own.sort(key=lambda each: (each.time_ns, each.record_sha256))
    for name in (*_COMPLETED, *USAGE):
        for each in own:
            if getattr(light, name) in (None, "", ()):
                setattr(light, name, getattr(each, name))
    light.has_output = light.has_output or any(each.has_output for each in own)
    from_cache = sum(count or 0 for count in (light.cached_input_tokens, light.cache_write_tokens))
    if light.input_tokens is not None and from_cache > light.input_tokens:  # counted beside: it cannot be otherwise
        light.input_tokens, light.labels = light.input_tokens + from_cache, light.labels | {CACHED_INPUT: "beside"}
    return priced_anew(light)


def priced_anew(light: Light) -> Light:
    if light.cost_source != "span":
        light.cost_usd, light.cost_source = None, ""
        set_price(light)
    return light


@dataclass
class Beside:
    """What spans of other traces say of a call."""

    hosts: dict[SpanKey, SpanKey] = field(default_factory=dict)
    """Satellite → the same call in another trace."""
    usage: dict[SpanKey, dict[str, int]] = field(default_factory=dict)
    """Host → what its satellite says was used."""


def beside(lights: Sequence[Light]) -> Beside:
    """Model calls of which one tells in a trace of its own: by response id, a failed one by model, and by time."""
    found = Beside()
    calls = [light for light in lights if light.role == MODEL]
    satellites = [light for light in calls if light.join_key.startswith(SATELLITE)]
    others = [light for light in calls if light not in satellites]

    def same(satellite: Light, host: Light) -> bool:
        if satellite.trace_id == host.trace_id or satellite.response_id != host.response_id:
            return False
        if host.response_id and abs(satellite.start_ns - host.start_ns) > A_DAY:
            return False
        if not host.response_id:
            tried = -FIVE_SECONDS <= satellite.start_ns - host.start_ns <= TEN_MINUTES
            if host.status != "failed" or host.request_model != satellite.request_model or not tried:
                return False
        return _near(satellite, host)

    for satellite in satellites:
        hosts = [(host.trace_id, host.span_id) for host in others if same(satellite, host)]
        if hosts:
            found.hosts[(satellite.trace_id, satellite.span_id)] = min(hosts)
    for host in others:
        told = [each for each in satellites if host.response_id and same(each, host) and usage_of(each)]
        if told:
            best = min(told, key=lambda each: (each.trace_id, each.span_id))
            found.usage[(host.trace_id, host.span_id)] = usage_of(best)
    return found


def usage_of(light: Light) -> dict[str, int]:
    return {name: count for name in USAGE if (count := getattr(light, name)) is not None}


def without_restated(lights: Sequence[Light]) -> list[Light]:
    """Of a trace: what was made of log records does not count where the emitter sent spans as well."""
    if all("traced" not in light.labels for light in lights):
        return list(lights)
    nothing: dict[str, Any] = dict.fromkeys(USAGE) | {"role": "", "cost_usd": None, "cost_source": ""}
    return [replace(light, **nothing) if "from_log" in light.labels else light for light in lights]


# ----------------------------------------------------------------------------------------------------- the tree


def tree(lights: Iterable[Light]) -> list[Node]:
    """The spans of one trace, parents before children, brothers by start."""
    nodes = sorted((Node(light) for light in lights), key=lambda node: node.key)
    for node in nodes:
        named = [each for each in nodes if each.light.span_id == node.light.parent_span_id and each is not node]
        node.above = named[0] if named else None
    cut = [node for node in nodes if (round_ := _cycle(node)) and min(round_, key=lambda each: each.key) is node]
    for node in cut:
        node.above = None
    for node in nodes:
        node.depth = len(_chain(node))

    def below(node: Node) -> list[Node]:
        return [node] + [each for child in nodes if child.above is node for each in below(child)]

    tops = [below(node) for node in nodes if node.above is None and node not in cut]
    cycles = [below(node) for node in cut]
    cycles.sort(key=lambda found: min(node.key for node in found))
    return [node for found in (*tops, *cycles) for node in found]


def _cycle(node: Node) -> list[Node]:
    """The spans of the cycle it lies on, [] where it lies on none."""
    found, at = [node], node.above
    while at is not None and at is not node:
        if at in found:
            return []  # it only leads into a cycle
        found.append(at)
        at = at.above
    return found if at is node else []


def _chain(node: Node) -> list[Node]:
    """The spans above, nearest first."""
    chain, at = [], node.above
    while at is not None:
        chain.append(at)
        at = at.above
    return chain


def name_models(nodes: list[Node]) -> None:
    """A model call without a model has that of the nearest call, or span of its dialect, above that has one."""
    for node in nodes:
        light = node.light
        if light.role == MODEL and not light.request_model and not light.response_model:
            for above in (each.light for each in _chain(node)):
                if above.request_model and (above.role == MODEL or above.dialect == light.dialect):
                    provider = light.provider or above.provider
                    node.light = replace(light, request_model=above.request_model, provider=provider)
                    set_price(node.light)
                    break


def parts_of(trace_id: str, nodes: list[Node], hosts: Mapping[str, str]) -> list[Part]:
    """`hosts`: span id of a satellite → the run of its host."""
    explicit = {node.light.run_id for node in nodes} - {""}
    only = next(iter(explicit)) if len(explicit) == 1 else ""
    for node in nodes:
        chain = (node, *_chain(node))
        node.part = next((each.light.run_id for each in chain if each.light.run_id), only)
        node.part = node.part or hosts.get(chain[-1].light.span_id, "") or _shared_run(chain[-1], nodes)
    found = []
    for name in {node.part for node in nodes}:
        own = [node for node in nodes if node.part == name]
        for node in own:
            node.parent = next((each for each in _chain(node) if each.part == name), None)
        for node in own:
            _judge(node)
        top: list[Node] = [node for node in own if node.role == FLOW] or [node for node in own if node.role] or own
        root = min(top, key=lambda node: (node.depth, *node.key))
        highest = _within(root)[-1]
        beside = [
            node
            for node in own
            if node.role and highest in _within(node)[1:] and not any(each.role for each in _within(node)[1:])
        ]
        if root.role != FLOW and len(beside) > 1:  # what they share goes before the first of them
            root = highest
        found.append(Part(trace_id, name, name or f"run_{trace_id}", own, root))
    return found


def _shared_run(top: Node, nodes: Sequence[Node]) -> str:
    """The run that a tree of spans shares with other traces: its top says, or where that has no role the first that does."""
    below = [node for node in nodes if top in _chain(node)] if not top.role else []
    keys = [node.light.join_key.removeprefix(SATELLITE) for node in (top, *sorted(below, key=lambda node: node.key))]
    return next((key for key in keys if key), "")


def _judge(node: Node) -> None:
    """The span above a guard tells by its failure that the guard stepped in."""
    if node.role == GUARD and node.parent and "guard_status" not in node.labels:
        name = node.labels.get("guard_name", node.light.name)
        if name and node.parent.light.labels.get("tripped_guard") == name:
            node.labels = {**node.labels, "guard_status": "blocked"}


# ------------------------------------------------------------------------------------------------ passes of a part


def give_passes(part: Part) -> None:
    root = part.root
    is_pass = root.role == STEP and not root.light.parent_span_id
    for node in (root, *(node for node in part.nodes if node is not root)) if is_pass else part.nodes:
        lost = node.parent is None and node.light.parent_span_id and node.role != STEP
        node.hung = root if lost and is_pass else node.parent
        node.agent = node.light.agent_id or (node.hung.agent if node.hung else "")
        agent_tool = node.hung is not None and node.hung.runs_agent
        node.holds = node.hung if agent_tool else node.hung.holds if node.hung else None
        node.inner = node.hung if agent_tool else node.hung.inner if node.hung else None
        if node.role == STEP:
            outer = node.holds
            node.holds = node.inner = node
            node.said_step, node.said_pass, node.said_attempt = (
                node.light.step_id,
                node.light.pass_seq,
                node.light.attempt,
            )
            near = nearest(node)
            if outer and near and near.role == STEP and near.holds is outer and _same_pass(outer, node):
                node.holds = outer
                outer.said_step = outer.said_step or node.said_step
                if outer.said_pass is None:
                    outer.said_pass, outer.said_attempt = node.said_pass, node.said_attempt
    give_retries([node for node in part.nodes if node.holds is node and "pass_key" in node.light.labels])


def give_retries(steps: Sequence[Node]) -> None:
    """Steps that say by a key which pass they are: where one comes again, it is the next attempt."""
    unnumbered = sorted((node for node in steps if node.said_pass is None), key=lambda node: node.key)

    def of_step(node: Node) -> tuple[str, str]:
        return (node.said_step, node.light.agent_id)

    told: list[tuple[Node, int, int]] = []
    for node in unnumbered:
        beside = [each for each in unnumbered if of_step(each) == of_step(node)]
        keys = list(dict.fromkeys(each.light.labels["pass_key"] for each in beside))
        key = node.light.labels["pass_key"]
        attempts = [each for each in beside if each.light.labels["pass_key"] == key]
        if len(attempts) > 1:
            told.append((node, keys.index(key) + 1, attempts.index(node) + 1))
    for node, seq, attempt in told:
        node.said_pass, node.said_attempt = seq, attempt


def nearest(node: Node) -> Node | None:
    """The nearest pass or call above."""
    at = node.hung
    while at is not None and at.role not in (STEP, *CALLS):
        at = at.hung
    return at


def _same_pass(outer: Node, inner: Node) -> bool:
    if outer.light.agent_id and outer.light.agent_id == inner.light.agent_id:
        if outer.said_pass is None or inner.said_pass is None:
            return True
        return (outer.said_pass, outer.said_attempt or 1) == (inner.said_pass, inner.said_attempt or 1)
    named_twice = outer.light.agent_id and inner.light.agent_id
    return not named_twice and outer.said_step != "" and outer.said_step == inner.said_step


def give_places(part: Part) -> None:
    """Step, agent and stamped numbers of each span."""
    root = part.root
    use_case = next((node.light.use_case_id for node in (root, *part.nodes) if node.light.use_case_id), "")
    agents = {node.light.agent_id for node in part.nodes} - {""}
    for node in part.nodes:
        light, own = node.light, node.holds
        node.use_case = light.use_case_id or use_case
        if own is None:
            node.step_id = light.step_id or "step_" + slug(root.light.agent_id or _called(part))
            node.step_name = light.step_name
            calling = node.parent if node.runs_agent else node
            node.agent_id = calling.agent if calling else ""
            if len(agents) == 1:
                node.agent_id = node.agent_id or root.light.agent_id
            node.pass_seq, node.attempt = light.pass_seq, light.attempt
            continue
        inside = {
            each.inner.light.agent_id
            for each in part.nodes
            if each.holds is own and each.inner is not None and each.inner is not own and each.inner.light.agent_id
        }
        assert node.inner is not None
        named = next(iter(inside)) if len(inside) == 1 else node.inner.light.agent_id
        said_agent = light.agent_id if node.role in CALLS and not node.runs_agent else ""
        name = own.light.agent_id or own.light.step_name or own.light.name
        node.agent_id = own.light.agent_id or named or said_agent or own.agent
        node.step_id = own.said_step or light.step_id or "step_" + slug(name)
        node.step_name = own.light.step_name or own.light.agent_id or own.light.name
        node.pass_seq = light.pass_seq if own.said_pass is None else own.said_pass
        node.attempt = light.attempt if own.said_attempt is None else own.said_attempt


def _called(part: Part) -> str:
    """The name of the run."""
    names = [part.root.light.run_name, *(node.light.run_name for node in part.nodes), part.root.light.name]
    return next((name for name in names if name), "")


# ------------------------------------------------------------------------------------------------- calls and bills


def give_calls(part: Part) -> list[list[Node]]:
    """The records of each request, together: of those that are counted in this trace."""
    calls = [node for node in part.nodes if node.role in CALLS]
    holding = {node: [each for each in calls if nearest(each) is node and each.role == node.role] for node in calls}
    summing: set[Node] = set()
    for node in sorted(calls, key=lambda node: -node.depth):
        if node.role == MODEL and (inside := holding[node]):
            one = _is_one(inside, summing) and all(_same_model(node, each) for each in inside)
            if not one and not any(_same_answer(node, each) and each not in summing for each in inside):
                summing.add(node)  # calls of its own below: it only sums them up
    records = [node for node in calls if node not in summing]
    same: list[tuple[Node, Node]] = []
    for node in calls:
        inside = holding[node]
        only = inside[0] if len(inside) == 1 else None
        same += _told_beside(inside, summing)
        for each in inside:
            if node.role == MODEL:
                one = _is_one(inside, summing) and all(_same_model(node, other) for other in inside)
            else:
                ids = [id for id in (node.light.tool_call_id, each.light.tool_call_id) if id]
                one = len(ids) == 2 and ids[0] == ids[1]
                if each is only and len(set(ids)) < 2 and not _other_arguments(node, each):
                    one = one or node.light.tool_name == each.light.tool_name != ""
            if one or (node.role == MODEL and _same_answer(node, each)):
                same.append((node, each))
    by_start = sorted(records, key=lambda node: node.key)
    same += _of_one_id(by_start, "response_id") + _of_one_id(by_start, "tool_call_id")
    same += _in_two_passes(by_start) + _side_by_side(by_start) + _streamed(by_start)
    groups: list[list[Node]] = []
    for node in records:
        joined = [each for each in _reached(node, same) if each in records]
        node.call = min(joined, key=lambda each: (each.depth, *each.key))
    for node in records:
        known = next((group for group in groups if group[0].call is node.call), None)
        if known is None:
            groups.append([node])
        else:
            known.append(node)
    for members in groups:
        _agree(members)
    counted = [members for members in groups if not any(node.elsewhere for node in members)]
    for node in (node for members in groups if members not in counted for node in members):
        node.call, node.elsewhere = None, True
    return counted


def _reached(node: Node, pairs: Sequence[tuple[Node, Node]]) -> list[Node]:
    joined = [node]
    while more := [two for pair in pairs for one, two in (pair, pair[::-1]) if one in joined and two not in joined]:
        joined.append(more[0])
    return joined


def _told_beside(inside: Sequence[Node], summing: set[Node]) -> list[tuple[Node, Node]]:
    """Model calls directly below one of theirs, that several instrumentations tell of."""
    by_start = sorted(
        (node for node in inside if node.role == MODEL and node not in summing), key=lambda node: node.key
    )
    return _of_one_id(by_start, "response_id") + _side_by_side(by_start)


def _is_one(inside: Sequence[Node], summing: set[Node]) -> bool:
    """Whether all of them record the same request."""
    reached = _reached(inside[0], _told_beside(inside, summing)) if inside else []
    return set(reached) == set(inside) != set() and not summing & set(inside)


def _of_one_id(by_start: Sequence[Node], key: str) -> list[tuple[Node, Node]]:
    """Each record with the one before it of the same id that ends last: a model's if it is near, a tool's if it is one call."""
    pairs = []
    for place, node in enumerate(by_start):
        before = [
            each
            for each in by_start[:place]
            if each.role == node.role
            and getattr(node.light, key)
            and getattr(each.light, key) == getattr(node.light, key)
            and (key == "response_id" or each.holds is node.holds)
        ]
        if before:
            latest = max(before, key=lambda each: _end(each.light))  # the first of equals
            if _one_invocation(latest, node) if key == "tool_call_id" else _near(node.light, latest.light):
                pairs.append((latest, node))
    return pairs


def _one_invocation(earlier: Node, later: Node) -> bool:
    """Of two records of one tool call id: while the first goes on; or soon after, if neither says another tool or other
    arguments; or at any time, if both say the same arguments."""
    names = {each.light.tool_name for each in (earlier, later) if each.light.tool_name != each.light.name}
    if later.light.start_ns < _end(earlier.light):
        return True
    if len(names) == 2 or _other_arguments(earlier, later):
        return False
    both_say = bool(earlier.light.arguments_sha256 and later.light.arguments_sha256)
    return both_say or _near(earlier.light, later.light)


def _agree(members: Sequence[Node]) -> None:
    """What the records of one call say together."""
    first = members[0].call
    assert first is not None
    for node in members:
        if node.role == TOOL and node.light.tool_name == node.light.name:  # it names no tool
            node.tool_name = first.light.tool_name
    failed = [node for node in members if node.light.status == "failed"]
    answered = any(node.light.has_output or _reports(node.light) for node in members)
    if first.role == MODEL and first.light.status == "succeeded" and failed and not answered:
        first.status, first.error = "failed", failed[0].light.error


def _in_two_passes(by_start: Sequence[Node]) -> list[tuple[Node, Node]]:
    """Records of one tool call, one after the other, of a pass and of one inside it, while the first goes on."""

    def within(inner: Node | None, outer: Node | None) -> bool:
        return outer is None or (inner is not None and outer in _within(inner))

    found = []
    tools = [node for node in by_start if node.role == TOOL and node.light.tool_call_id]
    for place, node in enumerate(tools):
        called = (node.light.tool_call_id, node.light.tool_name)
        same = [each for each in tools[place + 1 :] if (each.light.tool_call_id, each.light.tool_name) == called]
        if not same or same[0].holds is node.holds or same[0].light.start_ns >= _end(node.light):
            continue
        if within(node.holds, same[0].holds) or within(same[0].holds, node.holds):
            found.append((node, same[0]))
    return found


def _side_by_side(by_start: Sequence[Node]) -> list[tuple[Node, Node]]:
    """Model calls that several instrumentations tell of: a call takes one record from each, the earliest call first."""
    calls: list[list[Node]] = []

    def alike(node: Node, other: Node) -> bool:
        one, two = node.light, other.light
        ids = [id for id in (one.response_id, two.response_id) if id]
        return (
            node.parent is other.parent
            and one.scope != two.scope
            and len(set(ids)) < 2
            and abs(_end(one) - _end(two)) <= FIFTY_MILLISECONDS
            and (one.input_tokens, one.output_tokens) == (two.input_tokens, two.output_tokens)
            and _same_model(node, other)
        )

    for node in by_start:
        if node.role == MODEL and _reports(node.light):
            for call in calls:
                at_once = node.light.start_ns - call[0].light.start_ns <= FIFTY_MILLISECONDS
                if at_once and all(alike(each, node) for each in call):
                    call.append(node)
                    break
            else:
                calls.append([node])
    return [(call[0], node) for call in calls for node in call[1:]]


def _streamed(by_start: Sequence[Node]) -> list[tuple[Node, Node]]:
    """An answer that has a record of its own, of no length: of the latest request beside it that waits for one."""
    waiting: list[Node] = []
    found = []
    for node in by_start:
        light = node.light
        if node.role != MODEL or light.status != "succeeded":
            continue
        if not light.has_output and not light.response_id and not _reports(light):
            waiting.append(node)
        elif light.end_ns == light.start_ns:
            beside = [
                each
                for each in waiting
                if each.parent is node.parent
                and (each.light.scope, each.light.request_model) == (light.scope, light.request_model)
                and each.light.labels.get(REQUEST) == light.labels.get(REQUEST)
            ]
            if beside:
                waiting.remove(beside[-1])
                found.append((beside[-1], node))
    return found


def _same_answer(one: Node, other: Node) -> bool:
    answers = [(each.light.response_id, each.light.input_tokens, each.light.output_tokens) for each in (one, other)]
    return answers[0] == answers[1] and one.light.response_id != ""


def _other_arguments(one: Node, other: Node) -> bool:
    return len({one.light.arguments_sha256, other.light.arguments_sha256} - {""}) == 2


def _near(one: Light, other: Light) -> bool:
    """Whether they overlap, or nearly."""
    return one.start_ns - FIVE_SECONDS <= _end(other) and other.start_ns - FIVE_SECONDS <= _end(one)


def _same_model(one: Node, other: Node) -> bool:
    models = [{each.light.request_model, each.light.response_model} - {""} for each in (one, other)]
    return not models[0] or not models[1] or bool(models[0] & models[1])


def _end(light: Light) -> int:
    return light.end_ns or 2**64


def _reports(light: Light) -> bool:
    return light.cost_usd is not None or light.input_tokens is not None or light.output_tokens is not None


def give_bills(part: Part, groups: Sequence[Sequence[Node]]) -> None:
    paid = [node for node in part.nodes if node.elsewhere]
    """Records of what is billed, here or in another trace: whatever holds one of them only restates it."""

    def restates(node: Node) -> bool:
        return any(node in _within(each) for each in paid)

    in_billed_calls = list(paid)
    for members in sorted(groups, key=lambda group: -max(node.depth for node in group)):
        reporting = [node for node in members if _reports(node.light)]
        if not reporting or (members[0].role == TOOL and any(restates(node) for node in members)):
            continue

        def figures(node: Node) -> int:
            return sum(getattr(node.light, name) is not None for name in USAGE) + (node.light.cost_source == "span")

        chosen = max(reporting, key=lambda node: (figures(node), node.depth, *node.key))
        chosen.billed = True
        chosen.cost, chosen.cost_source = chosen.light.cost_usd, chosen.light.cost_source
        stated = [node.light.cost_usd for node in reporting if node.light.cost_source == "span"]
        if stated and chosen.cost_source != "span":
            chosen.cost, chosen.cost_source = stated[0], "span"
        in_billed_calls += members
        paid += members
    containers = [node for node in part.nodes if node.call is None and _reports(node.light)]
    for node in sorted(containers, key=lambda node: (-node.depth, *node.key)):
        if not restates(node) and nearest(node) not in in_billed_calls:
            node.billed = node.aggregate = True
            node.cost, node.cost_source = node.light.cost_usd, node.light.cost_source
            paid.append(node)


def _within(node: Node) -> list[Node]:
    """It and the spans of its run above."""
    chain = [node]
    while chain[-1].parent is not None:
        chain.append(chain[-1].parent)
    return chain


def give_requests(part: Part) -> None:
    """Which answer asked for each tool call: one of its own pass, else one around it, else one of the run."""
    by_start = sorted(part.nodes, key=lambda node: node.key)
    taken: list[tuple[Node, int]] = []
    for node in by_start:
        node.call_id = node.light.tool_call_id

    def around(node: Node) -> Node | None:
        return (node.holds or node).parent

    for near in (lambda one, other: one.holds is other.holds, lambda one, other: around(one) is around(other), None):
        for node in by_start:
            if node.role != TOOL or node.call is not node or node.asked_by is not None:
                continue
            id, sent = node.light.tool_call_id, node.light.arguments_sha256
            open_: list[tuple[Node, int, RequestedCall]] = [
                (answer, index, call)
                for answer in by_start
                if answer.role == MODEL
                and (near is None or near(answer, node))
                and answer.light.start_ns <= node.light.start_ns
                and (answer.call is answer or (answer.call is not None and not _listed_above(answer)))
                for index, call in enumerate(answer.light.requested)
                if (answer, index) not in taken and (call.id == id if id else call.name == node.light.tool_name)
            ]
            open_ = [each for each in open_ if each[0] is open_[-1][0]]
            if id:
                open_ = open_[-1:]
            alike = [each for each in open_ if each[2].arguments_sha256 == sent]
            if near is None and not id:  # a name alone says nothing
                open_ = alike = alike if sent else []
            if open_:
                node.asked_by, node.asked_at, call = (alike or open_)[0]
                taken.append((node.asked_by, node.asked_at))
                node.call_id = node.call_id or call.id


def _listed_above(answer: Node) -> bool:
    """Whether the record that stands for the request, above this one, lists what was asked for already."""
    return answer.call in _within(answer)[1:] and bool(answer.call and answer.call.light.requested)


def give_outputs(part: Part) -> None:
    """Which output stands for each pass: the step's own, the outermost first, else that of its last model call."""
    speaking = [
        node
        for node in part.nodes
        if node.light.has_output
        and (node.role == STEP or (node.role == MODEL and node.call is not None))
        and node.light.operation != "embeddings"
    ]
    loose = any(node.holds is None and node.call is not None for node in part.nodes)
    told = any(node.role == STEP and node.light.has_output for node in part.nodes)
    if loose and not told and part.root.role == FLOW and part.root.light.has_output:
        speaking.append(part.root)

    def of(node: Node) -> tuple[Any, ...]:
        return (node.holds, node.step_id, node.agent_id, node.pass_seq, node.attempt)

    for node in speaking:
        alike = [each for each in speaking if of(each) == of(node)]
        steps = [each for each in alike if each.role != MODEL]
        if steps:
            best = max(steps, key=lambda each: (-each.depth, -each.light.start_ns, each.light.span_id))
        else:
            best = max(alike, key=lambda each: (each.light.start_ns, -each.depth, each.light.span_id))
        node.stands = best is node


# ------------------------------------------------------------------------------------------------------ the numbers


def passes_of(nodes: Sequence[Node]) -> list[Pass]:
    """All attempts of the run, numbered, in the order in which they are listed."""
    found: dict[tuple[Any, ...], Pass] = {}
    for node in sorted(nodes, key=lambda node: node.place):
        tells = node.role == STEP or (node.role == FLOW and node.stands)
        if not tells and node.call is not node:
            continue
        own = node.holds
        step = own if own and own.role == STEP else None
        agent = step.agent_id if step and step.agent_id else node.agent_id
        stamp = node.pass_seq
        attempt = next((each.attempt for each in (node, step) if each is not None and each.attempt is not None), 1)
        which: tuple[Any, ...] = (stamp, attempt) if stamp is not None else (own,) if own else ()
        key = (node.step_id, agent, stamp is not None, *which)
        if key not in found:
            of_stamp = (True, stamp, attempt) if stamp is not None else (False, 1, 1)
            found[key] = Pass(node.step_id, agent, *of_stamp)
        (found[key].steps if tells else found[key].calls).append(node)
    passes = sorted(found.values(), key=lambda each: (each.start, each.attempt, *each.tie))
    for place, each in enumerate(passes):
        if not each.stamped:
            before = [other.seq for other in passes[:place] if other.identity[:2] == each.identity[:2]]
            taken = [other.seq for other in passes if other.stamped and other.identity[:2] == each.identity[:2]]
            each.seq = max(before, default=0) + 1
            while each.seq in taken:
                each.seq += 1
        _number_calls(each)
    return sorted(
        passes, key=lambda each: (start_of_pass(each, passes), *each.identity, each.attempt, each.start, *each.tie)
    )


def start_of_pass(one: Pass, passes: Iterable[Pass]) -> int:
    return min(each.start for each in passes if each.identity == one.identity)


def is_superseded(one: Pass, passes: Iterable[Pass]) -> bool:
    return any(each.identity == one.identity and each.attempt > one.attempt for each in passes)


def _number_calls(one: Pass) -> None:
    order = list(one.calls)  # by start
    for asked_by in {node.asked_by for node in order} - {None}:
        places = [place for place, node in enumerate(one.calls) if node.asked_by is asked_by]
        together = sorted((one.calls[place] for place in places), key=lambda node: (node.asked_at, *node.key))
        for place, node in zip(places, together, strict=True):
            order[place] = node
    stamped = {node.light.call_seq for node in order} - {None, 0}
    last = 0
    for node in order:
        if node.light.call_seq:
            last = node.light.call_seq
        else:
            last += 1
            while last in stamped:
                last += 1
        one.numbers[node] = last
    one.calls = sorted(order, key=lambda node: one.numbers[node])


# ---------------------------------------------------------------------------------------------------- the artifacts

_KINDS = {
    TOOL: ("tool_result",),
    MODEL: ("llm_prompt", "agent_output"),
    STEP: ("agent_output",),
    FLOW: ("agent_output",),
}
_ORIGIN = ("attribute", "event", "log", "pointer", "")


def artifacts_of(
    tenant: Tenant,
    run_id: str,
    nodes: Sequence[Node],
    passes: Sequence[Pass],
    rows: Iterable[ArtifactRow],
    asked: Mapping[str, str],
    paths: bool,
) -> tuple[list[Found], list[Found]]:
    """(what is on the blackboard, what a later row has taken the place of)"""
    by_id = {(node.light.trace_id, node.light.span_id): node for node in nodes}
    records: dict[tuple[Node, str], list[tuple[ArtifactRow, Node]]] = {}
    for row in rows:
        node = by_id.get((row.trace_id, row.span_id))
        if node is None or row.kind not in _KINDS.get(node.role, ()):
            continue
        if node.role == STEP or node.call is not None or node.stands:
            records.setdefault((node.call or node, row.kind), []).append((row, node))
    found = [_one(of_call, kind, own, passes, asked) for (of_call, kind), own in records.items()]
    for each in passes:
        prompts = [one for one in found if one.kind == "llm_prompt" and one.of is each]
        in_order = sorted(prompts, key=lambda one: (one.call_seq, *one.node.place, one.identity))
        for place, one in enumerate(in_order, 1):
            one.label = f"LLM call {place}"
        if paths and (path := path_of(each)):
            first = each.first
            stamped = first.part and first.pass_seq is not None
            own_place = (first.light.trace_id, first.light.span_id)
            place_id = (run_id, each.step_id, str(each.seq), "0") if stamped else own_place
            identity = artifact_id(tenant, *place_id, "tool_path")
            found.append(
                Found(
                    identity, set(), "tool_path", first, each, 0, "Tool path", path[:500], (), True, "", "", text=path
                )
            )
    listed: list[Found] = []
    replaced: list[Found] = []
    for each in found:
        rivals = [
            other
            for other in found
            if other.stands
            and (other.of.identity, other.call_seq, other.kind) == (each.of.identity, each.call_seq, each.kind)
        ]
        newest = max(rivals, key=lambda other: (other.of.attempt, *_newer(other.node))) if rivals else None
        each.earlier = is_superseded(each.of, passes) or (each.stands and newest is not each)
        (listed if newest is each else replaced).append(each)

    def place_in_list(each: Found) -> tuple[Any, ...]:
        return (
            start_of_pass(each.of, passes), *each.of.identity, each.call_seq == 0, each.call_seq, each.kind,
            each.of.attempt, *each.node.place, each.identity,
        )  # fmt: skip

    return sorted(listed, key=place_in_list), sorted(replaced, key=place_in_list)


def _newer(node: Node) -> tuple[int, str, str]:
    return (node.light.start_ns, node.light.span_id, node.light.trace_id)


def _one(
    of_call: Node,
    kind: str,
    records: list[tuple[ArtifactRow, Node]],
    passes: Sequence[Pass],
    asked: Mapping[str, str],
) -> Found:
    own_id = of_call.light.span_id
    records.sort(
        key=lambda item: (
            not (item[0].exact and item[0].bodies), not item[0].bodies, not _is_whole(item[0]), _ORIGIN.index(item[0].origin),
            item[0].span_id != own_id, item[0].span_id, item[0].time_ns, item[0].source,
        )
    )  # fmt: skip
    best, node = records[0]
    of_spans = [row for row, _ in records if row.source == ""]
    own = next((row for row in of_spans if row.span_id == own_id), of_spans[0] if of_spans else best)
    pieces = [best]
    if best.origin == "log":
        of_span = [row for row, _ in records if row.origin == "log" and row.span_id == best.span_id]
        whole = [row for row in of_span if any(body.field.startswith("gen_ai.") for body in row.bodies)]
        pieces = whole[:1] or sorted(of_span, key=lambda row: (row.time_ns, row.source))
    of = next(each for each in passes if of_call in each.steps or of_call in each.calls)
    failed, light = node.status == "failed", node.light
    with_arguments = next((row for row, _ in records if row.arguments_sha256), best)
    for row, _ in records:
        if row.arguments_sha256 and _says_more(row.arguments, with_arguments.arguments):
            with_arguments = row
    arguments, same = with_arguments.arguments, with_arguments.arguments_sha256
    if (
        kind == "tool_result" and of_call.asked_by is not None and arguments[:1] not in ("{", "[")
    ):  # none, or a bare value
        request = of_call.asked_by.light.requested[of_call.asked_at]
        if request.arguments_sha256 in asked and request.id in ("", of_call.call_id):
            arguments, same = asked[request.arguments_sha256], request.arguments_sha256
    if kind == "llm_prompt":
        summary = " ".join(node.error.split())[:500] if failed else light.response_model or light.request_model
    else:
        summary = own.summary or best.summary
    labels = {"agent_output": of.agent_id or own.label or light.name, "tool_result": own.label or node.tool_name}
    return Found(
        own.artifact_id,
        {row.artifact_id for row, _ in records} - {own.artifact_id},
        kind,
        node,
        of,
        0 if kind == "agent_output" else of.numbers[of_call],
        labels.get(kind, ""),
        summary,
        tuple(body for row in pieces for body in row.bodies),
        best.exact,
        arguments,
        same,
        stands=kind != "agent_output" or any(each.stands for _, each in records),
    )


def _is_whole(row: ArtifactRow) -> bool:
    """Whether a prompt has messages, not only what is sent along with them."""
    return row.kind != "llm_prompt" or any(_meaning(body) not in ("system", "tools") for body in row.bodies)


def _meaning(body: Body) -> str:
    """What a dialect says that a content of a prompt is."""
    name = body.field.split(".", 2)[2] if body.field.startswith("events.") else body.field
    if "#" in name:
        return name.split("#")[1]
    for dialect in BY_FIELD:
        for meaning in ("system", "input", "tools"):
            if name in dialect.content.get(meaning, ()):
                return meaning
    return ""


def _says_more(arguments: str, other: str) -> bool:
    """Whether the arguments are the other ones, and more."""
    try:
        one, two = json.loads(arguments), json.loads(other)
    except ValueError:
        return False
    if not isinstance(one, dict) or not isinstance(two, dict):
        return False
    return one != two and all(name in one and one[name] == value for name, value in two.items())


def path_of(one: Pass) -> str:
    names = [node.tool_name for node in one.calls if node.role == TOOL]
    parts: list[str] = []
    while names:
        same = next((place for place, name in enumerate(names) if name != names[0]), len(names))
        parts.append(names[0] if same == 1 else f"{names[0]} x{same}")
        names = names[same:]
    return " -> ".join(parts)


def ledger_of(found: Iterable[Found], passes: Sequence[Pass], agent: str | None) -> list[str]:
    calls = [
        each
        for each in found
        if each.kind == "tool_result"
        and agent in (None, each.of.agent_id)
        and each.node.tool_name != "__query_blackboard"
    ]
    calls.sort(key=lambda each: each.node.light.start_ns)  # the listing's order where they start together
    no_arguments = hashlib.sha256(b"{}").hexdigest()[:32]
    same = [(each.node.tool_name, each.sameness or no_arguments) for each in calls]
    last = [each for place, each in enumerate(calls) if same[place] not in same[place + 1 :]]
    lines = []
    for each in last[-30:]:
        tool, outcome = " ".join(each.node.tool_name.split()), " ".join(each.summary.split())
        mark = " (failed)" if each.node.status == "failed" else ""
        lines.append(f"- {tool}({_cut(each.arguments or '{}', 300)}){mark} -> {_cut(outcome, 200)}")
    return lines


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


# ------------------------------------------------------------------------------------------------------ the answers


def forest(
    tenant: Tenant, spans: Iterable[Span], logs: Iterable[LogRecord]
) -> tuple[dict[str, list[Node]], dict[SpanKey, str], dict[SpanKey, dict[str, int]], list[ArtifactRow]]:
    """The spans of each trace; satellite → the run of its host, which stands below no satellite; host → the usage that its
    satellite tells; the rows of artifacts."""
    lights, records, rows = said(tenant, spans, logs)
    others = beside(lights)
    lights = [completed(light, records) for light in lights]
    for light in lights:
        if told := others.usage.get((light.trace_id, light.span_id)):
            for name, count in told.items():
                setattr(light, name, count)
            priced_anew(light)
    traces: dict[str, list[Node]] = {}
    for trace_id in sorted({light.trace_id for light in lights}):
        traces[trace_id] = tree(without_restated([light for light in lights if light.trace_id == trace_id]))
        name_models(traces[trace_id])
    runs: dict[SpanKey, str] = {}
    if others.hosts:
        for trace_id, nodes in traces.items():
            for part in parts_of(trace_id, nodes, {}):
                runs |= {(trace_id, node.light.span_id): part.run_id for node in part.nodes}
    hosts = {satellite: runs[host] for satellite, host in others.hosts.items()}
    return traces, hosts, others.usage, rows


def project(tenant: Tenant, spans: Iterable[Span], logs: Iterable[LogRecord], bodies: bool = False) -> dict[str, Any]:
    """{"runs": [run, …], run_id: {"timeline": …, "artifacts": …, …}, …}: what the routes answer, as far as it is derived.

    Every run with an open span is `running`. `bodies`: with what is read in the bodies of answers.
    """
    spans, logs = list(spans), list(logs)
    traces, hosts, _, rows = forest(tenant, spans, logs)
    asked = (
        arguments_asked([each.attributes for each in (*spans, *logs)] + [each.body for each in logs]) if bodies else {}
    )
    parts: list[Part] = []
    groups: dict[Part, list[list[Node]]] = {}
    for trace_id, nodes in traces.items():
        for node in nodes:
            node.elsewhere = (trace_id, node.light.span_id) in hosts
        of_trace = {span_id: run for (own_trace, span_id), run in hosts.items() if own_trace == trace_id}
        for part in parts_of(trace_id, nodes, of_trace):
            give_passes(part)
            give_places(part)
            groups[part] = give_calls(part)
            give_bills(part, groups[part])
            give_requests(part)
            give_outputs(part)
            parts.append(part)
    answers: dict[str, Any] = {"runs": []}
    for run_id in {part.run_id for part in parts}:
        own = [part for part in parts if part.run_id == run_id]
        run = _run(run_id, own, groups)
        answers["runs"].append(run)
        answers[run_id] = _inside(tenant, run, own, rows, asked)
    answers["runs"].sort(key=lambda run: (run["start_time"] or "", run["run_id"]), reverse=True)
    return answers


def _run(run_id: str, parts: list[Part], groups: dict[Part, list[list[Node]]]) -> dict[str, Any]:
    def start(part: Part) -> int:
        return min(node.light.start_ns for node in part.nodes)

    by_start = sorted(parts, key=lambda part: (start(part), part.trace_id, part.name))
    leading = sorted(by_start, key=lambda part: part.root.role != FLOW)  # a flow_run at its top says how it went
    lights = [node.light for part in parts for node in part.nodes]
    is_open = any(light.status == "running" for light in lights)
    root = leading[0].root.light

    def first(name: str) -> str:
        return next(
            (
                value
                for part in leading
                for node in (part.root, *part.nodes)
                if (value := getattr(node.light, name, None) or node.light.labels.get(name, ""))
            ),
            "",
        )

    billed = [node for part in parts for node in part.nodes if node.billed]
    usage = {
        name: sum(known)
        if (known := [value for node in billed if (value := getattr(node.light, name)) is not None])
        else None
        for name in USAGE
    }
    costs = [node.cost for node in billed if node.cost is not None]
    counts: dict[str, int] = {}
    for part in parts:
        for node in part.nodes:
            within = node.role == FLOW and any(each.role == FLOW for each in _within(node)[1:])
            if node.role and not within and (node.role not in CALLS or node.call is node):
                counts[node.role] = counts.get(node.role, 0) + 1
    answered = [
        members
        for part in parts
        for members in groups[part]
        if members[0].role == MODEL and any(node.status == "succeeded" for node in members)
    ]
    with_usage = [members for members in answered if any(node.billed for node in members)]
    with_cost = [members for members in answered if any(node.cost is not None for node in members)]
    end = 0 if is_open else max(light.end_ns for light in lights)
    triggers = [
        next((n.light.labels["trigger"] for n in (p.root, *p.nodes) if "trigger" in n.light.labels), "manual")
        for p in leading
    ]
    return {
        "run_id": run_id,
        "original_run_id": first("original_run_id") or None,
        "name": _called(leading[0]),
        "status": "running" if is_open else "failed" if root.status == "failed" else "complete",
        "start_time": rfc3339(start(by_start[0])),
        "end_time": rfc3339(end),
        "duration_ms": duration_ms(start(by_start[0]), end),
        "agents": list(
            dict.fromkeys(
                node.agent_id
                for part in by_start
                for node in sorted(part.nodes, key=lambda node: node.key)
                if node.agent_id
            )
        ),
        "counts": dict(sorted(counts.items())),
        "span_count": len(lights),
        "failed_spans": sum(light.status == "failed" for light in lights),
        "usage": usage,
        "cost_usd": _money(sum(costs, Decimal(0))) if costs else None,
        "calls_without_cost": len(answered) - len(with_cost),
        "usage_coverage": len(with_usage) / len(answered) if answered else None,
        "conversation_id": first("conversation_id") or None,
        "use_case_id": first("use_case_id") or None,
        "user_id": first("user_id") or None,
        "trigger": next((each for each in triggers if each != "manual"), "manual"),
        "trace_ids": list(dict.fromkeys(part.trace_id for part in by_start)),
        "error": (root.error if root.status == "failed" else "") or None,
    }


def arguments_asked(said: Any) -> dict[str, str]:
    """Sameness → text of the arguments of whatever looks like a call in there, JSON text included."""
    if isinstance(said, str) and said[:1] in ("{", "["):
        try:
            said = json.loads(said)
        except ValueError:
            return {}
    inner = said.values() if isinstance(said, dict) else said if isinstance(said, list) else ()
    found = {same: text for each in inner for same, text in arguments_asked(each).items()}
    if isinstance(said, dict) and "name" in said and (given := said.get("arguments", said.get("args"))):
        text = arguments_text(given)
        found[sameness(text)] = text
    return found


def _inside(
    tenant: Tenant, run: dict[str, Any], parts: list[Part], rows: Iterable[ArtifactRow], asked: Mapping[str, str]
) -> dict[str, Any]:
    nodes = sorted((node for part in parts for node in part.nodes), key=lambda node: node.place)
    leading = min(
        parts,
        key=lambda part: (
            part.root.role != FLOW,
            min(node.light.start_ns for node in part.nodes),
            part.trace_id,
            part.name,
        ),
    )
    passes = passes_of(nodes)
    listed, replaced = artifacts_of(tenant, run["run_id"], nodes, passes, list(rows), asked, paths=True)

    def of(node: Node) -> tuple[Pass | None, int]:
        standing = node.call or node
        one = next((each for each in passes if node in each.steps or standing in each.calls), None)
        return one, one.numbers.get(standing, 0) if one else 0

    timeline = []
    for node in nodes:
        one, call_seq = of(node)
        light = node.light
        above = node.parent.light.span_id if node.parent else None
        highest = _within(leading.root)[-1]
        timeline.append({
            "trace_id": light.trace_id,
            "span_id": light.span_id,
            "parent_span_id": above or (None if node is highest else highest.light.span_id),
            "role": node.role or None,
            "name": light.name,
            "start_time": rfc3339(light.start_ns),
            "end_time": rfc3339(light.end_ns),
            "duration_ms": duration_ms(light.start_ns, light.end_ns),
            "status": node.status,
            "step_id": one.step_id if one else None,
            "agent_id": one.agent_id if one else node.agent_id or None,
            "pass_seq": one.seq if one else None,
            "attempt": one.attempt if one else None,
            "call_seq": call_seq or None,
            "provider": light.provider or None,
            "model": light.response_model or light.request_model or None,
            "tool_name": node.tool_name or None,
            "usage": {name: getattr(light, name) for name in USAGE},
            "cost_usd": _money(node.cost) if node.billed and node.cost is not None else None,
            "billed": node.billed,
            "aggregate": node.aggregate,
            "call_span_id": node.call.light.span_id if node.call else None,
            "labels": node.labels,
            "error": node.error or None,
        })  # fmt: skip

    def shown(each: Found) -> dict[str, Any]:
        whole = each.bodies[0] if len(each.bodies) == 1 and each.exact and each.bodies[0].encoding != "pairs" else None
        data = each.text.encode()
        return {
            "artifact_id": each.identity,
            "use_case_id": each.node.use_case or None,
            "run_id": run["run_id"],
            "trace_id": each.node.light.trace_id,
            "span_id": each.node.light.span_id,
            "step_id": each.of.step_id,
            "step_name": each.node.step_name or None,
            "agent_id": each.of.agent_id,
            "pass_seq": each.of.seq,
            "attempt": each.of.attempt,
            "call_seq": each.call_seq,
            "kind": each.kind,
            "label": each.label,
            "summary": each.summary,
            "status": "failed" if each.node.status == "failed" else "ok",
            "body_bytes": whole.raw_length if whole else len(data) or None,
            "body_sha256": whole.sha256 if whole else hashlib.sha256(data).hexdigest() if data else None,
            "created_at": rfc3339(each.node.light.start_ns),
            "updated_at": rfc3339(each.node.light.end_ns or each.node.light.start_ns),
            "earlier_attempt": each.earlier,
        }

    def prompt(each: Found) -> dict[str, Any]:
        paid = next((node for node in nodes if node.billed and node.call and node.call is each.node.call), None)
        usage = (paid or each.node).light
        outputs = [other for other in (*listed, *replaced) if other.kind == "agent_output"]
        own = [other.identity for other in outputs if other.node.call and other.node.call is each.node.call]
        return {
            "artifact_id": each.identity,
            "label": each.label,
            "usage": {name: getattr(usage, name) for name in USAGE},
            "cost_usd": _money(paid.cost) if paid and paid.cost is not None else None,
            "cost_source": paid.cost_source or None if paid else None,
            "output_artifact_id": own[0] if own else None,
            "requested_calls": [{"id": call.id or None, "name": call.name} for call in each.node.light.requested],
        }

    return {
        "timeline": timeline,
        "artifacts": [shown(each) for each in listed],
        "replaced": [shown(each) for each in replaced],
        "prompts": [prompt(each) for each in listed if each.kind == "llm_prompt"],
        "paths": [
            {
                "step_id": each.step_id,
                "agent_id": each.agent_id,
                "pass_seq": each.seq,
                "attempt": each.attempt,
                "calls": len([node for node in each.calls if node.role == TOOL]),
                "path": path,
            }
            for each in passes
            if not is_superseded(each, passes) and (path := path_of(each))
        ],
        "ledger": {
            agent: ledger_of(listed, passes, agent) for agent in (None, *sorted({each.agent_id for each in passes}))
        },
    }


def _money(value: Decimal) -> str:
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") or "0" if "." in text else text
