"""The demo's agent: a tool loop over a chat-completions API, instrumented by hand with the OpenTelemetry SDK.

Two agents answer one question about a harbour, and things go wrong as they do in real runs:

    search   pass 1   attempt 1: two tools at once, one of them fails; then the model refuses (429), the attempt fails
                      attempt 2: the same again, to its end
    write    pass 1   the model rejects a parameter (400) and is asked again without it; something is missing
    search   pass 2   entered again: starts with the ledger of what it did and may recall earlier results in full
    write    pass 2   the answer

The service is asked for three things only: the ledger, a run token, and recall. The run goes on without any of them.
"""

from __future__ import annotations

import json
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPException
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode, format_trace_id

from otel_blackboard.demo.model_stub import MISSING, MODEL, RECALL_TOOL

Json = dict[str, Any]
Write = Callable[[str], None]

RUN_NAME = "Harbour passage"
QUESTION = "Can we sail from Brest on day 2?"
MAX_PASSES = 3
MAX_ATTEMPTS = 2
MAX_ITERATIONS = 8
LONGEST_WAIT = 5.0
"""Seconds a Retry-After is obeyed at most."""
SENT_BACK = ("role", "content", "tool_calls")
"""Fields of the model's message that belong into its next request."""


class DemoRun(NamedTuple):
    run_id: str
    trace_id: str
    answer: str


# --- Tools -----------------------------------------------------------------------------------------


class ToolError(Exception):
    """A tool call that failed; the text is what the model is told."""


class PageNotFound(ToolError):
    pass


@dataclass(frozen=True)
class Tool:
    """A function the model may call. `run` takes the arguments by name and gives the result as text."""

    name: str
    description: str
    parameters: Json
    run: Callable[..., str]
    tool_class: str = ""
    """`blackboard.tool.class`, where the tool is not an ordinary one."""


def _parameters(**properties: str) -> Json:
    """A JSON schema of required parameters: name and JSON type."""
    return {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in properties.items()},
        "required": list(properties),
        "additionalProperties": False,
    }


_FIRST_HIGH_WATER = {"Brest": 4 * 60 + 32, "Camaret": 4 * 60 + 24}
"""Minutes after midnight on day 0; the tide comes 50 minutes later each day."""
_HALF_TIDE = 372.5
_WIND = {
    "Brest": "wind SW 12 knots, gusts 17, sea slight (0.8 m), visibility good, dry until 20:00.",
    "Camaret": "wind SW 15 knots, gusts 21, sea moderate (1.4 m) off Pointe du Toulinguet, visibility good.",
}
_PAGES = {
    "https://harbour.example/brest": """Brest, Moulin Blanc marina. VHF channel 9, office open 08:00 to 18:30.
Approach: leave the red buoy Moulin Blanc to port and keep to the dredged channel, 2.0 m at chart datum.
Berths: visitors lie on pontoon F; boats above 14 m call the office before they enter.
Tidal stream: in the Goulet it turns one hour before high water and runs up to 4.5 knots at springs, so leave on the ebb
and do not meet a westerly there with the stream against it.
The marina gate is open from three hours before until three hours after high water.
Fuel: at the quay beside the office, card payment at any hour. Water and shore power on every pontoon.
Speed: 5 knots inside the basin, 10 knots north of the line Pointe du Corbeau to Pointe de l'Armorique.
Naval zone: the roads south of the Ile Longue are closed to yachts; the patrol listens on channel 16 and channel 74.
Shelter: in strong south-westerlies boats wait at Camaret or in the Aber Wrac'h rather than beat through the Goulet.
""",
}


def tide_lookup(port: str, day: int) -> str:
    """The next four tides as JSON with a `summary`."""
    if port not in _FIRST_HIGH_WATER:
        raise ToolError(f"unknown port {port!r}")
    start = _FIRST_HIGH_WATER[port] + 50 * day
    tides = []
    for index in range(4):
        days, minutes = divmod(int(start + index * _HALF_TIDE), 24 * 60)
        tides.append(
            {
                "kind": "low" if index % 2 else "high",
                "day": day + days,
                "time": f"{minutes // 60:02}:{minutes % 60:02}",
                "height_m": [6.9, 1.3, 6.7, 1.5][index],
            }
        )
    summary = f"4 tides; next high water {tides[0]['time']} ({tides[0]['height_m']} m), low water {tides[1]['time']}"
    return json.dumps({"port": port, "day": day, "summary": summary, "tides": tides})


