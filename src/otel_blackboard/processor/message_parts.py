"""Parts of chat messages in the shapes that instrumentations send (dialects.md A), read into those of OpenTelemetry's GenAI
conventions: `{type: text, content}`, `{type: reasoning, content}`, `{type: tool_call, id, name, arguments}`,
`{type: tool_call_response, id, response, is_error?}`, `{type: blob, modality, mime_type, content}`, `{type: uri, uri}`,
`{type: file, file_id}`. A part that is not understood stays as it came. Nothing here raises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

Part = dict[str, Any]
Read = Callable[[Part], list[Part] | None]
"""None = not the shape that it seemed to be."""


def read_part(part: Any) -> list[Part]:
    """One part of a message; what says nothing (an empty text) is no part."""
    if not isinstance(part, dict):
        return _texts(part)
    kind = part.get("type") or part.get("block_type")  # LlamaIndex: block_type
    if kind == "text" and len(part) == 2 and (said := part.get("content")).__class__ is str:
        return [part] if said else []
    if isinstance(kind, str) and (read := _BY_TYPE.get(kind)) is not None and (found := read(part)) is not None:
        return found
    for key, read in _BY_KEY:
        if key in part and (found := read(part)) is not None:
            return found
    return [part]


def is_part(value: Any) -> bool:
    """Whether a map plainly is a part of a message."""
    if not isinstance(value, dict):
        return False
    kind = value.get("type")
    return kind in _BY_TYPE if isinstance(kind, str) else bool(value) and value.keys() <= _BARE_KEYS


def as_text(value: Any) -> str:
    """Text as it is, the texts of text parts put together, anything else as JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, list) and value and all(isinstance(p, dict) and isinstance(p.get("text"), str) for p in value):
        return "".join(part["text"] for part in value)
    return _json(value)


def call_part(identity: Any, name: Any, arguments: Any) -> Part:
    """`arguments` stay as they were sent: a map, or JSON text."""
    part: Part = {"type": "tool_call", "id": _id(identity), "name": name if isinstance(name, str) else as_text(name)}
    if arguments is not None and arguments != "":
        part["arguments"] = arguments
    return part


def response_part(identity: Any, response: Any, name: Any = None, failed: bool = False) -> Part:
    part: Part = {"type": "tool_call_response", "id": _id(identity), "response": response}
    if isinstance(name, str) and name:
        part["name"] = name
    if failed:  # the conventions allow further properties, and have no word of their own for it
        part["is_error"] = True
    return part


def _id(value: Any) -> str | None:
    return value if isinstance(value, str) and value else str(value) if isinstance(value, int) else None


def _json(value: Any) -> str:
    try:
        return orjson.dumps(value, default=repr).decode()
    except (TypeError, RecursionError):  # nested deeper than it writes, though it read it
        return "[nested too deeply]"


# ---------------------------------------------------------------------------------------------------- text and reasoning


def _texts(value: Any, kind: str = "text") -> list[Part]:
    text = as_text(value)
    return [{"type": kind, "content": text}] if text else []


def _text(part: Part) -> list[Part] | None:
    said = part.get("content", part.get("text"))
    if isinstance(said, dict):  # OpenAI Assistants: {value, annotations}
        said = said.get("value", said)
    return _texts(said, "reasoning" if part.get("thought") is True else "text")  # Gemini marks its thoughts so


def _reasoning(part: Part) -> list[Part] | None:
    """Anthropic `thinking`, the conventions' and Responses' `reasoning` (a summary, or nothing that may be read)."""
    for key in ("content", "thinking", "text", "reasoning", "summary"):
        if said := part.get(key):
            return _texts(said, "reasoning")
    return [] if part.keys() <= {"type", "content", "thinking", "text", "signature"} else None


def _haystack_reasoning(part: Part) -> list[Part] | None:
    said = part["reasoning"]
    return _texts(said.get("reasoning_text"), "reasoning") if isinstance(said, dict) else None


