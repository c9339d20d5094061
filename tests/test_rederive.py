"""A store read by a poorer reader and then anew answers as one that the better reader read at once."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import math
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import given
from starlette.testclient import TestClient

from otel_blackboard.exporter import flush, preparation, rederive
from otel_blackboard.exporter.flush import Exporter
from otel_blackboard.exporter.rederive import Progress, Wanted
from otel_blackboard.exporter.tables import LOG_ROW, SPAN_ROW
from otel_blackboard.processor import content, precedence, reading, row_text
from otel_blackboard.processor.dialects import BY_FACT, BY_FIELD, Dialect, genai
from otel_blackboard.processor.dialects.dialect import CHAT, TOOL, Role
from otel_blackboard.processor.reading import LogReading, SpanReading, log_identity, read_log, read_span
from otel_blackboard.processor.restoring import Owners, restored_log, restored_span
from otel_blackboard.processor.tree import READER_VERSION
from otel_blackboard.processor.unread import FAILED, as_sent, unread
from otel_blackboard.query.api import make_api
from otel_blackboard.records import Attributes, Body, Event, InvalidText, Link, LogRecord, Span, Tenant
from otel_blackboard.service import Stores, open_stores
from tests import recordings
from tests.effort import NIGHTLY
from tests.fuzzing import any_log, any_span, fuzz
from tests.spans import DETAILS, START, Trace, at, hex_id

TENANT = Tenant("default", "default")
NOW = START + 3600 * 10**9
_databases = itertools.count(1)


# ----------------------------------------------------------------------------------------------------------- restoring


def columns_of(read: SpanReading | LogReading, name: str) -> dict[str, Any]:
    """The row as a store gives it back, with content in place of where it lies."""
    columns = SPAN_ROW if isinstance(read, SpanReading) else LOG_ROW
    row: dict[str, Any] = dict(zip((column.name for column in columns), read.row, strict=False))
    light = {f.name: getattr(read.light, f.name) for f in dataclasses.fields(read.light)}
    bodies = [Body(each.field, (), len(each.data), each.digest(), each.encoding) for each in read.contents]
    return light | row | {"bodies": bodies} | ({"name": name} if name else {})


def said(read: SpanReading | LogReading) -> list[Any]:
    return [(each.kind, each.field, each.encoding, each.data) for each in read.contents]


def check_span(span: Span) -> None:
    read = read_span(TENANT, span)
    row = columns_of(read, read.light.name)
    again = read_span(TENANT, restored_span(row, [each.data for each in read.contents], Owners()))
    if span.kind in range(256) and span.status_code in range(256) and span.flags < 2**32:  # what the columns take
        assert again.light.version == read.light.version
    for each in (again, read):
        each.light.version = 0
        for draft in each.drafts:
            draft.row.version = 0
    assert again.light == read.light
    assert again.row == read.row
    assert said(again) == said(read)
    assert again.drafts == read.drafts


def check_log(record: LogRecord) -> None:
    read = read_log(TENANT, record)
    again = read_log(TENANT, restored_log(columns_of(read, ""), [each.data for each in read.contents], Owners()))
    if record.time_ns and record.severity_number in range(256) and record.flags < 2**32:
        assert again.light == read.light
    again.light.record_sha256, again.light.version = read.light.record_sha256, read.light.version
    assert again.light == read.light
    assert again.row == read.row
    assert said(again) == said(read)


def check_unread_span(span: Span) -> None:
    """What the reader fails on is kept as whole as anything else."""
    read, expected = read_span(TENANT, unread(span)), read_span(TENANT, span)
    again = restored_span(columns_of(read, read.light.name), [each.data for each in read.contents], Owners())
    found = read_span(TENANT, again)
    assert (found.row, said(found)) == (expected.row, said(expected))


def check_unread_log(record: LogRecord) -> None:
    read, expected = read_log(TENANT, unread(record)), read_log(TENANT, record)
    again = restored_log(columns_of(read, ""), [each.data for each in read.contents], Owners())
    found = read_log(TENANT, again)
    assert (found.row, said(found)) == (expected.row, said(expected))
    assert log_identity(TENANT, record) == (expected.light.version, expected.light.record_sha256)


def test_a_piece_that_no_json_can_say_is_kept_as_python_shows_it() -> None:
    span = Trace("surrogate").span("x", some__key="\ud800", other=1)
    span.links.append(Link("ab" * 16, "cd" * 8))
    kept = unread(span)
    assert "'other': 1" in str(kept.attributes["repr(attributes)"]) and kept.attributes["links"]
    assert as_sent(kept) is kept
    assert json.loads(read_span(TENANT, kept).row[6])[FAILED] is True


def test_a_stored_row_gives_back_the_record_that_arrived() -> None:
    @given(any_span(), any_log())
    def check(span: Span, record: LogRecord) -> None:
        check_span(span)
        check_log(record)
        check_unread_span(span)
        check_unread_log(record)

    fuzz(0.05, 150, check)


def test_what_the_row_cuts_or_escapes_is_put_together_again() -> None:
    for span in story().spans:
        check_span(span)
        check_unread_span(span)
    for record in story().logs:
        check_log(record)
        check_unread_log(record)


# -------------------------------------------------------------------------------------------------------------- stores


def story() -> Trace:
    """One run with every way in which content stands in a row."""
    trace = Trace(resource={"service.name": "agent", "long": "r" * 9_000, "bytes": b"\x00\xff"})
    run = trace.span("n" * 3_000, 0, 30, gen_ai__operation__name="invoke_workflow", gen_ai__workflow__name="travel")
    agent = trace.agent("planner", 1, 29, run, gen_ai__output__messages='[{"role":"assistant","content":"Sunny."}]')
    trace.chat(
        2, 5, agent, tokens=(120, 18), asks=[("c1", "get_weather", {"city": "Paris"})], prompt="Weather in Paris?",
        gen_ai__system_instructions='[{"type":"text","content":"Be brief."}]',
        gen_ai__tool__definitions='[{"type":"function","name":"get_weather"}]',
    )  # fmt: skip
    tool = trace.tool(
        "get_weather", 6, 7, agent, '{"city":"Paris"}', {"temp": 22, "$content": 1, "nan": math.nan}, "c1"
    )
    tool.events.append(Event(at(6.5), "progress", {"content": "half", "long": "e" * 6_000, "$bytes": "x"}, 2))
    tool.links.append(Link("ab" * 16, "cd" * 8, "x=1", {"$content": 5, "why": b"\x01"}, 1, 3))
    old = trace.span(
        "old chat", 8, 9, agent, gen_ai__system="openai", gen_ai__request__model="gpt-4o-mini",
        gen_ai__usage__prompt_tokens="120", gen_ai__usage__completion_tokens="18",
    )  # fmt: skip
    old.attributes |= {
        "gen_ai.prompt.0.role": "user", "between": 1.5, "gen_ai.prompt.0.content": "Hello", "gen_ai.prompt.*": "mine",
        "gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": "It is 22C.", "text": InvalidText(b"\xff"),
        "none": None, "name": "m" * 5_000, "$duplicates": [["between", 1]], "nested": {"$double": "mine", "a": [1, b"2"]},
        "resource.attributes.long": "z" * 5_000,
    }  # fmt: skip
    failed = trace.tool("fail", 10, 11, agent, '{"x":1}', error="broke: " + "s" * 6_000)
    failed.dropped_attributes_count, failed.dropped_links_count, failed.flags = 3, 1, 257
    logged = trace.span(
        "chat logged", 12, 13, agent, gen_ai__operation__name="chat", gen_ai__request__model="gpt-4o-mini"
    )
    trace.log(logged, "gen_ai.user.message", 12.1, {"content": "And tomorrow?"}, gen_ai__system="openai")
    trace.log(logged, "gen_ai.choice", 12.9, {"index": 0, "message": {"content": "Rain.", "role": "assistant"}})
    trace.log(
        logged, DETAILS, 12.95, None, gen_ai__usage__input_tokens=9, gen_ai__usage__output_tokens=2,
        gen_ai__response__model="gpt-4o-mini", gen_ai__input__messages=[{"role": "user", "parts": []}],
    )  # fmt: skip
    trace.span("plain", 14, 15, run, some__thing="large " * 2_000)
    trace.step("writer", 20, 21, run, step_id="draft", seq=3, gen_ai__output__messages="Written.")
    open_ = trace.span("open", 16, 17, run, gen_ai__operation__name="invoke_agent", gen_ai__agent__name="late")
    open_.end_ns = 0
    loose = trace.log(run, "", 18, "a line of text", answer=42)
    loose.span_id = "ee" * 8
    nowhere = trace.log(run, "app.event", 0, {"a": 1})
    nowhere.trace_id = nowhere.span_id = ""
    nowhere.time_ns, nowhere.observed_time_ns = 0, at(19)
    return trace


Flush = tuple[Sequence[Span], Sequence[LogRecord]]


@pytest.fixture
def database(stores: Stores) -> Iterator[Callable[[], Stores]]:
    """Opens stores of their own beside the shared ones, as often as asked, with a clock that stands still."""
    with contextlib.ExitStack() as opened:

        def new() -> Stores:
            settings = stores.settings.model_copy(update={"database": f"rederive_{next(_databases)}"})
            made = opened.enter_context(open_stores(settings))
            made.exporter._clock_ns = lambda: NOW
            return made

        yield new
    recordings.api_of.cache_clear()


@contextlib.contextmanager
def reader(*dialects: Dialect, version: int = 1, knows_content: bool = True) -> Iterator[None]:
    """A poorer reader. `knows_content` False: no key is known as content."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (precedence, reading, row_text):
            for name in ("BY_FIELD", "BY_ROLE"):
                patch.setattr(module, name, dialects, raising=False)
        by_fact = {fact: tuple(each for each in first if each in dialects) for fact, first in BY_FACT.items()}
        patch.setattr(precedence, "BY_FACT", by_fact)
        if not knows_content:
            patch.setattr(content, "KEYS", frozenset())
            patch.setattr(content, "FAMILIES", re.compile("(never)"))
        for module in (flush, rederive):
            patch.setattr(module, "READER_VERSION", version)
        forget()
        yield
    forget()


