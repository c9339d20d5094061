"""The columns of each table as data: name, ClickHouse type, and how a record's value is written and read.

The migrations make the tables; a test holds them and this list equal. Structured values (bodies, requested calls,
labels) stand in text columns as compact JSON: they are only ever read whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import orjson

from otel_blackboard.processor.precedence import ORDINALS
from otel_blackboard.records import ArtifactRow, Body, Frame, Light, LogLight, RequestedCall, Resolved, RunPart

TEXT, WORD, NUMBER, COUNT = "String", "LowCardinality(String)", "UInt64", "Nullable(UInt64)"
SMALL, MONEY, FLAG, VERSION = "Nullable(UInt32)", "Nullable(Decimal(38, 12))", "Bool", "UInt256"


class Column(NamedTuple):
    name: str
    type: str


TENANT = (Column("organization_id", WORD), Column("project_id", WORD))
_WORDS = frozenset(
    """
    status role dialect scope operation agent_id use_case_id mode provider request_model response_model model tool_name
    tool_class cost_source kind origin content_type trigger event_name severity_text step_id step_name
    """.split()
)


def _type(name: str, annotation: str) -> str:
    if name == "version":
        return VERSION
    if annotation == "bool":
        return FLAG
    if annotation == "int":
        return NUMBER
    if annotation == "int | None":
        return SMALL if name in ORDINALS else COUNT
    if annotation == "Decimal | None":
        return MONEY
    return WORD if name in _WORDS else TEXT


def columns_of(record: type) -> tuple[Column, ...]:
    return tuple(Column(f.name, _type(f.name, str(f.type))) for f in fields(record))


READER = Column("reader_version", "UInt32")
"""Which reader made the light columns (tree.READER_VERSION)."""

LIGHT = columns_of(Light)
LOG_LIGHT = columns_of(LogLight)
ARTIFACT = columns_of(ArtifactRow)
RESOLVED = (*columns_of(Resolved), Column("version", "UInt64"), READER)
RUN_PART = (*columns_of(RunPart), Column("version", "UInt64"), READER)

_SHOWN_ALONE = frozenset(
    """run_id parent_span_id operation billed is_aggregate input_tokens output_tokens cached_input_tokens cache_write_tokens
    reasoning_tokens cost_usd cost_source requested labels""".split()
)
CALLS = tuple(column for column in columns_of(Resolved) if column.name not in _SHOWN_ALONE)
"""What numbers and artifacts need of `resolved`, without what timeline and prompts alone show: the engine takes 0.25 ms
for each column of a query, however few rows it reads (measured, chDB 26.9)."""

FOUND = tuple(
    column
    for column in columns_of(ArtifactRow)
    if column.name in ("trace_id", "span_id", "kind", "source", "artifact_id", "label", "summary", "time_ns", "version")
)
"""What a search shows of an artifact."""

PLACES = tuple(
    column for column in columns_of(RunPart) if column.name in ("trace_id", "part", "run_id", "is_root", "start_ns")
)
"""What says where the rows of a run are."""

_KNOWN_BEFORE = frozenset(
    """trace_id span_id parent_span_id name start_ns end_ns status role run_id agent_id provider request_model response_model
    tool_name error""".split()
)
UNDERIVED = tuple(column for column in columns_of(Light) if column.name in _KNOWN_BEFORE)
"""What a timeline shows of a span that is not derived yet."""

SPAN_ROW = (
    Column("kind", "UInt8"),
    Column("status_code", "UInt8"),
    Column("status_message", TEXT),
    Column("trace_state", TEXT),
    Column("flags", "UInt32"),
    Column("sent_end_ns", NUMBER),
    Column("attributes", TEXT),
    Column("events", TEXT),
    Column("links", TEXT),
    Column("dropped", TEXT),
    Column("resource", TEXT),
    Column("instrumentation_scope", TEXT),
    Column("bodies", TEXT),
)
"""What arrived, beside the light columns. Content in `attributes` and `events` is `{"$content": index into bodies}`."""

LOG_ROW = (
    Column("observed_time_ns", NUMBER),
    Column("severity_number", "UInt8"),
    Column("flags", "UInt32"),
    Column("body", TEXT),
    Column("attributes", TEXT),
    Column("dropped", TEXT),
    Column("resource", TEXT),
    Column("instrumentation_scope", TEXT),
    Column("bodies", TEXT),
)

READ_AT = Column("read_at_ns", NUMBER)
"""When an artifact's row was read out of its record: of two rows of one version the later one counts."""

