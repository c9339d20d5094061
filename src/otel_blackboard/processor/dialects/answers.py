"""How an answer ended and when it began, as emitters write it: the labels FINISH_REASON and TIME_TO_FIRST_TOKEN.

What these read stands in attributes of its own; no content is opened for it. Nothing here raises.
"""

from __future__ import annotations

import math

from otel_blackboard.processor.dialects.dialect import Source
from otel_blackboard.processor.values import first_text, parsed
from otel_blackboard.records import Value

FINISH_REASON = "finish_reason"
"""Of the first choice, as it was sent."""

TIME_TO_FIRST_TOKEN = "time_to_first_token_ms"
"""Whole milliseconds, of answers that were streamed."""

_LONGEST = 1_024
"""Characters of a list of reasons that is read."""


def first_reason(key: str) -> Source:
    """Of a list, its JSON text, Java's `[STOP]`, or the one reason alone."""
    return Source(key, _first_reason)


def _first_reason(value: Value) -> Value:
    if isinstance(value, str):
        if len(value) > _LONGEST:
            return None
        value = parsed(value)
    if isinstance(value, str) and value[:1] == "[" and value[-1:] == "]":  # no JSON
        value = [each.strip(" '") for each in value[1:-1].split(",")]
    reasons = value if isinstance(value, list) else [value]
    return next((reason for each in reasons if (reason := first_text(each)[:_LONGEST])), None)


def milliseconds(key: str) -> Source:
    return Source(key, lambda value: _whole(value, 1))


def seconds(key: str) -> Source:
    return Source(key, lambda value: _whole(value, 1000))


def _whole(value: Value, milliseconds_each: int) -> Value:
    try:
        time = float(first_text(value)) * milliseconds_each
    except ValueError:
        return None
    return str(int(time)) if math.isfinite(time) and 0 <= time <= _A_DAY else None


_A_DAY = 86_400_000
"""A longer time is a mistake of the unit, or a moment."""
