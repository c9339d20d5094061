"""What arrived is what is kept: nothing is lost between the wire and the records, in either encoding."""

from __future__ import annotations

import base64
import gzip
import itertools
import json
import math
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from otel_blackboard.collector import encodings, otlp_json, otlp_protobuf, wire
from otel_blackboard.collector.arrival import (
    BLANKED,
    CREDENTIAL_NAMES,
    DEEPEST_LEVEL,
    REASONS_KEPT,
    TOO_DEEP,
    Decoded,
    DecodeError,
    TooLarge,
    UnsupportedEncoding,
    names_credential,
)
from otel_blackboard.records import DUPLICATES, InvalidText, Value
from tests.effort import NIGHTLY

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CAPTURES = Path(__file__).parents[2] / "shared" / "captures"
TRACE = bytes(range(1, 17))
SPAN = bytes(range(1, 9))


def same(one: Decoded, other: Decoded) -> bool:
    """Equal in value and type; NaN equals NaN."""
    return repr((one.spans, one.logs, one.rejected, one.blanked)) == repr(
        (other.spans, other.logs, other.rejected, other.blanked)
    )


def request(*attributes: KeyValue, **fields: Any) -> ExportTraceServiceRequest:
    """A request of one span."""
    made = ExportTraceServiceRequest()
    span = made.resource_spans.add().scope_spans.add().spans.add(**{"trace_id": TRACE, "span_id": SPAN} | fields)
    span.attributes.extend(attributes)
    return made


def pair(key: str, **value: Any) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(**value))


def one_attribute(value: AnyValue) -> Value:
    body = request(KeyValue(key="k", value=value)).SerializeToString()
    return otlp_protobuf.decode_traces(body).spans[0].attributes["k"]


def json_span(**fields: Any) -> bytes:
    span = {"traceId": TRACE.hex(), "spanId": SPAN.hex()} | fields
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()


def json_attribute(value: Any) -> Value:
    body = json_span(attributes=[{"key": "k", "value": value}])
    return otlp_json.decode_traces(body).spans[0].attributes["k"]


# ---- both encodings, one meaning ----


def captured_requests() -> list[Any]:
    if not CAPTURES.is_dir():
        return [
            pytest.param(
                None, None, marks=pytest.mark.skip(f"not on this machine: no recordings of real agents at {CAPTURES}")
            )
        ]
    found = []
    for folder, signal in itertools.product(sorted(CAPTURES.iterdir()), ("traces", "logs")):
        if (folder / f"{signal}.jsonl").is_file():
            found.append(pytest.param(folder, signal, id=f"{folder.name}-{signal}"))
    return found


@pytest.mark.parametrize(("folder", "signal"), captured_requests())
def test_requests_of_real_agents_decode_the_same_as_sent_and_as_json(folder: Path, signal: str) -> None:
    raw = sorted((folder / "raw").glob(f"*-{signal}.*"))
    lines = (folder / f"{signal}.jsonl").read_bytes().splitlines()
    assert len(raw) == len(lines)
    for file, line in zip(raw, lines, strict=True):
        decoder = otlp_json if file.suffix == ".json" else otlp_protobuf
        sent = getattr(decoder, f"decode_{signal}")(file.read_bytes())
        assert sent.rejected == []
        assert sent.spans or sent.logs
        assert sent.size == file.stat().st_size
        assert same(sent, getattr(otlp_json, f"decode_{signal}")(line))


KEYS = st.sampled_from(["a", "b", "gen_ai.operation.name", DUPLICATES, "db.password", ""]) | st.text(max_size=70)
TEXTS = st.text(max_size=20) | st.text(min_size=1, max_size=3).map(lambda text: text * 60)
INT64 = st.integers(-(2**63), 2**63 - 1)
UINT64 = st.integers(0, 2**64 - 1)
UINT32 = st.integers(0, 2**32 - 1)
VALUES: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.one_of(
        st.just({}),
        TEXTS.map(lambda value: {"string_value": value}),
        st.booleans().map(lambda value: {"bool_value": value}),
        INT64.map(lambda value: {"int_value": value}),
        st.floats().map(lambda value: {"double_value": value}),
        st.binary(max_size=40).map(lambda value: {"bytes_value": value}),
    ),
    lambda inner: (
        st.lists(inner, max_size=4).map(lambda values: {"array_value": {"values": values}})
        | st.lists(st.fixed_dictionaries({"key": KEYS, "value": inner}), max_size=4).map(
            lambda values: {"kvlist_value": {"values": values}}
        )
    ),
    max_leaves=6,
)
ATTRIBUTES = st.lists(st.fixed_dictionaries({"key": KEYS, "value": VALUES}), max_size=6)
TRACE_IDS = st.binary(min_size=16, max_size=16) | st.sampled_from([b"", b"short", bytes(16)])
SPAN_IDS = st.binary(min_size=8, max_size=8) | st.sampled_from([b"", b"abc", bytes(8), bytes(16)])


