"""Chat messages in the shapes that instrumentations send (dialects.md A), read into one form: that of OpenTelemetry's GenAI
conventions, `{role, parts: […], finish_reason?}`.

Reading never fails and is linear in what it reads: what is not understood is kept raw as a part of its own.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from otel_blackboard.processor.message_parts import Part, as_text, call_part, is_part, read_part, response_part
from otel_blackboard.processor.values import parsed, to_json
from otel_blackboard.records import Value


class ToolCall(NamedTuple):
    id: str
    name: str
    arguments: str
    """JSON text as sent ('' when none was)."""


@dataclass(slots=True)
class Message:
    role: str
    parts: list[Part] = field(default_factory=list)
    """Parts of the conventions (message_parts.py), in their order; `arguments` of a call as they were sent."""
    name: str = ""
    """Who of several with the same role spoke."""
    finish_reason: str = ""
    """stop, tool_call, length, content_filter or error; another one as it was sent."""
    raw_finish_reason: str = ""
    """As it was sent, where that is another word."""

    @property
    def text(self) -> str:
        return self._said("text")

    @property
    def reasoning(self) -> str:
        return self._said("reasoning")

    def _said(self, kind: str) -> str:
        return "".join(as_text(part.get("content")) for part in self.parts if part.get("type") == kind)

    @property
    def tool_calls(self) -> list[ToolCall]:
        calls = [part for part in self.parts if part.get("type") == "tool_call"]
        return [ToolCall(call.get("id") or "", call["name"], as_text(call.get("arguments"))) for call in calls]


class Request(NamedTuple):
    """What a request, or the messages of one, says."""

    system: list[Part]
    """Instructions that were sent beside the messages; a system message stays where it was said."""
    messages: list[Message]
    tools: list[Any]
    """Definitions as they were sent."""


def read_messages(value: Value, role: str = "") -> list[Message]:
    """All messages of a value of any shape; what has no role was said by `role`."""
    return read_request(value, role).messages


def read_request(value: Value, role: str = "user") -> Request:
    """A whole request, a response, or the messages of one, whatever is around them."""
    request = Request([], [], [])
    data = _structured(value)
    if isinstance(value, str) and not isinstance(data, str) and not _is_understood(data, role):
        request.messages.append(_plain(role, read_part(value)))  # somebody said JSON
    else:
        _collect(request, data, role, 0)
    return request


def plain_answer(value: Value) -> list[Message]:
    """The answer that a value is, where it is known to be no message, whatever it reads like."""
    text = as_text(value) if isinstance(value, str | bytes) else to_json(value)
    return [Message("assistant", [{"type": "text", "content": text}])]


def _is_understood(data: Any, role: str) -> bool:
    if isinstance(data, dict):
        return _is_message(data) or _held(data, role) is not None or is_part(data)
    if isinstance(data, list):
        return not data or any(_is_item(item, role) for item in data)
    return data is None


def _is_item(item: Any, role: str) -> bool:
    item = _structured(item) if isinstance(item, str) and item[:1] == "{" else item
    if isinstance(item, str):
        return role != "assistant"  # several prompts; several texts of an answer are its data
    if isinstance(item, dict):
        return _is_understood(item, role) or not _OF_PARTS.isdisjoint(item)
    return isinstance(item, list)


def read_system(value: Value) -> list[Part]:
    """Instructions: text, parts, one message or several."""
    data = _structured(value)
    if isinstance(value, str) and not isinstance(data, str) and not _is_understood(data, "system"):
        data = value
    parts: list[Part] = []
    for item in data if isinstance(data, list) else [data]:
        whole = _is_message(item) and ("role" in item or "parts" in item)
        parts += _message(item, "system").parts if whole else read_part(item)
    return parts


def read_tools(value: Value) -> list[Any]:
    """Tool definitions as they were sent, out of flattened forms and JSON texts."""
    data = _structured(value)
    if isinstance(data, dict) and "name" not in data:
        for keys in (("tools",), ("function_tools", "output_tools"), ("functions",)):
            if any(isinstance(data.get(key), list) for key in keys):
                data = [tool for key in keys if isinstance(data.get(key), list) for tool in data[key]]
                break
    if data is None or data == "":
        return []
    return [_tool(item) for item in (data if isinstance(data, list) else [data])]


def shown(message: Message) -> dict[str, Any]:
    """The message as the conventions write it."""
    data: dict[str, Any] = {"role": message.role, "parts": [_shown_part(part) for part in message.parts]}
    if message.name:
        data["name"] = message.name
    if message.finish_reason:
        data["finish_reason"] = message.finish_reason
    if message.raw_finish_reason:
        data["raw_finish_reason"] = message.raw_finish_reason
    return data


def _shown_part(part: Part) -> Part:
    arguments = part.get("arguments")
    if part.get("type") == "tool_call" and isinstance(arguments, str):
        data = parsed(arguments)
        if isinstance(data, dict | list):
            return {**part, "arguments": data}
    return part


# ------------------------------------------------------------------------------------------------------------ containers


def _structured(value: Value) -> Any:
    data = parsed(value.decode(errors="replace") if isinstance(value, bytes) else value)
    return _python_literal(data) if isinstance(data, str) and data.startswith(_LITERAL_STARTS) else data


_LITERAL_STARTS = ("[{'", "{'")
_LONGEST_LITERAL = 200_000
_LITERAL = re.compile(
    r"""(?:[\[\]{}(),:\s]|'(?:[^'\\\n]|\\[\\'"abfnrtv]|\\x[0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\U[0-9a-fA-F]{8})*+'"""
    r"""|"(?:[^"\\\n]|\\[\\'"abfnrtv]|\\x[0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\U[0-9a-fA-F]{8})*+"|-?[0-9][0-9.e+-]*+"""
    r"""|None|True|False)*+"""
)


