"""Runs, passes and bills out of spans: whatever is missing, doubled or contradictory, nothing loops, hides or counts twice."""

from __future__ import annotations

import json
import random
from dataclasses import asdict, replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_blackboard.processor.numbers import number
from otel_blackboard.processor.reading import read_log, read_span
from otel_blackboard.processor.tree import resolve
from otel_blackboard.query.runs import merge_parts
from otel_blackboard.records import Light, Resolved, RunPart, Scope, Span
from tests.spans import DETAILS, START, TENANT, Trace, at, board_of, by_span, derive, hex_id, listed, stamps

NOW = at(1000)
IDLE = 3600 * 10**9


def run_of(parts: list[RunPart]) -> Any:
    return merge_parts(parts, NOW, IDLE)


def found(trace: Trace) -> tuple[dict[str, Resolved], RunPart]:
    """Rows by span and the only run of a trace: the same in both orders of arrival."""
    resolved, parts, _ = derive(trace.spans)
    assert derive(trace.spans[::-1])[:2] == (resolved, parts)
    (part,) = parts
    return by_span(resolved), part


def passes(resolved: list[Resolved]) -> list[tuple[str, str, int, int, list[str]]]:
    """(step, agent, pass, attempt, tools and models called) of each attempt, in order."""
    return [
        (a.step_id, a.agent_id, a.pass_seq, a.attempt, [row.tool_name or row.model for row in a.calls])
        for a in number(resolved).attempts
    ]


# ---------------------------------------------------------------------------------------------------------------- shape


class TestEverySpanIsShown:
    def test_a_cycle_is_cut_at_its_earliest_span(self) -> None:
        trace = Trace()
        a, b, c = trace.span("a", 1), trace.span("b", 0), trace.span("c", 2)
        a.parent_span_id, b.parent_span_id, c.parent_span_id = c.span_id, a.span_id, b.span_id
        below = trace.tool("look", 3, parent=c)
        resolved, parts, _ = derive(trace.spans)
        rows = by_span(resolved)
        assert len(rows) == 4
        assert rows[b.span_id].parent_span_id == ""
        assert rows[a.span_id].parent_span_id == c.span_id
        assert rows[below.span_id].parent_span_id == c.span_id
        assert len(parts) == 1

    def test_a_span_that_is_its_own_parent_is_a_top(self) -> None:
        trace = Trace()
        span = trace.span("self")
        span.parent_span_id = span.span_id
        resolved, _, _ = derive(trace.spans)
        assert [row.parent_span_id for row in resolved] == [""]

    def test_missing_parents_leave_tops(self) -> None:
        trace = Trace()
        trace.tool("a", 0, parent="f" * 16)
        trace.tool("b", 1, parent="e" * 16)
        resolved, parts, _ = derive(trace.spans)
        assert [row.parent_span_id for row in resolved] == ["", ""]
        assert parts[0].span_count == 2

    def test_the_span_under_which_others_are_shown_is_a_top_itself(self) -> None:
        """A timeline shows all other tops under it: below one of them it would close a circle."""
        trace = Trace()
        server = trace.span("POST /ask", 0, 9)
        trace.agent("a", 1, 8, trace.span("handler", 0, 9, server))
        trace.span("stray", 3, parent="f" * 16)
        rows, part = found(trace)
        assert part.root_span_id == server.span_id and rows[server.span_id].parent_span_id == ""

    def test_an_end_before_its_start_is_shown(self) -> None:
        trace = Trace()
        trace.agent("a", 10, 5)
        resolved, parts, _ = derive(trace.spans)
        assert (resolved[0].start_ns, resolved[0].end_ns) == (at(10), at(5))
        assert run_of(parts).status == "complete"

    def test_a_very_deep_tree_is_read(self) -> None:
        trace = Trace()
        parent: Span | str = ""
        for depth in range(3000):
            parent = trace.span(f"s{depth}", depth, parent=parent)
        resolved, _, _ = derive(trace.spans)
        assert len(resolved) == 3000

    @given(
        st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3), st.integers(0, 5)), min_size=1, max_size=10),
        st.randoms(),
    )
    def test_any_graph_of_parents_in_any_order_gives_one_answer(
        self, shape: list[tuple[int, int, int]], chance: random.Random
    ) -> None:
        ids = [f"{place:016x}" for place in range(1, 11)]
        roles: list[dict[str, Any]] = [
            {},
            {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "a"},
            {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 3},
            {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "t", "gen_ai.tool.call.id": "c"},
        ]
        spans = [
            Span("1" * 32, ids[place], ids[parent], "n", 1, START + start, START + 9, dict(roles[role]))
            for place, (parent, role, start) in enumerate(shape)
        ]
        resolved, parts, _ = derive(spans)
        assert {row.span_id for row in resolved} == {span.span_id for span in spans}
        assert sum(part.span_count for part in parts) == len(spans)
        shuffled = list(spans)
        chance.shuffle(shuffled)
        again, parts_again, _ = derive(shuffled)
        assert list(map(asdict, again)) == list(map(asdict, resolved))
        assert list(map(asdict, parts_again)) == list(map(asdict, parts))
        # No cycle is left: every way up ends.
        rows = by_span(resolved)
        for row in resolved:
            steps = 0
            while row.parent_span_id:
                row, steps = rows[row.parent_span_id], steps + 1
                assert steps <= len(rows)
        numbering = number(resolved)
        for attempt in numbering.attempts:
            numbers = [numbering.spans[(row.trace_id, row.span_id)].call_seq for row in attempt.calls]
            assert numbers == list(range(1, len(numbers) + 1))


# ----------------------------------------------------------------------------------------------------------------- runs


