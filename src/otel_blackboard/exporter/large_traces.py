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

_LONGEST_REST = 600 * REST
_TOGETHER = 100

_MOST = 1_000
"""Large traces remembered that wait for nothing; one that is forgotten is derived with its next flush."""


@dataclass(slots=True)
class _Large:
    rests_until: float
    waits: bool = False
    marked: bool = True
    """False for one that a flush which was cut short left: it waits here, but may be small and has no mark."""
    failures: int = 0


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

    def is_marked(self, key: TraceKey) -> bool:
        trace = self._traces.get(key)
        return trace is not None and trace.waits and trace.marked

    def derived(self, key: TraceKey, spans: int, seconds: float) -> None:
        """Notes a derivation that took so long."""
        self._traces.pop(key, None)
        if spans > LARGE:
            self._traces[key] = _Large(self._clock() + max(REST, RESTS * seconds))
            idle = [each for each, trace in self._traces.items() if not trace.waits]
            for each in idle[:-_MOST]:
                del self._traces[each]

    def take_over(self, keys: Iterable[TraceKey], marked: bool) -> None:
        """Traces that another process, or a flush that failed, left underived. One that rests goes on resting."""
        for key in keys:
            if not self.is_marked(key):
                trace = self._traces.setdefault(key, _Large(self._clock()))
                trace.waits, trace.marked = True, marked

    def put_off(self, keys: Iterable[TraceKey]) -> None:
        """They could not be derived, and are tried again: later each time, for it may be a fault of ours that stays."""
        for key in keys:
            # One that was derived and has to be once more, for another worker wrote meanwhile, is not there any longer.
            trace = self._traces.setdefault(key, _Large(self._clock(), marked=False))
            trace.waits = True
            trace.failures += 1
            trace.rests_until = self._clock() + min(5 * REST * 2 ** (trace.failures - 1), _LONGEST_REST)

    def due(self) -> list[TraceKey]:
        """What is derived next, the longest waiting first: one large trace, or some that may be small. Not all at once: the
        flushes that came meanwhile go in between."""
        now = self._clock()
        due = [
            (trace.rests_until, key) for key, trace in self._traces.items() if trace.waits and trace.rests_until <= now
        ]
        keys = [key for _, key in sorted(due)]
        if keys and self.is_marked(keys[0]):
            return keys[:1]
        return [key for key in keys if not self.is_marked(key)][:_TOGETHER]

    def due_in(self) -> float | None:
        """Seconds until the next is due; None while none waits."""
        waiting = [trace.rests_until for trace in self._traces.values() if trace.waits]
        return max(0.0, min(waiting) - self._clock()) if waiting else None
