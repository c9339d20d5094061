"""What arrived as the JSON texts of its row. Content leaves it for the body store and is a pointer there, whatever its
size; so does any other value that is large."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable
from typing import Any

import orjson

from otel_blackboard.processor import content as content_rules
from otel_blackboard.processor.dialects.dialect import Dialect, Part, says_nothing
from otel_blackboard.processor.precedence import Shape, Table
from otel_blackboard.processor.values import (
    CONTENT,
    content_bytes,
    plain,
    to_json,
)
from otel_blackboard.records import (
    SPAN_PACK,
    Attributes,
    Content,
    Event,
    Resource,
    Scope,
    Tenant,
    Value,
    Written,
)


class Contents:
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
        if not is_large(value):
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


def families_of(attributes: Attributes) -> dict[str, Value]:
    """Flattened families as `family.*` → [[key, value], …] in the order sent."""
    families: dict[str, Value] = {}
    for key, value in attributes.items():
        if name := content_rules.family(key):
            families.setdefault(name, []).append([key, value])  # type: ignore[union-attr]
    return families


def parts_of(attributes: Attributes, families: dict[str, Value], table: Table) -> dict[str, Part]:
    """meaning → the first attribute (or flattened family) that has it."""
    found: dict[str, Part] = {}
    for meaning, sources in table:
        for key, take in sources:
            value = families.get(key) if key[-2:] == ".*" else attributes.get(key)
            sent = value
            if take is not None and value is not None:
                value = take(value)
            if value is None or value == "" or (key not in content_rules.PLAIN and says_nothing(meaning, value)):
                continue
            found[meaning] = Part(meaning, key if value is sent else f"{key}#{meaning}", value)
            break
        else:  # nothing said is something said where it is what a tool returned
            if meaning == "result" and (empty := next((key for key, _ in sources if attributes.get(key) == ""), "")):
                found[meaning] = Part(meaning, empty, "")
    return found


def parts_of_events(events: list[Event], known_by: tuple[Dialect, ...]) -> list[Part]:
    """The content of span events, in their order by time; the field names the event's place. `known_by`: the dialects
    that know the span."""
    parts: list[Part] = []
    if events:
        for place, event in sorted(enumerate(events), key=lambda item: item[1].time_ns):
            for dialect in known_by:
                found = dialect.event(event)
                if found:
                    parts += [part._replace(field=f"events.{place}.{part.field}") for part in found]
                    break
    return parts


def write_attributes(attributes: Attributes, shape: Shape, families: dict[str, Value], contents: Contents) -> str:
    """Attributes as JSON text in which content is a pointer `{"$content": index into bodies}`."""
    kept: dict[str, Any] = {}
    if families:
        for key, value in attributes.items():
            if not (name := content_rules.family(key)):
                kept[key] = value
                continue
            place = name
            while place in attributes:  # a key of the sender's
                place += "*"
            if place not in kept:
                index = contents.value(name, families[name])
                contents.items[index].encoding = "pairs"
                kept[place] = _pointer(index)
    else:
        kept = attributes.copy()
    for key in shape.content:
        if (value := attributes[key]) is not None:
            kept[key] = _pointer(contents.value(key, value))
    # Nearly always JSON can say it all and it is short: then no value has to be looked at alone.
    if not shape.marked and _said_by_json(kept):
        text = orjson.dumps(kept)
        if len(text) <= content_rules.LARGE:
            return text.decode()
    written: dict[str, Any] = {}
    for key, value in kept.items():
        if value.__class__ is orjson.Fragment:
            written[key] = value
        elif value is not None and is_large(value):
            (name,) = plain({key: None})
            written[name] = _pointer(contents.value(_field(key), value))
        else:
            written.update(plain({key: value}))
    return orjson.dumps(written).decode()


def _said_by_json(kept: dict[str, Any]) -> bool:
    types = set(map(type, kept.values()))
    if float in types and not all(math.isfinite(value) for value in kept.values() if value.__class__ is float):
        return False
    return types <= _SAID_BY_JSON


def _pointer(index: int) -> orjson.Fragment:
    return orjson.Fragment(b'{"%b":%d}' % (CONTENT.encode(), index))


_SAID_BY_JSON = frozenset((str, int, float, bool, type(None), orjson.Fragment))

_OTHER_FIELDS = re.compile(
    r"name|status_message|error|body|(?:events|resource|scope|attributes)\..*|(?:.*\.)?\*", re.DOTALL
)
"""Fields that are not an attribute of the span or record itself."""


def _field(key: str) -> str:
    """The field of an attribute: its key, unless a field of another meaning is called so."""
    return "attributes." + key if _OTHER_FIELDS.fullmatch(key) else key


def is_large(value: Value) -> bool:
    if isinstance(value, str):
        return len(value) > _MAYBE_LARGE and len(value.encode()) > content_rules.LARGE
    if isinstance(value, bytes):
        return len(value) > content_rules.LARGE
    return isinstance(value, list | dict) and len(to_json(value)) > content_rules.LARGE


_MAYBE_LARGE = content_rules.LARGE // 4
"""Characters: UTF-8 takes up to four bytes each."""


def write_events(events: list[Event], contents: Contents) -> str:
    if not events:
        return "[]"
    rows = []
    for place, event in enumerate(events):
        kept: dict[str, Any] = {}
        genai = event.name.startswith("gen_ai.")
        for key, value in event.attributes.items():
            content = content_rules.is_content(key) or (genai and key in content_rules.EVENT_KEYS)
            if value is not None and (content or is_large(value)):
                (name,) = plain({key: None})
                kept[name] = {CONTENT: contents.value(f"events.{place}.{_field(key)}", value)}
            else:
                kept.update(plain({key: value}))
        row = {"time_ns": event.time_ns, "name": event.name, "attributes": kept}
        if event.dropped_attributes_count:
            row["dropped_attributes_count"] = event.dropped_attributes_count
        rows.append(row)
    return orjson.dumps(rows).decode()


def write_dropped(attributes: int, events: int = 0, links: int = 0) -> str:
    """How many of each the sender says it left out; '' for none."""
    if not (attributes or events or links):
        return ""
    counts = {"attributes": attributes, "events": events, "links": links}
    return orjson.dumps({name: count for name, count in counts.items() if count}).decode()


def version_of(finished: bool, end_ns: int, size: int, texts: Iterable[str], contents: list[Content]) -> int:
    """Which version of a span or record wins, by content alone: finished, then latest end, then most attributes."""
    said = [*texts]
    for content in contents:
        said += content.field, content.encoding, content.digest()
    digest = hashlib.sha256("\0".join(said).encode("utf-8", "surrogatepass"))
    return (
        finished << 255
        | min(end_ns, 2**64 - 1) << 191
        | min(size, 2**16 - 1) << 175
        | int.from_bytes(digest.digest()[:21])
    )
