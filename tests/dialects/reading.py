"""The shortest way from spans made by hand to what is read of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from otel_blackboard.processor.reading import SpanReading, read_span
from otel_blackboard.processor.tree import resolve
from otel_blackboard.records import ArtifactRow, Event, Light, Resolved, RunPart, Scope, Span
from tests.spans import TENANT, Trace, at, by_span


def scoped(scope: str, span: Span) -> Span:
    span.scope = Scope(scope)
    return span


def sent(trace: Trace, scope: str, name: str, attributes: dict[str, Any], *place: Any, **more: Any) -> Span:
    """A span with the names of its attributes as they are on the wire."""
    span = scoped(scope, trace.span(name, *place, **more))
    span.attributes |= attributes
    return span


def event(span: Span, name: str, time: float = 0, **attributes: Any) -> None:
    span.events.append(Event(at(time), name, {key.replace("__", "."): value for key, value in attributes.items()}))


def light_of(span: Span) -> Light:
    return read_span(TENANT, span).light


def artifact_of(span: Span, kind: str) -> ArtifactRow | None:
    found = [draft.row for draft in read_span(TENANT, span).drafts if draft.row.kind == kind]
    return found[0] if found else None


def fields_of(span: Span, kind: str) -> list[str]:
    """The fields whose contents are the bodies of an artifact."""
    reading: SpanReading = read_span(TENANT, span)
    return [
        reading.contents[index].field for draft in reading.drafts if draft.row.kind == kind for index in draft.contents
    ]


def body_of(span: Span, kind: str) -> bytes:
    reading = read_span(TENANT, span)
    (index,) = next(draft.contents for draft in reading.drafts if draft.row.kind == kind)
    return reading.contents[index].data


def tree_of(spans: Sequence[Span]) -> tuple[dict[str, Resolved], RunPart]:
    """What the tree finds of one trace; the same in both orders of arrival."""
    (rows, parts), (rows_again, parts_again) = (
        resolve([light_of(span) for span in order]) for order in (spans, spans[::-1])
    )
    assert rows == rows_again and parts == parts_again
    (part,) = parts
    return by_span(rows), part
