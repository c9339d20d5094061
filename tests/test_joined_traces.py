"""Several traces that are one run, a call that two traces tell of, calls that only log records tell of: in any order, at
two workers, sent twice."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from clickhouse_connect.driver.binding import format_bind_value

from otel_blackboard.exporter import large_traces
from otel_blackboard.exporter.clickhouse import chunks
from otel_blackboard.exporter.flush import Exporter
from otel_blackboard.exporter.large_traces import LargeTraces
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
def test_a_satellite_takes_the_run_of_its_host_and_is_not_counted_again(project: Project, order: Sequence[int]) -> None:
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


MOMENTS = {"_derive": "stored", "_resolve": "seen", "_without_resting": "written"}
"""What a worker does next → what it has done with the spans of its flush."""


@contextlib.contextmanager
def just_before(exporter: Exporter, step: str, act: Callable[[], None]) -> Iterator[None]:
    """Has `act` happen once, as late as can be before the exporter does this: what it is told by then, it knows already."""
    does, acted = getattr(exporter, step), []

    def late(*given: Any) -> Any:
        if not acted and (step != "_without_resting" or wrote):
            acted.append(True)
            act()
        return does(*given)

    wrote: list[bool] = []
    write = exporter._write_derived

    def writes(*given: Any) -> Any:
        found = write(*given)
        wrote.append(True)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exporter, step, late)
        patch.setattr(exporter, "_write_derived", writes)
        yield
    if not acted:
        act()


@pytest.mark.parametrize("moment", MOMENTS, ids=MOMENTS.get)
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_of_two_flushes_at_a_time_one_finds_both(embedded_project: Project, order: Sequence[int], moment: str) -> None:
    """The flow that names the run, the host below it, its satellite: one after the other, and each two side by side."""
    stores = embedded_project.stores
    one, other = (Exporter(stores.settings, stores.bodies) for _ in range(2))
    with contextlib.closing(one), contextlib.closing(other):
        for held in (0, 1):
            mine = new_project(replace(stores, exporter=one))
            host, beside = host_and_satellite()
            (flow, call), (native,) = host.spans, beside.spans
            del call.attributes["blackboard.run.id"]
            native.attributes["gen_ai.usage.input_tokens"] = 130
            spans = [(flow, call, native)[place] for place in order]
            if held == 1:
                mine.store(spans[:1])
            at_the_other = [(mine.tenant, spans[held + 1])]
            with just_before(one, moment, lambda at_the_other=at_the_other: other.flush(at_the_other, [])):
                mine.store([spans[held]])
            if held == 0:
                mine.store(spans[2:])
            assert usage(mine) == [("flow-1", 130, 1)], held


class Counted:
    """The traces that an exporter derives."""

    def __init__(self, exporter: Exporter, patch: pytest.MonkeyPatch) -> None:
        self.traces: list[str] = []
        resolve = exporter._resolve

        def counted(trace: Any, *more: Any) -> Any:
            self.traces.append(next(iter(trace.spans.values())).trace_id)
            return resolve(trace, *more)

        patch.setattr(exporter, "_resolve", counted)

    def since(self) -> list[str]:
        found, self.traces[:] = sorted(self.traces), []
        return found


def calls_with_satellites(count: int, failed: bool = False) -> tuple[Trace, list[Trace]]:
    """A flow without a name with so many calls in it, ten seconds apart, and their satellites."""
    host, satellites = Trace("host"), []
    flow = host.flow("flow", 0, 999)
    for number in range(count):
        start = 10.0 * number
        told: dict[str, Any] = {"error": "overloaded"} if failed else {"gen_ai.response.id": f"msg_{number}"}
        host.chat(start=start, end=start + 1, parent=flow, tokens=(10, 1), **told)
        beside = Trace(f"satellite {number}")
        beside.chat(start=start + 0.1, end=start + 0.9, tokens=(12, 1), **told).scope = Scope("native")
        satellites.append(beside)
    return host, satellites


@pytest.mark.parametrize("failed", [False, True])
def test_a_flush_derives_the_satellites_of_its_own_calls_alone(
    embedded_project: Project, monkeypatch: pytest.MonkeyPatch, failed: bool
) -> None:
    project = embedded_project
    host, satellites = calls_with_satellites(6, failed)
    project.store(host.spans[:1])
    counted = Counted(project.stores.exporter, monkeypatch)
    for call, beside in zip(host.spans[1:], satellites, strict=True):
        project.store([call, *beside.spans])
        assert counted.since() == sorted([host.trace_id, beside.trace_id])
    project.store([host.tool("a tool", 80, parent=host.spans[0])])
    assert counted.since() == [host.trace_id]
    assert [run for run, *_ in usage(project)] == [f"run_{host.trace_id}"]


@pytest.mark.parametrize("failed", [False, True])
def test_all_satellites_follow_a_host_whose_run_is_named_by_another_span(
    project: Project, monkeypatch: pytest.MonkeyPatch, failed: bool
) -> None:
    host, satellites = calls_with_satellites(4, failed)
    project.store([*host.spans, *(span for beside in satellites for span in beside.spans)])
    counted = Counted(project.stores.exporter, monkeypatch)
    named = Trace("host", run_id="flow-1").flow("named", 1, 2)
    named.span_id = "e" * 16
    project.store([named])
    assert counted.since() == sorted([host.trace_id, *(beside.trace_id for beside in satellites)])
    assert [run for run, *_ in usage(project)] == ["flow-1"]


@pytest.fixture
def resting(embedded: Stores, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Project, list[float]]]:
    """A project over an exporter to which three spans are a large trace, and the clock by which those rest."""
    monkeypatch.setattr(large_traces, "LARGE", 3)
    clock = [100.0]
    with contextlib.closing(Exporter(embedded.settings, embedded.bodies)) as exporter:
        exporter._large = LargeTraces(lambda: clock[0])
        exporter._take_over_at, exporter._cut_short = None, False
        yield new_project(replace(embedded, exporter=exporter)), clock


def test_satellites_let_the_large_trace_of_their_hosts_rest(
    resting: tuple[Project, list[float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    project, clock = resting
    exporter = project.stores.exporter
    host, satellites = calls_with_satellites(5)
    project.store(host.spans)
    counted = Counted(exporter, monkeypatch)
    for beside in satellites:
        project.store(beside.spans)
        assert counted.since() == [beside.trace_id]
    assert usage(project) == [(f"run_{host.trace_id}", 50, 5)]
    clock[0] += 1000
    assert exporter.derive_due() is None
    assert counted.since() == [host.trace_id]
    assert usage(project) == [(f"run_{host.trace_id}", 60, 5)]


def test_satellites_in_a_large_trace_rest_as_well_and_follow_later(
    resting: tuple[Project, list[float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    project, clock = resting
    exporter = project.stores.exporter
    host, satellites = calls_with_satellites(5)
    for number, beside in enumerate(satellites):
        beside.spans[0].trace_id, beside.spans[0].span_id = satellites[0].trace_id, f"{number + 1:016x}"
    project.store([span for beside in satellites for span in beside.spans])
    counted = Counted(exporter, monkeypatch)
    for call in host.spans[1:3]:
        project.store([call])
        assert counted.since() == [host.trace_id]
    clock[0] += 1000
    assert exporter.derive_due() is None
    assert counted.since() == [satellites[0].trace_id]
    project.store([host.spans[0], *host.spans[3:]])
    clock[0] += 1000
    exporter.derive_due()
    assert usage(project) == [(f"run_{host.trace_id}", 60, 5)]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("hours, same", [(23, True), (25, False)])
def test_a_satellite_and_its_host_begin_within_a_day(
    project: Project, order: Sequence[int], hours: int, same: bool
) -> None:
    """Or all of history would have to be looked through for one."""
    host, beside = host_and_satellite()
    beside.spans[0].start_ns, beside.spans[0].end_ns = at(3600 * hours), at(3600 * hours + 1)
    host.spans[1].end_ns = at(3600 * 30)
    for which in order:
        project.store((host, beside)[which].spans)
    assert len(usage(project)) == (1 if same else 2)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_satellites_are_found_by_ids_of_any_length(project: Project, order: Sequence[int]) -> None:
    """As many as are kept whole, of characters that a driver escapes, are more than a server takes in one parameter."""
    host, satellites = calls_with_satellites(30)
    for number, beside in enumerate(satellites):
        for span in (host.spans[number + 1], *beside.spans):
            span.attributes["gen_ai.response.id"] = f"{number} ".ljust(8_000, "'")
    both = host.spans, [span for beside in satellites for span in beside.spans]
    for which in order:
        project.store(both[which])
    assert usage(project) == [(f"run_{host.trace_id}", 360, 30)]


@pytest.mark.parametrize(
    "ids", [["a" * 32] * 5_000, ["\\'`\t\n" * 2_000] * 9, ["ü" * 8_192] * 20, ["x" * 200_000] * 2, []]
)
def test_a_query_takes_ids_that_fit_one_parameter(ids: list[str]) -> None:
    for some in (chunks(ids), chunks([("trace", each) for each in ids])):
        found = list(some)
        texts = [[each if isinstance(each, str) else each[1] for each in few] for few in found]
        assert [each for few in texts for each in few] == ids
        for few in texts:
            assert len(few) == 1 or len(format_bind_value(few).encode()) < 128 * 1024
            assert len(few) <= 2_000
    assert len(list(chunks(["a" * 32] * 4_000))) == 2  # trace ids are as many as they were


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
    answer = project.api().get(f"/runs/run_{traces[1].trace_id}")
    location = f"/api/v1/runs/{run_id}?project_id={project.tenant.project_id}"
    assert (answer.status_code, answer.headers["location"]) == (307, location)


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
