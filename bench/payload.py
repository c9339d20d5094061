"""OTLP bodies for the bench: agent runs with distinct texts. The same seed gives the same bytes.

A run of 16 spans is 1 flow_run, 3 passes, 6 model calls and 6 tool calls, about 20 attributes a span; every third span
carries a prompt of 6 KB and an answer of 2 KB. No text comes twice in 10,000 bodies.
"""

from __future__ import annotations

import json
import random
import time
from functools import lru_cache

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

SPANS_A_RUN = 16
SPANS_A_BODY = 512

_START = time.time_ns() - 3600 * 10**9
_MODELS = ("gpt-4o", "gpt-4o-mini", "claude-sonnet-4-5", "gemini-2.5-flash")
_TOOLS = ("web_search", "fetch_page", "query_table", "read_file", "run_tests")
_AGENTS = ("researcher", "writer", "reviewer")


def body(seed: int, spans: int = SPANS_A_BODY) -> bytes:
    """One request: whole runs of 16 spans, each a trace of its own."""
    rnd = random.Random(seed)
    request, out = _request()
    for first in range(0, spans, SPANS_A_RUN):
        count = min(SPANS_A_RUN, spans - first)
        _run(out, rnd, trace_id(seed, first // SPANS_A_RUN), _START + seed * 10**9 + first * 10**6, count)
    return request.SerializeToString()


def growing_body(seed: int, trace: bytes, root: bytes, spans: int) -> bytes:
    """One request that adds `spans` spans below `root` to one long trace; the root itself is part of every body that
    begins it (seed 0)."""
    rnd = random.Random(seed)
    request, out = _request()
    start = _START + seed * 10**9
    if seed == 0:
        _span(out, rnd, trace, root, b"", 0, "researcher", start)
    for i in range(1 if seed == 0 else 0, spans):
        _span(out, rnd, trace, rnd.randbytes(8), root, 4 + i % 12, "researcher", start + i * 10**6)
    return request.SerializeToString()


def trace_id(seed: int, run: int) -> bytes:
    return random.Random(f"{seed} {run}").randbytes(16)


def run_id(seed: int, run: int) -> str:
    return "run_" + trace_id(seed, run).hex()


def _request() -> tuple[ExportTraceServiceRequest, list]:
    request = ExportTraceServiceRequest()
    resource_spans = request.resource_spans.add()
    resource_spans.resource.attributes.extend([_attribute("service.name", "bench")])
    scope_spans = resource_spans.scope_spans.add()
    scope_spans.scope.name = "bench"
    return request, scope_spans.spans


def _run(out, rnd: random.Random, trace: bytes, start_ns: int, count: int) -> None:
    agent = rnd.choice(_AGENTS)
    ids = [rnd.randbytes(8) for _ in range(count)]
    for place, span_id in enumerate(ids):
        parent = b"" if place == 0 else ids[0] if place < 4 else ids[1 + (place - 4) % 3]
        _span(out, rnd, trace, span_id, parent, place, agent, start_ns + place * 10**6)


def _span(
    out, rnd: random.Random, trace: bytes, span_id: bytes, parent: bytes, place: int, agent: str, start_ns: int
) -> None:
    """`place` in a run of 16: 0 the run, 1-3 passes, 4-9 model calls, 10-15 tool calls."""
    span = out.add()
    span.trace_id, span.span_id, span.parent_span_id = trace, span_id, parent
    span.kind = 3 if 4 <= place < 10 else 1
    span.start_time_unix_nano = start_ns
    span.end_time_unix_nano = start_ns + rnd.randrange(10**6, 3 * 10**9)
    sent = {f"app.label.{n}": rnd.choice(("alpha", "beta", "gamma")) + str(rnd.randrange(50)) for n in range(12)}
    sent |= {"gen_ai.conversation.id": trace.hex()[:16], "user.id": f"user-{rnd.randrange(500)}"}
    sent["gen_ai.agent.name"] = agent
    if place == 0:
        span.name = "flow"
        sent["blackboard.span.role"] = "flow_run"
    elif place < 4:
        span.name = f"invoke_agent {agent}"
        sent["gen_ai.operation.name"] = "invoke_agent"
    elif place < 10:
        model = rnd.choice(_MODELS)
        span.name = f"chat {model}"
        sent |= {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": model,
            "gen_ai.response.model": model,
            "gen_ai.response.id": "resp_" + span_id.hex(),
            "gen_ai.usage.input_tokens": rnd.randrange(200, 9000),
            "gen_ai.usage.output_tokens": rnd.randrange(10, 900),
            "gen_ai.request.temperature": rnd.random(),
        }
    else:
        tool = rnd.choice(_TOOLS)
        span.name = f"execute_tool {tool}"
        sent |= {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool,
            "gen_ai.tool.call.id": "call_" + span_id.hex(),
            "gen_ai.tool.call.arguments": json.dumps({"query": _text(rnd, 40)}),
            "gen_ai.tool.call.result": _text(rnd, 400),
        }
    if place % 3 == 0:
        sent["gen_ai.input.messages"] = _message("user", _text(rnd, 6000))
        sent["gen_ai.output.messages"] = _message("assistant", _text(rnd, 2000))
    span.attributes.extend(_attribute(key, value) for key, value in sent.items())


def _message(role: str, text: str) -> str:
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])


def _attribute(key: str, value: str | int | float) -> KeyValue:
    kind = {str: "string_value", int: "int_value", float: "double_value"}[type(value)]
    return KeyValue(key=key, value=AnyValue(**{kind: value}))


def _text(rnd: random.Random, size: int) -> str:
    """English-like text of about `size` characters that zstd shrinks about four times."""
    words, length = [], 0
    while length < size:
        word = WORDS()[int(rnd.paretovariate(0.8)) % len(WORDS())]
        words.append(word)
        length += len(word) + 1
    return " ".join(words)


@lru_cache(maxsize=1)
def WORDS() -> list[str]:
    rnd = random.Random(7)
    return ["".join(rnd.choice("etaoinshrdlucmfwypvbgk") for _ in range(rnd.randint(2, 9))) for _ in range(6000)]