def some(
    always: dict[str, st.SearchStrategy[Any]] | None = None, /, **fields: st.SearchStrategy[Any]
) -> st.SearchStrategy[dict[str, Any]]:
    """Messages of `always` and any of the other fields."""
    return st.fixed_dictionaries(always or {}, optional=fields)


EVENTS = some(time_unix_nano=UINT64, name=TEXTS, attributes=ATTRIBUTES, dropped_attributes_count=UINT32)
LINKS = some(trace_id=TRACE_IDS, span_id=SPAN_IDS, trace_state=TEXTS, attributes=ATTRIBUTES, flags=UINT32)
SPANS = some(
    {"trace_id": TRACE_IDS, "span_id": SPAN_IDS},
    parent_span_id=SPAN_IDS,
    name=TEXTS,
    kind=st.integers(0, 5),
    start_time_unix_nano=UINT64,
    end_time_unix_nano=UINT64,
    attributes=ATTRIBUTES,
    events=st.lists(EVENTS, max_size=2),
    links=st.lists(LINKS, max_size=2),
    status=some(code=st.integers(0, 2), message=TEXTS),
    trace_state=TEXTS,
    flags=UINT32,
    dropped_attributes_count=UINT32,
    dropped_events_count=UINT32,
    dropped_links_count=UINT32,
)
LOGS = some(
    trace_id=TRACE_IDS,
    span_id=SPAN_IDS,
    time_unix_nano=UINT64,
    observed_time_unix_nano=UINT64,
    severity_number=st.integers(0, 24),
    severity_text=TEXTS,
    event_name=TEXTS,
    body=VALUES,
    attributes=ATTRIBUTES,
    flags=UINT32,
    dropped_attributes_count=UINT32,
)


def requests(records: st.SearchStrategy[Any], by_resource: str, by_scope: str, name: str) -> st.SearchStrategy[Any]:
    scopes = some(
        {name: st.lists(records, min_size=1, max_size=3)},
        scope=some(name=TEXTS, version=TEXTS, attributes=ATTRIBUTES, dropped_attributes_count=UINT32),
        schema_url=TEXTS,
    )
    resources = some(
        {by_scope: st.lists(scopes, min_size=1, max_size=2)},
        resource=some(attributes=ATTRIBUTES, dropped_attributes_count=UINT32),
        schema_url=TEXTS,
    )
    return some({by_resource: st.lists(resources, min_size=1, max_size=2)})


def as_json(message: Any, snake_case: bool, base64_ids: bool, enum_names: bool, plain_integers: bool) -> bytes:
    """The message in one of the ways that senders write JSON."""
    document = json_format.MessageToDict(
        message, preserving_proto_field_name=snake_case, use_integers_for_enums=not enum_names
    )
    ids = {"traceId", "spanId", "parentSpanId", "trace_id", "span_id", "parent_span_id"}
    times = {"startTimeUnixNano", "endTimeUnixNano", "timeUnixNano", "observedTimeUnixNano", "intValue"}

    def rewrite(node: Any) -> Any:
        if isinstance(node, list):
            return [rewrite(item) for item in node]
        if not isinstance(node, dict):
            return node
        found = {name: rewrite(value) for name, value in node.items()}
        for name in found.keys() & ids if not base64_ids else ():
            found[name] = base64.b64decode(found[name]).hex()
        for name in found.keys() & times if plain_integers else ():
            found[name] = int(found[name])
        return found

    return json.dumps(rewrite(document)).encode()


