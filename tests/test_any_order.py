"""Any order: the same spans and log records, however they come, are one project and read the same from every route."""

from __future__ import annotations

import contextlib
import copy
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from otel_blackboard.collector import otlp_json, otlp_protobuf
from otel_blackboard.config import Settings
from otel_blackboard.exporter.flush import Exporter
from otel_blackboard.exporter.tables import TABLES, read_bodies_text
from otel_blackboard.processor.dialects import Dialect
from otel_blackboard.processor.dialects.dialect import CHAT, EXECUTE_TOOL, GUARDRAIL, NO_ROLE, Role
from otel_blackboard.processor.dialects.log_spans import FROM_LOG, TRACED
from otel_blackboard.processor.numbers import number, tool_path
from otel_blackboard.query import ledger, tokens
from otel_blackboard.query.api import _parent, _span_order, make_api
from otel_blackboard.query.artifacts import blackboard
from otel_blackboard.query.runs import merge_parts
from otel_blackboard.query.shown import shown_artifact, shown_prompt, shown_run, shown_timeline_span
from otel_blackboard.records import REQUEST, LogRecord, Resource, Scope, Span, Tenant
from otel_blackboard.service import Stores, open_stores
from tests import reference
from tests.dialects.speaking import speaking
from tests.effort import NIGHTLY
from tests.expected import EXPECTED
from tests.recordings import CAPTURES
from tests.spans import DETAILS, TENANT, at, derive, hex_id

# --------------------------------------------------------------------------------------------------- a made-up dialect


def _role(span: Span) -> Role | None:
    roles = {"made_up.request": CHAT, "made_up.guard": GUARDRAIL, TRACED: NO_ROLE}
    roles |= {"made_up.agent_tool": EXECUTE_TOOL._replace(is_agent=True)}
    return next((role for key, role in roles.items() if key in span.attributes), None)


def _log_spans(record: LogRecord, event_name: str) -> list[Span]:
    """A call each; what was written inside a span says that there are spans as well."""
    if event_name != "made_up.call":
        return []
    session, request = (str(record.attributes[f"made_up.{name}"]) for name in ("session", "request"))
    end = record.time_ns
    made = Span(hex_id(session, 32), hex_id(session + request, 16), "", "call", 1, end - 10**9, end)
    made.attributes = record.attributes | {FROM_LOG: event_name}
    traced = copy.deepcopy(made)
    traced.span_id, traced.attributes = hex_id(session, 16), {TRACED: True, "made_up.session": session}
    return [made, traced] if record.span_id else [made]


MADE_UP = Dialect(
    name="made_up",
    keys=("made_up.",),
    scopes=("native",),
    role=_role,
    facts={
        "input_tokens": ("made_up.tokens",),
        "response_id": ("made_up.request",),
        "tool_name": ("made_up.agent_tool",),
    },
    labels={
        "guard_name": ("made_up.guard",),
        "tripped_guard": ("made_up.tripped",),
        "pass_key": ("made_up.pass_key",),
        REQUEST: ("made_up.asked",),
    },
    join_key=lambda span: str(span.attributes.get("made_up.session", "")),
    log_spans=_log_spans,
    satellite=lambda span: span.scope.name == "native",
)
"""Says all that the tree knows of and the GenAI conventions do not say."""


@pytest.fixture(autouse=True, scope="module")
def made_up() -> Iterator[None]:
    with speaking(MADE_UP):
        yield


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
    return f"span {where} ^{above} {each.name!r} {each.scope.name} {times} {each.status_message!r} {each.attributes}"


def often(value: Any, *others: Any) -> st.SearchStrategy[Any]:
    """`value`, and now and then one of the others."""
    return st.sampled_from([value] * (2 * len(others)) + list(others))


