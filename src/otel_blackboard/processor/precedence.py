"""Which dialect is asked for what: the role of a span from the first that knows one, every other fact from the first
attribute key that has it (dialects.md D)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, NamedTuple

from otel_blackboard.processor import content as content_rules
from otel_blackboard.processor.dialects import BY_FIELD, BY_ROLE, Dialect
from otel_blackboard.processor.dialects.dialect import Role
from otel_blackboard.processor.values import (
    first_text,
    whole_number,
)
from otel_blackboard.records import (
    Attributes,
    Light,
    LogLight,
    Span,
    Value,
)

NAME_KEPT = 1_024
"""Characters of a name (agent, model, tool …) in the light columns; the attribute itself is kept whole."""

_KEPT = dict.fromkeys(
    "agent_id agent_instance conversation_id use_case_id user_id response_id join_key tool_call_id".split(), 8_192
)
"""The same for what tells one thing from another: where such an id is cut, two may become one."""

_NUMBERS = frozenset(f.name for f in fields(Light) if "int | None" in str(f.type))
IDS = {"run_id": "run_", "step_id": "step_"}


def _merged(tables: Iterable[tuple[Dialect, Any]]) -> list[tuple[str, list[tuple[Dialect, str]]]]:
    merged: dict[str, list[tuple[Dialect, str]]] = {}
    for dialect, table in tables:
        for fact, keys in table.items():
            merged.setdefault(fact, []).extend((dialect, key) for key in keys)
    return list(merged.items())


_FACTS = _merged((d, d.facts) for d in BY_FIELD)
_CONTENT = _merged((d, d.content) for d in BY_FIELD)
_LABELS = _merged((d, d.labels) for d in BY_FIELD)
LOG_FACTS = [(fact, keys) for fact, keys in _FACTS if fact in {f.name for f in fields(LogLight)}]
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


def shape_of(span: Span) -> _Shape:
    keys, resource_keys = tuple(span.attributes), tuple(span.resource.attributes)
    few = len(keys) + len(resource_keys) <= _MOST_KEYS
    few = few and max(map(len, (*keys, *resource_keys)), default=0) <= _LONGEST_KEY
    return (_known_shape if few else _make_shape)(keys, resource_keys)


def role_of(span: Span) -> tuple[Role, str]:
    for dialect in BY_ROLE:
        role = dialect.role(span)
        if role is not None:
            return role, dialect.name
    return Role(""), ""


def read_facts(
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
                setattr(light, fact, text if fact in IDS else text[: _KEPT.get(fact, NAME_KEPT)])
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