STORED = (Column("stored", "Date"), Column("start_time", "DateTime64(9, 'UTC')"))
"""Day of receipt (the partition) and the clamped time that serves index and order only."""

TABLES: dict[str, tuple[Column, ...]] = {
    "spans": (*TENANT, *LIGHT, *SPAN_ROW, READER, *STORED),
    "logs": (*TENANT, *LOG_LIGHT, *LOG_ROW, READER, *STORED),
    "artifacts": (*TENANT, *ARTIFACT, READ_AT, *STORED),
    "resolved": (*TENANT, *RESOLVED, *STORED, Column("is_deleted", "UInt8")),
    "run_parts": (*TENANT, *RUN_PART, *STORED, Column("is_deleted", "UInt8")),
    "deriving": (*TENANT, Column("trace_id", TEXT), Column("version", "UInt64"), Column("is_deleted", "UInt8")),
    "rederiving": (*TENANT, Column("trace_id", TEXT), Column("version", "UInt64"), Column("is_deleted", "UInt8")),
    "satellites": (*TENANT, Column("call", TEXT), Column("trace_id", TEXT)),
    "tombstones": (*TENANT, Column("scope", WORD), Column("id", TEXT), Column("made_at_ns", NUMBER)),
}

# ------------------------------------------------------------------------------------------------- values in and out


def bodies_text(bodies: Sequence[Body]) -> str:
    if not bodies:
        return ""
    return orjson.dumps(
        [[b.field, b.encoding, b.raw_length, b.sha256, [[*f] for f in b.frames]] for b in bodies]
    ).decode()


def read_bodies_text(text: str) -> tuple[Body, ...]:
    if not text:
        return ()
    return tuple(
        Body(field, tuple(Frame(*frame) for frame in frames), length, sha256, encoding)
        for field, encoding, length, sha256, frames in orjson.loads(text)
    )


def _json_or_empty(value: Any) -> str:
    return orjson.dumps(value).decode() if value else ""


def _requested_text(calls: Sequence[RequestedCall]) -> str:
    return orjson.dumps([[*call] for call in calls]).decode() if calls else ""


def _requested(text: str) -> tuple[RequestedCall, ...]:
    return tuple(RequestedCall(*call) for call in orjson.loads(text)) if text else ()


def _names(text: str) -> tuple[str, ...]:
    return tuple(orjson.loads(text)) if text else ()


def _map(text: str) -> dict[str, Any]:
    result: dict[str, Any] = orjson.loads(text) if text else {}
    return result


_WRITE: Mapping[str, Callable[[Any], Any]] = {
    "bodies": bodies_text,
    "requested": _requested_text,
    "linked_traces": _json_or_empty,
    "agents": _json_or_empty,
    "labels": _json_or_empty,
    "counts": _json_or_empty,
}
_READ: Mapping[str, Callable[[str], Any]] = {
    "bodies": read_bodies_text,
    "requested": _requested,
    "linked_traces": _names,
    "agents": _names,
    "labels": _map,
    "counts": _map,
}

Record = TypeVar("Record")


def column_values(records: Sequence[Any], columns: Sequence[Column]) -> list[list[Any]]:
    """The columns of records whose fields have the columns' names."""
    if not records:
        return [[] for _ in columns]
    # All fields of a record in one call, then turned: three times as fast as column by column.
    values = [list(column) for column in zip(*map(attrgetter(*(c.name for c in columns)), records), strict=True)]
    for place, column in enumerate(columns):
        if write := _WRITE.get(column.name):
            values[place] = [write(value) for value in values[place]]
    return values


def read_records(record: type[Record], columns: Sequence[Column], rows: Sequence[Sequence[Any]]) -> list[Record]:
    """Rows in the order of `columns` as records; fields without a column have their defaults."""
    readers = [(place, reader) for place, column in enumerate(columns) if (reader := _READ.get(column.name))]
    own = [column.name for column in columns]
    whole = own == [field.name for field in fields(record)]  # type: ignore[arg-type]
    result = []
    for row in rows:
        values = list(row)
        for place, reader in readers:
            values[place] = reader(values[place])
        result.append(record(*values) if whole else record(**dict(zip(own, values, strict=True))))
    return result


def names(columns: Sequence[Column]) -> str:
    return ", ".join(column.name for column in columns)