def forget() -> None:
    precedence._known_shape.cache_clear()
    content._family.cache_clear()
    content._is_content.cache_clear()


def everything_is_a_tool(span: Span) -> Role:
    return Role(TOOL, "execute_tool")


FANCIFUL = Dialect(
    name="fanciful",
    keys=("gen_ai.", "some.", "blackboard."),
    role=everything_is_a_tool,
    facts={"tool_name": ("gen_ai.request.model", "some.thing")},
    content={"result": ("gen_ai.output.messages", "some.thing", "gen_ai.completion.*"), "arguments": ("between",)},
    labels={"wrong": ("gen_ai.operation.name",)},
    log_spans=lambda record, event_name: (
        [Span("fa" * 16, hex_id(event_name, 16), name="made up", start_ns=at(1), end_ns=at(2),
              attributes={"gen_ai.request.model": event_name, "some.thing": "invented"}, scope=record.scope)]
        if event_name else []
    ),
)  # fmt: skip
"""A reader that finds what is not there."""

POORER: dict[str, dict[str, Any]] = {
    "reads nothing": {"dialects": (), "knows_content": False},
    "knows the conventions alone": {"dialects": (genai.DIALECT,)},
    "does not read events": {
        "dialects": (dataclasses.replace(genai.DIALECT, event=lambda event: [], log=lambda r, n: []),)
    },
    "finds what is not there": {"dialects": (FANCIFUL,), "knows_content": False},
}


