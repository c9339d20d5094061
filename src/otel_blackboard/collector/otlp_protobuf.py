"""OTLP protobuf bodies → records, without loss. The hottest code of the service: 24 attributes a span.

Raises arrival.DecodeError for a body that cannot be read at all; a bad record is rejected alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from google.protobuf.message import DecodeError as ProtobufError

from otel_blackboard.collector import wire
from otel_blackboard.collector.arrival import (
    DEEPEST_LEVEL,
    TOO_DEEP,
    Decoded,
    DecodeError,
    blank_credentials,
    note,
    with_duplicates,
)
from otel_blackboard.records import (
    Attributes,
    Event,
    InvalidText,
    Link,
    LogRecord,
    Resource,
    Scope,
    Span,
    Value,
)

_NO_TRACE = bytes(16)
_NO_SPAN = bytes(8)

_SHORT = 128
"""Below this many bytes every length inside an attribute is one byte."""

# Attributes repeat: most keys, and most short values, of a span are those of the span before. Both memories are
# emptied when full, so that keys and values that never come back cannot keep out those that do.
_MEMORY = 8_192
_LONGEST_REMEMBERED = 64
_known_keys: dict[bytes, str] = {}
_known_pairs: dict[bytes, tuple[str, Value]] = {}


class _Unfit(ValueError):
    """One record cannot be taken; the message is the reason."""


def decode_traces(body: bytes) -> Decoded:
    request = _parse(wire.ExportTraceServiceRequest, body)
    decoded = Decoded(size=len(body))
    for i, resource_spans in enumerate(request.resource_spans):
        resource = _resource(resource_spans, decoded)
        for j, scope_spans in enumerate(resource_spans.scope_spans):
            scope = _scope(scope_spans, decoded)
            for k, message in enumerate(scope_spans.spans):
                try:
                    decoded.add_span(_span(message, resource, scope))
                except _Unfit as error:
                    name = _text(message.name)[:80]
                    note(decoded.rejected, f"resourceSpans[{i}].scopeSpans[{j}].spans[{k}] {name!r}: {error}")
    if decoded.rejected and not decoded.spans:
        _name_signal(body, "logs", "metrics")
    return decoded


def decode_logs(body: bytes) -> Decoded:
    request = _parse(wire.ExportLogsServiceRequest, body)
    decoded = Decoded(size=len(body))
    timed = False
    for i, resource_logs in enumerate(request.resource_logs):
        resource = _resource(resource_logs, decoded)
        for j, scope_logs in enumerate(resource_logs.scope_logs):
            scope = _scope(scope_logs, decoded)
            for k, message in enumerate(scope_logs.log_records):
                try:
                    log = _log(message, resource, scope)
                except _Unfit as error:
                    name = _text(message.event_name)[:80]
                    note(decoded.rejected, f"resourceLogs[{i}].scopeLogs[{j}].logRecords[{k}] {name!r}: {error}")
                else:
                    timed = timed or log.time_ns > 0 or log.observed_time_ns > 0
                    decoded.add_log(log)
    if not timed and (decoded.logs or decoded.rejected):
        _name_signal(body, "traces", "metrics")
    return decoded


def _parse(message: Any, body: bytes) -> Any:
    try:
        return message.FromString(body)
    except ProtobufError:
        raise DecodeError("the body is not an OTLP protobuf request") from None


def _name_signal(body: bytes, *signals: str) -> None:
    """Raises DecodeError if the body is a request of one of these signals.

    The requests of all signals have the same outer fields, so each parses as each; what tells them apart is what a
    record of the signal always has.
    """
    for signal in signals:
        request, (resources, scopes, records), is_record, service = _SIGNALS[signal]
        try:
            message = request.FromString(body)
        except ProtobufError:
            continue
        if any(
            is_record(record)
            for resource in getattr(message, resources)
            for scope in getattr(resource, scopes)
            for record in getattr(scope, records)
        ):
            raise DecodeError(f"this is a {signal} request; post it to /v1/{signal} (gRPC: {service})")


def _is_span(record: Any) -> bool:
    return bool(_id(record.trace_id, _NO_TRACE) and _id(record.span_id, _NO_SPAN))


def _is_log(record: Any) -> bool:
    return bool(record.time_unix_nano or record.observed_time_unix_nano)


def _is_metric(record: Any) -> bool:
    data = record.WhichOneof("data")
    return bool(record.name and data and any(point.time_unix_nano for point in getattr(record, data).data_points))


_SIGNALS: dict[str, tuple[Any, tuple[str, str, str], Callable[[Any], bool], str]] = {
    "traces": (
        wire.ExportTraceServiceRequest,
        ("resource_spans", "scope_spans", "spans"),
        _is_span,
        "TraceService",
    ),
    "logs": (
        wire.ExportLogsServiceRequest,
        ("resource_logs", "scope_logs", "log_records"),
        _is_log,
        "LogsService",
    ),
    "metrics": (
        wire.ExportMetricsServiceRequest,
        ("resource_metrics", "scope_metrics", "metrics"),
        _is_metric,
        "MetricsService",
    ),
}


def _resource(owner: Any, decoded: Decoded) -> Resource:
    message = owner.resource
    try:
        attributes = _attributes(message.attributes)
    except ProtobufError:
        raise DecodeError("the attributes of a resource are not OTLP protobuf") from None
    decoded.blanked += blank_credentials(attributes)
    return Resource(attributes, message.dropped_attributes_count, _text(owner.schema_url))


def _scope(owner: Any, decoded: Decoded) -> Scope:
    message = owner.scope
    try:
        attributes = _attributes(message.attributes)
    except ProtobufError:
        raise DecodeError("the attributes of a scope are not OTLP protobuf") from None
    decoded.blanked += blank_credentials(attributes)
    return Scope(
        _text(message.name),
        _text(message.version),
        attributes,
        message.dropped_attributes_count,
        _text(owner.schema_url),
    )


def _span(message: Any, resource: Resource, scope: Scope) -> Span:
    trace_id = message.trace_id
    if len(trace_id) != 16 or trace_id == _NO_TRACE:
        raise _Unfit(_bad_id("trace id", trace_id, 16))
    span_id = message.span_id
    if len(span_id) != 8 or span_id == _NO_SPAN:
        raise _Unfit(_bad_id("span id", span_id, 8))
    status = message.status
    try:
        return Span(
            trace_id.hex(),
            span_id.hex(),
            _id(message.parent_span_id, _NO_SPAN),
            _text(message.name),
            message.kind,
            message.start_time_unix_nano,
            message.end_time_unix_nano,
            _attributes(message.attributes),
            [_event(event) for event in message.events] if message.events else [],
            [_link(link) for link in message.links] if message.links else [],
            status.code,
            _text(status.message),
            _text(message.trace_state),
            message.flags,
            message.dropped_attributes_count,
            message.dropped_events_count,
            message.dropped_links_count,
            resource,
            scope,
        )
    except ProtobufError:
        raise _Unfit("its attributes are not OTLP protobuf") from None


def _event(message: Any) -> Event:
    return Event(
        message.time_unix_nano,
        _text(message.name),
        _attributes(message.attributes),
        message.dropped_attributes_count,
    )


def _link(message: Any) -> Link:
    return Link(
        _id(message.trace_id, _NO_TRACE),
        _id(message.span_id, _NO_SPAN),
        _text(message.trace_state),
        _attributes(message.attributes),
        message.dropped_attributes_count,
        message.flags,
    )


def _log(message: Any, resource: Resource, scope: Scope) -> LogRecord:
    try:
        return LogRecord(
            _id(message.trace_id, _NO_TRACE),
            _id(message.span_id, _NO_SPAN),
            message.time_unix_nano,
            message.observed_time_unix_nano,
            message.severity_number,
            _text(message.severity_text),
            _text(message.event_name),
            _value(message.body, 1),
            _attributes(message.attributes),
            message.flags,
            message.dropped_attributes_count,
            resource,
            scope,
        )
    except ProtobufError:
        raise _Unfit("its attributes or body are not OTLP protobuf") from None


def _bad_id(name: str, value: bytes, length: int) -> str:
    if len(value) == length:
        return f"{name} is all zero"
    return f"{name} has {len(value)} bytes, not {length}"


def _id(value: bytes, none: bytes) -> str:
    """Hex of an id that may be absent; '' for one that is not as long as `none` or equals it."""
    return value.hex() if len(value) == len(none) and value != none else ""


def _text(value: bytes) -> str:
    """Text of a field that must be text: bytes that are not UTF-8 become backslash escapes."""
    return value.decode("utf-8", "backslashreplace")


def _string(value: bytes) -> str | InvalidText:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return InvalidText(value)


def _attributes(raw: Sequence[bytes]) -> Attributes:
    """Serialized KeyValue messages → a dict. Raises ProtobufError."""
    attributes: Attributes = {}
    known_pairs, known_keys = _known_pairs, _known_keys
    for item in raw[:]:
        size = len(item)
        if size >= _SHORT:
            key, value = _pair(item, 1)
            attributes[key] = value
            continue
        if size < _LONGEST_REMEMBERED:
            pair = known_pairs.get(item)
            if pair is not None:
                attributes[pair[0]] = pair[1]
                continue
        # The usual short attribute, byte for byte: 0a <length> key 12 <length> 0a <length> string
        if (
            size > 5
            and item[0] == 0x0A
            and (end := item[1] + 2) + 3 < size
            and item[end] == 0x12
            and item[end + 1] == size - end - 2
            and item[end + 2] == 0x0A
            and item[end + 3] == size - end - 4
        ):
            raw_key = item[2:end]
            key = known_keys.get(raw_key) or _remember_key(raw_key)
            try:
                value = str(item[end + 4 :], "utf-8")
            except UnicodeDecodeError:
                value = InvalidText(item[end + 4 :])
        else:
            key, value = _pair(item, 1)
        attributes[key] = value
        # Only what cannot be changed may be shared.
        if size < _LONGEST_REMEMBERED and value.__class__ is not list and value.__class__ is not dict:
            if len(known_pairs) >= _MEMORY:
                known_pairs.clear()
            known_pairs[item] = (key, value)
    if len(attributes) != len(raw):
        return with_duplicates([_pair(item, 1) for item in raw])
    return attributes


def _remember_key(raw: bytes) -> str:
    key = _text(raw)
    if len(_known_keys) >= _MEMORY:
        _known_keys.clear()
    _known_keys[raw] = key
    return key


def _pair(item: bytes, level: int) -> tuple[str, Value]:
    """Any KeyValue message."""
    message = wire.KeyValue.FromString(item)
    return _text(message.key), _value(message.value, level)


def _value(raw: bytes, level: int) -> Value:
    """Any AnyValue message. Raises ProtobufError."""
    if level > DEEPEST_LEVEL:
        return TOO_DEEP
    if not raw:
        return None
    message = wire.AnyValue.FromString(raw)
    match message.WhichOneof("value"):
        case "string_value":
            return _string(message.string_value)
        case "int_value":
            return int(message.int_value)
        case "double_value":
            return float(message.double_value)
        case "bool_value":
            return bool(message.bool_value)
        case "bytes_value":
            return bytes(message.bytes_value)
        case "array_value":
            return [_value(item, level + 1) for item in message.array_value.values]
        case "kvlist_value":
            pairs = [_pair(item, level + 1) for item in message.kvlist_value.values]
            attributes = dict(pairs)
            return attributes if len(attributes) == len(pairs) else with_duplicates(pairs)
        case _:
            # Empty, or a reference into the string table of profiles, which no other signal has.
            return None
