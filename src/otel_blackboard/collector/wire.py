"""OTLP's request messages with a schema that any bytes fit: what the protobuf door parses with.

The schema is OTLP's own, read from the opentelemetry-proto package and changed in two ways that the wire cannot tell:
- `string` fields are `bytes`: protobuf refuses a whole request for one string that is not UTF-8.
- fields of type KeyValue and AnyValue are `bytes` too, to be decoded one by one. Most attributes are a short key
  with a short string, which plain slicing reads three times as fast as message objects do; and nesting, which upb
  refuses beyond 100 messages with the whole request, becomes the decoder's to bound.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

_OTLP = "opentelemetry.proto"
_OURS = "otel_blackboard.wire"
_FIELD = descriptor_pb2.FieldDescriptorProto
_KEPT_AS_BYTES = {f".{_OTLP}.common.v1.KeyValue", f".{_OTLP}.common.v1.AnyValue"}


def _copy(file: Any, pool: descriptor_pool.DescriptorPool, copied: set[str]) -> None:
    """Adds the changed copy of a file, after those it depends on, to the pool."""
    if file.name in copied:
        return
    copied.add(file.name)
    for dependency in file.dependencies:
        _copy(dependency, pool, copied)
    proto = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(proto)
    proto.package = proto.package.replace(_OTLP, _OURS, 1)
    proto.ClearField("service")
    proto.ClearField("options")
    for message in proto.message_type:
        _change(message)
    pool.Add(proto)


def _change(message: descriptor_pb2.DescriptorProto) -> None:
    for nested in message.nested_type:
        _change(nested)
    for field in message.field:
        if field.type == _FIELD.TYPE_STRING or field.type_name in _KEPT_AS_BYTES:
            field.type = _FIELD.TYPE_BYTES
            field.ClearField("type_name")
        elif field.type_name:
            field.type_name = field.type_name.replace(f".{_OTLP}.", f".{_OURS}.", 1)


def _messages() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    copied: set[str] = set()
    for service in (trace_service_pb2, logs_service_pb2, metrics_service_pb2):
        _copy(service.DESCRIPTOR, pool, copied)
    return pool


_POOL = _messages()


def _message(name: str) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{_OURS}.{name}"))


ExportTraceServiceRequest = _message("collector.trace.v1.ExportTraceServiceRequest")
ExportLogsServiceRequest = _message("collector.logs.v1.ExportLogsServiceRequest")
ExportMetricsServiceRequest = _message("collector.metrics.v1.ExportMetricsServiceRequest")
KeyValue = _message("common.v1.KeyValue")
AnyValue = _message("common.v1.AnyValue")