def slowly(value: AnyValue) -> Value:
    """The oracle: what an AnyValue means, read from message objects without any short way."""
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if kind == "array_value":
        return [slowly(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return slow_attributes(value.kvlist_value.values)
    found: Value = getattr(value, kind)
    return found


def slow_attributes(pairs: Any) -> dict[str, Value]:
    items = [(item.key, slowly(item.value)) for item in pairs]
    last = dict(items)
    if len(last) == len(items):
        return last
    keys = [key for key, _ in items]
    final = {len(keys) - 1 - keys[::-1].index(key) for key in last if key != DUPLICATES}
    attributes: dict[str, Value] = {items[position][0]: items[position][1] for position in sorted(final)}
    attributes[DUPLICATES] = [list(item) for position, item in enumerate(items) if position not in final]
    return attributes


@settings(deadline=None, max_examples=40)
@given(st.lists(ATTRIBUTES, max_size=4))
def test_short_ways_read_the_same_as_message_objects(lists: list[list[dict[str, Any]]]) -> None:
    for made in lists:
        message = ExportLogsServiceRequest()
        log = message.resource_logs.add().scope_logs.add().log_records.add(time_unix_nano=1)
        log.attributes.extend(KeyValue(**item) for item in made if item["key"] != "db.password")
        # Twice: the second time from memory.
        for _ in range(2):
            decoded = otlp_protobuf.decode_logs(message.SerializeToString())
            if not decoded.blanked:
                assert repr(decoded.logs[0].attributes) == repr(slow_attributes(log.attributes))


# ---- what a record keeps ----


def test_all_fields_of_a_span_are_kept() -> None:
    made = request(
        pair("n", int_value=7),
        name="chat",
        kind=3,
        parent_span_id=b"parent-1",
        start_time_unix_nano=2**64 - 1,
        end_time_unix_nano=1,
        trace_state="a=b",
        flags=257,
        dropped_attributes_count=1,
        dropped_events_count=2,
        dropped_links_count=3,
        status={"code": 2, "message": "too bad"},
        events=[{"time_unix_nano": 5, "name": "e", "attributes": [pair("x", bool_value=True)]}],
        links=[{"trace_id": TRACE, "span_id": SPAN, "trace_state": "c=d", "flags": 1, "dropped_attributes_count": 4}],
    )
    made.resource_spans[0].resource.attributes.append(pair("service.name", string_value="s"))
    made.resource_spans[0].resource.dropped_attributes_count = 8
    made.resource_spans[0].schema_url = "https://resource"
    made.resource_spans[0].scope_spans[0].scope.name = "library"
    made.resource_spans[0].scope_spans[0].scope.version = "1"
    made.resource_spans[0].scope_spans[0].schema_url = "https://scope"
    [span] = otlp_protobuf.decode_traces(made.SerializeToString()).spans
    assert (span.trace_id, span.span_id, span.parent_span_id) == (TRACE.hex(), SPAN.hex(), b"parent-1".hex())
    assert (span.name, span.kind, span.start_ns, span.end_ns) == ("chat", 3, 2**64 - 1, 1)
    assert (span.trace_state, span.flags, span.status_code, span.status_message) == ("a=b", 257, 2, "too bad")
    assert (span.dropped_attributes_count, span.dropped_events_count, span.dropped_links_count) == (1, 2, 3)
    assert span.attributes == {"n": 7}
    assert [(event.time_ns, event.name, event.attributes) for event in span.events] == [(5, "e", {"x": True})]
    [link] = span.links
    assert (link.trace_id, link.span_id, link.trace_state, link.flags) == (TRACE.hex(), SPAN.hex(), "c=d", 1)
    assert link.dropped_attributes_count == 4
    assert (span.resource.attributes, span.resource.schema_url) == ({"service.name": "s"}, "https://resource")
    assert span.resource.dropped_attributes_count == 8
    assert (span.scope.name, span.scope.version, span.scope.schema_url) == ("library", "1", "https://scope")


def test_spans_of_one_resource_and_scope_share_them() -> None:
    made = request()
    made.resource_spans[0].scope_spans[0].spans.add(trace_id=TRACE, span_id=b"another1")
    for decoded in (
        otlp_protobuf.decode_traces(made.SerializeToString()),
        otlp_json.decode_traces(as_json(made, False, False, False, False)),
    ):
        one, other = decoded.spans
        assert one.resource is other.resource and one.scope is other.scope


def test_values_keep_their_type() -> None:
    for value, expected in [
        (AnyValue(), None),
        (AnyValue(string_value=""), ""),
        (AnyValue(string_value="é" * 50), "é" * 50),
        (AnyValue(string_value="x" * 100_000), "x" * 100_000),
        (AnyValue(bool_value=False), False),
        (AnyValue(int_value=-1), -1),
        (AnyValue(int_value=0), 0),
        (AnyValue(double_value=0.0), 0.0),
        (AnyValue(bytes_value=b"\xff\x00"), b"\xff\x00"),
        (AnyValue(bytes_value=b""), b""),
        (AnyValue(array_value={}), []),
        (AnyValue(kvlist_value={}), {}),
    ]:
        found = one_attribute(value)
        assert found == expected and type(found) is type(expected)


def test_text_that_is_not_utf_8_spoils_its_own_string_only() -> None:
    body = request(
        pair("bad", string_value="AAAA"), pair("list", array_value={"values": [{"string_value": "BBBB"}]}), name="CCCC"
    ).SerializeToString()
    for written, broken in ((b"AAAA", b"A\xffAA"), (b"BBBB", b"\xed\xa0\xbdB"), (b"CCCC", b"CC\xfe\xfe")):
        body = body.replace(written, broken)
    [span] = otlp_protobuf.decode_traces(body).spans
    assert span.attributes == {"bad": b"A\xffAA", "list": [b"\xed\xa0\xbdB"]}
    assert isinstance(span.attributes["bad"], InvalidText)
    assert span.name == "CC\\xfe\\xfe"


def test_a_key_that_is_not_utf_8_is_kept_in_escapes() -> None:
    body = request(pair("KKKK", string_value="v")).SerializeToString().replace(b"KKKK", b"K\xffKK")
    assert otlp_protobuf.decode_traces(body).spans[0].attributes == {"K\\xffKK": "v"}


def test_half_an_emoji_in_json_spoils_its_own_string_only() -> None:
    # JavaScript writes a cut surrogate pair so, and orjson refuses the whole document for it.
    for half in (r"\ud83d", r"\ude00", r"\ud83d\ud83d", r"\ud83dx"):
        text = f'{{"stringValue": "cut {half}"}}'
        body = json_span(name="NAME", attributes=[{"key": "cut", "value": "VALUE"}, {"key": "whole", "value": {}}])
        body = body.replace(b'"VALUE"', text.encode()).replace(b"NAME", rb"half \ud83d")
        [span] = otlp_json.decode_traces(body).spans
        assert isinstance(span.attributes["cut"], InvalidText)
        assert span.attributes["cut"].startswith(b"cut \xed")
        assert span.attributes["whole"] is None
        assert span.name == "half \\xed\\xa0\\xbd"


JSON_THAT_IS_NONE = [
    (b'{"stringValue": "a\xffb"}', InvalidText(b"a\xffb")),
    (b'{"stringValue": "\\udcff"}', InvalidText(b"\xed\xb3\xbf")),
    (b'{"stringValue": "\\ud83d \\udcff \xff"}', InvalidText(b"\xed\xa0\xbd \xff \xff")),
    (b'{"stringValue": "a\x00\tb"}', "a\0\tb"),
    (b'{"doubleValue": NaN}', math.nan),
    (b'{"doubleValue": -Infinity}', -math.inf),
    (b'{"doubleValue": 1e400}', math.inf),
    (b'{"intValue": ' + b"9" * 5_000 + b"}", "9" * 5_000),
]
"""What is no JSON by the letter. (A text with both raw bytes and half surrogates takes the lower halves for bytes.)"""


@pytest.mark.parametrize(("value", "expected"), JSON_THAT_IS_NONE)
def test_a_value_that_is_no_json_spoils_itself_only(value: bytes, expected: Value) -> None:
    body = json_span(name="n", attributes=[{"key": "bad", "value": "VALUE"}, {"key": "good", "value": {}}])
    [span] = otlp_json.decode_traces(body.replace(b'"VALUE"', value)).spans
    assert repr(span.attributes) == repr({"bad": expected, "good": None})


def test_earlier_values_of_a_repeated_key_are_kept_in_order() -> None:
    pairs = [pair("a", int_value=1), pair("b", string_value="x"), pair("a", string_value="2"), pair("a", int_value=3)]
    inner = AnyValue(kvlist_value={"values": pairs})
    made = request(*pairs, KeyValue(key="inner", value=inner))
    expected = {"b": "x", "a": 3, DUPLICATES: [["a", 1], ["a", "2"]]}
    for decoded in (
        otlp_protobuf.decode_traces(made.SerializeToString()),
        otlp_json.decode_traces(as_json(made, False, False, False, False)),
    ):
        attributes = decoded.spans[0].attributes
        assert attributes.pop("inner") == expected
        assert attributes == expected


def test_a_key_of_the_senders_named_like_the_mark_of_duplicates_is_kept() -> None:
    alone = request(pair(DUPLICATES, int_value=1)).SerializeToString()
    assert otlp_protobuf.decode_traces(alone).spans[0].attributes == {DUPLICATES: 1}
    beside = request(*(pair(key, int_value=n) for n, key in enumerate(["a", DUPLICATES, "a"]))).SerializeToString()
    assert otlp_protobuf.decode_traces(beside).spans[0].attributes == {"a": 2, DUPLICATES: [["a", 0], [DUPLICATES, 1]]}


def test_lists_do_not_pass_from_one_span_to_another() -> None:
    body = request(pair("k", array_value={"values": [{"int_value": 1}]})).SerializeToString()
    first, second = (otlp_protobuf.decode_traces(body).spans[0].attributes["k"] for _ in range(2))
    assert first == second and first is not second


@pytest.mark.parametrize("container", ["list", "dict"])
def test_nesting_is_kept_to_a_level_and_marked_below_it(container: str) -> None:
    levels = DEEPEST_LEVEL + 60
    value, document = AnyValue(string_value="deep"), {"stringValue": "deep"}
    raw = value.SerializeToString()
    for _ in range(levels):
        # Written with the schema of wire.py: Python's protobuf refuses to write this much.
        if container == "list":
            raw = wire.AnyValue(array_value={"values": [raw]}).SerializeToString()
            document = {"arrayValue": {"values": [document]}}
        else:
            item = wire.KeyValue(key=b"k", value=raw).SerializeToString()
            raw = wire.AnyValue(kvlist_value={"values": [item]}).SerializeToString()
            document = {"kvlistValue": {"values": [{"key": "k", "value": document}]}}
    attribute = wire.KeyValue(key=b"k", value=raw).SerializeToString()
    made = wire.ExportTraceServiceRequest()
    span = made.resource_spans.add().scope_spans.add().spans.add(trace_id=TRACE, span_id=SPAN)
    span.attributes.append(attribute)
    found = otlp_protobuf.decode_traces(made.SerializeToString()).spans[0].attributes["k"]
    assert repr(found) == repr(json_attribute(document))
    depth = 0
    while not isinstance(found, str):
        assert isinstance(found, (list, dict))
        found = found[0] if isinstance(found, list) else found["k"]
        depth += 1
    assert (found, depth) == (TOO_DEEP, DEEPEST_LEVEL)


# ---- what JSON senders write ----


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"intValue": "-9223372036854775808"}, -(2**63)),
        ({"intValue": 9223372036854775807}, 2**63 - 1),
        ({"intValue": 3.0}, 3),
        ({"intValue": "18446744073709551616"}, "18446744073709551616"),
        ({"intValue": "many"}, "many"),
        ({"doubleValue": 1}, 1.0),
        ({"doubleValue": "1.5"}, 1.5),
        ({"doubleValue": "NaN"}, math.nan),
        ({"doubleValue": "Infinity"}, math.inf),
        ({"doubleValue": "-Infinity"}, -math.inf),
        ({"doubleValue": None}, math.nan),
        ({"doubleValue": None, "intValue": "5"}, 5),
        ({"stringValue": None, "boolValue": True}, True),
        ({"boolValue": "true"}, True),
        ({"bytesValue": "_-8"}, b"\xff\xef"),
        ({"bytesValue": "not base64!"}, "not base64!"),
        ({"stringValue": None}, None),
        ({"fromTheFuture": 1}, None),
        ({}, None),
        (None, None),
        ({"arrayValue": {}}, []),
        ({"kvlistValue": {"values": [{"key": "a"}]}}, {"a": None}),
        ({"string_value": "snake"}, "snake"),
    ],
)
def test_json_values_are_read_as_senders_write_them(value: Any, expected: Value) -> None:
    assert repr(json_attribute(value)) == repr(expected)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("1790000000000000001", 1790000000000000001),
        (1790000000000000001, 1790000000000000001),
        (1.5e18, 1500000000000000000),
        ("1.5e18", 1500000000000000000),
        (-5, 0),
        ("-5", 0),
        (2**64, 2**64 - 1),
        ("1e999", 2**64 - 1),
        (None, 0),
    ],
)
def test_json_times_are_clamped_to_64_bits(written: Any, expected: int) -> None:
    assert otlp_json.decode_traces(json_span(startTimeUnixNano=written)).spans[0].start_ns == expected