def _python_literal(text: str) -> Any:
    """What Python's repr() of maps and lists says (LiteLLM, old Traceloop); any other text stays text. Python's own reader
    is asked only for what is written in a literal's words, is not long and not deep: it may crash on hostile code."""
    if len(text) > _LONGEST_LITERAL or _nesting(text) > 50 or not _LITERAL.fullmatch(text):
        return text
    try:
        return orjson.loads(orjson.dumps(ast.literal_eval(text), option=orjson.OPT_NON_STR_KEYS))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def _nesting(text: str) -> int:
    """An upper bound: brackets inside strings count too."""
    depth = deepest = 0
    for bracket in re.findall(r"[\[\](){}]", text):
        depth += 1 if bracket in "[({" else -1
        deepest = max(deepest, depth)
    return deepest


_DEEPEST = 6
"""Envelopes around messages: {output: [{update: {messages: [[…]]}}]} has five."""


def _collect(request: Request, data: Any, role: str, depth: int) -> None:
    if data is None or data == "":
        return
    if isinstance(data, list):
        _collect_list(request, data, role, depth)
    elif not isinstance(data, dict):
        request.messages.extend(_prose(as_text(data), role))
    elif _is_message(data):
        request.messages.append(_message(data, role))
    elif depth == _DEEPEST or (key := _held(data, role)) is None:
        request.messages.append(_plain(role, _alone(data)))
    else:
        config = data.get("config", data.get("toolConfig"))  # Gemini, Bedrock
        for around in (data, config if isinstance(config, dict) else {}):
            system = next((around[name] for name in _SYSTEM if around.get(name)), None)
            if not request.system and system is not None:
                request.system.extend(read_system(system))
            if not request.tools and (tools := around.get("tools", around.get("functions"))):
                request.tools.extend(read_tools(tools))
        held = data[key]
        _collect(request, parsed(held) if key not in _PLAIN_TEXT else held, _ROLES_OF_HELD.get(key, role), depth + 1)


_SYSTEM = ("system", "instructions", "system_instruction", "systemInstruction", "system_instructions")

_HELD = ("messages", "choices", "generations", "candidates", "replies", "contents", "chat_messages")
"""Keys under which messages are; of a request, whatever stands beside them."""

