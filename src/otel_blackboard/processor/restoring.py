"""A stored row as the record that arrived: the inverse of row_text.py, so that a better reader can read it.

What the row itself cut short is put together again out of its content; flattened families are keys again, one after another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import orjson

from otel_blackboard.processor.unread import as_sent
from otel_blackboard.processor.values import CONTENT, restore, unescape
from otel_blackboard.records import (
    Attributes,
    Body,
    Event,
    InvalidText,
    Link,
    LogRecord,
    Resource,
    Scope,
    Span,
    Value,
)

Owner = TypeVar("Owner", Resource, Scope)
Row = Mapping[str, Any]
"""Columns of `spans` or `logs` by name."""


class Owners:
    """Resources and scopes that many rows share, each restored once."""

    def __init__(self) -> None:
        self._known: dict[str, Resource | Scope] = {}

    def resource(self, text: str, contents: _Contents) -> Resource:
        return self._owner(text, contents, Resource)

    def scope(self, text: str, contents: _Contents) -> Scope:
        return self._owner(text, contents, Scope)

    def _owner(self, text: str, contents: _Contents, kind: type[Owner]) -> Owner:
        known = self._known.get(kind.__name__ + text)
        if isinstance(known, kind):
            return known
        shown: dict[str, Any] = orjson.loads(text)
        attributes = {unescape(key): contents.named(value) for key, value in shown.pop("attributes", {}).items()}
        owner = kind(attributes=attributes, **{name: contents.named(value) for name, value in shown.items()})
        if f'"{CONTENT}"' not in text:
            self._known[kind.__name__ + text] = owner
        return owner


class _Contents:
    def __init__(self, bodies: Sequence[Body], data: Sequence[bytes]) -> None:
        self._bodies, self._data = bodies, data

    def __getitem__(self, place: int) -> Value:
        encoding, data = self._bodies[place].encoding, self._data[place]
        if encoding == "text":
            return data.decode()
        if encoding == "bytes":
            return data
        return InvalidText(data) if encoding == "not-text" else restore(orjson.loads(data))

    def is_family(self, place: int) -> bool:
        return self._bodies[place].encoding == "pairs"

    def field(self, name: str, otherwise: Value) -> Value:
        return next((self[place] for place, body in enumerate(self._bodies) if body.field == name), otherwise)

    def named(self, value: Any) -> Any:
        """A value of a resource or scope, whose pointers are names of fields."""
        pointer = _pointer(value)
        return restore(value) if pointer is None else self.field(pointer, None)

    def attributes(self, kept: Mapping[str, Any]) -> Attributes:
        attributes: Attributes = {}
        for key, value in kept.items():
            place = _pointer(value)
            if place is None:
                attributes[unescape(key)] = restore(value)
            elif self.is_family(place):
                pairs: Any = self[place]
                attributes.update((name, said) for name, said in pairs)
            else:
                attributes[unescape(key)] = self[place]
        return attributes


def _pointer(value: Any) -> Any:
    return value[CONTENT] if isinstance(value, dict) and value.keys() == {CONTENT} else None


def restored_span(row: Row, data: Sequence[bytes], owners: Owners) -> Span:
    """`data`: the content of each of the row's `bodies`."""
    contents = _Contents(row["bodies"], data)
    dropped = _dropped(row["dropped"])
    span = Span(
        row["trace_id"],
        row["span_id"],
        row["parent_span_id"],
        str(contents.field("name", row["name"])),
        row["kind"],
        row["start_ns"],
        row["sent_end_ns"],
        contents.attributes(orjson.loads(row["attributes"])),
        [_event(event, contents) for event in orjson.loads(row["events"])],
        [_link(link) for link in orjson.loads(row["links"])],
        row["status_code"],
        str(contents.field("status_message", row["status_message"])),
        row["trace_state"],
        row["flags"],
        dropped.get("attributes", 0),
        dropped.get("events", 0),
        dropped.get("links", 0),
        owners.resource(row["resource"], contents),
        owners.scope(row["instrumentation_scope"], contents),
    )
    return as_sent(span)


def restored_log(row: Row, data: Sequence[bytes], owners: Owners) -> LogRecord:
    """Its time is that of its row: a record without one was read as of when it was observed."""
    contents = _Contents(row["bodies"], data)
    place = _pointer(orjson.loads(row["body"]))
    record = LogRecord(
        row["trace_id"],
        row["span_id"],
        row["time_ns"],
        row["observed_time_ns"],
        row["severity_number"],
        row["severity_text"],
        row["event_name"],
        None if place is None else contents[place],
        contents.attributes(orjson.loads(row["attributes"])),
        row["flags"],
        _dropped(row["dropped"]).get("attributes", 0),
        owners.resource(row["resource"], contents),
        owners.scope(row["instrumentation_scope"], contents),
    )
    return as_sent(record)


def _dropped(text: str) -> dict[str, int]:
    counts: dict[str, int] = orjson.loads(text) if text else {}
    return counts


def _event(event: dict[str, Any], contents: _Contents) -> Event:
    attributes = contents.attributes(event["attributes"])
    return Event(event["time_ns"], event["name"], attributes, event.get("dropped_attributes_count", 0))


def _link(link: dict[str, Any]) -> Link:
    attributes = {unescape(key): restore(value) for key, value in link.pop("attributes").items()}
    return Link(**link, attributes=attributes)
