"""Artifacts: one identity for each, retries write over, re-entries add, and bodies come back as the bytes received."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_blackboard.query.artifacts import blackboard, describe
from otel_blackboard.records import InvalidText
from tests.conftest import Api, Project
from tests.spans import DETAILS, TENANT, Trace, at, board_of, derive, listed, stamps


def sha(*parts: str) -> str:
    return "art_" + hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def shown(artifact: Any) -> dict[str, Any]:
    return describe(artifact, TENANT, "run", 4)


class TestIdentity:
    def test_a_span_that_carries_all_numbers_has_the_key_of_its_place(self) -> None:
        trace = Trace(run_id="r1")
        step = trace.step("a", 0, 9, **stamps("s", 2, 1), gen_ai__output__messages="done")
        trace.tool("look", 1, parent=step, result="x", **stamps("s", 2, 1, 3))
        board = board_of(trace.spans)
        (tool,), (output,), (path,) = (listed(board, kind) for kind in ("tool_result", "agent_output", "tool_path"))
        assert tool.artifact_id == sha("default", "default", "r1", "s", "2", "3", "tool_result")
        assert output.artifact_id == sha("default", "default", "r1", "s", "2", "0", "agent_output")
        assert path.artifact_id == sha("default", "default", "r1", "s", "2", "0", "tool_path")

    @pytest.mark.parametrize("missing", ["run", "step", "pass", "call"])
    def test_any_number_missing_gives_the_key_of_the_span(self, missing: str) -> None:
        trace = Trace(run_id="" if missing == "run" else "r1")
        own = stamps(
            None if missing == "step" else "s", None if missing == "pass" else 2, 1, None if missing == "call" else 3
        )
        span = trace.tool("look", 1, result="x", **own)
        (tool,) = listed(board_of(trace.spans), "tool_result")
        assert tool.artifact_id == sha("default", "default", span.trace_id, span.span_id, "tool_result")

    def test_nothing_found_through_the_tree_enters_an_id(self) -> None:
        alone, whole = Trace(), Trace()
        made = []
        for trace in (alone, whole):
            span = trace.tool("look", 5, parent="f" * 16, result="x")
            made.append(span)
        root = whole.agent("a", 0, 9)
        root.span_id = "f" * 16
        whole.tool("before", 1, parent=root)
        ids = [
            next(a.artifact_id for a in listed(board_of(trace.spans), "tool_result") if a.label == "look")
            for trace in (alone, whole)
        ]
        assert ids[0] == ids[1]

    def test_a_path_of_unstamped_spans_has_the_key_of_its_pass_span(self) -> None:
        trace = Trace()
        root = trace.agent("a", 0, 9)
        trace.tool("look", 1, parent=root)
        (path,) = listed(board_of(trace.spans), "tool_path")
        assert path.artifact_id == sha("default", "default", root.trace_id, root.span_id, "tool_path")


def attempts(*, second: str, third: str = "") -> Trace:
    """Pass 1 of step s: attempt 1 calls a and b; later attempts call what is given."""
    trace = Trace(run_id="r1")
    root = trace.flow("main", 0, 99)
    for attempt, tools in enumerate(("a b", second, third), 1):
        if not tools:
            continue
        start = attempt * 10
        step = trace.step(
            "x", start, start + 9, root, **stamps("s", 1, attempt), gen_ai__output__messages=f"out {attempt}"
        )
        for place, name in enumerate(tools.split(), 1):
            trace.tool(
                name, start + place, parent=step, arguments={"try": attempt}, result=f"{name} of {attempt}",
                **stamps("s", 1, attempt, place),
            )  # fmt: skip
    return trace


class TestRetryAndReentry:
    def test_a_retry_adds_no_rows(self) -> None:
        board = board_of(attempts(second="a b", third="a b").spans)
        results = listed(board, "tool_result")
        assert [(a.label, a.call_seq, a.attempt.attempt, a.row.summary) for a in results] == [
            ("a", 1, 3, "a of 3"), ("b", 2, 3, "b of 3"),
        ]  # fmt: skip
        assert [a.row.summary for a in listed(board, "agent_output")] == ["out 3"]
        assert not any(a.earlier_attempt for a in board.artifacts)
        assert {a.attempt.attempt for a in board.replaced} == {1, 2}

    def test_a_row_that_the_retry_did_not_replace_stays_with_its_mark(self) -> None:
        board = board_of(attempts(second="a").spans)
        results = listed(board, "tool_result")
        assert [(a.label, a.row.summary, a.earlier_attempt) for a in results] == [
            ("a", "a of 2", False), ("b", "b of 1", True),
        ]  # fmt: skip
        assert shown(results[1])["metadata"]["earlier_attempt"] is True
        assert "earlier_attempt" not in shown(results[0])["metadata"]

    def test_of_two_rows_of_one_attempt_the_later_start_then_the_span_id_wins(self) -> None:
        trace = Trace(run_id="r1")
        for start in (2, 1, 2):
            trace.tool("look", start, result=f"from {start}", **stamps("s", 1, 1, 1))
        trace.spans[0].span_id, trace.spans[2].span_id = "a" * 16, "b" * 16
        trace.spans[2].attributes["gen_ai.tool.call.result"] = "the one"
        for spans in (trace.spans, trace.spans[::-1]):
            assert [a.row.summary for a in listed(board_of(spans), "tool_result")] == ["the one"]

    def test_the_highest_attempt_wins_whatever_the_clocks_say(self) -> None:
        trace = Trace(run_id="r1")
        for attempt, start in ((1, 50), (2, 10)):
            step = trace.step("x", start, **stamps("s", 1, attempt))
            trace.tool("a", start + 1, parent=step, result=f"of {attempt}", **stamps("s", 1, attempt, 1))
        assert [a.row.summary for a in listed(board_of(trace.spans), "tool_result")] == ["of 2"]

    def test_a_reentry_adds_rows_and_changes_none(self) -> None:
        trace = attempts(second="a b")
        before = {a.artifact_id: shown(a) for a in board_of(trace.spans).artifacts}
        step = trace.step("x", 50, 59, trace.spans[0], **stamps("s", 2, 1), gen_ai__output__messages="again")
        trace.tool("a", 51, parent=step, result="a of pass 2", **stamps("s", 2, 1, 1))
        after = {a.artifact_id: shown(a) for a in board_of(trace.spans).artifacts}
        assert {id: after[id] for id in before} == before
        assert len(after) == len(before) + 3  # result, output, path

    def test_unstamped_passes_of_one_agent_are_reentries(self) -> None:
        trace = Trace()
        root = trace.flow("main", 0, 99)
        for start in (1, 10):
            trace.tool("look", start + 1, parent=trace.agent("a", start, start + 5, root), result=f"at {start}")
        assert [(a.attempt.pass_seq, a.row.summary) for a in listed(board_of(trace.spans), "tool_result")] == [
            (1, "at 1"), (2, "at 10"),
        ]  # fmt: skip

    def test_two_agents_in_one_step_keep_their_rows_apart(self) -> None:
        trace = Trace(run_id="r1")
        for agent, start in (("a", 1), ("b", 5)):
            step = trace.step(agent, start, start + 3, **stamps("s", 1, 1))
            trace.tool("look", start + 1, parent=step, result=agent, **stamps("s", 1, 1, 1))
        assert [a.row.summary for a in listed(board_of(trace.spans), "tool_result")] == ["a", "b"]


class TestOrder:
    def test_listing_goes_by_start_of_pass_then_call_then_kind(self) -> None:
        trace = Trace(run_id="r1")
        root = trace.flow("main", 0, 99)
        late = trace.step("late", 50, 59, root, gen_ai__output__messages="late out")
        early = trace.step("early", 1, 40, root, gen_ai__output__messages="early out")
        trace.chat(2, 3, early, prompt="hi", said="let me look")
        trace.tool("look", 4, 5, early, result="1")
        trace.tool("look", 51, 52, late, result="2")
        assert [(a.attempt.agent_id, a.call_seq, a.kind) for a in board_of(trace.spans).artifacts] == [
            ("early", 1, "llm_prompt"), ("early", 2, "tool_result"), ("early", 0, "agent_output"), ("early", 0, "tool_path"),
            ("late", 1, "tool_result"), ("late", 0, "agent_output"), ("late", 0, "tool_path"),
        ]  # fmt: skip

    def test_attempts_of_a_pass_stand_where_the_pass_started(self) -> None:
        trace = attempts(second="a")
        step = trace.step("other", 15, 16, trace.spans[0], gen_ai__output__messages="between")
        assert step.start_ns == at(15)
        board = board_of(trace.spans)
        assert [(a.attempt.agent_id, a.kind, a.label) for a in board.artifacts if a.kind != "tool_path"] == [
            ("x", "tool_result", "a"), ("x", "tool_result", "b"), ("x", "agent_output", "x"),
            ("other", "agent_output", "other"),
        ]  # fmt: skip


class TestWhatARowSays:
    def test_the_summary_comes_from_the_attribute_then_the_field_then_the_text(self) -> None:
        trace = Trace()
        trace.tool("a", 1, result='{"summary": "of  the\\nfield", "n": 1}', blackboard__summary="said  by\thand")
        trace.tool("b", 2, result='{"summary": "of  the\\nfield", "n": 1}')
        trace.tool("c", 3, result={"summary": "structured"})
        trace.tool("d", 4, result='{"summary": 5}')
        trace.tool("e", 5, result="plain \n text")
        trace.tool("f", 6, result="x" * 501)
        trace.tool("g", 7, blackboard__summary="no body")
        assert [a.row.summary for a in listed(board_of(trace.spans), "tool_result")] == [
            "said by hand", "of the field", "structured", '{"summary": 5}', "plain text", "x" * 500, "no body",
        ]  # fmt: skip

    def test_an_answer_in_json_is_summed_up_by_its_field_too(self) -> None:
        trace = Trace()
        said = json.dumps({"summary": "all well", "tides": [1, 2]})
        output = json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": said}]}])
        trace.agent("a", 0, gen_ai__output__messages=output)
        (found,) = listed(board_of(trace.spans), "agent_output")
        assert (found.row.summary, found.label) == ("all well", "a")

    def test_a_failed_call_is_kept_with_its_error(self) -> None:
        trace = Trace()
        text = "404 Not\n Found: " + "x" * 5000
        trace.tool("fetch", 1, error=text)
        (found,) = listed(board_of(trace.spans), "tool_result")
        assert shown(found)["status"] == "failed"
        assert found.row.summary == " ".join(text.split())[:500]
        assert found.bodies[0].sha256 == hashlib.sha256(text.encode()).hexdigest()
        assert found.resolved.error == text[:2000]  # the row keeps one screen of it, the body all

    def test_a_call_without_content_has_a_row_without_a_body(self) -> None:
        trace = Trace()
        trace.tool("look", 1, arguments={"n": 1})
        (found,) = map(shown, listed(board_of(trace.spans), "tool_result"))
        assert [found[name] for name in ("body_bytes", "body_sha256", "token_size")] == [None, None, None]
        assert found["metadata"]["content"] == "not captured"

    def test_an_empty_result_is_a_result(self) -> None:
        trace = Trace()
        trace.tool("look", 1, result="")
        (found,) = map(shown, listed(board_of(trace.spans), "tool_result"))
        assert [found[name] for name in ("body_bytes", "token_size", "summary")] == [0, 0, ""]
        assert found["body_sha256"] == hashlib.sha256(b"").hexdigest()
        assert found["metadata"]["content"] == "captured"

    @given(st.text(st.characters(exclude_categories=("Cs",)), max_size=40))
    def test_token_size_is_a_quarter_of_the_characters_rounded_up(self, text: str) -> None:
        trace = Trace()
        trace.tool("look", 1, result=text)
        (found,) = map(shown, listed(board_of(trace.spans), "tool_result"))
        assert found["token_size"] == -(-len(text) // 4)
        assert found["body_bytes"] == len(text.encode())

    def test_a_tool_result_names_its_call(self) -> None:
        trace = Trace()
        trace.tool(
            "look", 1, 3, arguments='{"b": 1, "a": "é"}', result="x", call_id="c1", blackboard__tool__class="mcp"
        )
        (found,) = map(shown, listed(board_of(trace.spans), "tool_result"))
        assert found["metadata"] | {"content": ""} == {
            "tool_name": "look", "arguments": {"b": 1, "a": "é"}, "tool_call_id": "c1", "tool_class": "mcp", "content": "",
        }  # fmt: skip
        assert (found["created_at"], found["updated_at"], found["label"]) == (at(1), at(3), "look")

    def test_the_output_of_a_pass_is_its_own_else_that_of_its_last_model_call(self) -> None:
        trace = Trace()
        root = trace.flow("main", 0, 99)
        one = trace.agent("a", 1, 9, root, gen_ai__output__messages="said by the pass")
        trace.chat(2, 3, one, said="said by the model")
        two = trace.agent("b", 10, 19, root)
        trace.chat(11, 12, two, said="first")
        trace.chat(13, 14, two, said="last")
        board = board_of(trace.spans)
        assert [(a.label, a.row.summary, a.call_seq) for a in listed(board, "agent_output")] == [
            ("a", "said by the pass", 0), ("b", "last", 0),
        ]  # fmt: skip
        assert {a.row.summary for a in board.replaced} == {"said by the model", "first"}


class TestContentInLogs:
    def both(self, **more: Any) -> tuple[Any, Any]:
        """The same tool call with its content in attributes, and with its result in a log record."""
        one, other = Trace(), Trace()
        one.tool("look", 1, arguments={"n": 1}, result='{"summary": "four tides"}', **more)
        span = other.tool("look", 1, arguments={"n": 1}, **more)
        other.log(span, DETAILS, 2, gen_ai__tool__call__result='{"summary": "four tides"}')
        (first,) = listed(board_of(one.spans), "tool_result")
        (second,) = listed(board_of(other.spans, other.logs), "tool_result")
        return first, second

    def test_a_log_record_gives_the_same_artifact_as_an_attribute(self) -> None:
        first, second = map(shown, self.both())
        assert second == first

    def test_what_the_span_says_of_it_holds(self) -> None:
        first, second = map(shown, self.both(blackboard__summary="by hand"))
        assert second == first

    def test_an_attribute_goes_before_a_log_and_a_log_before_an_event(self) -> None:
        trace = Trace()
        span = trace.chat(1, 9, said="of the attribute")
        trace.log(span, DETAILS, 2, gen_ai__output__messages="of the log")
        assert [a.row.summary for a in listed(board_of(trace.spans, trace.logs), "agent_output")] == [
            "of the attribute"
        ]

    def test_a_log_record_before_its_span_waits_for_it(self) -> None:
        trace = Trace()
        span = trace.chat(1, 9)
        trace.log(span, DETAILS, 2, gen_ai__output__messages="of the log")
        assert [a.row.summary for a in listed(board_of(trace.spans, trace.logs), "agent_output")] == ["of the log"]

    def test_the_size_of_a_body_in_several_records_counts_them_all(self) -> None:
        trace = Trace()
        span = trace.chat(1, 9)
        for place in range(3):
            trace.log(span, "gen_ai.user.message", place, body={"content": "x" * 40})
        (prompt,) = listed(board_of(trace.spans, trace.logs), "llm_prompt")
        assert shown(prompt)["token_size"] >= 30


# --------------------------------------------------------------------------------------------------------- from stores


BODIES: dict[str, Any] = {
    "text": "plain text, é 😀\n",
    "spaced": ' {"a" :  1.50, "b": "\\u00e9", "a": 2}\r\n',
    "empty": "",
    "bytes": b"\x00\xff\xfe binary",
    "invalid": InvalidText(b"caf\xe9"),
    "structured": {"z": [1, 2.5, None, True], "a": {"b": "é"}},
    "long": "0123456789é" * 20_000,
    "marks": "{\"$bytes\": \"AA==\"}",
}  # fmt: skip


def test_hydration_gives_the_bytes_received(project: Project) -> None:
    trace = Trace()
    root = trace.agent("a", 0, 99)
    for place, (name, value) in enumerate(BODIES.items()):
        trace.tool(name, place + 1, parent=root, result=value)
    project.store(trace.spans)
    api = project.api()
    run = f"/runs/run_{trace.trace_id}/artifacts"
    rows = {row["label"]: row for row in api.json(run, kind="tool_result")["artifacts"]}
    assert set(rows) == set(BODIES)
    for name, value in BODIES.items():
        expected = (
            value.encode() if isinstance(value, str)
            else bytes(value) if isinstance(value, bytes)
            else json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
        )  # fmt: skip
        row = rows[name]
        assert "body" not in row
        raw = api.get(f"{run}/{row['artifact_id']}/raw")
        assert raw.content == expected, name
        assert row["body_sha256"] == hashlib.sha256(raw.content).hexdigest()
        assert row["body_bytes"] == len(expected)
        whole = api.json(f"{run}/{row['artifact_id']}")
        data = whole["body"].encode() if whole["body_encoding"] == "utf-8" else base64.b64decode(whole["body"])
        assert data == expected
        assert {key: value for key, value in whole.items() if key not in ("body", "body_encoding")} == row


def test_a_body_can_do_nothing_in_a_browser(api: Api, project: Project) -> None:
    trace = Trace()
    trace.tool("page", 1, result="<script>alert(1)</script>")
    project.store(trace.spans)
    run = f"/runs/run_{trace.trace_id}/artifacts"
    raw = api.get(f"{run}/{api.json(run, kind='tool_result')['artifacts'][0]['artifact_id']}/raw")
    assert raw.headers["content-type"] == "text/plain; charset=utf-8"
    assert raw.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in raw.headers["content-security-policy"]


def test_a_retry_reads_as_one_row_from_the_stores_and_the_earlier_ones_on_request(project: Project) -> None:
    trace = attempts(second="a")
    for span in trace.spans:
        project.store([span])
    api = project.api()
    found = api.json("/runs/r1/artifacts", kind="tool_result")["artifacts"]
    assert [(a["label"], a["attempt"], a["summary"]) for a in found] == [("a", 2, "a of 2"), ("b", 1, "b of 1")]
    assert [a["metadata"].get("earlier_attempt") for a in found] == [None, True]
    earlier = api.json("/runs/r1/artifacts", kind="tool_result", earlier=True)["artifacts"]
    assert sorted((a["label"], a["attempt"]) for a in earlier) == [("a", 1), ("a", 2), ("b", 1)]
    assert earlier[0]["artifact_id"] == earlier[1]["artifact_id"]
    assert api.json(f"/runs/r1/artifacts/{found[0]['artifact_id']}")["body"] == "a of 2"


def test_what_was_found_is_readable_before_the_run_ends(api: Api, project: Project) -> None:
    trace = Trace()
    root = trace.flow("main", 0, 99)
    root.end_ns = 0
    trace.tool("look", 1, parent=root, result="early")
    project.store(trace.spans)
    run = f"/runs/run_{trace.trace_id}"
    assert api.json(run)["status"] == "running"
    assert [a["summary"] for a in api.json(f"{run}/artifacts", kind="tool_result")["artifacts"]] == ["early"]


@pytest.mark.parametrize("stamped", [True, False])
def test_equals_stand_in_one_order_whatever_the_order_of_the_rows(stamped: bool) -> None:
    """Calls of one number, or the same span ids in several traces, that start at one moment."""
    traces = [Trace(name, run_id="r1") for name in ("one", "two", "three")]
    for trace in traces:
        if stamped:
            trace.tool("look", 1, result=trace.name, **stamps("s", 1, 1, 1))
        else:
            trace.chat(1, said=trace.name).span_id = "a" * 16
    resolved, _, rows = derive(span for trace in traces for span in trace.spans)
    found = set()
    for order in itertools.permutations(range(len(rows))):
        board = blackboard(TENANT, "r1", resolved, [rows[place] for place in order], paths=False)
        found.add(tuple((each.resolved.trace_id, each.kind) for each in (*board.artifacts, *board.replaced)))
    assert len(found) == 1


def test_pages_lose_none_of_several_rows_of_one_place(embedded_project: Project) -> None:
    trace = Trace(run_id="r1")
    for _ in range(3):
        trace.tool("look", 1, result="x", **stamps("s", 1, 1, 1))
    embedded_project.store(trace.spans)
    api, spans, cursor = embedded_project.api(), [], None
    while True:
        page = api.json("/runs/r1/artifacts", kind="tool_result", earlier=True, limit=1, cursor=cursor)
        spans += [each["span_id"] for each in page["artifacts"]]
        if (cursor := page["next_cursor"]) is None:
            break
    assert sorted(spans) == sorted(span.span_id for span in trace.spans)


@pytest.mark.parametrize("in_log", [False, True])
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize(
    ("sent", "shown"), [(None, {"n": 1}), ("bare", {"n": 1}), ('["list"]', ["list"]), ({"n": 3}, {"n": 3})]
)
def test_arguments_that_a_tools_own_span_does_not_tell_are_those_that_were_asked_for(
    embedded_project: Project, in_log: bool, backwards: bool, sent: Any, shown: Any
) -> None:
    """LangChain sends the only argument bare, ADK none without content capture."""
    trace = Trace(run_id="r1")
    root = trace.agent("a", 0, 9)
    asks = [("c0", "other", {"n": 0}), ("c1", "look", {"n": 1})]
    chat = trace.chat(1, 2, root, asks=asks)
    if in_log:
        trace.log(chat, DETAILS, 2, gen_ai__output__messages=chat.attributes.pop("gen_ai.output.messages"))
    trace.tool("look", 3, 4, root, arguments=sent, result="x", call_id="c1")
    parts: list[tuple[Any, Any]] = [([span], []) for span in trace.spans] + [([], [log]) for log in trace.logs]
    for spans, logs in parts[::-1] if backwards else parts:
        embedded_project.store(spans, logs)
    api = embedded_project.api()
    (tool,) = api.json("/runs/r1/artifacts", kind="tool_result")["artifacts"]
    assert tool["metadata"]["arguments"] == shown
    assert api.json(f"/runs/r1/artifacts/{tool['artifact_id']}")["metadata"] == tool["metadata"]
    assert api.json("/runs/r1/ledger")["lines"] == [f"- look({json.dumps(shown, separators=(',', ':'))}) -> x"]


@pytest.mark.parametrize("stands", [True, False])
def test_search_finds_what_a_flow_returns_only_where_it_is_on_the_blackboard(
    embedded_project: Project, stands: bool
) -> None:
    trace = Trace(run_id="r1")
    answer = json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": "sunny"}]}])
    flow = trace.flow("main", 0, 9, gen_ai__output__messages=answer)
    if stands:
        trace.tool("look", 1, 2, flow, result="x")
    else:
        trace.agent("a", 1, 2, flow, gen_ai__output__messages=answer)
    embedded_project.store(trace.spans)
    api = embedded_project.api()
    (found,) = api.json("/search", q="sunny")["results"]
    (listed,) = api.json("/runs/r1/artifacts", kind="agent_output")["artifacts"]
    assert found["artifact_id"] == listed["artifact_id"]
    assert listed["span_id"] == trace.spans[0 if stands else 1].span_id
