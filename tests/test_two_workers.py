"""Two workers over one engine: whoever writes last, the rows say what all of the spans say."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from otel_blackboard.collector.arrival import Arrival, StoreUnavailable
from otel_blackboard.collector.group_commit import GroupCommit, Waiting
from otel_blackboard.config import Settings
from otel_blackboard.exporter import flush
from otel_blackboard.exporter.flush import Exporter, StoreFailed
from otel_blackboard.exporter.preparation import Prepared, prepare
from otel_blackboard.query.api import make_api
from otel_blackboard.records import Span, Tenant
from otel_blackboard.service import Stores, open_stores
from tests.spans import Trace

_numbers = itertools.count()


@pytest.fixture(scope="module")
def first(embedded_folder: Path) -> Iterator[Stores]:
    with open_stores(Settings(data=embedded_folder, database="two_workers")) as opened:
        beside_another = Exporter(opened.settings, opened.bodies)
        yield replace(opened, exporter=beside_another)
        beside_another.close()


@pytest.fixture(scope="module")
def second(first: Stores) -> Iterator[Exporter]:
    exporter = Exporter(first.settings, first.bodies)
    yield exporter
    exporter.close()


@pytest.fixture
def tenant() -> Tenant:
    return Tenant("default", f"workers-{next(_numbers)}")


def runs(stores: Stores, tenant: Tenant) -> list[Any]:
    api = TestClient(make_api(stores.reader, stores.settings, None, lambda: ""))
    return list(api.get("/api/v1/runs", params={"project_id": tenant.project_id}).json()["runs"])


def test_a_run_that_gets_its_name_at_another_worker_is_one_run(first: Stores, second: Exporter, tenant: Tenant) -> None:
    trace = Trace("named late")
    notice = trace.flow("flow", 0)
    notice.attributes["blackboard.pending"] = True
    first.exporter.flush([(tenant, notice)], [])
    assert [run["status"] for run in runs(first, tenant)] == ["running"]
    finished = Trace("named late", run_id="r1").flow("flow", 0)
    second.flush([(tenant, finished)], [])
    assert [(run["run_id"], run["status"]) for run in runs(first, tenant)] == [("r1", "complete")]
    api = TestClient(make_api(first.reader, first.settings, None, lambda: ""), follow_redirects=False)
    old = api.get(f"/api/v1/runs/run_{notice.trace_id}", params={"project_id": tenant.project_id})
    assert (old.status_code, old.headers["location"]) == (307, f"/api/v1/runs/r1?project_id={tenant.project_id}")


def test_spans_of_one_trace_at_two_workers_give_one_run(first: Stores, second: Exporter, tenant: Tenant) -> None:
    trace = Trace("split")
    flow = trace.flow("flow", 0, 9)
    for number in range(6):
        trace.tool(f"t{number}", number + 1, parent=flow, result="r")
    for worker, span in zip(itertools.cycle([first.exporter, second]), trace.spans, strict=False):
        worker.flush([(tenant, span)], [])
    (run,) = runs(first, tenant)
    assert (run["span_count"], run["counts"]["tool_invocation"]) == (7, 6)


def during(worker: Exporter, monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Has `act` happen once, in the worker's next flush, after it has read a trace and before it writes what it found."""
    resolve = worker._resolve

    def at_that_moment(*trace: Any) -> Any:
        monkeypatch.setattr(worker, "_resolve", resolve)
        act()
        return resolve(*trace)

    monkeypatch.setattr(worker, "_resolve", at_that_moment)


def rows(stores: Stores, tenant: Tenant) -> list[Any]:
    """(span id, run id) of the spans and (part, run id) of the run parts."""
    with stores.reader._clients.client() as client:
        query = (
            "SELECT span_id, run_id FROM resolved FINAL WHERE organization_id = {o:String} AND project_id = {p:String} "
            "UNION ALL SELECT part, run_id FROM run_parts FINAL "
            "WHERE organization_id = {o:String} AND project_id = {p:String}"
        )
        parameters = {"o": tenant.organization_id, "p": tenant.project_id}
        return sorted(client.query(query, parameters=parameters).result_rows)