_MAYBE_HELD = (
    "input",
    "output",
    "prompt",
    "prompts",
    "inputs",
    "outputs",
    "response",
    "update",
    "new_message",
    "kwargs",
)
"""The same, but any map may have such a key."""

_MAYBE_ANSWER = ("output", "outputs", "response", "update")
"""Those of them that have an answer; the others may be its data."""

_PLAIN_TEXT = ("prompt", "input", "output")
"""What is text under these keys is what was said, also if it reads like JSON."""

_ROLES_OF_HELD = {"choices": "assistant", "generations": "assistant", "candidates": "assistant", "replies": "assistant"}

_OF_REQUESTS = frozenset(
    "model system instructions tools config temperature stream max_tokens systemInstruction system_instruction "
    "previous_response_id max_output_tokens object".split()
)


_AROUND = frozenset(
    "id index object created created_at model usage usage_metadata finish_reason finishReason stop_reason stopReason "
    "raw_finish_reason stop_sequence logprobs response_metadata generation_info llm_output meta _meta cached "
    "service_tier system_fingerprint".split()
)
"""What emitters and providers put around an answer."""


def _held(data: dict[str, Any], role: str) -> str | None:
    """The key under which a map has its messages. A request may have any parameters beside them; an answer may be a map of
    somebody's own that has such a key: then it is said as a whole."""
    if role == "assistant":
        return _answer_held(data)
    for key in _HELD:
        if isinstance(held := data.get(key), list | dict) or _is_structure(held):
            return key
    for key in _MAYBE_HELD:
        held = data.get(key)
        if held is None or held == "" or held == []:
            continue
        if isinstance(held, list | dict) and (_has_messages(held) or len(data) == 1):
            return key
        if (
            key in _PLAIN_TEXT
            and (len(data) == 1 or not _OF_REQUESTS.isdisjoint(data))
            and isinstance(held, str | list)
        ):
            return key
        if key == "prompts" and isinstance(held, list):
            return key
    return "contents" if isinstance(data.get("contents"), str) else None


def _answer_held(data: dict[str, Any]) -> str | None:
    for key in (*_HELD, *_MAYBE_HELD):
        held = data.get(key)
        if not held:
            continue
        inner = parsed(held) if key in _HELD and _is_structure(held) else held
        if (key in _HELD or key in _MAYBE_ANSWER) and _has_messages(inner):
            return key
        said = isinstance(inner, list | dict) or key in _PLAIN_TEXT or key == "contents"
        if said and isinstance(inner, str | list | dict) and data.keys() - {key} <= _AROUND:
            return key
    return None


def _is_structure(value: Any) -> bool:
    return isinstance(value, str) and value[:1] in ("[", "{")


def _has_messages(data: Any) -> bool:
    if isinstance(data, list):
        first = data[0] if data else None
        first = first[0] if isinstance(first, list) and first else first
        return isinstance(first, dict) and (_is_message(first) or is_part(first) or _held_surely(first))
    return _is_message(data) or _held_surely(data)


def _held_surely(data: Any) -> bool:
    inner = data.get("update") if isinstance(data, dict) else None
    return any(isinstance(each, dict) and isinstance(each.get("messages"), list | dict) for each in (data, inner))


def _collect_list(request: Request, data: list[Any], role: str, depth: int) -> None:
    if depth < _DEEPEST and all(isinstance(item, list) for item in data):  # LangChain: a list a prompt
        for inner in data:
            _collect(request, inner, role, depth + 1)
        return
    items = [_structured(item) if isinstance(item, str) and item[:1] == "{" else item for item in data]
    if _told_by_events(items):
        # The whole exchange in one list: the answer is told apart by its event (pydantic-ai's and Logfire's `events`).
        answers = role == "assistant"
        items = [item for item in items if (item.get("event.name") == "gen_ai.choice") == answers]
    if any(_is_message(item) or _is_result(item) for item in items):
        request.messages.extend(_message(item, role) for item in items)
    elif depth < _DEEPEST and any(_held_surely(item) for item in items):
        for item in items:
            _collect(request, item, role, depth + 1)
    elif role != "assistant" and items and all(isinstance(item, str) for item in items):  # several prompts
        request.messages.extend(_plain(role, read_part(item)) for item in items)
    else:
        request.messages.append(_plain(role, [part for item in items for part in _alone(item)]))


