"""From one span or log record to what is kept of it: its row, the content that leaves the row, its light columns, its
artifacts. Everything here is a function of that one span or record alone (design.md §4).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, fields
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from otel_blackboard.processor import content as content_rules
from otel_blackboard.processor.dialects import BY_FIELD, BY_ROLE, Dialect
from otel_blackboard.processor.dialects.dialect import PROVIDER_CALL, STEP, TOOL, Part, Role
from otel_blackboard.processor.identity import artifact_id, safe_id
from otel_blackboard.processor.messages import Message, ToolCall, read_messages
from otel_blackboard.processor.prices import set_price
from otel_blackboard.processor.values import (
    CONTENT,
    compact,
    content_bytes,
    first_text,
    parsed,
    plain,
    sorted_keys,
    to_json,
    truth,
    whole_number,
)
from otel_blackboard.records import (
    SPAN_PACK,
    ArtifactRow,
    Attributes,
    Content,
    Event,
    Light,
    LogLight,
    LogRecord,
    RequestedCall,
    Resource,
    Scope,
    Span,
    Tenant,
    Value,
    Written,
)

RECALL_TOOL = "__query_blackboard"
ARGUMENTS_KEPT = 16_384
"""Characters of a call's arguments that stand in the artifact row; sameness uses the hash of the whole."""
SEARCHED = 20_000
"""Characters of a body that full text covers (RCL-08)."""
SUMMARY = 500
ERROR_KEPT = 2_000
NAME_KEPT = 1_024
"""Characters of a name (agent, model, tool …) in the light columns; the attribute itself is kept whole."""


@dataclass(slots=True)
class Draft:
    """An artifact row and which contents of the reading are its bodies."""

    row: ArtifactRow
    contents: list[int]


@dataclass(slots=True)
class SpanReading:
    span: Span
    light: Light
    attributes: str
    events: str
    links: str
    resource: str
    scope: str
    status_message: str
    contents: list[Content]
    drafts: list[Draft]


@dataclass(slots=True)
class LogReading:
    record: LogRecord
    light: LogLight
    body: str
    attributes: str
    resource: str
    scope: str
    contents: list[Content]
    drafts: list[Draft]


# ---------------------------------------------------------------------------------------------------------- precedence

_NUMBERS = frozenset(f.name for f in fields(Light) if "int | None" in str(f.type))
_IDS = {"run_id": "run_", "step_id": "step_"}


def _merged(tables: Iterable[tuple[Dialect, Any]]) -> list[tuple[str, list[tuple[Dialect, str]]]]:
    merged: dict[str, list[tuple[Dialect, str]]] = {}
    for dialect, table in tables:
        for fact, keys in table.items():
            merged.setdefault(fact, []).extend((dialect, key) for key in keys)
    return list(merged.items())


_FACTS = _merged((d, d.facts) for d in BY_FIELD)
_CONTENT = _merged((d, d.content) for d in BY_FIELD)
_LABELS = _merged((d, d.labels) for d in BY_FIELD)
_LOG_FACTS = [(fact, keys) for fact, keys in _FACTS if fact in {f.name for f in fields(LogLight)}]

ORDINALS = frozenset("pass_seq attempt call_seq loop_iteration output_retry retry_count".split())
LARGEST_ORDINAL = 2**32 - 1
"""What counts within a run: a larger number is a mistake, and no column takes it."""

_OF_RESOURCE = frozenset({"run_id", "run_name", "use_case_id", "conversation_id"})
"""Facts that a whole process may state once, in its resource."""

Table = list[tuple[str, list[tuple[Dialect, str]]]]


class _Shape(NamedTuple):
    """The rows of the tables that can matter to a span, by its keys alone: spans of one instrumentation share a few sets
    of keys, and most of some eighty rows are about other dialects."""

    facts: Table
    labels: Table
    content: Table
    families: bool