def _bedrock_reasoning(part: Part) -> list[Part] | None:
    said = part["reasoningContent"]
    said = said.get("reasoningText") if isinstance(said, dict) else None
    return _texts(said.get("text"), "reasoning") if isinstance(said, dict) else None


def _refusal(part: Part) -> list[Part] | None:
    return _texts(part.get("refusal"))


def _bare_text(part: Part) -> list[Part] | None:
    return _text(part) if isinstance(part["text"], str) and "type" not in part else None


# -------------------------------------------------------------------------------------------------------- calls of tools


def _function(part: Part) -> list[Part] | None:
    """OpenAI chat: {id, type: function, function: {name, arguments}}."""
    function = part.get("function")
    if not isinstance(function, dict):
        return None
    return [call_part(part.get("id"), function.get("name"), function.get("arguments"))]


def _call(*arguments: str) -> Read:
    def read(part: Part) -> list[Part] | None:
        if isinstance(part.get("function"), dict):
            return _function(part)
        identity = next((part[key] for key in ("call_id", "toolCallId", "tool_call_id", "id") if part.get(key)), None)
        name = next((part[key] for key in ("name", "toolName", "tool_name") if part.get(key)), None)
        said = next((part[key] for key in arguments if part.get(key) is not None), None)
        return [call_part(identity, name, said)]

    return read


_any_call = _call("arguments", "args", "input", "tool_kwargs")


def _inner_call(part: Part) -> list[Part] | None:
    """OpenInference `{tool_call: {id, function: {name, arguments}}}`, Haystack `{tool_call: {tool_name, arguments, id}}`,
    Gemini `{functionCall: {id, name, args}}`, Bedrock `{toolUse: {toolUseId, name, input}}`, OpenAI's old
    `{function_call: {name, arguments}}`."""
    for key in ("tool_call", "functionCall", "function_call", "toolUse"):
        if isinstance(call := part.get(key), dict):
            return _any_call(call if key != "toolUse" else {**call, "id": call.get("toolUseId")})
    return None


def _named_call(part: Part) -> list[Part] | None:
    """AutoGen `{id, name, arguments}`; AI SDK 4 to 6 `{toolCallId, toolName, args | input}`, or the same with a result."""
    if "toolCallId" in part:
        if "result" in part or "output" in part:
            return _result(part)
        return _any_call(part) if "toolName" in part else None
    return _any_call(part) if isinstance(part.get("name"), str) and part.keys() <= {"id", "name", "arguments"} else None


def _result(part: Part) -> list[Part] | None:
    identity = next((part[key] for key in _RESULT_IDS if part.get(key)), None)
    for key in ("response", "result", "content", "output"):
        if key in part:
            name = part.get("name", part.get("toolName"))
            return [response_part(identity, _plain_result(part[key], part.get("type")), name, _failed(part))]
    return [response_part(identity, None, part.get("name"), _failed(part))] if identity else None


def _failed(part: Part) -> bool:
    """Anthropic and AutoGen `is_error: true`, AI SDK ≥ 5 `output: {type: error-text | error-json, value}`."""
    output = part.get("output") if part.get("type") == "tool-result" else None
    kind = output.get("type") if isinstance(output, dict) else None
    return part.get("is_error") is True or (isinstance(kind, str) and kind.startswith("error-"))


_RESULT_IDS = ("tool_use_id", "call_id", "toolCallId", "tool_call_id", "id")


def _plain_result(value: Any, kind: Any) -> Any:
    """The conventions keep whatever a tool gave; providers wrap it: Anthropic and Responses in text parts, AI SDK ≥ 5 in
    `{type: json | text | error-text …, value}`."""
    if kind == "tool_call_response":
        return value
    if kind == "tool-result" and isinstance(value, dict) and "value" in value and isinstance(value.get("type"), str):
        value = value["value"]
    if isinstance(value, list) and value and all(isinstance(p, dict) and isinstance(p.get("text"), str) for p in value):
        return as_text(value)
    return value