def test_json_enums_are_names_or_numbers() -> None:
    for kind in ("SPAN_KIND_CLIENT", 3, "3"):
        body = json_span(kind=kind, status={"code": "STATUS_CODE_ERROR"})
        assert (otlp_json.decode_traces(body).spans[0].kind, otlp_json.decode_traces(body).spans[0].status_code) == (
            3,
            2,
        )
    assert otlp_json.decode_traces(json_span(kind="SPAN_KIND_OF_TOMORROW")).spans[0].kind == 0


def test_json_ids_are_hex_in_any_case_or_base64() -> None:
    for trace_id in (TRACE.hex(), TRACE.hex().upper(), base64.b64encode(TRACE).decode()):
        assert otlp_json.decode_traces(json_span(traceId=trace_id)).spans[0].trace_id == TRACE.hex()
    for span_id in (SPAN.hex(), base64.b64encode(SPAN).decode(), base64.b64encode(SPAN).decode().rstrip("=")):
        assert otlp_json.decode_traces(json_span(spanId=span_id)).spans[0].span_id == SPAN.hex()


# ---- what is refused ----

BAD_IDS = [
    ({"trace_id": b""}, "trace id has 0 bytes, not 16"),
    ({"trace_id": b"short"}, "trace id has 5 bytes, not 16"),
    ({"trace_id": bytes(16)}, "trace id is all zero"),
    ({"span_id": b""}, "span id has 0 bytes, not 8"),
    ({"span_id": bytes(8)}, "span id is all zero"),
]


