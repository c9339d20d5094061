"""Records as the requests that would carry them, in protobuf and in JSON: the decoders' opposite.

A text with bytes that are not UTF-8 is an InvalidText, or a str with the bytes as lone surrogates (`surrogateescape`);
earlier values of a repeated key stand under DUPLICATES, as in a decoded record.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from typing import Any

from otel_blackboard.collector import wire
from otel_blackboard.records import DUPLICATES, Attributes, InvalidText, LogRecord, Resource, Scope, Span, Value

Record = Span | LogRecord


def raw_text(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")


def readable(text: str | bytes) -> str:
    """What the decoders make of a text that must be one."""
    return raw_text(text).decode(errors="backslashreplace")


def said(attributes: Any) -> list[str]:
    """What attributes say, type by type; NaN is itself, and their order says nothing."""
    return sorted(f"{readable(key)}: {typed(value)}" for key, value in attributes.items())


def typed(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(typed, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {typed(item)}' for key, item in value.items())}}}"
    return f"{type(value).__name__} {value!r}"


def pairs_of(attributes: Attributes) -> list[tuple[str, Value]]:
    """As sent: earlier values of repeated keys first."""
    earlier = attributes.get(DUPLICATES)
    if not isinstance(earlier, list):
        return list(attributes.items())
    return [*map(tuple, earlier), *((key, value) for key, value in attributes.items() if key != DUPLICATES)]  # type: ignore[list-item, arg-type]


def grouped(records: Sequence[Record]) -> list[tuple[Resource, Scope, list[Record]]]:
    """Neighbours of one resource and scope together, as an exporter sends them."""
    groups: list[tuple[Resource, Scope, list[Record]]] = []
    for record in records:
        if not groups or groups[-1][0] is not record.resource or groups[-1][1] is not record.scope:
            groups.append((record.resource, record.scope, []))
        groups[-1][2].append(record)
    return groups


# ---- protobuf ----


def value_bytes(value: Value) -> bytes:
    if isinstance(value, bool):
        return bytes(wire.AnyValue(bool_value=value).SerializeToString())
    if isinstance(value, int):
        return bytes(wire.AnyValue(int_value=value).SerializeToString())
    if isinstance(value, float):
        return bytes(wire.AnyValue(double_value=value).SerializeToString())
    if isinstance(value, str | InvalidText):
        return bytes(wire.AnyValue(string_value=raw_text(value)).SerializeToString())
    if isinstance(value, bytes):
        return bytes(wire.AnyValue(bytes_value=value).SerializeToString())
    if isinstance(value, list):
        return bytes(wire.AnyValue(array_value={"values": map(value_bytes, value)}).SerializeToString())
    if isinstance(value, dict):
        return bytes(wire.AnyValue(kvlist_value={"values": _pairs_bytes(value)}).SerializeToString())
    return b""


def _pairs_bytes(attributes: Attributes) -> list[bytes]:
    return [
        wire.KeyValue(key=raw_text(key), value=value_bytes(value)).SerializeToString()
        for key, value in pairs_of(attributes)
    ]


def _message(record: Record) -> dict[str, Any]:
    attributes = {
        "attributes": _pairs_bytes(record.attributes),
        "dropped_attributes_count": record.dropped_attributes_count,
        "trace_id": bytes.fromhex(record.trace_id),
        "span_id": bytes.fromhex(record.span_id),
        "flags": record.flags,
    }
    if isinstance(record, LogRecord):
        return attributes | {
            "time_unix_nano": record.time_ns,
            "observed_time_unix_nano": record.observed_time_ns,
            "severity_number": record.severity_number,
            "severity_text": raw_text(record.severity_text),
            "event_name": raw_text(record.event_name),
            "body": value_bytes(record.body),
        }
    return attributes | {
        "parent_span_id": bytes.fromhex(record.parent_span_id),
        "name": raw_text(record.name),
        "kind": record.kind,
        "start_time_unix_nano": record.start_ns,
        "end_time_unix_nano": record.end_ns,
        "events": [
            {"time_unix_nano": event.time_ns, "name": raw_text(event.name),
             "attributes": _pairs_bytes(event.attributes), "dropped_attributes_count": event.dropped_attributes_count}
            for event in record.events
        ],
        "links": [
            {"trace_id": bytes.fromhex(link.trace_id), "span_id": bytes.fromhex(link.span_id),
             "trace_state": raw_text(link.trace_state), "attributes": _pairs_bytes(link.attributes),
             "dropped_attributes_count": link.dropped_attributes_count, "flags": link.flags}
            for link in record.links
        ],
        "status": {"code": record.status_code, "message": raw_text(record.status_message)},
        "trace_state": raw_text(record.trace_state),
        "dropped_events_count": record.dropped_events_count,
        "dropped_links_count": record.dropped_links_count,
    }  # fmt: skip


def protobuf(records: Sequence[Record]) -> bytes:
    """The request of these spans, or of these log records."""
    logs = bool(records) and isinstance(records[0], LogRecord)
    request = wire.ExportLogsServiceRequest() if logs else wire.ExportTraceServiceRequest()
    for resource, scope, group in grouped(records):
        by_resource = (request.resource_logs if logs else request.resource_spans).add(
            resource={
                "attributes": _pairs_bytes(resource.attributes),
                "dropped_attributes_count": resource.dropped_attributes_count,
            },
            schema_url=raw_text(resource.schema_url),
        )
        by_scope = (by_resource.scope_logs if logs else by_resource.scope_spans).add(
            scope={
                "name": raw_text(scope.name),
                "version": raw_text(scope.version),
                "attributes": _pairs_bytes(scope.attributes),
                "dropped_attributes_count": scope.dropped_attributes_count,
            },
            schema_url=raw_text(scope.schema_url),
        )
        for record in group:
            (by_scope.log_records if logs else by_scope.spans).add(**_message(record))
    return bytes(request.SerializeToString())


# ---- JSON ----


def _text(text: str | bytes) -> str:
    return raw_text(text).decode("utf-8", "surrogateescape")


def json_value(value: Value) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        spelt = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return {"doubleValue": value if math.isfinite(value) else spelt}
    if isinstance(value, str | InvalidText):
        return {"stringValue": _text(value)}
    if isinstance(value, bytes):
        return {"bytesValue": base64.b64encode(value).decode()}
    if isinstance(value, list):
        return {"arrayValue": {"values": [json_value(item) for item in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": _json_pairs(value)}}
    return {}


def _json_pairs(attributes: Attributes) -> list[dict[str, Any]]:
    return [{"key": _text(key), "value": json_value(value)} for key, value in pairs_of(attributes)]


def _json_message(record: Record) -> dict[str, Any]:
    common = {
        "attributes": _json_pairs(record.attributes),
        "droppedAttributesCount": record.dropped_attributes_count,
        "traceId": record.trace_id,
        "spanId": record.span_id,
        "flags": record.flags,
    }
    if isinstance(record, LogRecord):
        return common | {
            "timeUnixNano": str(record.time_ns),
            "observedTimeUnixNano": str(record.observed_time_ns),
            "severityNumber": record.severity_number,
            "severityText": _text(record.severity_text),
            "eventName": _text(record.event_name),
            "body": json_value(record.body),
        }
    return common | {
        "parentSpanId": record.parent_span_id,
        "name": _text(record.name),
        "kind": record.kind,
        "startTimeUnixNano": str(record.start_ns),
        "endTimeUnixNano": str(record.end_ns),
        "events": [
            {"timeUnixNano": str(event.time_ns), "name": _text(event.name), "attributes": _json_pairs(event.attributes),
             "droppedAttributesCount": event.dropped_attributes_count}
            for event in record.events
        ],
        "links": [
            {"traceId": link.trace_id, "spanId": link.span_id, "traceState": _text(link.trace_state),
             "attributes": _json_pairs(link.attributes), "droppedAttributesCount": link.dropped_attributes_count,
             "flags": link.flags}
            for link in record.links
        ],
        "status": {"code": record.status_code, "message": _text(record.status_message)},
        "traceState": _text(record.trace_state),
        "droppedEventsCount": record.dropped_events_count,
        "droppedLinksCount": record.dropped_links_count,
    }  # fmt: skip


def as_json(records: Sequence[Record]) -> bytes:
    """The request of these spans, or of these log records."""
    logs = bool(records) and isinstance(records[0], LogRecord)
    found = []
    for resource, scope, group in grouped(records):
        by_scope = {
            "scope": {
                "name": _text(scope.name),
                "version": _text(scope.version),
                "attributes": _json_pairs(scope.attributes),
                "droppedAttributesCount": scope.dropped_attributes_count,
            },
            "logRecords" if logs else "spans": [_json_message(record) for record in group],
            "schemaUrl": _text(scope.schema_url),
        }
        by_resource = {
            "resource": {
                "attributes": _json_pairs(resource.attributes),
                "droppedAttributesCount": resource.dropped_attributes_count,
            },
            "scopeLogs" if logs else "scopeSpans": [by_scope],
            "schemaUrl": _text(resource.schema_url),
        }
        found.append(by_resource)
    document = json.dumps({"resourceLogs" if logs else "resourceSpans": found}, ensure_ascii=False)
    return document.encode("utf-8", "surrogateescape")