def _bare_result(part: Part) -> list[Part] | None:
    """AutoGen's `{call_id, content, name, is_error}`."""
    return _result(part) if "type" not in part and "content" in part else None


def _haystack_result(part: Part) -> list[Part] | None:
    result = part["tool_call_result"]
    if not isinstance(result, dict):
        return None
    origin = result.get("origin")
    if not isinstance(origin, dict):
        origin = {}
    failed = result.get("error") is True
    return [response_part(origin.get("id"), result.get("result"), origin.get("tool_name"), failed)]


def _bedrock_result(part: Part) -> list[Part] | None:
    result = part["toolResult"]
    if not isinstance(result, dict):
        return None
    content = result.get("content")
    if (
        isinstance(content, list)
        and len(content) == 1
        and isinstance(content[0], dict)
        and content[0].keys() == {"json"}
    ):
        content = content[0]["json"]
    failed = result.get("status") == "error"
    return [response_part(result.get("toolUseId"), _plain_result(content, ""), result.get("name"), failed)]


def _gemini_result(part: Part) -> list[Part] | None:
    result = part.get("functionResponse", part.get("function_response"))
    if not isinstance(result, dict):
        return None
    return [response_part(result.get("id"), result.get("response"), result.get("name"))]


def _openinference(part: Part) -> list[Part] | None:
    """An entry of `message.contents`: {message_content: {type, text | image …}}; a call stands beside it."""
    inner = part["message_content"]
    if not isinstance(inner, dict):
        return None
    if inner.get("type") in ("tool_use", "tool_call") and (found := _inner_call(part)) is not None:
        return found
    return None if "message_content" in inner else read_part(inner)


# ----------------------------------------------------------------------------------------------------------------- media


def _link(address: Any, modality: str, mime_type: Any = None) -> list[Part] | None:
    """What an address says: a `data:` URL is the thing itself."""
    if not isinstance(address, str) or not address:
        return None
    if address.startswith("data:") and "," in address:
        head, _, data = address[5:].partition(",")
        mime, _, coding = head.partition(";")
        if coding.endswith("base64"):
            return [blob_part(modality, mime or mime_type, data)]
    return [_with_mime({"type": "uri", "modality": modality}, mime_type) | {"uri": address}]


def blob_part(modality: str, mime_type: Any, data: Any) -> Part:
    """`data` is base64."""
    return _with_mime({"type": "blob", "modality": modality}, mime_type) | {"content": data}


def _with_mime(part: Part, mime_type: Any) -> Part:
    if isinstance(mime_type, str) and mime_type:
        part["mime_type"] = mime_type
        if part["modality"] == "" or part["modality"] == "file":
            part["modality"] = _modality(mime_type)
    return part


def _modality(mime_type: str) -> str:
    kind = mime_type.partition("/")[0]
    return kind if kind in ("image", "audio", "video") else "document"


def _file(identity: Any, modality: str) -> list[Part] | None:
    return [{"type": "file", "modality": modality, "file_id": identity}] if isinstance(identity, str) else None


def _uri(part: Part) -> list[Part] | None:
    address = part.get("uri")
    if isinstance(address, str) and address.startswith("data:"):
        return _link(address, part["modality"] if isinstance(part.get("modality"), str) else "", part.get("mime_type"))
    return [part]


def _as_it_is(part: Part) -> list[Part] | None:
    return [part]


def _file_part(part: Part) -> list[Part] | None:
    return [part] if isinstance(part.get("file_id"), str) else _media("file")(part)


def _media(modality: str) -> Read:
    """Everything that providers and frameworks call an image, a file, a sound: base64, an address or an id, at the top or in
    one inner map."""

    def read(part: Part) -> list[Part] | None:
        for inner in (part, *(part[key] for key in _MEDIA_KEYS if isinstance(part.get(key), dict))):
            found = _media_of(inner, modality)
            if found is not None:
                return found
        return None

    return read


_MEDIA_KEYS = ("source", "image_url", "image", "input_audio", "file", "document", "video", "audio", "inline_data",
               "inlineData", "file_data", "fileData")  # fmt: skip