@pytest.mark.parametrize(("fields", "reason"), BAD_IDS)
def test_one_bad_span_is_rejected_alone_and_named(fields: dict[str, bytes], reason: str) -> None:
    made = request(name="good")
    made.resource_spans[0].scope_spans[0].spans.add(**{"trace_id": TRACE, "span_id": SPAN, "name": "bad"} | fields)
    made.resource_spans[0].scope_spans[0].spans.add(trace_id=TRACE, span_id=b"another1", name="fine")
    decoded = otlp_protobuf.decode_traces(made.SerializeToString())
    assert [span.name for span in decoded.spans] == ["good", "fine"]
    assert decoded.rejected == [f"resourceSpans[0].scopeSpans[0].spans[1] 'bad': {reason}"]
    decoded = otlp_json.decode_traces(as_json(made, False, False, False, False))
    assert [span.name for span in decoded.spans] == ["good", "fine"]
    assert len(decoded.rejected) == 1 and "spans[1] 'bad'" in decoded.rejected[0]


@pytest.mark.parametrize(
    "fields",
    [
        {"traceId": "zz" * 16},
        {"traceId": 5},
        {"startTimeUnixNano": "noon"},
        {"startTimeUnixNano": True},
        {"name": 5},
        {"attributes": "none"},
        {"attributes": {"a": 1}},
        {"attributes": [1]},
        {"attributes": [{"key": "a", "value": 1}]},
        {"attributes": [{"key": 5, "value": {}}]},
        {"attributes": [{"key": "a", "value": {"arrayValue": 5}}]},
        {"attributes": [{"key": "a", "value": {"stringValue": {}}}]},
        {"events": {}, "links": 5},
        {"status": "error"},
    ],
)
def test_a_json_span_of_wrong_types_is_rejected_alone(fields: dict[str, Any]) -> None:
    good, bad = json.loads(json_span(name="good")), json.loads(json_span(**{"name": "bad"} | fields))
    spans = good["resourceSpans"][0]["scopeSpans"][0]["spans"]
    spans += bad["resourceSpans"][0]["scopeSpans"][0]["spans"] + [7]
    decoded = otlp_json.decode_traces(json.dumps(good).encode())
    assert [span.name for span in decoded.spans] == ["good"]
    assert len(decoded.rejected) == 2


