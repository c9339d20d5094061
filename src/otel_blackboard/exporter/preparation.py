"""What can be done with records before any store is asked: read them, and compress their content.

Pure but for the log, so the doors do it in their own threads while a flush waits for the stores.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from otel_blackboard.exporter.packs import compress
from otel_blackboard.failures import log_failure
from otel_blackboard.processor.reading import LogReading, SpanReading, read_log, read_span
from otel_blackboard.records import SPAN_PACK, LogRecord, Span, Tenant

log = logging.getLogger(__name__)

FAILED = "blackboard.derivation_failed"
"""Marks a record that we could not read."""


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
        prepared.spans.append((tenant, _read_span(tenant, span, prepared)))
    for tenant, record in logs:
        prepared.logs.append((tenant, _read_log(tenant, record, prepared)))
    readings = prepared.readings
    for reading in readings:
        _leave_out(reading, captured)
    contents = [content for reading in readings for content in reading.contents]
    compress(contents)
    for content in contents:
        content.data = b""
    return prepared


def _read_span(tenant: Tenant, span: Span, prepared: Prepared) -> SpanReading:
    try:
        return read_span(tenant, span)
    except Exception as error:
        # A fault of ours must not cost the sender its span: it is stored without a role, and counted.
        prepared.failures += 1
        log_failure(log, "a span could not be read; it is stored without a role", error)
        bare = copy.copy(span)
        bare.attributes = {FAILED: True, "attributes": repr(span.attributes), "events": repr(span.events)}
        bare.events, bare.links = [], []
        return read_span(tenant, bare)


def _read_log(tenant: Tenant, record: LogRecord, prepared: Prepared) -> LogReading:
    try:
        return read_log(tenant, record)
    except Exception as error:
        prepared.failures += 1
        log_failure(log, "a log record could not be read; it is stored without a meaning", error)
        bare = copy.copy(record)
        bare.attributes = {FAILED: True, "attributes": repr(record.attributes)}
        bare.body, bare.event_name = repr(record.body), ""
        return read_log(tenant, bare)


def _leave_out(reading: SpanReading | LogReading, captured: frozenset[str]) -> None:
    dropped = [draft for draft in reading.drafts if draft.row.kind not in captured]
    if dropped:
        reading.drafts = [draft for draft in reading.drafts if draft.row.kind in captured]
        for draft in dropped:
            for index in draft.contents:
                reading.contents[index].kind = SPAN_PACK
