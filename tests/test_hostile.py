"""Hostile input through the doors, into both store pairs and out of every read route: one bad span costs that span at
most, nothing hangs, and what was taken comes back as it was sent."""

from __future__ import annotations

import asyncio
import gzip
import json
import math
import re
import sys
import threading
import urllib.parse
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from starlette.testclient import TestClient

from otel_blackboard.collector import wire
from otel_blackboard.collector.arrival import TOO_DEEP, Arrival
from otel_blackboard.collector.group_commit import GroupCommit
from otel_blackboard.collector.grpc import start_grpc_door
from otel_blackboard.collector.http import make_http_door
from otel_blackboard.exporter.packs import pack_prefix
from otel_blackboard.processor.dialects import BY_FIELD
from otel_blackboard.processor.values import restore
from otel_blackboard.query.api import make_api
from otel_blackboard.records import (
    DUPLICATES,
    Event,
    InvalidText,
    Link,
    LogRecord,
    Resource,
    Scope,
    Span,
    Tenant,
    Value,
)
from otel_blackboard.service import Stores
from tests import otlp
from tests.fuzzing import KEYS, keys_of
from tests.otlp import said

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

TRACE = "9f8234c2b5d0a1e7f3648b92d5c01a77"
OTHER_TRACE = "0" * 31 + "1"
START = 1_790_000_000 * 10**9
LATEST = 2**64 - 1
PROTOBUF, JSON = "application/x-protobuf", "application/json"
Sent = tuple[str, str, bytes]
"""(signal, content type, body) of one request."""


class Doors:
    """The doors and the API of a service over these stores; what is sent together is one flush."""

    def __init__(self, stores: Stores) -> None:
        settings = stores.settings.model_copy(
            update={"otlp_grpc": "127.0.0.1:0", "flush_bytes": 2**30, "max_queue_bytes": 2**30}
        )
        self.stores, self.flushes = stores, 0
        self._may_flush, self._flushing, self._taken = threading.Lock(), threading.Event(), threading.Semaphore(0)
        self._commit = GroupCommit(self, settings)
        self.http = TestClient(make_http_door(self, None, settings))
        clock = lambda: START + 10**12  # noqa: E731
        self.api = TestClient(make_api(stores.reader, settings, None, lambda: "", clock), follow_redirects=False)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server, self.grpc_port = asyncio.run_coroutine_threadsafe(
            start_grpc_door(self, None, settings), self._loop
        ).result()

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._server.stop(0), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._commit.close()

    def submit(self, arrival: Arrival) -> Future[None]:
        future = self._commit.submit(arrival)
        self._taken.release()
        return future

    def prepare(self, *given: Any) -> Any:
        """For the doors, of an arrival; for the group commit, of spans and logs."""
        return self._commit.prepare(*given) if len(given) == 1 else self.stores.exporter.prepare(*given)

    def commit(self, prepared: Any) -> None:
        self._flushing.set()
        with self._may_flush:
            if any(each.readings for each in prepared):
                self.flushes += 1
                self.stores.exporter.commit(prepared)

    def derive_due(self) -> None:
        pass

    def send(self, *requests: Sent) -> list[tuple[int, str]]:
        """(rejected, message) of each request, all of them acknowledged by one flush that all of them were in."""
        before = self.flushes
        with ThreadPoolExecutor(len(requests)) as pool:
            with self._may_flush:  # a flush of nothing holds them back until all are there
                self._flushing.clear()
                self._commit.submit(Arrival([], [], 0))
                self._flushing.wait()
                sent = [pool.submit(self.post, *request) for request in requests]
                for _ in requests:
                    assert self._taken.acquire(timeout=120)
            answers = [each.result() for each in sent]
        assert self.flushes == before + 1  # and not one by one after a failure
        return [_partial(request, answer) for request, answer in zip(requests, answers, strict=True)]

    def post(self, signal: str, content_type: str, body: bytes, **headers: str) -> Any:
        return self.http.post(f"/v1/{signal}", content=body, headers={"content-type": content_type} | headers)

    def call(self, signal: str, body: bytes, compression: Any = None) -> tuple[str, str]:
        """The code and message of the gRPC door's answer."""
        service = {"traces": "trace.v1.Trace", "logs": "logs.v1.Logs"}[signal]
        options = [("grpc.max_send_message_length", -1)]
        with grpc.insecure_channel(f"127.0.0.1:{self.grpc_port}", options=options) as channel:
            export = channel.unary_unary(f"/opentelemetry.proto.collector.{service}Service/Export")
            try:
                export(body, compression=compression, timeout=120)
            except grpc.RpcError as error:
                return error.code().name, error.details()
        self._taken.acquire()
        return "OK", ""

    def get(self, path: str, project_id: str, **query: Any) -> Any:
        answer = self.api.get(f"/api/v1{path}", params={"project_id": project_id} | query)
        assert answer.status_code == 200, (path, answer.text)
        return answer.json()


def _partial(request: Sent, answer: Any) -> tuple[int, str]:
    assert answer.status_code == 200, answer.text
    signal, content_type, _ = request
    count = "rejected_spans" if signal == "traces" else "rejected_log_records"
    if content_type == JSON:
        partial = answer.json().get("partialSuccess", {})
        rejected = partial.get("rejectedSpans" if signal == "traces" else "rejectedLogRecords", 0)
        return int(rejected), partial.get("errorMessage", "")
    kind = ExportTraceServiceResponse if signal == "traces" else ExportLogsServiceResponse
    partial = kind.FromString(answer.content).partial_success
    return getattr(partial, count), partial.error_message


ON_ONE_PAIR = pytest.mark.parametrize("stores", ["embedded"], indirect=True)
"""For what does not depend on the stores."""


@pytest.fixture(scope="module")
def doors(stores: Stores) -> Iterator[Doors]:
    opened = Doors(stores)
    yield opened
    opened.close()


# ---- what is sent ----


def project(name: str, **attributes: Value) -> Resource:
    return Resource({"blackboard.project.id": name, **attributes})


def tool(span_id: int, parent: int = 0, **values: Any) -> Span:
    attributes: dict[str, Value] = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "lookup"}
    attributes |= values.pop("attributes", {})
    fields = {"name": "execute_tool lookup", "start_ns": START + span_id, "end_ns": START + span_id + 1000} | values
    parent_id = f"{parent:016x}" if parent else ""
    return Span(fields.pop("trace_id", TRACE), f"{span_id:016x}", parent_id, attributes=attributes, **fields)


