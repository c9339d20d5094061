"""The REST routes: what they answer, what they refuse, and that no order of arrival changes an answer."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import anyio
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from otel_blackboard.access import PERMISSIONS, Credential, allows
from otel_blackboard.config import Settings
from otel_blackboard.exporter.reader import Reader
from otel_blackboard.query import problems
from otel_blackboard.query.api import make_api
from otel_blackboard.query.problems import Patience
from otel_blackboard.query.times import rfc3339
from otel_blackboard.records import LogRecord, Span, Tenant
from otel_blackboard.service import Stores
from tests.conftest import Api, Project, key_ring, new_project
from tests.spans import DETAILS, Trace, at, stamps

RUN = "r1"


def story(run_id: str = RUN, name: str = "story") -> tuple[list[Span], list[LogRecord]]:
    """Two processes, a retry, a re-entry, parallel and failed tools, content in logs, doubled calls, a start notice, a
    stray, a cycle."""
    main, worker = Trace(name, run_id=run_id), Trace(name + " worker", run_id=run_id)
    root = main.flow("harbour", 0, 90, session__id="conv-1")
    for attempt in (1, 2):
        own = stamps("search", 1, attempt)
        step = main.step(
            "sailor", attempt * 10, attempt * 10 + 9, root, gen_ai__output__messages=f"out {attempt}", **own
        )
        asks = [("c1", "tide", {"day": attempt}), ("c2", "page", {"url": "u"})]
        chat = main.chat(attempt * 10 + 1, attempt * 10 + 2, step, asks=asks, tokens=(100, 10), prompt="go", **own)
        main.chat(attempt * 10 + 1.2, attempt * 10 + 1.9, chat, tokens=(100, 10), blackboard__request__body='{"m": 1}')
        main.tool("page", attempt * 10 + 3.0, attempt * 10 + 4, step, call_id="c2", error="404", **own)
        main.tool("tide", attempt * 10 + 3.1, attempt * 10 + 5, step, {"day": attempt}, "4 tides", "c1", **own)
    again = main.step("sailor", 40, 49, root, **stamps("search", 2, 1))
    quiet = main.tool("quiet", 41, 42, again)
    main.log(quiet, DETAILS, 41.5, gen_ai__tool__call__result="said in a log", gen_ai__tool__call__arguments='{"a": 1}')
    told = main.chat(43, 44, again)
    main.log(told, "gen_ai.user.message", 43.1, body={"content": "question"})
    main.log(told, "gen_ai.choice", 43.9, body={"message": {"role": "assistant", "content": "answer"}})
    main.tool("stray", 50, 51, "f" * 16, result="nobody's child")
    a, b = main.span("ring a", 60), main.span("ring b", 61)
    a.parent_span_id, b.parent_span_id = b.span_id, a.span_id
    notice = main.tool("late", 70, 71, root, blackboard__pending=True)
    done = main.tool("late", 70, 75, root, result="finished")
    done.span_id = notice.span_id
    step = worker.agent("writer", 55, 80)
    worker.chat(56, 57, step, tokens=(7, 3), gen_ai__response__id="resp", said="hello")
    worker.chat(56.5, 57.5, step, tokens=(7, 3), gen_ai__response__id="resp")
    loose = worker.log(step, "app.note", 58, body="a note")
    loose.span_id = ""
    return [*main.spans, *worker.spans], [*main.logs, *worker.logs]


@pytest.fixture(scope="module")
def told(stores: Stores) -> Project:
    """A project that holds the story, to be read only; once in each store pair."""
    project = new_project(stores)
    project.store(*story())
    return project


@pytest.fixture(scope="module")
def told_here(embedded: Stores) -> Project:
    """The same in the embedded pair alone."""
    project = new_project(embedded)
    project.store(*story())
    return project


# ------------------------------------------------------------------------------------------------ any order, any split


def answers_of(project: Project) -> Any:
    """All that the read routes say of the story. Artifact ids, which hold the project's name, stand as their place."""
    api = project.api(clock_ns=at(200))
    paths = [
        "/runs", f"/runs/{RUN}", f"/runs/{RUN}/timeline", f"/runs/{RUN}/artifacts", f"/runs/{RUN}/ledger", f"/runs/{RUN}/paths",
        f"/runs/{RUN}/prompts",
    ]  # fmt: skip
    found = [api.json(path) for path in paths]
    found += [api.json(f"/runs/{RUN}/{kind}", earlier=True) for kind in ("artifacts", "prompts")]
    found += [api.json(f"/runs/{RUN}/ledger", agent_id=agent) for agent in ("sailor", "writer", "")]
    artifacts = found[7]["artifacts"]
    rebuilt = [artifact for artifact in artifacts if artifact["body_sha256"] is None]
    found += [api.json(f"/runs/{RUN}/artifacts/{artifact['artifact_id']}")["body"] for artifact in rebuilt]
    names = {a["artifact_id"]: f"{a['trace_id']}/{a['span_id']}/{a['kind']}" for a in artifacts}
    text = json.dumps(found).replace(project.tenant.project_id, "PROJECT")
    return json.loads(re.sub(r"art_[0-9a-f]{32}", lambda match: names[match[0]], text))


