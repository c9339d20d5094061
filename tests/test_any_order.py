"""Any order: the same spans and log records, however they come, are one project and read the same from every route."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from hypothesis import given, note, settings
from hypothesis import strategies as st

from otel_blackboard.config import Settings
from otel_blackboard.processor.numbers import number, tool_path
from otel_blackboard.query import ledger
from otel_blackboard.query.api import _parent, _span_order
from otel_blackboard.query.artifacts import blackboard
from otel_blackboard.query.runs import merge_parts
from otel_blackboard.query.shown import shown_artifact, shown_prompt, shown_run, shown_timeline_span
from otel_blackboard.records import LogRecord, Resource, Span, Tenant
from tests import reference
from tests.effort import NIGHTLY
from tests.spans import DETAILS, TENANT, at, derive, hex_id

# ---------------------------------------------------------------------------------------------------------- mean traces


@dataclass(repr=False)
class Story:
    """Spans (all their versions) and log records of a few traces."""

    spans: list[Span] = field(default_factory=list)
    logs: list[LogRecord] = field(default_factory=list)

    @property
    def items(self) -> list[Span | LogRecord]:
        return [*self.spans, *self.logs]

    def told(self) -> str:
        return "\n".join(map(_told, self.items))


def _told(each: Span | LogRecord) -> str:
    where = f"{each.trace_id[:4]}/{each.span_id[-4:]}"
    if isinstance(each, LogRecord):
        return f"log {where} {(each.time_ns - at(0)) / 1e9:g} {each.event_name} {each.body} {each.attributes}"
    times = f"{(each.start_ns - at(0)) / 1e9:g}–{(each.end_ns - at(0)) / 1e9:g}" if each.end_ns else "open"
    above = each.parent_span_id[-4:]
    return f"span {where} ^{above} {each.name!r} {times} {each.status_message!r} {each.attributes}"


def often(value: Any, *others: Any) -> st.SearchStrategy[Any]:
    """`value`, and now and then one of the others."""
    return st.sampled_from([value] * (2 * len(others)) + list(others))


KINDS = st.sampled_from(
    "flow step step agent agent node chat chat chat embeddings tool tool tool retrieval guard plain".split()
)
AGENTS = st.sampled_from(["", "a", "a", "b"])
ASKS = [("c1", "look", {"n": 1}), ("c2", "look", {"n": 2}), ("c3", "read", None), ("", "read", {"n": 1})]
COSTS = often(None, "0.5", "0.0000000000006", "0.0000000000017")
COMMON = {
    "blackboard.run.id": often(None, "r1", "r1", "r2", "no id/"),
    "blackboard.use_case.id": often(None, None, None, "u1", "u2"),
    "session.id": often(None, None, None, "c-1", "c-2"),
    "user.id": often(None, None, None, "x", "y"),
    "blackboard.trigger": often(None, None, None, "schedule"),
    "blackboard.run.name": often(None, None, None, "named", "renamed"),
}
STAMPS = {
    "blackboard.step.id": st.sampled_from([None, None, None, "s", "s", "t"]),
    "blackboard.pass.seq": st.sampled_from([None, None, None, 1, 1, 2]),
    "blackboard.pass.attempt": st.sampled_from([None, None, 1, 2]),
    "blackboard.call.seq": st.sampled_from([None, None, None, None, 1, 2]),
}
TOKENS = {
    "gen_ai.usage.input_tokens": st.sampled_from([None, 10, 30, 0]),
    "gen_ai.usage.output_tokens": st.sampled_from([None, 1, 5]),
    "gen_ai.usage.cache_read.input_tokens": often(None, 4),
    "blackboard.cost.usd": COSTS,
}


@st.composite
def attributes_of(draw: st.DrawFn, kind: str, trace: str) -> dict[str, Any]:
    def some(choices: dict[str, st.SearchStrategy[Any]]) -> dict[str, Any]:
        return {key: draw(choice) for key, choice in choices.items()}

    own: dict[str, Any] = some(COMMON) if draw(st.integers(0, 2)) == 0 else {}
    if draw(st.booleans()):
        own |= some(STAMPS)
    agent = draw(AGENTS)
    if kind in ("flow", "step"):
        own |= {"blackboard.span.role": {"flow": "flow_run", "step": "step"}[kind], "gen_ai.agent.name": agent}
    if kind in ("agent", "node"):
        own |= {"gen_ai.operation.name": {"agent": "invoke_agent", "node": "plan"}[kind]}
        own |= {"gen_ai.agent.name": agent if kind == "agent" else None}
    if kind in ("step", "agent", "node"):
        said = draw(often(None, "the answer", '{"summary": "short", "text": "long"}'))
        own["gen_ai.output.messages"] = said and [{"role": "assistant", "parts": [{"type": "text", "content": said}]}]
    if kind in ("chat", "embeddings"):
        own |= {"gen_ai.operation.name": kind, "gen_ai.provider.name": "openai"}
        own |= {"gen_ai.request.model": draw(often("gpt-4o-mini", "gpt-4o", "of-nobody"))}
        # Response ids are a trace's own: what one id in two traces means is another promise.
        response = draw(st.sampled_from([None, "r1", "r1", "r2"]))
        own["gen_ai.response.id"] = response and f"{trace} {response}"
        own |= some(TOKENS)
        parts: list[Any] = [
            {"type": "text", "content": text} for text in draw(st.sampled_from([[], ["said"], ["other"]]))
        ]
        asks = draw(st.lists(st.sampled_from(ASKS), max_size=3))
        parts += [{"type": "tool_call", "id": id, "name": name, "arguments": given} for id, name, given in asks]
        own["gen_ai.output.messages"] = [{"role": "assistant", "parts": parts}] if parts else None
        own["gen_ai.input.messages"] = draw(st.sampled_from([None, "asked", '[{"role": "user", "content": "hello"}]']))
        own["gen_ai.agent.name"] = draw(often(None, None, "a", "b"))
    if kind in ("tool", "retrieval"):
        own |= {"gen_ai.operation.name": {"tool": "execute_tool"}.get(kind, kind)}
        own["gen_ai.tool.name"] = draw(often("look", "read", "__query_blackboard"))
        own["gen_ai.tool.call.id"] = draw(st.sampled_from([None, "c1", "c2", "c3"]))
        own["gen_ai.tool.call.arguments"] = draw(
            st.sampled_from([None, {"n": 1}, '{"n": 2}', '{ "n" : 1 }', "no json"])
        )
        own["gen_ai.tool.call.result"] = draw(st.sampled_from([None, "found it", {"summary": "rain", "mm": 3}, ""]))
    if kind in ("flow", "step", "agent", "plain", "tool") and draw(st.integers(0, 3)) == 0:
        own |= some(TOKENS)
    return {key: value for key, value in own.items() if value is not None}


@st.composite
def span_of(draw: st.DrawFn, trace: str, ids: list[str], place: int) -> Span:
    kind = draw(KINDS)
    start = draw(st.integers(0, 9))
    end = start + draw(often(1, 0, 3, 20, 100, -2))
    parents = [*ids[:place]] * 3 + [ids[place - 1]] * 4 if place else [""]
    parent = draw(st.sampled_from([*parents, "", "", "f" * 16, *ids]))
    made = Span(hex_id(trace, 32), ids[place], parent, f"{kind} {place % 3}", 1, at(start), at(end))
    made.attributes = draw(attributes_of(kind, trace))
    if draw(st.integers(0, 5)) == 0:
        made.status_code, made.status_message = 2, draw(st.sampled_from(["boom", "bang"]))
    return made


@st.composite
def versions_of(draw: st.DrawFn, span: Span, trace: str) -> list[Span]:
    """The span, and now and then what else was sent under its id: a notice at its start, or a second end."""
    if draw(st.integers(0, 3)):
        return [span]
    other = copy.deepcopy(span)
    change = draw(st.sampled_from(["notice", "open", "notice", "open", "otherwise", "alike"]))
    if change == "notice":
        other.attributes["blackboard.pending"] = True
    if change in ("open", "notice"):
        other.end_ns = 0 if change == "open" else span.end_ns
        for key in draw(st.lists(st.sampled_from(sorted(span.attributes) or [""]), max_size=4)):
            other.attributes.pop(key, None)
        if draw(st.integers(0, 3)) == 0:
            other.parent_span_id = ""
        other.status_code, other.status_message = 0, ""
    elif change == "otherwise":  # another span under the same id
        other.attributes = draw(attributes_of(draw(KINDS), trace))
        other.name = draw(st.sampled_from([span.name, "other"]))
    else:  # as many attributes, the same end: their text decides
        other.resource = Resource({"host.name": "elsewhere"})
        other.dropped_attributes_count = draw(st.integers(0, 1))
    return [other] if draw(st.integers(0, 4)) == 0 else [span, other]


@st.composite
def log_of(draw: st.DrawFn, trace: str, ids: list[str]) -> LogRecord:
    span_id = draw(st.sampled_from([*ids, *ids, "", "e" * 16]))
    made = LogRecord(hex_id(trace, 32), span_id, at(draw(st.integers(0, 3))))
    if draw(st.integers(0, 9)) == 0:
        made.trace_id = ""
    made.event_name = draw(st.sampled_from([DETAILS, DETAILS, "gen_ai.user.message", "gen_ai.choice", "app.note"]))
    if made.event_name == DETAILS:
        said = draw(attributes_of(draw(st.sampled_from(["chat", "tool"])), trace))
        made.attributes = {key: value for key, value in said.items() if draw(st.booleans())}
    else:
        made.body = draw(st.sampled_from([{"content": "a word"}, {"content": "two words"}, "text", None]))
    made.dropped_attributes_count = draw(often(0, 1))
    return made


@st.composite
def stories(draw: st.DrawFn, most: int = 10) -> Story:
    story = Story()
    shared = draw(st.booleans())  # the same span ids in every trace
    for trace in ["one", "two", "three"][: draw(st.sampled_from([1, 1, 2, 2, 3]))]:
        count = draw(st.integers(1, most))
        ids = [hex_id(f"{'' if shared else trace}{place}", 16) for place in range(count)]
        for place in range(count):
            story.spans += draw(versions_of(draw(span_of(trace, ids, place)), trace))
        for _ in range(draw(st.sampled_from([0, 0, 1, 3]))):
            story.logs.append(draw(log_of(trace, ids)))
    return story


# ------------------------------------------------------------------------------------------ the tree and the reference

_BOARD = SimpleNamespace(settings=Settings())


def derived(tenant: Tenant, story: Story) -> dict[str, Any]:
    """What the product makes of all of it at once, without stores, in the shape of reference.project."""
    resolved, parts, rows = derive(story.spans, story.logs, tenant)
    answers: dict[str, Any] = {"runs": []}
    for run_id in {part.run_id for part in parts}:
        run = merge_parts([part for part in parts if part.run_id == run_id], at(1000), 10**19)
        answers["runs"].append(shown_run(run))
        own = sorted((row for row in resolved if row.run_id == run_id), key=_span_order)
        numbering = number(own)
        board = blackboard(tenant, run_id, own, rows, paths=True)
        root = (run.root.trace_id, run.root.root_span_id)
        outputs = {
            (a.resolved.trace_id, a.resolved.call_span_id or a.resolved.span_id): a.artifact_id
            for a in (*board.replaced, *board.artifacts)
            if a.kind == "agent_output"
        }
        billed = {(row.trace_id, row.call_span_id): row for row in own if row.billed and row.call_span_id}
        answers[run_id] = {
            "timeline": [
                shown_timeline_span(row, _parent(row, root), numbering.spans.get((row.trace_id, row.span_id)))
                for row in own
            ],
            "artifacts": [shown_artifact(_BOARD, tenant, run, each) for each in board.artifacts],
            "replaced": [shown_artifact(_BOARD, tenant, run, each) for each in board.replaced],
            "prompts": [
                shown_prompt(_BOARD, tenant, run, each, outputs, billed)
                for each in board.artifacts
                if each.kind == "llm_prompt"
            ],
            "paths": [
                {
                    "step_id": each.step_id,
                    "agent_id": each.agent_id,
                    "pass_seq": each.pass_seq,
                    "attempt": each.attempt,
                    "calls": len([row for row in each.calls if row.role == "tool_invocation"]),
                    "path": path,
                }
                for each in numbering.attempts
                if not each.superseded and (path := tool_path(each.calls))
            ],
            "ledger": {
                agent: ledger.lines(ledger.calls_of(board.artifacts, agent))
                for agent in (None, *sorted({each.agent_id for each in numbering.attempts}))
            },
        }
    answers["runs"].sort(key=lambda run: (run["start_time"], run["run_id"]), reverse=True)
    return answers


def same(found: Any, expected: Any) -> None:
    """Asserts that the answers say what the reference says, field by field."""
    assert found["runs"] == expected["runs"]
    for run_id in (run["run_id"] for run in expected["runs"]):
        for route, wanted in expected[run_id].items():
            got = found[run_id][route]
            if isinstance(wanted, list):
                assert len(got) == len(wanted), (run_id, route, got, wanted)
                for one, other in zip(got, wanted, strict=True):
                    mark = {"earlier_attempt": one.get("metadata", {}).get("earlier_attempt", False)}
                    assert {name: (one | mark)[name] for name in other} == other, (run_id, route)
            else:
                assert got == wanted, (run_id, route)


@given(stories())
@settings(max_examples=20_000 if NIGHTLY else 300)
def test_the_tree_says_what_the_reference_says(story: Story) -> None:
    note(story.told())
    same(derived(TENANT, story), reference.project(TENANT, story.spans, story.logs))
