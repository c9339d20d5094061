"""How failures are logged: unforeseen ones with their place and never with their content, an outage once and not each time."""

from __future__ import annotations

import logging
import threading
import time
import traceback


def log_failure(logger: logging.Logger, what: str, error: BaseException) -> None:
    """The error with its traceback, but without its text, which may quote what was sent."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    logger.error("%s: %s, at:\n%s", what, type(error).__name__, frames)


_FORGOTTEN = 60.0
"""Seconds without a fault after which it is news again."""
_KEPT = 100


class Outages:
    """Says each kind of fault when it begins, and that it is over. Called from any thread."""

    def __init__(self, logger: logging.Logger, what: str) -> None:
        self._logger, self._what = logger, what
        self._lock = threading.Lock()
        self._last: dict[str, float] = {}
        self._failures = 0

    def failed(self, fault: str) -> None:
        """`fault` says the kind: the same text each time."""
        now = time.monotonic()
        with self._lock:
            known = self._last.get(fault)
            if len(self._last) >= _KEPT:
                self._last.clear()
            self._last[fault] = now
            self._failures += 1
        if known is None or now - known > _FORGOTTEN:
            self._logger.warning("%s: %s", self._what, fault)

    def worked(self) -> None:
        if not self._failures:
            return
        with self._lock:
            failures, self._failures = self._failures, 0
            self._last.clear()
        self._logger.info("%s: over, after %d failures", self._what, failures)