def fetch_page(url: str) -> str:
    if url not in _PAGES:
        raise PageNotFound("404 Not Found")
    return _PAGES[url]


def weather_report(port: str, day: int) -> str:
    if port not in _WIND:
        raise ToolError(f"no forecast area covers {port!r}")
    return f"{port}, day {day}: {_WIND[port]}"


TOOLS = (
    Tool("tide_lookup", "Tides of a port", _parameters(port="string", day="integer"), tide_lookup),
    Tool("fetch_page", "Fetch a web page as text", _parameters(url="string"), fetch_page),
    Tool("weather_report", "Wind and sea at a port", _parameters(port="string", day="integer"), weather_report),
)


# --- The two agents --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Role:
    step: str
    agent: str
    instructions: str
    tools: tuple[Tool, ...] = ()
    options: Json = field(default_factory=dict)
    """More fields of its requests to the model."""


RESEARCHER = Role(
    step="search",
    agent="researcher",
    instructions=(
        "You are a harbour researcher. Find what a skipper needs to know to answer the question: tides, harbour "
        "notices, the harbour's own page, and anything the task says is missing. Use the tools, ask for independent "
        "things at once, and end with one line of notes for each result. A tool that fails is no reason to stop."
    ),
    tools=TOOLS,
)
WRITER = Role(
    step="write",
    agent="writer",
    instructions=(
        "You are a harbour writer. Answer the skipper's question from the notes alone, in a few sentences. "
        f"If the notes lack something you need, answer with one line that begins with {MISSING} and name it."
    ),
    options={"reasoning_effort": "low"},
)
RECALL_NUDGE = f"Earlier results of this run can be searched with the {RECALL_TOOL} tool when you need their full text."


# --- HTTP ------------------------------------------------------------------------------------------

UNREACHABLE = (OSError, ValueError, HTTPException)
"""What `call_json` raises: no connection, an error status (HTTPError), or an answer that is no JSON object."""

_http = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # all of the demo is on this machine


def call_json(url: str, body: bytes | None = None, token: str = "", timeout: float = 10.0) -> Json:
    """GET, or POST of a JSON body, with a bearer token where there is one. The answer is a JSON object."""
    headers = {"Content-Type": "application/json"} if body is not None else {}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    with _http.open(urllib.request.Request(url, data=body, headers=headers), timeout=timeout) as response:
        value = json.loads(response.read())
    if not isinstance(value, dict):
        raise ValueError(f"{url} answered {type(value).__name__}, not an object")
    return value


class ModelRefused(Exception):
    """The model's API answered with an error."""

    def __init__(self, status: int, error: Json, retry_after: float) -> None:
        super().__init__(f"HTTP {status}: {error.get('message')}")
        self.status = status
        self.param: str = error.get("param") or ""
        self.error_type = str(error.get("code") or error.get("type") or status)
        self.retry_after = retry_after
        """Seconds."""


def ask_model(url: str, body: bytes) -> Json:
    """One chat completion."""
    try:
        return call_json(f"{url}/chat/completions", body, token="sk-demo", timeout=60.0)
    except HTTPError as refused:
        with refused:
            content = refused.read()
        try:
            error = json.loads(content)["error"]
        except (ValueError, KeyError, TypeError):
            error = {"message": content.decode(errors="replace")}
        delay = refused.headers.get("Retry-After") or ""
        raise ModelRefused(refused.code, error, float(delay) if delay.isdigit() else 0.0) from None


# --- Telemetry -------------------------------------------------------------------------------------