def poorer(name: str, version: int = 1) -> contextlib.AbstractContextManager[None]:
    given = dict(POORER[name])
    return reader(*given.pop("dialects"), version=version, **given)


def everything(stores: Stores, project: str = "default") -> dict[str, Any]:
    """The answer of every read route."""
    client = TestClient(make_api(stores.reader, stores.settings, None, lambda: "", lambda: NOW), follow_redirects=False)
    said: dict[str, Any] = {}

    def ask(path: str, **query: Any) -> Any:
        answer = client.get(f"/api/v1{path}", params={"project_id": project, **query})
        said[f"{path} {query}"] = (answer.status_code, answer.text)
        return answer.json()

    for run in ask("/runs", all=True, limit=1000, total=True)["runs"]:
        base = f"/runs/{run['run_id']}"
        ask(base)
        for span in ask(base + "/timeline", limit=1000)["spans"]:
            ask(f"{base}/spans/{span['span_id']}", trace_id=span["trace_id"])
        for artifact in ask(base + "/artifacts", earlier=True, limit=1000)["artifacts"]:
            ask(f"{base}/artifacts/{artifact['artifact_id']}")
        for path in ("/prompts", "/ledger", "/paths"):
            ask(base + path)
    for words in ("paris", "sunny", "rain", "large", "invented", "22c", "broke"):
        ask("/search", q=words)
    return said


