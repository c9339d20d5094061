"""Times in answers: RFC 3339 with Z and full precision; unix nanoseconds inside."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_RFC3339 = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?([Zz]|[+-]\d\d:\d\d)")
_LAST_SECOND = 253_402_300_799
"""9999-12-31T23:59:59Z: later nanoseconds are shown as that."""


def rfc3339(time_ns: int) -> str | None:
    """None for 0, which says that no time was sent."""
    if time_ns <= 0:
        return None
    seconds, nanoseconds = divmod(time_ns, 10**9)
    moment = datetime.fromtimestamp(min(seconds, _LAST_SECOND), tz=UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{nanoseconds:09d}Z"


def nanoseconds(text: str) -> int:
    """Raises ValueError for a text that is no RFC 3339 time."""
    match = _RFC3339.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no RFC 3339 time, as 2026-11-30T12:00:00Z")
    day, clock, fraction, zone = match.groups()
    moment = datetime.fromisoformat(f"{day}T{clock}{'+00:00' if zone in 'Zz' else zone}")
    return int(moment.timestamp()) * 10**9 + int((fraction or "0").ljust(9, "0"))


def duration_ms(start_ns: int, end_ns: int) -> int | None:
    """Whole milliseconds; None while open, 0 where clocks disagree."""
    return None if end_ns == 0 else max(0, end_ns - start_ns) // 10**6