def _alone(item: Any) -> list[Part]:
    """A part that no message is around. A map with keys of its own beside them is data, and is said as a whole."""
    parts = read_part(item)
    if not isinstance(item, dict) or parts == [item] or is_part(item) or not _OF_PARTS.isdisjoint(item):
        return parts
    return read_part(as_text(item))


_OF_PARTS = frozenset(("toolCallId", "block_type", "message_content"))
"""Keys that nothing but a part of a message has (AI SDK, LlamaIndex, OpenInference)."""


def _told_by_events(items: list[Any]) -> bool:
    return bool(items) and all(isinstance(item, dict) and isinstance(item.get("event.name"), str) for item in items)


def _is_result(item: Any) -> bool:
    return isinstance(item, dict) and item.get("type") in ("function_call_output", "custom_tool_call_output")


_PROSE = re.compile(r"^(system|developer|user|human|assistant|ai|model|tool|function): ?", re.MULTILINE)


def _prose(text: str, role: str) -> list[Message]:
    """Plain text, which may be several messages: `system: …\\nuser: …` (LlamaIndex, NAT, NeMo Relay)."""
    first = _PROSE.match(text)
    if first is None:
        return [_plain(role, read_part(text))]
    if role == "assistant":  # an answer is one message
        said = _ROLES.get(first[1], first[1])
        return [Message(role, read_part(text[first.end() :] if said == role else text))]
    found = list(_PROSE.finditer(text))
    ends = [match.start() - 1 for match in found[1:]] + [len(text)]
    return [
        _plain(_ROLES.get(match[1], match[1]), read_part(text[match.end() : end]))
        for match, end in zip(found, ends, strict=True)
    ]


# -------------------------------------------------------------------------------------------------------------- messages

_ROLES = {
    "model": "assistant", "ai": "assistant", "human": "user", "function": "tool", "thinking": "assistant",
    "choice": "assistant", "tool-call": "assistant", "tool-response": "user", "chatbot": "assistant",
} | {role: role for role in ("system", "developer", "user", "assistant", "tool")}  # fmt: skip
"""smolagents sends its tool-call and tool-response messages to the model as what the assistant and the user said."""

_ITEM_ROLES = {"function_call_output": "tool", "custom_tool_call_output": "tool"} | dict.fromkeys(
    ("function_call", "custom_tool_call", "reasoning", "output_text"), "assistant"
)
"""Items of the Responses API without a role of their own."""

_CLASS = re.compile(r"([A-Za-z]+?)(?:Message)?(?:Chunk)?")


def _role_named(value: Any) -> str:
    """The role that a name stands for: `human`, `USER`, `MessageRole.USER`; '' for none that is known."""
    if not isinstance(value, str) or len(value) > 64:
        return ""
    return _ROLES.get(value) or _ROLES.get(value.rpartition(".")[2].lower(), "")


def _role_of_class(value: Any) -> str:
    """`human`, `AIMessage`, `ToolMessageChunk`, AutoGen's `FunctionExecutionResultMessage`."""
    if not isinstance(value, str) or len(value) > 64:
        return ""
    if value.startswith("FunctionExecutionResult"):
        return "tool"
    match = _CLASS.fullmatch(value)
    return _ROLES.get(match[1].lower(), "") if match else ""


_CONTENT = ("parts", "contents", "blocks", "content", "tool_calls", "function_call", "reasoning_content", "message")


_OF_MESSAGE = _AROUND | frozenset(
    "type content _content contents parts blocks message delta text tool_calls tool_call_id function_call refusal reasoning "
    "reasoning_content thought audio annotations additional_kwargs invalid_tool_calls content_filter_results".split()
)
"""Keys of a message without a role, and of the envelopes around one. With others beside it, a `content` is data."""

