"""Which dialect is asked for what: the role of a span from the first that can tell, every other fact from the first place
that has it (dialects.md D). Only those dialects are asked that know the span, by its keys or its scope."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import fields
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, NamedTuple

from otel_blackboard.processor import content as content_rules
from otel_blackboard.processor.dialects import BY_FACT, BY_FIELD, BY_ROLE, Dialect
from otel_blackboard.processor.dialects.dialect import NO_ROLE, Keys, Part, Role, Source
from otel_blackboard.processor.values import first_text, whole_number
from otel_blackboard.records import Attributes, Light, LogLight, Span, Value

NAME_KEPT = 1_024
"""Characters of a name (agent, model, tool …) in the light columns; the attribute itself is kept whole."""

IDENTITY_KEPT = 8_192
"""The same for what tells one thing from another: where such an id is cut, two may become one."""

_IDENTITIES = "agent_id agent_instance conversation_id use_case_id user_id response_id join_key tool_call_id".split()
IDS = {"run_id": "run_", "step_id": "step_"}

ORDINALS = frozenset("pass_seq attempt call_seq loop_iteration output_retry retry_count".split())
LARGEST_ORDINAL = 2**32 - 1
"""What counts within a run: a larger number is a mistake, and no column takes it."""

_OF_RESOURCE = frozenset({"run_id", "run_name", "use_case_id", "conversation_id"})
"""Facts that a whole process may state once, in its resource."""


Table = list[tuple[str, list[Source]]]
"""What is asked for, and where it may be, in order."""


def _merged(tables: Iterable[Keys]) -> Table:
    merged: dict[str, list[Source]] = {}
    for table in tables:
        for name, sources in table.items():
            known = merged.setdefault(name, [])
            for each in sources:
                source = each if isinstance(each, Source) else Source(each)
                if source not in known:
                    known.append(source)
    return list(merged.items())


def _knows(dialect: Dialect, keys: Iterable[str], scope: str) -> bool:
    """By a key or the scope; a mark that ends in '.' is a beginning."""
    scopes = tuple(mark for mark in dialect.scopes if mark.endswith("."))
    if scope in dialect.scopes or (scopes and scope.startswith(scopes)):
        return True
    beginnings = tuple(mark for mark in dialect.keys if mark.endswith("."))
    return any(key in dialect.keys or key.startswith(beginnings) for key in keys)


def _facts(dialect: Dialect, known: Collection[Dialect], resource_keys: tuple[str, ...]) -> Keys:
    """What a dialect says of the span, and what the process said once in the dialect's words."""
    if dialect in known:
        return dialect.facts
    if not resource_keys or not _knows(dialect, resource_keys, ""):
        return {}
    return {
        fact: tuple(each for each in sources if (each if isinstance(each, str) else each.key) in resource_keys)
        for fact, sources in dialect.facts.items()
        if fact in _OF_RESOURCE
    }


_OF_LOGS = frozenset(f.name for f in fields(LogLight))


class Shape(NamedTuple):
    """What matters to a span or log record by its keys and scope alone: those of one instrumentation share a few sets of
    keys, and most rows of the tables are about other dialects."""

    by_role: tuple[Dialect, ...]
    by_field: tuple[Dialect, ...]
    """The dialects that know it: by a key of its own or the scope, never by the resource, which is that of all spans of
    the process, whoever made them."""
    ignore: Mapping[str, tuple[Callable[[Span, Value], bool], ...]]
    unwrap: Mapping[str, tuple[Callable[[Value], Value], ...]]
    complete: tuple[Callable[[Light, Span], None], ...]
    pieces: tuple[Callable[[Span, Role], list[Part]], ...]
    facts: Table
    log_facts: Table
    labels: Table
    parts: Table
    content: tuple[str, ...]
    """Keys whose values leave the row whatever their size; those of flattened families are not among them."""
    families: bool
    marked: bool
    """Whether a key begins with `$`: it may need an escape."""
    errors: bool
    """Whether a key states an error."""