def _make_shape(keys: tuple[str, ...], resource_keys: tuple[str, ...]) -> _Shape:
    families = {content_rules.family(key) for key in keys} - {""}
    own, everywhere = families.union(keys), families.union(keys, resource_keys)

    def rows(table: Table) -> Table:
        kept = (
            (name, [each for each in sources if each[1] in (everywhere if name in _OF_RESOURCE else own)])
            for name, sources in table
        )
        return [(name, sources) for name, sources in kept if sources]

    return _Shape(rows(_FACTS), rows(_LABELS), rows(_CONTENT), bool(families))


_known_shape = lru_cache(maxsize=1024)(_make_shape)
_LONGEST_KEY = 256
_MOST_KEYS = 128
"""Attributes of a span whose shape is remembered: the memory stays small whatever is sent."""


def _shape(span: Span) -> _Shape:
    keys, resource_keys = tuple(span.attributes), tuple(span.resource.attributes)
    few = len(keys) + len(resource_keys) <= _MOST_KEYS
    few = few and max(map(len, (*keys, *resource_keys)), default=0) <= _LONGEST_KEY
    return (_known_shape if few else _make_shape)(keys, resource_keys)


def _role(span: Span) -> tuple[Role, str]:
    for dialect in BY_ROLE:
        role = dialect.role(span)
        if role is not None:
            return role, dialect.name
    return Role(""), ""


# --------------------------------------------------------------------------------------------------------------- spans


def read_span(tenant: Tenant, span: Span) -> SpanReading:
    role, dialect = _role(span)
    attributes = span.attributes
    name = span.name[:NAME_KEPT]
    light = Light(span.trace_id, span.span_id, span.parent_span_id, name, span.start_ns, span.end_ns)
    light.role, light.operation, light.is_agent, light.is_node = role
    light.dialect, light.scope = dialect, span.scope.name[:NAME_KEPT]
    shape = _shape(span)
    _facts(light, shape.facts, attributes, span.resource.attributes, span)
    for label, keys in shape.labels:
        for _, key in keys:
            if (value := attributes.get(key)) is not None and value != "":
                light.labels[label] = first_text(value) or to_json(value)
                break
    for name, prefix in _IDS.items():
        sent = getattr(light, name)
        if sent and (safe := safe_id(prefix, sent)) != sent:
            setattr(light, name, safe)
            light.labels["original_" + name] = sent
    light.linked_traces = tuple(sorted({link.trace_id for link in span.links if link.trace_id != span.trace_id}))
    pending = truth(attributes.get("blackboard.pending"))
    error = _error(span)
    light.error = error[:ERROR_KEPT]
    if pending or span.end_ns == 0:
        light.status, light.end_ns = "running", 0
    elif _failed(span, role):
        light.status = "failed"
    if role.role == TOOL:
        _name_tool(light, span)
    elif role.role == STEP and role.is_agent and not light.agent_id and span.name.startswith("invoke_agent "):
        light.agent_id = name.removeprefix("invoke_agent ")

    families = _families(attributes) if shape.families else {}
    parts, event_parts = _parts(attributes, families, shape.content), _event_parts(span.events)
    contents, drafts = _Contents(tenant, span.trace_id, span.span_id), []
    if role.role == PROVIDER_CALL:
        drafts += _model_call(tenant, light, parts, event_parts, contents)
    elif role.role == TOOL:
        drafts.append(_tool_call(tenant, light, parts, event_parts, contents, error))
    elif role.role == STEP:
        drafts += _output(tenant, light, parts, event_parts, contents, exact_response=False)
    else:
        light.has_input, light.has_output = "input" in parts, "output" in parts
    set_price(light)

    attributes_text = _attributes_text(attributes, families, contents)
    events_text = _events_text(span.events, contents)
    links_text = (
        to_json([
            {"trace_id": link.trace_id, "span_id": link.span_id, "trace_state": link.trace_state, "flags": link.flags,
             "attributes": plain(link.attributes), "dropped_attributes_count": link.dropped_attributes_count}
            for link in span.links
        ])
        if span.links
        else "[]"
    )  # fmt: skip
    resource, scope = contents.shared(span.resource, "resource"), contents.shared(span.scope, "scope")
    if len(span.name) > NAME_KEPT:
        contents.value("name", span.name)
    status_message = span.status_message
    if _is_large(status_message):
        contents.value("status_message", status_message)
        status_message = status_message[:NAME_KEPT]
    light.version = _version(
        finished=light.end_ns != 0,
        end_ns=span.end_ns,
        size=len(attributes),
        texts=(span.name, attributes_text, events_text, links_text, span.status_message, span.parent_span_id,
               f"{span.kind} {span.status_code} {span.start_ns} {span.flags} {span.trace_state}", resource, scope),
        contents=contents.items,
    )  # fmt: skip
    for draft in drafts:
        draft.row.version, draft.row.time_ns = light.version, span.start_ns
    return SpanReading(
        span, light, attributes_text, events_text, links_text, resource, scope, status_message, contents.items, drafts
    )


