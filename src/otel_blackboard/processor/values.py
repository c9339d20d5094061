"""Attribute values as JSON text, without loss.

What JSON cannot say is tagged: bytes `{"$bytes": base64}`, a string that is not UTF-8 the same with
`"$invalid": "utf-8"`, NaN and infinities `{"$double": "NaN"}`. A map of the sender that has such a key itself gets one
more `$` before it.
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import re
from typing import Any, cast

import orjson

from otel_blackboard.records import InvalidText, Value

BYTES, INVALID, DOUBLE, CONTENT = "$bytes", "$invalid", "$double", "$content"
_RESERVED = re.compile(r"\$+(bytes|invalid|double|content)")
_PLAIN = (str, int, bool, type(None))


def plain(value: Value) -> Any:
    """The value as JSON can say it, tagged where it cannot."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {DOUBLE: _spell(value)}
    if isinstance(value, bytes):
        tagged = {BYTES: base64.b64encode(value).decode()}
        return tagged | {INVALID: "utf-8"} if isinstance(value, InvalidText) else tagged
    if isinstance(value, list):
        return [plain(item) for item in value]
    return {_escape(key): plain(item) for key, item in value.items()}


def restore(value: Any) -> Value:
    """The inverse of plain()."""
    if isinstance(value, list):
        return [restore(item) for item in value]
    if isinstance(value, dict):
        if isinstance(value.get(BYTES), str):
            data = base64.b64decode(value[BYTES])
            return InvalidText(data) if INVALID in value else data
        if DOUBLE in value:
            return float(value[DOUBLE])
        return {unescape(key): restore(item) for key, item in value.items()}
    return cast(Value, value)


def to_json(value: Value) -> str:
    """Compact JSON text, keys in the order sent."""
    return orjson.dumps(plain(value)).decode()


def content_bytes(value: Value) -> tuple[bytes, str]:
    """What goes to the body store for a value, and its encoding: text and bytes stay exactly as received."""
    if isinstance(value, str):
        return value.encode(), "text"
    if isinstance(value, bytes):
        return bytes(value), "not-text" if isinstance(value, InvalidText) else "bytes"
    return to_json(value).encode(), "json"


def first_text(value: Value) -> str:
    """The value as an identifier or label: text as it is, numbers as text, anything else nothing."""
    if isinstance(value, str):
        return value
    if isinstance(value, InvalidText):
        return value.decode(errors="backslashreplace")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    return str(value)


LARGEST_COUNT = 2**40
"""A count above this is absurd, and thousands of them in one sum still fit a column."""


def whole_number(value: Value) -> int | None:
    """A count, whichever of OTLP's types it came as. Negative, fractional, absurd and unreadable counts are unknown."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        try:
            value = float(value) if not value.strip().isdigit() else int(value)
        except ValueError:
            return None
    if isinstance(value, float):
        if not math.isfinite(value) or value != int(value):
            return None
        value = int(value)
    return value if isinstance(value, int) and 0 <= value <= LARGEST_COUNT else None


def truth(value: Value) -> bool:
    return value is True or (isinstance(value, str) and value.lower() == "true") or (type(value) is int and value == 1)


def parsed(value: Value) -> Any:
    """A structured value, also where it came as JSON text (or as JSON text inside JSON text). Other text stays text."""
    for _ in range(2):
        if not isinstance(value, str) or value[:1] not in '[{"':
            break
        try:
            value = orjson.loads(value)
        except (orjson.JSONDecodeError, RecursionError):
            break
    return value


_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\s+', re.DOTALL)
_PLAIN_STRING = re.compile(r'"[^"\\\x00-\x1f\ud800-\udfff]*"')
"""A JSON string that compact() leaves as it is."""


def compact(text: str) -> str:
    """JSON text without white space and with non-ASCII characters unescaped; numbers, key order and repeats as sent.

    Text that is no JSON becomes one JSON string. Lone surrogates stay escaped, for they are no characters.
    """
    if not is_json(text):
        return _string(text)
    if "\\" in text:
        return _TOKEN.sub(_compact_token, text)
    # Without escapes every second piece between quotation marks lies outside of strings.
    pieces = text.split('"')
    pieces[::2] = ["".join(piece.split()) for piece in pieces[::2]]
    return '"'.join(pieces)


def is_json(text: str) -> bool:
    try:
        orjson.loads(text)
    except ValueError:
        try:  # numbers of any size, lone surrogates
            _STRICT.decode(text)
        except (ValueError, RecursionError):
            return False
    return True


def _compact_token(match: re.Match[str]) -> str:
    token = match[0]
    if token[0] != '"':
        return ""
    return token if _PLAIN_STRING.fullmatch(token) else _string(json.loads(token, strict=False))


def sorted_keys(text: str) -> str:
    """JSON text in one canonical form: equal where two JSON texts say the same."""
    if not _LONG_NUMBER.search(text):
        with contextlib.suppress(ValueError, TypeError):  # not JSON as orjson reads it; deeper than it writes
            return orjson.dumps(orjson.loads(text), option=orjson.OPT_SORT_KEYS).decode()
    try:
        return _SORTING.encode(_STRICT.decode(text))
    except (ValueError, RecursionError):
        return json.dumps(text)


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()


def _whole(digits: str) -> int | str:
    """Python reads no number of more than 4,300 digits; such a one is the same where its digits are."""
    return int(digits) if len(digits) < 4000 else digits


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


_STRICT = json.JSONDecoder(parse_int=_whole, parse_constant=_refuse)
_SORTING = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)
_LONG_NUMBER = re.compile(r"[0-9]{15}|[0-9][eE]")
"""Numbers that orjson rounds, or writes in another form."""


def _spell(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _escape(key: str) -> str:
    return "$" + key if _RESERVED.fullmatch(key) else key


def unescape(key: str) -> str:
    """The inverse of what plain() does to a key."""
    return key[1:] if key.startswith("$$") and _RESERVED.fullmatch(key) else key
