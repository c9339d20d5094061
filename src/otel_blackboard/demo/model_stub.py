"""A model that needs no key: OpenAI chat completions over real HTTP on 127.0.0.1, from the standard library alone.

What it says follows from the conversation it is sent, so that a demo and a test always see the same run. Only ids are
random: response ids are compared across runs, and a stub that counted would repeat them in the next process.

    with ModelStub() as stub:
        run_agent(..., model_url=stub.url)
        stub.requests          # the exact bodies, in the order they came
"""

from __future__ import annotations

import json
import math
import re
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import takewhile
from types import TracebackType
from typing import Any, Self

Json = dict[str, Any]

MODEL = "gpt-4o-mini"
"""The model the demo asks for; a price list knows it."""
SNAPSHOTS = {MODEL: "gpt-4o-mini-2024-07-18"}
"""What a model answers as; others answer under the name they were asked by."""
RATE_LIMITED_ONCE = "rate-limited-once"
"""Model name: the first request is answered 429 with a Retry-After, later ones as usual."""
REJECTED = "rejected"
"""Model name: every request is answered 400."""

CHARACTERS_PER_TOKEN = 4
CACHE_BLOCK = 64
"""Cached tokens come in whole blocks (128 at OpenAI; half of it, as the demo's prompts are short)."""
CACHED_PROMPTS = 32
CHUNK_CHARACTERS = 12
"""Text of one streamed chunk."""


# --- What a script sees and says -------------------------------------------------------------------


@dataclass(frozen=True)
class ToolRequest:
    name: str
    arguments: str
    """JSON text, as a model writes it."""


@dataclass(frozen=True)
class Answer:
    text: str = ""
    tools: tuple[ToolRequest, ...] = ()


@dataclass(frozen=True)
class Refusal:
    """An error answer in OpenAI's shape. `then` is what the conversation gets instead once it was refused so."""

    status: int
    message: str
    type: str = "invalid_request_error"
    code: str | None = None
    param: str | None = None
    then: Answer | None = None


Reply = Answer | Refusal


class ChatRequest:
    """The body of one request with the views that scripts need."""

    def __init__(self, body: Json) -> None:
        self.body = body
        self.model: str = body["model"]
        self.messages: list[Json] = body["messages"]
        self.cache_key = str(body.get("prompt_cache_key") or "")
        self.tools: list[Json] = [t["function"] for t in body.get("tools") or [] if t.get("type") == "function"]

    def text_of(self, role: str) -> str:
        """The text of all messages of one role."""
        return "\n".join(message_text(message) for message in self.messages if message.get("role") == role)

    def tool_calls(self) -> list[Json]:
        """Every call the assistant has asked for so far: `{id, type, function: {name, arguments}}`."""
        return [call for message in self.messages for call in message.get("tool_calls") or []]

    def tool_results(self) -> list[tuple[str, str]]:
        """(tool name, result) of every call answered so far."""
        names = {call["id"]: call["function"]["name"] for call in self.tool_calls()}
        return [
            (names[message["tool_call_id"]], message_text(message))
            for message in self.messages
            if message.get("role") == "tool"
        ]

    def prompt(self) -> list[str]:
        """All that counts as input, in parts: tools, then each message. Grows at its end, as a cached prefix must."""
        parts = [self.body.get("tools") or [], *self.messages]
        return [json.dumps(part, ensure_ascii=False) for part in parts]


Script = Callable[[ChatRequest], Reply]


def message_text(message: Json) -> str:
    """The text of a message whose content is a string, a list of parts, or null."""
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def count_tokens(*texts: str) -> int:
    return math.ceil(sum(map(len, texts)) / CHARACTERS_PER_TOKEN)


def read_request(raw: bytes) -> ChatRequest | Refusal:
    """The request, or what the API says to one it cannot take."""
    try:
        body = json.loads(raw)
    except ValueError:
        return Refusal(400, "We could not parse the JSON body of your request.")
    if not isinstance(body, dict) or not isinstance(body.get("model"), str):
        return Refusal(400, "you must provide a model parameter")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(message, dict) for message in messages):
        return Refusal(
            400, "Missing required parameter: 'messages'.", code="missing_required_parameter", param="messages"
        )
    try:
        request = ChatRequest(body)
        asked = sorted(call["id"] for call in request.tool_calls() if call["function"]["name"])
        answered = sorted(message["tool_call_id"] for message in messages if message.get("role") == "tool")
    except (AttributeError, KeyError, TypeError):
        return Refusal(400, "Invalid value in 'messages' or 'tools'.", code="invalid_value")
    if asked != answered:
        return Refusal(400, "Each of 'tool_calls' must be answered by one tool message.", param="messages")
    if "reasoning_effort" in body and request.model in SNAPSHOTS:
        return Refusal(400, "Unrecognized request argument supplied: reasoning_effort", param="reasoning_effort")
    return request


