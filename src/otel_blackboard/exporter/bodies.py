"""The body store: where packed content is kept, behind one small interface. A folder (the embedded default) or S3.

Errors: `BodyStoreError` (the store failed; the caller answers 503 or tries again), `BodyMissing` (the object or frame
is gone, which deletion and lifetimes do on purpose) and `BodyDamaged` (what is there is not what was written).
`InvalidKey` is a programming error or a forged row. None of them ever carries a credential.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple, Protocol


class BodyError(Exception):
    """Base of everything that goes wrong with bodies."""


class BodyStoreError(BodyError):
    """The store could not do what was asked. The message names the store, the key and the cause."""

    def __init__(self, store: str, action: str, key: str, cause: str, advice: str = "") -> None:
        what = f"{action} {key!r}" if key else action
        super().__init__(f"body store {store}: cannot {what}: {cause}" + (f"; {advice}" if advice else ""))
        self.store = store
        self.key = key
        self.cause = cause
        self.advice = advice

    @property
    def fault(self) -> str:
        """The message without the key, which is another one each time."""
        return f"body store {self.store}: {self.cause}" + (f"; {self.advice}" if self.advice else "")


class BodyMissing(BodyError):
    """The object does not exist, or the frame in it was blanked by a deletion."""

    def __init__(self, key: str, detail: str = "no such object") -> None:
        super().__init__(f"body {key!r}: {detail}")
        self.key = key


class BodyDamaged(BodyError):
    """The bytes of an object are not the bytes that were written. `field` is '' when the object itself is meant."""

    def __init__(self, key: str, field: str, detail: str) -> None:
        super().__init__(f"body {key!r}" + (f", field {field!r}" if field else "") + f" is damaged: {detail}")
        self.key = key
        self.field = field


class InvalidKey(BodyError, ValueError):
    """A key that no part of this program makes."""

    def __init__(self, key: str) -> None:
        super().__init__(f"not a body key: {key[:200]!r}")


class StoredObject(NamedTuple):
    key: str
    size: int
    """Bytes."""
    modified: datetime
    """Aware, UTC."""


class BodyStore(Protocol):
    """Every method may be called from any thread, and raises BodyStoreError when the store fails."""

    def put(self, key: str, data: bytes) -> None:
        """Stores the object, replacing one of that key. Readers see the old bytes or all of the new ones."""

    def get(self, key: str, offset: int, length: int) -> bytes:
        """`length` bytes from `offset`; fewer where the object ends before. Raises BodyMissing without the object."""

    def delete(self, key: str) -> None:
        """Removes the object; one that is absent is fine."""

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """Objects whose key begins with `prefix` ('' = all), in no promised order. Foreign objects are left out."""

    def check(self, make: bool = True) -> None:
        """Proves that the bucket or folder can be written to, and makes one that is missing unless `make` is false.

        Raises BodyStoreError whose message says what to do about it.
        """


# Parts never begin with a dot: neither '..' nor the stores' own files can be named by a key.
_PART = r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}"
_KEY = re.compile(rf"(?:{_PART}/){{0,15}}{_PART}")
MAX_KEY = 1024
"""Longest key in characters: what S3 allows."""


def is_key(key: str) -> bool:
    """Whether `key` is a relative path of safe parts."""
    return len(key) <= MAX_KEY and _KEY.fullmatch(key) is not None


def check_key(key: str) -> str:
    """The key itself. Raises InvalidKey."""
    if not is_key(key):
        raise InvalidKey(key)
    return key


def check_prefix(prefix: str) -> str:
    """The prefix itself: anything that some key begins with. Raises InvalidKey."""
    if prefix and not is_key(prefix + "x"):
        raise InvalidKey(prefix)
    return prefix


def check_range(offset: int, length: int) -> None:
    """Raises ValueError for a range that cannot be."""
    if offset < 0 or length < 0:
        raise ValueError(f"not a range: offset {offset}, length {length}")