def same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for path, answer in expected.items():
        assert found[path] == answer, path


def parsed(answers: dict[str, Any]) -> dict[str, Any]:
    return {path: (status, json.loads(text)) for path, (status, text) in answers.items()}


def put(stores: Stores, flushes: Sequence[Flush]) -> None:
    for spans, logs in flushes:
        stores.exporter.flush([(TENANT, span) for span in spans], [(TENANT, record) for record in logs])


def anew(stores: Stores, **wanted: Any) -> Progress:
    now = stores.exporter._clock_ns() + 1
    stores.exporter._clock_ns = lambda: now
    return rederive.rederive(stores.exporter, stores.bodies, stores.settings, Wanted(**wanted))


def flushes_of_story() -> list[Flush]:
    """Some spans come first as they were while they ran; logs before and after their spans."""
    trace = story()
    early = dataclasses.replace(trace.spans[1], end_ns=0, attributes={"gen_ai.operation.name": "invoke_agent"})
    return [([early], trace.logs[:1]), (trace.spans[3:], trace.logs[1:]), (trace.spans[:3], ())]


def rows_of(stores: Stores, table: str) -> list[Any]:
    columns = [c.name for c in flush.TABLES[table] if c.name not in ("read_at_ns", "version")]
    sql = f"SELECT {', '.join(columns)} FROM {table} FINAL ORDER BY ALL"
    return [tuple(row) for row in stores.exporter._clients["read"].query(sql).result_rows]


@pytest.mark.parametrize("how", POORER)
def test_what_is_read_anew_answers_as_if_it_had_been_read_well_at_once(
    how: str, database: Callable[[], Stores]
) -> None:
    well, poorly = database(), database()
    put(well, flushes_of_story())
    expected = everything(well)
    with poorer(how):
        put(poorly, flushes_of_story())
    assert everything(poorly) != expected
    before = [each.key for each in poorly.bodies.list("")]
    done = anew(poorly)
    assert (done.left, done.records) == (0, done.all_records)
    same(everything(poorly), expected)

    # Content that was there stays where it is; new packs hold only what the better reader took out of it.
    assert set(before) <= {each.key for each in poorly.bodies.list("")}
    stored, kept = rows_of(poorly, "spans"), rows_of(poorly, "artifacts")
    packs = [each.key for each in poorly.bodies.list("")]
    again = anew(poorly)
    assert (again.traces, again.all_records) == (0, 0)
    anew(poorly, all=True)
    same(everything(poorly), expected)
    assert [each.key for each in poorly.bodies.list("")] == packs
    assert rows_of(poorly, "spans") == stored
    assert rows_of(poorly, "artifacts") == kept


def test_what_comes_again_or_late_after_it_changes_nothing(database: Callable[[], Stores]) -> None:
    well, poorly = database(), database()
    put(well, flushes_of_story())
    expected = everything(well)
    first, *others = flushes_of_story()
    with poorer("reads nothing"):
        put(poorly, [first, others[0]])
    anew(poorly)
    put(poorly, others)
    put(poorly, [first, *others])
    same(everything(poorly), expected)


def test_a_span_that_comes_before_it_does_not_hide_that_the_others_were_read_by_an_older_reader(
    database: Callable[[], Stores],
) -> None:
    well, poorly = database(), database()
    put(well, flushes_of_story())
    first, *others = flushes_of_story()
    with poorer("reads nothing"):
        put(poorly, [first, others[0]])
    put(poorly, others[1:])
    assert anew(poorly).records
    same(everything(poorly), everything(well))


