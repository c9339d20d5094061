"""Chat messages in the shapes that instrumentations send (dialects.md A), read into one form.

Reading never fails: what is not understood is kept raw as a part of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson

from otel_blackboard.processor.values import parsed
from otel_blackboard.records import Value

_ROLES = {"model": "assistant", "ai": "assistant", "human": "user", "function": "tool", "thinking": "assistant"}


@dataclass(slots=True)
class ToolCall:
    id: str
    name: str
    arguments: str
    """JSON text as sent ('' when none was)."""


@dataclass(slots=True)
class Message:
    role: str
    text: str = ""
    reasoning: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)
    tool_results: list[tuple[str, str]] = field(default_factory=list)
    """(tool call id, result as text)"""
    other: list[Any] = field(default_factory=list)
    """Parts of other kinds (media, unknown types), raw."""
    finish_reason: str = ""


def read_messages(value: Value, role: str = "") -> list[Message]:
    """All messages of a value: an array of messages or parts, one message, or plain text said by `role`."""
    data = parsed(value)
    if isinstance(data, dict) and isinstance(data.get("messages"), list):
        data = data["messages"]
    if isinstance(data, dict) and isinstance(data.get("choices"), list):
        data = data["choices"]
    if isinstance(data, list) and data and all(isinstance(item, list) for item in data):
        data = [message for inner in data for message in inner]
    if isinstance(data, dict):
        return [_message(data, role)]
    if isinstance(data, list):
        if any(isinstance(item, dict) and ("role" in item or "message" in item or "parts" in item) for item in data):
            return [_message(item, role) for item in data]
        message = Message(role)
        for item in data:
            _part(message, item)
        return [message]
    return [] if data is None or data == "" else [Message(role, text=_text(data))]


def _message(data: Any, role: str) -> Message:
    if not isinstance(data, dict):
        return Message(role, text=_text(data))
    finish = data.get("finish_reason")
    inner = data.get("message")
    if isinstance(inner, dict):  # a choice: {index, finish_reason, message}
        data = inner
    elif isinstance(inner, str):  # a flattened choice: message is text or JSON
        data = {**data, "content": inner}
    said = str(data.get("role") or role)
    message = Message(_ROLES.get(said, said), finish_reason=str(finish or data.get("finish_reason") or ""))
    content = data.get("parts", data.get("content"))
    if said == "tool" and ("tool_call_id" in data or "id" in data) and not _has_results(content):
        message.tool_results.append((str(data.get("tool_call_id") or data.get("id") or ""), _text(content)))
    else:
        content = parsed(content) if isinstance(content, str) and content[:2] in ("[{", "[]") else content
        for part in content if isinstance(content, list) else [] if content is None else [content]:
            _part(message, part)
    calls = parsed(data.get("tool_calls"))
    for call in calls if isinstance(calls, list) else []:
        _part(message, call)
    if isinstance(data.get("function_call"), dict):
        _part(message, {"function_call": data["function_call"]})
    return message


def _has_results(content: Any) -> bool:
    return isinstance(content, list) and any(
        isinstance(part, dict) and part.get("type") in ("tool_call_response", "tool_result", "tool-result")
        for part in content
    )


def _part(message: Message, part: Any) -> None:
    if not isinstance(part, dict):
        message.text += _text(part)
        return
    kind = part.get("type")
    function = part.get("function")
    if isinstance(function, dict):  # OpenAI: {id, type: function, function: {name, arguments}}
        _call(message, part.get("id"), function.get("name"), function.get("arguments"))
    elif kind == "tool_call":
        _call(message, part.get("id"), part.get("name"), part.get("arguments", part.get("args")))
    elif kind == "tool_use":
        _call(message, part.get("id"), part.get("name"), part.get("input"))
    elif kind == "function_call":
        _call(message, part.get("call_id") or part.get("id"), part.get("name"), part.get("arguments"))
    elif kind == "tool-call" or (kind is None and "toolCallId" in part and "toolName" in part):
        _call(message, part.get("toolCallId"), part.get("toolName"), part.get("input", part.get("args")))
    elif isinstance(part.get("toolUse"), dict):
        use = part["toolUse"]
        _call(message, use.get("toolUseId"), use.get("name"), use.get("input"))
    elif isinstance(call := part.get("functionCall", part.get("function_call")), dict):
        _call(message, call.get("id"), call.get("name"), call.get("args", call.get("arguments")))
    elif kind in ("tool_call_response", "tool_result", "function_call_output", "tool-result"):
        identity = part.get("id") or part.get("tool_use_id") or part.get("call_id") or part.get("toolCallId") or ""
        for key in ("response", "result", "content", "output"):
            if key in part:
                message.tool_results.append((str(identity), _text(part[key])))
                break
    elif isinstance(result := part.get("toolResult"), dict):
        message.tool_results.append((str(result.get("toolUseId") or ""), _text(result.get("content"))))
    elif isinstance(answer := part.get("functionResponse"), dict):
        message.tool_results.append((str(answer.get("id") or ""), _text(answer.get("response"))))
    elif kind in ("reasoning", "thinking"):
        message.reasoning += _text(part.get("content", part.get("thinking", part.get("text"))))
    elif kind in ("text", "output_text", "input_text") or (kind is None and isinstance(part.get("text"), str)):
        message.text += _text(part.get("content", part.get("text")))
    else:
        message.other.append(part)


def _call(message: Message, identity: Any, name: Any, arguments: Any) -> None:
    text = arguments if isinstance(arguments, str) else "" if arguments is None else _json(arguments)
    message.tool_calls.append(ToolCall(str(identity or ""), str(name or ""), text))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, list) and value and all(isinstance(p, dict) and isinstance(p.get("text"), str) for p in value):
        return "".join(part["text"] for part in value)
    return _json(value)


def _json(value: Any) -> str:
    try:
        return orjson.dumps(value, default=repr).decode()
    except (TypeError, RecursionError):  # nested deeper than it writes, though it read it
        return "[nested too deeply]"
