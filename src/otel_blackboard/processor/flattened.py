"""Flattened attribute families: `family.N.rest…` keys back into a list of maps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from otel_blackboard.processor import content as content_rules
from otel_blackboard.records import Value

LARGEST_INDEX = 10_000
"""A larger index is no position, only an order."""


def unflatten(pairs: Value) -> Value:
    """Flattened keys `family.N.rest…` back into a list of maps; an index is only an order, however large it is."""
    rows: dict[str, dict[str, Value]] = {}
    for key, value in _pairs(pairs):
        number, name = _split(key)
        if number:
            _set(rows.setdefault(number, {}), name.split("."), value)
    return [_lists(rows[index]) for index in sorted(rows, key=_order)]


def lost(pairs: Value) -> int:
    """How many entries before the last one did not come: a sender that may have 128 attributes drops the first ones. 0 alone
    is no loss: OpenInference leaves that place to the instructions of a Responses request (captured)."""
    indexes = {int(number) for key, _ in _pairs(pairs) if len(number := _split(key)[0]) in range(1, 10)}
    known = {index for index in indexes if index <= LARGEST_INDEX} | {0}
    return max(known) + 1 - len(known)


def _pairs(pairs: Value) -> Iterator[tuple[str, Value]]:
    for pair in pairs if isinstance(pairs, list) else []:
        if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str):
            yield pair[0], pair[1]


def _split(key: str) -> tuple[str, str]:
    """`family.N.rest` → (N without leading zeros, rest); ('', …) where there is no number."""
    match = content_rules.FAMILIES.match(key)
    number, _, rest = key[match.end() - 1 :].partition(".") if match else ("", "", "")
    return (number.lstrip("0") or "0" if number.isdecimal() else ""), rest


def _order(number: str) -> tuple[int, str]:
    return len(number), number


def _set(target: dict[str, Any], path: list[str], value: Value) -> None:
    for name in path[:-1][:16]:
        inner = target.setdefault(name, {})
        if not isinstance(inner, dict):  # one key both a scalar and a parent: the scalar stays under ''
            inner = target[name] = {"": inner}
        target = inner
    known = target.get(path[-1])
    if isinstance(known, dict) and not isinstance(value, dict):
        known[""] = value
    else:
        target[path[-1]] = value


def _lists(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value.keys() == {""}:
        return value[""]
    if value and all(key.isdecimal() for key in value if key):
        return [_lists(value[key]) for key in sorted(value, key=lambda key: (key != "", _order(key.lstrip("0"))))]
    return {key: _lists(item) for key, item in value.items()}