# --- Scripts ---------------------------------------------------------------------------------------


def plain_script(request: ChatRequest) -> Reply:
    """For any conversation: one call of the first tool after a user message, then an answer that quotes."""
    last = request.messages[-1]
    if last.get("role") == "tool":
        return Answer(f"The tool says: {message_text(last)}")
    if request.tools and request.body.get("tool_choice") != "none":
        tool = request.tools[0]
        properties: Json = (tool.get("parameters") or {}).get("properties") or {}
        arguments = {name: _example(schema) for name, schema in properties.items()}
        return Answer(tools=(ToolRequest(tool["name"], json.dumps(arguments)),))
    return Answer(f"You say: {message_text(last)}")


def _example(schema: Json) -> Any:
    examples = {"integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}}
    return examples.get(str(schema.get("type")), "Brest")


MISSING = "MISSING:"
"""The word a writer's answer begins with when it cannot answer yet."""
RECALL_TOOL = "__query_blackboard"

_FIRST_LOOK: tuple[ToolRequest, ...] = (
    ToolRequest("tide_lookup", '{"port":"Brest","day":2}'),
    ToolRequest("fetch_page", '{"url":"https://harbour.example/brest/notices"}'),
)
_SECOND_LOOK: tuple[ToolRequest, ...] = (ToolRequest("fetch_page", '{"url":"https://harbour.example/brest"}'),)
_RECALL: tuple[ToolRequest, ...] = (
    ToolRequest(RECALL_TOOL, '{"query":"Brest marina gate open high water","top_k":3}'),
)
_WIND: tuple[ToolRequest, ...] = (
    ToolRequest("weather_report", '{"port":"Brest","day":2}'),
    ToolRequest("weather_report", '{"port":"Camaret","day":2}'),
)
_LEDGER_LINE = re.compile(r"^- (\w+)\((.*?)\)(?: \(failed\))? -> ", re.MULTILINE)


def harbour_script(request: ChatRequest) -> Reply:
    """The demo's two agents, told apart by their system prompts; any other conversation gets the plain script."""
    system = request.text_of("system")
    if "harbour researcher" in system:
        return _research(request, system)
    if "harbour writer" in system:
        return _write(request.text_of("user"))
    return plain_script(request)


def _research(request: ChatRequest, system: str) -> Reply:
    """Looks things up in rounds; leaves out what it has asked in this conversation or reads in its ledger.

    The second look is refused once: the rate limit that costs the first attempt of the pass.
    """
    rounds = [_FIRST_LOOK, _SECOND_LOOK]
    if "wind" in request.text_of("user"):
        rounds += [_RECALL, _WIND]
    offered = {tool["name"] for tool in request.tools}
    done = {_call_key(call["function"]["name"], call["function"]["arguments"]) for call in request.tool_calls()}
    done |= {_call_key(name, arguments) for name, arguments in _LEDGER_LINE.findall(system)}
    for wanted in rounds:
        calls = tuple(t for t in wanted if t.name in offered and _call_key(t.name, t.arguments) not in done)
        if calls:
            answer = Answer(tools=calls)
            return _rate_limit(request, then=answer) if wanted is _SECOND_LOOK else answer
    return Answer("\n".join(f"- {name}: {_gist(result)}" for name, result in request.tool_results()))


def _write(task: str) -> Reply:
    wind = re.findall(r"^- weather_report: (.+)$", task, re.MULTILINE)
    if not wind:
        return Answer(f"{MISSING} wind and sea state for day 2, at Brest and at Camaret.")
    water = re.search(r"high water \d\d:\d\d", task)
    gate = re.search(r"The marina gate[^.]*\.", task)
    reasons = [f"Plan on {water[0]}." if water else "", gate[0] if gate else "", *wind]
    return Answer(" ".join(["Yes, you can sail from Brest on day 2.", *filter(None, reasons)]))


def _rate_limit(request: ChatRequest, then: Answer | None) -> Refusal:
    needed = count_tokens(*request.prompt())
    return Refusal(
        429,
        f"Rate limit reached for {request.model} on tokens per min (TPM): Limit 200000, Used 199900, "
        f"Requested {needed}. Please try again later.",
        type="tokens",
        code="rate_limit_exceeded",
        then=then,
    )


def _call_key(name: str, arguments: str) -> tuple[str, str]:
    """What makes two calls the same: the tool, and the arguments whatever the order of their keys."""
    with suppress(ValueError):
        arguments = json.dumps(json.loads(arguments), sort_keys=True)
    return name, arguments


def _gist(result: str) -> str:
    """One line about a tool result: its own summary, the recalled sentence about the gate, or its first sentences."""
    with suppress(ValueError):
        value = json.loads(result)
        if isinstance(value, dict) and isinstance(value.get("summary"), str):
            return str(value["summary"])
        if isinstance(value, dict) and isinstance(value.get("results"), list):
            gate = re.search(r"The marina gate[^.]*\.", " ".join(str(r.get("content")) for r in value["results"]))
            return gate[0] if gate else f"{len(value['results'])} earlier results"
    text = " ".join(result.split())
    return text if len(text) <= 160 else text[:159] + "…"


# --- The server ------------------------------------------------------------------------------------


class ModelStub:
    """The server. Starts on a free port with the `with` statement or `start()`.

    `requests` holds every body posted to chat completions, refused ones included, in order of arrival.
    """

    def __init__(self, script: Script = harbour_script, *, retry_after: int = 1, port: int = 0) -> None:
        """retry_after: seconds that a 429 asks the caller to wait."""
        self.requests: list[bytes] = []
        self.retry_after = retry_after
        self._script = script
        self._lock = threading.Lock()
        self._refused: set[tuple[str, str, str | None]] = set()
        self._prompts: deque[list[str]] = deque(maxlen=CACHED_PROMPTS)
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.stub = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        """Base URL as OpenAI's clients take it."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def start(self) -> Self:
        self._thread.start()
        return self

    def stop(self) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def answer(self, raw: bytes) -> tuple[ChatRequest, Json] | Refusal:
        """Takes one request body and says what it gets: the request and its completion, or a refusal."""
        with self._lock:
            self.requests.append(raw)
            request = read_request(raw)
            if isinstance(request, Refusal):
                return request
            reply = self._decide(request)
            if isinstance(reply, Refusal):
                return reply
            return request, self._completion(request, reply)

    def _decide(self, request: ChatRequest) -> Reply:
        if request.model == REJECTED:
            return Refusal(400, "The request was rejected.", code="invalid_value", param="messages")
        reply = self._script(request)
        if request.model == RATE_LIMITED_ONCE and isinstance(reply, Answer):
            reply = _rate_limit(request, then=reply)
        if isinstance(reply, Refusal) and reply.then is not None:
            key = (request.cache_key, request.model, reply.code)
            if key in self._refused:
                return reply.then
            self._refused.add(key)
        return reply

    def _completion(self, request: ChatRequest, answer: Answer) -> Json:
        """A `chat.completion` object."""
        message: Json = {"role": "assistant", "content": answer.text or None, "refusal": None, "annotations": []}
        if answer.tools:
            message["tool_calls"] = [
                {
                    "id": f"call_{uuid.uuid4().hex[:24]}",
                    "type": "function",
                    "function": {"name": tool.name, "arguments": tool.arguments},
                }
                for tool in answer.tools
            ]
        return {
            "id": f"chatcmpl-{uuid.uuid4().hex[:29]}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": SNAPSHOTS.get(request.model, request.model),
            "choices": [
                {
                    "index": 0,
                    "message": message,
                    "logprobs": None,
                    "finish_reason": "tool_calls" if answer.tools else "stop",
                }
            ],
            "usage": self._usage(request, answer),
            "service_tier": "default",
            "system_fingerprint": "fp_harbour",
        }

    def _usage(self, request: ChatRequest, answer: Answer) -> Json:
        prompt = request.prompt()
        seen = max((_shared_characters(prompt, earlier) for earlier in self._prompts), default=0)
        self._prompts.append(prompt)
        cached = seen // CHARACTERS_PER_TOKEN // CACHE_BLOCK * CACHE_BLOCK
        prompt_tokens = count_tokens(*prompt)
        completion_tokens = count_tokens(answer.text, *(tool.name + tool.arguments for tool in answer.tools))
        return {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
            "prompt_tokens_details": {"cached_tokens": cached, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
        }


def _shared_characters(prompt: list[str], earlier: list[str]) -> int:
    """Length of the parts with which both begin."""
    return sum(len(part) for part, _ in takewhile(lambda pair: pair[0] == pair[1], zip(prompt, earlier, strict=False)))


def stream_chunks(completion: Json, include_usage: bool) -> Iterator[Json]:
    """A completion as the `chat.completion.chunk` objects of a stream; usage comes last, and only when asked for."""
    base = {key: completion[key] for key in ("id", "created", "model", "service_tier", "system_fingerprint")}
    base["object"] = "chat.completion.chunk"
    if include_usage:
        base["usage"] = None

    def chunk(delta: Json, finish_reason: str | None = None) -> Json:
        return {**base, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}]}

    choice = completion["choices"][0]
    message = choice["message"]
    text: str = message["content"] or ""
    yield chunk({"role": "assistant", "content": "" if text else None})
    for piece in _pieces(text):
        yield chunk({"content": piece})
    for index, call in enumerate(message.get("tool_calls") or []):
        yield chunk({"tool_calls": [{**call, "index": index, "function": {**call["function"], "arguments": ""}}]})
        for piece in _pieces(call["function"]["arguments"]):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, choice["finish_reason"])
    if include_usage:
        yield {**base, "choices": [], "usage": completion["usage"]}


def _pieces(text: str) -> Iterator[str]:
    return (text[start : start + CHUNK_CHARACTERS] for start in range(0, len(text), CHUNK_CHARACTERS))


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    stub: ModelStub


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body are two writes; with Nagle's algorithm the second would wait 40 ms for a delayed acknowledgement.
    disable_nagle_algorithm = True
    server: _Server

    def do_GET(self) -> None:
        if self.path.rstrip("/").endswith("/models"):
            models = [{"id": model, "object": "model", "created": 0, "owned_by": "harbour"} for model in SNAPSHOTS]
            self._send_json(200, {"object": "list", "data": models})
        else:
            self._send_refusal(Refusal(404, f"Invalid URL (GET {self.path})"))

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if not self.path.split("?")[0].endswith("/chat/completions"):
            self._send_refusal(Refusal(404, f"Invalid URL (POST {self.path})"))
            return
        answer = self.server.stub.answer(raw)
        if isinstance(answer, Refusal):
            self._send_refusal(answer)
            return
        request, completion = answer
        if request.body.get("stream"):
            options = request.body.get("stream_options") or {}
            self._send_events(stream_chunks(completion, bool(options.get("include_usage"))))
        else:
            self._send_json(200, completion)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet: the demo's output is the agent's."""

    def _send_refusal(self, refusal: Refusal) -> None:
        error = {"message": refusal.message, "type": refusal.type, "param": refusal.param, "code": refusal.code}
        headers = {"Retry-After": str(self.server.stub.retry_after)} if refusal.status == 429 else {}
        self._send_json(refusal.status, {"error": error}, headers)

    def _send_json(self, status: int, value: Json, headers: dict[str, str] | None = None) -> None:
        body = json.dumps(value, ensure_ascii=False).encode()
        self._start(status, {"Content-Type": "application/json", "Content-Length": str(len(body)), **(headers or {})})
        self.wfile.write(body)

    def _send_events(self, chunks: Iterator[Json]) -> None:
        """Server-sent events in HTTP chunks, one each. A caller that hangs up midway is no error."""
        self._start(200, {"Content-Type": "text/event-stream; charset=utf-8", "Transfer-Encoding": "chunked"})
        try:
            for event in (*(json.dumps(chunk, ensure_ascii=False) for chunk in chunks), "[DONE]"):
                data = f"data: {event}\n\n".encode()
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.write(b"0\r\n\r\n")
        except ConnectionError:
            self.close_connection = True

    def _start(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        self.send_header("x-request-id", f"req_{uuid.uuid4().hex}")
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
