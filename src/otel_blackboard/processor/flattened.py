"""Flattened attribute families: `family.N.rest…` keys back into a list of maps."""

from __future__ import annotations

from typing import Any

from otel_blackboard.processor import content as content_rules
from otel_blackboard.records import (
    Value,
)


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
