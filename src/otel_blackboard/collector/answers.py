"""What the doors answer: the whole retry contract in one table.

https://opentelemetry.io/docs/specs/otlp/#failures: a sender sends again after HTTP 429, 502, 503 and 504, and after
gRPC UNAVAILABLE and, if RetryInfo stands beside it, RESOURCE_EXHAUSTED. After anything else it drops the data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from google.protobuf import json_format
from google.rpc import code_pb2, error_details_pb2, status_pb2
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

from otel_blackboard.collector.arrival import (
    DecodeError,
    Forbidden,
    QueueFull,
    ShuttingDown,
    Stalled,
    StoreUnavailable,
    TooLarge,
    Unauthenticated,
    UnsupportedEncoding,
    UnsupportedMediaType,
)


@dataclass(frozen=True, slots=True)
class Answer:
    http: int
    grpc: int
    """A google.rpc.Code."""
    retryable: bool
    message: str
    """`{detail}` is what the error itself says: only for errors whose text is made for the sender."""
    error: type[Exception] | None = None
    """The exception that means this situation."""


ANSWERS: dict[str, Answer] = {
    "bad_body": Answer(400, code_pb2.INVALID_ARGUMENT, False, "{detail}", DecodeError),
    "unsupported_encoding": Answer(415, code_pb2.INVALID_ARGUMENT, False, "{detail}", UnsupportedEncoding),
    "unsupported_media_type": Answer(415, code_pb2.INVALID_ARGUMENT, False, "{detail}", UnsupportedMediaType),
    "too_large": Answer(413, code_pb2.INVALID_ARGUMENT, False, "{detail}", TooLarge),
    "unauthenticated": Answer(
        401,
        code_pb2.UNAUTHENTICATED,
        False,
        "a key is needed: send the header `authorization: Bearer <key>` with a key of this service",
        Unauthenticated,
    ),
    "forbidden": Answer(403, code_pb2.PERMISSION_DENIED, False, "{detail}", Forbidden),
    "not_found": Answer(404, code_pb2.NOT_FOUND, False, "OTLP is taken at /v1/traces, /v1/logs and /v1/metrics"),
    "method_not_allowed": Answer(405, code_pb2.UNIMPLEMENTED, False, "OTLP is sent with POST"),
    "queue_full": Answer(
        429, code_pb2.RESOURCE_EXHAUSTED, True, "too much is waiting to be stored; send this again later", QueueFull
    ),
    "store_down": Answer(
        503, code_pb2.UNAVAILABLE, True, "the store cannot take data now; send this again later", StoreUnavailable
    ),
    "stalled": Answer(
        503, code_pb2.UNAVAILABLE, True, "the request did not come to its end; send it again later", Stalled
    ),
    "shutting_down": Answer(
        503, code_pb2.UNAVAILABLE, True, "the service is closing; send this again later", ShuttingDown
    ),
    "internal": Answer(500, code_pb2.INTERNAL, False, "internal error; the service's log says more"),
}

_SITUATIONS = {answer.error: situation for situation, answer in ANSWERS.items() if answer.error is not None}


def situation_of(error: BaseException) -> str:
    """The situation that an exception means; `internal` for one that no row names."""
    for kind in type(error).__mro__:
        if kind in _SITUATIONS:
            return _SITUATIONS[kind]
    return "internal"


def status_of(situation: str, detail: str, retry_after: int) -> status_pb2.Status:
    """The google.rpc.Status of a situation, with RetryInfo (seconds) when the sender is to try again."""
    answer = ANSWERS[situation]
    status = status_pb2.Status(code=answer.grpc, message=answer.message.format(detail=detail or situation))
    if hint := hint_of(situation, retry_after):
        status.details.add().Pack(hint)
    return status


def hint_of(situation: str, retry_after: int) -> error_details_pb2.RetryInfo | None:
    """When to try again; None after what is final. Python's gRPC exporter reads it in a place of its own, the metadata
    `google.rpc.retryinfo-bin`, and doubles its waiting without it."""
    if not ANSWERS[situation].retryable:
        return None
    hint = error_details_pb2.RetryInfo()
    hint.retry_delay.seconds = retry_after
    return hint


def headers_of(situation: str, retry_after: int) -> dict[str, str]:
    """HTTP headers that belong to a situation beside the content type."""
    if ANSWERS[situation].retryable:
        return {"retry-after": str(retry_after)}
    if situation == "unauthenticated":
        return {"www-authenticate": "Bearer"}
    if situation == "method_not_allowed":
        return {"allow": "POST"}
    return {}


def encode(message: Any, as_json: bool) -> bytes:
    """A protobuf message in the encoding of the request."""
    if as_json:
        return json_format.MessageToJson(message, indent=None).encode()
    return bytes(message.SerializeToString())


# ---- success ----

LONGEST_REASONS = 500
"""Characters of the message of a partial success."""

_RESPONSES = {
    "traces": (trace_service_pb2.ExportTraceServiceResponse, "rejected_spans", "spans"),
    "logs": (logs_service_pb2.ExportLogsServiceResponse, "rejected_log_records", "log records"),
    "metrics": (metrics_service_pb2.ExportMetricsServiceResponse, "rejected_data_points", "data points"),
}


def accepted(signal: str, rejected: list[str]) -> Any:
    """The export response of a signal (`traces`, `logs`, `metrics`); a partial success if something was rejected."""
    response_type, count_field, records = _RESPONSES[signal]
    response = response_type()
    if rejected:
        setattr(response.partial_success, count_field, len(rejected))
        response.partial_success.error_message = _reasons(rejected, records)
    return response


def _reasons(rejected: list[str], records: str) -> str:
    """The first reasons, as many as fit."""
    text = f"{len(rejected)} {records} rejected: {rejected[0]}"
    for reason in rejected[1:]:
        if len(text) + len(reason) + 2 > LONGEST_REASONS:
            break
        text += f"; {reason}"
    return text if len(text) <= LONGEST_REASONS else text[: LONGEST_REASONS - 1] + "…"