class TestRuns:
    def test_without_ids_a_trace_is_a_run(self) -> None:
        trace = Trace()
        trace.flow("daily report")
        _, parts, _ = derive(trace.spans)
        assert [(part.run_id, part.name, part.is_root) for part in parts] == [
            ("run_" + trace.trace_id, "daily report", True)
        ]

    def test_the_only_explicit_id_of_a_trace_is_the_run_of_all_its_spans(self) -> None:
        trace = Trace()
        root = trace.span("request")
        trace.span("child", parent=root, blackboard__run__id="r1")
        trace.span("stray", parent="f" * 16)
        resolved, parts, _ = derive(trace.spans)
        assert {row.run_id for row in resolved} == {"r1"}
        assert [part.run_id for part in parts] == ["r1"]

    def test_with_several_ids_a_span_belongs_to_its_nearest_ancestors_run(self) -> None:
        trace = Trace()
        root = trace.span("server")
        one = trace.flow("one", 1, parent=root, blackboard__run__id="r1")
        two = trace.flow("two", 2, parent=one, blackboard__run__id="r2")
        inner = trace.tool("look", 3, parent=two)
        back = trace.tool("back", 4, parent=two, blackboard__run__id="r1")
        resolved, parts, _ = derive(trace.spans)
        rows = by_span(resolved)
        assert rows[root.span_id].run_id == "run_" + trace.trace_id
        assert rows[inner.span_id].run_id == "r2"
        assert {part.run_id: part.span_count for part in parts} == {"r1": 2, "r2": 2, "run_" + trace.trace_id: 1}
        # Inside its run each span hangs under the nearest ancestor of that run: every tree can be walked from its tops.
        assert rows[one.span_id].parent_span_id == rows[two.span_id].parent_span_id == ""
        assert rows[inner.span_id].parent_span_id == two.span_id
        assert rows[back.span_id].parent_span_id == one.span_id

    def test_a_call_of_a_run_that_passes_through_another_belongs_to_its_own_runs_pass(self) -> None:
        trace = Trace()
        step = trace.step("a", 0, 9, blackboard__run__id="r1")
        other = trace.flow("other", 1, parent=step, blackboard__run__id="r2")
        tool = trace.tool("look", 2, parent=other, blackboard__run__id="r1")
        resolved, _, _ = derive(trace.spans)
        assert by_span(resolved)[tool.span_id].step_span_id == step.span_id

    def test_two_processes_under_one_run_id_are_one_run(self) -> None:
        one, two = Trace("one", run_id="r1"), Trace("two", run_id="r1")
        root = one.flow("main", 0, 9)
        one.step("planner", 1, 4, root)
        step = two.step("worker", 2, 8)
        two.chat(3, 4, step, tokens=(10, 5))
        two.tool("look", 5, 6, step, result="x")
        _, parts, _ = derive([*one.spans, *two.spans])
        run = run_of(parts)
        assert (run.run_id, run.name, run.status) == ("r1", "main", "complete")
        assert run.trace_ids == [one.trace_id, two.trace_id]
        assert run.agents == ["planner", "worker"]
        assert run.counts == {"flow_run": 1, "provider_call": 1, "step": 2, "tool_invocation": 1}
        assert (run.start_ns, run.end_ns, run.usage["input_tokens"]) == (at(0), at(9), 10)

    def test_the_part_with_the_flow_run_says_how_it_went_even_when_it_starts_last(self) -> None:
        worker, main = Trace("worker", run_id="r1"), Trace("main", run_id="r1")
        worker.step("w", 0, error="worker broke")
        main.flow("main", 5)
        _, parts, _ = derive([*worker.spans, *main.spans])
        assert (run_of(parts).name, run_of(parts).status) == ("main", "complete")

    def test_a_span_without_a_role_names_the_run_of_those_side_by_side_below_it(self) -> None:
        trace = Trace()
        server = trace.span("POST /ask", 0, 9)
        handler = trace.span("handler", 0, 9, server)
        trace.agent("a", 1, 3, handler, error="boom")
        assert (found(trace)[1].name, found(trace)[1].status) == ("invoke_agent a", "failed")
        trace.chat(4, 5, server)
        assert (found(trace)[1].name, found(trace)[1].status) == ("POST /ask", "complete")
        trace.flow("daily report", 2, 8, parent=handler)
        assert (found(trace)[1].name, found(trace)[1].is_root) == ("daily report", True)

    def test_status_comes_from_the_root(self) -> None:
        trace = Trace()
        root = trace.flow("main", 0, 9)
        trace.tool("look", 1, parent=root, error="boom")
        assert run_of(derive(trace.spans)[1]).status == "complete"
        root.status_code, root.status_message = 2, "gave up"
        run = run_of(derive(trace.spans)[1])
        assert (run.status, run.error, run.failed_spans) == ("failed", "gave up", 2)

    def test_an_open_span_makes_a_run_running_then_interrupted(self) -> None:
        trace = Trace()
        root = trace.flow("main", 0, 9)
        root.end_ns = 0
        _, parts, _ = derive(trace.spans)
        parts[0].last_stored_ns = NOW
        assert merge_parts(parts, NOW + IDLE, IDLE).status == "running"
        assert merge_parts(parts, NOW + IDLE + 1, IDLE).status == "interrupted"
        assert merge_parts(parts, NOW, IDLE).end_ns == 0

    def test_a_start_notice_is_replaced_by_the_finished_span_in_either_order(self) -> None:
        trace, finished = Trace(), Trace()
        trace.tool("look", 0, blackboard__pending=True)
        done = finished.tool("look", 0, 2, result="x")
        for spans in ([*trace.spans, done], [done, *trace.spans]):
            resolved, parts, _ = derive(spans)
            assert [row.status for row in resolved] == ["succeeded"]
            assert parts[0].open_spans == 0
        resolved, parts, _ = derive(trace.spans)
        assert (resolved[0].status, resolved[0].end_ns, parts[0].status) == ("running", 0, "running")

    def test_which_version_of_a_span_wins_is_decided_by_its_content_the_resource_included(self) -> None:
        one, other = Trace(resource={"host.name": "a"}), Trace(resource={"host.name": "b"})
        versions = {read_span(TENANT, trace.span("x")).light.version for trace in (one, other)}
        assert len(versions) == 2

    @pytest.mark.parametrize(
        "change",
        [
            {"dropped_attributes_count": 1}, {"dropped_events_count": 1}, {"dropped_links_count": 1},
            {"attributes": {"input.value": '{"a":1}'}}, {"attributes": {"input.value": b'{"a":1}'}},
            {"attributes": {"input.value": {"a": 2}}}, {"end_ns": 0}, {"end_ns": at(5)}, {"flags": 1},
            {"trace_state": "x"}, {"kind": 2}, {"status_code": 1},
        ],
    )  # fmt: skip
    def test_no_two_spans_that_differ_are_one_version(self, change: dict[str, Any]) -> None:
        one, other = (Trace().span("x", input__value={"a": 1}) for _ in range(2))
        for name, value in change.items():
            setattr(other, name, value)
        # Their low halves differ too: by these a worker sees whether it holds what the store holds.
        low = {read_span(TENANT, span).light.version % 2**64 for span in (one, other)}
        assert len(low) == 2

    def test_no_two_log_records_that_differ_are_one(self) -> None:
        trace = Trace()
        one, other = (trace.log(trace.span("x"), "note", body={"a": 1}) for _ in range(2))
        other.span_id = one.span_id
        for name, value in (("dropped_attributes_count", 1), ("body", '{"a":1}')):
            changed = replace(other, **{name: value})
            assert read_log(TENANT, one).light.record_sha256 != read_log(TENANT, changed).light.record_sha256
        assert read_log(TENANT, one).light.record_sha256 == read_log(TENANT, other).light.record_sha256

    @pytest.mark.parametrize("sent", ["with space", "ü", "x" * 129, "a/b", "a\nb"])
    def test_an_id_that_is_none_becomes_a_hash_and_is_kept(self, sent: str) -> None:
        trace = Trace(run_id=sent)
        trace.flow()
        _, parts, _ = derive(trace.spans)
        assert parts[0].run_id.startswith("run_") and len(parts[0].run_id) == 4 + 32
        assert parts[0].original_run_id == sent

    def test_conversation_use_case_and_trigger_come_from_the_root_first(self) -> None:
        trace = Trace()
        root = trace.flow("main", 0, 9, session__id="c-root", blackboard__trigger="schedule")
        trace.step("a", 1, parent=root, session__id="c-child", blackboard__use_case__id="u1")
        run = run_of(derive(trace.spans)[1])
        assert (run.conversation_id, run.use_case_id, run.trigger) == ("c-root", "u1", "schedule")


