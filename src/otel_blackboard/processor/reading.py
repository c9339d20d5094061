"""From one span or log record to what is kept of it: its row, the content that leaves the row, its light columns, its
artifacts. Everything here is a function of that one span or record alone (design.md §4).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import orjson

from otel_blackboard.processor.dialects import BY_FIELD
from otel_blackboard.processor.dialects.dialect import FLOW_RUN, PROVIDER_CALL, STEP, TOOL, Role
from otel_blackboard.processor.drafts import (
    RECALL_TOOL,
    Draft,
    log_drafts,
    model_call_drafts,
    output_drafts,
    tool_call_draft,
)
from otel_blackboard.processor.identity import joined_run, safe_id
from otel_blackboard.processor.precedence import (
    ERROR_KEYS,
    IDS,
    NAME_KEPT,
    Shape,
    names_of,
    read_facts,
    role_of,
    shape_of,
)
from otel_blackboard.processor.prices import set_price
from otel_blackboard.processor.providers import INFERRED, inferred_provider
from otel_blackboard.processor.row_text import (
    Contents,
    families_of,
    is_large,
    parts_of,
    parts_of_events,
    version_of,
    write_attributes,
    write_dropped,
    write_events,
)
from otel_blackboard.processor.usage import include_cache
from otel_blackboard.processor.values import (
    CONTENT,
    first_text,
    to_json,
    truth,
)
from otel_blackboard.records import (
    MADE_OF_LOG,
    SATELLITE,
    Content,
    Light,
    LogLight,
    LogRecord,
    Span,
    Tenant,
)

ERROR_KEPT = 2_000

ATTRIBUTE_LIMIT = "attribute limit"
"""Mark of content of a span that says it left out attributes: what is missing may be any of them. An SDK keeps the last
128: with a long history the first messages are gone."""


@dataclass(slots=True)
class SpanReading:
    light: Light
    row: tuple[Any, ...]
    """What arrived, in the order of the columns tables.SPAN_ROW."""
    contents: list[Content]
    drafts: list[Draft]


@dataclass(slots=True)
class LogReading:
    light: LogLight
    row: tuple[Any, ...]
    """What arrived, in the order of the columns tables.LOG_ROW."""
    contents: list[Content]
    drafts: list[Draft]


def read_span(tenant: Tenant, span: Span) -> SpanReading:
    attributes = span.attributes
    shape = shape_of(attributes, span.resource.attributes, span.scope.name)
    role, dialect = role_of(span, shape)
    name = span.name[:NAME_KEPT]
    light = Light(span.trace_id, span.span_id, span.parent_span_id, name, span.start_ns, span.end_ns)
    light.role, light.operation, light.is_agent, light.is_node = role
    light.dialect, light.scope = dialect, span.scope.name[:NAME_KEPT]
    read_facts(light, shape.facts, attributes, span.resource.attributes, span, shape.ignore)
    for fact, said in names_of(span, shape, role, dialect):
        if not getattr(light, fact):
            setattr(light, fact, said[:NAME_KEPT])
    for label, keys in shape.labels:
        for key, take in keys:
            value = attributes.get(key)
            if take is not None and value is not None:
                value = take(value)
            if value is not None and value != "":
                light.labels[label] = first_text(value) or to_json(value)
                break
    for name, prefix in IDS.items():
        sent = getattr(light, name)
        if sent and (safe := safe_id(prefix, sent)) != sent:
            setattr(light, name, safe)
            light.labels["original_" + name] = sent
    light.linked_traces = tuple(sorted({link.trace_id for link in span.links if link.trace_id != span.trace_id}))
    pending = truth(attributes.get("blackboard.pending"))
    error = _error(span) if shape.errors or span.status_code or span.events else ""
    light.error = error[:ERROR_KEPT]
    if pending or span.end_ns == 0:
        light.status, light.end_ns = "running", 0
    elif _failed(span, role):
        light.status = "failed"
    for complete in shape.complete:
        complete(light, span)
    include_cache(light)
    error = error or light.error
    light.join_key = _join_key(span, shape, light)
    if light.role == PROVIDER_CALL and not light.provider:
        light.provider, inferred_from = inferred_provider(attributes, light.response_model or light.request_model)
        if inferred_from:
            light.labels[INFERRED] = inferred_from
    if light.role == TOOL:
        _class_tool(light)

    families = families_of(attributes) if shape.families else {}
    parts, event_parts = parts_of(attributes, families, shape.parts), parts_of_events(span.events, shape.by_field)
    for gather in reversed(shape.pieces):
        parts |= {part.meaning: part for part in gather(span, role)}
    contents, drafts = Contents(tenant, span.trace_id, span.span_id), []
    if light.role == PROVIDER_CALL:
        drafts += model_call_drafts(tenant, light, parts, event_parts, contents)
    elif light.role == TOOL:
        drafts.append(tool_call_draft(tenant, light, parts, event_parts, contents, error, shape.unwrap))
    elif light.role in (STEP, FLOW_RUN):
        drafts += output_drafts(tenant, light, parts, event_parts, contents, exact_response=False)
    else:
        light.has_input, light.has_output = "input" in parts, "output" in parts
    set_price(light)

    attributes_text = write_attributes(attributes, shape, families, contents)
    events_text = write_events(span.events, contents)
    links_text = (
        to_json([
            {"trace_id": link.trace_id, "span_id": link.span_id, "trace_state": link.trace_state, "flags": link.flags,
             "attributes": link.attributes, "dropped_attributes_count": link.dropped_attributes_count}
            for link in span.links
        ])
        if span.links
        else "[]"
    )  # fmt: skip
    resource, scope = contents.shared(span.resource, "resource"), contents.shared(span.scope, "scope")
    if len(span.name) > NAME_KEPT:
        contents.value("name", span.name)
    status_message = span.status_message
    if is_large(status_message):
        contents.value("status_message", status_message)
        status_message = status_message[:NAME_KEPT]
    light.version = version_of(
        finished=light.end_ns != 0,
        end_ns=span.end_ns,
        size=len(attributes),
        texts=(span.name, attributes_text, events_text, links_text, span.status_message, span.parent_span_id,
               f"{span.kind} {span.status_code} {span.start_ns} {span.end_ns} {span.flags} {span.trace_state}", resource, scope,
               f"{span.dropped_attributes_count} {span.dropped_events_count} {span.dropped_links_count}"),
        contents=contents.items,
    )  # fmt: skip
    for draft in drafts:
        draft.row.version, draft.row.time_ns = light.version, span.start_ns
        if span.dropped_attributes_count and not draft.row.truncated:
            draft.row.truncated = ATTRIBUTE_LIMIT
    row = (
        span.kind & 0xFF, span.status_code & 0xFF, status_message, span.trace_state, span.flags & 0xFFFFFFFF, span.end_ns,
        attributes_text, events_text, links_text,
        write_dropped(span.dropped_attributes_count, span.dropped_events_count, span.dropped_links_count),
        resource, scope,
    )  # fmt: skip
    return SpanReading(light, row, contents.items, drafts)


def _failed(span: Span, role: Role) -> bool:
    if span.status_code:
        return span.status_code == 2
    if first_text(span.attributes.get("error.type")):
        return True
    return role.role == TOOL and any(event.name == "exception" for event in span.events)


def _error(span: Span) -> str:
    """The error as sent: status message, else the attributes, else the last exception event ('' = none)."""
    attributes = span.attributes
    if span.status_code == 2 and span.status_message:
        return span.status_message
    for key in ERROR_KEYS[:-1]:
        if text := first_text(attributes.get(key)):
            return text
    for event in reversed(span.events):
        if event.name == "exception":
            text = first_text(event.attributes.get("exception.message"))
            return text or first_text(event.attributes.get("exception.type"))
    return first_text(attributes.get(ERROR_KEYS[-1]))


def _join_key(span: Span, shape: Shape, light: Light) -> str:
    """What brings this span's trace together with others: the run that they share, after SATELLITE where it may be another
    record of a call elsewhere, whose run it then takes."""
    run = next((joined_run(known.name, key) for known in shape.by_field if (key := known.join_key(span))), "")
    answered = bool(light.response_id) or light.status == "failed"
    alone = light.role == PROVIDER_CALL and answered and not light.parent_span_id
    return SATELLITE + run if alone and any(known.satellite(span) for known in shape.by_field) else run


def _class_tool(light: Light) -> None:
    light.tool_name = light.tool_name or light.name or "tool"
    if light.tool_name == RECALL_TOOL:
        light.tool_class = "recall"
    elif not light.tool_class:
        light.tool_class = "knowledge_base" if light.operation == "retrieval" else "system"


def spans_of_log(record: LogRecord) -> list[Span]:
    """The calls that a log record stands for, as spans: where an emitter sends logs alone there is nothing else."""
    event_name = _event_name(record)
    for dialect in BY_FIELD:
        if found := dialect.log_spans(record, event_name):
            return found
    return []


EVALUATION = "gen_ai.evaluation.result"


def _evaluation(record: LogRecord) -> dict[str, str]:
    """`evaluation.<name>` → the verdict and the score, as far as they are said."""
    attributes = record.attributes
    name, verdict, score = (
        first_text(attributes.get(f"gen_ai.evaluation.{key}")) for key in ("name", "score.label", "score.value")
    )
    said = f"{verdict} ({score})" if verdict and score else verdict or score
    return {f"evaluation.{name[:NAME_KEPT]}": said[:NAME_KEPT]} if name and said else {}


def mark_made(made: SpanReading, trace_id: str, record_sha256: str) -> None:
    """Says of which log record a span was made. Where several records make the same span, the last bits of its version, which
    are a hash, decide which is said: whichever came first."""
    made.light.labels[MADE_OF_LOG] = f"{trace_id}/{record_sha256}"
    made.light.version = made.light.version >> 32 << 32 | int(record_sha256[:8], 16)
    for draft in made.drafts:
        draft.row.version = made.light.version


def _event_name(record: LogRecord) -> str:
    """Rust's `tracing` names its events by their place in the source (captured: Codex); the name is the attribute."""
    name = record.event_name
    return name if name and not name.startswith("event ") else first_text(record.attributes.get("event.name")) or name