def _media_of(part: Part, modality: str, depth: int = 0) -> list[Part] | None:
    mime = next((part[key] for key in _MIMES if isinstance(part.get(key), str)), None)
    if mime is None and isinstance(part.get("format"), str):  # OpenAI's audio, Bedrock's pictures: png, wav
        mime = f"{modality if modality in ('image', 'audio', 'video') else 'application'}/{part['format']}"
    for key in ("file_id", "fileId"):
        if part.get(key):
            return _file(part[key], modality)
    for key in ("url", "uri", "image_url", "file_url", "file_uri", "fileUri"):
        if isinstance(part.get(key), str):
            return _link(part[key], modality, mime)
    if part.get("type") == "text" and isinstance(part.get("data"), str):  # a document of Anthropic's that is plain text
        return _texts(part["data"])
    for key in ("data", "base64", "base64_image", "bytes", "file_data", "content", "image"):
        data = part.get(key)
        if isinstance(data, str) and data:
            if data.startswith(("data:", "https://", "http://")):
                return _link(data, modality, mime)
            return [blob_part(modality, mime, data)]
    inner = part.get("image", part.get("source", part.get("s3Location")))
    if not isinstance(inner, dict) or depth == 2:
        return None
    # Bedrock: {format, source: {bytes | s3Location: {uri}}}; OpenInference: {image: {url}}
    return _media_of({**inner, "mime_type": mime} if mime is not None else inner, modality, depth + 1)


_MIMES = ("mime_type", "mimeType", "media_type", "mediaType", "image_mimetype")

_BY_TYPE: dict[str, Read] = (
    dict.fromkeys(("text", "output_text", "input_text", "summary_text"), _text)
    | dict.fromkeys(("reasoning", "thinking", "reasoning_text"), _reasoning)
    | {"refusal": _refusal, "function": _function}
    | dict.fromkeys(("tool_call", "function_call", "tool-call", "tool_use", "custom_tool_call"), _any_call)
    | dict.fromkeys(
        ("tool_call_response", "tool_result", "tool-result", "function_call_output", "custom_tool_call_output"), _result
    )
    | {"blob": _as_it_is, "uri": _uri}
    | dict.fromkeys(("image_url", "input_image", "image", "image-url"), _media("image"))
    | dict.fromkeys(("input_audio", "audio", "audio-url"), _media("audio"))
    | dict.fromkeys(("video", "video-url"), _media("video"))
    | dict.fromkeys(("document", "document-url"), _media("document"))
    | dict.fromkeys(("input_file", "binary", "media"), _media("file"))
    | {"file": _file_part}
)

_BY_KEY: tuple[tuple[str, Read], ...] = (
    ("function", _function),
    ("message_content", _openinference),
    ("tool_call", _inner_call),
    ("tool_call_result", _haystack_result),
    ("toolUse", _inner_call),
    ("toolResult", _bedrock_result),
    ("reasoningContent", _bedrock_reasoning),
    ("functionCall", _inner_call),
    ("function_call", _inner_call),
    ("functionResponse", _gemini_result),
    ("function_response", _gemini_result),
    ("inlineData", _media("file")),
    ("inline_data", _media("file")),
    ("fileData", _media("file")),
    ("file_data", _media("file")),
    ("toolCallId", _named_call),
    ("text", _bare_text),
    ("arguments", _named_call),
    ("call_id", _bare_result),
    ("image", _media("image")),
    ("document", _media("document")),
    ("video", _media("video")),
    ("reasoning", _haystack_reasoning),
)
"""Shapes without a type, the most telling first."""

_BARE_KEYS = frozenset(
    "text json toolUse toolResult reasoningContent image document video cachePoint guardContent functionCall function_call "
    "functionResponse function_response inlineData inline_data fileData file_data thought thoughtSignature "
    "thought_signature".split()
)
"""A map of these keys alone is a block of Bedrock or a part of Gemini."""
