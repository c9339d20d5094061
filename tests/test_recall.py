"""Recall finds what is in its run, the best first, and never anything of another run, whatever the model sends."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_blackboard.exporter.reader import Reader
from otel_blackboard.processor.drafts import RECALL_TOOL
from otel_blackboard.query.recall import clamp_top_k, words_of
from tests.conftest import Api, Project
from tests.spans import DETAILS, Trace, at, stamps

SECRET_OF_OTHERS = "zanzibar"
"""Stands in every run but the caller's."""


def harbour(run_id: str = "r1", name: str = "harbour") -> Trace:
    trace = Trace(name, run_id=run_id)
    root = trace.flow("main", 0, 99)
    step = trace.step("sailor", 1, 50, root, gen_ai__output__messages="The tide turns in Brest at noon.")
    trace.tool("tide_lookup", 2, 3, step, result='{"summary": "tides of Brest", "high": "06:12"}')
    trace.tool("wind", 4, 5, step, result="south-west, 12 knots, harbour sheltered")
    trace.tool("fetch_page", 6, 7, step, error="404 mooring page not found")
    trace.chat(8, 9, step, prompt="only the prompt says xylophone", said="inside of the pass")
    trace.tool(RECALL_TOOL, 10, 11, step, arguments={"query": "unicorn"}, result="unicorn")
    return trace


QUERIES: list[tuple[str, list[str]]] = [
    ("tide_lookup", ["tide_lookup", "sailor"]), ("wind", ["wind"]), ("KNOTS", ["wind"]), ("06", ["tide_lookup"]),
    ("mooring", ["fetch_page"]), ("noon", ["sailor"]), ("xylophone", []), ("unicorn", []), ("harb", ["wind"]),
    (SECRET_OF_OTHERS, []), ("main -> sailor", ["sailor"]), ("') UNION SELECT * --", []), ("%", []), ("\\", []), ("{}", []),
    ("south-west knots", ["wind"]), ("é" * 2000, []), ("word " * 5000, []), ("\x00\x07", []), ("\u2028", []),
]  # fmt: skip


