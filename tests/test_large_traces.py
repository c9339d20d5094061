"""A long run is derived now and then: all of it is stored and in the timeline at once, and derived in the end, whatever
ends in between."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

import pytest

from otel_blackboard.exporter import flush, large_traces
from otel_blackboard.exporter.clickhouse import StoreError
from otel_blackboard.exporter.flush import Exporter
from otel_blackboard.exporter.large_traces import LargeTraces
from otel_blackboard.exporter.reader import Reader
from otel_blackboard.records import Span
from tests.conftest import Project
from tests.spans import Trace

LARGE = 10


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_traces, "LARGE", LARGE)


class Worker:
    """An exporter whose large traces go by a clock of the test's."""

    def __init__(self, project: Project, clock: Clock, alone: bool = False) -> None:
        self.exporter = Exporter(project.stores.settings, project.stores.bodies, alone=alone)
        self.exporter._large = LargeTraces(clock)
        self.exporter._cut_short = False  # what is found at the start without a mark has a test of its own
        self._tenant = project.tenant

    def store(self, spans: list[Span]) -> None:
        self.exporter.flush([(self._tenant, span) for span in spans], [])


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def worker(project: Project, clock: Clock) -> Iterator[Worker]:
    made = Worker(project, clock)
    made.exporter._take_over_at = None
    yield made
    made.exporter.close()


def _run(project: Project) -> tuple[str, list[Span]]:
    trace = Trace(project.tenant.project_id)
    flow = trace.flow(end=100)
    step = trace.step("worker", end=100, parent=flow)
    for number in range(30):
        trace.tool(f"tool {number % 3}", start=number + 1, parent=step, result=f"result {number}")
    return f"run_{trace.trace_id}", trace.spans


def _marked(project: Project) -> list[str]:
    reader = project.stores.reader
    rows = reader._query("SELECT trace_id FROM deriving FINAL WHERE project_id = {project:String}", project.tenant)
    return [row[0] for row in rows]


def _timeline(project: Project, run_id: str) -> dict[str, Any]:
    return project.api().json(f"/runs/{run_id}/timeline", limit=1000)  # type: ignore[no-any-return]


def _as_if_sent_at_once(project: Project, run_id: str, spans: list[Span]) -> None:
    at_once = project.another()
    at_once.store(spans)
    for path in ("", "/timeline", "/artifacts", "/paths", "/ledger"):
        found, wanted = (
            str(each.api().json(f"/runs/{run_id}{path}", **({"limit": 1000} if path == "/timeline" else {}))).replace(
                each.tenant.project_id, "project"
            )
            for each in (project, at_once)
        )
        # An id that is not stamped is made of the project too.
        assert _without_ids(found) == _without_ids(wanted), path


def _without_ids(text: str) -> str:
    return re.sub(r"art_[0-9a-f]{32}", "art_", text)


def test_spans_of_a_resting_trace_are_in_the_timeline_and_derived_when_it_has_rested(
    project: Project, worker: Worker, clock: Clock
) -> None:
    run_id, spans = _run(project)
    worker.store(spans[:12])
    assert worker.exporter.derive_due() is None
    worker.store(spans[12:])
    assert project.api().json(f"/runs/{run_id}")["span_count"] == 12
    timeline = _timeline(project, run_id)
    assert timeline["deriving"] and len(timeline["spans"]) == len(spans)
    late = next(span for span in timeline["spans"] if span["span_id"] == spans[-1].span_id)
    assert (late["tool_name"], late["parent_span_id"], late["call_seq"]) == ("tool 2", spans[1].span_id, None)
    assert project.api().json(f"/runs/{run_id}/spans/{spans[-1].span_id}")["span_id"] == spans[-1].span_id
    assert len(_marked(project)) == 1
    due_in = worker.exporter.derive_due()
    assert due_in is not None and due_in > 0 and len(_marked(project)) == 1
    clock.now += due_in
    assert worker.exporter.derive_due() is None
    assert _marked(project) == [] and not _timeline(project, run_id)["deriving"]
    _as_if_sent_at_once(project, run_id, spans)