_OF_SPEAKER = frozenset(("role", "_role", "name", "_name"))


def _is_message(data: Any) -> bool:
    if not isinstance(data, dict):
        return False
    if "role" in data or "_role" in data:  # '_role': Haystack 1
        if _role_named(data.get("role", data.get("_role"))):
            return True
        return any(key in data for key in _CONTENT) and data.keys() <= _OF_MESSAGE | _OF_SPEAKER
    kind = data.get("type")
    if isinstance(kind, str) and kind != "message":
        if kind == "constructor":
            return isinstance(data.get("kwargs"), dict) and "lc" in data
        if kind.endswith(("Message", "MessageChunk")):
            return "content" in data or "data" in data
        if "content" in data or isinstance(data.get("data"), dict):
            return _role_of_class(kind) != "" and not isinstance(data.get("function"), dict)
        return _is_said(data.get("message"))
    if isinstance(data.get("event.name"), str):
        return str(data["event.name"]).startswith("gen_ai.")
    message, delta, content = data.get("message"), data.get("delta"), data.get("content")
    if _is_said(message) or _is_said(delta):
        return True
    if isinstance(content, dict) and (isinstance(content.get("parts"), list) or _role_named(content.get("role"))):
        return True  # Gemini
    if any(isinstance(data.get(key), dict) and "text" in data[key] for key in _WRAPPED_TEXT):
        return len(data) == 1
    if not data.keys() <= _OF_MESSAGE:
        return False
    if isinstance(message, str):
        return len(data) == 1 or "finish_reason" in data or "index" in data
    return (
        "content" in data
        or isinstance(message, dict)
        or isinstance(delta, dict)
        or any(isinstance(data.get(key), list) for key in ("parts", "blocks", "tool_calls"))
        or ("text" in data and ("finish_reason" in data or "generation_info" in data))
    )


def _is_said(inner: Any) -> bool:
    """Whether a map plainly is a message that an envelope is around."""
    if not isinstance(inner, dict) or not inner:
        return False
    return "role" in inner or "lc" in inner or _role_of_class(inner.get("type")) != "" or inner.keys() <= _OF_MESSAGE


_WRAPPED_TEXT = ("prompt", "completion", "embedding")
"""OpenInference's llm.prompts, llm.choices, embedding.embeddings: {prompt: {text}}."""


def _inside(data: dict[str, Any]) -> dict[str, Any] | None:
    """The message inside its envelope."""
    if data.get("type") == "constructor" and isinstance(data.get("kwargs"), dict):  # LangChain's serialisation
        identity = data.get("id")
        kwargs: dict[str, Any] = data["kwargs"]
        return (
            kwargs
            if "type" in kwargs or not (isinstance(identity, list) and identity)
            else {"type": identity[-1], **kwargs}
        )
    if "parts" in data:
        return None
    content = data.get("content")
    if isinstance(content, dict) and isinstance(content.get("parts"), list):  # Gemini
        return content
    if content is not None or "tool_calls" in data:
        return None
    for key in ("message", "delta"):
        if isinstance(inner := data.get(key), dict):
            return inner
    if isinstance(inner := data.get("data"), dict) and _role_of_class(data.get("type")):
        return inner
    inner = next(iter(data.values())) if len(data) == 1 and next(iter(data)) in _WRAPPED_TEXT else None
    return inner if isinstance(inner, dict) else None


_OWN = frozenset(("role", "parts", "name", "finish_reason", "raw_finish_reason"))


def _plain(role: str, parts: list[Part]) -> Message:
    """What has no message around it."""
    message = Message(role, parts)
    if role == "tool" and parts:
        _as_result(message, {})
    return message