def test_broken_attributes_reject_their_span_alone() -> None:
    made = wire.ExportTraceServiceRequest()
    spans = made.resource_spans.add().scope_spans.add().spans
    spans.add(trace_id=TRACE, span_id=SPAN, attributes=[b"\x0a\x01k\x12\x03\x0a\xff\xff"])
    spans.add(trace_id=TRACE, span_id=b"another1", attributes=[b"\x0a\x01k\x12\x03\x0a\x01v"])
    decoded = otlp_protobuf.decode_traces(made.SerializeToString())
    assert [span.attributes for span in decoded.spans] == [{"k": "v"}]
    assert len(decoded.rejected) == 1


def test_a_parent_or_link_id_of_wrong_length_costs_no_span() -> None:
    made = request(parent_span_id=b"abc", links=[{"trace_id": b"x", "span_id": SPAN}])
    for decoded in (
        otlp_protobuf.decode_traces(made.SerializeToString()),
        otlp_json.decode_traces(as_json(made, False, False, False, False)),
    ):
        [span] = decoded.spans
        assert (span.parent_span_id, span.links[0].trace_id, span.links[0].span_id) == ("", "", SPAN.hex())


def test_log_records_need_no_ids() -> None:
    made = ExportLogsServiceRequest()
    records = made.resource_logs.add().scope_logs.add().log_records
    records.add(time_unix_nano=1, body={"string_value": "hello"})
    records.add(time_unix_nano=2, trace_id=b"short", span_id=b"x", event_name="gen_ai.choice")
    for decoded in (
        otlp_protobuf.decode_logs(made.SerializeToString()),
        otlp_json.decode_logs(as_json(made, False, False, False, False)),
    ):
        assert [(log.trace_id, log.span_id, log.body) for log in decoded.logs] == [("", "", "hello"), ("", "", None)]
        assert decoded.rejected == []


def test_a_million_bad_spans_are_counted_but_not_told_one_by_one() -> None:
    made = ExportTraceServiceRequest()
    scope = made.resource_spans.add().scope_spans.add()
    for _ in range(5_000):
        scope.spans.add(name="bad")
    rejected = otlp_protobuf.decode_traces(made.SerializeToString()).rejected
    assert len(rejected) == 5_000
    assert len(set(rejected)) == REASONS_KEPT + 1


@pytest.mark.parametrize("decode", [otlp_protobuf.decode_traces, otlp_protobuf.decode_logs])
def test_a_body_that_is_no_protobuf_is_said_to_be_none(decode: Callable[[bytes], Decoded]) -> None:
    for body in (b"\xff\xff", b"{}", request(name="x" * 50).SerializeToString()[:-3]):
        with pytest.raises(DecodeError, match="not an OTLP protobuf request"):
            decode(body)


@pytest.mark.parametrize("decode", [otlp_json.decode_traces, otlp_json.decode_logs])
@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "not JSON"),
        (b"hello", "not JSON"),
        (b"[]", "a JSON object was expected"),
        (b'"text"', "a JSON object was expected"),
        (b"\xff", "not JSON"),
        (b"[" * 50_000 + b"]" * 50_000, "a JSON object was expected"),
        (b"[" * 50_000, "not JSON"),
        (b'{"a":' * 50_000 + b"1" + b"}" * 49_999, "not JSON"),
        (b"[" * 5_000_000 + b"]" * 5_000_000, "too deeply"),
        (b'{"x": "\\ud83d"', "not JSON"),
        (b'"' + b'\\"' * 1_000_000, "not JSON"),
    ],
)
def test_a_body_that_is_no_json_request_is_told_why(decode: Callable[[bytes], Decoded], body: bytes, said: str) -> None:
    with pytest.raises(DecodeError, match=said):
        decode(body)