# --------------------------------------------------------------------------------------------------------------- passes


class TestPasses:
    def test_a_root_agent_span_is_the_run_and_its_one_pass(self) -> None:
        trace = Trace()
        root = trace.agent("Planner One", 0, 9)
        trace.chat(1, 2, root)
        trace.tool("look", 3, 4, root)
        resolved, parts, _ = derive(trace.spans)
        assert passes(resolved) == [("step_planner-one", "Planner One", 1, 1, ["gpt-4o-mini", "look"])]
        assert parts[0].root_span_id == root.span_id

    def test_a_trace_without_steps_has_one_implicit_pass(self) -> None:
        trace = Trace()
        root = trace.span("POST /ask", 0, 9)
        trace.chat(1, 2, root)
        trace.tool("look", 3, 4, root)
        assert passes(derive(trace.spans)[0]) == [("step_post-ask", "", 1, 1, ["gpt-4o-mini", "look"])]

    def test_the_implicit_pass_is_called_by_the_run(self) -> None:
        """Logfire's span names are templates."""
        trace = Trace()
        root = trace.span("answer {question}", 0, 9, gen_ai__workflow__name="answer why")
        trace.chat(1, 2, root)
        trace.tool("look", 3, 4, root)
        assert passes(derive(trace.spans)[0]) == [("step_answer-why", "", 1, 1, ["gpt-4o-mini", "look"])]

    def test_calls_beside_an_agent_are_not_its_own(self) -> None:
        trace = Trace()
        root = trace.span("app", 0, 99)
        trace.tool("inside", 2, parent=trace.agent("a", 1, 9, root))
        trace.tool("beside", 10, parent=root)
        trace.tool("below", 12, parent=trace.span("task", 11, parent=root, gen_ai__agent__name="b"))
        found(trace)
        assert passes(derive(trace.spans)[0]) == [
            ("step_a", "a", 1, 1, ["inside"]), ("step_app", "", 1, 1, ["beside"]), ("step_app", "b", 1, 1, ["below"]),
        ]  # fmt: skip

    def test_a_call_whose_parent_has_not_come_is_that_of_the_only_agent(self) -> None:
        trace = Trace()
        root = trace.flow("main", 0, 99, gen_ai__agent__name="a")
        stray = trace.tool("stray", 3, parent="f" * 16)
        assert found(trace)[0][stray.span_id].agent_id == "a"
        trace.agent("b", 1, 9, root)
        assert found(trace)[0][stray.span_id].agent_id == ""

    def test_a_step_directly_in_a_step_of_the_same_agent_is_the_same_pass(self) -> None:
        trace = Trace()
        outer = trace.step("a", 0, 9, step_id="s", seq=1, attempt=1)
        chain = trace.span("chain", 1, 8, outer)
        inner = trace.agent("a", 2, 7, chain)
        trace.tool("look", 3, 4, inner)
        assert passes(derive(trace.spans)[0]) == [("s", "a", 1, 1, ["look"])]

    def test_an_unnumbered_pass_around_a_numbered_one_of_its_agent_is_that_pass(self) -> None:
        trace = Trace()
        outer = trace.step("a", 0, 9)
        inner = trace.step("a", 1, 8, parent=outer, step_id="s", seq=2, attempt=1)
        trace.tool("t", 2, parent=inner)
        resolved = derive(trace.spans)[0]
        assert passes(resolved) == [("s", "a", 2, 1, ["t"])]

    def test_a_node_without_an_agent_belongs_to_the_agent_above(self) -> None:
        trace = Trace()
        outer = trace.step("researcher", 0, 9)
        node = trace.span("plan", 1, 8, parent=outer, gen_ai__operation__name="plan")
        trace.tool("t", 2, parent=node)
        resolved = derive(trace.spans)[0]
        assert {row.agent_id for row in resolved} == {"researcher"}

    def test_an_agent_that_has_only_an_id_is_that_id(self) -> None:
        trace = Trace()
        trace.span("run", 0, gen_ai__operation__name="invoke_agent", gen_ai__agent__id="asst_1")
        assert {row.agent_id for row in derive(trace.spans)[0]} == {"asst_1"}

    def test_a_step_below_a_tool_of_the_same_agent_is_another_pass(self) -> None:
        trace = Trace()
        outer = trace.agent("a", 0, 9)
        tool = trace.tool("delegate", 1, 8, outer)
        inner = trace.agent("a", 2, 7, tool)
        trace.tool("look", 3, 4, inner)
        assert passes(derive(trace.spans)[0]) == [("step_a", "a", 1, 1, ["delegate"]), ("step_a", "a", 2, 1, ["look"])]

    def test_a_step_of_another_agent_is_another_pass_and_calls_belong_to_the_innermost(self) -> None:
        trace = Trace()
        outer = trace.agent("boss", 0, 9)
        trace.tool("first", 1, 2, outer)
        inner = trace.agent("helper", 3, 6, outer)
        trace.tool("look", 4, 5, inner)
        trace.tool("last", 7, 8, outer)
        assert passes(derive(trace.spans)[0]) == [
            ("step_boss", "boss", 1, 1, ["first", "last"]),
            ("step_helper", "helper", 1, 1, ["look"]),
        ]

    def test_a_step_without_a_name_that_holds_one_agent_of_the_same_step_is_that_agents_pass(self) -> None:
        trace = Trace()
        own = stamps("s", 1, 1)
        outer = trace.step("", 0, 9, **own)
        inner = trace.agent("a", 1, 8, outer, **own)
        trace.tool("look", 2, 3, inner, **own)
        trace.tool("after", 8, 9, outer, **own)
        assert passes(derive(trace.spans)[0]) == [("s", "a", 1, 1, ["look", "after"])]

    def test_passes_of_one_step_and_agent_count_by_start(self) -> None:
        trace = Trace()
        root = trace.flow("main", 0, 99)
        for start in (20, 10, 30):
            trace.tool(f"t{start}", start + 1, parent=trace.agent("a", start, start + 5, root))
        trace.agent("b", 15, 16, root)
        assert [(agent, seq, tools) for _, agent, seq, _, tools in passes(derive(trace.spans)[0])] == [
            ("a", 1, ["t10"]), ("b", 1, []), ("a", 2, ["t20"]), ("a", 3, ["t30"]),
        ]  # fmt: skip

    def test_stamped_passes_keep_their_numbers_and_the_others_take_free_ones(self) -> None:
        trace = Trace()
        root = trace.flow("main", 0, 99)
        trace.tool("unstamped", 2, parent=trace.step("a", 1, 5, root, step_id="s"))
        trace.tool("stamped", 12, parent=trace.step("a", 11, 15, root, step_id="s", seq=1, attempt=1))
        found = passes(derive(trace.spans)[0])
        assert sorted((seq, tools) for _, _, seq, _, tools in found) == [(1, ["stamped"]), (2, ["unstamped"])]

    def test_a_call_whose_parent_has_not_come_is_shown_in_the_pass_of_the_root(self) -> None:
        trace = Trace()
        root = trace.agent("a", 0, 9)
        trace.tool("first", 1, parent=root, result="1")
        trace.tool("second", 3, parent="f" * 16, result="2")
        assert passes(derive(trace.spans)[0]) == [("step_a", "a", 1, 1, ["first", "second"])]
        assert [artifact.label for artifact in listed(board_of(trace.spans), "tool_result")] == ["first", "second"]

    def test_calls_of_no_step_never_take_the_place_of_a_steps_calls(self) -> None:
        trace = Trace()
        root = trace.flow("main", 0, 99, gen_ai__agent__name="a")
        trace.tool("in step", 2, parent=trace.agent("a", 1, 5, root), result="1")
        trace.tool("outside", 10, parent=root, result="2")
        board = board_of(trace.spans)
        assert [artifact.label for artifact in listed(board, "tool_result")] == ["in step", "outside"]

    def test_attempts_are_stamped_and_the_last_supersedes(self) -> None:
        trace = Trace()
        root = trace.flow("main", 0, 99)
        for attempt in (1, 2):
            step = trace.step("a", attempt * 10, parent=root, step_id="s", seq=1, attempt=attempt)
            trace.tool("look", attempt * 10, parent=step)
        trace.step("a", 50, parent=root, step_id="s", seq=2, attempt=1)
        attempts = number(derive(trace.spans)[0]).attempts
        assert [(a.pass_seq, a.attempt, a.superseded) for a in attempts] == [(1, 1, True), (1, 2, False), (2, 1, False)]

    def test_stamps_hold_a_pass_together_whose_step_span_has_not_come(self) -> None:
        trace = Trace()
        for start, call in ((1, "one"), (2, "two")):
            trace.tool(call, start, parent="f" * 16, gen_ai__agent__name="a", **stamps("s", 3, 2))
        assert passes(derive(trace.spans)[0]) == [("s", "a", 3, 2, ["one", "two"])]