def _facts(
    light: Light | LogLight,
    table: list[tuple[str, list[tuple[Dialect, str]]]],
    attributes: Attributes,
    resource: Attributes,
    span: Span | None,
) -> None:
    for fact, keys in table:
        for dialect, key in keys:
            value = attributes.get(key)
            if value is None and fact in _OF_RESOURCE:
                value = resource.get(key)
            if value is None or value == "" or (span is not None and dialect.ignore(span, fact, value)):
                continue
            if fact in _NUMBERS:
                number = whole_number(value)
                if number is None or (number > LARGEST_ORDINAL and fact in ORDINALS):
                    continue
                setattr(light, fact, number)
            elif fact == "cost_usd":
                if (cost := _money(value)) is None:
                    continue
                light.cost_usd, light.cost_source = cost, "span"  # type: ignore[union-attr]
            else:
                text = first_text(value)
                setattr(light, fact, text if fact in _IDS else text[:NAME_KEPT])
            break
    light.provider = _RENAMED_PROVIDERS.get(light.provider, light.provider)
    if not light.agent_id:
        light.agent_id = getattr(light, "agent_instance", "")


_RENAMED_PROVIDERS = {
    "xai": "x_ai",
    "az.ai.inference": "azure.ai.inference",
    "vertex_ai": "gcp.vertex_ai",
    "gemini": "gcp.gemini",
}


def _money(value: Value) -> Decimal | None:
    try:
        money = Decimal(first_text(value))
    except InvalidOperation:
        return None
    return money if money.is_finite() and 0 <= money < 10**9 else None


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
    for key in ("error.message", "exception.message"):
        if text := first_text(attributes.get(key)):
            return text
    for event in reversed(span.events):
        if event.name == "exception":
            text = first_text(event.attributes.get("exception.message"))
            return text or first_text(event.attributes.get("exception.type"))
    return first_text(attributes.get("error.type"))


def _name_tool(light: Light, span: Span) -> None:
    if not light.tool_name:
        light.tool_name = span.name.removeprefix("execute_tool ").removeprefix("Tool: ") or "tool"
    if light.tool_name == RECALL_TOOL:
        light.tool_class = "recall"
    elif not light.tool_class:
        light.tool_class = "knowledge_base" if light.operation == "retrieval" else "system"


# ------------------------------------------------------------------------------------------------------------- content


class _Contents:
    """The content of one span or record, each field once."""

    def __init__(self, tenant: Tenant, trace_id: str, span_id: str) -> None:
        self.items: list[Content] = []
        self._index: dict[str, int] = {}
        self._identity = (tenant, trace_id, span_id)

    def add(self, field: str, data: bytes, encoding: str, kind: str = SPAN_PACK) -> int:
        if field not in self._index:
            tenant, trace_id, span_id = self._identity
            self._index[field] = len(self.items)
            self.items.append(Content(tenant, kind, trace_id, span_id, field, data, encoding))
        return self._index[field]

    def value(self, field: str, value: Value, kind: str = SPAN_PACK) -> int:
        known = self._index.get(field)
        return known if known is not None else self.add(field, *content_bytes(value), kind)

    def shared(self, owner: Resource | Scope, kind: str) -> str:
        """The text of a resource or scope; what is too large for a row is content of each span that has it."""
        written = owner.written or _write(owner, kind)
        for field, data, encoding, sha256 in written.large:
            self.items[self.add(field, data, encoding)].sha256 = sha256
        return written.text


