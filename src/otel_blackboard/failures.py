"""How unforeseen errors are logged: where they happened, never what was in them."""

from __future__ import annotations

import logging
import traceback


def log_failure(logger: logging.Logger, what: str, error: BaseException) -> None:
    """The error with its traceback, but without its text, which may quote what was sent."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    logger.error("%s: %s, at:\n%s", what, type(error).__name__, frames)