class TestCalls:
    def test_calls_share_one_counter_in_start_order_and_each_attempt_starts_again(self) -> None:
        trace = Trace()
        for attempt in (1, 2):
            step = trace.step("a", attempt * 10, attempt * 10 + 9, step_id="s", seq=1, attempt=attempt)
            trace.tool("b", attempt * 10 + 3, parent=step)
            trace.chat(attempt * 10 + 1, parent=step)
            trace.tool("c", attempt * 10 + 5, parent=step)
        numbering = number(derive(trace.spans)[0])
        for attempt in numbering.attempts:
            numbers = [numbering.spans[(row.trace_id, row.span_id)].call_seq for row in attempt.calls]
            assert ([row.tool_name for row in attempt.calls], numbers) == (["", "b", "c"], [1, 2, 3])

    @pytest.mark.parametrize("with_ids", [True, False])
    def test_calls_asked_for_together_stand_in_the_order_of_the_answer(self, with_ids: bool) -> None:
        trace = Trace()
        root = trace.agent("a", 0, 99)
        asks = [("c1", "one", {"n": 1}), ("c2", "two", {"n": 2}), ("c3", "one", {"n": 3})]
        trace.chat(1, 2, root, asks=asks)
        # They start in another order than they were asked for.
        for start, place in ((3.0, 2), (3.1, 1), (3.2, 0)):
            id, name, arguments = asks[place]
            trace.tool(name, start, 9, root, arguments=arguments, call_id=id if with_ids else None)
        trace.chat(10, 11, root)
        calls = number(derive(trace.spans)[0]).attempts[0].calls
        assert [(row.tool_name, row.requested_index) for row in calls[1:4]] == [("one", 0), ("two", 1), ("one", 2)]
        assert [row.tool_call_id for row in calls[1:4]] == ["c1", "c2", "c3"]

    def test_calls_without_ids_or_arguments_match_the_latest_answer_by_name(self) -> None:
        trace = Trace()
        root = trace.agent("a", 0, 99)
        first = trace.chat(1, 2, root, asks=[("c1", "look", {"n": 1})])
        trace.tool("look", 3, parent=root)
        second = trace.chat(5, 6, root, asks=[("c2", "look", {"n": 2})])
        trace.tool("look", 7, parent=root)
        tools = [row for row in number(derive(trace.spans)[0]).attempts[0].calls if row.tool_name]
        assert [(row.requested_by, row.tool_call_id) for row in tools] == [
            (first.span_id, "c1"),
            (second.span_id, "c2"),
        ]

    def test_a_tool_finds_the_answer_that_asked_for_it_in_the_node_beside_its_own(self) -> None:
        """Graphs (LangGraph) whose model and whose tools are two nodes; here two of them run side by side."""
        trace = Trace()
        root = trace.flow("main", 0, 99)
        asking, called = [], []
        for place in (0, 1):
            graph = trace.span("graph", place, 90, root)
            model = trace.step("", place, 9, graph, step_id="model")
            asking.append(trace.chat(place + 1, 3, model, asks=[(f"c{place}", "look", {"n": place})]))
            tools = trace.step("", 10, 19, graph, step_id="tools")
            called.append(trace.tool("look", 11, 12, tools, arguments="bare"))
        rows, _ = found(trace)
        assert [(rows[tool.span_id].requested_by, rows[tool.span_id].tool_call_id) for tool in called] == [
            (asking[0].span_id, "c0"), (asking[1].span_id, "c1"),
        ]  # fmt: skip

    def test_a_tools_own_pass_goes_before_the_node_beside_it(self) -> None:
        trace = Trace()
        root = trace.flow("main", 0, 99)
        trace.chat(1, 2, trace.step("", 0, 3, root, step_id="model"), asks=[("c1", "look", {"n": 1})])
        own = trace.step("", 4, 9, root, step_id="tools")
        asking = trace.chat(5, 6, own, asks=[("c2", "look", {"n": 1})])
        tool = trace.tool("look", 7, 8, own, arguments={"n": 1})
        rows, _ = found(trace)
        assert (rows[tool.span_id].requested_by, rows[tool.span_id].tool_call_id) == (asking.span_id, "c2")

    @pytest.mark.parametrize(
        ("call_id", "arguments", "asked"),
        [("c1", None, True), (None, {"n": 1}, True), (None, None, False), (None, {"n": 2}, False)],
    )  # fmt: skip
    def test_far_from_the_answer_a_name_alone_says_nothing(
        self, call_id: str | None, arguments: Any, asked: bool
    ) -> None:
        trace = Trace()
        root = trace.flow("main", 0, 99)
        trace.chat(1, 2, trace.agent("a", 0, 3, root), asks=[("c1", "look", {"n": 1})])
        other = trace.agent("b", 5, 9, trace.span("worker", 4, 10, root))
        tool = trace.tool("look", 6, 7, other, arguments=arguments, call_id=call_id)
        rows, _ = found(trace)
        assert bool(rows[tool.span_id].requested_by) == asked

    def test_stamped_call_numbers_stay_and_order_the_calls(self) -> None:
        trace = Trace()
        root = trace.step("a", 0, 99, **stamps("s", 1, 1))
        trace.tool("second", 1, parent=root, **stamps("s", 1, 1, 2))
        trace.tool("first", 2, parent=root, **stamps("s", 1, 1, 1))
        trace.tool("third", 3, parent=root, **stamps("s", 1, 1))
        board = board_of(trace.spans)
        assert [(artifact.label, artifact.call_seq) for artifact in listed(board, "tool_result")] == [
            ("first", 1), ("second", 2), ("third", 3),
        ]  # fmt: skip
        assert listed(board, "tool_path")[0].text == "first -> second -> third"