def test_a_trace_that_has_rested_is_derived_before_it_is_acknowledged(
    project: Project, worker: Worker, clock: Clock
) -> None:
    run_id, spans = _run(project)
    for batch in (spans[:12], spans[12:20], spans[20:]):
        worker.store(batch)
        clock.now += 1000
    assert project.api().json(f"/runs/{run_id}")["span_count"] == len(spans)
    assert _marked(project) == []


def test_runs_of_one_long_trace_each_show_what_waits(project: Project, worker: Worker, clock: Clock) -> None:
    """Each run is small, the trace is not. A span belongs to the run of what it hangs under, also where that waits too."""
    one, other = Trace(project.tenant.project_id, "one"), Trace(project.tenant.project_id, "other")
    other.spans = one.spans  # one trace: ids go on counting
    for trace in (one, other):
        flow = trace.flow(end=50)
        for number in range(6):
            trace.tool(f"tool {number}", start=number, parent=flow)
    worker.store(one.spans)
    late = []
    for run_id, trace in (("one", one), ("other", other)):
        flow = trace.flow("late", start=60)
        below = trace.tool(f"late {run_id}", start=61, parent=flow)
        del below.attributes["blackboard.run.id"]
        late += [flow, below]
    worker.store(late)
    for run_id in ("one", "other"):
        timeline = _timeline(project, run_id)
        assert timeline["deriving"] and len(timeline["spans"]) == 9
        assert f"late {run_id}" in {span["tool_name"] for span in timeline["spans"]}
        opened = {span.span_id: project.api().get(f"/runs/{run_id}/spans/{span.span_id}").status_code for span in late}
        shown = {span["span_id"] for span in timeline["spans"]}
        assert opened == {span.span_id: 200 if span.span_id in shown else 404 for span in late}
    clock.now += 1000
    worker.exporter.derive_due()
    assert [len(_timeline(project, run_id)["spans"]) for run_id in ("one", "other")] == [9, 9]