KINDS = st.sampled_from(
    "flow step step agent agent node chat chat chat embeddings tool tool tool retrieval agent_tool guard plain".split()
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
    "made_up.session": often(None, None, None, "s1", "s2"),
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
        own["made_up.pass_key"] = draw(often(None, None, "k1", "k2"))
    if kind in ("chat", "embeddings"):
        own |= {"gen_ai.operation.name": kind, "gen_ai.provider.name": "openai"}
        own |= {"gen_ai.request.model": draw(often("gpt-4o-mini", "gpt-4o", "of-nobody", None))}
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
        own["made_up.asked"] = draw(st.sampled_from([None, None, "p", "q"]))
    if kind in ("tool", "retrieval"):
        own |= {"gen_ai.operation.name": {"tool": "execute_tool"}.get(kind, kind)}
        own["gen_ai.tool.name"] = draw(often("look", "read", "__query_blackboard"))
        own["gen_ai.tool.call.id"] = draw(st.sampled_from([None, "c1", "c2", "c3"]))
        own["gen_ai.tool.call.arguments"] = draw(
            st.sampled_from([None, {"n": 1}, '{"n": 2}', '{ "n" : 1 }', "no json"])
        )
        own["gen_ai.tool.call.result"] = draw(st.sampled_from([None, "found it", {"summary": "rain", "mm": 3}, ""]))
    if kind == "agent_tool":
        own |= {"made_up.agent_tool": draw(st.sampled_from(["look", "ask"])), "gen_ai.agent.name": agent}
    if kind == "guard":
        own["made_up.guard"] = draw(often("g1", "g2"))
    if kind in ("step", "agent", "plain", "chat"):
        own["made_up.tripped"] = draw(st.sampled_from([None, "g1"]))
    if kind in ("flow", "step", "agent", "agent_tool", "plain", "tool") and draw(st.integers(0, 3)) == 0:
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
def versions_of(draw: st.DrawFn, span: Span, trace: str, changes: Sequence[str]) -> list[Span]:
    """The span, and now and then what else was sent under its id: a notice at its start, or a second end."""
    if draw(st.integers(0, 3)):
        return [span]
    other = copy.deepcopy(span)
    change = draw(st.sampled_from(changes))
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


ECHOES = ["twin", "twin", "below", "below", "elsewhere", "streamed", "failed"]
ANSWER = ("gen_ai.output.messages", "gen_ai.response.id", *TOKENS)


@st.composite
def echo_of(draw: st.DrawFn, span: Span, span_id: str, ids: list[str]) -> Span:
    """What another instrumentation tells of the same: beside it, below it, or elsewhere."""
    how = draw(st.sampled_from(ECHOES))
    if how == "twin":
        span.attributes.setdefault("gen_ai.usage.input_tokens", 10)
    if how in ("streamed", "failed"):
        answer = {key: span.attributes.pop(key) for key in ANSWER if key in span.attributes}
    other = copy.deepcopy(span)
    other.span_id, other.scope = span_id, Scope(draw(often("other", "second", "")))
    if how != "twin":
        other.parent_span_id = draw(st.sampled_from(ids)) if how == "elsewhere" else span.span_id
    for key in draw(st.lists(st.sampled_from(sorted(span.attributes) or [""]), max_size=draw(often(0, 2)))):
        other.attributes.pop(key, None)
    if span.end_ns > span.start_ns:
        other.start_ns += draw(often(10**7, 0, 10**8))
        other.end_ns -= draw(often(0, 10**7, 10**8))
    if how == "streamed":
        other.attributes |= answer or {"gen_ai.usage.input_tokens": 10}
        other.scope, other.parent_span_id, other.start_ns = span.scope, span.parent_span_id, other.end_ns
    if how == "failed":
        other.status_code, other.status_message = 2, "boom"
    return other


@st.composite
def satellite_of(draw: st.DrawFn, place: int, responses: list[str]) -> list[Span]:
    """A native SDK's span of a call in another trace, perhaps with something below it."""
    trace_id, start = hex_id(f"satellite {place}", 32), draw(st.integers(0, 9))
    made = Span(trace_id, hex_id(trace_id, 16), "", "native", 1, at(start), at(start + draw(often(1, 0, 20))))
    made.scope = Scope("native")
    made.attributes = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai"}
    made.attributes |= {"gen_ai.request.model": draw(often("gpt-4o-mini", "gpt-4o"))}
    made.attributes |= {key: value for key in TOKENS if (value := draw(TOKENS[key])) is not None}
    response = draw(st.sampled_from([*responses, "of nobody"]))
    if draw(st.integers(0, 3)):
        made.attributes["gen_ai.response.id"] = response
    else:
        made.status_code, made.status_message = 2, "overloaded"
    if draw(st.booleans()):
        return [made]
    below = copy.deepcopy(made)
    below.span_id, below.parent_span_id, below.scope = hex_id(trace_id + "below", 16), made.span_id, Scope("other")
    if draw(st.booleans()):
        below.attributes = draw(attributes_of(draw(KINDS), trace_id))
    below.attributes.pop("gen_ai.response.id", None)  # it is no host
    below.status_code = 0
    return [made, below]


@st.composite
def log_of(draw: st.DrawFn, trace: str, ids: list[str]) -> LogRecord:
    span_id = draw(st.sampled_from([*ids, *ids, "", "e" * 16]))
    made = LogRecord(hex_id(trace, 32), span_id, at(draw(st.integers(0, 3))))
    if draw(st.integers(0, 9)) == 0:
        made.trace_id = ""
    made.event_name = draw(
        st.sampled_from([DETAILS, DETAILS, "gen_ai.user.message", "gen_ai.choice", "app.note"] + ["made_up.call"] * 3)
    )
    if made.event_name == "made_up.call":
        made.attributes = {"made_up.session": draw(st.sampled_from(["s1", "s2"]))}
        made.attributes |= {"made_up.request": draw(st.sampled_from(["q1", "q2"])), "made_up.tokens": "120"}
        made.span_id = draw(st.sampled_from(["", "", "", made.span_id]))
    elif made.event_name == DETAILS:
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
    beside = draw(often(0, 0, 1, 2))
    changes = ["notice", "open", "notice", "open", "alike"]
    if not beside:  # who stops to be the same call is looked for no more
        changes.append("otherwise")
    for trace in ["one", "two", "three"][: draw(st.sampled_from([1, 1, 2, 2, 3]))]:
        count = draw(st.integers(1, most))
        ids = [hex_id(f"{'' if shared else trace}{place}", 16) for place in range(count)]
        for place in range(count):
            span = draw(span_of(trace, ids, place))
            is_call = not {"gen_ai.request.model", "gen_ai.tool.name", "made_up.agent_tool"}.isdisjoint(span.attributes)
            echoes = draw(often(0, 1, 1, 2)) if is_call else 0
            echo_ids = [hex_id(f"{'' if shared else trace}{place} echo {number}", 16) for number in range(echoes)]
            story.spans += [draw(echo_of(span, echo_id, ids)) for echo_id in echo_ids]
            story.spans += draw(versions_of(span, trace, changes))
        for _ in range(draw(st.sampled_from([0, 0, 1, 3]))):
            story.logs.append(draw(log_of(trace, ids)))
    responses = sorted({str(span.attributes.get("gen_ai.response.id", "")) for span in story.spans} - {""})
    for place in range(beside):
        story.spans += draw(satellite_of(place, responses))
    return story


def recording(name: str) -> Story:
    """What a real agent sent (../shared/captures)."""
    story = Story()
    for path in sorted((CAPTURES / name / "raw").iterdir()):
        decoder: Any = otlp_protobuf if path.suffix == ".pb" else otlp_json
        if "traces" in path.name:
            story.spans += decoder.decode_traces(path.read_bytes()).spans
        elif "logs" in path.name:
            story.logs += decoder.decode_logs(path.read_bytes()).logs
    return story


RECORDINGS = sorted(name for name in EXPECTED if (CAPTURES / name).is_dir())
needs_recordings = pytest.mark.skipif(not RECORDINGS, reason=f"not on this machine: no recordings in {CAPTURES}")


# ------------------------------------------------------------------------------------------ the tree and the reference

_BOARD = SimpleNamespace(settings=Settings())


def derived(tenant: Tenant, story: Story, chance: random.Random | None = None) -> dict[str, Any]:
    """What the product makes of all of it at once, without stores, in the shape of reference.project. `chance` puts
    records and rows into another order."""
    spans, logs = list(story.spans), list(story.logs)
    shuffle = chance.shuffle if chance is not None else list
    shuffle(spans)
    shuffle(logs)
    _, hosts, usage, _ = reference.forest(tenant, spans, logs)
    resolved, parts, rows = derive(spans, logs, tenant, hosts, usage)
    shuffle(resolved)
    shuffle(parts)
    shuffle(rows)
    answers: dict[str, Any] = {"runs": []}
    for run_id in sorted({part.run_id for part in parts}):
        run = merge_parts([part for part in parts if part.run_id == run_id], at(1000), 10**19)
        answers["runs"].append(shown_run(run))
        own = [row for row in resolved if row.run_id == run_id]
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
                for row in sorted(own, key=_span_order)
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
    for run_id in found.keys() - {"runs"}:
        for route, wanted in expected[run_id].items():
            got = found[run_id][route]
            if isinstance(wanted, list):
                wanted = wanted[: len(got)] if len(got) == 200 else wanted  # one page
                assert len(got) == len(wanted), (run_id, route, got, wanted)
                for one, other in zip(got, wanted, strict=True):
                    mark = {"earlier_attempt": one.get("metadata", {}).get("earlier_attempt", False)}
                    assert {name: (one | mark)[name] for name in other} == other, (run_id, route)
            else:  # of each agent
                asked = got.keys() & wanted.keys()
                assert {agent: got[agent] for agent in asked} == {agent: wanted[agent] for agent in asked}, (
                    run_id,
                    route,
                )


@given(stories(), st.randoms(use_true_random=False))
@settings(max_examples=10_000 if NIGHTLY else 150)
def test_the_tree_says_what_the_reference_says(story: Story, chance: random.Random) -> None:
    note(story.told())
    found = derived(TENANT, story)
    same(found, reference.project(TENANT, story.spans, story.logs))
    assert orjson.dumps(derived(TENANT, story, chance), option=_KEYS) == orjson.dumps(found, option=_KEYS)


_KEYS = orjson.OPT_NON_STR_KEYS


@needs_recordings
@pytest.mark.parametrize("name", RECORDINGS)
def test_the_tree_says_of_recordings_what_the_reference_says(name: str) -> None:
    story = recording(name)
    assert story.spans
    same(derived(TENANT, story), reference.project(TENANT, story.spans, story.logs))


# ----------------------------------------------------------------------------------------------------------- deliveries


@dataclass
class Batch:
    """One flush of some of a story's items, by their place in it."""

    items: list[int]
    worker: int = 0
    restart: bool = False
    """Whether its worker is started anew before it, on another day."""
    beside: str = "after"
    """How the next batch comes, at the other worker: 'after' it, 'threads' = while it runs, 'inside' = when it has read
    the traces back and has not yet written what it found."""
    merge: bool = False
    """Whether the engine merges its parts first."""


def delivery(chance: random.Random, count: int, most: int = 5) -> list[Batch]:
    """`count` items in any order, each one to three times, in up to `most` batches."""
    order = [place for place in range(count) for _ in range(chance.choice([1, 1, 1, 2, 3]))]
    chance.shuffle(order)
    cuts = {0, len(order), *(chance.randint(0, len(order)) for _ in range(chance.randint(1, most - 1)))}
    workers = chance.choice([1, 2, 2])
    return [
        Batch(
            order[start:end],
            worker=chance.randint(0, workers - 1),
            restart=chance.choice([False, False, True]),
            beside=chance.choice(["after", "threads", "inside"]) if workers == 2 else "after",
            merge=chance.choice([False, False, True]),
        )
        for start, end in itertools.pairwise(sorted(cuts))
    ]


WANTED = Tenant("default", "any-order")
SECRET = "the secret of the tests, 32 bytes"
DAY = 86_400 * 10**9
FAR = at(0) + 1000 * DAY
"""When everything is read."""


class Engine:
    """A database that is emptied before each delivery, up to two workers that write to it, and the API over it."""

    def __init__(self, stores: Stores) -> None:
        self.stores = stores
        self.day = 0
        self.workers: list[Exporter | None] = [None, None]
        never_idle = stores.settings.model_copy(update={"run_idle_timeout": 10_000 * 86_400})
        self.app = make_api(stores.reader, never_idle, None, lambda: "", lambda: FAR)
        self.client = TestClient(self.app, base_url="http://blackboard", follow_redirects=False)

    def worker(self, place: int) -> Exporter:
        known = self.workers[place]
        if known is None:
            known = Exporter(self.stores.settings, self.stores.bodies, lambda: at(0) + self.day * DAY)
            self.workers[place] = known
        return known

    def close_worker(self, place: int) -> None:
        known, self.workers[place] = self.workers[place], None
        if known is not None:
            known.close()

    def query(self, statement: str) -> Any:
        with self.stores.reader._clients.client() as client:
            return client.query(statement).result_rows

    def command(self, statement: str) -> None:
        with self.stores.reader._clients.client() as client:
            for table in TABLES:
                client.command(statement.format(table))

    def deliver(self, story: Story, batches: Sequence[Batch]) -> None:
        self.command("TRUNCATE TABLE {}")
        self.day = 0
        for worker in self.workers:
            if worker is not None:
                worker._cache.clear()  # of what is gone
        waiting = list(batches)
        while waiting:
            batch = waiting.pop(0)
            if batch.restart:
                self.close_worker(batch.worker)
                self.day += 1
            if batch.merge:
                self.command("OPTIMIZE TABLE {}")
            if batch.beside == "after" or not waiting:
                self.flush(story, batch.items, batch.worker)
                continue
            jobs = [(batch.items, batch.worker), (waiting.pop(0).items, 1 - batch.worker)]
            if batch.beside == "threads":
                with ThreadPoolExecutor(2) as pool:
                    for job in [pool.submit(self.flush, story, *job) for job in jobs]:
                        job.result()
            else:
                with during(self.worker(batch.worker), lambda job=jobs[1]: self.flush(story, *job)):
                    self.flush(story, *jobs[0])

    def flush(self, story: Story, places: Sequence[int], worker: int) -> None:
        items = [copy.deepcopy(story.items[place]) for place in places]
        spans = [(WANTED, item) for item in items if isinstance(item, Span)]
        logs = [(WANTED, item) for item in items if isinstance(item, LogRecord)]
        exporter = self.worker(worker)
        exporter.flush(spans, logs)
        assert exporter.derivation_failures == 0

    def rows(self) -> dict[str, list[str]]:
        """Every row that a reader can see, without when and where it was stored."""
        found: dict[str, list[str]] = {}
        for table, columns in TABLES.items():
            hidden = {"stored", "stored_at_ns", "last_stored_ns", "read_at_ns"}
            if table in ("resolved", "run_parts"):  # there it is a time
                hidden |= {"version"}
            if table == "tombstones":
                continue
            names = [column.name for column in columns if column.name not in hidden]
            rows = [list(row) for row in self.query(f"SELECT {', '.join(names)} FROM {table} FINAL")]
            if "bodies" in names:
                for row in rows:
                    bodies = read_bodies_text(row[names.index("bodies")])
                    row[names.index("bodies")] = [
                        (b.field, b.encoding, b.raw_length, b.sha256, [frame.length for frame in b.frames])
                        for b in bodies
                    ]
            found[table] = sorted(map(repr, rows))
        return found

    def json(self, path: str, **params: Any) -> Any:
        answer = self.client.get(f"/api/v1{path}", params={"project_id": WANTED.project_id, **params})
        assert answer.status_code == 200, answer.text
        return answer.json()


@contextlib.contextmanager
def during(worker: Exporter, act: Callable[[], None]) -> Iterator[None]:
    """Has `act` happen once in the worker's flush, after it has read a trace back and before it writes what it found."""
    resolve, acted = worker._resolve, []

    def at_that_moment(*trace: Any) -> Any:
        if not acted:
            acted.append(True)
            act()
        return resolve(*trace)

    worker._resolve = at_that_moment  # type: ignore[method-assign]
    try:
        yield
    finally:
        worker._resolve = resolve  # type: ignore[method-assign]
    if not acted:  # no trace was touched
        act()


@pytest.fixture(scope="module")
def engine(stores: Stores) -> Iterator[Engine]:
    """Over each store pair, in a database of its own."""
    with open_stores(stores.settings.model_copy(update={"database": "any_order"})) as opened:
        made = Engine(opened)
        yield made
        for place in (0, 1):
            made.close_worker(place)


# ---------------------------------------------------------------------------------------------------------- every route

PAGES = "pages"
"""Not a parameter of the API: follow next_cursor to the end."""

READS: dict[str, list[dict[str, Any]]] = {
    "GET /api/v1/runs": [
        {"all": True, "total": True}, {"total": True}, {"all": True, "limit": 1, PAGES: True},
        {"status": "running", "total": True}, {"status": "failed"}, {"agent_id": "a", "use_case_id": "u1"},
        {"conversation_id": "c-1", "all": True}, {"q": "NAMED", "to": "2026-09-21T14:13:23Z", "all": True},
        {"from": "2026-09-21T14:13:23Z", "all": True, "total": True}, {"q": hex_id("one", 32), "all": True},
    ],
    "GET /api/v1/runs/{run_id}": [{}],
    "GET /api/v1/runs/{run_id}/timeline": [{}, {"limit": 5, PAGES: True}, {"parent": hex_id("0", 16)}],
    "GET /api/v1/runs/{run_id}/spans/{span_id}": [{}, {"trace_id": hex_id("two", 32)}],
    "GET /api/v1/runs/{run_id}/artifacts": [
        {}, {"earlier": True}, {"earlier": True, "limit": 5, PAGES: True},
        {"kind": ["tool_result", "tool_path"], "step_id": "s"}, {"pass_seq": 2, "agent_id": "a"},
    ],
    "GET /api/v1/runs/{run_id}/artifacts/{artifact_id}": [{}],
    "GET /api/v1/runs/{run_id}/artifacts/{artifact_id}/raw": [{}],
    "GET /api/v1/runs/{run_id}/prompts": [{}, {"earlier": True}],
    "GET /api/v1/runs/{run_id}/paths": [{}],
    "GET /api/v1/runs/{run_id}/ledger": [{}, {"agent_id": "a"}, {"agent_id": ""}],
    "GET /api/v1/search": [{"q": "found"}, {"q": "said"}, {"q": "answer", "limit": 2}],
    "POST /api/v1/recall": [{"query": "the answer said look rain found it words", "top_k": 10}],
}  # fmt: skip
"""What each route is asked about all runs, spans and artifacts."""

MOST_ASKED = 1000 if NIGHTLY else 2
"""Runs that are looked into, and spans and artifacts of each that are asked for: a request costs 30 ms."""

LEFT_OUT = {
    "POST /api/v1/runs/{run_id}/tokens": "a token says when it ends",
    "GET /healthz": "about the process",
    "GET /readyz": "about the process",
    "GET /": "leads to the description",
    "GET /api/docs": "the description",
    "GET /docs/oauth2-redirect": "the description",
}


def routes_of(app: FastAPI) -> set[str]:
    found: set[str] = set()
    waiting: list[Any] = list(app.routes)
    while waiting:
        route = waiting.pop()
        router = getattr(route, "original_router", None)  # how newer versions of FastAPI keep an included router
        waiting += router.routes if router is not None else []
        if isinstance(route, APIRoute):
            found |= {f"{method} {route.path}" for method in route.methods}
    return found


def test_every_read_route_is_asked(engine: Engine) -> None:
    """A new route is asked by these tests, or left out by name."""
    assert routes_of(engine.app) == READS.keys() | LEFT_OUT.keys()


def answers(engine: Engine, story: Story) -> dict[str, Any]:
    """What every route answers: request → (status, location, bytes)."""
    return dict(_ask_everything(engine, story))


def _ask_everything(engine: Engine, story: Story) -> Iterator[tuple[str, Any]]:
    def all_of(route: str, **places: str) -> Iterator[tuple[str, Any]]:
        path = route.removeprefix("GET ").format(**places)
        for asked in READS[route]:
            params = {"project_id": WANTED.project_id} | asked
            follow = params.pop(PAGES, False)
            cursor: str | None = ""
            while cursor is not None:
                answer = engine.client.get(path, params=params | ({"cursor": cursor} if cursor else {}))
                yield (
                    _request(path, asked, cursor),
                    (answer.status_code, answer.headers.get("location"), answer.content),
                )
                cursor = answer.json()["next_cursor"] if follow else None

    yield from all_of("GET /api/v1/runs")
    yield from all_of("GET /api/v1/search")
    runs = [run["run_id"] for run in engine.json("/runs", all=True, limit=1000)["runs"]]
    for trace_id in sorted({item.trace_id for item in story.items if item.trace_id}):
        if f"run_{trace_id}" not in runs:
            yield from all_of("GET /api/v1/runs/{run_id}", run_id=f"run_{trace_id}")
    for run_id in runs[:MOST_ASKED]:
        artifacts = engine.json(f"/runs/{run_id}/artifacts", limit=1000, earlier=True)["artifacts"]
        ids = {
            "span_id": {span["span_id"] for span in engine.json(f"/runs/{run_id}/timeline", limit=1000)["spans"]},
            "artifact_id": {each["artifact_id"] for each in artifacts},
        }
        for route in READS:
            named = next((name for name in ids if f"{{{name}}}" in route), None)
            if named is not None:
                for place in sorted(ids[named])[:MOST_ASKED]:
                    yield from all_of(route, run_id=run_id, **{named: place})
            elif "{run_id}" in route:
                yield from all_of(route, run_id=run_id)
        context = tokens.RunContext(WANTED, run_id, "", ("query_blackboard",))
        token, _ = tokens.make(SECRET, context, FAR / 1e9, 1000)
        for body in READS["POST /api/v1/recall"]:
            answer = engine.client.post("/api/v1/recall", json=body, headers={"Authorization": f"Bearer {token}"})
            yield f"recall {run_id} {body}", (answer.status_code, None, answer.content)


def _request(path: str, asked: dict[str, Any], cursor: str = "") -> str:
    return f"{path} {asked} {cursor}"


def in_shape(found: dict[str, Any]) -> dict[str, Any]:
    """The answers in the shape of reference.project, of the runs that were looked into."""

    def answer(path: str, asked: dict[str, Any], name: str) -> Any:
        return orjson.loads(found[_request(f"/api/v1/runs{path}", asked)][2])[name]

    shaped: dict[str, Any] = {"runs": answer("", {"all": True, "total": True}, "runs")}
    for run_id in [run["run_id"] for run in shaped["runs"]][:MOST_ASKED]:
        path = f"/{run_id}"
        artifacts = answer(f"{path}/artifacts", {}, "artifacts")
        everything = answer(f"{path}/artifacts", {"earlier": True}, "artifacts")
        shaped[run_id] = {
            "timeline": answer(f"{path}/timeline", {}, "spans"),
            "artifacts": artifacts,
            "replaced": [each for each in everything if each not in artifacts],
            "prompts": answer(f"{path}/prompts", {}, "prompts"),
            "paths": answer(f"{path}/paths", {}, "paths"),
            "ledger": {
                asked.get("agent_id"): answer(f"{path}/ledger", asked, "lines")
                for asked in READS["GET /api/v1/runs/{run_id}/ledger"]
            },
        }
    return shaped


# ------------------------------------------------------------------------------------------------------------- promises


def assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    for name in expected:
        assert found.get(name) == expected[name], name
    assert found.keys() == expected.keys()


def told(story: Story, ways: Sequence[Sequence[Batch]]) -> str:
    return "\n".join([story.told(), *(f"way {place}: {batch}" for place, way in enumerate(ways) for batch in way)])


def at_once(story: Story) -> list[Batch]:
    return [Batch(list(range(len(story.items))))]


with_stores = settings(suppress_health_check=list(HealthCheck), print_blob=True)
orders = st.randoms(use_true_random=False)


@given(stories(most=6), orders)
@settings(with_stores, max_examples=150 if NIGHTLY else 6)
def test_rows_are_the_same_in_any_order(engine: Engine, story: Story, chance: random.Random) -> None:
    ways = [delivery(chance, len(story.items)) for _ in range(3)]
    note(told(story, ways))
    engine.deliver(story, at_once(story))
    rows = engine.rows()
    for way in ways:
        engine.deliver(story, way)
        assert_same(engine.rows(), rows)


@given(stories(most=6), orders)
@settings(with_stores, max_examples=40 if NIGHTLY else 4)
def test_every_route_answers_the_same_in_any_order(engine: Engine, story: Story, chance: random.Random) -> None:
    way = delivery(chance, len(story.items))
    note(told(story, [way]))
    read_alike(engine, story, [way])


@needs_recordings
@pytest.mark.parametrize("name", RECORDINGS if NIGHTLY else ["agent-framework-1.23"])
def test_recordings_read_the_same_in_any_order(engine: Engine, name: str) -> None:
    story = recording(name)
    way = delivery(random.Random(name), len(story.items), most=8)
    read_alike(engine, story, [way])


def read_alike(engine: Engine, story: Story, ways: Sequence[Sequence[Batch]]) -> None:
    engine.deliver(story, at_once(story))
    expected, rows = answers(engine, story), engine.rows()
    assert {status for status, _, _ in expected.values()} <= {200, 307, 404}
    same(in_shape(expected), reference.project(WANTED, story.spans, story.logs, bodies=True))
    for way in ways:
        engine.deliver(story, way)
        assert_same(engine.rows(), rows)
        assert_same(answers(engine, story), expected)
