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
    """The arguments of a decorated function: `{"args": […], "kwargs": {…}}`, either of which may be missing."""
    data = parsed(value)
    if not isinstance(data, dict) or not data or not data.keys() <= {"args", "kwargs"}:
        return value
    positional, named = data.get("args"), data.get("kwargs")
    if not positional:
        return named if named is not None else positional
    return value if named else positional


def tool_message(value: Value) -> Value:
    """What a tool said, out of LangChain's serialised ToolMessage `{"lc": 1, …, "kwargs": {"content": …}}`."""
    data = parsed(value)
    kwargs = data.get("kwargs") if isinstance(data, dict) and "lc" in data else None
    return kwargs.get("content", value) if isinstance(kwargs, dict) else value
