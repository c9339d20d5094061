"""What emitters put around the arguments and the result of a tool: for Dialect.unwrap, and for facts that stand inside.

A value that is no such wrapper comes back as it is. Nothing here raises.
"""

from __future__ import annotations

import ast

from otel_blackboard.processor.values import parsed
from otel_blackboard.records import Value

_LITERAL = 16_384
"""Characters of a Python literal that is read: the compiler's stack grows with it."""


def python_literal(value: Value) -> Value:
    """What a Python repr says, e.g. `{'city': 'Paris'}`."""
    if not isinstance(value, str) or value[:1] not in ("{", "[", "(") or len(value) > _LITERAL:
        return value
    try:
        found = ast.literal_eval(value)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return value
    return found if isinstance(found, dict | list) else value


def call_arguments(value: Value) -> Value:
    """The arguments of a decorated function: `{"args": […], "kwargs": {…}}`, always both; smolagents puts its own
    `sanitize_inputs_outputs` beside them (captured). Either alone is an argument that is called so."""
    data = parsed(value)
    if not isinstance(data, dict) or not {"args", "kwargs"} <= data.keys() <= _OF_A_CALL:
        return value
    positional, named = data.get("args"), data.get("kwargs")
    if not positional:
        return named if named is not None else positional
    return value if named else positional


_OF_A_CALL = {"args", "kwargs", "sanitize_inputs_outputs"}


def response_id(answer: Value) -> str:
    """The id in a provider's own answer: beside what was said and by which model, or what it cost. An `id` in any other map
    is data of the application, which two calls may say alike."""
    if isinstance(answer, str) and '"id"' not in answer:
        return ""
    answer = parsed(answer)
    if not isinstance(answer, dict) or not isinstance(identity := answer.get("id"), str):
        return ""
    said = any(isinstance(answer.get(key), list) for key in ("choices", "output", "content", "candidates"))
    return identity if (said or isinstance(answer.get("message"), dict)) and not _BY.isdisjoint(answer) else ""


_BY = frozenset(("model", "object", "usage"))


def tool_message_fields(value: Value) -> dict[str, Value]:
    """`content`, `tool_call_id`, `status` … of LangChain's serialised ToolMessage: `{"lc": 1, …, "kwargs": {…}}`,
    `{"type": "tool", "data": {…}}`, or the only one of a Command `{"graph", "update": {"messages": […]}, …}`."""
    if not isinstance(value, dict) and not (isinstance(value, str) and value[:1] == "{" and "tool_call_id" in value):
        return {}
    data = parsed(value)
    if isinstance(data, dict) and isinstance(update := data.get("update"), dict):
        messages = update.get("messages")
        data = messages[0] if isinstance(messages, list) and len(messages) == 1 else None
    if not isinstance(data, dict):
        return {}
    fields = data.get("kwargs") if "lc" in data else data.get("data") if data.get("type") == "tool" else None
    return fields if isinstance(fields, dict) else {}


def tool_message(value: Value) -> Value:
    """What a tool said, out of LangChain's serialised ToolMessage."""
    return tool_message_fields(value).get("content", value)


def part_of_call(messages: Value, kind: str, call_id: str, tool: str) -> dict[str, Value]:
    """The part `tool_call` or `tool_call_response` (`kind`) of one call, out of messages of the conventions that a tool's own
    span has; {} = none. What it knows of another call is not its own."""
    if isinstance(messages, str) and f'"{kind}"' not in messages:
        return {}
    data = parsed(messages)
    for message in data if isinstance(data, list) else [data]:
        parts = message.get("parts") if isinstance(message, dict) else None
        for part in parts if isinstance(parts, list) else []:
            if not isinstance(part, dict) or part.get("type") != kind:
                continue
            known, own = (part.get("id"), call_id) if part.get("id") and call_id else (part.get("name"), tool)
            if not known or not own or known == own:
                return part
    return {}


def function_response(value: Value) -> Value:
    """What a tool said, out of Gemini's `{"id", "name", "response": {…}}`."""
    if isinstance(value, str) and not (value[:1] == "{" and '"response"' in value):
        return value
    data = parsed(value)
    if not isinstance(data, dict) or "name" not in data or not data.keys() <= {"id", "name", "response"}:
        return value
    return data.get("response", value)