class TestFinding:
    def test_results_have_the_body_and_their_place(self, project: Project, api: Api) -> None:
        project.store(harbour().spans)
        found = api.recall(api.token("r1"), {"query": "tides"})
        assert [set(result) for result in found] == [
            {"artifact_id", "step_id", "pass_seq", "call_seq", "kind", "label", "summary", "content", "truncated"}
        ] * len(found)
        best = found[0]
        row = api.json(f"/runs/r1/artifacts/{best['artifact_id']}")
        assert (best["label"], best["content"], best["truncated"]) == ("tide_lookup", row["body"], False)
        assert {key: best[key] for key in ("step_id", "pass_seq", "call_seq", "kind", "summary")} == {
            key: row[key] for key in ("step_id", "pass_seq", "call_seq", "kind", "summary")
        }

    def test_queries(self, project: Project, api: Api) -> None:
        project.store(harbour().spans)
        token = api.token("r1")
        for query, labels in QUERIES:
            assert [result["label"] for result in api.recall(token, {"query": query, "top_k": 10})] == labels, query

    def test_all_agents_steps_and_passes_of_the_run_are_searched(self, embedded_project: Project) -> None:
        one, two = Trace("one", run_id="r1"), Trace("two", run_id="r1")
        for trace, agent, seq in ((one, "a", 1), (one, "a", 2), (two, "b", 1)):
            step = trace.step(agent, seq * 10, **stamps("s", seq, 1))
            trace.tool("look", seq * 10, parent=step, result="common word")
        embedded_project.store([*one.spans, *two.spans])
        api = embedded_project.api()
        assert len(api.recall(api.token("r1", "a"), {"query": "common", "top_k": 10})) == 3

    def test_equal_matches_come_newest_first(self, embedded_project: Project) -> None:
        trace = Trace(run_id="r1")
        root = trace.flow("main", 0, 99)
        for start in (3, 1, 2):
            trace.tool("look", start, parent=root, result="the very same")
        embedded_project.store(trace.spans)
        api = embedded_project.api()
        found = api.recall(api.token("r1"), {"query": "same", "top_k": 10})
        rows = {a["artifact_id"]: a["created_at"] for a in api.json("/runs/r1/artifacts")["artifacts"]}
        times = [rows[result["artifact_id"]] for result in found]
        assert times == sorted(times, reverse=True) and len(times) == 3

    def test_more_and_rarer_words_rank_higher(self, embedded_project: Project) -> None:
        trace = Trace(run_id="r1")
        root = trace.flow("main", 0, 99)
        for n in range(8):
            trace.tool("common", 1 + n, parent=root, result=f"the harbour, note {n}")
        trace.tool("rare", 20, parent=root, result="the harbour and the lighthouse")
        embedded_project.store(trace.spans)
        api = embedded_project.api()
        assert api.recall(api.token("r1"), {"query": "harbour lighthouse"})[0]["label"] == "rare"

    def test_content_is_cut_and_says_so(self, embedded_project: Project) -> None:
        trace = Trace(run_id="r1")
        text = "needle " + "é" * 30_000
        trace.tool("look", 1, result=text)
        embedded_project.store(trace.spans)
        for most in (20_000, 10):
            api = embedded_project.api(recall_characters=most)
            (found,) = api.recall(api.token("r1"), {"query": "needle"})
            assert (found["content"], found["truncated"]) == (text[:most], True)

    def test_a_retry_leaves_one_result(self, embedded_project: Project) -> None:
        trace = Trace(run_id="r1")
        for attempt in (1, 2):
            step = trace.step("a", attempt, **stamps("s", 1, attempt))
            trace.tool("look", attempt, parent=step, result=f"needle of {attempt}", **stamps("s", 1, attempt, 1))
        embedded_project.store(trace.spans)
        api = embedded_project.api()
        assert [r["content"] for r in api.recall(api.token("r1"), {"query": "needle"})] == ["needle of 2"]

    def test_a_result_in_a_log_record_is_found_by_its_text_and_by_its_tool(self, embedded_project: Project) -> None:
        trace = Trace(run_id="r1")
        span = trace.tool("almanac", 1)
        trace.log(span, DETAILS, 2, gen_ai__tool__call__result="high water")
        embedded_project.store(trace.spans, trace.logs)
        api = embedded_project.api()
        for query in ("water", "almanac"):
            assert [r["content"] for r in api.recall(api.token("r1"), {"query": query})] == ["high water"]

    def test_results_of_recall_calls_are_not_indexed_wherever_they_came_from(self, embedded_project: Project) -> None:
        trace = Trace(run_id="r1")
        span = trace.tool(RECALL_TOOL, 1, arguments={"query": "x"})
        trace.log(span, DETAILS, 2, gen_ai__tool__call__result="unicorn")
        trace.tool(RECALL_TOOL, 2, result="unicorn", blackboard__tool__class="mcp")
        trace.tool("named_otherwise", 3, result="unicorn", blackboard__tool__class="recall")
        embedded_project.store(trace.spans, trace.logs)
        api = embedded_project.api()
        assert api.recall(api.token("r1"), {"query": "unicorn"}) == []

    def test_an_artifact_is_found_as_soon_as_it_is_stored(self, project: Project, api: Api) -> None:
        trace = Trace(run_id="r1")
        root = trace.flow("main", 0, 99)
        root.end_ns = 0
        token = api.token("r1")  # may precede the first span
        assert api.recall(token, {"query": "needle"}) == []
        project.store([root])
        for n in range(3):
            project.store([trace.tool("look", 1 + n, parent=root, result=f"needle {n}")])
            assert len(api.recall(token, {"query": "needle"})) == n + 1


# ------------------------------------------------------------------------------------------------------------- its run


