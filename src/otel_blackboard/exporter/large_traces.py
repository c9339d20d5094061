"""Large traces are derived now and then, not with every flush: deriving costs as much as the trace is long, so a run that
keeps growing would cost the square of its length."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from otel_blackboard.exporter.trace_cache import TraceKey

LARGE = 5_000
"""Spans above which a trace is large. Smaller ones are derived before they are acknowledged."""

REST = 1.0
"""Seconds a large trace rests at least after it was derived."""

RESTS = 4
"""Times as long as its derivation took that it rests: no large trace takes more than a fifth of the flushing thread."""

_MOST = 1_000
"""Large traces remembered that wait for nothing; one that is forgotten is derived with its next flush."""


@dataclass(slots=True)
class _Large:
    rests_until: float
    waits: bool = False
    marked: bool = False


class LargeTraces:
    """When each large trace is derived next. Used by the flushing thread alone."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._traces: dict[TraceKey, _Large] = {}

    def rests(self, key: TraceKey) -> bool:
        """Whether it was derived so lately that spans which came now have to wait; they then do, and it is marked."""
        trace = self._traces.get(key)
        if trace is None or trace.rests_until <= self._clock():
            return False
        trace.waits = trace.marked = True
        return True

    def derived(self, key: TraceKey, spans: int, seconds: float) -> bool:
        """Notes a derivation that took so long; whether the trace was marked."""
        before = self._traces.pop(key, None)
        if spans > LARGE:
            self._traces[key] = _Large(self._clock() + max(REST, RESTS * seconds))
            idle = [each for each, trace in self._traces.items() if not trace.waits]
            for each in idle[:-_MOST]:
                del self._traces[each]
        return before is not None and before.marked

    def take_over(self, keys: Iterable[TraceKey]) -> None:
        """Traces that another process marked and did not derive."""
        for key in keys:
            self._traces[key] = _Large(self._clock(), waits=True, marked=True)

    def put_off(self, keys: Iterable[TraceKey]) -> None:
        """They could not be derived; they are tried again after a rest."""
        for key in keys:
            self._traces[key] = _Large(self._clock() + 5 * REST, waits=True, marked=True)

    def due(self) -> list[TraceKey]:
        now = self._clock()
        return [key for key, trace in self._traces.items() if trace.waits and trace.rests_until <= now]

    def due_in(self) -> float | None:
        """Seconds until the next is due; None while none waits."""
        waiting = [trace.rests_until for trace in self._traces.values() if trace.waits]
        return max(0.0, min(waiting) - self._clock()) if waiting else None