def test_a_request_at_the_wrong_door_is_told_so() -> None:
    logs = ExportLogsServiceRequest()
    log = logs.resource_logs.add().scope_logs.add().log_records.add(time_unix_nano=1, trace_id=TRACE)
    log.attributes.append(pair("a", string_value="b"))
    spans = request(pair("a", string_value="b"), name="chat", start_time_unix_nano=1)
    for body, decode in (
        (logs.SerializeToString(), otlp_protobuf.decode_traces),
        (as_json(logs, False, False, False, False), otlp_json.decode_traces),
    ):
        with pytest.raises(DecodeError, match="this is a logs request; post it to /v1/logs"):
            decode(body)
    for body, decode in (
        (spans.SerializeToString(), otlp_protobuf.decode_logs),
        (as_json(spans, False, False, False, False), otlp_json.decode_logs),
    ):
        with pytest.raises(DecodeError, match="this is a traces request; post it to /v1/traces"):
            decode(body)


@pytest.mark.skipif(not CAPTURES.is_dir(), reason=f"not on this machine: no recordings of real agents at {CAPTURES}")
def test_metrics_of_real_agents_at_the_wrong_door_are_told_so() -> None:
    files = sorted(CAPTURES.glob("*/raw/*-metrics.pb"))
    assert files
    for file, decode in itertools.product(files, (otlp_protobuf.decode_traces, otlp_protobuf.decode_logs)):
        with pytest.raises(DecodeError, match="this is a metrics request"):
            decode(file.read_bytes())


def test_an_empty_request_is_no_error() -> None:
    for decoded in (otlp_protobuf.decode_traces(b""), otlp_json.decode_logs(b"{}"), otlp_json.decode_traces(b"{}")):
        assert (decoded.spans, decoded.logs, decoded.rejected) == ([], [], [])


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                "key value values stringValue intValue doubleValue boolValue bytesValue arrayValue kvlistValue "
                "traceId spanId name kind status code attributes events links body resource scope "
                "startTimeUnixNano timeUnixNano flags".split()
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(deadline=None, max_examples=5_000 if NIGHTLY else 200)
@given(
    st.dictionaries(
        st.sampled_from(
            "attributes resource scope spans logRecords name kind status events links startTimeUnixNano timeUnixNano "
            "severityNumber body flags traceState parentSpanId".split()
        ),
        JSON_VALUES | st.lists(st.fixed_dictionaries({"key": st.just("k"), "value": JSON_VALUES}), max_size=3),
        max_size=4,
    ),
    st.booleans(),
)
def test_json_of_any_shape_is_read_or_refused(document: dict[str, Any], outside: bool) -> None:
    record = {"traceId": TRACE.hex(), "spanId": SPAN.hex()} | document
    by_scope: list[Any] = [{"spans": [record], "logRecords": [record]}]
    if outside:
        by_scope.append(document)
    for signal, decode in (("Spans", otlp_json.decode_traces), ("Logs", otlp_json.decode_logs)):
        owner = document if outside else {}
        body = json.dumps({f"resource{signal}": [owner | {f"scope{signal}": by_scope}]}).encode()
        try:
            decode(body)
        except DecodeError as error:
            assert str(error)


@settings(deadline=None, max_examples=5_000 if NIGHTLY else 300)
@given(st.binary(max_size=200), st.sampled_from(["", "gzip", "deflate", "zstd"]), st.booleans())
def test_random_bytes_are_read_or_refused(noise: bytes, encoding: str, inside: bool) -> None:
    """Noise as a body, and noise in the place of a span's fields."""
    body = b"\x0a" + bytes([len(noise)]) + noise if inside and len(noise) < 128 else noise
    for module, signal in itertools.product((otlp_protobuf, otlp_json), ("traces", "logs")):
        try:
            getattr(module, f"decode_{signal}")(encodings.decompress(body, encoding, 10_000))
        except (DecodeError, TooLarge) as error:
            assert str(error)


# ---- credentials ----


@pytest.mark.parametrize(
    "key",
    [
        *CREDENTIAL_NAMES,
        "http.request.header.authorization",
        "http.request.header.proxy-authorization",
        "http.request.header.x-api-key",
        "http.response.header.set-cookie",
        "headers.cookie.0",
        "openai.api_key",
        "OPENAI_API_KEY",
        "openaiApiKey",
        "clientSecret",
        "db.password",
        "DB_PASSWD",
        "aws.secret_access_key",
        "client_secret",
        "x-auth-token",
    ],
)
def test_keys_that_name_credentials_are_known(key: str) -> None:
    assert names_credential(key)


