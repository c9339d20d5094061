"""Bodies in a folder of this machine: the embedded default."""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from otel_blackboard.exporter.bodies import (
    BodyMissing,
    BodyStoreError,
    StoredObject,
    check_key,
    check_prefix,
    check_range,
    is_key,
)

_INCOMING = ".incoming"
"""Half-written files live here: one place to clear after a crash, on the same file system, and no key can name it."""

_STALE = 3600
"""Seconds after which a half-written file belongs to no running writer."""


class FolderStore:
    """One file per object, 0600 in folders 0700.

    Nothing is fsynced: after a kill the page cache still holds every acknowledged byte, and a power cut costs what it
    costs the rows, which ClickHouse does not fsync by default either.
    """

    def __init__(self, path: Path) -> None:
        self._root = path
        self._folders = threading.Lock()
        """Held while folders come and go, so that no deletion takes an empty one from under a writer."""

    def __repr__(self) -> str:
        return f"FolderStore({str(self._root)!r})"

    def __str__(self) -> str:
        return f"folder {self._root}"

    def put(self, key: str, data: bytes) -> None:
        target = self._root / check_key(key)
        incoming = self._root / _INCOMING / secrets.token_hex(16)
        try:
            _make_folder(self._root)
            _make_folder(incoming.parent)
            descriptor = os.open(incoming, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            with self._folders:
                _make_parents(self._root, target.parent)
                incoming.replace(target)
        except OSError as error:
            with contextlib.suppress(OSError):
                incoming.unlink()
            raise self._failed("write", key, error) from error

    def get(self, key: str, offset: int, length: int) -> bytes:
        check_range(offset, length)
        try:
            with (self._root / check_key(key)).open("rb") as file:
                # Python allocates what it is asked for, so never ask for more than there is.
                there = max(0, os.fstat(file.fileno()).st_size - offset)
                file.seek(offset)
                return file.read(min(length, there))
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise BodyMissing(key) from None
        except OSError as error:
            raise self._failed("read", key, error) from error

    def delete(self, key: str) -> None:
        path = self._root / check_key(key)
        try:
            path.unlink()
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise self._failed("delete", key, error) from error
        # Empty folders go too, up to the first that still holds something.
        with self._folders, contextlib.suppress(OSError):
            for parent in path.parents[: key.count("/")]:
                parent.rmdir()

    def list(self, prefix: str) -> Iterator[StoredObject]:
        check_prefix(prefix)
        folder = prefix.rpartition("/")[0]
        yield from self._walk(self._root / folder if folder else self._root, f"{folder}/" if folder else "", prefix)

    def _walk(self, folder: Path, path: str, prefix: str) -> Iterator[StoredObject]:
        try:
            with os.scandir(folder) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):  # deleted meanwhile, or never there
            return
        except OSError as error:
            raise self._failed("list", prefix, error) from error
        for entry in found:
            key = path + entry.name
            if not is_key(key):
                continue
            if entry.is_dir(follow_symlinks=False):
                if key.startswith(prefix) or prefix.startswith(key):
                    yield from self._walk(folder / entry.name, f"{key}/", prefix)
            elif entry.is_file(follow_symlinks=False) and key.startswith(prefix):
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                yield StoredObject(key, status.st_size, datetime.fromtimestamp(status.st_mtime, UTC))

    def check(self, make: bool = True) -> None:
        # A folder that is gone is made either way, as every put makes it.
        incoming = self._root / _INCOMING
        try:
            _make_folder(self._root)
            _make_folder(incoming)
            probe = incoming / secrets.token_hex(16)
            probe.write_bytes(b"written by check()")
            probe.unlink()
            for left_over in incoming.iterdir():
                with contextlib.suppress(FileNotFoundError):
                    if time.time() - left_over.stat().st_mtime > _STALE:
                        left_over.unlink()
        except OSError as error:
            advice = "make it writable for this user or name another folder with BLACKBOARD_DATA"
            raise self._failed("write to the folder", "", error, advice) from error

    def _failed(self, action: str, key: str, error: OSError, advice: str = "") -> BodyStoreError:
        return BodyStoreError(str(self._root), action, key, error.strerror or type(error).__name__, advice)


def _make_folder(path: Path) -> None:
    """Makes it with its parents; only the folder itself is private, what lies above it belongs to the user."""
    if not path.is_dir():
        path.mkdir(mode=0o700, parents=True, exist_ok=True)


def _make_parents(root: Path, folder: Path) -> None:
    """Makes every folder from the root to `folder`, each 0700 (`parents=True` ignores the mode for the middle ones)."""
    if folder.is_dir():
        return
    for parent in (*reversed(folder.relative_to(root).parents), folder.relative_to(root)):
        (root / parent).mkdir(mode=0o700, exist_ok=True)