class PassStamps(SpanProcessor):
    """Hands the run, the step and the numbers of the pass down to every span below."""

    KEYS = (
        "blackboard.run.id",
        "blackboard.step.id",
        "blackboard.pass.seq",
        "blackboard.pass.attempt",
        "gen_ai.conversation.id",
    )

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        parent = trace.get_current_span(parent_context)
        above = parent.attributes if isinstance(parent, Span) else None
        own = span.attributes or {}
        span.set_attributes({key: above[key] for key in self.KEYS if above and key in above and key not in own})

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """True: the inherited one gives None in SDK 1.38, which ends a flush before it is the exporter's turn."""
        return True


def tracer_provider(otlp_endpoint: str, project: str) -> TracerProvider:
    resource = Resource.create({"service.name": "harbour-agent", "blackboard.project.id": project})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(PassStamps())
    exporter = OTLPSpanExporter(endpoint=f"{otlp_endpoint.rstrip('/')}/v1/traces")
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def semconv_messages(messages: list[Json], finish_reason: str = "") -> str:
    """Chat-completions messages in the form of `gen_ai.input.messages` and `gen_ai.output.messages`."""
    return _dump([_semconv_message(message, finish_reason) for message in messages])


def _semconv_message(message: Json, finish_reason: str) -> Json:
    parts: list[Json] = []
    if message["role"] == "tool":
        parts.append({"type": "tool_call_response", "id": message["tool_call_id"], "response": message["content"]})
    elif message.get("content"):
        parts.append({"type": "text", "content": message["content"]})
    for call in message.get("tool_calls") or []:
        name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
        parts.append({"type": "tool_call", "id": call["id"], "name": name, "arguments": arguments})
    finish = {"finish_reason": {"tool_calls": "tool_call"}.get(finish_reason, finish_reason)} if finish_reason else {}
    return {"role": message["role"], "parts": parts, **finish}


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


# --- The run ---------------------------------------------------------------------------------------


def run_agent(
    otlp_endpoint: str, api: str, model_url: str, project: str = "default", write: Write | None = None
) -> DemoRun:
    """Answers the question and sends what happened.

    otlp_endpoint: base URL of the OTLP/HTTP door (`http://127.0.0.1:4318`); api: base URL of the query service;
    model_url: base URL of a chat-completions API, `/v1` included; write: takes a line for each thing that happens.
    Raises ModelRefused when the model refuses more often than an attempt is repeated.
    """
    provider = tracer_provider(otlp_endpoint, project)
    try:
        run = _Run(provider, api.rstrip("/"), model_url.rstrip("/"), project, write or (lambda line: None))
        return run.answer(QUESTION)
    finally:
        provider.force_flush()
        provider.shutdown()


