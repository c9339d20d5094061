"""The model stub with the doors of other providers, for real client libraries: what they ask in OpenAI's Responses API,
Anthropic's Messages or Gemini's generateContent becomes a chat completion, and its answer theirs.

Remembers every exchange: what was asked in the caller's own words, and what the answer billed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from otel_blackboard.demo.model_stub import (
    REJECTED,
    Answer,
    ChatRequest,
    Json,
    ModelStub,
    Refusal,
    Reply,
    ToolRequest,
    _Handler,
    stream_chunks,
)
from tests.recordings import FINAL

GEMINI_REJECTED = "gemini-rejected"
"""REJECTED under a name that Google's libraries take for one of theirs."""


def weather_script(request: ChatRequest) -> Reply:
    """One call of get_weather, then the answer: by the tool that a framework wants it by, else as text."""
    offered = {tool["name"] for tool in request.tools}
    heard = request.tool_calls() or "Observation:" in request.text_of("user")  # smolagents tells it as text
    if "get_weather" in offered and not heard:
        return Answer(tools=(ToolRequest("get_weather", '{"city": "Paris"}'),))
    if "final_answer" in offered:
        return Answer(tools=(ToolRequest("final_answer", json.dumps({"answer": FINAL})),))
    return Answer(FINAL)


@dataclass(frozen=True)
class Exchange:
    model: str
    body: Json
    """As the client sent it."""
    usage: tuple[int, int] | None
    """Input (cached included) and output tokens of the answer; None = refused."""
    said: tuple[str, Any] | None = None
    """The answer: ('assistant', text) or ('call', (tool, arguments)), as tests/recordings.py puts it."""


class ModelApis(ModelStub):
    def __init__(self) -> None:
        super().__init__(weather_script)
        self.exchanges: list[Exchange] = []
        self.responses: dict[str, list[Json]] = {}
        """Messages up to and with a response, by its id: for the Responses API, whose client may send only what is new."""
        self._server.RequestHandlerClass = _Doors

    def exchange(self, body: Json, chat: Json) -> Json | Refusal:
        """The completion of `chat`, which says what `body` says."""
        answer = self.answer(json.dumps(chat).encode())
        if isinstance(answer, Refusal):
            self.exchanges.append(Exchange(chat["model"], body, None))
            return answer
        completion = answer[1]
        usage, (text, calls) = completion["usage"], _said(completion)
        said = ("call", calls[0][1:]) if calls else ("assistant", text)
        self.exchanges.append(Exchange(chat["model"], body, (usage["prompt_tokens"], usage["completion_tokens"]), said))
        return completion