def _write(owner: Resource | Scope, kind: str) -> Written:
    large: list[tuple[str, bytes, str, str]] = []

    def kept(field: str, value: Value) -> Any:
        if not _is_large(value):
            return plain(value)
        data, encoding = content_bytes(value)
        large.append((field, data, encoding, hashlib.sha256(data).hexdigest()))
        return {CONTENT: field}

    shown: dict[str, Any] = {"name": owner.name, "version": owner.version} if isinstance(owner, Scope) else {}
    shown |= {"schema_url": owner.schema_url, "dropped_attributes_count": owner.dropped_attributes_count}
    shown = {name: kept(f"{kind}.{name}", value) for name, value in shown.items() if value}
    attributes = {}
    for key, value in owner.attributes.items():
        (name,) = plain({key: None})
        attributes[name] = kept(f"{kind}.attributes.{key}", value)
    shown["attributes"] = attributes
    owner.written = Written(orjson.dumps(shown).decode(), tuple(large))
    return owner.written


def _families(attributes: Attributes) -> dict[str, Value]:
    """Flattened families as `family.*` → [[key, value], …] in the order sent."""
    families: dict[str, Value] = {}
    for key, value in attributes.items():
        if name := content_rules.family(key):
            families.setdefault(name, []).append([key, value])  # type: ignore[union-attr]
    return families


def _parts(attributes: Attributes, families: dict[str, Value], table: Table) -> dict[str, Part]:
    """meaning → the first attribute (or flattened family) that has it."""
    found: dict[str, Part] = {}
    for meaning, keys in table:
        for _, key in keys:
            value = attributes.get(key)
            if value is None and key in families:
                value = families[key]
            if value is not None and value != "":
                found[meaning] = Part(meaning, key, value)
                break
        else:  # nothing said is something said where it is what a tool returned
            if meaning == "result" and (empty := next((key for _, key in keys if attributes.get(key) == ""), "")):
                found[meaning] = Part(meaning, empty, "")
    return found


def _event_parts(events: list[Event]) -> list[Part]:
    """The content of span events, in their order by time; the field names the event's place."""
    parts: list[Part] = []
    if events:
        for place, event in sorted(enumerate(events), key=lambda item: item[1].time_ns):
            for dialect in BY_FIELD:
                found = dialect.event(event)
                if found:
                    parts += [part._replace(field=f"events.{place}.{part.field}") for part in found]
                    break
    return parts


def _attributes_text(attributes: Attributes, families: dict[str, Value], contents: _Contents) -> str:
    """Attributes as JSON text in which content is a pointer `{"$content": index into bodies}`."""
    kept: dict[str, Any] = {}
    for key, value in attributes.items():
        short = value.__class__ is str and len(value) <= _MAYBE_LARGE
        if families and (name := content_rules.family(key)):
            if name not in kept:
                index = contents.value(name, families[name])
                contents.items[index].encoding = "pairs"
                kept[name] = {CONTENT: index}
        elif value is not None and (content_rules.is_content(key) or (not short and _is_large(value))):
            kept[key] = {CONTENT: contents.value(key, value)}
        elif value.__class__ in _SAID_BY_JSON and key[:1] != "$":
            kept[key] = value
        else:
            kept.update(plain({key: value}))
    return orjson.dumps(kept).decode()


_SAID_BY_JSON = frozenset((str, int, bool, type(None)))


def _is_large(value: Value) -> bool:
    if isinstance(value, str):
        return len(value) > _MAYBE_LARGE and len(value.encode()) > content_rules.LARGE
    if isinstance(value, bytes):
        return len(value) > content_rules.LARGE
    return isinstance(value, list | dict) and len(to_json(value)) > content_rules.LARGE


_MAYBE_LARGE = content_rules.LARGE // 4
"""Characters: UTF-8 takes up to four bytes each."""


