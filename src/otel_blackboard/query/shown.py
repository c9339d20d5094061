"""Rows and artifacts as the API shows them: the one place where a field of an answer is made."""

from __future__ import annotations

from typing import Any

import orjson

from otel_blackboard.processor.values import CONTENT, plain
from otel_blackboard.query.artifacts import Artifact, describe, requested_calls
from otel_blackboard.query.board import Board, Place, usage_of
from otel_blackboard.query.runs import Run
from otel_blackboard.query.times import duration_ms, rfc3339
from otel_blackboard.records import Body, InvalidText, LogLight, Resolved, Tenant


def shown_run(run: Run) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "original_run_id": run.original_run_id or None,
        "name": run.name,
        "status": run.status,
        "start_time": rfc3339(run.start_ns),
        "end_time": rfc3339(run.end_ns),
        "duration_ms": duration_ms(run.start_ns, run.end_ns),
        "agents": run.agents,
        "counts": run.counts,
        "span_count": run.span_count,
        "failed_spans": run.failed_spans,
        "usage": usage_of(run),
        "cost_usd": _money(run.cost_usd),
        "calls_without_cost": run.calls_without_cost,
        "usage_coverage": run.usage_coverage,
        "conversation_id": run.conversation_id or None,
        "use_case_id": run.use_case_id or None,
        "user_id": run.user_id or None,
        "trigger": run.trigger,
        "trace_ids": run.trace_ids,
        "error": run.error or None,
    }


def _money(value: Any) -> str | None:
    """Decimal as text without an exponent and without trailing zeros."""
    if value is None:
        return None
    text = f"{value:f}"
    return (text.rstrip("0").rstrip(".") or "0") if "." in text else text


def shown_timeline_span(row: Resolved, parent: str | None, numbered: Any) -> dict[str, Any]:
    attempt = numbered.attempt if numbered is not None else None
    return {
        "trace_id": row.trace_id,
        "span_id": row.span_id,
        "parent_span_id": parent,
        "role": row.role or None,
        "name": row.name,
        "start_time": rfc3339(row.start_ns),
        "end_time": rfc3339(row.end_ns),
        "duration_ms": duration_ms(row.start_ns, row.end_ns),
        "status": row.status,
        "step_id": attempt.step_id if attempt else None,
        "agent_id": attempt.agent_id if attempt else row.agent_id or None,
        "pass_seq": attempt.pass_seq if attempt else None,
        "attempt": attempt.attempt if attempt else None,
        "call_seq": numbered.call_seq or None if numbered is not None else None,
        "provider": row.provider or None,
        "model": row.model or None,
        "tool_name": row.tool_name or None,
        "usage": usage_of(row),
        "cost_usd": _money(row.cost_usd),
        "billed": row.billed,
        "aggregate": row.is_aggregate,
        "call_span_id": row.call_span_id or None,
        "labels": row.labels,
        "error": row.error or None,
    }


def shown_artifact(board: Board, tenant: Tenant, run: Place, artifact: Artifact) -> dict[str, Any]:
    described = describe(artifact, tenant, run.run_id, board.settings.characters_per_token)
    return described | {
        "summary": described["summary"][: board.settings.summary_characters],
        "created_at": rfc3339(described["created_at"]),
        "updated_at": rfc3339(described["updated_at"]),
    }


def shown_prompt(
    board: Board,
    tenant: Tenant,
    run: Place,
    artifact: Artifact,
    outputs: dict[tuple[str, str], str],
    billed: dict[tuple[str, str], Resolved],
) -> dict[str, Any]:
    shown = shown_artifact(board, tenant, run, artifact)
    row = artifact.resolved
    paid = billed.get((row.trace_id, row.call_span_id))
    return {
        **{name: shown[name] for name in (
            "artifact_id", "label", "step_id", "agent_id", "pass_seq", "attempt", "call_seq", "trace_id", "span_id",
            "status", "token_size", "body_bytes", "summary", "metadata",
        )},
        "exact": shown["metadata"]["exact"],
        "provider": row.provider or None,
        "model": row.model or None,
        "operation": row.operation,
        "usage": usage_of(paid or row),
        "cost_usd": _money(paid.cost_usd) if paid else None,
        "cost_source": paid.cost_source or None if paid else None,
        "output_artifact_id": outputs.get((row.trace_id, row.call_span_id or row.span_id)),
        "requested_calls": requested_calls(row),
        "earlier_attempt": artifact.earlier_attempt,
        "start_time": rfc3339(row.start_ns),
        "end_time": rfc3339(row.end_ns),
        "error": row.error or None,
    }  # fmt: skip


def shown_span(board: Board, trace_id: str, span_id: str, found: Any, logs: list[LogLight]) -> dict[str, Any]:
    bodies: list[Body] = list(found["bodies"])
    contents = board.reader.bodies(bodies)
    values = [_content_value(body, data) for body, data in zip(bodies, contents, strict=True)]
    by_field = {body.field: value for body, value in zip(bodies, values, strict=True)}
    attributes = orjson.loads(found["attributes"])
    shown: dict[str, Any] = {}
    for key, value in attributes.items():
        index = _pointer(value, len(values))
        if index is not None and bodies[index].encoding == "pairs":
            shown.update({str(name): each for name, each in values[index]})
        else:
            shown[key] = value if index is None else values[index]
    events = orjson.loads(found["events"])
    for event in events:
        for key, value in event["attributes"].items():
            index = _pointer(value, len(values))
            if index is not None:
                event["attributes"][key] = values[index]
    return {
        "trace_id": trace_id,
        "span_id": span_id,
        "parent_span_id": found["parent_span_id"],
        "name": by_field.get("name", found["name"]),
        "kind": found["kind"],
        "status_code": found["status_code"],
        "status_message": by_field.get("status_message", found["status_message"]),
        "start_time": rfc3339(found["start_ns"]),
        "end_time": rfc3339(found["sent_end_ns"]),
        "start_time_unix_nano": str(found["start_ns"]),
        "end_time_unix_nano": str(found["sent_end_ns"]),
        "attributes": shown,
        "events": events,
        "links": orjson.loads(found["links"]),
        "resource": _shared(found["resource"], by_field),
        "scope": _shared(found["instrumentation_scope"], by_field),
        "logs": [shown_log(each) for each in logs],
        "dropped": orjson.loads(found["dropped"]) if found["dropped"] else {},
        "trace_state": found["trace_state"],
        "dialect": found["dialect"],
    }


def _shared(text: str, by_field: dict[str, Any]) -> dict[str, Any]:
    """A resource or scope with the values that were too large for the row."""
    shown: dict[str, Any] = orjson.loads(text)
    for held in (shown, shown["attributes"]):
        for name, value in held.items():
            if isinstance(value, dict) and len(value) == 1 and (field := value.get(CONTENT)) in by_field:
                held[name] = by_field[field]
    return shown


def shown_log(light: LogLight) -> dict[str, Any]:
    return {
        "record_sha256": light.record_sha256,
        "trace_id": light.trace_id,
        "time": rfc3339(light.time_ns),
        "event_name": light.event_name,
        "severity": light.severity_text,
    }


def _pointer(value: Any, count: int) -> int | None:
    if isinstance(value, dict) and len(value) == 1 and isinstance(index := value.get(CONTENT), int) and index < count:
        return index
    return None


def _content_value(body: Body, data: bytes) -> Any:
    if body.encoding == "text":
        return data.decode(errors="replace")
    if body.encoding in ("bytes", "not-text"):
        return plain(data if body.encoding == "bytes" else InvalidText(data))
    return orjson.loads(data)
