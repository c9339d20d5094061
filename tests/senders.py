"""Agents that send while the service is killed under them. They send again what was not acknowledged, and remember all they sent.

A run is `Told`: what its requests say so far, and so what every reader must be shown of it.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import grpc
import httpx
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from otel_blackboard.records import LogRecord, Span
from tests.otlp import protobuf
from tests.running_service import RunningService
from tests.spans import DETAILS, START, Trace

_METHODS = {
    "traces": "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    "logs": "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
}
_ANSWERS = {"traces": ExportTraceServiceResponse, "logs": ExportLogsServiceResponse}
_WORDS = "tide harbour pilot mooring fog signal draught ebb flood quay notice chart".split()

Key = tuple[str, str]
"""(trace_id, span_id)"""


@dataclass(eq=False)
class Told:
    """One run: what has been acknowledged of it."""

    trace: Trace
    named: bool
    """Whether its root brings a run id; until the root comes the run is named by its trace."""
    root_with: int
    """The pass that its root comes with; each is a request."""
    spans: list[Span] = field(default_factory=list)
    logs: list[LogRecord] = field(default_factory=list)
    bodies: dict[tuple[str, str, str], bytes] = field(default_factory=dict)
    """(span id, kind, whether from 'span' or 'log') → the exact bytes."""

    @property
    def run_id(self) -> str:
        root = next((span for span in self.spans if "blackboard.span.role" in span.attributes), None)
        return f"run_{self.trace.name}" if root is not None and self.named else f"run_{self.trace.trace_id}"

    @property
    def counts(self) -> dict[str, int]:
        roles = [role_of(span) for span in self.spans]
        return {role: roles.count(role) for role in sorted(set(roles))}

    def usage(self, name: str) -> int:
        return sum(int(span.attributes.get(f"gen_ai.usage.{name}", 0)) for span in self.spans)


def role_of(span: Span) -> str:
    if "blackboard.span.role" in span.attributes:
        return str(span.attributes["blackboard.span.role"])
    return {"invoke_agent": "step", "chat": "provider_call", "execute_tool": "tool_invocation"}[span.name.split()[0]]


def pass_of(span: Span) -> int:
    """Passes begin ten seconds after each other; the root is in none."""
    return (span.start_ns - START) // 10**10


@dataclass
class Sending:
    """One request, and what it adds to its run once it is acknowledged."""

    signal: Literal["traces", "logs"]
    body: bytes
    told: Told
    spans: list[Span]
    logs: list[LogRecord]
    bodies: dict[tuple[str, str, str], bytes]


class Sender:
    """One exporter: it sends a request at a time, over HTTP or gRPC, and the next one once that is acknowledged."""

    def __init__(self, name: str, protocol: Literal["http", "grpc"], seed: int) -> None:
        self.name, self.protocol = name, protocol
        self.told: list[Told] = []
        self.acknowledged = 0
        self.refused: list[str] = []
        """Answers that were no acknowledgement."""
        self.touched: list[Told] = []
        """Runs that got something since a test emptied this."""
        self._random = random.Random(f"{seed} {name}")
        self._requests = self._make()
        self._pending: Sending | None = None

    def work(self, running: RunningService, stop: threading.Event) -> None:
        """Sends until it is told to stop."""
        with self._door(running) as post:
            while not stop.is_set():
                if not self._send(post):
                    stop.wait(0.05)

    def send_again(self, running: RunningService) -> None:
        """Sends what was not acknowledged, until it is."""
        deadline = time.monotonic() + 60
        with self._door(running) as post:
            while self._pending is not None and not self._send(post):
                assert time.monotonic() < deadline, self.refused[-3:]
                time.sleep(0.05)

    def _send(self, post: Callable[[Sending], str]) -> bool:
        self._pending = sending = self._pending or next(self._requests)
        problem = post(sending)
        if problem:
            self.refused.append(problem)
            return False
        told = sending.told
        told.spans += sending.spans
        told.logs += sending.logs
        told.bodies |= sending.bodies
        for runs in (self.told, self.touched):
            if told not in runs:
                runs.append(told)
        self.acknowledged += 1
        self._pending = None
        return True

    @contextlib.contextmanager
    def _door(self, running: RunningService) -> Iterator[Callable[[Sending], str]]:
        """What posts a request: '' = acknowledged, else why it was not."""
        if self.protocol == "http":
            with httpx.Client(timeout=60, headers={"content-type": "application/x-protobuf"}) as client:

                def over_http(sending: Sending) -> str:
                    try:
                        answer = client.post(f"{running.http}/v1/{sending.signal}", content=sending.body)
                    except httpx.TransportError as error:
                        return f"{type(error).__name__}: {error}"
                    if answer.status_code != 200:
                        hint = "with" if "retry-after" in answer.headers else "without"
                        return f"{answer.status_code} {hint} a hint: {answer.content[:300]!r}"
                    return _rejected(sending.signal, answer.content)

                yield over_http
        else:
            with grpc.insecure_channel(running.grpc) as channel:

                def over_grpc(sending: Sending) -> str:
                    try:
                        answer = channel.unary_unary(_METHODS[sending.signal])(sending.body, timeout=60)
                    except grpc.RpcError as error:
                        return f"{error.code()}: {error.details()}"  # type: ignore[attr-defined]
                    return _rejected(sending.signal, answer)

                yield over_grpc

    # ------------------------------------------------------------------------------------------------- what it says

    def _make(self) -> Iterator[Sending]:
        """Runs told in one request, one after another, between the passes of two runs that grow over many."""
        numbers = itertools.count()
        growing: list[Iterator[Sending]] = []
        while True:
            while len(growing) < 2:
                growing.append(self._run(next(numbers), self._random.randint(3, 12)))
            if self._random.random() < 0.4:
                yield from self._run(next(numbers), 1)
            place = self._random.randrange(2)
            try:
                yield next(growing[place])
            except StopIteration:
                del growing[place]

    def _run(self, number: int, passes: int) -> Iterator[Sending]:
        chance = self._random
        trace = Trace(f"{self.name}-{number}-{chance.getrandbits(40):x}")
        told = Told(trace, chance.random() < 0.5, chance.randrange(passes))
        root = trace.flow("flow", 0, 10 * passes + 10)
        if told.named:
            root.attributes["blackboard.run.id"] = f"run_{trace.name}"
        for place in range(passes):
            spans, logs, bodies = self._pass(trace, root, place + 1)
            late: dict[tuple[str, str, str], bytes] = {key: bodies.pop(key) for key in list(bodies) if key[2] == "log"}
            records = Sending("logs", protobuf([*logs]), told, [], logs, late)
            if logs and chance.random() < 0.3:  # the log record may come before its span
                yield records
                logs = []
            if place == told.root_with:
                spans.append(root)
            yield Sending("traces", protobuf([*spans]), told, spans, [], bodies)
            if logs:
                yield records

    def _pass(
        self, trace: Trace, root: Span, number: int
    ) -> tuple[list[Span], list[LogRecord], dict[tuple[str, str, str], bytes]]:
        """An agent's pass: a model call, a tool with its result, perhaps one whose result a log record brings."""
        start, first = 10.0 * number, len(trace.spans)
        bodies: dict[tuple[str, str, str], bytes] = {}
        agent = trace.agent("planner", start, start + 9, root)
        said, request, result = self._text(300), '{"messages":"' + self._text(4000) + '"}', self._text(900)
        call = trace.chat(
            start + 1, start + 2, agent, tokens=(100 + number, 10), said=said, blackboard__request__body=request
        )
        bodies[call.span_id, "llm_prompt", "span"] = request.encode()
        bodies[call.span_id, "agent_output", "span"] = str(call.attributes["gen_ai.output.messages"]).encode()
        tool = trace.tool("look", start + 3, start + 4, agent, f'{{"pass":{number}}}', result)
        bodies[tool.span_id, "tool_result", "span"] = result.encode()
        logs: list[LogRecord] = []
        if self._random.random() < 0.5:
            quiet = trace.tool("quiet", start + 5, start + 6, agent, '{"quiet":true}')
            text = self._text(600)
            logs.append(trace.log(quiet, DETAILS, start + 5.5, gen_ai__tool__call__result=text))
            bodies[quiet.span_id, "tool_result", "log"] = text.encode()
            loose = trace.log(agent, "app.note", start + 7, body=self._text(200))
            loose.span_id = ""
            logs.append(loose)
        return trace.spans[first:], logs, bodies

    def _text(self, most: int) -> str:
        """Begins with a number of its own: no two are the same."""
        words = " ".join(self._random.choices(_WORDS, k=self._random.randrange(2, most // 5)))
        return f"{self._random.getrandbits(64):x} {words} é"


def _rejected(signal: str, content: bytes) -> str:
    answer: Any = _ANSWERS[signal].FromString(content)
    return str(answer.partial_success) if answer.partial_success.ByteSize() else ""


class Load:
    """Several senders, each in a thread of its own."""

    def __init__(self, seed: int) -> None:
        protocols: tuple[Literal["http", "grpc"], ...] = ("http", "grpc", "http", "grpc")
        self.senders = [Sender(f"{protocol}{place}", protocol, seed) for place, protocol in enumerate(protocols)]

    @contextlib.contextmanager
    def on(self, running: RunningService) -> Iterator[None]:
        """Sends as long as it is open; at its end all have come back."""
        stop = threading.Event()
        with self._each(lambda sender: sender.work(running, stop)):
            try:
                yield
            finally:
                stop.set()

    def send_again(self, running: RunningService) -> None:
        with self._each(lambda sender: sender.send_again(running)):
            pass

    @contextlib.contextmanager
    def _each(self, act: Callable[[Sender], None]) -> Iterator[None]:
        errors: list[BaseException] = []

        def run(sender: Sender) -> None:
            try:
                act(sender)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=run, args=(sender,), name=sender.name) for sender in self.senders]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            for thread in threads:
                thread.join()
        if errors:
            raise errors[0]

    @property
    def told(self) -> list[Told]:
        return [told for sender in self.senders for told in sender.told]

    @property
    def acknowledged(self) -> int:
        """Requests."""
        return sum(sender.acknowledged for sender in self.senders)

    def touched(self) -> list[Told]:
        """Runs that got something since this was asked last."""
        found = [told for sender in self.senders for told in sender.touched]
        for sender in self.senders:
            sender.touched.clear()
        return found