def _events_text(events: list[Event], contents: _Contents) -> str:
    if not events:
        return "[]"
    rows = []
    for place, event in enumerate(events):
        kept: dict[str, Any] = {}
        genai = event.name.startswith("gen_ai.")
        for key, value in event.attributes.items():
            content = content_rules.is_content(key) or (genai and key in content_rules.EVENT_KEYS)
            if value is not None and (content or _is_large(value)):
                kept[key] = {CONTENT: contents.value(f"events.{place}.{key}", value)}
            else:
                kept.update(plain({key: value}))
        row = {"time_ns": event.time_ns, "name": event.name, "attributes": kept}
        if event.dropped_attributes_count:
            row["dropped_attributes_count"] = event.dropped_attributes_count
        rows.append(row)
    return orjson.dumps(rows).decode()


def _version(finished: bool, end_ns: int, size: int, texts: Iterable[str], contents: list[Content]) -> int:
    """Which version of a span or record wins, by content alone: finished, then latest end, then most attributes."""
    digest = hashlib.sha256("\0".join((*texts, "")).encode("utf-8", "surrogatepass"))
    for content in contents:
        digest.update(content.field.encode("utf-8", "surrogatepass"))
        digest.update(content.digest().encode())
    return (
        finished << 255
        | min(end_ns, 2**64 - 1) << 191
        | min(size, 2**16 - 1) << 175
        | int.from_bytes(digest.digest()[:21])
    )


# ----------------------------------------------------------------------------------------------------------- artifacts


def _model_call(
    tenant: Tenant, light: Light, parts: dict[str, Part], events: list[Part], contents: _Contents
) -> list[Draft]:
    prompt = _prompt_row(tenant, light)
    indexes: list[int] = []
    if "request" in parts:
        prompt.exact, prompt.origin = True, "attribute"
        indexes.append(contents.value(parts["request"].field, parts["request"].value, "llm_prompt"))
        prompt.content_type = "application/json"
    else:
        prompt.exact = False
        for meaning in ("system", "input", "tools"):
            if meaning in parts:
                prompt.origin = "attribute"
                indexes.append(_content(contents, parts[meaning], "llm_prompt"))
        if "input" not in parts and (messages := _inputs(events)):
            prompt.origin = prompt.origin or "event"
            indexes += [_event_content(contents, part, "llm_prompt") for part in messages]
    light.has_input = bool(indexes)
    _describe_prompt(prompt, light, [contents.items[index] for index in indexes], parts)
    drafts = [Draft(prompt, indexes)] if indexes or light.operation == "chat" else []
    return drafts + _output(tenant, light, parts, events, contents, exact_response=True)


def _inputs(events: list[Part]) -> list[Part]:
    return [part for part in events if part.meaning in ("system", "input", "message", "tools")]


def _prompt_row(tenant: Tenant, light: Light) -> ArtifactRow:
    row = ArtifactRow(
        light.trace_id, light.span_id, "llm_prompt", artifact_id=_artifact_id(tenant, light, "llm_prompt")
    )
    row.label = "LLM call"
    row.status = "failed" if light.status == "failed" else "ok"
    return row


def _describe_prompt(row: ArtifactRow, light: Light, contents: list[Content], parts: dict[str, Part]) -> None:
    row.characters = sum(len(content.data.decode(errors="replace")) for content in contents)
    row.truncated = next((mark for content in contents if (mark := _cut(content.data, True))), "")
    if "input_ref" in parts and not contents:
        row.origin = "pointer"
    model = light.request_model or light.response_model
    row.summary = _one_line(light.error if light.status == "failed" else model, SUMMARY)