def said(text: str) -> str:
    return json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": text}]}])


class TestAnswers:
    def test_what_a_flow_returns_is_the_answer_of_the_calls_under_no_step(self) -> None:
        trace = Trace()
        flow = trace.flow("rag", 0, 9, gen_ai__output__messages=said("all in all"))
        trace.tool("retrieve", 1, 2, flow, result="x")
        trace.chat(3, 4, flow, said="a part")
        found(trace)
        board = board_of(trace.spans)
        (answer,) = listed(board, "agent_output")
        assert (answer.row.summary, answer.attempt.step_id, answer.call_seq) == ("all in all", "step_rag", 0)
        assert [len(attempt.calls) for attempt in board.numbering.attempts] == [2]
        assert listed(board_of(trace.spans[::-1]), "agent_output")[0].artifact_id == answer.artifact_id

    def test_where_a_step_tells_an_answer_a_flow_only_repeats_it(self) -> None:
        trace = Trace()
        flow = trace.flow("main", 0, 9, gen_ai__output__messages=said("done"))
        trace.agent("a", 1, 3, flow, gen_ai__output__messages=said("done"))
        trace.tool("beside", 5, parent=flow)
        assert [artifact.label for artifact in listed(board_of(trace.spans), "agent_output")] == ["a"]

    def test_a_flow_without_calls_of_its_own_has_no_pass(self) -> None:
        trace = Trace()
        flow = trace.flow("main", 0, 9, gen_ai__output__messages=said("done"))
        trace.agent("a", 1, 3, flow)
        assert passes(derive(trace.spans)[0]) == [("step_a", "a", 1, 1, [])]
        assert listed(board_of(trace.spans), "agent_output") == []


# -------------------------------------------------------------------------------------------------------------- billing


