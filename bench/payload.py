"""OTLP bodies for the bench: agent runs with distinct texts. One seed gives the same body all through a process.

A run of 16 spans is 1 flow_run, 3 passes, 6 model calls and 6 tool calls, about 21 attributes a span; of three spans one
carries a prompt of 6 KB and an answer of 2 KB.
"""

from __future__ import annotations

import json
import random
import time
from functools import lru_cache
from typing import Any

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


def part_body(seed: int, trace: bytes, part: int, spans: int) -> bytes:
    """Part `part` of one run: the first one has its root, every one a pass with model and tool calls below it."""
    rnd = random.Random(f"{seed} {part}")
    request, out = _request()
    root, own = trace[:8], rnd.randbytes(8)
    start = _START + part * 10**9
    if part == 0:
        _span(out, rnd, trace, root, b"", 0, "researcher", start)
    _span(out, rnd, trace, own, root, 1, "researcher", start + 1)
    for place in range(len(out), spans):
        _span(out, rnd, trace, rnd.randbytes(8), own, 4 + place % 12, "researcher", start + place * 10**6)
    return request.SerializeToString()


def trace_id(seed: int, run: int) -> bytes:
    return random.Random(f"{seed} {run}").randbytes(16)


def run_id(seed: int, run: int) -> str:
    return "run_" + trace_id(seed, run).hex()


def _request() -> tuple[ExportTraceServiceRequest, Any]:
    request = ExportTraceServiceRequest()
    resource_spans = request.resource_spans.add()
    resource_spans.resource.attributes.extend([_attribute("service.name", "bench")])
    scope_spans = resource_spans.scope_spans.add()
    scope_spans.scope.name = "bench"
    return request, scope_spans.spans


def _run(out: Any, rnd: random.Random, trace: bytes, start_ns: int, count: int) -> None:
    agent = rnd.choice(_AGENTS)
    ids = [rnd.randbytes(8) for _ in range(count)]
    for place, span_id in enumerate(ids):
        parent = b"" if place == 0 else ids[0] if place < 4 else ids[1 + (place - 4) % 3]
        _span(out, rnd, trace, span_id, parent, place, agent, start_ns + place * 10**6)


def _span(
    out: Any, rnd: random.Random, trace: bytes, span_id: bytes, parent: bytes, place: int, agent: str, start_ns: int
) -> None:
    """`place` in a run of 16: 0 the run, 1-3 passes, 4-9 model calls, 10-15 tool calls."""
    span = out.add()
    span.trace_id, span.span_id, span.parent_span_id = trace, span_id, parent
    span.kind = 3 if 4 <= place < 10 else 1
    span.start_time_unix_nano = start_ns
    span.end_time_unix_nano = start_ns + rnd.randrange(10**6, 3 * 10**9)
    sent: dict[str, Any] = {
        f"app.label.{n}": rnd.choice(("alpha", "beta", "gamma")) + str(rnd.randrange(50)) for n in range(12)
    }
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


def _attribute(key: str, value: Any) -> KeyValue:
    kind = {str: "string_value", int: "int_value", float: "double_value"}[type(value)]
    return KeyValue(key=key, value=AnyValue(**{kind: value}))


def _text(rnd: random.Random, size: int) -> str:
    """English-like text of about `size` characters; zstd shrinks a long one about five times. Starts with a number of
    its own, so that no two are the same."""
    book = _book()
    start = rnd.randrange(len(book) - size)
    return f"{rnd.getrandbits(48)} {book[start : start + size]}"


@lru_cache(maxsize=1)
def _book() -> str:
    """Two million characters to cut texts from: quicker than to make each of them word by word."""
    rnd = random.Random(7)
    words = ["".join(rnd.choice("etaoinshrdlucmfwypvbgk") for _ in range(rnd.randint(2, 9))) for _ in range(6000)]
    return " ".join(words[int(rnd.paretovariate(0.8)) % len(words)] for _ in range(400_000))


def words() -> list[str]:
    """Words that the texts hold, longer ones."""
    return sorted({word for word in _book()[:100_000].split() if len(word) > 4})
