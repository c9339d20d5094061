"""OTLP bodies for the bench: agent runs with distinct texts. The same seed gives the same bytes on every machine.

`request` makes what the project's shared tools/otlp_payload.py makes, byte for byte (a test holds them), so that figures
of different sessions are about one payload: runs of 16 spans (1 flow_run, 3 passes, 6 model calls, 6 tool calls), about 21
attributes a span, a prompt of 6 KB and an answer of 2 KB on every third. `part_body` makes one run in many requests.
"""

from __future__ import annotations

import json
import random
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

SPANS_A_RUN = 16
SPANS_A_BODY = 512

_START = 1_790_000_000_000_000_000
_MODELS = ["gpt-4o", "gpt-4o-mini", "claude-sonnet-4-5", "gemini-2.5-flash"]
_TOOLS = ["web_search", "fetch_page", "query_table", "read_file", "run_tests"]
_AGENTS = ["researcher", "writer", "reviewer"]


def _vocabulary() -> list[str]:
    rnd = random.Random(7)
    return ["".join(rnd.choice("etaoinshrdlucmfwypvbgk") for _ in range(rnd.randint(2, 9))) for _ in range(6000)]


_VOCABULARY = _vocabulary()
COMMON = [word for word in _VOCABULARY[2:200] if len(word) > 4]
"""Words that most runs hold: the further down the list, the rarer in the texts."""
RARE = [word for word in _VOCABULARY[3000:] if len(word) > 4]
"""Words that hardly any text holds."""


def request(seed: int, spans: int = SPANS_A_BODY, project: str = "default") -> bytes:
    """One request: whole runs of 16 spans, each a trace of its own."""
    rnd = random.Random(seed)
    made, out = _request(project)
    trace, ids, agent = b"", [], ""
    for i in range(spans):
        place = i % SPANS_A_RUN
        if place == 0:
            trace, ids, agent = rnd.randbytes(16), [], rnd.choice(_AGENTS)
        ids.append(rnd.randbytes(8))
        parent = b"" if place == 0 else ids[0] if place < 4 else ids[1 + (place - 4) % 3]
        start = _START + seed * 10**9 + i * 10**6
        _span(out, rnd, trace, ids[-1], parent, place, agent, start, with_texts=i % 3 == 0)
    return made.SerializeToString()


def part_body(seed: int, trace: bytes, part: int, spans: int) -> bytes:
    """Part `part` of one run: the first one has its root, every one a pass with model and tool calls below it."""
    rnd = random.Random(f"{seed} {part}")
    made, out = _request("default")
    root, own = trace[:8], rnd.randbytes(8)
    start = _START + part * 10**9
    if part == 0:
        _span(out, rnd, trace, root, b"", 0, "researcher", start)
    _span(out, rnd, trace, own, root, 1, "researcher", start + 1)
    for i in range(len(out), spans):
        _span(out, rnd, trace, rnd.randbytes(8), own, 4 + i % 12, "researcher", start + i * 10**6, i % 3 == 0)
    return made.SerializeToString()


def traces(body: bytes) -> list[bytes]:
    """The trace ids of a request, each once."""
    made = ExportTraceServiceRequest.FromString(body)
    return list(dict.fromkeys(span.trace_id for span in made.resource_spans[0].scope_spans[0].spans))


def run_of(trace: bytes) -> str:
    return "run_" + trace.hex()


def _request(project: str) -> tuple[ExportTraceServiceRequest, Any]:
    made = ExportTraceServiceRequest()
    resource_spans = made.resource_spans.add()
    resource_spans.resource.attributes.extend(
        [_attribute("service.name", "bench"), _attribute("blackboard.project.id", project)]
    )
    scope_spans = resource_spans.scope_spans.add()
    scope_spans.scope.name = "bench"
    return made, scope_spans.spans


def _span(
    out: Any, rnd: random.Random, trace: bytes, span_id: bytes, parent: bytes, place: int, agent: str, start_ns: int,
    with_texts: bool = False,
) -> None:  # fmt: skip
    """`place` in a run of 16: 0 the run, 1-3 passes, 4-9 model calls, 10-15 tool calls."""
    span = out.add()
    span.trace_id, span.span_id, span.parent_span_id = trace, span_id, parent
    span.kind = 3 if 4 <= place < 10 else 1
    span.start_time_unix_nano = start_ns
    span.end_time_unix_nano = start_ns + rnd.randrange(10**6, 3 * 10**9)
    sent: dict[str, Any] = {
        f"app.label.{n}": rnd.choice(["alpha", "beta", "gamma"]) + str(rnd.randrange(50)) for n in range(12)
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
    if with_texts:
        sent["gen_ai.input.messages"] = _message("user", _text(rnd, 6000))
        sent["gen_ai.output.messages"] = _message("assistant", _text(rnd, 2000))
    span.attributes.extend(_attribute(key, value) for key, value in sent.items())


def _message(role: str, text: str) -> str:
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])


def _attribute(key: str, value: Any) -> KeyValue:
    kind = {str: "string_value", int: "int_value", float: "double_value"}[type(value)]
    return KeyValue(key=key, value=AnyValue(**{kind: value}))


def _text(rnd: random.Random, size: int) -> str:
    """English-like text of about `size` characters, which zstd shrinks about five times."""
    out: list[str] = []
    length = 0
    while length < size:
        word = _VOCABULARY[int(rnd.paretovariate(0.8)) % len(_VOCABULARY)]
        out.append(word)
        length += len(word) + 1
    return " ".join(out)
