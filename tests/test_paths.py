"""The tool path of a pass: which tools, in which order, as one line."""

from __future__ import annotations

from typing import Any

import pytest

from otel_blackboard.processor.drafts import RECALL_TOOL
from otel_blackboard.processor.numbers import tool_path
from otel_blackboard.records import Resolved
from tests.conftest import Project
from tests.spans import Trace, board_of, listed, stamps


def calls(*names: str) -> list[Resolved]:
    return [Resolved("t", str(place), role="tool_invocation", tool_name=name) for place, name in enumerate(names)]


@pytest.mark.parametrize(
    ("names", "path"),
    [
        ("", ""),
        ("a", "a"),
        ("a a", "a x2"),
        ("a b a", "a -> b -> a"),
        ("web_search fetch_page fetch_page fetch_page query_table web_search",
         "web_search -> fetch_page x3 -> query_table -> web_search"),
        ("a a b b a", "a x2 -> b x2 -> a"),
    ],
)  # fmt: skip
def test_only_neighbours_collapse(names: str, path: str) -> None:
    assert tool_path(calls(*names.split())) == path


def test_model_calls_are_no_part_of_the_path_and_do_not_part_neighbours() -> None:
    model = Resolved("t", "m", role="provider_call", model="gpt")
    one, two = calls("a", "a")
    assert tool_path([model, one, model, two]) == "a x2"


def test_failed_and_recall_calls_are_part_of_the_path() -> None:
    trace = Trace()
    root = trace.agent("a", 0, 99)
    trace.tool("look", 1, parent=root, error="boom")
    trace.tool(RECALL_TOOL, 2, parent=root)
    assert [artifact.text for artifact in listed(board_of(trace.spans), "tool_path")] == [f"look -> {RECALL_TOOL}"]


def test_parallel_calls_stand_in_the_order_of_the_answer() -> None:
    trace = Trace()
    root = trace.agent("a", 0, 99)
    trace.chat(1, 2, root, asks=[("c1", "first", {}), ("c2", "second", {})])
    trace.tool("second", 3.0, 9, root, call_id="c2")
    trace.tool("first", 3.1, 9, root, call_id="c1")
    assert listed(board_of(trace.spans), "tool_path")[0].text == "first -> second"


def test_a_pass_without_tool_calls_has_no_path() -> None:
    trace = Trace()
    trace.chat(1, 2, trace.agent("a", 0, 9))
    assert listed(board_of(trace.spans), "tool_path") == []


def passes() -> Trace:
    """Pass 1 twice (the second attempt by other tools), pass 2, and another agent's pass."""
    trace = Trace(run_id="r1")
    root = trace.flow("main", 0, 99)
    for start, seq, attempt, tools in ((1, 1, 1, "a b"), (10, 1, 2, "a a"), (20, 2, 1, "c")):
        step = trace.step("x", start, start + 8, root, **stamps("s", seq, attempt))
        for place, name in enumerate(tools.split()):
            trace.tool(name, start + 1 + place, parent=step, **stamps("s", seq, attempt))
    trace.tool("z", 31, parent=trace.agent("y", 30, 40, root))
    return trace


def test_the_route_gives_one_path_a_pass_by_its_latest_attempt(embedded_project: Project) -> None:
    embedded_project.store(passes().spans)
    for stored in (True, False):  # computed whether or not it is stored
        api = embedded_project.api(plan_state_persistence=stored)
        found = api.json("/runs/r1/paths")["paths"]
        assert [(p["step_id"], p["agent_id"], p["pass_seq"], p["attempt"], p["calls"], p["path"]) for p in found] == [
            ("s", "x", 1, 2, 2, "a x2"), ("s", "x", 2, 1, 1, "c"), ("step_y", "y", 1, 1, 1, "z"),
        ]  # fmt: skip
        artifacts = api.json("/runs/r1/artifacts", kind="tool_path")["artifacts"]
        assert [(a["label"], a["call_seq"], a["summary"]) for a in artifacts] == (
            [("Tool path", 0, "a x2"), ("Tool path", 0, "c"), ("Tool path", 0, "z")] if stored else []
        )


def test_a_path_is_an_artifact_with_a_body(embedded_project: Project) -> None:
    embedded_project.store(passes().spans)
    api = embedded_project.api()
    first: Any = api.json("/runs/r1/artifacts", kind="tool_path")["artifacts"][0]
    whole = api.json(f"/runs/r1/artifacts/{first['artifact_id']}")
    assert (whole["body"], whole["body_bytes"], whole["token_size"]) == ("a x2", 4, 1)
    raw = api.get(f"/runs/r1/artifacts/{first['artifact_id']}/raw")
    assert (raw.text, raw.headers["content-type"]) == ("a x2", "text/plain; charset=utf-8")


def test_a_retry_writes_to_the_path_it_wrote_before() -> None:
    board = board_of(passes().spans)
    ids = {artifact.attempt.attempt: artifact.artifact_id for artifact in (*board.artifacts, *board.replaced)
           if artifact.kind == "tool_path" and artifact.attempt.pass_seq == 1 and artifact.attempt.agent_id == "x"}  # fmt: skip
    assert ids[1] == ids[2]
    assert len({artifact.artifact_id for artifact in listed(board, "tool_path")}) == 3


def test_paths_are_neither_recalled_nor_in_the_ledger(embedded_project: Project) -> None:
    embedded_project.store(passes().spans)
    api = embedded_project.api()
    token = api.token("r1")
    assert all(
        found["kind"] != "tool_path" for found in api.recall(token, {"query": "tool path a x2 c z", "top_k": 10})
    )
    assert len(api.json("/runs/r1/ledger")["lines"]) == 3  # a (both of the same arguments), c, z