def test_spans_made_of_log_records_that_stand_for_no_call_are_gone(database: Callable[[], Stores]) -> None:
    stores = database()
    with poorer("finds what is not there"):
        put(stores, flushes_of_story())
    assert "made up" in str(everything(stores))
    assert anew(stores).gone == 3 + 1  # each event name once
    assert not [path for path, answer in everything(stores).items() if "made up" in str(answer)]
    assert rows_of(stores, "resolved")
    assert not [row for table in ("spans", "resolved") for row in rows_of(stores, table) if "fa" * 16 in row]

    # And those that an older reader did not find are made.
    with poorer("finds what is not there", version=READER_VERSION + 1):
        assert anew(stores).left == 0
        found = everything(stores)
    with poorer("finds what is not there", version=READER_VERSION + 1):
        fresh = database()
        put(fresh, flushes_of_story())
        # A family that one reader knows stands together in the row: what was sent between its keys comes after it.
        same(parsed(found), parsed(everything(fresh)))


@pytest.mark.parametrize("failing", ["read_span", "read_log"])
def test_what_the_reader_failed_on_is_read_when_it_no_longer_does(
    failing: str, database: Callable[[], Stores], monkeypatch: pytest.MonkeyPatch
) -> None:
    well, poorly = database(), database()
    put(well, flushes_of_story())
    expected = everything(well)
    read = getattr(preparation, failing)

    def fails(tenant: Tenant, record: Any) -> Any:
        if FAILED not in record.attributes:
            raise ValueError("a fault of ours")
        return read(tenant, record)

    with reader(*BY_FIELD), monkeypatch.context() as patch:
        patch.setattr(preparation, failing, fails)
        put(poorly, flushes_of_story())
    assert everything(poorly) != expected
    assert anew(poorly).left == 0
    same(everything(poorly), expected)
    put(poorly, flushes_of_story())  # it is the same record
    same(everything(poorly), expected)


# ----------------------------------------------------------------------------------------- calls that log records stand for


def calls_by(key: str) -> Dialect:
    """Its log records stand for the calls that this attribute names, as `trace span`."""

    def log_spans(record: LogRecord, event_name: str) -> list[Span]:
        calls = str(record.attributes.get(key, "")).split(",")
        names = [call.split() for call in calls if call]
        return [
            Span(hex_id(trace, 32), hex_id(span, 16), "", "call", 1, at(1), at(2), attributes=dict(record.attributes))
            for trace, span in names
        ]

    return Dialect(name="made up", keys=("made_up.",), role=lambda span: CHAT, facts={}, log_spans=log_spans)


def call(time: float, seen: float = 0, **named: str) -> LogRecord:
    """Two that differ in when they were seen stand for the very same call."""
    attributes: Attributes = {f"made_up.{reader}": calls for reader, calls in named.items()}
    return LogRecord("", "", at(time), at(seen), event_name="made_up.call", attributes=attributes)


def made_of(stores: Stores) -> list[Any]:
    sql = "SELECT trace_id, span_id, labels FROM spans FINAL WHERE organization_id = 'default' ORDER BY ALL"
    return list(stores.exporter._clients["read"].query(sql).result_rows)


BETTER: dict[str, Sequence[LogRecord]] = {
    "another record stands for a span": (call(1, old="t k0", new="t k1"), call(2, old="t k1", new="t k2")),
    "each for what the other one stood for": (call(1, old="t k1", new="t k2"), call(2, old="t k2", new="t k1")),
    "several for one that there was not": (call(1, new="t k"), call(1, 2, new="t k"), call(1, 3, new="t k")),
    "several for one": (call(1, old="t k", new="t k"), call(1, 2, old="t k", new="t k")),
    "several that say different things": (call(1, new="t k"), call(1, new="t k", more="x")),
    "one that had won no more": (call(1, old="t k", new="t k"), call(2, old="t k", new="t l"), call(3, new="t k")),
}


@pytest.mark.parametrize("how", BETTER)
def test_calls_made_of_log_records_of_any_days_are_those_of_a_store_read_well_at_once(
    how: str, database: Callable[[], Stores]
) -> None:
    old, new = calls_by("made_up.old"), calls_by("made_up.new")
    records = BETTER[how]
    well = database()
    with reader(new, version=READER_VERSION):
        put(well, [([], records)])
    for days in itertools.product((0, 1), repeat=len(records)):
        poorly = database()
        with reader(old, version=1):
            for day, record in zip(days, records, strict=True):
                receive(poorly, day, [], [record])
        with reader(new, version=READER_VERSION):
            anew(poorly)
            assert made_of(poorly) == made_of(well), days
            anew(poorly, all=True)
            assert made_of(poorly) == made_of(well), days