def _make_shape(keys: tuple[str, ...], resource_keys: tuple[str, ...], scope: str) -> Shape:
    by_field = [dialect for dialect in BY_FIELD if _knows(dialect, keys, scope)]
    ignore: dict[str, list[Callable[[Span, Value], bool]]] = {}
    unwrap: dict[str, list[Callable[[Value], Value]]] = {}
    for dialect in by_field:
        for fact, check in dialect.ignore.items():
            ignore.setdefault(fact, []).append(check)
        for meaning, taken in dialect.unwrap.items():
            unwrap.setdefault(meaning, []).append(taken)
    families = {content_rules.family(key) for key in keys} - {""}
    own, everywhere = families.union(keys), families.union(keys, resource_keys)

    def rows(table: Table) -> Table:
        kept = (
            (name, [each for each in sources if each.key in (everywhere if name in _OF_RESOURCE else own)])
            for name, sources in table
        )
        return [(name, sources) for name, sources in kept if sources]

    tables = {dialect.name: _facts(dialect, by_field, resource_keys) for dialect in BY_FIELD}
    first = (
        {fact: tables[each.name].get(fact, ())}
        for fact, dialects in BY_FACT.items()
        for each in dialects
        if each.name in tables
    )
    facts = rows(_merged((*first, *tables.values())))
    return Shape(
        by_role=tuple(dialect for dialect in BY_ROLE if dialect in by_field),
        by_field=tuple(by_field),
        ignore={fact: tuple(checks) for fact, checks in ignore.items()},
        unwrap={meaning: tuple(taken) for meaning, taken in unwrap.items()},
        complete=tuple(dialect.complete for dialect in by_field if dialect.complete),
        pieces=tuple(dialect.pieces for dialect in by_field if dialect.pieces),
        facts=facts,
        log_facts=[row for row in facts if row[0] in _OF_LOGS],
        labels=rows(_merged(dialect.labels for dialect in by_field)),
        parts=rows(_merged(dialect.content for dialect in by_field)),
        content=tuple(key for key in keys if content_rules.is_content(key) and not content_rules.family(key)),
        families=bool(families),
        marked=any(key.startswith("$") for key in keys),
        errors=not own.isdisjoint(ERROR_KEYS),
    )


ERROR_KEYS = ("error.message", "exception.message", "error.type")
"""Where an error is stated, the best first."""

_known_shape = lru_cache(maxsize=1024)(_make_shape)
_MOST_CHARACTERS = 4096
"""Of all keys of a shape that is remembered: the memory stays small whatever is sent."""


def shape_of(attributes: Attributes, resource: Attributes, scope: str) -> Shape:
    keys, resource_keys = tuple(attributes), tuple(resource)
    small = len("".join(keys)) + len("".join(resource_keys)) + len(scope) <= _MOST_CHARACTERS
    return (_known_shape if small else _make_shape)(keys, resource_keys, scope)


def role_of(span: Span, shape: Shape) -> tuple[Role, str]:
    for dialect in shape.by_role:
        role = dialect.role(span)
        if role is not None:
            return role, dialect.name
    return Role(""), ""


def names_of(span: Span, shape: Shape, role: Role, told_by: str) -> Iterator[tuple[str, str]]:
    """What each dialect takes out of the span's name, in the order of roles. `told_by`: the dialect that gave the role, ''
    = none did: those before it had none to give."""
    told = False
    for known in shape.by_role:
        gave = known.name == told_by
        told = told or gave
        if known.names is not None:
            own = role if gave else known.role(span) if told else None
            if own is None or own.role != role.role or own.is_agent > role.is_agent:
                own = NO_ROLE
            yield from known.names(span, own).items()


def read_facts(
    light: Light | LogLight,
    table: Table,
    attributes: Attributes,
    resource: Attributes,
    span: Span | None,
    ignore: Mapping[str, tuple[Callable[[Span, Value], bool], ...]],
) -> None:
    for fact, sources in table:
        read, checks = _READERS.get(fact, _name), ignore.get(fact)
        for key, take in sources:
            value = attributes.get(key)
            if value is None and fact in _OF_RESOURCE:
                value = resource.get(key)
            if take is not None and value is not None:
                value = take(value)
            if value is None or value == "":
                continue
            if checks and span is not None and any(check(span, value) for check in checks):
                continue
            found = read(value)
            if found is not None:
                setattr(light, fact, found)
                break
    if getattr(light, "cost_usd", None) is not None:
        light.cost_source = "span"  # type: ignore[union-attr]
    light.provider = _RENAMED_PROVIDERS.get(light.provider, light.provider)
    if not light.agent_id:
        light.agent_id = getattr(light, "agent_instance", "")


def _name(value: Value) -> str:
    return (value if value.__class__ is str else first_text(value))[:NAME_KEPT]


def _identity(value: Value) -> str:
    return (value if value.__class__ is str else first_text(value))[:IDENTITY_KEPT]


def _ordinal(value: Value) -> int | None:
    number = whole_number(value)
    return None if number is None or number > LARGEST_ORDINAL else number


def _money(value: Value) -> Decimal | None:
    try:
        money = Decimal(first_text(value))
    except InvalidOperation:
        return None
    if not money.is_finite() or not 0 <= money < 10**9:
        return None
    # As exact as its column: sums are the same whether or not the row has been through the store.
    return money.quantize(_SMALLEST)


_SMALLEST = Decimal("1e-12")


_READERS: dict[str, Callable[[Value], Any]] = (
    {f.name: whole_number for f in fields(Light) if "int | None" in str(f.type)}
    | dict.fromkeys(ORDINALS, _ordinal)
    | dict.fromkeys(IDS, first_text)
    | dict.fromkeys(_IDENTITIES, _identity)
    | {"cost_usd": _money}
)
"""How a fact that is no name is read; None = not readable, another key may have it."""

_RENAMED_PROVIDERS = {
    "xai": "x_ai",
    "az.ai.inference": "azure.ai.inference",
    "vertex_ai": "gcp.vertex_ai",
    "gemini": "gcp.gemini",
}