def _output(
    tenant: Tenant, light: Light, parts: dict[str, Part], events: list[Part], contents: _Contents, exact_response: bool
) -> list[Draft]:
    """The agent_output of a pass or a model call, and the tool calls it requests. No output, no row."""
    row = ArtifactRow(light.trace_id, light.span_id, "agent_output")
    indexes: list[int] = []
    messages: list[Message] = []
    answers = [part for part in events if part.meaning == "output"]
    if "output" in parts:
        row.origin = "attribute"
        indexes.append(_content(contents, parts["output"], "agent_output"))
        messages = _messages_of(parts["output"])
    elif answers:
        row.origin = "event"
        indexes += [_event_content(contents, part, "agent_output") for part in answers]
        messages = [message for part in answers for message in _messages_of(part)]
    elif exact_response and "response" in parts:
        row.origin = "attribute"
        indexes.append(contents.value(parts["response"].field, parts["response"].value, "agent_output"))
        messages = read_messages(parts["response"].value, "assistant")
    if not light.has_input:
        light.has_input = "input" in parts
    if not indexes:
        return []
    light.has_output = True
    light.requested = _requested(call for message in messages for call in message.tool_calls)
    row.artifact_id = _artifact_id(tenant, light, "agent_output", call="0" if light.role == STEP else None)
    row.label = light.agent_id or light.name
    row.status = "failed" if light.status == "failed" else "ok"
    text = _answer_text(messages) or contents.items[indexes[0]].data.decode(errors="replace")
    value = parsed(text) if text[:1] == "{" else None
    summary = first_text(parts["summary"].value) if "summary" in parts else _summary(text, light, value)
    _describe(row, [contents.items[index] for index in indexes], text, summary, structured=True)
    return [Draft(row, indexes)]


def _answer_text(messages: list[Message]) -> str:
    """The answer as a person reads it: the last text said, else the tool calls asked for."""
    said = [message for message in messages if message.role in ("assistant", "")]
    for message in reversed(said):
        if message.text:
            return message.text
    return "; ".join(f"{call.name}({call.arguments})" for message in said for call in message.tool_calls)


def _tool_call(
    tenant: Tenant, light: Light, parts: dict[str, Part], events: list[Part], contents: _Contents, error: str
) -> Draft:
    row = ArtifactRow(
        light.trace_id, light.span_id, "tool_result", artifact_id=_artifact_id(tenant, light, "tool_result")
    )
    row.label, failed = light.tool_name, light.status == "failed"
    row.status = "failed" if failed else "ok"
    by_event = {part.meaning: part for part in events}
    by_meaning = by_event | parts
    _arguments(row, by_meaning)
    light.arguments_sha256, light.has_input = row.arguments_sha256, row.arguments_sha256 != ""
    sent = [by_meaning.get("result"), by_event.get("result"), by_meaning.get("documents")]
    found = [part for part in sent if part is not None and (part.value != "" or not (failed and error))]
    result = next((part for part in found if part.value != ""), found[0] if found else None)
    if result is not None:
        row.origin = "attribute" if parts.get(result.meaning) is result else "event"
        index = _content(contents, result, "tool_result")
    elif failed and error:
        row.origin, index = "attribute", contents.add("error", error.encode(), "text", "tool_result")
    else:
        light.has_output = False
        row.summary = _one_line(first_text(parts["summary"].value), SUMMARY) if "summary" in parts else ""
        row.search_text = "" if light.tool_class == "recall" else f"{row.label}\n{row.summary}".lower()
        return Draft(row, [])
    light.has_output = True
    content = contents.items[index]
    value = parsed(result.value) if result is not None else error
    text = value if isinstance(value, str) else content.data.decode(errors="replace")
    summary = first_text(parts["summary"].value) if "summary" in parts else _summary(text, light, value)
    _describe(row, [content], text, summary, structured=False)
    if light.tool_class == "recall":
        row.search_text = ""
    return Draft(row, [index])


def _arguments(row: ArtifactRow, parts: dict[str, Part]) -> None:
    part = parts.get("arguments")
    if part is not None:
        text = arguments_text(part.value)
    elif "query" in parts:
        text = to_json({"query": parts["query"].value})
    else:
        return
    row.arguments_sha256 = sameness(text)
    row.arguments = text if len(text) <= ARGUMENTS_KEPT else text[: ARGUMENTS_KEPT - 1] + "…"


def arguments_text(value: Value) -> str:
    """Arguments as LED-05 wants them: compact JSON in the order sent."""
    if isinstance(value, str):
        inner = parsed(value) if value[:1] == '"' else None
        return compact(inner if isinstance(inner, str) and inner[:1] in "{[" else value)
    return to_json(value)


def sameness(text: str) -> str:
    """Equal where two texts are the same arguments (LED-07)."""
    return hashlib.sha256(sorted_keys(text).encode()).hexdigest()[:32]