def _message(data: Any, role: str) -> Message:
    if not isinstance(data, dict):
        return _plain(role, read_part(data))
    if data.keys() <= _OWN and data.get("role") in ("user", "assistant") and isinstance(data.get("parts"), list):
        # As the conventions write it: the most frequent shape is the fastest to read.
        message = Message(data["role"], [part for item in data["parts"] for part in read_part(item)])
        message.name = name if isinstance(name := data.get("name"), str) else ""
        if "finish_reason" in data:
            _set_finish(message, [data])
        return message
    envelopes = [data]
    while len(envelopes) < 5 and (inner := _inside(envelopes[-1])) is not None:
        envelopes.append(inner)
    data = envelopes[-1]
    message = Message(_role(envelopes, role))
    if "role" not in data and isinstance(kind := data.get("type"), str) and kind in _ITEM_ROLES:
        return _plain(message.role, read_part(data))
    message.parts = _first_reasoning(data) + _content(data)
    if any(each.get("role") == "thinking" for each in envelopes):  # Traceloop 0.45
        message.parts = [part | {"type": "reasoning"} if part.get("type") == "text" else part for part in message.parts]
    if isinstance(refusal := data.get("refusal"), str):
        message.parts += read_part(refusal)
    if len(envelopes) > 1 and isinstance(beside := envelopes[0].get("function"), list):  # OpenInference on AutoGen
        message.parts += [part for item in beside for part in read_part(parsed(item))]
    _add_calls(message, data)
    if message.role == "tool":
        _as_result(message, data)
    elif isinstance(name := data.get("name", data.get("_name")), str):
        message.name = name
    _set_finish(message, envelopes)
    return message


def _role(envelopes: list[dict[str, Any]], default: str) -> str:
    for data in reversed(envelopes):
        said = data.get("role", data.get("_role"))
        if found := _role_named(said):
            return found
        if isinstance(said, str) and said:
            return said
        kind = data.get("type")
        if found := _role_of_class(kind) or (_ITEM_ROLES.get(kind, "") if isinstance(kind, str) else ""):
            return found
        event = data.get("event.name")
        if isinstance(event, str) and (found := _role_named(event.removeprefix("gen_ai.").removesuffix(".message"))):
            return found
        if isinstance(kind, str) and kind.endswith("Message") and isinstance(data.get("source"), str):  # AutoGen
            return "user" if data["source"] == "user" else "assistant"
    return default


def _content(data: dict[str, Any]) -> list[Part]:
    """What was said: `contents` (OpenInference), `parts`, `blocks` (LlamaIndex), `content`, `_content` (Haystack 1), a flat
    choice's `message`, a completion's `text`."""
    if isinstance(contents := data.get("contents"), list) and contents:
        parts = [part for item in contents for part in read_part(item)]
        text = data.get("content")
        said = "".join(as_text(part.get("content")) for part in parts if part.get("type") == "text")
        return parts if not isinstance(text, str) or text == said else parts + read_part(text)
    keys = ("parts", "blocks", "content", "_content", "message", "text", "")  # '': flattened.py
    content = next((data[key] for key in keys if data.get(key) is not None), None)
    if isinstance(content, str) and content[:2] == "[{":  # Traceloop, Strands: blocks as JSON text
        blocks = parsed(content)
        content = blocks if isinstance(blocks, list) and all(map(is_part, blocks)) else content
    return [part for item in (content if isinstance(content, list) else [content]) for part in read_part(item)]


def _first_reasoning(data: dict[str, Any]) -> list[Part]:
    """Reasoning that stands beside the content: DeepSeek and LiteLLM, OpenRouter, AutoGen."""
    said = next((data[key] for key in ("reasoning_content", "reasoning", "thought") if data.get(key)), None)
    return [{"type": "reasoning", "content": said}] if isinstance(said, str) else []


def _add_calls(message: Message, data: dict[str, Any]) -> None:
    """Calls that stand beside the content. Some say them twice: in the content and beside it."""
    extra = data.get("additional_kwargs")  # LangChain, LlamaIndex
    for around in (data, extra if isinstance(extra, dict) else {}):
        calls = parsed(around.get("tool_calls"))
        found = [part for call in (calls if isinstance(calls, list) else []) for part in _call(call)]
        if isinstance(around.get("function_call"), dict):
            found += read_part({"function_call": around["function_call"]})
        known = {_identity(part) for part in message.parts if part.get("type") == "tool_call"}
        message.parts += [part for part in found if part.get("type") != "tool_call" or _identity(part) not in known]