@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(chance=st.randoms(use_true_random=False), batches=st.integers(1, 6))
def test_any_order_any_split_and_sent_twice_gives_the_same_answers(
    told: Project, chance: random.Random, batches: int
) -> None:
    if not hasattr(told, "answers"):
        told.answers = answers_of(told)  # type: ignore[attr-defined]
    spans, logs = story()
    sent: list[Span | LogRecord] = [*spans, *logs]
    sent += chance.sample(sent, len(sent) // 3)
    chance.shuffle(sent)
    project = new_project(told.stores)
    cuts = sorted(chance.randrange(len(sent)) for _ in range(batches - 1))
    for start, end in zip([0, *cuts], [*cuts, len(sent)], strict=True):
        batch = sent[start:end]
        project.store([s for s in batch if isinstance(s, Span)], [r for r in batch if isinstance(r, LogRecord)])
    assert answers_of(project) == told.answers  # type: ignore[attr-defined]


def test_the_story_is_what_the_answers_are_about(told: Project) -> None:
    api = told.api()
    run = api.json(f"/runs/{RUN}")
    assert (run["name"], run["status"], run["agents"]) == ("harbour", "complete", ["sailor", "writer"])
    assert run["usage"]["input_tokens"] == 207
    assert run["counts"] == {"flow_run": 1, "provider_call": 4, "step": 4, "tool_invocation": 7}
    timeline = api.json(f"/runs/{RUN}/timeline")
    assert timeline["count"] == run["span_count"] == len({(s.trace_id, s.span_id) for s in story()[0]})
    assert [log["event_name"] for log in timeline["logs"]] == ["app.note"]
    stray = next(span for span in timeline["spans"] if span["name"] == "execute_tool stray")
    assert stray["parent_span_id"] == timeline["spans"][0]["span_id"]  # under the root
    paths = {(p["agent_id"], p["pass_seq"]): p["path"] for p in api.json(f"/runs/{RUN}/paths")["paths"]}
    assert paths[("sailor", 1)] == "tide -> page"
    assert [line for line in api.json(f"/runs/{RUN}/ledger")["lines"] if "quiet" in line] == [
        '- quiet({"a":1}) -> said in a log'
    ]


# --------------------------------------------------------------------------------------------------------------- lists


def pages(api: Api, path: str, name: str, **params: Any) -> Iterator[list[Any]]:
    cursor = None
    for _ in range(100):
        page = api.json(path, cursor=cursor, **params)
        assert page["count"] == len(page[name])
        yield page[name]
        cursor = page["next_cursor"]
        if cursor is None:
            return
    raise AssertionError("paging never ends")


@pytest.fixture(scope="module")
def many(stores: Stores) -> Project:
    """Seven runs, some starting together; one has an early part without any role."""
    project = new_project(stores)
    spans: list[Span] = []
    for n, start in enumerate((5, 3, 3, 9, 1, 7, 7)):
        trace = Trace(f"many {n}", run_id=f"run-{n}")
        own = {"session__id": f"c{n % 2}", "blackboard__use_case__id": f"u{n % 3}"}
        trace.flow(f"flow {n}", start, error="gave up" if n == 2 else None, **own)
        trace.step(f"agent-{n % 2}", start, parent=trace.spans[0])
        if n == 3:
            trace.spans[0].end_ns = 0
        spans += trace.spans
    early = Trace("early part", run_id="run-0")
    early.span("GET /health", 0)
    noise = Trace("noise")
    noise.span("GET /health", 50)
    project.store([*spans, *early.spans, *noise.spans])
    return project


class TestRunList:
    def test_newest_first_by_start_then_id(self, many: Project) -> None:
        found = many.api().json("/runs", total=True)
        order = [run["run_id"] for run in found["runs"]]
        assert order == ["run-3", "run-6", "run-5", "run-2", "run-1", "run-4", "run-0"]
        assert (found["count"], found["total"], found["next_cursor"]) == (7, 7, None)

    @pytest.mark.parametrize("limit", [1, 2, 3, 7])
    def test_pages_are_the_whole_list(self, many: Project, limit: int) -> None:
        api = many.api()
        whole = api.json("/runs")["runs"]
        assert [run for page in pages(api, "/runs", "runs", limit=limit) for run in page] == whole

    def test_filters(self, many: Project) -> None:
        api = many.api(clock_ns=None)

        def ids(**filters: Any) -> list[str]:
            found = api.json("/runs", total=True, **filters)
            assert found["total"] == found["count"]
            return sorted(run["run_id"][-1] for run in found["runs"])

        assert ids(status="failed") == ["2"]
        assert ids(status="running") == ["3"]
        assert ids(status="complete") == ["0", "1", "4", "5", "6"]
        assert ids(agent_id="agent-1") == ["1", "3", "5"]
        assert ids(use_case_id="u2") == ["2", "5"]
        assert ids(conversation_id="c0") == ["0", "2", "4", "6"]
        assert ids(q="FLOW 4") == ["4"]
        assert ids(q="run-5") == ["5"]
        assert ids(q=Trace("many 6").trace_id) == ["6"]
        start, end = (f"2026-09-21T14:13:{20 + s:02d}Z" for s in (3, 7))
        assert ids(**{"from": start}) == ["1", "2", "3", "5", "6"]
        assert ids(to=end) == ["0", "1", "2", "4"]
        assert ids(**{"from": start, "to": end}) == ["1", "2"]
        assert ids(conversation_id="c0", agent_id="agent-1") == []
        assert ids(q="%") == ids(q="' OR ''='") == ids(agent_id="agent-") == []

    def test_filter_and_answer_agree_on_interrupted(self, many: Project) -> None:
        api = many.api(clock_ns=2**62)
        assert [run["status"] for run in api.json("/runs", status="interrupted")["runs"]] == ["interrupted"]
        assert api.json("/runs", status="running")["runs"] == []

    @pytest.mark.parametrize(
        "moment", ["9999-12-31T23:59:59Z", "2600-01-01T00:00:00Z", "1969-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00"]
    )
    def test_times_far_away_are_no_error(self, many: Project, moment: str) -> None:
        api = many.api()
        late = moment > "2100"
        assert api.json("/runs", **{"from": moment})["count"] == (0 if late else 7)
        assert api.json("/runs", to=moment)["count"] == (7 if late else 0)


class TestPagesInsideARun:
    @pytest.mark.parametrize("limit", [2, 1000])
    @pytest.mark.parametrize(("route", "name"), [("timeline", "spans"), ("artifacts", "artifacts")])
    def test_pages_are_the_whole_list(self, told: Project, route: str, name: str, limit: int) -> None:
        api = told.api()
        whole = api.json(f"/runs/{RUN}/{route}", limit=1000)[name]
        assert [row for page in pages(api, f"/runs/{RUN}/{route}", name, limit=limit) for row in page] == whole
        assert len(whole) > 5

    def test_pages_end_where_two_artifacts_share_an_id(self, told: Project) -> None:
        """With earlier attempts shown, all attempts of one place have one id (ART-09)."""
        api = told.api()
        params = {"earlier": True, "kind": "tool_result", "step_id": "search", "pass_seq": 1}
        whole = api.json(f"/runs/{RUN}/artifacts", **params)["artifacts"]
        paged = [row for page in pages(api, f"/runs/{RUN}/artifacts", "artifacts", limit=1, **params) for row in page]
        assert paged == whole and len(whole) == 4

    def test_each_level_of_the_timeline_leads_to_the_next(self, told: Project) -> None:
        api = told.api()
        levels = [""]
        seen: list[str] = []
        while levels:
            spans = [
                s for page in pages(api, f"/runs/{RUN}/timeline", "spans", parent=levels.pop(), limit=3) for s in page
            ]
            seen += [span["span_id"] for span in spans]
            levels += [span["span_id"] for span in spans]
        whole = [span["span_id"] for span in api.json(f"/runs/{RUN}/timeline", limit=1000)["spans"]]
        assert sorted(seen) == sorted(whole)

    def test_artifact_filters(self, told: Project) -> None:
        api = told.api()
        whole = api.json(f"/runs/{RUN}/artifacts")["artifacts"]
        for filters in (
            {"kind": "tool_result"}, {"kind": ["tool_result", "llm_prompt"]}, {"step_id": "search"}, {"agent_id": "writer"},
            {"pass_seq": 2}, {"step_id": "search", "pass_seq": 1, "kind": "agent_output"}, {"agent_id": ""},
            {"kind": "trajectory"}, {"step_id": "nothing"},
        ):  # fmt: skip
            expected = [
                row for row in whole
                if all(row[key] in (value if isinstance(value, list) else [value]) for key, value in filters.items())
            ]  # fmt: skip
            assert api.json(f"/runs/{RUN}/artifacts", **filters)["artifacts"] == expected, filters

    def test_a_listing_never_holds_a_body(self, told: Project) -> None:
        assert all("body" not in row for row in told.api().json(f"/runs/{RUN}/artifacts", earlier=True)["artifacts"])

    def test_no_row_is_lost_when_others_go_between_two_pages(self, embedded_project: Project) -> None:
        trace = Trace(run_id=RUN)
        step = trace.step("a", 1, 9, **stamps("s", 1, 1))
        for call in (1, 2, 3):
            trace.tool(f"t{call}", call, parent=step, result="x", **stamps("s", 1, 1, call))
        embedded_project.store(trace.spans)
        api = embedded_project.api()
        first = api.json(f"/runs/{RUN}/artifacts", kind="tool_result", limit=1)
        retry = trace.step("a", 20, 29, **stamps("s", 1, 2))
        embedded_project.store([retry, trace.tool("t1", 21, parent=retry, result="y")])
        rest = api.json(f"/runs/{RUN}/artifacts", kind="tool_result", cursor=first["next_cursor"])
        assert [row["label"] for row in rest["artifacts"]][-2:] == ["t2", "t3"]


class TestSpanDetail:
    def test_everything_that_arrived_is_shown(self, told: Project) -> None:
        span = next(span for span in story()[0] if span.name == "execute_tool tide")
        found = told.api().json(f"/runs/{RUN}/spans/{span.span_id}")
        assert found["attributes"] == span.attributes
        assert found["start_time_unix_nano"] == str(span.start_ns)
        assert (found["trace_id"], found["parent_span_id"], found["name"]) == (
            span.trace_id,
            span.parent_span_id,
            span.name,
        )

    def test_a_span_of_another_run_is_not_found(self, embedded_project: Project) -> None:
        trace = Trace()
        one = trace.flow("one", 0, blackboard__run__id="r1")
        other = trace.flow("two", 1, parent=one, blackboard__run__id="r2", secret="of r2")
        embedded_project.store(trace.spans)
        api = embedded_project.api()
        assert api.get(f"/runs/r2/spans/{other.span_id}").status_code == 200
        assert api.get(f"/runs/r1/spans/{other.span_id}").status_code == 404


class TestMovedRuns:
    def test_the_id_of_a_joined_trace_answers_307_to_its_run(self, project: Project, api: Api) -> None:
        trace = Trace(run_id=RUN)
        trace.tool("look", 1, result="x")
        project.store(trace.spans)
        for rest in (
            "",
            "/artifacts",
            "/timeline",
            "/ledger",
            "/paths",
            "/prompts",
            f"/spans/{trace.spans[0].span_id}",
        ):
            answer = api.get(f"/runs/run_{trace.trace_id}{rest}", kind="tool_result")
            assert answer.status_code == 307
            location = answer.headers["location"]
            assert re.sub("^http://[^/]+", "", location).startswith(f"/api/v1/runs/{RUN}{rest}?")
            assert f"project_id={api.project_id}" in location and "kind=tool_result" in location
            assert api.client.get(location).status_code == 200

    def test_the_id_of_a_trace_with_several_runs_is_404(self, embedded_project: Project) -> None:
        trace = Trace()
        trace.flow("one", 0, blackboard__run__id="r1")
        trace.flow("two", 1, blackboard__run__id="r2")
        embedded_project.store(trace.spans)
        assert embedded_project.api().get(f"/runs/run_{trace.trace_id}").status_code == 404

    def test_a_run_that_still_holds_its_own_id_is_found(self, embedded_project: Project) -> None:
        trace = Trace()
        root = trace.flow("one", 0)
        trace.flow("two", 1, parent=root, blackboard__run__id="r1")
        trace.flow("three", 2, parent=root, blackboard__run__id="r2")
        embedded_project.store(trace.spans)
        api = embedded_project.api()
        assert api.json(f"/runs/run_{trace.trace_id}")["name"] == "one"
        assert [span["name"] for span in api.json("/runs/r1/timeline", parent="")["spans"]] == ["two"]


# -------------------------------------------------------------------------------------------------------------- errors


def is_problem(response: Any, name: str) -> bool:
    kind = problems.KINDS[name]
    body = response.json()
    assert response.headers["content-type"] == "application/problem+json"
    assert (response.status_code, body["status"]) == (kind.status, kind.status), body
    assert (body["type"], body["title"]) == (problems.PREFIX + name, kind.title)
    return True


BAD_CURSORS = ("x", "é", "W10", "eyJhIjoxfQ", "WzEsMl0", "bnVsbA", "====", "WyJhIiwxXQ", "\x00", "W1tbW1s")


class TestErrors:
    def test_missing_and_wrong_parameters_are_422(self, told_here: Project) -> None:
        api = told_here.api()
        routes = [
            "/runs",
            *(f"/runs/{RUN}{rest}" for rest in ("", "/timeline", "/artifacts", "/ledger", "/paths", "/prompts")),
        ]
        for path in routes:
            for project_id in (None, "", "p" * 257):
                assert is_problem(api.get(path, project_id=project_id), "invalid-request")
        for path, wrong in (
            ("/runs", {"limit": 0}), ("/runs", {"limit": 1001}), ("/runs", {"status": "lost"}), ("/runs", {"from": "soon"}),
            ("/runs", {"to": "2026-13-01T00:00:00Z"}), ("/runs", {"from": "2026-01-01T25:00:00Z"}), ("/runs", {"limit": "ten"}),
            (f"/runs/{RUN}/artifacts", {"kind": "publication"}), (f"/runs/{RUN}/artifacts", {"kind": ["tool_result", ""]}),
            (f"/runs/{RUN}/artifacts", {"pass_seq": "first"}), (f"/runs/{RUN}/artifacts", {"limit": 1001}),
            ("/search", {}), ("/search", {"q": ""}),
        ):  # fmt: skip
            assert is_problem(api.get(path, **wrong), "invalid-request"), (path, wrong)

    def test_a_wrong_parameter_goes_before_a_missing_run(self, told_here: Project) -> None:
        assert is_problem(told_here.api().get("/runs/none/artifacts", kind="x"), "invalid-request")

    def test_what_is_sent_wrong_is_not_repeated(self, told_here: Project) -> None:
        response = told_here.api().get("/runs", limit="bbk_a-secret-in-the-wrong-place")
        assert "bbk_" not in response.text

    @pytest.mark.parametrize("route", ["/runs", f"/runs/{RUN}/timeline", f"/runs/{RUN}/artifacts"])
    def test_a_cursor_that_is_none_of_the_route_is_422(self, told_here: Project, route: str) -> None:
        from otel_blackboard.query.api import encode_cursor

        api = told_here.api()
        made = [
            encode_cursor(*values) for values in ([-1, "r"], [2**63, 5], ["a", "b", "c"], [True, "r"], [1.5, "r"], [])
        ]
        for cursor in (*BAD_CURSORS, *made):
            assert is_problem(api.get(route, cursor=cursor), "invalid-request"), cursor
        others = {"/runs": 1, f"/runs/{RUN}/timeline": 1, f"/runs/{RUN}/artifacts": 1}
        for other in others:
            cursor = api.json(other, limit=1)["next_cursor"]
            if other != route and cursor is not None:
                assert is_problem(api.get(route, cursor=cursor), "invalid-request")

    def test_nothing_else_than_the_methods_of_a_route(self, told_here: Project) -> None:
        api = told_here.api()
        for path in (
            "/runs",
            f"/runs/{RUN}",
            f"/runs/{RUN}/artifacts",
            f"/runs/{RUN}/artifacts/art_x",
            f"/runs/{RUN}/ledger",
        ):
            for method in ("POST", "PUT", "PATCH"):
                response = api.request(method, path, json={})
                assert is_problem(response, "method-not-allowed")
                assert "GET" in response.headers["allow"]
        assert is_problem(api.request("DELETE", f"/runs/{RUN}/artifacts"), "method-not-allowed")
        assert is_problem(api.request("GET", "/recall"), "method-not-allowed")

    @pytest.mark.parametrize("path", ["/api/v1/recall", "/api/v1/runs/r1/tokens"])
    def test_a_question_of_any_size_is_refused_before_it_is_read(self, told_here: Project, path: str) -> None:
        client = told_here.api().client
        params = {"project_id": told_here.tenant.project_id}
        large = client.post(path, params=params, content=b"x" * 2_000_000)
        endless = client.post(path, params=params, content=iter([b"x"] * 10))
        assert [is_problem(large, "too-large"), is_problem(endless, "too-large")] == [True, True]

    def test_an_unforeseen_error_is_a_problem_without_its_text(
        self, told_here: Project, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        sent = "what was sent"

        def fail(*_: Any) -> Any:
            raise KeyError(sent)

        monkeypatch.setattr(Reader, "parts_of_run", fail)
        client = TestClient(told_here.api().client.app, raise_server_exceptions=False)
        answer = client.get("/api/v1/runs/r1", params={"project_id": told_here.tenant.project_id})
        assert is_problem(answer, "internal")
        assert sent not in answer.text + caplog.text

    def test_absent_things_are_404(self, told_here: Project) -> None:
        api = told_here.api()
        for path in (
            "/nothing", "/runs/none", "/runs/none/ledger", f"/runs/{RUN}/artifacts/art_{'0' * 32}",
            f"/runs/{RUN}/spans/" + "0" * 16, "/runs/run_" + "0" * 32, f"/runs/{RUN}/artifacts/art_{'0' * 32}/raw",
        ):  # fmt: skip
            assert is_problem(api.get(path), "not-found"), path

    def test_odd_ids_are_absent_like_any_other(self, told_here: Project) -> None:
        api = told_here.api()
        for odd in (
            "%00", "%27", "%22", "%5C", "%0A", "%09", "a%20b", "%C3%A9", "%7Bx:String%7D", "%25s", "r1%00", "r1%27--",
            "x" * 5000, "%F0%9F%98%80",
        ):  # fmt: skip
            for path in (f"/runs/{odd}", f"/runs/{RUN}/artifacts/{odd}", f"/runs/{RUN}/spans/{odd}"):
                response = api.client.get(f"/api/v1{path}", params={"project_id": api.project_id})
                assert is_problem(response, "not-found"), path
            text = unquote(odd)[:200]
            response = api.client.get(f"/api/v1/runs/{RUN}", params={"project_id": text})
            assert is_problem(response, "not-found"), odd
            for name in ("agent_id", "q", "use_case_id", "conversation_id"):
                assert api.json("/runs", **{name: text})["count"] == 0, odd

    def test_store_failures_are_503_with_a_hint_and_no_details(
        self, told_here: Project, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from clickhouse_connect.driver.exceptions import OperationalError

        from otel_blackboard.exporter.reader import Reader

        def fail(*_: Any) -> Any:
            raise OperationalError("password=hunter2 refused")

        monkeypatch.setattr(Reader, "parts_of_run", fail)
        response = told_here.api().get(f"/runs/{RUN}")
        assert is_problem(response, "store-unavailable")
        assert "hunter2" not in response.text and response.headers["retry-after"]

    def test_a_body_that_is_gone_is_410(self, told_here: Project, monkeypatch: pytest.MonkeyPatch) -> None:
        from otel_blackboard.exporter.bodies import BodyMissing
        from otel_blackboard.exporter.reader import Reader

        def gone(*_: Any) -> Any:
            raise BodyMissing("default/default/tool_result/x.pack")

        api = told_here.api()
        row = api.json(f"/runs/{RUN}/artifacts", kind="tool_result")["artifacts"][0]
        monkeypatch.setattr(Reader, "bodies", gone)
        for rest in ("", "/raw"):
            response = api.get(f"/runs/{RUN}/artifacts/{row['artifact_id']}{rest}")
            assert is_problem(response, "body-gone")
            assert ".pack" not in response.text
        assert api.get(f"/runs/{RUN}/artifacts").status_code == 200

    def test_health(self, told_here: Project) -> None:
        assert told_here.api().client.get("/healthz").json() == {"status": "ok"}
        assert told_here.api().client.get("/readyz").json() == {"status": "ok"}
        app = make_api(told_here.stores.reader, told_here.stores.settings, None, lambda: "closing down")
        assert is_problem(TestClient(app).get("/readyz"), "store-unavailable")


# ------------------------------------------------------------------------------------------------------------- tenancy


def test_equal_ids_in_two_projects_and_organizations_never_meet(project: Project, api: Api) -> None:
    ours, theirs = Trace("same", run_id=RUN), Trace("same", run_id=RUN)
    for trace, text in ((ours, "ours"), (theirs, "theirs")):
        trace.tool("look", 1, parent=trace.agent(text, 0, 9), arguments={"of": text}, result=text)
    project.store(ours.spans)
    neighbour = project.another()
    neighbour.store(theirs.spans)
    abroad = Project(project.stores, Tenant("other-organization", project.tenant.project_id))
    abroad.store(theirs.spans)
    for path in ("", "/timeline", "/artifacts", "/ledger", "/paths", "/prompts", f"/spans/{ours.spans[0].span_id}"):
        assert "theirs" not in api.get(f"/runs/{RUN}{path}").text, path
        assert "ours" not in neighbour.api().get(f"/runs/{RUN}{path}").text, path
        assert "ours" not in api.get(f"/runs/{RUN}{path}", organization_id="other-organization").text, path
    assert api.json(f"/runs/{RUN}")["agents"] == ["ours"]
    (row,) = api.json(f"/runs/{RUN}/artifacts", kind="tool_result")["artifacts"]
    assert neighbour.api().get(f"/runs/{RUN}/artifacts/{row['artifact_id']}").status_code == 404
    assert [r["summary"] for r in api.json("/search", q="ours")["results"]] == ["ours"]
    assert api.json("/search", q="theirs")["results"] == []
    assert api.recall(api.token(RUN), {"query": "theirs"}) == []


class Untouchable:
    """A reader that nothing may be asked: whoever is refused is refused before any look-up."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"looked up: {name}")


ROLES = (*PERMISSIONS, "stranger")
OPEN = {"/api/v1/recall"}
"""Routes that no key opens: recall takes a run token."""


def guarded(keys: Any) -> FastAPI:
    reader: Any = Untouchable()
    return make_api(reader, Settings(token_secret=SecretStr("s" * 32)), keys, lambda: "")


def all_routes(app: FastAPI) -> list[Any]:
    found, waiting = [], list(app.routes)
    while waiting:
        route = waiting.pop(0)
        router = getattr(route, "original_router", None)  # how newer versions of FastAPI keep an included router
        waiting += router.routes if router is not None else []
        found += [route] if router is None else []
    return found


def routes_of(app: FastAPI) -> list[APIRoute]:
    found = [route for route in all_routes(app) if isinstance(route, APIRoute) and route.path.startswith("/api/v1")]
    assert len(found) >= 10
    return found


def permission_of(route: APIRoute) -> str | None:
    """What the route's one authorizing dependency asks for."""
    waiting, found = list(route.dependant.dependencies), set()
    while waiting:
        dependency = waiting.pop()
        found |= {permission for permission in [getattr(dependency.call, "permission", None)] if permission}
        waiting += dependency.dependencies
    assert len(found) <= 1
    return next(iter(found), None)


class TestAuthorization:
    keys = key_ring(*(Credential(role, "acme", ("p1", "p2"), role) for role in ROLES))

    def ask(self, app: FastAPI, route: APIRoute, key: str | None, content: bytes = b"{}", **params: str) -> list[Any]:
        client = TestClient(app, raise_server_exceptions=False, follow_redirects=False)
        path = re.sub(r"\{(\w+)(:\w+)?\}", r"x\1", route.path)
        headers = {"Content-Type": "application/json"} | ({} if key is None else {"Authorization": f"Bearer {key}"})
        wanted = {"project_id": "p1", "q": "word"} | params
        return [
            client.request(method, path, params=wanted, headers=headers, content=content)
            for method in sorted(route.methods - {"HEAD"})
        ]

    def test_every_route_of_the_table_is_authorized_by_role_before_any_look_up(self) -> None:
        app = guarded(self.keys)
        for route in routes_of(app):
            if route.path in OPEN:
                assert permission_of(route) is None
                continue
            permission = permission_of(route)
            assert permission is not None, f"{route.path} is authorized by nothing"
            assert (permission == "read") == (route.methods <= {"GET", "HEAD"}), route.path
            for key in (None, "", "unknown", "READER"):
                for response in self.ask(app, route, key):
                    assert is_problem(response, "unauthenticated"), route.path
                    assert response.headers["www-authenticate"] == "Bearer"
            for role in ROLES:
                for response in self.ask(app, route, role):
                    if allows(role, permission):
                        assert response.status_code not in (401, 403), (route.path, role)
                    else:
                        assert is_problem(response, "forbidden"), (route.path, role)

    def test_who_asks_is_decided_before_what_is_asked(self) -> None:
        app = guarded(self.keys)
        for route in routes_of(app):
            if route.path in OPEN:
                continue
            refused = next(role for role in ROLES if not allows(role, str(permission_of(route))))
            for content in (b"{", b"\xff", b"[]"):
                for params in (
                    {"project_id": ""},
                    {"project_id": "foreign"},
                    {"organization_id": "foreign"},
                    {"limit": "x"},
                ):
                    for response in self.ask(app, route, None, content, **params):
                        assert is_problem(response, "unauthenticated"), (route.path, content)
                    for response in self.ask(app, route, refused, content, **params):
                        assert is_problem(response, "forbidden"), (route.path, content)

    def test_a_foreign_project_is_answered_before_any_look_up(self) -> None:
        app = guarded(self.keys)
        for route in routes_of(app):
            if route.path in OPEN:
                continue
            for params in ({"project_id": "p3"}, {"project_id": "p1", "organization_id": "globex"}):
                for response in self.ask(app, route, "admin", **params):
                    assert is_problem(response, "not-found"), route.path
                    assert response.json() == problems.document("not-found")

    def test_no_route_of_the_application_is_forgotten(self) -> None:
        app = guarded(self.keys)
        known = {"/healthz", "/readyz", "/", "/api/openapi.json", "/docs/oauth2-redirect"}
        others = {getattr(route, "path", "") for route in all_routes(app)} - {route.path for route in routes_of(app)}
        assert {path for path in others if not path.startswith(("/api/static", "/api/docs"))} <= known


def test_what_is_foreign_is_answered_like_what_does_not_exist(project: Project) -> None:
    theirs = project.another()
    spans, logs = story()
    theirs.store(spans, logs)
    mine = Trace("mine", run_id="mine")
    mine.tool("look", 1, result="x")
    project.store(mine.spans)
    foreign_artifact = theirs.api().json(f"/runs/{RUN}/artifacts")["artifacts"][0]["artifact_id"]
    keys = key_ring(Credential("me", "default", (project.tenant.project_id,), "reader"))
    api = project.api(keys, "me")
    their_project = theirs.tenant.project_id
    twins = [
        (f"/runs/{RUN}", "/runs/none", {}),
        (f"/runs/{RUN}/artifacts", "/runs/none/artifacts", {}),
        (f"/runs/{RUN}/timeline", "/runs/none/timeline", {}),
        (f"/runs/{RUN}/ledger", "/runs/none/ledger", {}),
        (f"/runs/{RUN}/paths", "/runs/none/paths", {}),
        (f"/runs/{RUN}/prompts", "/runs/none/prompts", {}),
        (f"/runs/{RUN}/spans/{spans[0].span_id}", "/runs/none/spans/none", {}),
        (f"/runs/{RUN}/artifacts/{foreign_artifact}", "/runs/none/artifacts/none", {}),
        (f"/runs/run_{spans[0].trace_id}", "/runs/run_" + "0" * 32, {}),
        (f"/runs/mine/artifacts/{foreign_artifact}", "/runs/mine/artifacts/none", {}),
        (f"/runs/mine/artifacts/{foreign_artifact}/raw", "/runs/mine/artifacts/none/raw", {}),
        (f"/runs/mine/spans/{spans[0].span_id}", "/runs/mine/spans/none", {}),
        (f"/runs/{RUN}", "/runs/none", {"project_id": their_project}),
        ("/runs", "/runs/none", {"project_id": their_project}),
        ("/runs", "/runs/none", {"project_id": "no-such-project"}),
        (f"/runs/{RUN}", "/runs/none", {"organization_id": "no-such-organization"}),
    ]
    for foreign, absent, params in twins:
        one, other = api.get(foreign, **params), api.get(absent, **params)
        assert is_problem(one, "not-found"), foreign
        assert (one.content, dict(one.headers)) == (other.content, dict(other.headers)), foreign
    assert api.json("/runs")["count"] == 1


# ------------------------------------------------------------------------------------------------------------- tokens


class TestTokens:
    def test_a_token_names_run_and_expiry_and_lives_no_longer_than_allowed(self, embedded_project: Project) -> None:
        api = embedded_project.api(clock_ns=at(0), token_lifetime=100)
        for asked, lives in ((None, 100), (60, 60), (1000, 100)):
            answer = api.request("POST", "/runs/new-run/tokens", json={"lifetime_seconds": asked} if asked else {})
            assert answer.json()["run_id"] == "new-run"
            assert answer.json()["expires_at"] == rfc3339(at(lives))

    def test_wrong_requests_are_422(self, embedded_project: Project) -> None:
        api = embedded_project.api()
        for body in ({"capabilities": ["everything"]}, {"lifetime_seconds": 0}, {"lifetime_seconds": -5}, {"run_id": "r2"},
                     {"agent_id": "x" * 1025}, [], "x", None):  # fmt: skip
            assert is_problem(api.request("POST", "/runs/r1/tokens", json=body), "invalid-request"), body
        for run_id in ("a%20b", "%C3%A9", "x" * 129):
            assert is_problem(api.request("POST", f"/runs/{run_id}/tokens", json={}), "invalid-request")


# ------------------------------------------------------------------------------------------------------------- OpenAPI


class TestDescription:
    def test_every_route_shows_an_example_of_its_answer_its_body_and_its_problems(self) -> None:
        description = guarded(None).openapi()
        schemas = description["components"]["schemas"]

        def has_example(content: dict[str, Any]) -> bool:
            if "example" in content or "examples" in content:
                return True
            reference = content.get("schema", {}).get("$ref", "")
            return bool(schemas.get(reference.rsplit("/", 1)[-1], {}).get("examples"))

        for path, operations in description["paths"].items():
            for method, operation in operations.items():
                where = f"{method} {path}"
                assert operation.get("summary") and operation.get("description"), where
                for status, response in operation["responses"].items():
                    if status == "307":
                        assert "Location" in response["headers"] and "content" not in response, where
                        continue
                    assert response["content"], f"{where} {status}"
                    for kind, content in response["content"].items():
                        assert has_example(content), f"{where} {status} {kind}"
                        if int(status) >= 400:
                            assert kind == problems.MEDIA_TYPE, f"{where} {status}"
                for content in operation.get("requestBody", {}).get("content", {}).values():
                    assert has_example(content), where
                if path.startswith("/api/v1") and path not in OPEN:
                    required = {p["name"] for p in operation["parameters"] if p["required"]}
                    assert "project_id" in required, where

    def test_every_example_is_a_valid_answer(self) -> None:
        for route in all_routes(guarded(None)):
            model = getattr(route, "response_model", None)
            if isinstance(model, type) and issubclass(model, BaseModel):
                for example in model.model_config["json_schema_extra"]["examples"]:
                    model.model_validate(example)

    def test_every_real_answer_validates_against_its_model(self, told_here: Project) -> None:
        app = make_api(told_here.stores.reader, told_here.stores.settings, None, lambda: "")
        api = Api(TestClient(app), told_here.tenant.project_id)
        span = story()[0][0].span_id
        artifacts = [row["artifact_id"] for row in api.json(f"/runs/{RUN}/artifacts", earlier=True)["artifacts"]]
        asked = set()
        for route in routes_of(app):
            if "GET" not in route.methods or route.response_model is None:
                continue
            path = route.path.removeprefix("/api/v1").replace("{run_id}", RUN).replace("{span_id}", span)
            for artifact_id in artifacts if "{artifact_id}" in path else [""]:
                filled = path.replace("{artifact_id}", artifact_id)
                response = api.get(filled, q="tides" if path == "/search" else None)
                assert response.status_code == 200, filled
                shown = response.json()
                assert route.response_model.model_validate(shown).model_dump(mode="json") == shown
                asked.add(route.path)
        assert len(asked) >= 9
        token = api.request("POST", f"/runs/{RUN}/tokens", json={"capabilities": ["query_blackboard"]}).json()
        found = api.recall(token["token"], {"query": "tides"})
        recall = next(route for route in routes_of(app) if route.path == "/api/v1/recall")
        assert found and recall.response_model is not None
        recall.response_model.model_validate({"results": found})


async def test_an_answer_that_comes_after_503_was_due_is_not_begun_as_well() -> None:
    """A thread that waits for a store is not stopped: its answer may come when the request was given up already."""

    async def answers_late(scope: Scope, receive: Receive, send: Send) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(0.05)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"late"})

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)
        await anyio.sleep(0)

    await Patience(answers_late, 0.01)({"type": "http"}, lambda: anyio.sleep_forever(), send)  # type: ignore[arg-type]
    assert [message["status"] for message in sent if message["type"] == "http.response.start"] == [503]
