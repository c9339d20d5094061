"""Records as OTLP protobuf requests, as a sender's exporter makes them. Attribute values are texts, numbers and flags."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from otel_blackboard.records import LogRecord, Span


def traces_request(spans: Iterable[Span]) -> bytes:
    request = ExportTraceServiceRequest()
    out = request.resource_spans.add().scope_spans.add().spans
    for span in spans:
        out.add(
            trace_id=bytes.fromhex(span.trace_id),
            span_id=bytes.fromhex(span.span_id),
            parent_span_id=bytes.fromhex(span.parent_span_id),
            name=span.name,
            kind=span.kind,  # type: ignore[arg-type]  # the stubs know the members of the enum only
            start_time_unix_nano=span.start_ns,
            end_time_unix_nano=span.end_ns,
            attributes=_attributes(span.attributes),
        )
    return request.SerializeToString()


def logs_request(records: Iterable[LogRecord]) -> bytes:
    request = ExportLogsServiceRequest()
    out = request.resource_logs.add().scope_logs.add().log_records
    for record in records:
        out.add(
            trace_id=bytes.fromhex(record.trace_id),
            span_id=bytes.fromhex(record.span_id),
            time_unix_nano=record.time_ns,
            event_name=record.event_name,
            body=None if record.body is None else _value(record.body),
            attributes=_attributes(record.attributes),
        )
    return request.SerializeToString()


def _attributes(attributes: dict[str, Any]) -> list[KeyValue]:
    return [KeyValue(key=key, value=_value(value)) for key, value in attributes.items()]


def _value(value: Any) -> AnyValue:
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    return AnyValue(string_value=value)