_NOT_OF_THE_CALL = ("conversation_id", "user_id")


def read_log(tenant: Tenant, record: LogRecord) -> LogReading:
    """A log record; one with trace and span id completes that span's content through artifact rows of its own."""
    event_name = _event_name(record)
    light = LogLight(record.trace_id, record.span_id, "", record.time_ns or record.observed_time_ns, event_name)
    light.severity_text = record.severity_text
    light.operation = first_text(record.attributes.get("gen_ai.operation.name"))
    if event_name == EVALUATION:
        light.labels = _evaluation(record)
    shape = shape_of(record.attributes, record.resource.attributes, record.scope.name)
    facts = shape.log_facts
    if spans_of_log(record):  # what it says about a call, that call's own span says
        facts = [row for row in facts if row[0] in _NOT_OF_THE_CALL]
    read_facts(light, facts, record.attributes, record.resource.attributes, None, {})
    contents = Contents(tenant, record.trace_id, record.span_id)
    drafts: list[Draft] = []
    if record.trace_id and record.span_id:
        for dialect in BY_FIELD:
            if parts := dialect.log(record, event_name):
                drafts = log_drafts(tenant, light, parts, contents)
                break
    attributes_text = write_attributes(
        record.attributes, shape, families_of(record.attributes) if shape.families else {}, contents
    )
    body = "null" if record.body is None else orjson.dumps({CONTENT: contents.value("body", record.body)}).decode()
    resource, scope = contents.shared(record.resource, "resource"), contents.shared(record.scope, "scope")
    light.version, light.record_sha256 = _identity(record, resource, scope, contents)
    for draft in drafts:
        draft.row.source, draft.row.version, draft.row.time_ns = light.record_sha256, light.version, light.time_ns
    row = (
        record.observed_time_ns, record.severity_number & 0xFF, record.flags & 0xFFFFFFFF, body, attributes_text,
        write_dropped(record.dropped_attributes_count), resource, scope,
    )  # fmt: skip
    return LogReading(light, row, contents.items, drafts)


def log_identity(tenant: Tenant, record: LogRecord) -> tuple[int, str]:
    """Version and sha256 of a log record, also of one that cannot be read."""
    contents = Contents(tenant, record.trace_id, record.span_id)
    if record.body is not None:
        contents.value("body", record.body)
    resource, scope = contents.shared(record.resource, "resource"), contents.shared(record.scope, "scope")
    return _identity(record, resource, scope, contents)


def _identity(record: LogRecord, resource: str, scope: str, contents: Contents) -> tuple[int, str]:
    """No reader may have a say in it, so content counts as sent, wherever it is kept."""
    version = version_of(
        finished=True,
        end_ns=record.time_ns or record.observed_time_ns,
        size=len(record.attributes),
        texts=(record.trace_id, record.span_id, record.event_name, record.severity_text, to_json(record.attributes),
               f"{record.time_ns} {record.observed_time_ns} {record.severity_number} {record.flags}",
               resource, scope, f"{record.dropped_attributes_count}"),
        contents=[each for each in contents.items if each.field == "body" or each.field.startswith(("resource.", "scope."))],
    )  # fmt: skip
    return version, hashlib.sha256(version.to_bytes(32)).hexdigest()
