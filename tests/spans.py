"""Small builders of spans and log records, and the shortest way from them to a blackboard: no socket, no store."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from otel_blackboard.processor.reading import LogReading, SpanReading, mark_made, read_log, read_span, spans_of_log
from otel_blackboard.processor.tree import resolve
from otel_blackboard.query.artifacts import Artifact, Blackboard, blackboard
from otel_blackboard.records import (
    ArtifactRow,
    Attributes,
    Light,
    LogLight,
    LogRecord,
    Resolved,
    Resource,
    RunPart,
    Span,
    Tenant,
)

START = 1_790_000_000_000_000_000
TENANT = Tenant("default", "default")


def at(seconds: float) -> int:
    """Unix nanoseconds, `seconds` after the start of every test's time."""
    return START + round(seconds * 10**9)


def hex_id(name: str, digits: int) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:digits]


class Trace:
    """The spans and log records of one trace. Ids come from the trace's name and the order of making: always the same."""

    def __init__(self, name: str = "trace", run_id: str = "", resource: Attributes | None = None) -> None:
        self.name, self.trace_id, self.run_id = name, hex_id(name, 32), run_id
        self.resource = Resource(resource or {})
        self.spans: list[Span] = []
        self.logs: list[LogRecord] = []

    def span(
        self,
        name: str,
        start: float = 0,
        end: float | None = None,
        parent: Span | str = "",
        error: str | None = None,
        **attributes: Any,
    ) -> Span:
        """`end` None = one second after the start. Attribute names are written with `__` for a dot; None = not sent."""
        made = Span(
            self.trace_id,
            hex_id(f"{self.name}/{len(self.spans)}", 16),
            parent if isinstance(parent, str) else parent.span_id,
            name,
            kind=1,
            start_ns=at(start),
            end_ns=at(start + 1 if end is None else end),
            resource=self.resource,
        )
        if self.run_id:
            made.attributes["blackboard.run.id"] = self.run_id
        made.attributes |= {key.replace("__", "."): value for key, value in attributes.items() if value is not None}
        if error is not None:
            made.status_code, made.status_message = 2, error
        self.spans.append(made)
        return made

    def flow(self, name: str = "flow", start: float = 0, end: float | None = None, **more: Any) -> Span:
        return self.span(name, start, end, blackboard__span__role="flow_run", **more)

    def step(
        self,
        agent: str,
        start: float = 0,
        end: float | None = None,
        parent: Span | str = "",
        step_id: str | None = None,
        seq: int | None = None,
        attempt: int | None = None,
        **more: Any,
    ) -> Span:
        """A pass as the product's own processor marks it."""
        own = stamps(step_id, seq, attempt)
        return self.span(
            f"step {agent}", start, end, parent, blackboard__span__role="step", gen_ai__agent__name=agent or None,
            **(own | more),
        )  # fmt: skip

    def agent(
        self, name: str, start: float = 0, end: float | None = None, parent: Span | str = "", **more: Any
    ) -> Span:
        """A pass as a GenAI instrumentation marks it."""
        return self.span(
            f"invoke_agent {name}", start, end, parent, gen_ai__operation__name="invoke_agent",
            gen_ai__agent__name=name or None, **more,
        )  # fmt: skip

    def chat(
        self,
        start: float = 0,
        end: float | None = None,
        parent: Span | str = "",
        model: str = "gpt-4o-mini",
        tokens: tuple[int, int] | None = None,
        said: str | None = None,
        asks: Sequence[tuple[str, str, Any]] = (),
        prompt: str | None = None,
        **more: Any,
    ) -> Span:
        """A model call. `asks`: (id, tool, arguments) of the tool calls in its answer."""
        parts: list[Any] = [{"type": "text", "content": said}] if said is not None else []
        parts += [{"type": "tool_call", "id": id, "name": name, "arguments": given} for id, name, given in asks]
        output = json.dumps([{"role": "assistant", "parts": parts}]) if parts else None
        given = json.dumps([{"role": "user", "parts": [{"type": "text", "content": prompt}]}]) if prompt else None
        return self.span(
            f"chat {model}", start, end, parent, gen_ai__operation__name="chat", gen_ai__provider__name="openai",
            gen_ai__request__model=model, gen_ai__output__messages=output, gen_ai__input__messages=given,
            gen_ai__usage__input_tokens=tokens and tokens[0], gen_ai__usage__output_tokens=tokens and tokens[1], **more,
        )  # fmt: skip

    def tool(
        self,
        name: str,
        start: float = 0,
        end: float | None = None,
        parent: Span | str = "",
        arguments: Any = None,
        result: Any = None,
        call_id: str | None = None,
        **more: Any,
    ) -> Span:
        return self.span(
            f"execute_tool {name}", start, end, parent, gen_ai__operation__name="execute_tool", gen_ai__tool__name=name,
            gen_ai__tool__call__arguments=arguments, gen_ai__tool__call__result=result, gen_ai__tool__call__id=call_id,
            **more,
        )  # fmt: skip

    def log(self, span: Span, event_name: str, time: float = 0, body: Any = None, **attributes: Any) -> LogRecord:
        made = LogRecord(span.trace_id, span.span_id, at(time), event_name=event_name, body=body)
        made.attributes = {key.replace("__", "."): value for key, value in attributes.items() if value is not None}
        made.resource = self.resource
        self.logs.append(made)
        return made