class _Run:
    def __init__(self, provider: TracerProvider, api: str, model_url: str, project: str, write: Write) -> None:
        self.run_id = f"run_{uuid.uuid4().hex}"
        self._provider = provider
        self._tracer = provider.get_tracer("harbour-agent", "1.0.0")
        self._api = api
        self._model_url = model_url
        self._project = project
        self._write = write
        self._unsupported: set[str] = set()
        """Request fields that the model has rejected."""

    def answer(self, question: str) -> DemoRun:
        attributes = {
            "blackboard.span.role": "flow_run",
            "blackboard.run.id": self.run_id,
            "blackboard.run.name": RUN_NAME,
            "gen_ai.conversation.id": f"conv_{uuid.uuid4().hex[:16]}",
        }
        # An empty context: the run is a trace of its own, also inside a caller that traces itself.
        with self._span(RUN_NAME, attributes, context=Context()) as root:
            notes, missing, text = "", "", ""
            for pass_seq in range(1, MAX_PASSES + 1):
                task = f"Question: {question}" + (f"\nStill missing: {missing}" if missing else "")
                notes += self._pass(RESEARCHER, task, pass_seq) + "\n"
                text = self._pass(WRITER, f"Question: {question}\n\nNotes:\n{notes}", pass_seq)
                if not text.startswith(MISSING):
                    break
                missing = text.removeprefix(MISSING).strip()
            return DemoRun(self.run_id, format_trace_id(root.get_span_context().trace_id), text)

    def _pass(self, role: Role, task: str, pass_seq: int) -> str:
        """One entry of an agent into its step. An attempt that the model refused is repeated under the same number."""
        self._write(f"{role.agent} enters step {role.step}, pass {pass_seq}")
        system, tools = role.instructions, role.tools
        if pass_seq > 1 and tools:
            system, tools = self._prepare(role)
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                answer = self._attempt(role, system, tools, task, pass_seq, attempt)
            except ModelRefused as refused:
                if attempt == MAX_ATTEMPTS or (refused.status != 429 and refused.status < 500):
                    raise
                wait = min(refused.retry_after, LONGEST_WAIT)
                self._write(f"  {_cut(str(refused))}")
                self._write(f"  attempt {attempt} failed, attempt {attempt + 1} in {wait:g} s")
                time.sleep(wait)
            else:
                self._write(f"  says: {_cut(answer)}")
                return answer
        raise AssertionError("the last attempt returns or raises")

    def _attempt(self, role: Role, system: str, tools: tuple[Tool, ...], task: str, pass_seq: int, attempt: int) -> str:
        attributes = {
            "blackboard.span.role": "step",
            "blackboard.step.id": f"step_{role.step}",
            "blackboard.step.name": role.step,
            "blackboard.pass.seq": pass_seq,
            "blackboard.pass.attempt": attempt,
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": MODEL,
            "gen_ai.agent.name": role.agent,
            "gen_ai.system_instructions": _dump([{"type": "text", "content": system}]),
            "gen_ai.input.messages": semconv_messages([{"role": "user", "content": task}]),
        }
        with self._span(f"invoke_agent {role.agent}", attributes) as span:
            messages = [{"role": "system", "content": system}, {"role": "user", "content": task}]
            answer = self._loop(messages, tools, role.options)
            output = semconv_messages([{"role": "assistant", "content": answer}], "stop")
            span.set_attribute("gen_ai.output.messages", output)
            return answer

    def _loop(self, messages: list[Json], tools: tuple[Tool, ...], options: Json) -> str:
        """Model, tools, model, tools … until the model answers in text."""
        for iteration in range(1, MAX_ITERATIONS + 1):
            message = self._ask(messages, tools, options, iteration)
            messages.append(message)
            calls = message.get("tool_calls")
            if not calls:
                return str(message.get("content") or "")
            # Each thread works in a copy of this context, so that its span finds its parent.
            with ThreadPoolExecutor(len(calls)) as pool:
                pending = [pool.submit(copy_context().run, self._call_tool, call, tools) for call in calls]
            for call, outcome in zip(calls, pending, strict=True):
                result = outcome.result()
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
                self._write(f"  {call['function']['name']}({call['function']['arguments']}): {_cut(result)}")
        raise RuntimeError(f"no answer after {MAX_ITERATIONS} iterations")

    def _ask(self, messages: list[Json], tools: tuple[Tool, ...], options: Json, iteration: int) -> Json:
        """The model's next message. An option that the model does not know is left out, now and later."""
        options = {name: value for name, value in options.items() if name not in self._unsupported}
        try:
            return self._chat(messages, tools, options, iteration)
        except ModelRefused as refused:
            if refused.status != 400 or refused.param not in options:
                raise
            self._unsupported.add(refused.param)
            self._write(f"  asking again without {refused.param}")
            return self._ask(messages, tools, options, iteration)

    def _chat(self, messages: list[Json], tools: tuple[Tool, ...], options: Json, iteration: int) -> Json:
        functions = [{"name": t.name, "description": t.description, "parameters": t.parameters} for t in tools]
        request: Json = {"model": MODEL, "messages": messages, "temperature": 0.2, "prompt_cache_key": self.run_id}
        request |= options
        if functions:
            request["tools"] = [{"type": "function", "function": function} for function in functions]
        body = _dump(request).encode()
        address = urlsplit(self._model_url)
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": MODEL,
            "gen_ai.request.temperature": 0.2,
            "gen_ai.input.messages": semconv_messages(messages),
            "server.address": address.hostname or "",
            "server.port": address.port or 443,
            "blackboard.loop.iteration": iteration,
            # Set before the request is sent: a rejected call keeps it.
            "blackboard.request.body": body.decode(),
        }
        if functions:
            attributes["gen_ai.tool.definitions"] = _dump([{"type": "function", **function} for function in functions])
        self._write(f"  {MODEL}: {len(messages)} messages")
        with self._span(f"chat {MODEL}", attributes, SpanKind.CLIENT) as span:
            completion = ask_model(self._model_url, body)
            choice, usage = completion["choices"][0], completion["usage"]
            message: Json = {key: value for key, value in choice["message"].items() if key in SENT_BACK}
            span.set_attributes(
                {
                    "gen_ai.response.id": completion["id"],
                    "gen_ai.response.model": completion["model"],
                    "gen_ai.response.finish_reasons": [choice["finish_reason"]],
                    "gen_ai.usage.input_tokens": usage["prompt_tokens"],
                    "gen_ai.usage.output_tokens": usage["completion_tokens"],
                    "gen_ai.usage.cache_read.input_tokens": usage["prompt_tokens_details"]["cached_tokens"],
                    "gen_ai.output.messages": semconv_messages([message], choice["finish_reason"]),
                }
            )
            return message

    def _call_tool(self, call: Json, tools: tuple[Tool, ...]) -> str:
        """The result as text; a failure is told to the model and does not end the pass."""
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        tool = next((tool for tool in tools if tool.name == name), None)
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": call["id"],
            "gen_ai.tool.call.arguments": arguments,
        }
        if tool and tool.tool_class:
            attributes["blackboard.tool.class"] = tool.tool_class
        try:
            with self._span(f"execute_tool {name}", attributes) as span:
                if tool is None:
                    raise ToolError(f"there is no tool {name!r}")
                result = tool.run(**json.loads(arguments))
                span.set_attribute("gen_ai.tool.call.result", result)
                return result
        except Exception as error:
            return f"Error: {error}"

    @contextmanager
    def _span(
        self, name: str, attributes: Json, kind: SpanKind = SpanKind.INTERNAL, context: Context | None = None
    ) -> Iterator[trace.Span]:
        """A span that, when its block raises, says so as the GenAI conventions want it: status and `error.type`."""
        with self._tracer.start_as_current_span(
            name, context, kind, attributes, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield span
            except Exception as error:
                span.set_attribute("error.type", getattr(error, "error_type", type(error).__qualname__))
                span.set_status(Status(StatusCode.ERROR, str(error)))
                raise

    # What the service gives back to the agent

    def _prepare(self, role: Role) -> tuple[str, tuple[Tool, ...]]:
        """System prompt and tools for entering a step again: with the ledger, and with recall where it is allowed."""
        # What is acknowledged is visible: after this, the ledger holds everything that was done so far.
        self._provider.force_flush()
        system, tools = role.instructions, role.tools
        about_run = {"project_id": self._project}
        query = urlencode({**about_run, "agent_id": role.agent})
        ledger = self._service(f"/runs/{self.run_id}/ledger?{query}").get("text")
        if ledger:
            self._write(f"  the ledger of {role.agent} joins its system prompt")
            system = f"{system}\n\n{ledger}"
        wanted = {"agent_id": role.agent, "capabilities": ["query_blackboard"]}
        token = self._service(f"/runs/{self.run_id}/tokens?{urlencode(about_run)}", wanted).get("token")
        if token:
            system = f"{system}\n\n{RECALL_NUDGE}"
            recall = partial(self._recall, str(token))
            parameters = _parameters(query="string", top_k="integer")
            tools = (*tools, Tool(RECALL_TOOL, "Search earlier results of this run", parameters, recall, "recall"))
        return system, tools

    def _recall(self, token: str, query: str = "", top_k: int = 5, **ignored: object) -> str:
        """The run comes from the token; whatever else the model names has no effect."""
        answer = self._service("/recall", {"query": query, "top_k": top_k}, token)
        return _dump({"results": answer.get("results") or []})

    def _service(self, path: str, body: Json | None = None, token: str = "") -> Json:
        """The service's answer; empty when it cannot be had, which must never cost the run."""
        try:
            return call_json(f"{self._api}/api/v1{path}", _dump(body).encode() if body is not None else None, token)
        except UNREACHABLE as error:
            self._write(f"  {path.split('?')[0]} not available: {error}")
            return {}


def _cut(text: str, length: int = 72) -> str:
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1] + "…"