@pytest.fixture
def crowded(project: Project) -> Project:
    """The caller's run, another run of its project, and runs of the same id elsewhere."""
    project.store(harbour().spans)
    for other, run_id in ((project, "r2"), (project.another(), "r1")):
        trace = Trace(f"of others {run_id}", run_id=run_id)
        trace.tool("look", 1, result=f"{SECRET_OF_OTHERS} harbour")
        other.store(trace.spans)
    return project


HOSTILE: list[Any] = [
    {"run_id": "r2"}, {"run": "r2"}, {"runId": "r2"}, {"project_id": "project-1"}, {"organization_id": "x"},
    {"run_id": ["r1", "r2"], "top_k": 10}, {"run_id": None}, {"run_id": {"$ne": ""}}, {"traces": ["%"]},
    {"run_id": "*"}, {"context": {"run_id": "r2"}}, {"agent_id": "look"}, {"trace_id": "0" * 32}, {"top_k": "all"},
]  # fmt: skip


def test_nothing_in_the_body_leads_out_of_the_run(crowded: Project) -> None:
    api = crowded.api()
    token = api.token("r1")
    plain = api.recall(token, {"query": "harbour"})
    assert plain and all(SECRET_OF_OTHERS not in result["content"] for result in plain)
    for more in HOSTILE:
        assert api.recall(token, {"query": "harbour"} | more) == plain, more
        assert api.recall(token, {"query": SECRET_OF_OTHERS} | more) == [], more
    for headers in ({"x-run-id": "r2"}, {"blackboard-run-id": "r2"}):
        response = api.client.post(
            "/api/v1/recall", params={"run_id": "r2", "project_id": "p"}, json={"query": SECRET_OF_OTHERS},
            headers={"Authorization": f"Bearer {token}"} | headers,
        )  # fmt: skip
        assert response.json() == {"results": []}


UNREADABLE: list[Any] = [
    {}, {"query": None}, {"query": ""}, {"query": " \t\n"}, {"query": 5}, {"query": ["harbour"]}, {"query": {"a": 1}},
    {"query": True}, [], "harbour", None, 5, b"", b"harbour", b"{", b"\xff\xfe", b"[" * 100_000, {"top_k": 5},
    b'{"query": "\\ud800"}', {"Query": "harbour"},
]  # fmt: skip


def test_a_missing_blank_or_unreadable_query_finds_nothing_and_is_no_error(embedded_project: Project) -> None:
    embedded_project.store(harbour().spans)
    api = embedded_project.api()
    token = api.token("r1")
    for body in UNREADABLE:
        assert api.recall(token, body) == [], body


@pytest.mark.parametrize(
    ("sent", "most"),
    [
        (1, 1), (5, 5), (10, 10), (0, 1), (-3, 1), (11, 10), (10**30, 10), (2.9, 2), (1e308, 10), (-1e308, 1), ("3", 3),
        ("many", 5), ("", 5), (None, 5), (True, 5), (False, 5), ([3], 5), ({"n": 3}, 5), (math.nan, 5), ("nan", 5),
        (math.inf, 10), (-math.inf, 1), (10**400, 10), (-(10**400), 1),
    ],
)  # fmt: skip
def test_top_k_is_clamped_and_never_an_error(sent: Any, most: int) -> None:
    assert clamp_top_k(sent) == most


@given(st.one_of(st.integers(), st.floats(), st.text(), st.none(), st.lists(st.integers())))
def test_top_k_is_always_one_to_ten(sent: Any) -> None:
    assert 1 <= clamp_top_k(sent) <= 10


@given(st.text())
def test_words_are_what_the_index_calls_words(query: str) -> None:
    words = words_of(query)
    assert len(words) == len(set(words)) <= 32
    assert all(word == word.lower() or not word.isascii() for word in words)
    assert all(not character.isascii() or character.isalnum() for word in words for character in word)


