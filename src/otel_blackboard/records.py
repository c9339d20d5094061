"""The records that all parts speak. Types only: no I/O, no behaviour beyond what a value needs.

Three families, in the order of the data flow:
  what arrives     Span, LogRecord (decoded from the wire without loss)
  what is kept     Frame, Body (where content went), Facts (what one span alone says), ArtifactRow
  what is found    Resolved, RunPart (what the tree adds)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

# An attribute value in memory. Lists and dicts come from ArrayValue and KeyValueList; None is the empty AnyValue.
Value = None | bool | int | float | str | bytes | list["Value"] | dict[str, "Value"]
Attributes = dict[str, Value]

DUPLICATES = "$duplicates"
"""Key under which earlier values of a repeated key are kept: a list of [key, value] pairs, in order of arrival."""


class InvalidText(bytes):
    """A string of the wire that is not UTF-8: its bytes, kept as they came and marked when written as JSON."""


class Tenant(NamedTuple):
    organization_id: str
    project_id: str


@dataclass(slots=True)
class Resource:
    attributes: Attributes = field(default_factory=dict)
    dropped_attributes_count: int = 0
    schema_url: str = ""


@dataclass(slots=True)
class Scope:
    name: str = ""
    version: str = ""
    attributes: Attributes = field(default_factory=dict)
    dropped_attributes_count: int = 0
    schema_url: str = ""


@dataclass(slots=True)
class Event:
    time_ns: int
    name: str
    attributes: Attributes = field(default_factory=dict)
    dropped_attributes_count: int = 0


@dataclass(slots=True)
class Link:
    trace_id: str
    span_id: str
    trace_state: str = ""
    attributes: Attributes = field(default_factory=dict)
    dropped_attributes_count: int = 0
    flags: int = 0


@dataclass(slots=True)
class Span:
    """One span as it arrived. Ids are lower-case hex (32 and 16 digits), times unix nanoseconds, 0 = not set."""

    trace_id: str
    span_id: str
    parent_span_id: str = ""
    name: str = ""
    kind: int = 0
    start_ns: int = 0
    end_ns: int = 0
    attributes: Attributes = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    status_code: int = 0
    status_message: str = ""
    trace_state: str = ""
    flags: int = 0
    dropped_attributes_count: int = 0
    dropped_events_count: int = 0
    dropped_links_count: int = 0
    resource: Resource = field(default_factory=Resource)
    scope: Scope = field(default_factory=Scope)


@dataclass(slots=True)
class LogRecord:
    """One log record as it arrived. trace_id and span_id are '' when the record has none."""

    trace_id: str = ""
    span_id: str = ""
    time_ns: int = 0
    observed_time_ns: int = 0
    severity_number: int = 0
    severity_text: str = ""
    event_name: str = ""
    body: Value = None
    attributes: Attributes = field(default_factory=dict)
    flags: int = 0
    dropped_attributes_count: int = 0
    resource: Resource = field(default_factory=Resource)
    scope: Scope = field(default_factory=Scope)


class Frame(NamedTuple):
    """One zstd frame inside a packed object of the body store."""

    object: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Body:
    """Where the content of one field lies. Concatenating the decompressed frames gives the bytes as received.

    A list of frames, so that a prompt can later be stored as a difference to the one before it.
    encoding: 'text' (UTF-8), 'json' (a structured value as compact JSON), 'pairs' (a flattened family as JSON
    [key, value] pairs) or 'bytes'.
    """

    field: str
    frames: tuple[Frame, ...]
    raw_length: int
    sha256: str
    encoding: str = "text"


@dataclass(slots=True)
class Content:
    """Content on its way to the body store: one field of one span or log record."""

    tenant: Tenant
    kind: str
    """The pack it goes to: an artifact kind, or 'span' for content that is no artifact."""
    trace_id: str
    span_id: str
    field: str
    data: bytes
    encoding: str = "text"