def model_call(span_id: int, **attributes: Value) -> Span:
    span = tool(span_id)
    span.name, span.attributes = "chat m", {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", **attributes}
    return span


GOOD = 0xFFFF


def good_span() -> Span:
    return tool(GOOD, attributes={"gen_ai.tool.call.result": "good"})


def good_log() -> LogRecord:
    return LogRecord(TRACE, f"{GOOD:016x}", START + GOOD + 1, event_name="app.note", body="a good record")


def read_everything(doors: Doors, project_id: str, run_id: str = f"run_{TRACE}") -> dict[str, Any]:
    """Every read route of the run, some artifacts and spans of it; each must answer, whatever is in there."""
    base = f"/runs/{run_id}"
    found = read_shortly(doors, project_id, run_id) | {
        "runs": doors.get("/runs", project_id, all="true", total="true"),
        "timeline": doors.get(f"{base}/timeline", project_id, limit=1000),
        "prompts": doors.get(f"{base}/prompts", project_id),
        "paths": doors.get(f"{base}/paths", project_id),
        "ledger": doors.get(f"{base}/ledger", project_id),
        "search": doors.get("/search", project_id, q="lookup"),
    }
    listed = found["artifacts"]["artifacts"]
    for artifact in listed[:2]:
        path = f"{base}/artifacts/{artifact['artifact_id']}"
        doors.get(path, project_id)
        captured = artifact["metadata"].get("content", "captured") == "captured"
        raw = doors.api.get(f"/api/v1{path}/raw", params={"project_id": project_id})
        assert raw.status_code == (200 if captured else 404)
    return found


def read_shortly(doors: Doors, project_id: str, run_id: str = f"run_{TRACE}") -> dict[str, Any]:
    return {
        "run": doors.get(f"/runs/{run_id}", project_id),
        "artifacts": doors.get(f"/runs/{run_id}/artifacts", project_id, limit=1000, earlier="true"),
    }


_OF_THE_PROJECT = {"project_id", "blackboard.project.id", "artifact_id", "output_artifact_id", "record_sha256"}


def comparable(answer: Any) -> Any:
    """Without what differs from project to project."""
    if isinstance(answer, list):
        return [comparable(item) for item in answer]
    if isinstance(answer, dict):
        return {name: comparable(item) for name, item in answer.items() if name not in _OF_THE_PROJECT}
    return answer


# ---- bad spans ----

DEEP = "[" * 50_000 + "]" * 50_000

DEEP_IN_PART = '[{"role":"user","content":[{"type":"tool_call","name":"x","arguments":' + "[" * 300 + "]" * 300 + "}]}]"


def nested(levels: int) -> Value:
    value: Value = "end"
    for level in range(levels):
        value = [value] if level % 2 else {"k": value}
    return value


FAR_APART = [tool(n, start_ns=START + n * 86_400 * 10**9, end_ns=START + n * 86_400 * 10**9 + 1) for n in range(1, 151)]

SPANS: dict[str, list[Span]] = {
    # texts
    "not UTF-8 in values": [
        tool(1, attributes={"gen_ai.tool.call.result": InvalidText(b"\xff\xfe"), "x": InvalidText(b"a\xffb")}),
        tool(2, attributes={"gen_ai.tool.call.arguments": InvalidText(b'{"a":"\xff"}'), "list": [InvalidText(b"\xfe")]}),
        model_call(3, **{"gen_ai.input.messages": InvalidText(b"\xff"), "gen_ai.output.messages": InvalidText(b"[\xff")}),
    ],
    "not UTF-8 in facts": [
        tool(1, attributes={"gen_ai.tool.name": InvalidText(b"\xff"), "gen_ai.tool.call.id": InvalidText(b"\xff")}),
        tool(2, attributes={name: InvalidText(b"a\xff") for name in (
            "blackboard.step.id", "gen_ai.agent.name", "gen_ai.conversation.id", "user.id", "blackboard.skill.name")}),
        model_call(3, **{"gen_ai.request.model": InvalidText(b"\xff"), "gen_ai.response.id": InvalidText(b"\xff"),
                         "gen_ai.usage.input_tokens": InvalidText(b"\xff"), "blackboard.cost.usd": InvalidText(b"1\xff")}),
    ],
    "not UTF-8 in names and keys": [
        tool(1, name="a\udcff", status_message="m\udcfe", trace_state="t\udcff", attributes={"k\udcff": "v"},
             events=[Event(1, "e\udcff", {"k\udcff": InvalidText(b"\xff")})],
             links=[Link(TRACE, f"{2:016x}", "s\udcff", {"k\udcff": 1})]),
        tool(2, resource=Resource({"r\udcff": InvalidText(b"\xff")}, schema_url="u\udcff"),
             scope=Scope("s\udcff", "v\udcff", {"k\udcff": InvalidText(b"\xff")}, schema_url="u\udcff")),
    ],
    "lone surrogates": [
        tool(1, name="a\udced\udca0\udcbd", attributes={"gen_ai.tool.call.result": InvalidText(b"cut \xed\xa0\xbd")}),
        tool(2, attributes={"gen_ai.tool.call.arguments": '{"a": "\\ud800"}', "gen_ai.tool.call.result": '"\\udfff"'}),
        model_call(3, **{"gen_ai.input.messages": '[{"role":"user","content":"\\ud83d"}]',
                         "gen_ai.output.messages": '[{"role":"\\ud83d","content":"\\ud800"}]'}),
    ],
    "NUL": [
        tool(1, name="a\0b", status_code=2, status_message="a\0", trace_state="\0", attributes={
            "gen_ai.tool.call.result": "a\0b", "gen_ai.tool.name": "t\0", "\0": "\0", "a\0b": "x", "list": ["\0"]}),
        tool(2, scope=Scope("\0", "\0", {"\0": "\0"}), events=[Event(1, "\0", {"\0": "\0"})]),
        tool(3, attributes=dict.fromkeys(("blackboard.step.id", "gen_ai.agent.name", "gen_ai.conversation.id"), "\0")),
    ],
    "NUL as text": [
        tool(1, name="\\u0000", attributes={
            "gen_ai.tool.call.arguments": '{"a":"\\u0000"}', "gen_ai.tool.call.result": '{"a":"\\\\u0000","\\u0000":1}'}),
        tool(2, attributes={"gen_ai.tool.call.result": "\\u0000", "x": "\\\\u0000", "\\u0000": "\\0"}),
        model_call(3, **{"gen_ai.input.messages": '[{"role":"user","content":"a\\u0000b"}]',
                         "gen_ai.output.messages": '[{"role":"assistant","content":"\\u0000"}]'}),
    ],
    # values
    "NaN and infinities": [
        tool(1, attributes={"x": math.nan, "y": math.inf, "z": [-math.inf], "gen_ai.tool.call.result": math.nan}),
        model_call(2, **{"gen_ai.usage.input_tokens": math.inf, "gen_ai.usage.output_tokens": math.nan,
                         "blackboard.cost.usd": math.nan}),
        tool(3, attributes={"gen_ai.tool.call.arguments": '{"a":NaN}', "gen_ai.tool.call.result": "[NaN, Infinity]"}),
    ],
    "bytes": [tool(1, attributes={"gen_ai.tool.call.result": b"\x00\x01\xff", "y": b"1", "gen_ai.tool.name": b"\xff"})],
    "null and empty": [
        tool(1, attributes={"gen_ai.tool.call.result": None, "gen_ai.tool.call.arguments": "", "": "", "e": [], "d": {}}),
        tool(2, attributes={"gen_ai.tool.name": "", "gen_ai.tool.call.result": "", "n": [None, [None]], "m": {"": None}}),
        model_call(3, **{"gen_ai.input.messages": [], "gen_ai.output.messages": {}, "gen_ai.request.model": None}),
        model_call(4, **{"gen_ai.input.messages": "[]", "gen_ai.output.messages": "null", "gen_ai.prompt": ""}),
        Span(TRACE, f"{5:016x}"),
    ],
    "repeated keys": [
        tool(1, attributes={"gen_ai.tool.name": "last", DUPLICATES: [["gen_ai.tool.name", "first"], ["k", 1]], "k": "2"}),
        tool(2, attributes={"m": {"a": 2, DUPLICATES: [["a", 1]]}, "gen_ai.tool.call.arguments": '{"a":1,"a":2}'}),
    ],
    "a key that is both a value and a parent": [
        tool(1, attributes={"a.b": "value", "a.b.c": "child", "a": {"b": {"c": "inner"}}}),
        model_call(2, **{"gen_ai.prompt": "whole", "gen_ai.prompt.0": "scalar", "gen_ai.prompt.0.role": "user",
                         "gen_ai.prompt.0.role.x": "deep", "gen_ai.prompt.*": "the name that the family has in a row"}),
        model_call(3, **{"gen_ai.completion.0.content": "x", "gen_ai.completion.0.content.y": "z",
                         "gen_ai.completion.0.content.y.z": ["deep"]}),
    ],
    "keys named like fields of the store": [
        tool(1, status_code=2, status_message="s" * 5_000, name="n" * 5_000, attributes=dict.fromkeys(
            ("name", "status_message", "error", "body", "events.0.x", "resource.schema_url", "scope.name",
             "resource.attributes.x", "attributes.name"), "v" * 5_000)),
        tool(2, attributes={"name": "v" * 5_000, "status_message": "w" * 5_000, "events.0.x": "y" * 5_000},
             resource=Resource({"x": "r" * 5_000}), events=[Event(1, "e", {"x": "z" * 5_000})]),
    ],
    "keys named like our tags": [
        tool(1, attributes={"$content": 0, "m": {"$content": 5}, "$bytes": "no", "n": {"$bytes": "zz"}, "$$content": 1,
                            "gen_ai.tool.call.result": {"$double": "x", "$invalid": {"$content": 0}}, DUPLICATES: "mine"}),
    ],
    "surprising types": [
        model_call(2, **{"gen_ai.output.messages": [1, None, {"role": None, "parts": "x"}, [[]]]}),
        model_call(3, **{"gen_ai.input.messages": {"role": {"a": 1}, "content": {"b": [2]}}}),
        model_call(4, **{"gen_ai.output.messages": '[{"role":"assistant","parts":[{"type":"tool_call","name":{"a":1}}]}]'}),
        tool(5, attributes={"gen_ai.tool.name": {"a": 1}, "gen_ai.tool.call.arguments": [1, {"b": math.nan}]}),
        tool(6, attributes={"gen_ai.tool.call.result": 5, "gen_ai.tool.call.arguments": True, "gen_ai.agent.name": 7}),
        tool(7, attributes={"blackboard.run.name": [1], "user.id": {}, "gen_ai.tool.call.result": False}),
        model_call(8, **{"gen_ai.response.id": 7, "gen_ai.provider.name": 1.5, "gen_ai.response.model": True}),
    ],
    # numbers
    "huge counts": [
        model_call(1, **{"gen_ai.usage.input_tokens": 2**63 - 1, "gen_ai.usage.output_tokens": -5}),
        model_call(2, **{"gen_ai.usage.input_tokens": "134", "gen_ai.usage.output_tokens": 12.0}),
        model_call(3, **{"gen_ai.usage.input_tokens": str(2**63), "gen_ai.usage.output_tokens": 1.5}),
        model_call(4, **{"gen_ai.usage.input_tokens": "9" * 10_000, "gen_ai.usage.output_tokens": "-1"}),
        *(model_call(n, **{"gen_ai.usage.input_tokens": 2**53 - 1, "gen_ai.usage.output_tokens": 2**40})
          for n in range(5, 12)),
        tool(12, attributes={"blackboard.pass.seq": "x", "blackboard.call.seq": 2**60, "blackboard.cost.usd": "1e999"}),
        tool(13, attributes={"blackboard.loop.iteration": 5_000_000_000, "blackboard.pass.seq": 2**32}),
        tool(14, attributes={"blackboard.pass.seq": -1, "blackboard.pass.attempt": 0, "blackboard.cost.usd": "-1"}),
        tool(15, dropped_attributes_count=2**32 - 1, dropped_events_count=2**32 - 1, flags=2**32 - 1),
    ],
    "a flattened index of any size": [
        model_call(1, **{"gen_ai.prompt.2147483647.content": "late", "gen_ai.prompt.0.content": "first"}),
        model_call(2, **{f"gen_ai.completion.{10**30}.content": "x", "gen_ai.completion.-1.content": "y"}),
        model_call(3, **{"gen_ai.prompt.1².content": "x", "gen_ai.completion.¹.content": "y", "gen_ai.prompt.٣.role": "z"}),
        model_call(4, **{"gen_ai.prompt.0." + "a." * 500 + "b": "deep", "gen_ai.prompt.0.tool_calls.2147483647.name": "t"}),
    ],
    "unknown enums": [tool(1, kind=99), tool(2, status_code=77), tool(3, kind=-1), tool(4, kind=2**31 - 1)],
    # times
    "no times": [tool(1, start_ns=0, end_ns=0), tool(2, start_ns=0), tool(3, end_ns=0)],
    "absurd times": [
        tool(1, start_ns=LATEST, end_ns=LATEST, events=[Event(LATEST, "late"), Event(0, "none"), Event(2**63, "sign")]),
        tool(2, start_ns=2**63, end_ns=2**63 + 1),
        tool(3, start_ns=2**63 - 1, end_ns=LATEST),
        tool(4, start_ns=1, end_ns=2),
        tool(5, start_ns=START + 100 * 365 * 86_400 * 10**9, end_ns=START + 101 * 365 * 86_400 * 10**9),
    ],
    "end before start": [tool(1, start_ns=START, end_ns=START - 10**9), tool(2, start_ns=LATEST, end_ns=1)],
    "150 days": FAR_APART,
    # trees
    "own parent": [tool(1, parent=1)],
    "cycle": [tool(1, parent=3), tool(2, parent=1), tool(3, parent=2), tool(4, parent=3)],
    "a cycle of every role": [
        replace(model_call(1), parent_span_id=f"{3:016x}"),
        tool(2, parent=1, attributes={"blackboard.span.role": "step", "gen_ai.agent.name": "a"}),
        tool(3, parent=2, attributes={"blackboard.span.role": "flow_run"}),
    ],
    "parents that never come": [tool(n, parent=1000 + n) for n in range(1, 20)],
    "deep parents": [tool(n, parent=n - 1) for n in range(1, 300)],
    "contradictory stamps": [
        tool(n, attributes={
            "blackboard.span.role": role, "blackboard.step.id": step, "blackboard.pass.seq": seq,
            "blackboard.pass.attempt": attempt, "blackboard.call.seq": call, "gen_ai.operation.name": "chat"})
        for n, (role, step, seq, attempt, call) in enumerate([
            ("tool_invocation", "s", 1, 1, 1), ("tool_invocation", "s", 1, 1, 1), ("provider_call", "s", 1, 2, 1),
            ("step", "s", 7, 9, 3), ("step", "t", 7, 9, 3), ("flow_run", "s", 1, 1, 0), ("flow_run", "t", 2, 1, 0),
            ("guard", "", 0, 0, 0), ("no such role", "s", 1, 1, 2),
        ], 1)
    ],
    "one response id everywhere": [
        model_call(n, **{"gen_ai.response.id": "r", "gen_ai.usage.input_tokens": 5}) for n in range(1, 30)
    ],
    # sizes
    "JSON text 50,000 levels deep": [
        tool(1, attributes={"gen_ai.tool.call.arguments": DEEP, "gen_ai.tool.call.result": DEEP, "x": DEEP}),
        model_call(2, **{"gen_ai.input.messages": DEEP, "gen_ai.output.messages": DEEP}),
        model_call(3, **{"gen_ai.input.messages": '{"a":' * 50_000, "gen_ai.output.messages": '"' + '\\"' * 50_000}),
    ],
    "deeper than can be written": [
        model_call(1, **{"gen_ai.output.messages": DEEP_IN_PART}),
        model_call(2, **{"gen_ai.input.messages": DEEP_IN_PART, "gen_ai.system_instructions": "[" * 300 + "]" * 300}),
        tool(3, attributes={"gen_ai.tool.call.arguments": "[" * 300 + "]" * 300}),
        tool(4, attributes={"gen_ai.tool.call.result": '{"summary":' * 300 + '"x"' + "}" * 300}),
        model_call(5, **{"gen_ai.prompt.0." + "1." * 300 + "x": DEEP_IN_PART}),
    ],
    "values of a hundred levels": [
        model_call(1, **{"gen_ai.input.messages": nested(99), "gen_ai.output.messages": nested(99)}),
        tool(2, attributes={"x": nested(99), "gen_ai.tool.call.arguments": nested(99)}, events=[
            Event(1, "gen_ai.choice", {"message": nested(99)})]),
    ],
    "10 MB": [tool(1, attributes={"gen_ai.tool.call.result": "x" * 10_000_000, "note": "y" * 1_000_000})],
    "129 attributes": [tool(1, attributes={f"k{n}": n for n in range(127)})],
    "5,000 attributes": [tool(1, attributes={f"k{n}": n for n in range(5_000)})],
    "long keys": [tool(1, attributes={f"{n}" + "k" * 100_000: "v" for n in range(20)})],
    "long names": [
        tool(1, name="n" * 100_000, attributes={"gen_ai.tool.name": "t" * 100_000, "user.id": "u" * 100_000},
             trace_state="s" * 100_000, status_code=2, status_message="m" * 100_000),
    ],
    "white space first": [tool(1, attributes={"gen_ai.tool.call.result": " " * 20_000 + "hello"})],
    "100,000 events": [tool(1, events=[Event(START + n, "e", {"n": n}) for n in range(100_000)])],
    "10,000 links": [tool(1, links=[Link(f"{n:032x}", f"{n:016x}") for n in range(1, 10_001)])],
    "events and links": [
        tool(1, events=[Event(LATEST, "exception", {"exception.message": None}), Event(0, "gen_ai.choice", {"message": 5})]),
        tool(2, links=[Link(TRACE, ""), Link("", ""), Link("a" * 32, "b" * 16, attributes={"x": b"1", "": None})]),
        model_call(3, x=1),
    ],
    "nothing": [],
}  # fmt: skip

OPERATIONS = ("execute_tool", "chat", "invoke_agent")
FACTS = [key for key in KEYS if not key.endswith(".*")]
TOLD = [FACTS] * 3 + [[key for key in FACTS if key in keys_of(known)] for known in BY_FIELD]
"""Those of all dialects, and those of each alone: a span is a call by one dialect and nothing by another."""
SPANS |= {
    f"every fact {name}": [
        tool(
            n,
            attributes=dict.fromkeys(keys, value)
            | {"gen_ai.operation.name": OPERATIONS[n % 3], "blackboard.run.id": f"run_{TRACE}"},
        )
        for n, keys in enumerate(TOLD, 1)
    ]
    for name, value in {
        "a list": ["a", 1, None], "a map": {"a": {}}, "bytes": b"\xff", "not UTF-8": InvalidText(b"\xff"), "true": True,
        "a fraction": -1.5, "NUL": "\0", "JSON of another type": '[[],{"role":[],"content":{"a":[null]}},"a",null,5]',
    }.items()
}  # fmt: skip

ASKED = 3
"""Spans of a kind whose attributes are compared with what was sent."""


def requests_of(spans: Sequence[Span], content_type: str, project_id: str) -> list[Sent]:
    """These spans with a good one beside them, and a good log record."""
    write = otlp.protobuf if content_type == PROTOBUF else otlp.as_json
    resource = project(project_id)
    placed = [
        replace(span, resource=replace(span.resource, attributes=resource.attributes | span.resource.attributes))
        if span.resource.attributes
        else replace(span, resource=resource)
        for span in [*spans, good_span()]
    ]
    return [
        ("traces", content_type, write(placed)),
        ("logs", content_type, write([replace(good_log(), resource=resource)])),
    ]


AT_THE_STORES = """not UTF-8 in values; not UTF-8 in facts; not UTF-8 in names and keys; lone surrogates; NUL; huge counts;
    unknown enums; no times; absurd times; end before start; 150 days; 10 MB; 5,000 attributes; long keys; long names"""
"""Kinds that a ClickHouse over the wire and an S3 store could take otherwise than the embedded pair."""


@ON_ONE_PAIR
@pytest.mark.parametrize("kind", SPANS)
def test_a_bad_span_costs_that_span_at_most(doors: Doors, kind: str) -> None:
    found = send_and_read(doors, kind, *requests_of(SPANS[kind], JSON, f"{kind} as JSON"))
    from_json = read_shortly(doors, f"{kind} as JSON")
    assert comparable(from_json) == comparable({name: found[name] for name in from_json})
    for span in SPANS[kind][:ASKED]:
        path = f"/runs/run_{TRACE}/spans/{span.span_id}"
        assert comparable(doors.get(path, f"{kind} as JSON")) == comparable(found[path])


@pytest.mark.parametrize("stores", ["wire"], indirect=True)
@pytest.mark.parametrize("kind", [kind.strip() for kind in AT_THE_STORES.split(";")])
def test_a_bad_span_costs_that_span_at_most_over_the_wire(doors: Doors, kind: str) -> None:
    send_and_read(doors, kind)


def send_and_read(doors: Doors, kind: str, *beside: Sent) -> dict[str, Any]:
    bad, before = SPANS[kind], doors.stores.exporter.derivation_failures
    assert set(doors.send(*requests_of(bad, PROTOBUF, kind), *beside)) == {(0, "")}
    assert doors.stores.exporter.derivation_failures == before
    found = read_everything(doors, kind)
    assert found["run"]["span_count"] == len(bad) + 1
    assert "good" in [artifact["summary"] for artifact in found["artifacts"]["artifacts"]]
    good = doors.get(f"/runs/run_{TRACE}/spans/{GOOD:016x}", kind)
    assert [log["event_name"] for log in good["logs"]] == ["app.note"]
    for span in bad[:ASKED]:
        path = f"/runs/run_{TRACE}/spans/{span.span_id}"
        detail = found[path] = doors.get(path, kind)
        assert said(restore(detail["attributes"])) == said(span.attributes)
        assert detail["name"] == otlp.readable(span.name)
        assert (detail["start_time_unix_nano"], detail["end_time_unix_nano"]) == (str(span.start_ns), str(span.end_ns))
        for name, sent in (("events", span.events), ("links", span.links)):
            assert [said(restore(each["attributes"])) for each in detail[name]] == [
                said(each.attributes) for each in sent
            ]
    return found


# ---- what only one of the encodings can say ----

LEVELS = 50_000


def deep_value(levels: int) -> bytes:
    """An AnyValue in protobuf, written by hand: the library refuses to write as much as it refuses to read."""
    raw = b""
    for _ in range(levels):
        raw = b"\x2a" + _varint(len(raw) + 1 + len(_varint(len(raw)))) + b"\x0a" + _varint(len(raw)) + raw
    return raw


def _varint(number: int) -> bytes:
    found = b""
    while number > 127:
        found += bytes([number & 127 | 128])
        number >>= 7
    return found + bytes([number])


def too_deep(value: Any) -> str:
    """What stands at the end of lists in lists."""
    while isinstance(value, list):
        (value,) = value
    return str(value)


@ON_ONE_PAIR
def test_a_value_nested_without_end_is_cut_and_marked(doors: Doors) -> None:
    """From protobuf and JSON alike."""
    attribute = b"\x0a\x01k\x12" + _varint(len(deep := deep_value(LEVELS))) + deep
    request = wire.ExportTraceServiceRequest()
    by_resource = request.resource_spans.add(resource={"attributes": [_attribute_bytes("deep 1")]})
    spans = by_resource.scope_spans.add().spans
    spans.add(trace_id=bytes.fromhex(TRACE), span_id=bytes([1] * 8), attributes=[attribute])
    spans.add(trace_id=bytes.fromhex(TRACE), span_id=bytes([2] * 8), name=b"good")
    text = b'"attributes":[{"key":"k","value":' + b'{"arrayValue":{"values":[' * LEVELS + b"]}}" * LEVELS + b"}]"
    assert doors.send(
        ("traces", PROTOBUF, request.SerializeToString()), ("traces", JSON, json_request("deep 2", text))
    ) == [(0, "")] * 2  # fmt: skip
    shown = [doors.get(f"/runs/run_{TRACE}/spans/{'01' * 8}", f"deep {n}")["attributes"] for n in (1, 2)]
    assert shown[0] == shown[1] and too_deep(shown[0]["k"]) == TOO_DEEP
    for n in (1, 2):
        assert doors.get(f"/runs/run_{TRACE}", f"deep {n}")["span_count"] == 2


def _attribute_bytes(project_id: str) -> bytes:
    return bytes(wire.KeyValue(key=b"blackboard.project.id", value=otlp.value_bytes(project_id)).SerializeToString())


def json_request(project_id: str, members: bytes) -> bytes:
    """Two spans as JSON text: one with these members beside its ids (the last of one name counts), and a good one."""
    resource = json.dumps({"attributes": [{"key": "blackboard.project.id", "value": {"stringValue": project_id}}]})
    bad, good = (
        json.dumps({"traceId": TRACE, "spanId": digits * 8, "name": name}).removesuffix("}")
        for digits, name in (("01", "bad"), ("02", "good"))
    )
    return b'{"resourceSpans":[{"resource":%s,"scopeSpans":[{"spans":[%s%s},%s}]}]}]}' % (
        resource.encode(), bad.encode(), b"," + members if members else b"", good.encode(),
    )  # fmt: skip


def one_value(value: bytes) -> bytes:
    return b'"attributes":[{"key":"k","value":' + value + b"}]"


JSON_SPANS: dict[str, tuple[bytes, dict[str, Value] | None]] = {
    # members of the span, and the attributes that it is stored with; None = it is rejected, alone
    "raw bytes that are not UTF-8": (one_value(b'{"stringValue":"a\xffb"}'), {"k": InvalidText(b"a\xffb")}),
    "half a surrogate pair": (one_value(b'{"stringValue":"\\ud83d"}'), {"k": InvalidText(b"\xed\xa0\xbd")}),
    "half a surrogate pair in a key": (b'"attributes":[{"key":"\\ud800","value":{}}]', {"\\xed\\xa0\\x80": None}),
    "a raw NUL": (one_value(b'{"stringValue":"\0"}'), {"k": "\0"}),
    "NUL as text": (one_value(b'{"stringValue":"\\u0000 \\\\u0000"}'), {"k": "\0 \\u0000"}),
    "a bare NaN": (one_value(b'{"doubleValue":NaN}'), {"k": math.nan}),
    "bare infinities": (one_value(b'{"arrayValue":{"values":[{"doubleValue":-Infinity},{"doubleValue":1e999}]}}'),
                        {"k": [-math.inf, math.inf]}),
    "NaN as text and as null": (one_value(b'{"arrayValue":{"values":[{"doubleValue":"NaN"},{"doubleValue":null}]}}'),
                                {"k": [math.nan, math.nan]}),
    "a number of 5,000 digits": (one_value(b'{"intValue":' + b"9" * 5_000 + b"}"), {"k": "9" * 5_000}),
    "a key twice": (b'"attributes":[{"key":"k","value":{"intValue":1}},{"key":"k","value":{"intValue":2}}]',
                    {"k": 2, DUPLICATES: [["k", 1]]}),
    "a member twice": (b'"name":"x","name":"bad","attributes":[],"attributes":[{"key":"k"}]', {"k": None}),
    "null everywhere": (b'"parentSpanId":null,"kind":null,"startTimeUnixNano":null,"endTimeUnixNano":null,"attributes":null,'
                        b'"events":null,"links":null,"status":null,"traceState":null,"flags":null', {}),
    "null inside": (b'"events":[{"timeUnixNano":null,"name":null,"attributes":null}],"links":[{"traceId":null}],'
                    b'"status":{"code":null,"message":null}', {}),
    "times below zero and beyond 64 bits": (b'"startTimeUnixNano":-1,"endTimeUnixNano":"99999999999999999999999"', {}),
    "times that are fractions": (b'"startTimeUnixNano":1.79e18,"endTimeUnixNano":"1.79e18"', {}),
    "counts below zero and beyond 32 bits": (b'"droppedAttributesCount":-1,"droppedEventsCount":1e300,"flags":-5', {}),
    "enums of tomorrow": (b'"kind":"SPAN_KIND_OF_TOMORROW","status":{"code":-7}', {}),
    "ids in base64": (b'"traceId":"n4I0wrXQoefzZIuS1cAadw==","spanId":"AQEBAQEBAQE="', {}),
    "ids in base64 of another length": (b'"traceId":"n4I0wrXQoefzZIuS1cAa"', None),
    "unknown members": (b'"futureField":{"a":[1]},"attributes":[{"key":"k","value":{"futureValue":1}}]', {"k": None}),
    "an unknown member 50,000 deep": (b'"future":' + b"[" * LEVELS + b"]" * LEVELS, {}),
    "brackets where a value belongs": (one_value(b"[" * LEVELS + b"]" * LEVELS), None),
    "text where a number belongs": (b'"startTimeUnixNano":"noon"', None),
    "a bare NaN where a number belongs": (b'"startTimeUnixNano":NaN', None),
    "an object where text belongs": (b'"name":{}', None),
    "half a surrogate pair as an id": (b'"spanId":"\\ud800"', None),
    "an id that is not UTF-8": (b'"traceId":"\xff\xfe"', None),
    "an id with slashes": (b'"traceId":"../../../../../../etc/passwd.."', None),
    "an id of blanks": (b'"spanId":"                "', None),
    "an id of 4 KB": (b'"spanId":"' + b"01" * 2_048 + b'"', None),
    "an id that is a number": (b'"spanId":1', None),
    "no id": (b'"spanId":""', None),
}  # fmt: skip


@ON_ONE_PAIR
@pytest.mark.parametrize("kind", JSON_SPANS)
def test_a_bad_span_in_json_costs_that_span_at_most(doors: Doors, kind: str) -> None:
    members, expected = JSON_SPANS[kind]
    [(rejected, message)] = doors.send(("traces", JSON, json_request(f"json {kind}", members)))
    assert rejected == (expected is None)
    assert ("scopeSpans[0].spans[0]" in message) == (expected is None)
    shown = doors.get(f"/runs/run_{TRACE}/timeline", f"json {kind}")["spans"]
    assert sorted(span["name"] for span in shown) == ["bad"] * (expected is not None) + ["good"]
    if expected is not None:
        detail = doors.get(f"/runs/run_{TRACE}/spans/{'01' * 8}", f"json {kind}")
        assert said(restore(detail["attributes"])) == said(expected)


BAD_IDS = {
    "no trace id": ("", f"{1:016x}"),
    "a short trace id": ("ab", f"{1:016x}"),
    "a long trace id": (TRACE + "00", f"{1:016x}"),
    "a trace id of zeros": ("0" * 32, f"{1:016x}"),
    "a trace id of 4 KB": ("ab" * 4096, f"{1:016x}"),
    "no span id": (TRACE, ""),
    "a span id as long as a trace id": (TRACE, TRACE),
    "a span id of zeros": (TRACE, "0" * 16),
}


@ON_ONE_PAIR
@pytest.mark.parametrize("kind", BAD_IDS)
def test_a_span_without_usable_ids_is_rejected_alone(doors: Doors, kind: str) -> None:
    bad = tool(1)
    bad.trace_id, bad.span_id = BAD_IDS[kind]
    answers = doors.send(*requests_of([bad], PROTOBUF, f"{kind} 1"), *requests_of([bad], JSON, f"{kind} 2"))
    assert [rejected for rejected, _ in answers] == [1, 0, 1, 0]
    for n in (1, 2):
        assert "spans[0] 'execute_tool lookup'" in answers[2 * (n - 1)][1]
        assert doors.get(f"/runs/run_{TRACE}", f"{kind} {n}")["span_count"] == 1


PROTOBUF_SPANS: dict[str, dict[str, Any]] = {
    "an attribute that is no protobuf": {"attributes": [b"\x0a\x01k\x12\x03\x0a\xff\xff"]},
    "an attribute cut short": {"attributes": [b"\x0a\x05k"]},
    "noise for an attribute": {"attributes": [bytes(range(255, 0, -1))]},
    "a broken attribute of an event": {"events": [{"attributes": [b"\xff"]}]},
    "a broken value in a list": {"attributes": [b"\x0a\x01k\x12\x07\x2a\x05\x0a\x03\x0a\xff\xff"]},
}


@ON_ONE_PAIR
@pytest.mark.parametrize("kind", PROTOBUF_SPANS)
def test_a_span_that_cannot_be_decoded_is_rejected_alone(doors: Doors, kind: str) -> None:
    request = wire.ExportTraceServiceRequest()
    by_resource = request.resource_spans.add(resource={"attributes": [_attribute_bytes(kind)]})
    spans = by_resource.scope_spans.add().spans
    spans.add(trace_id=bytes.fromhex(TRACE), span_id=bytes([1] * 8), name=b"bad", **PROTOBUF_SPANS[kind])
    spans.add(trace_id=bytes.fromhex(TRACE), span_id=bytes([2] * 8), name=b"good")
    [(rejected, message)] = doors.send(("traces", PROTOBUF, request.SerializeToString()))
    assert rejected == 1 and "spans[0] 'bad'" in message
    assert [span["name"] for span in doors.get(f"/runs/run_{TRACE}/timeline", kind)["spans"]] == ["good"]


# ---- log records ----

LOGS: dict[str, LogRecord] = {
    "no ids": LogRecord(body="text"),
    "a trace id and no span id": LogRecord(TRACE, "", START, event_name="note", body="x"),
    "a span that never comes": LogRecord(TRACE, "f" * 16, START, event_name="gen_ai.choice", body="x"),
    "no times": LogRecord(TRACE, f"{1:016x}", 0, 1, event_name="gen_ai.choice", body={"message": None}),
    "the last nanosecond": LogRecord(TRACE, f"{1:016x}", LATEST, LATEST, 2**31 - 1, event_name="gen_ai.choice", body="x"),
    "a body of any kind": LogRecord(TRACE, f"{1:016x}", START, event_name="gen_ai.choice", body=[1, b"\xff", math.nan]),
    "no body": LogRecord(TRACE, f"{1:016x}", START, event_name="gen_ai.choice"),
    "not UTF-8": LogRecord(
        TRACE, f"{1:016x}", START, severity_text="s\udcff", event_name="gen_ai.user.message", body=InvalidText(b"\xff"),
        attributes={"k\udcff": InvalidText(b"\xff")}),
    "NUL": LogRecord(TRACE, f"{1:016x}", START, event_name="gen_ai.user.message", body={"content": "\0", "\0": "\0"}),
    "deep arguments": LogRecord(
        TRACE, f"{1:016x}", START, event_name="gen_ai.choice", body={"message": {"content": DEEP_IN_PART}}),
    "deep text": LogRecord(TRACE, f"{1:016x}", START, event_name="gen_ai.user.message", body=DEEP),
    "a deep body": LogRecord(TRACE, f"{1:016x}", START, event_name="gen_ai.choice", body=nested(99)),
    "an attribute named body": LogRecord(
        TRACE, f"{1:016x}", START, event_name="gen_ai.choice", body={"content": "said"}, attributes={"body": "b" * 9_000}),
    "details of surprising types": LogRecord(
        TRACE, f"{1:016x}", START, event_name="gen_ai.client.inference.operation.details",
        attributes={key: ["a", {"b": None}] for key in FACTS}),
    "10 MB": LogRecord(TRACE, f"{1:016x}", START, event_name="gen_ai.choice", body="x" * 10_000_000),
}  # fmt: skip


@ON_ONE_PAIR
@pytest.mark.parametrize("kind", LOGS)
def test_a_bad_log_record_costs_itself_at_most(doors: Doors, kind: str) -> None:
    before = doors.stores.exporter.derivation_failures
    requests: list[Sent] = []
    for n, (content_type, write) in enumerate(((PROTOBUF, otlp.protobuf), (JSON, otlp.as_json)), 1):
        resource = project(f"log {kind} {n}")
        bad, good = replace(LOGS[kind], resource=resource), replace(good_log(), resource=resource)
        call, good_one = model_call(1), good_span()
        call.resource = good_one.resource = resource
        requests += [("traces", content_type, write([call, good_one])), ("logs", content_type, write([bad, good, bad]))]
    assert doors.send(*requests) == [(0, "")] * 4
    assert doors.stores.exporter.derivation_failures == before
    found = read_everything(doors, f"log {kind} 1")
    from_json = read_shortly(doors, f"log {kind} 2")
    assert comparable(from_json) == comparable({name: found[name] for name in from_json})
    assert found["run"]["span_count"] == 2
    loose = kind in ("a trace id and no span id", "a span that never comes")
    assert len(found["timeline"]["logs"]) == loose
    for span_id, expected in ((1, not loose and kind != "no ids"), (GOOD, True)):
        detail = doors.get(f"/runs/run_{TRACE}/spans/{span_id:016x}", f"log {kind} 1")
        assert len(detail["logs"]) == expected
    if kind == "an attribute named body":
        [output] = [each for each in found["artifacts"]["artifacts"] if each["kind"] == "agent_output"]
        assert output["summary"] == "said"


def test_a_trace_of_log_records_alone_is_no_run_and_harms_none(doors: Doors) -> None:
    loose = LogRecord(
        OTHER_TRACE, f"{1:016x}", START, event_name="gen_ai.choice", body="x", resource=project("empty trace")
    )
    assert doors.send(*requests_of([], PROTOBUF, "empty trace"), ("logs", JSON, otlp.as_json([loose])))[2] == (0, "")
    assert doors.get("/runs", "empty trace", all="true")["count"] == 1
    assert doors.api.get(f"/api/v1/runs/run_{OTHER_TRACE}", params={"project_id": "empty trace"}).status_code == 404
    read_everything(doors, "empty trace")


# ---- ids ----

IDS = {
    "slash": "a/b", "dots": "..", "a path": "../../etc/passwd", "a space": "with space", "blanks": "  ", "4 KB": "x" * 4096,
    "not ASCII": "é", "two lines": "a\nb", "percent": "%2e%2e", "a query": "a?b=c&d#e", "NUL": "a\0b", "quotes": "'\"`\\",
    "a template": "{organization:String}", "glob": "*?[a]", "a backslash": "..\\..\\x", "not a character": "\ufffe\uffff",
    "right to left": "\u202ea", "half as escape": "\\ud800",
}  # fmt: skip
OF_PLACE = ("blackboard.step.id", "gen_ai.agent.name", "gen_ai.conversation.id", "blackboard.use_case.id", "user.id")
_SAFE_KEY = re.compile(
    r"(?:[a-z0-9_-]{1,64}|x[0-9a-f]{64})(?:/(?:[a-z0-9_-]{1,64}|x[0-9a-f]{64})){2}/[0-9-]{10}/[0-9a-z]{26}\.pack"
)


@ON_ONE_PAIR
@pytest.mark.parametrize("kind", IDS)
def test_any_text_can_be_a_project_a_run_a_step_an_agent(doors: Doors, kind: str) -> None:
    """Tenant ids of at most 256 characters: a longer one rejects its span."""
    send_and_ask_by(doors, IDS[kind])


@pytest.mark.parametrize("stores", ["wire"], indirect=True)
@pytest.mark.parametrize(
    "kind", ["a path", "4 KB", "two lines", "percent", "NUL", "quotes", "a template", "a backslash"]
)
def test_any_text_can_be_a_project_a_run_a_step_an_agent_over_the_wire(doors: Doors, kind: str) -> None:
    send_and_ask_by(doors, IDS[kind])


def send_and_ask_by(doors: Doors, text: str) -> None:
    tenant = text if len(text) <= 256 else "long"
    attributes: dict[str, Value] = dict.fromkeys(OF_PLACE, text)
    attributes |= {"blackboard.run.id": text, "gen_ai.tool.name": text, "gen_ai.tool.call.result": "kept"}
    resource = project(tenant, **{"blackboard.organization.id": tenant})
    spans = [
        tool(1, attributes=attributes, resource=resource),
        tool(2, attributes={"blackboard.project.id": "p" * 4096}, resource=resource),
    ]
    [(rejected, _)] = doors.send(("traces", PROTOBUF, otlp.protobuf(spans)))
    assert rejected == 1
    organization = {"organization_id": tenant}
    [run] = doors.get("/runs", tenant, **organization)["runs"]
    assert run["original_run_id"] in (None, text)
    assert run["run_id"] == text or (re.fullmatch("run_[0-9a-f]{32}", run["run_id"]) and run["original_run_id"] == text)
    assert (run["conversation_id"], run["use_case_id"], run["user_id"]) == (text,) * 3
    assert run["agents"] == [text]
    base = f"/runs/{run['run_id']}"
    [span] = doors.get(f"{base}/timeline", tenant, **organization)["spans"]
    assert text in (span["step_id"], span["labels"].get("original_step_id"))
    assert (span["agent_id"], span["tool_name"]) == (text, text[:1024])
    [artifact] = doors.get(f"{base}/artifacts", tenant, kind="tool_result", **organization)["artifacts"]
    assert (artifact["summary"], artifact["agent_id"], artifact["project_id"]) == ("kept", text, tenant)
    for name in ("agent_id", "conversation_id", "use_case_id"):
        assert doors.get("/runs", tenant, **organization, **{name: text})["count"] == 1
    for name, value in (("agent_id", text), ("step_id", span["step_id"])):
        assert doors.get(f"{base}/artifacts", tenant, kind="tool_result", **organization, **{name: value})["count"] == 1
    detail = doors.get(f"{base}/spans/{span['span_id']}", tenant, **organization)
    assert said(restore(detail["attributes"])) == said(spans[0].attributes)
    artifact = doors.get(f"{base}/artifacts/{artifact['artifact_id']}", tenant, **organization)
    assert artifact["body"] == "kept"
    assert doors.get(f"{base}/ledger", tenant, agent_id=text, **organization)["lines"]
    keys = [each.key for each in doors.stores.bodies.list(pack_prefix(Tenant(tenant, tenant)))]
    assert keys and all(_SAFE_KEY.fullmatch(key) for key in keys)


@ON_ONE_PAIR
@pytest.mark.parametrize("text", [text for kind, text in IDS.items() if kind not in ("4 KB", "dots")])
def test_an_address_of_any_text_names_nothing_else(doors: Doors, text: str) -> None:
    """Percent-encoded, as a client does: 404, never a 500 and never another's run. (Dots a client resolves itself.)"""
    doors.send(*requests_of([], PROTOBUF, "addresses"))
    quoted = urllib.parse.quote(text, safe="")
    for path in (f"/runs/{quoted}", f"/runs/run_{TRACE}/spans/{quoted}", f"/runs/run_{TRACE}/artifacts/{quoted}"):
        answer = doors.api.get(f"/api/v1{path}", params={"project_id": "addresses"})
        assert answer.status_code == 404, (path, answer.text)


def test_equal_ids_in_two_projects_and_two_traces_never_meet(doors: Doors) -> None:
    requests = []
    for name in ("one", "two"):
        for trace_id in (TRACE, OTHER_TRACE):
            result = {"gen_ai.tool.call.result": f"{name} {trace_id[:4]}", "blackboard.run.id": "run_same"}
            span = tool(7, attributes=result, trace_id=trace_id, resource=project(name))
            requests.append(("traces", PROTOBUF, otlp.protobuf([span])))
    doors.send(*requests)
    for name in ("one", "two"):
        found = read_everything(doors, name, "run_same")
        summaries = [artifact["summary"] for artifact in found["artifacts"]["artifacts"]]
        assert sorted(each for each in summaries if "lookup" not in each) == [f"{name} 0000", f"{name} 9f82"]
        for trace_id in (TRACE, OTHER_TRACE):
            detail = doors.get(f"/runs/run_same/spans/{7:016x}", name, trace_id=trace_id)
            assert detail["attributes"]["gen_ai.tool.call.result"] == f"{name} {trace_id[:4]}"


# ---- whole requests ----

BOMB = bytes(60_000_000)


@ON_ONE_PAIR
@pytest.mark.parametrize(
    ("encoding", "compress"), [("gzip", gzip.compress), ("deflate", zlib.compress), ("zstd", zstd.compress)]
)
def test_a_bomb_of_60_mb_is_refused_over_http(doors: Doors, encoding: str, compress: Any) -> None:
    bomb = compress(BOMB)
    for signal in ("traces", "logs"):
        for content_type in (PROTOBUF, JSON):
            answer = doors.post(signal, content_type, bomb, **{"content-encoding": encoding})
            assert (answer.status_code, "larger than" in answer.text) == (413, True)
    assert doors.send(*requests_of([], PROTOBUF, f"after the {encoding} bomb"))[0] == (0, "")


@ON_ONE_PAIR
@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_a_bomb_of_60_mb_is_refused_over_grpc(doors: Doors, compression: Any) -> None:
    for signal in ("traces", "logs"):
        code, message = doors.call(signal, BOMB, compression)
        assert code == "INVALID_ARGUMENT" and "larger than" in message
    # Beyond twice our own limit grpc itself stops.
    assert doors.call("traces", bytes(110_000_000), compression)[0] == "RESOURCE_EXHAUSTED"
    assert doors.call("traces", requests_of([], PROTOBUF, "after a gRPC bomb")[0][2], compression)[0] == "OK"


@ON_ONE_PAIR
@pytest.mark.parametrize("brackets", [b"[" * LEVELS + b"]" * LEVELS, b'{"a":' * LEVELS + b"1" + b"}" * (LEVELS - 1)])
def test_a_body_of_brackets_is_the_senders_fault(doors: Doors, brackets: bytes) -> None:
    for signal in ("traces", "logs"):
        assert doors.post(signal, JSON, brackets).status_code == 400
        assert doors.post(signal, PROTOBUF, brackets).status_code == 400
        assert doors.call(signal, brackets)[0] == "INVALID_ARGUMENT"
    assert doors.send(*requests_of([], JSON, "after brackets"))[0] == (0, "")


def test_what_many_spans_share_is_held_once_and_shown_whole(doors: Doors) -> None:
    """A large resource or scope attribute is repeated in no row."""
    shared = project("shared", big="b" * 1_000_000, **{"service.name": "s"})
    scope = Scope("scope" * 2000, attributes={"x": "y" * 9000})
    spans = [tool(n, resource=shared, scope=scope, name="n" * 5000) for n in range(1, 301)]
    doors.send(("traces", PROTOBUF, otlp.protobuf(spans)))
    with doors.stores.reader._clients.client() as client:
        longest = client.query(
            "SELECT max(length(resource)), max(length(instrumentation_scope)), max(length(name)) FROM spans "
            "WHERE project_id = 'shared'"
        ).result_rows[0]
    assert max(longest) < 5000
    detail = doors.get(f"/runs/run_{TRACE}/spans/{7:016x}", "shared")
    assert detail["resource"]["attributes"] == shared.attributes
    assert (detail["scope"]["name"], detail["scope"]["attributes"]) == (scope.name, scope.attributes)
    assert detail["name"] == "n" * 5000