@pytest.mark.parametrize(
    "key",
    [
        "gen_ai.usage.input_tokens",
        "max_tokens",
        "token_count",
        "llm.token_count.prompt",
        "session.id",
        "gen_ai.request.max_tokens",
        "gen_ai.conversation.id",
        "authorization.status",
        "token",
        "password_policy.name",
        "keyboard",
        "secretary",
        "",
    ],
)
def test_keys_that_name_no_credentials_are_left_alone(key: str) -> None:
    assert not names_credential(key)


def test_credentials_are_blanked_everywhere_and_counted() -> None:
    secret = pair("http.request.header.authorization", array_value={"values": [{"string_value": "Bearer s3cret"}]})
    twice = [pair("password", string_value="s3cret"), pair("password", string_value="s3cret")]
    made = request(
        secret,
        *twice,
        pair("safe", string_value="s"),
        events=[{"attributes": [secret]}],
        links=[{"attributes": [secret]}],
    )
    made.resource_spans[0].resource.attributes.append(pair("api.key", string_value="s3cret"))
    made.resource_spans[0].scope_spans[0].scope.attributes.append(pair("apiKey", string_value="s3cret"))
    for decoded in (
        otlp_protobuf.decode_traces(made.SerializeToString()),
        otlp_json.decode_traces(as_json(made, False, False, False, False)),
    ):
        assert decoded.blanked == 7
        assert "s3cret" not in repr(decoded)
        assert decoded.spans[0].attributes["safe"] == "s"
        assert decoded.spans[0].attributes["password"] == BLANKED
        assert decoded.spans[0].attributes[DUPLICATES] == [["password", BLANKED]]


# ---- content encodings ----

TEXT = b"a text that is compressed well, " * 1_000


def raw_deflate(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=-15)
    return stream.compress(data) + stream.flush()


COMPRESSORS: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("gzip", gzip.compress),
    ("deflate", zlib.compress),
    ("deflate", raw_deflate),
    ("zstd", zstd.compress),
]


@pytest.mark.parametrize(("encoding", "compress"), COMPRESSORS)
@pytest.mark.parametrize("data", [b"", b"x", TEXT, bytes(range(256)) * 5_000], ids=len)
def test_what_was_compressed_comes_back(encoding: str, compress: Callable[[bytes], bytes], data: bytes) -> None:
    assert encodings.decompress(compress(data), encoding, 10_000_000) == data
    assert encodings.decompress(compress(data), f" {encoding.upper()} ", len(data)) == data


@pytest.mark.parametrize("encoding", [None, "", "identity"])
def test_no_encoding_changes_nothing(encoding: str | None) -> None:
    assert encodings.decompress(TEXT, encoding, len(TEXT)) is TEXT
    with pytest.raises(TooLarge):
        encodings.decompress(TEXT, encoding, len(TEXT) - 1)


@pytest.mark.parametrize("encoding", ["br", "gzip, zstd", "compress"])
def test_an_unknown_encoding_is_refused_with_the_known_ones(encoding: str) -> None:
    with pytest.raises(UnsupportedEncoding, match="identity, gzip, deflate, zstd"):
        encodings.decompress(TEXT, encoding, 10_000_000)


@pytest.mark.parametrize(("encoding", "compress"), COMPRESSORS)
def test_broken_and_cut_streams_are_refused(encoding: str, compress: Callable[[bytes], bytes]) -> None:
    whole = compress(TEXT)
    for body in (b"", b"not compressed", whole[:-1], whole[: len(whole) // 2], whole + b"garbage"):
        with pytest.raises(DecodeError, match=f"not a whole {encoding} stream"):
            encodings.decompress(body, encoding, 10_000_000)


@pytest.mark.parametrize(("encoding", "compress"), COMPRESSORS)
def test_a_bomb_is_refused_before_it_goes_off(encoding: str, compress: Callable[[bytes], bytes]) -> None:
    bomb = compress(bytes(60_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge):
            encodings.decompress(bomb, encoding, 4_000_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10_000_000


@pytest.mark.parametrize(("encoding", "compress"), [("gzip", gzip.compress), ("zstd", zstd.compress)])
def test_streams_one_after_the_other_are_one_body(encoding: str, compress: Callable[[bytes], bytes]) -> None:
    assert encodings.decompress(compress(TEXT) * 20, encoding, len(TEXT) * 20) == TEXT * 20
    with pytest.raises(TooLarge):
        encodings.decompress(compress(TEXT) * 20, encoding, len(TEXT) * 20 - 1)


def test_millions_of_empty_streams_are_refused() -> None:
    with pytest.raises(DecodeError):
        encodings.decompress(gzip.compress(b"") * 20_000, "gzip", 1_000)
