"""A log record as the span that it stands for, where an emitter may send logs alone (Dialect.log_spans).

A function of the record alone: sent twice it is the same span. A record that was written inside a trace becomes a span
there, under the span that it was written in; any other one a span of a trace that all records of its run derive alike.
"""

from __future__ import annotations

import hashlib

from otel_blackboard.processor.values import first_text, whole_number
from otel_blackboard.records import Attributes, LogRecord, Span, Value

FROM_LOG = "blackboard.from_log"
"""Attribute of every such span: the name of the event that it was made of."""

TRACED = "blackboard.traced"
"""Attribute of a span that is made only to say in the derived trace that the emitter sent spans: what else stands there
restates them, and does not count."""


def in_trace(record: LogRecord) -> bool:
    return bool(record.trace_id and record.span_id)


def derived_id(digits: int, *names: str) -> str:
    return hashlib.sha256("\0".join(names).encode("utf-8", "surrogatepass")).hexdigest()[:digits]


def text(record: LogRecord, key: str) -> str:
    return first_text(record.attributes.get(key))


def nanoseconds(milliseconds: Value) -> int:
    """A duration as these emitters write it: a number of milliseconds, or its text; 0 = none."""
    return (whole_number(milliseconds) or 0) * 10**6


def span_of(
    record: LogRecord,
    event_name: str,
    name: str,
    run: tuple[str, ...],
    identity: tuple[str, ...],
    parent: str = "",
    attributes: Attributes | None = None,
    duration: Value = None,
    derived: bool = False,
) -> Span:
    """`run`: what all records of one run share. `identity`: what this call has within its run. `parent`: span id of what
    stands above it in the derived trace. `derived`: put it there even where the record was written inside a trace."""
    end_ns = record.time_ns or record.observed_time_ns
    sent = in_trace(record) and not derived
    return Span(
        trace_id=record.trace_id if sent else derived_id(32, *run),
        span_id=derived_id(16, *run, *identity),
        parent_span_id=record.span_id if sent else parent,
        name=name,
        kind=1,
        start_ns=max(end_ns - nanoseconds(duration), 0),
        end_ns=end_ns,
        attributes=record.attributes | (attributes or {}) | {FROM_LOG: event_name},
        resource=record.resource,
        scope=record.scope,
    )