class _Doors(_Handler):
    def do_POST(self) -> None:
        path = self.path.split("?")[0]
        body = json.loads(self._body())
        stub: ModelApis = self.server.stub  # type: ignore[assignment]
        if path.endswith("/chat/completions"):
            chat, answer, events = body, _same, _chat_events
        elif path.endswith("/responses"):
            chat, answer, events = _from_responses(body, stub.responses), _to_response, _response_events
        elif path.endswith("/messages"):
            chat, answer, events = _from_anthropic(body), _to_anthropic, _anthropic_events
        elif "enerateContent" in path:
            model, _, verb = path.rpartition("/")[2].partition(":")
            body |= {"stream": verb.startswith("stream")}
            chat, answer, events = (
                _from_gemini(body, REJECTED if model == GEMINI_REJECTED else model),
                _to_gemini,
                _gemini_events,
            )
        else:
            self._send_refusal(Refusal(404, f"Invalid URL (POST {self.path})"))
            return
        completion = stub.exchange(body, chat)
        if isinstance(completion, Refusal):
            self._send_refusal(completion)
            return
        if answer is _to_response:
            said = completion["choices"][0]["message"]
            stub.responses[completion["id"].replace("chatcmpl-", "resp_")] = [*chat["messages"], said]
        if body.get("stream"):
            self._send_stream(events(completion, body))
        else:
            self._send_json(200, answer(completion, body))

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        chunks = []
        while size := int(self.rfile.readline(), 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def _send_stream(self, events: Iterator[str]) -> None:
        self._start(200, {"Content-Type": "text/event-stream; charset=utf-8", "Connection": "close"})
        for event in events:
            self.wfile.write(f"{event}\n\n".encode())
        self.close_connection = True


def _event(value: Json, name: str = "") -> str:
    return (f"event: {name}\n" if name else "") + "data: " + json.dumps(value)


def _texts(parts: Any) -> str:
    return parts if isinstance(parts, str) else "".join(part.get("text") or "" for part in parts or [])


def _functions(tools: list[Json], schema: str) -> list[Json]:
    return [
        {"type": "function", "function": {"name": tool["name"], "parameters": tool.get(schema)}}
        for tool in tools
        if "name" in tool
    ]


def _chat(model: str, system: str, messages: list[Json], tools: list[Json]) -> Json:
    return {
        "model": model,
        "messages": [*([{"role": "system", "content": system}] if system else []), *messages],
        "tools": tools,
    }


def _asked(id: str, name: str, arguments: str) -> Json:
    call = {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _answered(id: str, content: str) -> Json:
    return {"role": "tool", "tool_call_id": id, "content": content}


def _said(completion: Json) -> tuple[str, list[tuple[str, str, Json]]]:
    """Text, and (id, name, arguments) of the calls of a completion."""
    message = completion["choices"][0]["message"]
    calls = [(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls") or []]
    return message["content"] or "", [(id, name, json.loads(arguments)) for id, name, arguments in calls]


# ------------------------------------------------------------------------------------------------------ chat completions


def _same(completion: Json, body: Json) -> Json:
    return completion


def _chat_events(completion: Json, body: Json) -> Iterator[str]:
    wants_usage = bool((body.get("stream_options") or {}).get("include_usage"))
    yield from map(_event, stream_chunks(completion, wants_usage))
    yield "data: [DONE]"


# ------------------------------------------------------------------------------------------------------------- Responses


def _from_responses(body: Json, responses: dict[str, list[Json]]) -> Json:
    given = body["input"]
    messages = [m for m in responses.get(body.get("previous_response_id") or "", []) if m["role"] != "system"]
    for item in [{"role": "user", "content": given}] if isinstance(given, str) else given:
        if item.get("type") == "function_call":
            messages.append(_asked(item["call_id"], item["name"], item["arguments"]))
        elif item.get("type") == "function_call_output":
            messages.append(_answered(item["call_id"], _texts(item["output"])))
        elif "role" in item:
            messages.append({"role": item["role"], "content": _texts(item["content"])})
    tools = _functions(body.get("tools") or [], "parameters")
    return _chat(body["model"], body.get("instructions") or "", messages, tools)


def _to_response(completion: Json, body: Json) -> Json:
    text, calls = _said(completion)
    id, usage = completion["id"].removeprefix("chatcmpl-"), completion["usage"]
    said = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    message = {"type": "message", "id": f"msg_{id}", "role": "assistant", "status": "completed", "content": [said]}
    output = [message] if text else []
    output += [
        {
            "type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": name,
            "arguments": json.dumps(arguments), "status": "completed",
        }
        for call_id, name, arguments in calls
    ]  # fmt: skip
    return {
        "id": f"resp_{id}", "object": "response", "created_at": completion["created"], "status": "completed",
        "model": completion["model"], "output": output, "parallel_tool_calls": True, "tool_choice": "auto",
        "tools": body.get("tools") or [], "instructions": body.get("instructions"), "error": None,
        "incomplete_details": None, "metadata": {}, "temperature": 1.0, "top_p": 1.0, "service_tier": "default",
        "usage": {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": usage["prompt_tokens_details"]["cached_tokens"]},
            "output_tokens": usage["completion_tokens"], "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage["total_tokens"],
        },
    }  # fmt: skip


def _response_events(completion: Json, body: Json) -> Iterator[str]:
    response, number = _to_response(completion, body), iter(range(1000))

    def event(kind: str, **more: Any) -> str:
        return _event({"type": kind, "sequence_number": next(number), **more}, kind)

    yield event("response.created", response=response | {"status": "in_progress", "output": [], "usage": None})
    for index, item in enumerate(response["output"]):
        place: Json = {"output_index": index, "item_id": item["id"]}
        if item["type"] == "message":
            (part,) = item["content"]
            begun, empty = item | {"status": "in_progress", "content": []}, part | {"text": ""}
            yield event("response.output_item.added", output_index=index, item=begun)
            yield event("response.content_part.added", **place, content_index=0, part=empty)
            for piece in part["text"].partition(" "):
                yield event("response.output_text.delta", **place, content_index=0, delta=piece, logprobs=[])
            yield event("response.output_text.done", **place, content_index=0, text=part["text"], logprobs=[])
            yield event("response.content_part.done", **place, content_index=0, part=part)
        else:
            begun = item | {"status": "in_progress", "arguments": ""}
            yield event("response.output_item.added", output_index=index, item=begun)
            yield event("response.function_call_arguments.delta", **place, delta=item["arguments"])
            yield event("response.function_call_arguments.done", **place, arguments=item["arguments"])
        yield event("response.output_item.done", output_index=index, item=item)
    yield event("response.completed", response=response)


# ------------------------------------------------------------------------------------------------------------- Anthropic


def _from_anthropic(body: Json) -> Json:
    messages = []
    for message in body["messages"]:
        blocks = message["content"]
        for block in [{"type": "text", "text": blocks}] if isinstance(blocks, str) else blocks:
            if block["type"] == "tool_use":
                messages.append(_asked(block["id"], block["name"], json.dumps(block["input"])))
            elif block["type"] == "tool_result":
                messages.append(_answered(block["tool_use_id"], _texts(block.get("content"))))
            elif block["type"] == "text":
                messages.append({"role": message["role"], "content": block["text"]})
    tools = _functions(body.get("tools") or [], "input_schema")
    return _chat(body["model"], _texts(body.get("system")), messages, tools)


def _to_anthropic(completion: Json, body: Json) -> Json:
    text, calls = _said(completion)
    usage = completion["usage"]
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    content: list[Json] = [{"type": "text", "text": text}] if text else []
    content += [{"type": "tool_use", "id": id, "name": name, "input": arguments} for id, name, arguments in calls]
    return {
        "id": completion["id"].replace("chatcmpl-", "msg_"), "type": "message", "role": "assistant",
        "model": completion["model"], "content": content, "stop_reason": "tool_use" if calls else "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": usage["prompt_tokens"] - cached, "cache_read_input_tokens": cached,
            "cache_creation_input_tokens": 0, "output_tokens": usage["completion_tokens"],
        },
    }  # fmt: skip


def _anthropic_events(completion: Json, body: Json) -> Iterator[str]:
    message = _to_anthropic(completion, body)

    def event(kind: str, **more: Any) -> str:
        return _event({"type": kind, **more}, kind)

    usage = message["usage"] | {"output_tokens": 1}
    yield event("message_start", message=message | {"content": [], "stop_reason": None, "usage": usage})
    for index, block in enumerate(message["content"]):
        if block["type"] == "text":
            yield event("content_block_start", index=index, content_block={"type": "text", "text": ""})
            for piece in block["text"].partition(" "):
                yield event("content_block_delta", index=index, delta={"type": "text_delta", "text": piece})
        else:
            given = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            yield event("content_block_start", index=index, content_block=block | {"input": {}})
            yield event("content_block_delta", index=index, delta=given)
        yield event("content_block_stop", index=index)
    ended = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield event("message_delta", delta=ended, usage={"output_tokens": message["usage"]["output_tokens"]})
    yield event("message_stop")


# ---------------------------------------------------------------------------------------------------------------- Gemini


def _from_gemini(body: Json, model: str) -> Json:
    messages: list[Json] = []
    for content in body["contents"]:
        for part in content["parts"]:
            if call := part.get("functionCall"):
                messages.append(_asked(call.get("id") or call["name"], call["name"], json.dumps(call["args"])))
            elif result := part.get("functionResponse"):
                messages.append(_answered(result.get("id") or result["name"], json.dumps(result["response"])))
            else:
                messages.append({"role": "user", "content": part.get("text")})
    declared = [function for tool in body.get("tools") or [] for function in tool.get("functionDeclarations") or []]
    system = _texts((body.get("systemInstruction") or {}).get("parts"))
    return _chat(model, system, messages, _functions(declared, "parameters"))


def _to_gemini(completion: Json, body: Json) -> Json:
    text, calls = _said(completion)
    usage = completion["usage"]
    parts: list[Json] = [{"text": text}] if text else []
    parts += [{"functionCall": {"id": id, "name": name, "args": arguments}} for id, name, arguments in calls]
    return {
        "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {
            "promptTokenCount": usage["prompt_tokens"], "candidatesTokenCount": usage["completion_tokens"],
            "totalTokenCount": usage["total_tokens"],
            "cachedContentTokenCount": usage["prompt_tokens_details"]["cached_tokens"],
        },
        "modelVersion": completion["model"], "responseId": completion["id"],
    }  # fmt: skip


def _gemini_events(completion: Json, body: Json) -> Iterator[str]:
    yield _event(_to_gemini(completion, body))