def test_a_worker_that_leaves_out_what_does_not_differ_leaves_nothing_of_anothers(
    first: Stores, second: Exporter, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that knows the trace sees it after the other one did, and writes after it: only rows that differ from its own."""
    plain, one, two = three_spans("left out")
    second.derive_due()  # what a worker looks for at its start is another matter
    first.exporter.flush([(tenant, plain)], [])
    seen, landed = threading.Event(), threading.Event()

    def sees_and_waits() -> None:
        seen.set()
        assert landed.wait(60)

    with ThreadPoolExecutor(1) as pool:
        during(first.exporter, monkeypatch, sees_and_waits)
        last: list[Future[None]] = []

        def brings_more() -> None:
            last.append(pool.submit(first.exporter.flush, [(tenant, one), (tenant, two)], []))
            assert seen.wait(60)

        during(second, monkeypatch, brings_more)
        second.flush([(tenant, one)], [])
        landed.set()
        last[0].result()
    second.derive_due()
    found = rows(first, tenant)
    fresh = Tenant(tenant.organization_id, f"{tenant.project_id}-at-once")
    second.flush([(fresh, span) for span in three_spans("left out")], [])
    assert found == rows(first, fresh)


def test_a_worker_that_is_late_with_what_it_found_leaves_no_run_behind(
    first: Stores, second: Exporter, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It found a run without a name; the other one knows the name, and could not see the unnamed part to delete it."""
    flow, tool = Trace("late", run_id="r1").flow("flow"), Trace("late").tool("look", 1)
    tool.span_id = "b" * 16
    during(first.exporter, monkeypatch, lambda: second.flush([(tenant, flow)], []))
    first.exporter.flush([(tenant, tool)], [])
    assert rows(first, tenant) == sorted([(flow.span_id, "r1"), (tool.span_id, "r1"), ("r1", "r1")])


def test_rows_that_another_worker_has_written_over_are_written_again(
    first: Stores, second: Exporter, tenant: Tenant
) -> None:
    """The first worker has all spans of the second one from a sender that sent twice, and finds its own rows unchanged."""
    plain, one, two = three_spans("over")
    first.exporter.flush([(tenant, plain)], [])
    second.flush([(tenant, one)], [])  # the only name in the trace: the plain span is of that run
    first.exporter.flush([(tenant, one), (tenant, two)], [])  # two names: it is of neither
    assert (plain.span_id, f"run_{plain.trace_id}") in rows(first, tenant)


def test_rows_of_a_worker_that_is_late_do_not_stand_over_those_left_out_as_unchanged(
    first: Stores, second: Exporter, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, one, two = three_spans("late and over")
    first.exporter.flush([(tenant, plain)], [])
    during(second, monkeypatch, lambda: first.exporter.flush([(tenant, one), (tenant, two)], []))
    second.flush([(tenant, one)], [])
    assert (plain.span_id, f"run_{plain.trace_id}") in rows(first, tenant)


def test_a_notice_that_comes_again_at_another_worker_does_not_open_its_span(
    first: Stores, second: Exporter, tenant: Tenant
) -> None:
    """The two differ by nothing but their end, and the other worker has not seen the finished one."""
    finished, notice = (Trace("again").flow("flow") for _ in range(2))
    notice.end_ns = 0
    first.exporter.flush([(tenant, finished)], [])
    second.flush([(tenant, notice)], [])
    assert [run["status"] for run in runs(first, tenant)] == ["complete"]


def three_spans(name: str) -> tuple[Span, Span, Span]:
    """One without a run id and two with one each."""
    trace = Trace(name)
    plain = trace.span("plain")
    return plain, trace.span("one", 1, blackboard__run__id="r1"), trace.span("two", 2, blackboard__run__id="r2")


def test_the_time_of_a_look_is_older_than_what_is_seen(first: Stores, second: Exporter, tenant: Tenant) -> None:
    """Or a stale look could win over one that saw more. Here the time is slow to be told, and a span comes meanwhile."""
    time = "toUnixTimestamp64Nano(now64(9))"
    assert time in flush._CHECK
    slowly = flush._CHECK.replace(time, f"(SELECT sleep(2)) + {time}")
    span = Trace("between").span("x")
    values = {"organization": tenant.organization_id, "project": tenant.project_id, "traces": [span.trace_id]}
    with ThreadPoolExecutor(1) as pool, first.reader._clients.client() as client:
        look = pool.submit(lambda: client.query(slowly, parameters=values).result_rows)
        second.flush([(tenant, span)], [])
        with first.reader._clients.client() as other:
            ((stored_at,),) = other.query(f"SELECT {time}").result_rows
        rows = look.result()
    seen = any(row[2] == "spans" for row in rows)
    assert seen or max(row[1] for row in rows) < stored_at


def test_what_cannot_be_read_back_is_not_acknowledged(
    first: Stores, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica that is behind shows nothing of what was just written."""

    class Behind:
        def __init__(self, client: Any) -> None:
            self.client = client

        def query(self, sql: str, parameters: Any) -> Any:
            return self.client.query(sql, parameters=parameters | {"project": "elsewhere"})

    monkeypatch.setitem(first.exporter._clients, "read", Behind(first.exporter._clients["read"]))
    with pytest.raises(StoreFailed, match="does not show what was just written"):
        first.exporter.flush([(tenant, Trace("unseen").flow())], [])


class FakeExporter:
    """Fails for requests that have a span named `bad`, as a value that no column takes would."""

    def __init__(self) -> None:
        self.stored: list[str] = []

    def prepare(self, spans: Sequence[tuple[Tenant, Span]], logs: Sequence[Any]) -> Prepared:
        return prepare(spans, logs, frozenset())

    def derive_due(self) -> None:
        pass

    def commit(self, prepared: Sequence[Prepared]) -> None:
        names = [reading.light.name for some in prepared for _, reading in some.spans]
        if "down" in names:
            raise StoreFailed("the store is gone")
        if "bad" in names:
            raise ValueError("no column takes this")
        self.stored += names


def test_a_request_that_cannot_be_stored_costs_no_other_request(tenant: Tenant) -> None:
    exporter = FakeExporter()
    commit = GroupCommit(exporter, Settings(flush_bytes=10**9))
    batch = [_waiting(tenant, name) for name in ("a", "bad", "b", "c")]
    commit._commit(batch)
    assert sorted(exporter.stored) == ["a", "b", "c"]
    assert [type(each.future.exception()) for each in batch] == [type(None), ValueError, type(None), type(None)]
    lost = [_waiting(tenant, "down")]
    commit._commit(lost)
    assert isinstance(lost[0].future.exception(), StoreUnavailable)
    assert commit.close()


def test_a_sender_that_no_longer_waits_does_not_end_the_others(tenant: Tenant) -> None:
    commit = GroupCommit(FakeExporter(), Settings())
    gone = _waiting(tenant, "gone")
    assert gone.future.cancel()
    commit._commit([gone])
    assert commit.submit(_waiting(tenant, "next").arrival).result(10) is None
    assert commit.close()


def _waiting(tenant: Tenant, name: str) -> Waiting:
    arrival = Arrival([], [], 10, prepared=prepare([(tenant, Trace(name).span(name))], [], frozenset()))
    return Waiting(arrival, Future(), 10)