def test_a_span_that_is_gone_takes_no_other_with_it(
    database: Callable[[], Stores], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other spans of two traces that have one such span each, a log record about one, and what comes meanwhile."""
    stores = database()
    sent = [
        Span(hex_id(trace, 32), hex_id(span, 16), "", f"{trace} {span}", 1, at(1), at(2), attributes={"x": "y"})
        for trace, span in (("a", "2"), ("b", "1"), ("c", "3"))
    ]
    about = LogRecord(hex_id("a", 32), hex_id("1", 16), at(1), event_name="gen_ai.user.message", body={"content": "Hi"})
    with reader(calls_by("made_up.old"), genai.DIALECT, version=1):
        put(stores, [(sent[:2], [call(1, old="a 1,b 2,c 3"), about])])
    drop = rederive._Rederivation._drop

    def late(self: Any, tenant: Tenant, rows: Any) -> None:
        put(stores, [(sent[2:], [])])  # whoever made the record sends the span itself
        drop(self, tenant, rows)

    monkeypatch.setattr(rederive._Rederivation, "_drop", late)
    kept = [row for row in rows_of(stores, "artifacts") if row[5]]
    with reader(genai.DIALECT, version=READER_VERSION):
        assert anew(stores).gone == 3
    assert [row[:2] for row in made_of(stores)] == sorted((span.trace_id, span.span_id) for span in sent)
    assert [row for row in rows_of(stores, "artifacts") if row[5]] == kept != []
    assert len(rows_of(stores, "resolved")) == 3


# ---------------------------------------------------------------------------------------------------- stopped, and beside


class Killed(BaseException):
    pass


@contextlib.contextmanager
def dying(after: int) -> Iterator[list[int]]:
    """Gone after so many writes: what was done by then is in the stores, and nothing else of it is anywhere."""
    left = [after]

    def counted(act: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            if left[0] <= 0:
                raise Killed
            left[0] -= 1
            return act(*args, **more)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for module in (flush, rederive):
            patch.setattr(module, "insert", counted(module.insert))
        patch.setattr(flush, "write_packs", counted(flush.write_packs))
        yield left


def small_run() -> list[Flush]:
    trace = Trace("small")
    run = trace.flow("flow", 0, 9)
    agent = trace.agent("planner", 1, 8, run, gen_ai__output__messages='[{"role":"assistant","content":"Sunny."}]')
    trace.chat(2, 3, agent, tokens=(120, 18), prompt="Weather in Paris?")
    return [(trace.spans[:2], ()), (trace.spans[2:], ())]


@pytest.mark.parametrize("late", [False, True])
def test_stopped_after_any_write_and_run_again_it_is_whole(
    late: bool, database: Callable[[], Stores], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`late`: the service was upgraded while the run went on, so its runs are derived by the reader of now."""
    flushes, step = (small_run(), 1) if late else (flushes_of_story(), 1 if NIGHTLY else 13)
    if not late:
        monkeypatch.setattr(rederive, "PAGE", 4)
    well, poorly = database(), database()
    put(well, flushes)
    expected = everything(well)
    with poorer("finds what is not there"):
        put(poorly, flushes)
    for after in itertools.count(0, step):
        if late:
            put(poorly, flushes[-1:])
        assert everything(poorly) != expected
        with dying(after):
            try:
                anew(poorly)
                ended = True
            except Killed:
                ended = False
        if not ended:
            anew(poorly)
        same(everything(poorly), expected)
        assert anew(poorly).traces == 0
        if ended:
            break
        with poorer("finds what is not there", version=1):
            anew(poorly, all=True)  # a poorer reader makes it poor again
    assert after > (5 if late else 8)


def put_and_lose(stores: Stores, span: Span) -> None:
    before = {each.key for each in stores.bodies.list("")}
    put(stores, [([span], [])])
    lost = [each.key for each in stores.bodies.list("") if each.key not in before]
    assert lost
    for key in lost:
        stores.bodies.delete(key)


@pytest.mark.parametrize("moment", [0, 1])
@pytest.mark.parametrize("how", ["an older reader", "the same reader", "content that is gone"])
def test_a_worker_that_remembers_rows_as_they_were_does_not_undo_it(
    how: str, moment: int, database: Callable[[], Stores]
) -> None:
    """It reads the trace back in the midst of the rederivation's look at it, and writes when all else has ended."""
    well, stores = database(), database()
    trace = Trace("small")
    late = [trace.tool(f"late {number}", 10 + number, arguments='{"x":1}', result="y") for number in range(2)]
    lost = trace.chat(20, 21, tokens=(7, 7), prompt="Gone")
    for span, span_id in zip((*late, lost), ("e1", "e2", "e3"), strict=True):
        span.span_id = span_id * 8
    put(well, [*small_run(), (late, [])])
    with poorer("reads nothing", version=READER_VERSION if how == "the same reader" else 1):
        put(stores, small_run())
    if how == "content that is gone":
        put_and_lose(well, lost)
        with reader(*BY_FIELD, version=1):
            put_and_lose(stores, lost)
    expected = everything(well)
    worker, other = (Exporter(stores.settings, stores.bodies, lambda: NOW) for _ in range(2))
    worker.flush([(TENANT, late[0])], [])
    looks, in_worker, in_other = itertools.count(), worker._resolve, other._resolve
    looked, done = threading.Event(), threading.Event()
    writing = threading.Thread(target=lambda: worker.flush([(TENANT, late[1])], []))

    def slowly(*given: Any) -> Any:
        looked.set()
        assert done.wait(60)
        return in_worker(*given)

    def at_that_moment(*given: Any) -> Any:
        if next(looks) == moment:
            worker._resolve = slowly  # type: ignore[method-assign]
            writing.start()
            assert looked.wait(60)
            worker._resolve = in_worker  # type: ignore[method-assign]
        return in_other(*given)

    other._resolve = at_that_moment  # type: ignore[method-assign]
    try:
        rederive.rederive(other, stores.bodies, stores.settings, Wanted(all=how == "the same reader"))
        assert next(looks) > moment
        done.set()
        writing.join()
        same(everything(stores), expected)
        worker.flush([(TENANT, late[0])], [])
        same(everything(stores), expected)
    finally:
        done.set()
        worker.close()
        other.close()


# --------------------------------------------------------------------------------------------------- which, and how much


DAY = 24 * 3600 * 10**9


def receive(stores: Stores, day: int, spans: Sequence[Span], logs: Sequence[LogRecord] = ()) -> None:
    """So many days after NOW."""
    clock = stores.exporter._clock_ns
    stores.exporter._clock_ns = lambda: NOW + day * DAY
    put(stores, [(spans, logs)])
    stores.exporter._clock_ns = clock


def date_of(day: int) -> date:
    return datetime.fromtimestamp((NOW + day * DAY) / 1e9, UTC).date()


def test_many_days_are_few_inserts_and_runs_keep_their_day(
    database: Callable[[], Stores], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rederive, "PAGE", 8)
    stores = database()
    days = {Trace(f"{number}").trace_id: number % 3 for number in range(24)}
    with reader(*BY_FIELD):
        for day in range(3):
            receive(stores, day, [Trace(f"{n}").chat(tokens=(1, 1), prompt="Hi") for n in range(24) if n % 3 == day])
    inserted: list[str] = []
    insert = flush.insert
    monkeypatch.setattr(
        flush, "insert", lambda client, table, *rest: inserted.append(table) or insert(client, table, *rest)
    )
    assert anew(stores).records == 24
    assert [inserted.count(table) for table in ("spans", "artifacts")] == [3, 3]
    assert inserted.count("run_parts") == (3 if stores.exporter._alone else 6)
    for table in ("spans", "resolved", "run_parts"):
        found = stores.exporter._clients["read"].query(f"SELECT trace_id, stored FROM {table} FINAL").result_rows
        assert dict(found) == {trace_id: date_of(day) for trace_id, day in days.items()}


class Watched:
    """A client that keeps what it is asked."""

    def __init__(self, client: Any) -> None:
        self.client, self.asked = client, list[tuple[str, Any]]()

    def query(self, sql: str, parameters: Any) -> Any:
        self.asked.append((sql, parameters))
        return self.client.query(sql, parameters=parameters)


@pytest.mark.parametrize("trace_id", ["", "ab" * 16])
def test_a_page_of_a_large_trace_reads_that_page_alone(
    trace_id: str, database: Callable[[], Stores], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All log records without a trace are one trace to it."""
    stores = database()
    client = Watched(stores.exporter._clients["read"])
    rows, granule = 40_960, 1_024
    client.client.command(
        "INSERT INTO logs (organization_id, project_id, trace_id, record_sha256, stored, reader_version) "
        f"SELECT 'default', 'default', '{trace_id}', hex(sipHash128(number)), '2026-01-01', 1 FROM numbers({rows})"
    )
    monkeypatch.setattr(rederive, "MOST_KEYS", 10_000)
    monkeypatch.setattr(rederive, "PAGE", granule)
    batch = rederive._Batch(TENANT, {"0" * 32: date_of(0), trace_id: date_of(0), "f" * 32: date_of(0)})
    all_of = rederive._Rederivation(
        stores.exporter, stores.bodies, stores.settings, client, Wanted(), lambda progress: None  # type: ignore[arg-type]
    )  # fmt: skip
    found = [row["record_sha256"] for page in all_of._pages("logs", rederive._LOG_COLUMNS, batch) for row in page]
    assert found == sorted(set(found)) and len(found) == rows
    whole, parts = 0, []
    for sql, parameters in client.asked:
        lines = [row[0] for row in client.client.query(f"EXPLAIN indexes = 1 {sql}", parameters=parameters).result_rows]
        granules = [line for line in lines if "Granules: " in line][-1].rpartition(": ")[2].split("/")
        if "LIMIT" in sql:
            whole += int(granules[0])
        else:
            parts.append(int(granules[0]))
    assert len(parts) >= rows / granule and max(parts) <= 3
    assert whole <= 2.6 * rows / granule  # of four looks for keys each goes through what is left


def test_a_trace_counts_from_the_last_day_on_which_something_of_it_came(database: Callable[[], Stores]) -> None:
    stores = database()
    trace, other = Trace("two days"), Trace("one day")
    with reader(*BY_FIELD):
        receive(stores, 0, [trace.chat(tokens=(1, 1)), other.chat(tokens=(1, 1))])
    receive(stores, 1, [trace.chat(1, 2, tokens=(1, 1))])
    assert anew(stores, since=date_of(2)).all_records == 0
    assert anew(stores, since=date_of(1)).all_records == 1
    assert anew(stores, since=date_of(0)).all_records == 1
    assert anew(stores, since=date_of(0)).all_records == 0


def test_only_what_is_asked_for_is_read_anew(database: Callable[[], Stores]) -> None:
    stores = database()
    other, elsewhere = Tenant("default", "other"), Tenant("elsewhere", "other")
    sizes = {TENANT: 1, other: 2, elsewhere: 4}
    with poorer("reads nothing"):
        for tenant, size in sizes.items():
            trace = Trace(tenant.organization_id + tenant.project_id)
            stores.exporter.flush([(tenant, trace.chat(number, tokens=(1, 1))) for number in range(size)], [])
    assert anew(stores, project="nobody").records == 0
    assert anew(stores, organization="elsewhere", project="default").records == 0
    assert anew(stores, organization="elsewhere").records == 4
    assert anew(stores, project="other").records == 2
    assert anew(stores).records == 1
    assert anew(stores).records == 0
    assert anew(stores, all=True, project="other").records == 2 + 4
    assert anew(stores, all=True).records == 1 + 2 + 4


def test_what_has_lost_its_content_stays_as_it_was(database: Callable[[], Stores]) -> None:
    stores = database()
    with reader(*BY_FIELD):
        put(stores, flushes_of_story())
    before = everything(stores)
    for each in list(stores.bodies.list("")):
        if "llm_prompt" in each.key:
            stores.bodies.delete(each.key)
    lost = everything(stores)
    assert lost != before
    done = anew(stores)
    assert done.left and done.records == done.all_records
    same(everything(stores), lost)


@pytest.mark.skipif(not recordings.NAMES, reason=f"not on this machine: {recordings.CAPTURES}")
@pytest.mark.parametrize("name", recordings.NAMES[:: max(1, len(recordings.NAMES) // 6)])
def test_recordings_read_anew(name: str, database: Callable[[], Stores]) -> None:
    well, poorly = database(), database()
    recordings.send(well, "default", name, recordings.ORDERS["as recorded"])
    with poorer("reads nothing"):
        recordings.send(poorly, "default", name, recordings.ORDERS["as recorded"])
    assert anew(poorly).left == 0
    same(everything(poorly), everything(well))