def test_top_k_bounds_the_results(embedded_project: Project) -> None:
    trace = Trace(run_id="r1")
    root = trace.flow("main", 0, 99)
    for n in range(12):
        trace.tool("look", 1 + n, parent=root, result=f"needle {n}")
    embedded_project.store(trace.spans)
    api = embedded_project.api()
    token = api.token("r1")
    for sent, count in ((None, 5), (0, 1), (-1, 1), (3, 3), (10, 10), (99, 10), ("x", 5), ("7", 7)):
        assert len(api.recall(token, {"query": "needle", "top_k": sent})) == count, sent
    assert len(api.recall(token, {"query": "needle"})) == 5
    for raw, count in ((b"NaN", 5), (b"1e400", 10), (b"1" + b"0" * 400, 10), (b"-1e400", 1)):
        assert len(api.recall(token, b'{"query": "needle", "top_k": ' + raw + b"}")) == count, raw


# --------------------------------------------------------------------------------------------------------------- token


def test_without_a_run_token_it_is_401(embedded_project: Project) -> None:
    embedded_project.store(harbour().spans)
    api = embedded_project.api()
    token = api.token("r1")
    head, claims, signature = token.split(".")
    for header in (
        None, "", "Bearer", "Bearer ", f"Basic {token}", token, f"Bearer {token}x", f"Bearer {head}.{claims}.",
        f"Bearer {head}.{claims}.{signature[::-1]}", "Bearer a.b.c", "Bearer bbk_key",
        "Bearer eyJhbGciOiJub25lIn0.eyJydW4iOiJyMSJ9.",
    ):  # fmt: skip
        headers = {} if header is None else {"Authorization": header}
        response = api.client.post("/api/v1/recall", headers=headers, json={"query": "harbour"})
        assert (response.status_code, response.headers["www-authenticate"]) == (401, "Bearer"), header
        assert response.json()["type"] == "urn:otel-blackboard:problem:unauthenticated"
    assert api.recall(token, {"query": "harbour"})


def test_a_token_expires(embedded_project: Project) -> None:
    embedded_project.store(harbour().spans)
    now = at(0)
    token = embedded_project.api(clock_ns=now, token_lifetime=60).token("r1")
    before, after = (embedded_project.api(clock_ns=now + s * 10**9) for s in (59, 60))
    assert before.recall(token, {"query": "harbour"})
    headers = {"Authorization": f"Bearer {token}"}
    assert after.client.post("/api/v1/recall", headers=headers, json={"query": "harbour"}).status_code == 401


def test_a_token_of_another_deployment_is_401(embedded_project: Project) -> None:
    from pydantic import SecretStr

    token = embedded_project.api(token_secret=SecretStr("another secret of at least 32 bytes")).token("r1")
    response = embedded_project.api().client.post(
        "/api/v1/recall", headers={"Authorization": f"Bearer {token}"}, json={}
    )
    assert response.status_code == 401


def test_it_needs_the_capability_and_the_deployments_switch(embedded_project: Project) -> None:
    embedded_project.store(harbour().spans)
    api = embedded_project.api()
    assert api.recall(api.token("r1", capabilities=()), {"query": "harbour"}) == []
    off = embedded_project.api(retrieval=False)
    assert off.recall(off.token("r1"), {"query": "harbour"}) == []


def test_a_run_that_has_moved_is_followed(project: Project, api: Api) -> None:
    trace = harbour()
    project.store(trace.spans)
    assert api.recall(api.token(f"run_{trace.trace_id}"), {"query": "harbour"}) == api.recall(
        api.token("r1"), {"query": "harbour"}
    )
    assert api.recall(api.token("run_" + "0" * 32), {"query": "harbour"}) == []


def test_a_failing_store_gives_nothing_and_no_error(embedded_project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    embedded_project.store(harbour().spans)
    api = embedded_project.api()
    token = api.token("r1")

    def fail(*_: Any) -> Any:
        raise OSError("disk on fire")

    for name in ("search_run", "bodies", "places_of_run"):
        with monkeypatch.context() as patch:
            patch.setattr(Reader, name, fail)
            assert api.recall(token, {"query": "harbour"}) == []
    assert json.dumps(api.recall(token, {"query": "harbour"})) != "[]"
