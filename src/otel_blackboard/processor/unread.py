"""A record that the reader fails on: kept whole, without a meaning, until a better reader reads it."""

from __future__ import annotations

import copy
from dataclasses import fields
from typing import Any, TypeVar, cast

from otel_blackboard.processor.values import to_json
from otel_blackboard.records import Attributes, Event, Link, LogRecord, Span, Value

Record = TypeVar("Record", Span, LogRecord)

FAILED = "blackboard.derivation_failed"
"""Marks a record that could not be read. What was sent stands beside it, each piece as one value."""


def unread(record: Record) -> Record:
    """The record with all that could upset a reader out of its way."""
    bare = copy.copy(record)
    if isinstance(bare, Span):
        events, links = cast(list[Value], _maps(bare.events)), cast(list[Value], _maps(bare.links))
        kept: Attributes = {"attributes": bare.attributes, "events": events, "links": links}
        bare.events, bare.links = [], []
    else:
        kept = {"attributes": bare.attributes, "body": bare.body, "event_name": bare.event_name}
        bare.body, bare.event_name = None, ""
    bare.attributes = {FAILED: True, **dict(_kept(name, value) for name, value in kept.items())}
    return bare


def as_sent(record: Record) -> Record:
    """The inverse of unread(); any other record as it is, and one of which a piece could not be kept whole."""
    if record.attributes.get(FAILED) is not True:
        return record
    kept: dict[str, Any] = record.attributes
    sent = copy.copy(record)
    if isinstance(sent, Span):
        if kept.keys() != {FAILED, "attributes", "events", "links"}:
            return record
        sent.events = [Event(**event) for event in kept["events"]]
        sent.links = [Link(**link) for link in kept["links"]]
    else:
        if kept.keys() != {FAILED, "attributes", "body", "event_name"}:
            return record
        sent.body, sent.event_name = kept["body"], kept["event_name"]
    sent.attributes = kept["attributes"]
    return sent


def _kept(name: str, value: Value) -> tuple[str, Value]:
    try:
        to_json({name: value})
    except Exception:  # whatever upset the reader may upset the writer, too
        return f"repr({name})", repr(value)
    return name, value


def _maps(records: list[Event] | list[Link]) -> list[dict[str, Any]]:
    return [{f.name: getattr(record, f.name) for f in fields(record)} for record in records]
