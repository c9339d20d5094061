"""A run out of its parts: one pure function, for run page and list alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from otel_blackboard.processor.nodes import USAGE
from otel_blackboard.records import RunPart


@dataclass(slots=True)
class Run:
    run_id: str
    name: str
    status: str
    start_ns: int
    end_ns: int
    """0 while it is open."""
    root: RunPart
    trace_ids: list[str]
    agents: list[str]
    counts: dict[str, int]
    span_count: int
    failed_spans: int
    usage: dict[str, int | None]
    cost_usd: Decimal | None
    calls_without_cost: int
    usage_coverage: float | None
    """Share of the succeeded model calls whose usage is known; None without any."""
    conversation_id: str
    use_case_id: str
    user_id: str
    trigger: str
    original_run_id: str = ""
    error: str = ""
    parts: list[RunPart] = field(default_factory=list)


def merge_parts(parts: Sequence[RunPart], now_ns: int, idle_ns: int) -> Run:
    """`parts` are all parts of one run, at least one. The part with a flow_run at its top says how the run went."""
    ordered = sorted(parts, key=lambda part: (not part.is_root, part.start_ns, part.trace_id, part.part))
    root = ordered[0]
    is_open = any(part.open_spans for part in parts)
    status = root.status
    if is_open:
        status = "interrupted" if max(part.last_stored_ns for part in parts) < now_ns - idle_ns else "running"
    counts: Counter[str] = Counter()
    for part in parts:
        counts.update(part.counts)
    costs = [part.cost_usd for part in parts if part.cost_usd is not None]
    succeeded = sum(part.calls_succeeded for part in parts)
    by_start = sorted(parts, key=lambda part: (part.start_ns, part.trace_id, part.part))
    return Run(
        run_id=root.run_id,
        name=root.name,
        status=status,
        start_ns=min(part.start_ns for part in parts),
        end_ns=0 if is_open else max(part.end_ns for part in parts),
        root=root,
        trace_ids=list(dict.fromkeys(part.trace_id for part in by_start)),
        agents=list(dict.fromkeys(agent for part in by_start for agent in part.agents)),
        counts=dict(sorted(counts.items())),
        span_count=sum(part.span_count for part in parts),
        failed_spans=sum(part.failed_spans for part in parts),
        usage={name: _sum([getattr(part, name) for part in parts]) for name in USAGE},
        cost_usd=sum(costs, Decimal(0)) if costs else None,
        calls_without_cost=sum(part.calls_without_cost for part in parts),
        usage_coverage=sum(part.calls_with_usage for part in parts) / succeeded if succeeded else None,
        conversation_id=_first(ordered, "conversation_id"),
        use_case_id=_first(ordered, "use_case_id"),
        user_id=_first(ordered, "user_id"),
        trigger=_first([part for part in ordered if part.trigger != "manual"], "trigger") or "manual",
        original_run_id=_first(ordered, "original_run_id"),
        error=root.error,
        parts=list(parts),
    )


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _first(parts: Sequence[RunPart], name: str) -> str:
    return next((value for part in parts if (value := getattr(part, name))), "")