def test_a_derivation_that_ends_while_a_timeline_is_read_hides_no_span(
    project: Project, worker: Worker, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id, spans = _run(project)
    worker.store(spans[:12])
    worker.store(spans[12:])
    clock.now += 1000
    for name in ("deriving", "not_derived", "resolved"):
        look = getattr(Reader, name)

        def derives_first(*given: Any, look: Any = look) -> Any:
            worker.exporter.derive_due()
            return look(*given)

        with monkeypatch.context() as patch:
            patch.setattr(Reader, name, derives_first)
            assert len(_timeline(project, run_id)["spans"]) == len(spans), name
        worker.store([spans[0]])
        worker.store(spans[1:2])
        clock.now += 1000


def test_small_traces_never_wait(project: Project, worker: Worker) -> None:
    run_id, spans = _run(project)
    worker.store(spans[:4])
    worker.store(spans[4:9])
    assert project.api().json(f"/runs/{run_id}")["span_count"] == 9


@pytest.mark.parametrize("alone", [True, False])
def test_what_a_worker_left_underived_the_next_one_derives(
    project: Project, worker: Worker, clock: Clock, monkeypatch: pytest.MonkeyPatch, alone: bool
) -> None:
    run_id, spans = _run(project)
    worker.store(spans[:12])
    worker.store(spans[12:])
    if not alone:  # other workers wait until a mark is old
        patient = Worker(project, clock)
        assert patient.exporter.derive_due() and len(_marked(project)) == 1
        patient.exporter.close()
        monkeypatch.setattr(flush, "_TAKE_OVER_EVERY", 0)
    after = Worker(project, clock, alone)
    for _ in range(10):  # one trace at a time, those of other tests too
        after.exporter.derive_due()
    after.exporter.close()
    assert _marked(project) == []
    _as_if_sent_at_once(project, run_id, spans)


def test_a_mark_made_after_the_spans_were_seen_stays(project: Project, worker: Worker, clock: Clock) -> None:
    """Another worker stores spans and marks the trace between this one's look at the trace and its taking back the mark."""
    run_id, spans = _run(project)
    worker.store(spans[:12])
    worker.store(spans[12:20])
    other = Worker(project, clock)
    other.exporter._take_over_at = None
    other.exporter._large.derived((project.tenant, spans[0].trace_id), 20, 0)
    take_back = worker.exporter._unmark

    def late(seen: Any) -> Any:
        other.store(spans[20:])
        return take_back(seen)

    worker.exporter._unmark = late  # type: ignore[method-assign]
    clock.now += 1000
    other.exporter._large.derived((project.tenant, spans[0].trace_id), 20, 0)
    worker.exporter.derive_due()
    assert len(_marked(project)) == 1
    clock.now += 1000
    other.exporter.derive_due()
    assert _marked(project) == []
    other.exporter.close()
    _as_if_sent_at_once(project, run_id, spans)


def test_what_cannot_be_derived_now_is_tried_again(
    project: Project, worker: Worker, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id, spans = _run(project)
    worker.store(spans[:12])
    worker.store(spans[12:])
    clock.now += 1000
    with monkeypatch.context() as patch:
        patch.setattr(worker.exporter, "_write_derived", lambda *_: 1 / 0)
        again_in = worker.exporter.derive_due()
    assert again_in and len(_marked(project)) == 1
    clock.now += again_in
    assert worker.exporter.derive_due() is None
    _as_if_sent_at_once(project, run_id, spans)


def test_a_mark_of_a_trace_that_is_gone_is_taken_back(project: Project, worker: Worker, clock: Clock) -> None:
    key = (project.tenant, "0" * 32)
    worker.exporter._mark({project.tenant: {key[1]: ([], [])}}).result()
    worker.exporter._large.take_over([key], marked=True)
    assert worker.exporter.derive_due() is None
    assert _marked(project) == []


@pytest.mark.parametrize("count", [3, 31], ids=["a small trace", "a large one"])
def test_what_was_derived_and_has_to_be_once_more_is_tried_again(
    project: Project, worker: Worker, clock: Clock, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Another worker wrote meanwhile, and then the store fails: the second round is not lost, and the thread goes on."""
    spans = _run(project)[1][:count]
    key = (project.tenant, spans[0].trace_id)
    worker.store(spans)
    worker.exporter._large.take_over([key], marked=False)
    write, rounds = worker.exporter._write_derived, itertools.count(1)

    def fails_the_second_time(*given: Any) -> Any:
        if next(rounds) == 2:
            raise StoreError("gone")
        return write(*given)

    with monkeypatch.context() as patch:
        patch.setattr(worker.exporter, "_write_derived", fails_the_second_time)
        patch.setattr(worker.exporter, "_overtaken", lambda versions: ({key[0]: {key[1]: ([], [])}}, []))
        assert worker.exporter.derive_due() is not None
    assert worker.exporter._large.due() == []
    clock.now += 10
    assert worker.exporter._large.due() == [key]
    worker.exporter.derive_due()
    assert worker.exporter._large.due_in() is None


def test_a_trace_that_was_taken_over_without_a_mark_and_rests_is_marked(
    project: Project, worker: Worker, clock: Clock
) -> None:
    _, spans = _run(project)
    worker.store(spans[:5])
    key = (project.tenant, spans[0].trace_id)
    worker.exporter._large.take_over([key], marked=False)
    worker.exporter._large.put_off([key])
    worker.store(spans[5:])
    assert _marked(project) == [key[1]]
    clock.now += 10
    worker.exporter.derive_due()
    reader = project.stores.reader
    left = "SELECT count() FROM deriving FINAL WHERE project_id = {project:String} AND is_deleted = 0"
    assert reader._query(left, project.tenant)[0][0] == 0
