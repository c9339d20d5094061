"""What can be done with records before any store is asked: read them, and compress their content.

Pure but for the log, so the doors do it in their own threads while a flush waits for the stores.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from otel_blackboard.exporter.packs import compress
from otel_blackboard.failures import log_failure
from otel_blackboard.processor.reading import (
    LogReading,
    SpanReading,
    log_identity,
    mark_made,
    read_log,
    read_span,
    spans_of_log,
)
from otel_blackboard.processor.unread import unread
from otel_blackboard.records import SPAN_PACK, LogRecord, Span, Tenant

log = logging.getLogger(__name__)

Record = TypeVar("Record", Span, LogRecord)
Reading = TypeVar("Reading", SpanReading, LogReading)


@dataclass(slots=True)
class Prepared:
    """The records of one request, read; their content compressed."""

    spans: list[tuple[Tenant, SpanReading]]
    logs: list[tuple[Tenant, LogReading]]
    failures: int = 0
    """Records that could not be read, and are kept without a meaning."""

    @property
    def readings(self) -> list[SpanReading | LogReading]:
        return [*(reading for _, reading in self.spans), *(reading for _, reading in self.logs)]


def prepare(
    spans: Sequence[tuple[Tenant, Span]], logs: Sequence[tuple[Tenant, LogRecord]], captured: frozenset[str]
) -> Prepared:
    """`captured`: the artifact kinds to make. What others would hold is kept as content of the span (API-10)."""
    prepared = Prepared([], [])
    for tenant, span in spans:
        prepared.spans.append((tenant, _read(read_span, tenant, span, prepared)))
    for tenant, record in logs:
        log_reading = _read(read_log, tenant, record, prepared)
        prepared.logs.append((tenant, log_reading))
        for span in _spans_of(record, prepared):
            made = _read(read_span, tenant, span, prepared)
            mark_made(made, log_reading.light.trace_id, log_reading.light.record_sha256)
            prepared.spans.append((tenant, made))
    readings = prepared.readings
    for reading in readings:
        leave_out(reading, captured)
    contents = [content for reading in readings for content in reading.contents]
    compress(contents)
    for content in contents:
        content.data = b""
    return prepared


def _read(read: Callable[[Tenant, Record], Reading], tenant: Tenant, record: Record, prepared: Prepared) -> Reading:
    try:
        return read(tenant, record)
    except Exception as error:
        # A fault of ours must not cost the sender its record: it is stored without a role, and counted.
        prepared.failures += 1
        log_failure(log, "a span or log record could not be read; it is stored without a role", error)
        reading = read(tenant, unread(record))
        if isinstance(record, LogRecord) and isinstance(reading, LogReading):
            with contextlib.suppress(Exception):  # the same record, when it can be read, is not to be another one
                reading.light.version, reading.light.record_sha256 = log_identity(tenant, record)
        return reading


def _spans_of(record: LogRecord, prepared: Prepared) -> list[Span]:
    try:
        return spans_of_log(record)
    except Exception as error:
        prepared.failures += 1
        log_failure(log, "a log record could not be read as a call; it is stored as a log record", error)
        return []


def leave_out(reading: SpanReading | LogReading, captured: frozenset[str]) -> None:
    """Artifacts of kinds that are not captured; their content stays content of the span."""
    dropped = [draft for draft in reading.drafts if draft.row.kind not in captured]
    if dropped:
        reading.drafts = [draft for draft in reading.drafts if draft.row.kind in captured]
        for draft in dropped:
            for index in draft.contents:
                reading.contents[index].kind = SPAN_PACK
