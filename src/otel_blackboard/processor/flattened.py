"""Flattened attribute families: `family.N.rest…` keys back into a list of maps."""

from __future__ import annotations

from typing import Any

from otel_blackboard.processor import content as content_rules
from otel_blackboard.processor.values import parsed
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
    return [_item(_lists(rows[index])) for index in sorted(rows)]


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
        return [_item(_lists(value[key])) for key in sorted(value, key=lambda key: int(key[:12]))]
    return {key: _lists(item) for key, item in value.items()}


_WRAPPERS = ("message", "message_content", "tool_call", "tool", "document", "embedding", "prompt", "completion")


def _item(value: Any) -> Any:
    """An item of a list as a plain message, part, tool or document. OpenInference names the kind of each item once more
    (`llm.input_messages.0.message.role`, `retrieval.documents.0.document.content`), calls a message's parts `contents`,
    and has Anthropic's calls of tools twice: among the contents and in `tool_calls`."""
    if not isinstance(value, dict):
        return value
    for wrapper in _WRAPPERS:
        if isinstance(inner := value.get(wrapper), dict):
            value = inner | {key: item for key, item in value.items() if key != wrapper}
    if value.keys() == {"json_schema"}:
        return parsed(value["json_schema"])
    if isinstance(contents := value.pop("contents", None), list):
        calls = value.get("tool_calls")
        called = {_id(call) for call in calls} - {""} if isinstance(calls, list) else set()
        value["content"] = [part for part in contents if _id(part) not in called]
    results = value.get("function")
    if value.get("role") == "function" and isinstance(
        results, list
    ):  # AutoGen's tool results, each JSON text (captured)
        value["content"] = [_result(parsed(result)) for result in results]
        del value["function"]
    return value


def _id(part: Any) -> str:
    return str(part.get("id") or "") if isinstance(part, dict) else ""


def _result(value: Any) -> Any:
    if not isinstance(value, dict) or "content" not in value:
        return value
    return {"type": "tool_result", "tool_use_id": value.get("call_id"), "content": value["content"]}