def _call(call: Any) -> list[Part]:
    """An entry of `tool_calls`; flattened ones have no type: {id, name, arguments}."""
    if isinstance(call, dict) and "type" not in call and isinstance(call.get("name"), str):
        return [call_part(call.get("id"), call["name"], call.get("arguments", call.get("args", call.get("input"))))]
    return read_part(call)


def _identity(part: Part) -> Any:
    return part.get("id") or (part.get("name"), as_text(part.get("arguments")))


def _as_result(message: Message, data: dict[str, Any]) -> None:
    """A message of a tool is its result, whatever its content is."""
    if any(part.get("type") == "tool_call_response" for part in message.parts):
        return
    extra = data.get("additional_kwargs")
    identity = data.get("tool_call_id") or (extra.get("tool_call_id") if isinstance(extra, dict) else None)
    identity = identity or data.get("id")
    if not message.parts and not identity:
        return
    only_text = all(part.get("type") == "text" for part in message.parts)
    response: Any = "".join(part["content"] for part in message.parts) if only_text else message.parts
    if isinstance(data.get("content"), dict):  # a structured log body
        response = data["content"]
    elif not message.parts and data.get("content") is None:
        response = None
    failed = data.get("is_error") is True or data.get("status") == "error"  # LangChain: status
    message.parts = [response_part(identity, response, data.get("name"), failed)]


# --------------------------------------------------------------------------------------------------------- finish reasons

_FINISH = {
    sent: meant
    for meant, words in {
        "stop": "stop end_turn stop_sequence",
        "tool_call": "tool_call tool_calls tool_use function_call function_calls",
        "length": "length max_tokens max_output_tokens",
        "content_filter": "content_filter safety refusal recitation blocklist prohibited_content guardrail_intervened",
        "error": "error",
    }.items()
    for sent in words.split()
}


def finish_reason(value: Any) -> str:
    """A finish reason in the conventions' words: stop, tool_call, length, content_filter, error. Others as they were sent, ''
    for none. `FinishReason.STOP`, `[STOP]`, `["stop"]` and `tool-calls` are understood."""
    if isinstance(value, list):
        value = value[0] if value else ""
    if not isinstance(value, str):
        return ""
    if len(value) > 64:
        return value
    word = value.strip(' []"').rpartition(".")[2].lower().replace("-", "_")
    return _FINISH.get(word, value if word else "")


_FINISH_KEYS = ("finish_reason", "stop_reason", "finishReason", "stopReason")


def _set_finish(message: Message, envelopes: list[dict[str, Any]]) -> None:
    for data in envelopes:
        for around in (data, *(data[key] for key in _METADATA if isinstance(data.get(key), dict))):
            for key in _FINISH_KEYS:
                if key in around and (meant := finish_reason(around[key])):
                    raw = data.get("raw_finish_reason", around[key])
                    message.finish_reason = meant
                    message.raw_finish_reason = raw if isinstance(raw, str) and raw != meant else ""
                    return


_METADATA = ("response_metadata", "generation_info", "meta", "_meta")
"""LangChain, Haystack."""


# ----------------------------------------------------------------------------------------------------------------- tools


def _tool(tool: Any) -> Any:
    while True:
        if isinstance(tool, str):
            data = _structured(tool)
            if not isinstance(data, dict):
                return tool
            tool = data
        if not isinstance(tool, dict):
            return tool
        inner = tool.get("tool", tool)  # OpenInference: {tool: {json_schema}}
        schema = inner.get("json_schema") if isinstance(inner, dict) else None
        if schema is not None and inner.keys() == {"json_schema"}:
            tool = schema
        elif isinstance(tool.get("data"), dict) and "name" in tool["data"]:  # Haystack: {type, data: {name, …}}
            tool = tool["data"]
        else:
            break
    texts = {key: parsed(tool[key]) for key in ("parameters", "input_schema") if isinstance(tool.get(key), str)}
    return {**tool, **{key: schema for key, schema in texts.items() if isinstance(schema, dict)}}
