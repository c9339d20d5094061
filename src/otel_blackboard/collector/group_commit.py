"""Group commit: a flush starts at once when idle, and otherwise takes all that came while the last one ran.

`submit` is the only way in. Its future completes when the arrival is stored, derived and visible to the next query.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, InvalidStateError
from typing import NamedTuple, Protocol

from otel_blackboard.collector.arrival import Arrival, QueueFull, ShuttingDown, StoreUnavailable
from otel_blackboard.config import Settings
from otel_blackboard.exporter.flush import StoreFailed
from otel_blackboard.exporter.preparation import Prepared
from otel_blackboard.failures import log_failure
from otel_blackboard.records import LogRecord, Span, Tenant

log = logging.getLogger(__name__)


_RECORD_BYTES = 1_500
"""What a record that was read takes beside its texts (measured: 700 to 1,100, and its columns while it is inserted): small
ones weigh far more than they did on the wire."""


def held_bytes(arrival: Arrival) -> int:
    return arrival.size + _RECORD_BYTES * (arrival.span_count + arrival.log_count)


class Waiting(NamedTuple):
    arrival: Arrival
    future: Future[None]
    held: int


class Flusher(Protocol):
    def prepare(self, spans: Sequence[tuple[Tenant, Span]], logs: Sequence[tuple[Tenant, LogRecord]]) -> Prepared: ...

    def commit(self, prepared: Sequence[Prepared]) -> None: ...


class GroupCommit:
    def __init__(self, exporter: Flusher, settings: Settings) -> None:
        self._exporter, self._settings = exporter, settings
        self._waiting: deque[Waiting] = deque()
        self._bytes = 0
        self._closing = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="group-commit", daemon=True)
        self._thread.start()

    def prepare(self, arrival: Arrival) -> None:
        if arrival.prepared is None:
            arrival.prepared = self._exporter.prepare(arrival.spans, arrival.logs)
            arrival.spans, arrival.logs = [], []  # what was read of them is smaller

    def submit(self, arrival: Arrival) -> Future[None]:
        """Raises QueueFull or ShuttingDown at once; the future fails with StoreUnavailable when a store fails."""
        self.prepare(arrival)
        future: Future[None] = Future()
        size = held_bytes(arrival)
        with self._changed:
            if self._closing:
                raise ShuttingDown
            if self._bytes and self._bytes + size > self._settings.max_queue_bytes:
                raise QueueFull
            self._waiting.append(Waiting(arrival, future, size))
            self._bytes += size
            self._changed.notify()
        return future

    def close(self) -> bool:
        """Takes nothing more, finishes what was taken. False when that did not end in `shutdown_timeout`."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(self._settings.shutdown_timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closing:
                    self._changed.wait()
                if not self._waiting:
                    return
                batch = self._take()
            self._commit(batch)
            with self._changed:
                self._bytes -= sum(each.held for each in batch)

    def _take(self) -> list[Waiting]:
        batch = [self._waiting.popleft()]
        size = batch[0].arrival.size
        while self._waiting and size + self._waiting[0].arrival.size <= self._settings.flush_bytes:
            batch.append(self._waiting.popleft())
            size += batch[-1].arrival.size
        return batch

    def _commit(self, batch: list[Waiting]) -> None:
        try:
            self._exporter.commit([each.arrival.prepared for each in batch if each.arrival.prepared is not None])
        except StoreFailed as error:
            log.warning("flush failed, senders are asked to send again: %s", error)
            _fail(batch, StoreUnavailable(str(error)))
        except Exception as error:
            if len(batch) == 1:
                log_failure(log, "a request could not be stored", error)
                _fail(batch, error)
                return
            log.warning("a flush of %d requests failed (%s); each is tried alone", len(batch), type(error).__name__)
            for alone in batch:
                self._commit([alone])
        else:
            for each in batch:
                with contextlib.suppress(InvalidStateError):  # nobody waits any more: that must not end the thread
                    each.future.set_result(None)


def _fail(batch: list[Waiting], error: Exception) -> None:
    for each in batch:
        with contextlib.suppress(InvalidStateError):
            each.future.set_exception(error)