def bill(trace: Trace) -> tuple[int | None, int | None]:
    """Input tokens that the run is billed, and how many model calls it counts."""
    _, parts, _ = derive(trace.spans, trace.logs)
    run = run_of(parts)
    return run.usage["input_tokens"], run.counts.get("provider_call", 0)


class TestBilling:
    def test_containers_restate_their_calls(self) -> None:
        trace = Trace()
        root = trace.flow("main", 0, 99, gen_ai__usage__input_tokens=30)
        agent = trace.agent("a", 1, 50, root, gen_ai__usage__input_tokens=30)
        trace.chat(2, 3, agent, tokens=(10, 1))
        trace.chat(4, 5, agent, tokens=(20, 1))
        assert bill(trace) == (30, 2)

    def test_a_container_alone_counts_once_and_is_marked(self) -> None:
        trace = Trace()
        root = trace.flow("main", 0, 99, gen_ai__usage__input_tokens=30)
        agent = trace.agent("a", 1, 50, root, gen_ai__usage__input_tokens=30)
        trace.chat(2, 3, agent)
        resolved, parts, _ = derive(trace.spans)
        assert [row.span_id for row in resolved if row.billed and row.is_aggregate] == [agent.span_id]
        assert parts[0].input_tokens == 30

    def test_of_two_records_of_one_request_the_inner_counts(self) -> None:
        trace = Trace()
        outer = trace.chat(0, 9, tokens=(10, 2), prompt="x")
        inner = trace.chat(1, 8, outer, tokens=(10, 2))
        resolved, _, _ = derive(trace.spans)
        rows = by_span(resolved)
        assert (rows[inner.span_id].billed, rows[outer.span_id].billed) == (True, False)
        assert rows[inner.span_id].call_span_id == rows[outer.span_id].call_span_id == outer.span_id
        assert bill(trace) == (10, 1)

    def test_of_two_records_of_one_request_the_one_that_reports_usage_counts(self) -> None:
        trace = Trace()
        outer = trace.chat(0, 9, tokens=(10, 2))
        trace.chat(1, 8, outer)
        assert bill(trace) == (10, 1)

    def test_a_provider_call_that_holds_several_only_sums_them_up(self) -> None:
        trace = Trace()
        outer = trace.chat(0, 9, tokens=(30, 3))
        trace.chat(1, 2, outer, tokens=(10, 1))
        trace.chat(3, 4, outer, tokens=(20, 2))
        assert bill(trace) == (30, 2)

    def test_a_record_around_one_that_only_sums_up_sums_up_too(self) -> None:
        trace = Trace()
        outermost = trace.chat(0, 9, tokens=(30, 3))
        outer = trace.chat(0, 9, outermost, tokens=(30, 3))
        trace.chat(1, 2, outer, tokens=(10, 1))
        trace.chat(3, 4, outer, tokens=(20, 2))
        assert bill(trace) == (30, 2)

    def test_records_of_one_response_stay_one_call_below_a_record_that_sums_them_up(self) -> None:
        trace = Trace()
        outer = trace.chat(0, 9, tokens=(30, 3), gen_ai__response__id="last")
        trace.chat(1, 2, outer, tokens=(10, 1), gen_ai__response__id="first")
        for _ in range(2):  # two instrumentations
            trace.chat(3, 4, outer, tokens=(20, 2), gen_ai__response__id="last")
        assert bill(trace) == (30, 2)

    @pytest.mark.parametrize("known", ["response id", "moment"])
    def test_a_record_around_two_of_one_request_is_that_request(self, known: str) -> None:
        """The Responses API under three instrumentations: one span around two that stand side by side."""
        trace = Trace()
        id = "r" if known == "response id" else None
        outer = trace.chat(0, 9, gen_ai__response__id=id)  # streamed: no usage of its own
        inner = [trace.chat(1, 8, outer, tokens=(10, 1), gen_ai__response__id=id) for _ in range(2)]
        inner[0].scope, inner[1].scope = Scope("one"), Scope("other")
        rows, _ = found(trace)
        assert {row.call_span_id for row in rows.values()} == {outer.span_id}
        assert bill(trace) == (10, 1)

    def test_a_provider_call_around_one_of_another_model_is_never_added_to_it(self) -> None:
        trace = Trace()
        outer = trace.chat(0, 9, model="my-router", tokens=(10, 2))
        trace.chat(1, 8, outer, model="gpt-4o-mini", tokens=(10, 2))
        _, parts, _ = derive(trace.spans)
        run = run_of(parts)
        assert run.usage["input_tokens"] == 10
        assert run.usage_coverage == 1.0
        assert run.calls_without_cost == 0

    def test_a_model_call_inside_a_tool_is_its_own(self) -> None:
        trace = Trace()
        agent = trace.agent("a", 0, 99)
        trace.chat(1, 2, agent, tokens=(10, 1))
        trace.chat(4, 5, trace.tool("ask", 3, 9, agent), tokens=(20, 1))
        assert bill(trace) == (30, 2)

    @pytest.mark.parametrize(("gap", "calls"), [(0.0, 1), (4.9, 1), (5.0, 1), (5.1, 2), (60.0, 2)])
    def test_equal_response_ids_are_one_call_within_five_seconds(self, gap: float, calls: int) -> None:
        trace = Trace()
        root = trace.agent("a", 0, 99)
        trace.chat(1, 2, root, tokens=(10, 1), gen_ai__response__id="resp")
        trace.chat(2 + gap, 3 + gap, root, tokens=(10, 1), gen_ai__response__id="resp")
        assert bill(trace) == (10 * calls, calls)

    def test_a_long_record_joins_all_that_lie_in_it(self) -> None:
        trace = Trace()
        root = trace.agent("a", 0, 200)
        for start, end in ((1, 100), (50, 51), (60, 61)):
            trace.chat(start, end, root, tokens=(10, 1), gen_ai__response__id="resp")
        assert bill(trace) == (10, 1)

    def test_different_response_ids_are_different_calls(self) -> None:
        trace = Trace()
        root = trace.agent("a", 0, 99)
        for id in ("r1", "r2"):
            trace.chat(1, 2, root, tokens=(10, 1), gen_ai__response__id=id)
        assert bill(trace) == (20, 2)

    def test_two_tool_spans_of_one_call_id_are_one_invocation(self) -> None:
        trace = Trace()
        root = trace.agent("a", 0, 99)
        outer = trace.tool("look", 1, 9, root, arguments={"n": 1}, result="x", call_id="c1")
        trace.tool("look", 2, 8, outer, arguments={"n": 1}, call_id="c1")
        trace.tool("look", 30, 31, root, arguments={"n": 1}, call_id="c1")
        trace.tool("look", 40, 41, root, arguments={"n": 1}, call_id="c2")
        resolved, parts, _ = derive(trace.spans)
        assert parts[0].counts["tool_invocation"] == 2
        assert [len(a.calls) for a in number(resolved).attempts] == [2]
        assert len(listed(board_of(trace.spans), "tool_result")) == 2

    def test_one_call_id_with_other_arguments_later_is_another_call(self) -> None:
        """Stubs and some servers count ids anew with each answer: a call must not vanish for that."""
        trace = Trace()
        root = trace.agent("a", 0, 99)
        trace.tool("look", 1, 2, root, arguments={"n": 1}, call_id="call_0")
        trace.tool("look", 30, 31, root, arguments={"n": 2}, call_id="call_0")
        assert derive(trace.spans)[1][0].counts["tool_invocation"] == 2

    @pytest.mark.parametrize(
        ("first", "second", "apart", "invocations"),
        [
            (("search", None), ("write", None), 30, 2),  # content is off
            (("search", None), ("write", None), 3, 2),
            (("search", None), ("search", None), 30, 2),
            (("search", {"n": 1}), ("search", None), 30, 2),
            (("search", {"n": 1}), ("write", {"n": 1}), 30, 2),
            (("search", {"n": 1}), ("search", {"n": 1}), 30, 1),
            (("search", {"n": 1}), ("search", {"n": 2}), 3, 2),
            (("search", None), ("search", {"n": 1}), 3, 1),  # told by several, and their clocks disagree
            (("search", None), ("mcp_search", None), 0.5, 1),  # at one time: emitters may call it otherwise
        ],
    )
    def test_one_call_id_counted_anew_is_another_call(
        self, first: tuple[str, Any], second: tuple[str, Any], apart: float, invocations: int
    ) -> None:
        trace = Trace()
        root = trace.agent("a", 0, 99)
        for (name, arguments), start in ((first, 1), (second, 1 + apart)):
            trace.tool(name, start, start + 1, root, arguments=arguments, call_id="call_0")
        for spans in (trace.spans, trace.spans[::-1]):
            resolved, parts, _ = derive(spans)
            assert parts[0].counts["tool_invocation"] == invocations
            assert len(number(resolved).attempts[0].calls) == invocations

    def test_a_retry_that_repeats_a_call_id_has_its_own_call(self) -> None:
        trace = Trace()
        for attempt in (1, 2):
            step = trace.step("a", attempt, attempt + 1, step_id="s", seq=1, attempt=attempt)
            trace.tool("look", attempt, parent=step, arguments={"n": 1}, call_id="c1")
        assert [tools for *_, tools in passes(derive(trace.spans)[0])] == [["look"], ["look"]]

    def test_a_tool_that_restates_what_its_agent_used_is_not_added(self) -> None:
        trace = Trace()
        tool = trace.tool("ask", 0, 9, gen_ai__usage__input_tokens=100)
        step = trace.step("helper", 1, 8, parent=tool)
        trace.chat(2, 3, parent=step, tokens=(100, 0))
        assert bill(trace)[0] == 100

    def test_a_detail_below_a_billed_call_is_not_added(self) -> None:
        trace = Trace()
        call = trace.chat(0, 9, tokens=(100, 5))
        trace.span("stream", 1, 8, parent=call, gen_ai__usage__input_tokens=100)
        assert bill(trace) == (100, 1)

    def test_what_one_record_says_a_call_cost_holds_for_the_call(self) -> None:
        trace = Trace()
        outer = trace.chat(0, 9, tokens=(100, 5), blackboard__cost__usd="1.5")
        trace.chat(1, 8, parent=outer, tokens=(100, 5), gen_ai__usage__cache_read__input_tokens=7)
        parts = derive(trace.spans)[1]
        assert parts[0].cost_usd == Decimal("1.5")

    def test_coverage_counts_succeeded_model_calls(self) -> None:
        trace = Trace()
        root = trace.agent("a", 0, 99)
        trace.chat(1, 2, root, tokens=(10, 1))
        trace.chat(3, 4, root)
        trace.chat(5, 6, root, error="429")
        run = run_of(derive(trace.spans)[1])
        assert run.usage_coverage == 0.5
        trace = Trace()
        trace.tool("look")
        assert run_of(derive(trace.spans)[1]).usage_coverage is None

    def test_unknown_usage_is_none_and_zero_is_zero(self) -> None:
        trace = Trace()
        trace.chat(1, 2)
        run = run_of(derive(trace.spans)[1])
        assert (run.usage["input_tokens"], run.cost_usd, run.calls_without_cost) == (None, None, 1)
        trace = Trace()
        trace.chat(1, 2, tokens=(0, 0))
        assert run_of(derive(trace.spans)[1]).usage["input_tokens"] == 0

    def test_a_cost_said_by_the_span_goes_before_the_price_table(self) -> None:
        trace = Trace()
        trace.chat(1, 2, tokens=(1_000_000, 0), blackboard__cost__usd="0.1")
        trace.chat(3, 4, tokens=(1_000_000, 0))
        trace.chat(5, 6, model="of-nobody", tokens=(5, 5))
        run = run_of(derive(trace.spans)[1])
        assert run.cost_usd == Decimal("0.1") + Decimal("0.15")
        assert run.calls_without_cost == 1

    def test_usage_that_a_log_record_brings_is_counted_and_priced(self) -> None:
        trace = Trace()
        span = trace.chat(1, 2)
        trace.log(span, DETAILS, 2, gen_ai__usage__input_tokens=1_000_000, gen_ai__usage__output_tokens=0)
        run = run_of(derive(trace.spans, trace.logs)[1])
        assert (run.usage["input_tokens"], run.cost_usd) == (1_000_000, Decimal("0.15"))

    def test_a_call_is_priced_by_all_that_its_log_records_say(self) -> None:
        trace = Trace()
        span = trace.chat(1, 2, tokens=(1_000_000, 0), model="of-nobody")
        del span.attributes["gen_ai.usage.output_tokens"]
        trace.log(span, DETAILS, 2, gen_ai__response__model="gpt-4o-mini")
        trace.log(span, DETAILS, 3, gen_ai__usage__output_tokens=1_000_000)
        assert run_of(derive(trace.spans, trace.logs)[1]).cost_usd == Decimal("0.15") + Decimal("0.6")

    def test_a_stated_cost_is_as_exact_as_the_store_keeps_it(self) -> None:
        """Or a sum would depend on whether its rows were read back."""
        trace = Trace()
        for cost in ("0.0000000000006", "1e-400", "0.1234567890123456", "999999999.9999999999999"):
            light = read_span(TENANT, trace.chat(blackboard__cost__usd=cost)).light
            assert light.cost_usd == round(Decimal(cost), 12)

    def test_what_a_span_says_stays_whatever_a_log_says(self) -> None:
        trace = Trace()
        span = trace.chat(1, 2, tokens=(10, 1))
        trace.log(span, DETAILS, 2, gen_ai__usage__input_tokens=999)
        assert bill(trace) == (10, 1)