def stamps(step_id: str | None, seq: int | None, attempt: int | None, call: int | None = None) -> dict[str, Any]:
    """The numbers that the product's processor stamps on every span of a pass (`call` on its own spans only)."""
    own = {
        "blackboard__step__id": step_id,
        "blackboard__pass__seq": seq,
        "blackboard__pass__attempt": attempt,
        "blackboard__call__seq": call,
    }
    return {name: value for name, value in own.items() if value is not None}


DETAILS = "gen_ai.client.inference.operation.details"


def readings_of(spans: Iterable[Span], logs: Iterable[LogRecord], tenant: Tenant) -> list[SpanReading | LogReading]:
    """What the service reads of them: spans that log records stand for are marked with their record."""
    found: list[SpanReading | LogReading] = [read_span(tenant, span) for span in spans]
    for record in logs:
        of_log = read_log(tenant, record)
        found.append(of_log)
        for span in spans_of_log(record):
            made = read_span(tenant, span)
            mark_made(made, of_log.light.trace_id, of_log.light.record_sha256)
            found.append(made)
    return found


def derive(
    spans: Iterable[Span],
    logs: Iterable[LogRecord] = (),
    tenant: Tenant = TENANT,
    hosts: Mapping[tuple[str, str], str] = {},
    usage: Mapping[tuple[str, str], Mapping[str, int]] = {},
) -> tuple[list[Resolved], list[RunPart], list[ArtifactRow]]:
    """What the service derives when it has all of these, without a store: of each span the version that wins. `hosts`,
    `usage`: by (trace id, span id) what exporter/satellites.py would find."""
    lights: dict[tuple[str, str], Light] = {}
    log_lights: dict[str, LogLight] = {}
    rows: dict[tuple[str, ...], ArtifactRow] = {}
    for reading in readings_of(spans, logs, tenant):
        light = reading.light
        if isinstance(light, Light):
            known = lights.get((light.trace_id, light.span_id))
            if known is None or known.version <= light.version:
                lights[(light.trace_id, light.span_id)] = light
        else:
            log_lights[light.record_sha256] = light
        for draft in reading.drafts:
            row = draft.row
            from_span = isinstance(light, Light)
            row.bodies = tuple(_body(reading.contents[index]) for index in draft.contents)
            key = (row.trace_id, row.span_id, row.kind, row.source)
            if not from_span or key not in rows or rows[key].version <= row.version:
                rows[key] = row
    resolved: list[Resolved] = []
    parts: list[RunPart] = []
    for trace_id in sorted({trace_id for trace_id, _ in lights}):
        own = [light for light in lights.values() if light.trace_id == trace_id]
        found, run_parts = resolve(
            own,
            [light for light in log_lights.values() if light.trace_id == trace_id],
            {span_id: run for (of_trace, span_id), run in hosts.items() if of_trace == trace_id},
            {span_id: told for (of_trace, span_id), told in usage.items() if of_trace == trace_id},
        )
        resolved += found
        parts += run_parts
    return resolved, parts, list(rows.values())


def _body(content: Any) -> Any:
    from otel_blackboard.records import Body

    return Body(content.field, (), len(content.data), hashlib.sha256(content.data).hexdigest(), content.encoding)


def board_of(spans: Iterable[Span], logs: Iterable[LogRecord] = (), tenant: Tenant = TENANT) -> Blackboard:
    """The blackboard of the one run that these make."""
    resolved, parts, rows = derive(spans, logs, tenant)
    (run_id,) = {part.run_id for part in parts}
    return blackboard(tenant, run_id, resolved, rows, paths=True)


def listed(board: Blackboard, kind: str) -> list[Artifact]:
    return [artifact for artifact in board.artifacts if artifact.kind == kind]


def by_span(resolved: Iterable[Resolved]) -> dict[str, Resolved]:
    return {row.span_id: row for row in resolved}
