"""Several traces that are one run, a call that two traces tell of, calls that only log records tell of: in any order, at
two workers, sent twice."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from otel_blackboard.exporter.flush import Exporter
from otel_blackboard.processor.dialects import Dialect
from otel_blackboard.processor.dialects.dialect import CHAT
from otel_blackboard.processor.identity import joined_run
from otel_blackboard.records import LogRecord, Scope, Span
from otel_blackboard.service import Stores
from tests.conftest import Project, new_project
from tests.dialects.speaking import speaking
from tests.spans import Trace, at, hex_id


def _spans_of(record: LogRecord, event_name: str) -> list[Span]:
    if event_name != "made_up.call":
        return []
    session, request = (str(record.attributes[f"made_up.{name}"]) for name in ("session", "request"))
    trace_id, span_id = hex_id(session, 32), hex_id(request, 16)
    start, end = record.time_ns - 10**9, record.time_ns
    return [Span(trace_id, span_id, "", "call", start, end, attributes=dict(record.attributes), scope=record.scope)]


MADE_UP = Dialect(
    name="made_up",
    keys=("made_up.",),
    scopes=("native",),
    role=lambda span: CHAT if "made_up.request" in span.attributes else None,
    facts={"input_tokens": ("made_up.input_tokens",), "response_id": ("made_up.request",)},
    join_key=lambda span: str(span.attributes.get("made_up.session", "")),
    log_spans=_spans_of,
    satellite=lambda span: span.scope.name == "native",
)


@pytest.fixture(autouse=True)
def made_up() -> Iterator[None]:
    with speaking(MADE_UP):
        yield


def host_and_satellite() -> tuple[Trace, Trace]:
    host, beside = Trace("host", run_id="flow-1"), Trace("satellite")
    flow = host.flow("flow", 0, 9)
    host.chat(start=1, end=2, parent=flow, tokens=(120, 18), **{"gen_ai.response.id": "msg_1"})
    native = beside.chat(start=1.01, end=1.99, tokens=(120, 18), **{"gen_ai.response.id": "msg_1"})
    native.scope = Scope("native")
    return host, beside


def usage(project: Project) -> list[tuple[str, int, int]]:
    """(run, input tokens, model calls) of every run."""
    return [
        (run["run_id"], run["usage"]["input_tokens"], run["counts"].get("provider_call", 0))
        for run in project.api().json("/runs", all=True)["runs"]
    ]


ORDERS = [order for some in (2, 3) for order in itertools.product((0, 1), repeat=some) if set(order) == {0, 1}]


@pytest.mark.parametrize("order", ORDERS)
def test_a_satellite_takes_the_run_of_its_host_and_is_not_counted_again(
    stores: Stores, project: Project, order: Sequence[int]
) -> None:
    traces = host_and_satellite()
    for which in order:
        project.store(traces[which].spans)
    assert usage(project) == [("flow-1", 120, 1)]
    timeline = project.api().json("/runs/flow-1/timeline")["spans"]
    assert len(timeline) == 3 and sum(span["billed"] for span in timeline) == 1
    assert len(project.api().json("/runs/flow-1/prompts")["prompts"]) == 1


def test_a_satellite_without_a_host_is_a_run_of_its_own(project: Project) -> None:
    _host, beside = host_and_satellite()
    project.store(beside.spans)
    assert usage(project) == [(f"run_{beside.trace_id}", 120, 1)]
    later = Trace("another call", run_id="flow-2")  # the same id, at another time: another call
    later.chat(start=100, end=101, tokens=(120, 18), **{"gen_ai.response.id": "msg_1"})
    project.store(later.spans)
    assert {run for run, *_ in usage(project)} == {f"run_{beside.trace_id}", "flow-2"}


def test_a_satellite_follows_its_host_that_gets_its_run_later(project: Project) -> None:
    host, beside = host_and_satellite()
    flow, call = host.spans
    del call.attributes["blackboard.run.id"]
    project.store([call])
    project.store(beside.spans)
    assert usage(project) == [(f"run_{host.trace_id}", 120, 1)]
    project.store([flow])
    assert usage(project) == [("flow-1", 120, 1)]


def test_host_and_satellite_at_two_workers_find_each_other(project: Project) -> None:
    host, beside = host_and_satellite()
    other = Exporter(project.stores.settings, project.stores.bodies)
    try:
        for first, second in ((host, beside), (beside, host)):
            mine = new_project(project.stores)
            other.flush([(mine.tenant, span) for span in first.spans], [])
            mine.store(second.spans)
            assert usage(mine) == [("flow-1", 120, 1)]
    finally:
        other.close()


@pytest.mark.parametrize("before", [30, -2])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_failed_call_is_found_across_a_minute(project: Project, order: Sequence[int], before: int) -> None:
    """START is 20 seconds into its minute. Who begins before the other may be either."""
    host, beside = Trace("host", run_id="flow-1"), Trace("satellite")
    host.chat(start=41 - before, end=42, error="overloaded")
    native = beside.chat(start=41, end=41.9, error="overloaded")
    native.scope = Scope("native")
    if before < 0:
        host.spans[0].start_ns, native.start_ns = at(41), at(39)
    for which in order:
        project.store((host, beside)[which].spans)
    assert [run for run, *_ in usage(project)] == ["flow-1"]


def test_a_satellite_of_another_project_is_no_satellite(project: Project) -> None:
    host, beside = host_and_satellite()
    project.store(host.spans)
    elsewhere = new_project(project.stores)
    elsewhere.store(beside.spans)
    assert usage(elsewhere) == [(f"run_{beside.trace_id}", 120, 1)]
    assert usage(project) == [("flow-1", 120, 1)]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_traces_that_share_a_key_are_one_run(project: Project, order: Sequence[int]) -> None:
    traces = []
    for number in range(3):
        trace = Trace(f"turn {number}")
        top = trace.span(f"top {number}", number, number + 0.9)
        call = trace.chat(start=number, end=number + 0.5, parent=top, tokens=(120, 18))
        call.attributes |= {"made_up.session": "s1", "made_up.request": f"r{number}"}
        traces.append(trace)
    for place in order:
        project.store(traces[place].spans)
    run_id = joined_run("made_up", "s1")
    assert usage(project) == [(run_id, 360, 3)]
    assert project.api().json(f"/runs/{run_id}")["trace_ids"] == [trace.trace_id for trace in traces]
    assert project.api().get(f"/runs/run_{traces[1].trace_id}").status_code in (200, 307)


def test_an_explicit_run_or_a_caller_s_span_is_stronger_than_a_key(project: Project) -> None:
    explicit = Trace("explicit", run_id="mine")
    explicit.chat(tokens=(120, 18)).attributes["made_up.session"] = "s1"
    called = Trace("called")
    agent = called.agent("app", 0, 9)
    called.chat(start=1, parent=agent, tokens=(120, 18)).attributes["made_up.session"] = "s1"
    project.store([*explicit.spans, *called.spans])
    assert {run for run, *_ in usage(project)} == {"mine", f"run_{called.trace_id}"}


def record(request: str, time: float, **more: Any) -> LogRecord:
    attributes = {"made_up.session": "s1", "made_up.request": request, "made_up.input_tokens": "120"}
    return LogRecord(time_ns=at(time), event_name="made_up.call", attributes=attributes | more)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_calls_that_only_log_records_tell_of_are_a_run(project: Project, order: Sequence[int]) -> None:
    records = [record(f"r{number}", number + 1) for number in range(3)]
    for place in (*order, *order):
        project.store([], [records[place]])
    assert usage(project) == [(joined_run("made_up", "s1"), 360, 3)]


def test_of_two_records_that_are_the_same_call_the_same_one_is_named_in_any_order(stores: Stores) -> None:
    records = [record("r1", 1), record("r1", 1)]
    records[1].observed_time_ns = at(5)
    named = []
    for order in (records, records[::-1]):
        project = new_project(stores)
        for each in order:
            project.store([], [each])
        (span,) = project.api().json(f"/runs/{joined_run('made_up', 's1')}/timeline")["spans"]
        named.append(span["labels"]["log_record"])
    assert named[0] == named[1]


def test_a_log_record_that_cannot_be_read_as_a_call_is_stored(project: Project) -> None:
    broken = LogRecord(time_ns=at(1), event_name="made_up.call", attributes={"made_up.session": "s1"})
    project.store([], [broken])
    assert usage(project) == []
    assert project.stores.exporter.derivation_failures > 0
    rows = project.stores.reader._query("SELECT count() FROM logs WHERE project_id = {project:String}", project.tenant)
    assert rows[0][0] == 1