def _requested(calls: Iterable[ToolCall]) -> tuple[RequestedCall, ...]:
    return tuple(
        RequestedCall(call.id, call.name, sameness(arguments_text(call.arguments)) if call.arguments else "")
        for call in calls
    )


def _content(contents: _Contents, part: Part, kind: str) -> int:
    if part.field.startswith("events."):
        return _event_content(contents, part, kind)
    index = contents.value(part.field, part.value, kind)
    if part.field.endswith(".*"):
        contents.items[index].encoding = "pairs"
    return index


def _event_content(contents: _Contents, part: Part, kind: str) -> int:
    return contents.value(part.field, part.value, kind)


def _messages_of(part: Part) -> list[Message]:
    if part.field.endswith(".*") and not part.field.startswith("events."):
        return read_messages(unflatten(part.value), "assistant" if part.meaning == "output" else "user")
    return read_messages(part.value, "assistant" if part.meaning == "output" else "user")


def unflatten(pairs: Value) -> Value:
    """Flattened keys `family.N.rest…` back into a list of maps; an index is only an order, however large it is."""
    rows: dict[int, dict[str, Value]] = {}
    for pair in pairs if isinstance(pairs, list) else []:
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
            continue
        match = content_rules.FAMILIES.match(pair[0])
        rest = pair[0][match.end() - 1 :] if match else ""
        number, _, name = rest.partition(".")
        if number.isdecimal():
            _set(rows.setdefault(int(number[:12]), {}), name.split("."), pair[1])
    return [_lists(rows[index]) for index in sorted(rows)]


def _set(target: dict[str, Any], path: list[str], value: Value) -> None:
    for name in path[:-1][:16]:
        inner = target.setdefault(name, {})
        if not isinstance(inner, dict):  # one key both a scalar and a parent: the scalar stays under ''
            inner = target[name] = {"": inner}
        target = inner
    target[path[-1]] = value