# ------------------------------------------------------------------------------------------- several tell of one call


def light(span_id: str, parent: str = "", start: float = 0, end: float = 1, **facts: Any) -> Light:
    return Light("1" * 32, span_id, parent, span_id, at(start), at(end), **facts)


def call(span_id: str, parent: str = "", start: float = 0, end: float = 1, **facts: Any) -> Light:
    return light(span_id, parent, start, end, **({"role": "provider_call", "request_model": "m"} | facts))


def calls_of(*lights: Light, **beside: Any) -> list[set[str]]:
    """The span ids of the records of each call, in any order of the spans."""
    found = []
    for order in (lights, lights[::-1]):
        together: dict[str, set[str]] = {}
        for row in resolve([replace(each) for each in order], **beside)[0]:
            if row.call_span_id:
                together.setdefault(row.call_span_id, set()).add(row.span_id)
        found.append([together[key] for key in sorted(together)])
    assert found[0] == found[1]
    return found[0]


class TestSeveralTellOfOneCall:
    def test_two_calls_alike_at_one_moment_that_two_instrumentations_tell_of_are_two(self) -> None:
        told = [
            call(f"{scope}{number}", "", 0.001 * number, scope=scope, input_tokens=120, output_tokens=18)
            for number in range(2)
            for scope in ("one", "other")
        ]
        assert calls_of(*told) == [{"one0", "other0"}, {"one1", "other1"}]

    def test_a_sum_with_the_id_of_one_that_only_sums_up_sums_up_too(self) -> None:
        sums = {"response_id": "r", "input_tokens": 30, "output_tokens": 2}
        inner = [call(f"call{number}", "inner", response_id=f"r{number}", input_tokens=15) for number in range(2)]
        assert calls_of(call("outer", **sums), call("inner", "outer", **sums), *inner) == [{"call0"}, {"call1"}]

    def test_what_tells_of_a_satellite_s_call_below_it_is_not_counted_either(self) -> None:
        told = [call("native", input_tokens=10), call("below", "native", input_tokens=10), light("detail", "native")]
        told[2].input_tokens = 10
        assert calls_of(*told, hosts={"native": "flow-1"}) == []
        rows, (part,) = resolve(told, (), {"native": "flow-1"})
        assert not any(row.billed for row in rows) and part.run_id == "flow-1" and part.input_tokens is None

    def test_records_of_one_tool_call_in_nested_passes_are_one_in_others_not(self) -> None:
        def told(above_inner: str) -> list[Light]:
            tool = {"role": "tool_invocation", "tool_call_id": "c", "tool_name": "look"}
            passes = [
                light("a", role="step", agent_id="a", end=9),
                light("b", above_inner, role="step", agent_id="b", end=9),
            ]
            return [*passes, light("x", "a", 1, 3, **tool), light("y", "b", 2, 3, **tool)]

        assert calls_of(*told("a")) == [{"x", "y"}]
        assert calls_of(*told("")) == [{"x"}, {"y"}]

    def test_the_numbers_on_a_tool_that_runs_an_agent_are_those_of_the_pass_that_calls_it(self) -> None:
        tool = light("tool", role="tool_invocation", is_agent=True, agent_id="sub", step_id="outer", pass_seq=2)
        rows = by_span(resolve([tool, call("inside", "tool")])[0])
        assert (rows["tool"].step_id, rows["tool"].pass_seq) == ("outer", 2)
        assert (rows["inside"].step_id, rows["inside"].agent_id, rows["inside"].pass_seq) == ("step_sub", "sub", None)

    def test_a_step_told_twice_is_not_its_own_retry(self) -> None:
        step = {"role": "step", "step_id": "s", "agent_id": "a", "labels": {"pass_key": "1"}}
        once = [light("outer", **step), light("inner", "outer", **step)]
        assert by_span(resolve(once)[0])["outer"].attempt is None
        rows = by_span(resolve([*once, light("again", "", 2, 3, **step)])[0])
        assert [rows[name].attempt for name in ("outer", "again")] == [1, 2]


# ---------------------------------------------------------------------------------------------------------------- input


@given(st.permutations(range(6)))
@settings(max_examples=30)
def test_log_records_complete_a_span_in_any_order(order: list[int]) -> None:
    trace = Trace()
    span = trace.chat(1, 9)
    for place in range(6):
        trace.log(span, DETAILS, place % 3, gen_ai__response__id=f"r{place}", gen_ai__usage__input_tokens=place)
    expected = derive(trace.spans, trace.logs)
    again = derive(trace.spans, [trace.logs[place] for place in order])
    assert list(map(asdict, again[0])) == list(map(asdict, expected[0]))


def test_resolve_of_nothing_is_nothing() -> None:
    assert resolve([]) == ([], [])
    assert resolve([Light("1" * 32, hex_id("a", 16))])[1][0].span_count == 1
