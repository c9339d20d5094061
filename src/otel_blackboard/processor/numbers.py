"""Passes and calls of a run, numbered: one pure function over the resolved rows of all its traces (ART-09…14, ART-19).

Computed whenever a run is read, never stored: a span that comes late changes numbers, not rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from otel_blackboard.processor.dialects.dialect import FLOW_RUN, PROVIDER_CALL, STEP, TOOL
from otel_blackboard.records import Resolved

SpanKey = tuple[str, str]
"""(trace_id, span_id)"""


@dataclass(slots=True)
class Attempt:
    """One attempt of one pass."""

    step_id: str
    agent_id: str
    pass_seq: int
    attempt: int
    start_ns: int
    end_ns: int
    spans: list[Resolved] = field(default_factory=list)
    """Its step spans, outermost first; for the implicit pass none but the flow_run that tells its answer."""
    calls: list[Resolved] = field(default_factory=list)
    """Its calls in order, one row each (the span that stands for the call)."""
    superseded: bool = False
    """A later attempt of the same pass exists."""
    pass_start_ns: int = 0
    """Start of the pass: that of its first attempt."""


@dataclass(slots=True)
class Numbered:
    """One span that belongs to a pass, with its numbers."""

    row: Resolved
    attempt: Attempt
    call_seq: int
    """0 for the pass itself."""


@dataclass(slots=True)
class Numbering:
    attempts: list[Attempt]
    """All attempts, by start of their pass, then attempt."""
    spans: dict[SpanKey, Numbered]


def number(rows: Iterable[Resolved]) -> Numbering:
    """Passes of one step and agent count by start time, calls of one attempt in start order."""
    ordered = sorted(rows, key=lambda row: (row.start_ns, row.trace_id, row.span_id))
    attempts = _attempts(ordered)
    numbered: dict[SpanKey, Numbered] = {}
    for attempt in attempts:
        for row in attempt.spans:
            numbered[(row.trace_id, row.span_id)] = Numbered(row, attempt, 0)
        attempt.calls = _in_order(attempt.calls)
        numbers = sorted(zip(_call_numbers(attempt.calls), attempt.calls, strict=True), key=lambda each: each[0])
        attempt.calls = [row for _, row in numbers]
        for seq, row in numbers:
            numbered[(row.trace_id, row.span_id)] = Numbered(row, attempt, seq)
    for row in ordered:  # other records of the same call share its numbers
        key = (row.trace_id, row.span_id)
        if key not in numbered and row.call_span_id and (known := numbered.get((row.trace_id, row.call_span_id))):
            numbered[key] = Numbered(row, known.attempt, known.call_seq)
    return Numbering(attempts, numbered)


def _attempts(ordered: Sequence[Resolved]) -> list[Attempt]:
    steps: dict[SpanKey, Resolved] = {(row.trace_id, row.span_id): row for row in ordered if row.role == STEP}
    instances: dict[tuple[object, ...], list[Resolved]] = defaultdict(list)
    for row in ordered:
        is_call = row.role in (PROVIDER_CALL, TOOL) and row.call_span_id == row.span_id
        if row.role == STEP or is_call or (row.role == FLOW_RUN and row.stands):
            instances[_instance(row, steps)].append(row)
    found: list[tuple[Attempt, bool]] = []
    for key, rows in instances.items():
        start = min(row.start_ns for row in rows)
        end = max(row.end_ns for row in rows)
        stamped = key[2] == "stamped"
        pass_seq, number = (int(key[3]), int(key[4])) if stamped else (1, 1)  # type: ignore[call-overload]
        attempt = Attempt(str(key[0]), str(key[1]), pass_seq, number, start, end)
        attempt.spans = [row for row in rows if row.role in (STEP, FLOW_RUN)]
        attempt.calls = [row for row in rows if row.role not in (STEP, FLOW_RUN)]
        found.append((attempt, stamped))
    found.sort(key=lambda item: (item[0].start_ns, item[0].attempt, *_tie(item[0])))
    taken = {(each.step_id, each.agent_id, each.pass_seq) for each, stamped in found if stamped}
    last: dict[tuple[str, str], int] = defaultdict(int)
    for attempt, stamped in found:
        key = (attempt.step_id, attempt.agent_id)
        if not stamped:
            attempt.pass_seq = last[key] + 1
            while (*key, attempt.pass_seq) in taken:
                attempt.pass_seq += 1
        last[key] = max(last[key], attempt.pass_seq)
    attempts = [attempt for attempt, _ in found]
    latest: dict[tuple[str, str, int], int] = {}
    started: dict[tuple[str, str, int], int] = {}
    for attempt in attempts:
        key3 = (attempt.step_id, attempt.agent_id, attempt.pass_seq)
        latest[key3] = max(latest.get(key3, 0), attempt.attempt)
        started[key3] = min(started.get(key3, attempt.start_ns), attempt.start_ns)
    for attempt in attempts:
        key3 = (attempt.step_id, attempt.agent_id, attempt.pass_seq)
        attempt.superseded, attempt.pass_start_ns = attempt.attempt < latest[key3], started[key3]
    attempts.sort(key=lambda a: (a.pass_start_ns, a.step_id, a.agent_id, a.pass_seq, a.attempt, a.start_ns, *_tie(a)))
    return attempts


def _tie(attempt: Attempt) -> tuple[str, str, str, str]:
    first = (attempt.spans or attempt.calls)[0]
    return (attempt.step_id, attempt.agent_id, first.trace_id, first.span_id)


def _instance(row: Resolved, steps: dict[SpanKey, Resolved]) -> tuple[object, ...]:
    """What makes rows one attempt: the same stamped numbers, else the same step span, else being under none."""
    step = steps.get((row.trace_id, row.step_span_id)) if row.step_span_id else None
    stamped = row.pass_seq if row.pass_seq is not None else step.pass_seq if step is not None else None
    owner = (row.step_id, step.agent_id if step is not None and step.agent_id else row.agent_id)
    if stamped is not None:
        attempt = row.attempt if row.attempt is not None else step.attempt if step is not None else None
        return (*owner, "stamped", stamped, 1 if attempt is None else attempt)
    if row.step_span_id:
        return (*owner, "span", row.trace_id, row.step_span_id)
    return (*owner, "implicit")


def _in_order(calls: list[Resolved]) -> list[Resolved]:
    """By start; tool calls requested together in one answer stand in the order of that answer."""
    calls = sorted(calls, key=lambda row: (row.start_ns, row.trace_id, row.span_id))
    places: dict[SpanKey, list[int]] = defaultdict(list)
    for place, row in enumerate(calls):
        if row.requested_by:
            places[(row.trace_id, row.requested_by)].append(place)
    result = list(calls)
    for together in places.values():
        asked = sorted(
            (calls[place] for place in together), key=lambda row: (row.requested_index, row.start_ns, row.span_id)
        )
        for place, row in zip(together, asked, strict=True):
            result[place] = row
    return result


def _call_numbers(calls: list[Resolved]) -> list[int]:
    """Stamped numbers stay; the others take the next free one after the call before them."""
    stamped = {row.call_seq for row in calls if row.call_seq}
    numbers: list[int] = []
    last = 0
    for row in calls:
        if row.call_seq:
            last = row.call_seq
        else:
            last += 1
            while last in stamped:
                last += 1
        numbers.append(last)
    return numbers


def tool_path(calls: Iterable[Resolved]) -> str:
    """PATH-02: names joined by ` -> `, neighbours of one name as `name xN`; '' without tool calls."""
    names: list[list[object]] = []
    for row in calls:
        if row.role != TOOL:
            continue
        if names and names[-1][0] == row.tool_name:
            names[-1][1] = int(str(names[-1][1])) + 1
        else:
            names.append([row.tool_name, 1])
    return " -> ".join(f"{name} x{count}" if count != 1 else str(name) for name, count in names)