def _lists(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value and all(key.isdecimal() for key in value):
        return [_lists(value[key]) for key in sorted(value, key=lambda key: int(key[:12]))]
    return {key: _lists(item) for key, item in value.items()}


def _describe(row: ArtifactRow, contents: list[Content], text: str, summary: str, structured: bool) -> None:
    row.characters = sum(len(content.data.decode(errors="replace")) for content in contents)
    row.truncated = next((mark for content in contents if (mark := _cut(content.data, structured))), "")
    row.content_type = _content_type(contents[0])
    row.summary = _one_line(summary, SUMMARY)
    row.search_text = f"{row.label}\n{row.summary}\n{text[:SEARCHED]}".lower()


def _summary(text: str, light: Light, value: Any = None) -> str:
    if light.status == "failed" and light.error:
        return light.error
    if isinstance(value, dict) and isinstance(value.get("summary"), str):
        return str(value["summary"])
    return text[: SUMMARY * 64].lstrip()[: SUMMARY * 8]


def _one_line(text: str, limit: int) -> str:
    return " ".join(text.split())[:limit]


def _content_type(content: Content) -> str:
    if content.encoding in ("json", "pairs") or (
        content.encoding == "text" and content.data[:1] in (b"{", b"[") and _is_json(content.data)
    ):
        return "application/json"
    return "application/octet-stream" if content.encoding == "bytes" else "text/plain; charset=utf-8"


def _is_json(data: bytes) -> bool:
    return not isinstance(parsed(data.decode(errors="replace")), str)


def _cut(data: bytes, structured: bool) -> str:
    """'sender' where the sender cut the value: by its own mark, or JSON that ends in mid-sentence."""
    tail = data[-64:]
    if tail.endswith((b"[truncated]", b"...[truncated]")) or b"[TRUNCATED" in tail:
        return "sender"
    if structured and data[:1] in (b"{", b"[") and not _is_json(data):
        return "sender"
    return ""


def _artifact_id(tenant: Tenant, light: Light, kind: str, call: str | None = None) -> str:
    number = call if call is not None else None if light.call_seq is None else str(light.call_seq)
    if light.run_id and light.step_id and light.pass_seq is not None and number is not None:
        return artifact_id(tenant, light.run_id, light.step_id, str(light.pass_seq), number, kind)
    return artifact_id(tenant, light.trace_id, light.span_id, kind)


# ---------------------------------------------------------------------------------------------------------------- logs


def read_log(tenant: Tenant, record: LogRecord) -> LogReading:
    """A log record; one with trace and span id completes that span's content through artifact rows of its own."""
    event_name = record.event_name or first_text(record.attributes.get("event.name"))
    light = LogLight(record.trace_id, record.span_id, "", record.time_ns or record.observed_time_ns, event_name)
    light.severity_text = record.severity_text
    light.operation = first_text(record.attributes.get("gen_ai.operation.name"))
    _facts(light, _LOG_FACTS, record.attributes, record.resource.attributes, None)
    contents = _Contents(tenant, record.trace_id, record.span_id)
    drafts: list[Draft] = []
    if record.trace_id and record.span_id:
        for dialect in BY_FIELD:
            if parts := dialect.log(record, event_name):
                drafts = _log_artifacts(tenant, light, parts, contents)
                break
    attributes_text = _attributes_text(record.attributes, _families(record.attributes), contents)
    body = "null" if record.body is None else orjson.dumps({CONTENT: contents.value("body", record.body)}).decode()
    resource, scope = contents.shared(record.resource, "resource"), contents.shared(record.scope, "scope")
    light.version = _version(
        finished=True,
        end_ns=light.time_ns,
        size=len(record.attributes),
        texts=(record.trace_id, record.span_id, event_name, record.severity_text, body, attributes_text,
               f"{record.time_ns} {record.observed_time_ns} {record.severity_number} {record.flags}",
               resource, scope),
        contents=contents.items,
    )  # fmt: skip
    light.record_sha256 = hashlib.sha256(light.version.to_bytes(32)).hexdigest()
    for draft in drafts:
        draft.row.source, draft.row.version, draft.row.time_ns = light.record_sha256, light.version, light.time_ns
    return LogReading(record, light, body, attributes_text, resource, scope, contents.items, drafts)


def _log_artifacts(tenant: Tenant, light: LogLight, parts: list[Part], contents: _Contents) -> list[Draft]:
    """Rows without knowledge of the span: its role decides on reading whether they count."""
    drafts: list[Draft] = []
    span = Light(light.trace_id, light.span_id, name=light.event_name, agent_id=light.agent_id)
    prompts = [part for part in parts if part.meaning in ("system", "input", "message", "tools")]
    if prompts:
        row = _prompt_row(tenant, span)
        row.origin, row.exact = "log", False
        indexes = [contents.value(part.field, part.value, "llm_prompt") for part in prompts]
        _describe_prompt(row, span, [contents.items[index] for index in indexes], {})
        row.summary, row.label = light.request_model, light.event_name
        drafts.append(Draft(row, indexes))
        light.has_input = True
    answers = [part for part in parts if part.meaning == "output"]
    if answers:
        row = ArtifactRow(light.trace_id, light.span_id, "agent_output", origin="log", label=light.agent_id)
        row.artifact_id = artifact_id(tenant, light.trace_id, light.span_id, "agent_output")
        indexes = [contents.value(part.field, part.value, "agent_output") for part in answers]
        messages = [message for part in answers for message in _messages_of(part)]
        text = _answer_text(messages)
        _describe(row, [contents.items[index] for index in indexes], text, text, structured=True)
        light.requested = _requested(call for message in messages for call in message.tool_calls)
        light.has_output = True
        drafts.append(Draft(row, indexes))
    for part in parts:
        if part.meaning == "result":
            row = ArtifactRow(light.trace_id, light.span_id, "tool_result", origin="log", label="")
            row.artifact_id = artifact_id(tenant, light.trace_id, light.span_id, "tool_result")
            index = contents.value(part.field, part.value, "tool_result")
            _arguments(row, {part.meaning: part for part in parts})
            text = first_text(part.value) or to_json(part.value)
            _describe(row, [contents.items[index]], text, _summary(text, span, parsed(part.value)), structured=False)
            light.has_output = True
            drafts.append(Draft(row, [index]))
    return drafts
