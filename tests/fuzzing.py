"""What the fuzzers share: how long they go on, requests to start from, and how bytes are changed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from otel_blackboard.collector.arrival import names_credential
from otel_blackboard.processor.dialects import BY_FIELD, Dialect
from otel_blackboard.records import DUPLICATES, Event, InvalidText, Link, LogRecord, Resource, Scope, Span
from tests import otlp
from tests.effort import FUZZ_SECONDS, NIGHTLY
from tests.spans import DETAILS, START, Trace

CAPTURES = Path(os.environ.get("BLACKBOARD_SHARED") or Path(__file__).parents[2] / "shared") / "captures"
_LARGEST_SEED = 20_000


def fuzz(share: float, examples: int, check: Callable[[], None], shrink: bool = True) -> None:
    """Runs a hypothesis test with some examples once, and in the nightly target again and again, each time with others,
    for its share of the seconds that all fuzzers have. `shrink` False: what fails is shown as it was drawn, for trying it
    again takes long."""
    check = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
        # A fixed seed, as hypothesis has it where CI is set, would try the same all night.
        **({"derandomize": False} if NIGHTLY else {}),
    )(check)
    until = time.monotonic() + share * FUZZ_SECONDS
    check()
    while time.monotonic() < until:
        check()


def _own() -> list[tuple[str, bytes, bytes]]:
    """(signal, protobuf, JSON) of a few requests that use most of what OTLP has."""
    trace = Trace("seed", run_id="r", resource={"service.name": "s", "blackboard.project.id": "seed"})
    flow = trace.flow("flow", 0, 9)
    step = trace.step("writer", 1, 8, flow, seq=1, attempt=1)
    chat = trace.chat(2, 3, step, tokens=(10, 5), said="é", asks=[("c1", "look", {"a": [1]})], prompt="p")
    call = trace.tool("look", 4, 5, step, arguments={"a": 1}, result='{"x": [1, 2.5, null, true]}', call_id="c1")
    flat = trace.chat(6, 7, step, **{"gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": "x"})
    flat.attributes |= {
        "bytes": b"\x00\xff",
        "nan": float("nan"),
        "list": [1, "a", {"k": None}],
        "db.password": "s3cret",
    }
    chat.events = [
        Event(5, "gen_ai.choice", {"message": {"content": "x"}}),
        Event(6, "exception", {"exception.message": "no"}),
    ]
    trace.log(call, "gen_ai.tool.message", 4, {"content": "said", "id": "c1"})
    trace.log(
        chat, DETAILS, 3, gen_ai__output__messages=[{"role": "assistant", "parts": [{"type": "text", "content": "y"}]}]
    )
    lists: Sequence[tuple[str, Sequence[Span] | Sequence[LogRecord]]] = (("traces", trace.spans), ("logs", trace.logs))
    return [(signal, otlp.protobuf(list(records)), otlp.as_json(list(records))) for signal, records in lists]  # type: ignore[arg-type]


def _recorded(kind: str) -> list[tuple[str, bytes]]:
    """Requests of real agents, where this machine has them."""
    found = []
    for file in sorted(CAPTURES.glob(f"*/raw/*.{kind}")):
        signal = file.stem.partition("-")[2]
        if signal in ("traces", "logs") and file.stat().st_size <= _LARGEST_SEED:
            found.append((signal, file.read_bytes()))
    for signal in ("traces", "logs") if kind == "json" else ():
        for file in sorted(CAPTURES.glob(f"*/{signal}.jsonl")):
            found += [(signal, line) for line in file.read_bytes().splitlines()[:1] if len(line) <= _LARGEST_SEED]
    return found


PROTOBUF_SEEDS = [(signal, protobuf) for signal, protobuf, _ in _own()] + _recorded("pb")
JSON_SEEDS = [(signal, text) for signal, _, text in _own()] + _recorded("json")

_PIECES = [
    b"\x00", b"\xff", b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", b"\x0a", b"\x12\x00", b"\xed\xa0\x80", b"{", b"}", b"[", b"]",
    b'"', b"\\", b"\\ud800", b"\\u0000", b"null", b"NaN", b"-1", b"1e999", b"9" * 30, b",", b":", b'{"stringValue":"x"}',
]  # fmt: skip

_PLACES = st.floats(0, 1, exclude_max=True)
_CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("set"), _PLACES, st.integers(0, 255)),
        st.tuples(st.just("flip"), _PLACES, st.integers(0, 7)),
        st.tuples(st.just("insert"), _PLACES, st.sampled_from(_PIECES) | st.binary(max_size=8)),
        st.tuples(st.just("cut"), _PLACES, st.integers(1, 40)),
        st.tuples(st.just("repeat"), _PLACES, st.integers(1, 200)),
        st.tuples(st.just("end"), _PLACES, st.none()),
    ),
    max_size=4,
)


def _changed(seed: tuple[str, bytes], changes: list[tuple[str, float, Any]]) -> tuple[str, bytes]:
    signal, body = seed
    for change, where, what in changes:
        at = int(where * len(body))
        if change == "set" and body:
            body = body[:at] + bytes([what]) + body[at + 1 :]
        elif change == "flip" and body:
            body = body[:at] + bytes([body[at] ^ 1 << what]) + body[at + 1 :]
        elif change == "insert":
            body = body[:at] + what + body[at:]
        elif change == "cut":
            body = body[:at] + body[at + what :]
        elif change == "repeat":
            body = body[:at] + body[at : at + what] * 2 + body[at + what :]
        elif change == "end":
            body = body[:at]
    return signal, body


def changed(seeds: list[tuple[str, bytes]]) -> st.SearchStrategy[tuple[str, bytes]]:
    """(signal, body) of one of the seeds, with up to four changes."""
    return st.builds(_changed, st.sampled_from(seeds), _CHANGES)


# ---- records of any kind ----

WORDS = (
    "", "a", "NaN", "12", "-1", "1e400", "null", "{}", "[]", "[[]]", '"', '{"a":', "\0", "\\u0000", "é", "😀", "..", "a/b",
    "chat", "execute_tool", "invoke_agent", "embeddings", "retrieval", "invoke_workflow", "openai", "gpt-4o-mini", "resp_1",
    "step", "flow_run", "provider_call", "tool_invocation", "skill", "guard", "verifier", "proxy_request", "no such role",
    '[{"role":"user","content":"x"}]', '[{"role":null,"parts":"x"}]', '{"summary":"s","a":[1,{"b":null}]}',
    '{"\\ud800":"\\ud800"}',
    '[{"role":"assistant","parts":[{"type":"tool_call","id":1,"name":{"a":1},"arguments":"{"}]}]', "x" * 5_000, "é" * 2_500,
    "[" * 300 + "]" * 300, '{"choices":[{"message":{"tool_calls":[{"function":5}]}}]}', "Error [truncated]", "\ufffe",
)  # fmt: skip
TEXTS = st.sampled_from(WORDS) | st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
_NOT_TEXT = st.sampled_from([b"\xff", b"a\xfe", b"\xed\xa0\x80", b"\xc3"]).map(InvalidText)
_RESERVED = ("$bytes", "$$bytes", "$invalid", "$double", "$content", "$$content", "$", "$x")


def keys_of(dialect: Dialect) -> set[str]:
    """Every attribute key that it reads."""
    sources = [
        source
        for table in (dialect.facts, dialect.labels, dialect.content)
        for each in table.values()
        for source in each
    ]
    # $duplicates: nobody sends it, it is how a repeated key stands in memory.
    return {source if isinstance(source, str) else source.key for source in sources} - {DUPLICATES}


KEYS = sorted({key for dialect in BY_FIELD for key in keys_of(dialect)})
"""Every attribute key that some dialect reads."""
_FLAT = (
    "gen_ai.prompt.0.role", "gen_ai.prompt.0.content", "gen_ai.prompt.0", "gen_ai.prompt.2147483647.content",
    "gen_ai.completion.0.content", "gen_ai.completion.0.tool_calls.0.name", "gen_ai.completion.1².x", "gen_ai.prompt.-1.x",
    "gen_ai.completion.0.content.0.1.2.x", "llm.input_messages.0.message.role", "retrieval.documents.0.document.content",
)  # fmt: skip
_OWN_NAMES = (
    "name",
    "status_message",
    "error",
    "body",
    "events.0.a",
    "resource.attributes.a",
    "scope.name",
    "attributes.name",
)
_KEYS = st.sampled_from([*KEYS, *KEYS, *_FLAT, *_RESERVED, *_OWN_NAMES, "error.type", "exception.message"]) | TEXTS
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), TEXTS, TEXTS, st.binary(max_size=8), _NOT_TEXT
    ),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(TEXTS | st.sampled_from(_RESERVED), inner, max_size=4)
    ),
    max_leaves=8,
)  # fmt: skip


def _innocent(key: str) -> bool:
    return not names_credential(key)


ATTRIBUTES = st.dictionaries(_KEYS.filter(_innocent), VALUES, max_size=6) | st.builds(
    dict.fromkeys, st.lists(st.sampled_from(KEYS), max_size=40, unique=True), VALUES
)
_TIMES = st.sampled_from([0, 1, START, START + 1, START + 10**9, 2**63 - 1, 2**63, 2**64 - 1]) | st.integers(
    0, 2**64 - 1
)
_TRACE_IDS = st.sampled_from(["1" * 32, "2" * 32])
_SPAN_IDS = st.sampled_from([f"{n:016x}" for n in range(1, 9)])
_EVENT_NAMES = (
    st.sampled_from(["exception", "gen_ai.choice", "gen_ai.user.message", "gen_ai.tool.message", DETAILS]) | TEXTS
)
_EVENTS = st.builds(Event, _TIMES, _EVENT_NAMES, ATTRIBUTES, st.integers(0, 2**32 - 1))
_LINKS = st.builds(Link, _TRACE_IDS, _SPAN_IDS, TEXTS, ATTRIBUTES, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))


def any_span(resources: st.SearchStrategy[Resource] | None = None) -> st.SearchStrategy[Span]:
    return st.builds(
        Span, _TRACE_IDS, _SPAN_IDS, st.just("") | _SPAN_IDS, name=TEXTS, kind=st.integers(-1, 300), start_ns=_TIMES,
        end_ns=_TIMES, attributes=ATTRIBUTES, events=st.lists(_EVENTS, max_size=2), links=st.lists(_LINKS, max_size=2),
        status_code=st.integers(0, 3), status_message=TEXTS, trace_state=TEXTS, flags=st.integers(0, 2**32 - 1),
        dropped_attributes_count=st.integers(0, 2**32 - 1), resource=resources or st.builds(Resource, ATTRIBUTES),
        scope=st.builds(Scope, TEXTS, TEXTS, ATTRIBUTES),
    )  # fmt: skip


def any_log(resources: st.SearchStrategy[Resource] | None = None) -> st.SearchStrategy[LogRecord]:
    return st.builds(
        LogRecord, st.just("") | _TRACE_IDS, st.just("") | _SPAN_IDS, _TIMES, _TIMES, st.integers(0, 300), TEXTS, _EVENT_NAMES,
        VALUES, ATTRIBUTES, st.integers(0, 2**32 - 1), resource=resources or st.builds(Resource, ATTRIBUTES),
        scope=st.builds(Scope, TEXTS, TEXTS, ATTRIBUTES),
    )  # fmt: skip
