"""Light rows of the traces that are being written, so that a flush need not read them back whole.

The cache is never believed: the read-back returns count and hash of each trace's rows, and a difference (another worker
wrote, a version lost) means a full read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

from otel_blackboard.records import Light, LogLight, Resolved, Tenant

_LOW = 2**64 - 1

TraceKey = tuple[Tenant, str]


@dataclass(slots=True)
class CachedTrace:
    spans: dict[str, Light] = field(default_factory=dict)
    logs: dict[str, LogLight] = field(default_factory=dict)
    resolved: dict[str, Resolved] = field(default_factory=dict)
    """What this worker wrote last; only rows that differ are written again."""
    derived_at: int = 0
    """The version of those rows: only while no other worker has derived the trace since, they are what stands there."""
    parts: set[str] = field(default_factory=set)
    fresh: set[str] = field(default_factory=set)
    """Spans that came since, or that are all that is known: their counterparts in other traces may not know of them."""
    _spans_hash: int = 0
    _logs_hash: int = 0

    def put(self, light: Light) -> None:
        known = self.spans.get(light.span_id)
        if known is None or known.version <= light.version:
            self.spans[light.span_id] = light
            self.fresh.add(light.span_id)
            self._spans_hash ^= (light.version ^ (known.version if known is not None else 0)) & _LOW

    def put_all(self, lights: Iterable[Light], logs: Iterable[LogLight]) -> None:
        for light in lights:
            self.put(light)
        for log in logs:
            self.put_log(log)

    def put_log(self, light: LogLight) -> None:
        known = self.logs.get(light.record_sha256)
        self.logs[light.record_sha256] = light
        self._logs_hash ^= (light.version ^ (known.version if known is not None else 0)) & _LOW

    def check(self) -> tuple[int, int, int, int]:
        """(spans, xor of their versions' low halves, logs, the same): equal to the engine's when nothing is missing."""
        return len(self.spans), self._spans_hash, len(self.logs), self._logs_hash

    @property
    def size(self) -> int:
        return len(self.spans) + len(self.logs)


class TraceCache:
    """The traces last written to, up to `capacity` light rows in all. Used by the flushing thread alone."""

    def __init__(self, capacity: int = 100_000) -> None:
        self._traces: OrderedDict[TraceKey, CachedTrace] = OrderedDict()
        self._capacity = capacity
        self._rows = 0

    def get(self, key: TraceKey) -> CachedTrace | None:
        trace = self._traces.pop(key, None)
        if trace is not None:
            self._rows -= trace.size
        return trace

    def put(self, key: TraceKey, trace: CachedTrace) -> None:
        self._traces[key] = trace
        self._rows += trace.size
        while self._rows > self._capacity and len(self._traces) > 1:
            _, oldest = self._traces.popitem(last=False)
            self._rows -= oldest.size

    def clear(self) -> None:
        self._traces.clear()
        self._rows = 0
