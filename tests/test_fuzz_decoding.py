"""The decoders under fuzzing: any bytes are read or refused, and what is read is what OTLP's own schema reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError as ProtobufError
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_blackboard.collector import otlp_json, otlp_protobuf, wire
from otel_blackboard.collector.arrival import Decoded, DecodeError
from otel_blackboard.records import Event, Link, LogRecord, Resource, Scope, Span
from tests import otlp
from tests.fuzzing import JSON_SEEDS, PROTOBUF_SEEDS, any_span, changed, fuzz
from tests.otlp import readable, said
from tests.test_otlp_decoding import LOGS, SPANS, as_json, requests, slow_attributes, slowly

OFFICIAL: dict[str, Any] = {"traces": ExportTraceServiceRequest, "logs": ExportLogsServiceRequest}


def decoder(module: Any, signal: str) -> Callable[[bytes], Decoded]:
    return getattr(module, f"decode_{signal}")  # type: ignore[no-any-return]


def understood(module: Any, signal: str, body: bytes) -> Decoded | None:
    """None for a body that is refused."""
    try:
        return decoder(module, signal)(body)
    except DecodeError as error:
        assert str(error)
        return None


# ---- the oracle: records out of the official messages, without any short way ----


def id_of(value: bytes, length: int) -> str:
    return value.hex() if len(value) == length and any(value) else ""


def official_records(signal: str, message: Any) -> Decoded:
    """Its records; how many are rejected, without the reasons."""
    decoded = Decoded()
    for by_resource in message.resource_spans if signal == "traces" else message.resource_logs:
        resource = Resource(
            slow_attributes(by_resource.resource.attributes), by_resource.resource.dropped_attributes_count,
            by_resource.schema_url,
        )  # fmt: skip
        for by_scope in by_resource.scope_spans if signal == "traces" else by_resource.scope_logs:
            scope = Scope(
                by_scope.scope.name, by_scope.scope.version, slow_attributes(by_scope.scope.attributes),
                by_scope.scope.dropped_attributes_count, by_scope.schema_url,
            )  # fmt: skip
            for record in by_scope.spans if signal == "traces" else by_scope.log_records:
                if signal == "logs":
                    decoded.add_log(official_log(record, resource, scope))
                elif id_of(record.trace_id, 16) and id_of(record.span_id, 8):
                    decoded.add_span(official_span(record, resource, scope))
                else:
                    decoded.rejected.append("")
    return decoded


def official_span(span: Any, resource: Resource, scope: Scope) -> Span:
    return Span(
        span.trace_id.hex(), span.span_id.hex(), id_of(span.parent_span_id, 8), span.name, span.kind,
        span.start_time_unix_nano, span.end_time_unix_nano, slow_attributes(span.attributes),
        [Event(each.time_unix_nano, each.name, slow_attributes(each.attributes), each.dropped_attributes_count)
         for each in span.events],
        [Link(id_of(each.trace_id, 16), id_of(each.span_id, 8), each.trace_state, slow_attributes(each.attributes),
              each.dropped_attributes_count, each.flags) for each in span.links],
        span.status.code, span.status.message, span.trace_state, span.flags, span.dropped_attributes_count,
        span.dropped_events_count, span.dropped_links_count, resource, scope,
    )  # fmt: skip


def official_log(record: Any, resource: Resource, scope: Scope) -> LogRecord:
    return LogRecord(
        id_of(record.trace_id, 16), id_of(record.span_id, 8), record.time_unix_nano, record.observed_time_unix_nano,
        record.severity_number, record.severity_text, record.event_name, slowly(record.body),
        slow_attributes(record.attributes), record.flags, record.dropped_attributes_count, resource, scope,
    )  # fmt: skip


def blanked_alike(decoded: Decoded) -> str:
    """What the decoder makes of records, with what it blanks in resources and scopes blanked here too."""
    for record in (*decoded.spans, *decoded.logs):
        otlp_protobuf.blank_credentials(record.resource.attributes)
        otlp_protobuf.blank_credentials(record.scope.attributes)
    return repr((decoded.spans, decoded.logs, len(decoded.rejected)))


# ---- the fuzzers ----


def test_changed_protobuf_is_read_as_the_official_schema_reads_it() -> None:
    @given(changed(PROTOBUF_SEEDS))
    def check(sent: tuple[str, bytes]) -> None:
        signal, body = sent
        ours = understood(otlp_protobuf, signal, body)
        try:
            message = OFFICIAL[signal].FromString(body)
        except ProtobufError:
            return
        plain = message.SerializeToString()
        again = understood(otlp_protobuf, signal, plain)
        assert (ours is None) == (again is None)
        if ours is not None and again is not None:
            assert blanked_alike(again) == blanked_alike(official_records(signal, message))
            # A list or map that is sent in two pieces, as no sender does, the library puts together.
            if len(plain) == len(body):
                assert blanked_alike(ours) == blanked_alike(again)

    fuzz(0.06, 300, check)


def field(number: int, kind: int, payload: bytes, longer: int) -> bytes:
    """One field as the wire has it; its length in more bytes than are needed, which is allowed."""
    size = b"" if kind != 2 else _varint(len(payload), longer)
    return bytes([number << 3 | kind]) + size + payload


def _varint(number: int, longer: int = 0) -> bytes:
    digits = [number & 127]
    while number := number >> 7:
        digits.append(number & 127)
    digits += [0] * longer
    return bytes([digit | 128 for digit in digits[:-1]] + [digits[-1]])


_LONGER = st.sampled_from([0, 0, 0, 1, 3])
_VALUE_FIELDS = st.one_of(
    st.builds(field, st.sampled_from([1, 7]), st.just(2), st.binary(max_size=4) | st.just(b"x" * 130), _LONGER),
    st.builds(field, st.just(2), st.just(0), st.sampled_from([b"\x00", b"\x01", b"\x81\x00"]), st.just(0)),
    st.builds(
        field, st.just(3), st.just(0), st.sampled_from([b"\x05", b"\xff" * 9 + b"\x01", b"\x80\x00"]), st.just(0)
    ),
    st.builds(field, st.just(4), st.just(1), st.binary(min_size=8, max_size=8), st.just(0)),
    st.builds(field, st.sampled_from([5, 6]), st.just(2), st.just(b""), _LONGER),
    st.builds(field, st.sampled_from([9, 15]), st.just(2), st.binary(max_size=3), _LONGER),
)
_KEY_FIELDS = st.one_of(
    st.builds(field, st.just(1), st.just(2), st.sampled_from([b"", b"k", b"key", b"\xff", b"x" * 130]), _LONGER),
    st.builds(field, st.sampled_from([3, 15]), st.just(2), st.binary(max_size=3), _LONGER),
)


def _pair(before: list[bytes], value: list[bytes], after: list[bytes], longer: int) -> bytes:
    return b"".join((*before, field(2, 2, b"".join(value), longer) if value else b"", *after))


def test_an_attribute_of_any_form_is_read_as_the_official_schema_reads_it() -> None:
    """The decoder slices the usual form itself: every other form that the wire allows must not be taken for it."""
    usual_key, usual_value = field(1, 2, b"k", 0), field(1, 2, b"text", 0)
    before = st.just([usual_key]) | st.lists(_KEY_FIELDS, max_size=2)
    values = st.lists(_VALUE_FIELDS, max_size=2)
    values = values | values.map(lambda fields: [usual_value, *fields])
    after = st.just([]) | st.lists(_KEY_FIELDS, max_size=2)

    @given(st.lists(st.builds(_pair, before, values, after, _LONGER), min_size=1, max_size=4))
    def check(pairs: list[bytes]) -> None:
        message = wire.ExportTraceServiceRequest()
        spans = message.resource_spans.add().scope_spans.add().spans
        spans.add(trace_id=b"t" * 16, span_id=b"s" * 8, attributes=pairs)
        body = message.SerializeToString()
        try:
            official = ExportTraceServiceRequest.FromString(body)
        except ProtobufError:  # not UTF-8
            official = None
        for _ in range(2):  # the second time from memory
            ours = understood(otlp_protobuf, "traces", body)
            assert ours is not None
            if official is not None:
                assert blanked_alike(ours) == blanked_alike(official_records("traces", official))

    fuzz(0.04, 200, check)


def test_changed_json_is_read_or_refused() -> None:
    @given(changed(JSON_SEEDS))
    def check(sent: tuple[str, bytes]) -> None:
        signal, body = sent
        decoded = understood(otlp_json, signal, body)
        for record in (*decoded.spans, *decoded.logs) if decoded is not None else ():
            assert record.trace_id == "" or id_of(bytes.fromhex(record.trace_id), 16)
            otlp.protobuf([record])  # every value is one that OTLP has

    fuzz(0.06, 300, check)


FLAGS = st.tuples(st.booleans(), st.booleans(), st.booleans(), st.booleans())


def test_spans_are_equal_from_protobuf_json_and_the_official_schema() -> None:
    @given(requests(SPANS, "resource_spans", "scope_spans", "spans"), FLAGS)
    def check(made: dict[str, Any], flags: tuple[bool, bool, bool, bool]) -> None:
        assert_equal_decodings("traces", ExportTraceServiceRequest(**made), flags)

    fuzz(0.05, 40, check)


def test_logs_are_equal_from_protobuf_json_and_the_official_schema() -> None:
    @given(requests(LOGS, "resource_logs", "scope_logs", "log_records"), FLAGS)
    def check(made: dict[str, Any], flags: tuple[bool, bool, bool, bool]) -> None:
        assert_equal_decodings("logs", ExportLogsServiceRequest(**made), flags)

    fuzz(0.05, 40, check)


def assert_equal_decodings(signal: str, message: Any, flags: tuple[bool, bool, bool, bool]) -> None:
    from_protobuf = understood(otlp_protobuf, signal, message.SerializeToString())
    if from_protobuf is None:  # records without ids or times, which look like those of another signal
        return
    from_json = decoder(otlp_json, signal)(as_json(message, *flags))
    assert from_protobuf.blanked == from_json.blanked
    expected = blanked_alike(official_records(signal, message))
    assert blanked_alike(from_protobuf) == blanked_alike(from_json) == expected


def test_what_is_encoded_comes_back() -> None:
    """Records whose texts need not be UTF-8, through either encoding."""

    @given(st.lists(any_span(), min_size=1, max_size=3))
    def check(spans: list[Span]) -> None:
        for encode, module in ((otlp.protobuf, otlp_protobuf), (otlp.as_json, otlp_json)):
            [*decoded] = decoder(module, "traces")(encode(spans)).spans
            assert [all_said(span) for span in decoded] == [all_said(span) for span in spans]

    fuzz(0.04, 60, check)


def all_said(span: Span) -> list[Any]:
    return [
        readable(span.name), readable(span.status_message), readable(span.trace_state), said(span.attributes),
        [(event.time_ns, readable(event.name), said(event.attributes)) for event in span.events],
        [(link.trace_id, link.span_id, readable(link.trace_state), said(link.attributes)) for link in span.links],
        span.kind, span.status_code, span.start_ns, span.end_ns, span.parent_span_id, span.flags,
        said(span.resource.attributes), readable(span.scope.name), said(span.scope.attributes),
    ]  # fmt: skip
