"""Group commit: a flush starts at once when idle, and otherwise takes all that came while the last one ran.

`submit` is the only way in. Its future completes when the arrival is stored, derived and visible to the next query.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, InvalidStateError
from typing import NamedTuple, Protocol

from otel_blackboard.collector.arrival import Arrival, QueueFull, ShuttingDown, StoreUnavailable
from otel_blackboard.config import Settings
from otel_blackboard.exporter.flush import StoreFailed
from otel_blackboard.exporter.preparation import Prepared
from otel_blackboard.failures import Outages, log_failure
from otel_blackboard.records import LogRecord, Span, Tenant

log = logging.getLogger(__name__)


_RECORD_BYTES = 1_500
"""What a record that was read takes beside its texts (measured: 700 to 1,100, and its columns while it is inserted): small
ones weigh far more than they did on the wire."""


_RETRIES = 5
"""Times `retry_after` that a failed flush is worth telling: no longer, or a service that is not ready for that alone would be
sent nothing and never find out."""


def held_bytes(arrival: Arrival) -> int:
    return arrival.size + _RECORD_BYTES * (arrival.span_count + arrival.log_count)


class Waiting(NamedTuple):
    arrival: Arrival
    future: Future[None]
    held: int


class Flusher(Protocol):
    def prepare(self, spans: Sequence[tuple[Tenant, Span]], logs: Sequence[tuple[Tenant, LogRecord]]) -> Prepared: ...

    def commit(self, prepared: Sequence[Prepared]) -> None: ...

    def derive_due(self) -> float | None: ...


class GroupCommit:
    def __init__(self, exporter: Flusher, settings: Settings) -> None:
        self._exporter, self._settings = exporter, settings
        self._waiting: deque[Waiting] = deque()
        self._writing: list[Waiting] = []
        self._bytes = 0
        self._closing = False
        self._outages = Outages(log, "flushes fail, senders are asked to send again")
        self._failed: tuple[float, str] | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="group-commit", daemon=True)
        self._thread.start()

    def prepare(self, arrival: Arrival) -> None:
        """Reads the records. Raises QueueFull or ShuttingDown: what will be refused need not be read."""
        if arrival.prepared is None:
            with self._changed:
                self._refuse(held_bytes(arrival))
            arrival.prepared = self._exporter.prepare(arrival.spans, arrival.logs)
            arrival.spans, arrival.logs = [], []  # what was read of them is smaller

    def submit(self, arrival: Arrival) -> Future[None]:
        """Raises QueueFull or ShuttingDown at once; the future fails with StoreUnavailable when a store fails. Cancelling
        it takes the arrival back, until its flush has begun."""
        self.prepare(arrival)
        future: Future[None] = Future()
        size = held_bytes(arrival)
        with self._changed:
            self._refuse(size)
            self._waiting.append(Waiting(arrival, future, size))
            self._bytes += size
            self._changed.notify()
        return future

    def _refuse(self, size: int) -> None:
        if self._closing:
            raise ShuttingDown
        if self._bytes and self._bytes + size > self._settings.max_queue_bytes:
            raise QueueFull

    def failing(self) -> str:
        """What the last flush failed with, while senders that were asked to come again may still be away; else ''."""
        failed = self._failed
        recent = failed is not None and time.monotonic() - failed[0] < _RETRIES * self._settings.retry_after
        return failed[1] if failed is not None and recent else ""

    def close(self) -> bool:
        """Takes nothing more, finishes what was taken. False when that did not end in `shutdown_timeout`: then all that
        still waits is told to send again."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(self._settings.shutdown_timeout)
        if not self._thread.is_alive():
            return True
        with self._changed:
            left = [*self._writing, *self._waiting]
            self._waiting.clear()
        _fail(left, ShuttingDown())
        return False

    def _run(self) -> None:
        due_in: float | None = 0.0  # first what a process before this one left behind
        while True:
            with self._changed:
                while not self._waiting and not self._closing:
                    if not self._changed.wait(due_in):
                        break
                if self._closing and not self._waiting:
                    return
                self._writing = self._take()
            if self._writing:
                self._commit(self._writing)
            with self._changed:
                self._bytes -= sum(each.held for each in self._writing)
                self._writing = []
            due_in = self._exporter.derive_due()

    def _take(self) -> list[Waiting]:
        """The next flush: of what nobody has taken back, the oldest, at least one and no more than fits."""
        batch: list[Waiting] = []
        size = 0
        while self._waiting:
            next_one = self._waiting[0]
            if batch and size + next_one.arrival.size > self._settings.flush_bytes:
                break
            self._waiting.popleft()
            if next_one.future.set_running_or_notify_cancel():
                batch.append(next_one)
                size += next_one.arrival.size
            else:
                self._bytes -= next_one.held
        return batch

    def _commit(self, batch: list[Waiting]) -> bool:
        """False when a store failed."""
        try:
            self._exporter.commit([each.arrival.prepared for each in batch if each.arrival.prepared is not None])
        except StoreFailed as error:
            self._store_failed(batch, str(error))
            return False
        except Exception as error:
            if len(batch) == 1:
                log_failure(log, "a request could not be stored", error)
                _fail(batch, error)
                return True
            log.warning("a flush of %d requests failed (%s); each is tried alone", len(batch), type(error).__name__)
            for position, alone in enumerate(batch):
                if not self._commit([alone]):
                    _fail(batch[position + 1 :], StoreUnavailable())
                    return False
        else:
            self._failed = None
            self._outages.worked()
            for each in batch:
                with contextlib.suppress(InvalidStateError):  # nobody waits any more: that must not end the thread
                    each.future.set_result(None)
        return True

    def _store_failed(self, batch: list[Waiting], fault: str) -> None:
        """Refuses the batch and all that waits behind it: the next flush would fail like this one, and each would hold its
        senders for as long as a store may be silent."""
        self._outages.failed(fault)
        self._failed = time.monotonic(), fault
        with self._changed:
            behind = [each for each in self._waiting if each.future.set_running_or_notify_cancel()]
            self._bytes -= sum(each.held for each in self._waiting)
            self._waiting.clear()
        _fail([*batch, *behind], StoreUnavailable(fault))


def _fail(batch: list[Waiting], error: Exception) -> None:
    for each in batch:
        with contextlib.suppress(InvalidStateError):
            each.future.set_exception(error)
