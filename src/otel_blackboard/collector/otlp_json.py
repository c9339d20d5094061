"""OTLP/JSON bodies → records, equal to those of the same request in protobuf.

Read as senders write it, not only as the specification says: ids in hex or base64, enums as numbers or names, 64-bit
numbers as text or numbers, `doubleValue` null or "NaN", field names in camelCase or snake_case; unknown fields are
passed over. Raises arrival.DecodeError for a body that cannot be read at all; a bad record is rejected alone.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from typing import Any

import orjson

from otel_blackboard.collector.arrival import (
    DEEPEST_LEVEL,
    TOO_DEEP,
    Decoded,
    DecodeError,
    blank_credentials,
    note,
    with_duplicates,
)
from otel_blackboard.records import (
    Attributes,
    Event,
    InvalidText,
    Link,
    LogRecord,
    Resource,
    Scope,
    Span,
    Value,
)

_SNAKE_CASE = {
    "resource_spans": "resourceSpans",
    "resource_logs": "resourceLogs",
    "resource_metrics": "resourceMetrics",
    "scope_spans": "scopeSpans",
    "scope_logs": "scopeLogs",
    "log_records": "logRecords",
    "schema_url": "schemaUrl",
    "trace_id": "traceId",
    "span_id": "spanId",
    "parent_span_id": "parentSpanId",
    "trace_state": "traceState",
    "start_time_unix_nano": "startTimeUnixNano",
    "end_time_unix_nano": "endTimeUnixNano",
    "time_unix_nano": "timeUnixNano",
    "observed_time_unix_nano": "observedTimeUnixNano",
    "dropped_attributes_count": "droppedAttributesCount",
    "dropped_events_count": "droppedEventsCount",
    "dropped_links_count": "droppedLinksCount",
    "severity_number": "severityNumber",
    "severity_text": "severityText",
    "event_name": "eventName",
    "string_value": "stringValue",
    "bool_value": "boolValue",
    "int_value": "intValue",
    "double_value": "doubleValue",
    "bytes_value": "bytesValue",
    "array_value": "arrayValue",
    "kvlist_value": "kvlistValue",
}
_SNAKE_NAMES = frozenset(_SNAKE_CASE)

_SPAN_KINDS = {
    "SPAN_KIND_UNSPECIFIED": 0,
    "SPAN_KIND_INTERNAL": 1,
    "SPAN_KIND_SERVER": 2,
    "SPAN_KIND_CLIENT": 3,
    "SPAN_KIND_PRODUCER": 4,
    "SPAN_KIND_CONSUMER": 5,
}
_STATUS_CODES = {"STATUS_CODE_UNSET": 0, "STATUS_CODE_OK": 1, "STATUS_CODE_ERROR": 2}
_SEVERITY_NUMBERS = {
    f"SEVERITY_NUMBER_{name}{step or ''}": base + max(step - 1, 0)
    for base, name in ((1, "TRACE"), (5, "DEBUG"), (9, "INFO"), (13, "WARN"), (17, "ERROR"), (21, "FATAL"))
    for step in (0, 2, 3, 4)
}

_TRACE_ID_BYTES = 16
_SPAN_ID_BYTES = 8


class _Unfit(ValueError):
    """One record cannot be taken; the message is the reason."""


def decode_traces(body: bytes) -> Decoded:
    request = _parse(body, "resourceSpans")
    decoded = Decoded(size=len(body))
    for i, resource_spans in enumerate(_objects(request, "resourceSpans", "")):
        path = f"resourceSpans[{i}]"
        resource = _resource(resource_spans, path, decoded)
        for j, scope_spans in enumerate(_objects(resource_spans, "scopeSpans", path)):
            path = f"resourceSpans[{i}].scopeSpans[{j}]"
            scope = _scope(scope_spans, path, decoded)
            for k, record in enumerate(_list(scope_spans, "spans", path)):
                try:
                    decoded.add_span(_span(record, resource, scope))
                except _Unfit as error:
                    note(decoded.rejected, f"{path}.spans[{k}] {_shown_name(record, 'name')!r}: {error}")
    return decoded


def decode_logs(body: bytes) -> Decoded:
    request = _parse(body, "resourceLogs")
    decoded = Decoded(size=len(body))
    for i, resource_logs in enumerate(_objects(request, "resourceLogs", "")):
        path = f"resourceLogs[{i}]"
        resource = _resource(resource_logs, path, decoded)
        for j, scope_logs in enumerate(_objects(resource_logs, "scopeLogs", path)):
            path = f"resourceLogs[{i}].scopeLogs[{j}]"
            scope = _scope(scope_logs, path, decoded)
            for k, record in enumerate(_list(scope_logs, "logRecords", path)):
                try:
                    decoded.add_log(_log(record, resource, scope))
                except _Unfit as error:
                    note(decoded.rejected, f"{path}.logRecords[{k}] {_shown_name(record, 'eventName')!r}: {error}")
    return decoded


# ---- the document ----


def _parse(body: bytes, wanted: str) -> dict[str, Any]:
    """The top-level object. Raises DecodeError."""
    try:
        request = orjson.loads(body)
    except orjson.JSONDecodeError:
        request = _parse_leniently(body)
    if not isinstance(request, dict):
        raise DecodeError("the body is not an OTLP request: a JSON object was expected")
    request = _camel(request)
    if wanted not in request:
        for signal, path in (("Spans", "traces"), ("Logs", "logs"), ("Metrics", "metrics")):
            if f"resource{signal}" in request:
                raise DecodeError(f"this is a {path} request; post it to /v1/{path}")
    return request


# ---- what orjson refuses with the whole document, though it spoils one value of it ----
# Text that is not UTF-8 or ends in half an emoji (JavaScript writes "\ud83d" for one cut in the middle), raw control
# characters, NaN and Infinity as many senders write them, numbers of thousands of digits, values nested without end.


def _long_number(digits: str) -> int | str:
    """Python reads no number of more than 4,300 digits."""
    return int(digits) if len(digits) < 4_000 else digits


_LENIENT = json.JSONDecoder(strict=False, parse_int=_long_number)

_DEEPEST_JSON = 450
"""Levels of the document that are read. A value of DEEPEST_LEVEL levels stands on fewer than 420: four for each."""

_MOST_BRACKETS = 4_000_000
"""Of a document that is nested deeper: each costs a microsecond to look at."""

_MARKS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)
"""Strings, the last one even where it is cut (or each quote in it would be tried anew), and brackets."""

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def _parse_leniently(body: bytes) -> Any:
    """The document with InvalidText for what is no text. Raises DecodeError."""
    try:
        text, errors = body.decode(), "surrogatepass"
    except UnicodeDecodeError:
        text, errors = body.decode("utf-8", "surrogateescape"), "surrogateescape"
    try:
        try:
            document = _LENIENT.decode(text)
        except RecursionError:
            if sum(map(text.count, "[{")) > _MOST_BRACKETS:
                raise DecodeError("the JSON is nested too deeply") from None
            document = _LENIENT.decode(_shallow(text))
    except json.JSONDecodeError as error:
        raise DecodeError(f"the body is not JSON (line {error.lineno}, column {error.colno})") from None
    return _marked(document, errors) if errors == "surrogateescape" or _SURROGATE.search(body) else document


def _shallow(text: str) -> str:
    """The JSON text with null for everything below the deepest level that is read."""
    pieces: list[str] = []
    depth = start = 0
    for match in _MARKS.finditer(text):
        mark = text[match.start()]
        if mark in "[{":
            depth += 1
            if depth == _DEEPEST_JSON + 1:
                pieces.append(text[start : match.start()])
        elif mark in "]}":
            if depth == _DEEPEST_JSON + 1:
                pieces.append("null")
                start = match.end()
            depth -= 1
    # What never comes up again is no JSON, and stays none.
    return "".join(pieces) if depth > _DEEPEST_JSON else "".join((*pieces, text[start:]))


def _marked(node: Any, errors: str) -> Any:
    """The same with InvalidText for every text, as value or key, that no UTF-8 can say."""
    if isinstance(node, str):
        return node if _is_text(node) else InvalidText(_raw(node, errors))
    if isinstance(node, list):
        for place, item in enumerate(node):
            node[place] = _marked(item, errors)
    elif isinstance(node, dict):
        for key in [key for key in node if not _is_text(key)]:
            # Its place in the order is lost; no field has such a name.
            node[_marked(key, errors)] = node.pop(key)
        for key, value in node.items():
            node[key] = _marked(value, errors)
    return node


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _raw(text: str, errors: str) -> bytes:
    """Bytes that were not UTF-8 as they came, surrogates that JSON spells as UTF-8 would write them."""
    try:
        return text.encode("utf-8", errors)
    except UnicodeEncodeError:  # both in one text: a byte looks like a surrogate of the lower half
        return b"".join(_raw(each, errors if "\udc80" <= each <= "\udcff" else "surrogatepass") for each in text)


def _camel(node: dict[str, Any]) -> dict[str, Any]:
    """The object with field names in camelCase."""
    if _SNAKE_NAMES.isdisjoint(node):
        return node
    return {_SNAKE_CASE.get(key, key): value for key, value in node.items()}


def _list(owner: dict[str, Any], name: str, path: str) -> list[Any]:
    items = owner.get(name)
    if items is None:
        return []
    if not isinstance(items, list):
        raise DecodeError(f"{path}{'.' if path else ''}{name} is not a list")
    return items


def _objects(owner: dict[str, Any], name: str, path: str) -> list[dict[str, Any]]:
    """Raises DecodeError unless all items are objects."""
    found = []
    for position, item in enumerate(_list(owner, name, path)):
        if not isinstance(item, dict):
            raise DecodeError(f"{path}{'.' if path else ''}{name}[{position}] is not an object")
        found.append(_camel(item))
    return found


def _shown_name(record: Any, field: str) -> str:
    name = _camel(record).get(field) if isinstance(record, dict) else None
    return name[:80] if isinstance(name, str) else ""


# ---- records ----


def _resource(owner: dict[str, Any], path: str, decoded: Decoded) -> Resource:
    try:
        message = _object(owner, "resource")
        resource = Resource(
            _attributes(message.get("attributes")), _u32(message, "droppedAttributesCount"), _text(owner, "schemaUrl")
        )
    except _Unfit as error:
        raise DecodeError(f"{path}.resource: {error}") from None
    decoded.blanked += blank_credentials(resource.attributes)
    return resource


def _scope(owner: dict[str, Any], path: str, decoded: Decoded) -> Scope:
    try:
        message = _object(owner, "scope")
        scope = Scope(
            _text(message, "name"),
            _text(message, "version"),
            _attributes(message.get("attributes")),
            _u32(message, "droppedAttributesCount"),
            _text(owner, "schemaUrl"),
        )
    except _Unfit as error:
        raise DecodeError(f"{path}.scope: {error}") from None
    decoded.blanked += blank_credentials(scope.attributes)
    return scope


def _span(record: Any, resource: Resource, scope: Scope) -> Span:
    message = _record(record)
    status = _object(message, "status")
    events, links = message.get("events"), message.get("links")
    return Span(
        _own_id(message, "traceId", "trace id", _TRACE_ID_BYTES),
        _own_id(message, "spanId", "span id", _SPAN_ID_BYTES),
        _id(message.get("parentSpanId"), _SPAN_ID_BYTES),
        _text(message, "name"),
        _enum(message, "kind", _SPAN_KINDS),
        _u64(message, "startTimeUnixNano"),
        _u64(message, "endTimeUnixNano"),
        _attributes(message.get("attributes")),
        [_event(event) for event in _items(events, "events")] if events else [],
        [_link(link) for link in _items(links, "links")] if links else [],
        _enum(status, "code", _STATUS_CODES),
        _text(status, "message"),
        _text(message, "traceState"),
        _u32(message, "flags"),
        _u32(message, "droppedAttributesCount"),
        _u32(message, "droppedEventsCount"),
        _u32(message, "droppedLinksCount"),
        resource,
        scope,
    )


def _event(record: Any) -> Event:
    message = _record(record)
    return Event(
        _u64(message, "timeUnixNano"),
        _text(message, "name"),
        _attributes(message.get("attributes")),
        _u32(message, "droppedAttributesCount"),
    )


def _link(record: Any) -> Link:
    message = _record(record)
    return Link(
        _id(message.get("traceId"), _TRACE_ID_BYTES),
        _id(message.get("spanId"), _SPAN_ID_BYTES),
        _text(message, "traceState"),
        _attributes(message.get("attributes")),
        _u32(message, "droppedAttributesCount"),
        _u32(message, "flags"),
    )


def _log(record: Any, resource: Resource, scope: Scope) -> LogRecord:
    message = _record(record)
    return LogRecord(
        _id(message.get("traceId"), _TRACE_ID_BYTES),
        _id(message.get("spanId"), _SPAN_ID_BYTES),
        _u64(message, "timeUnixNano"),
        _u64(message, "observedTimeUnixNano"),
        _enum(message, "severityNumber", _SEVERITY_NUMBERS),
        _text(message, "severityText"),
        _text(message, "eventName"),
        _value(message.get("body"), 1),
        _attributes(message.get("attributes")),
        _u32(message, "flags"),
        _u32(message, "droppedAttributesCount"),
        resource,
        scope,
    )


# ---- fields; each raises _Unfit for a value of another type ----


def _record(record: Any) -> dict[str, Any]:
    if record.__class__ is not dict:
        raise _Unfit("it is not an object")
    return _camel(record)


def _object(owner: dict[str, Any], name: str) -> dict[str, Any]:
    found = owner.get(name)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise _Unfit(f"{name} is not an object")
    return _camel(found)


def _items(items: Any, name: str) -> list[Any]:
    if not isinstance(items, list):
        raise _Unfit(f"{name} is not a list")
    return items


def _text(owner: dict[str, Any], name: str) -> str:
    text = owner.get(name)
    if text.__class__ is str:
        return text
    if text is None:
        return ""
    if isinstance(text, InvalidText):
        return text.decode("utf-8", "backslashreplace")
    raise _Unfit(f"{name} is not text")


def _own_id(owner: dict[str, Any], name: str, called: str, length: int) -> str:
    text = owner.get(name)
    found = _id(text, length)
    if not found:
        if not text:
            raise _Unfit(f"{called} is missing")
        if isinstance(text, str) and not text.strip("0"):
            raise _Unfit(f"{called} is all zero")
        raise _Unfit(f"{called} is not {length} bytes in hex")
    return found


def _id(text: Any, length: int) -> str:
    """Lower-case hex of an id in hex or base64; '' for none, one of another length, or zeros only."""
    if text.__class__ is not str or not text:
        return ""
    if len(text) > 2 * length:
        return ""
    try:
        raw = bytes.fromhex(text) if len(text) == 2 * length else _from_base64(text)
    except ValueError:
        return ""
    return raw.hex() if len(raw) == length and any(raw) else ""


def _from_base64(text: str) -> bytes:
    """Bytes of base64, standard or URL-safe, padded or not. Raises ValueError."""
    padded = text.replace("-", "+").replace("_", "/").rstrip("=")
    padded += "=" * (-len(padded) % 4)
    try:
        return base64.b64decode(padded, validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None


def _integer(value: Any, name: str) -> int:
    """An int of a number or its text; fractions are cut off."""
    kind = value.__class__
    try:
        if kind is str:
            try:
                return int(value)
            except ValueError:
                return int(float(value))
        if kind is int:
            return int(value)
        if kind is float:
            return int(value)
    except OverflowError:
        # An infinity, in text.
        return 2**64 if not str(value).strip().startswith("-") else -(2**63)
    except ValueError:
        pass
    raise _Unfit(f"{name} is not a number")


def _u64(owner: dict[str, Any], name: str) -> int:
    """Clamped to 0 … 2**64 - 1."""
    value = owner.get(name)
    if value is None:
        return 0
    return min(max(_integer(value, name), 0), 2**64 - 1)


def _u32(owner: dict[str, Any], name: str) -> int:
    value = owner.get(name)
    if value is None:
        return 0
    return min(max(_integer(value, name), 0), 2**32 - 1)


def _enum(owner: dict[str, Any], name: str, names: dict[str, int]) -> int:
    """A number, as number or text, or a name; an unknown name is 0."""
    value = owner.get(name)
    if value is None:
        return 0
    if isinstance(value, str) and not value.lstrip("-").isdecimal():
        return names.get(value, 0)
    return min(max(_integer(value, name), -(2**31)), 2**31 - 1)


# ---- values ----


def _attributes(items: Any) -> Attributes:
    """A list of {key, value} → a dict."""
    if not items:
        return {}
    attributes: Attributes = {}
    try:
        for item in items:
            value = item["value"]
            text = value.get("stringValue")
            key = item["key"]
            if key.__class__ is not str:
                break
            attributes[key] = text if text.__class__ is str else _value(value, 1)
        else:
            if len(attributes) == len(items):
                return attributes
    except (KeyError, TypeError, AttributeError):
        pass
    return _pairs(items, 1)


def _pairs(items: Any, level: int) -> Attributes:
    """The same for any items: without key or value, with keys that repeat or are no text."""
    pairs = []
    for item in _items(items, "attributes"):
        if not isinstance(item, dict):
            raise _Unfit("an attribute is not an object")
        pairs.append((_text(item, "key"), _value(item.get("value"), level)))
    attributes = dict(pairs)
    return attributes if len(attributes) == len(pairs) else with_duplicates(pairs)


def _value(node: Any, level: int) -> Value:
    """An AnyValue object. A value that is not of the type which its field says is kept as it came, if it is plain."""
    if level > DEEPEST_LEVEL:
        return TOO_DEEP
    if node is None:
        return None
    if node.__class__ is not dict:
        raise _Unfit("a value is not an object")
    null_double = False
    for field, value in _camel(node).items():
        if value is None:
            # Some senders write every field of the choice, null but for one.
            null_double = null_double or field == "doubleValue"
            continue
        if field not in _READERS:
            continue
        if field == "arrayValue":
            if not isinstance(value, dict):
                raise _Unfit("an arrayValue is not an object")
            return [_value(item, level + 1) for item in _items(value.get("values") or [], "values")]
        if field == "kvlistValue":
            if not isinstance(value, dict):
                raise _Unfit("a kvlistValue is not an object")
            return _pairs(value.get("values") or [], level + 1)
        if isinstance(value, (dict, list)):
            raise _Unfit(f"a {field} is not one value")
        return _READERS[field](value)
    # JSON.stringify makes null of NaN.
    return math.nan if null_double else None


def _double(value: Any) -> Value:
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else _plain(value)


def _int(value: Any) -> Value:
    """An int64. What is none keeps its text: protobuf could not have carried it."""
    number = value
    if isinstance(value, str):
        try:
            number = int(value)
        except ValueError:
            return value
    if isinstance(number, float):
        return int(number) if number.is_integer() and abs(number) < 2**63 else number
    if isinstance(number, int) and not isinstance(number, bool):
        return number if -(2**63) <= number < 2**63 else str(value)
    return _plain(value)


def _bool(value: Any) -> Value:
    return {"true": True, "false": False}.get(value, value) if isinstance(value, str) else _plain(value)


def _bytes(value: Any) -> Value:
    if isinstance(value, str):
        try:
            return _from_base64(value)
        except ValueError:
            return value
    return _plain(value)


def _plain(value: Any) -> Value:
    """A text, number, bool or InvalidText as it came."""
    if not isinstance(value, (str, bytes, bool, int, float)):
        raise _Unfit("a value is not of a known type")
    # A number where a text belongs is let pass, but no number that OTLP does not have.
    return str(value) if isinstance(value, int) and not -(2**63) <= value < 2**64 else value


_READERS = {
    "stringValue": _plain,
    "intValue": _int,
    "doubleValue": _double,
    "boolValue": _bool,
    "bytesValue": _bytes,
    "arrayValue": _plain,
    "kvlistValue": _plain,
}
