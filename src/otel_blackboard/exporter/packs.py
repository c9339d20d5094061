"""Packs: many bodies in one object, each a zstd frame that can be read alone.

    frames, one after another | padding | footer | footer length, 8 bytes little-endian | b"BBPACK01"

The footer is zstd over JSON lines, one for each user of a frame: {"o": offset, "l": length, "r": raw length,
"t": trace_id, "s": span_id, "f": field}. Identical contents of one pack share a frame and have a line each. Deletion
and lifetimes walk the footers, so that they also find frames which no row names. Offsets never move: a deletion
overwrites the object with the frame blanked, and the padding takes up what a shorter footer leaves.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import date
from itertools import pairwise
from typing import NamedTuple

import orjson

from otel_blackboard.exporter.bodies import BodyDamaged, BodyMissing, BodyStore
from otel_blackboard.records import Body, Content, Frame, Tenant

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MAGIC = b"BBPACK01"
_TAIL = 16
"""Bytes behind the footer: its length and the magic."""

_FOOTER_GUESS = 64 * 1024
"""Bytes read from the end of a pack: most footers come in one round trip."""

_MAX_FOOTER = 64 * 1024 * 1024
"""Decompressed bytes of a footer that are still believed: a flush of 8 MiB of spans makes a tenth of it."""

_MERGE_GAP = 64 * 1024
"""Bytes between two frames that are read along rather than asked for apart: less than a round trip to S3 costs."""

# Measured on 1,000 English-like texts of 2-6 KB (two shared cores): CPU µs a body for the whole of pack(), and raw
# bytes by bytes of the packs with their footers. Level 1: 31, 4.49; 2: 31, 4.46; 3: 32, 4.59; 4: 45, 5.06; 6: 80, 5.12.
# So 3: what it saves over 1 is free, and what 4 saves costs a third more. A compressor made anew for each body would
# cost 9 µs more.
LEVEL = 3

_SAFE_PART = re.compile(r"[a-z0-9_-]{1,64}")
_CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz"


class Pack(NamedTuple):
    """One object ready to be put."""

    key: str
    data: bytes
    bodies: tuple[Body, ...]
    """What lies in it, in input order; identical contents each have their own."""


class Packed(NamedTuple):
    packs: list[Pack]
    bodies: list[Body]
    """One per input content, in input order."""


class FooterEntry(NamedTuple):
    """One user of one frame."""

    offset: int
    length: int
    raw_length: int
    trace_id: str
    span_id: str
    field: str


# Keys


def ulid(now_ms: int | None = None) -> str:
    """26 characters of Crockford's base 32 in lower case: 48 bits of unix milliseconds, then 80 random bits.

    Ordered by time, and not to be guessed.
    """
    milliseconds = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    number = (milliseconds << 80) | int.from_bytes(os.urandom(10), "big")
    return "".join(_CROCKFORD[(number >> shift) & 31] for shift in range(125, -1, -5))


def key_part(text: str) -> str:
    """The text where it is safe in a key, else 'x' and its sha256: 65 characters, so no safe text can equal it."""
    if _SAFE_PART.fullmatch(text):
        return text
    return "x" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def pack_prefix(tenant: Tenant, kind: str | None = None, day: date | None = None) -> str:
    """What the keys of a tenant, of one kind, or of one day of it begin with."""
    parts = [key_part(tenant.organization_id), key_part(tenant.project_id)]
    if kind is not None:
        parts.append(key_part(kind))
        if day is not None:
            parts.append(day.isoformat())
    return "/".join(parts) + "/"


def pack_key(tenant: Tenant, kind: str, day: date, ulid: str) -> str:
    """`{organization}/{project}/{kind}/{YYYY-MM-DD}/{ulid}.pack`."""
    return f"{pack_prefix(tenant, kind, day)}{ulid}.pack"


# Writing


def compress(contents: Iterable[Content], level: int = LEVEL) -> None:
    """Compresses each content that is not yet. Needs no store: any thread may do it."""
    compressor = zstd.ZstdCompressor(level=level)
    known: dict[tuple[str, int], bytes] = {}  # instructions and tools are often sent again with each call
    for content in contents:
        if content.frame:
            continue
        same = (content.digest(), len(content.data))
        frame = known.get(same)
        if frame is None:
            frame = known[same] = compressor.compress(content.data, zstd.ZstdCompressor.FLUSH_FRAME)
        content.frame, content.raw_length = frame, same[1]


def pack(contents: Sequence[Content], day: date, level: int = LEVEL) -> Packed:
    """The contents in one pack for each organization, project and kind, compressed where they are not yet. Pure but for
    the random keys.

    `day` is the day of receipt, which lifetimes count from.
    """
    compress(contents, level)
    groups: dict[tuple[Tenant, str], list[int]] = {}
    for index, content in enumerate(contents):
        groups.setdefault((content.tenant, content.kind), []).append(index)
    found: dict[int, Body] = {}
    packs = []
    for (tenant, kind), indexes in groups.items():
        key = pack_key(tenant, kind, day, ulid())
        data, bodies = _pack_group([contents[index] for index in indexes], key, level)
        packs.append(Pack(key, data, tuple(bodies)))
        found.update(zip(indexes, bodies, strict=True))
    return Packed(packs, [found[index] for index in range(len(contents))])


def _pack_group(contents: Sequence[Content], key: str, level: int) -> tuple[bytes, list[Body]]:
    frames: list[bytes] = []
    frame_of: dict[tuple[str, int], Frame] = {}
    entries: dict[FooterEntry, None] = {}
    bodies = []
    offset = 0
    for content in contents:
        digest, length = content.sha256, content.raw_length
        frame = frame_of.get((digest, length))
        if frame is None:
            frame = frame_of[digest, length] = Frame(key, offset, len(content.frame))
            frames.append(content.frame)
            offset += len(content.frame)
        entries[FooterEntry(frame.offset, frame.length, length, content.trace_id, content.span_id, content.field)] = (
            None
        )
        bodies.append(Body(content.field, (frame,), length, digest, content.encoding))
    frames.append(_footer(entries, level))
    return b"".join(frames), bodies


def _footer(entries: Iterable[FooterEntry], level: int = LEVEL) -> bytes:
    """The footer with its length and the magic."""
    lines = (
        orjson.dumps({"o": e.offset, "l": e.length, "r": e.raw_length, "t": e.trace_id, "s": e.span_id, "f": e.field})
        for e in entries
    )
    footer = zstd.compress(b"\n".join(lines), level=level)
    return footer + len(footer).to_bytes(8, "little") + MAGIC


def write_packs(store: BodyStore, packs: Sequence[Pack], pool: ThreadPoolExecutor | None = None) -> None:
    """Puts every pack, side by side when there is a pool (not the caller's own). Returns when all are stored.

    Raises the first BodyStoreError after the others have ended; packs stored by then are named by no row, and lifetimes
    remove them by their day.
    """
    if pool is None or len(packs) < 2:
        for one in packs:
            store.put(one.key, one.data)
        return
    futures = [pool.submit(store.put, one.key, one.data) for one in packs]
    wait(futures)
    for future in futures:
        future.result()


# Reading


def read_body(store: BodyStore, body: Body) -> bytes:
    """The bytes as they were captured, checked against their length and sha256.

    Raises BodyMissing, BodyDamaged or BodyStoreError.
    """
    frames = {frame: store.get(frame.object, frame.offset, frame.length) for frame in body.frames}
    return unpack(body, frames)


def read_bodies(store: BodyStore, bodies: Sequence[Body], pool: ThreadPoolExecutor | None = None) -> list[bytes]:
    """Like read_body for each, in order, but frames that lie near each other in one object are fetched together.

    Raises what read_body raises for the first that cannot be read.
    """
    frames: dict[Frame, bytes] = {}
    ranges = merge_frames(frame for body in bodies for frame in body.frames)

    def fetch(group: list[Frame]) -> bytes:
        start = group[0].offset
        return store.get(group[0].object, start, max(frame.offset + frame.length for frame in group) - start)

    for group, data in zip(ranges, (pool.map if pool else map)(fetch, ranges), strict=True):
        start = group[0].offset
        for frame in group:
            frames[frame] = data[frame.offset - start : frame.offset - start + frame.length]
    return [unpack(body, frames) for body in bodies]


def merge_frames(frames: Iterable[Frame]) -> list[list[Frame]]:
    """Groups of frames to be read with one request each: same object, less than 64 KiB between them."""
    ordered = sorted(set(frames))
    groups = [ordered[:1]] if ordered else []
    for before, frame in pairwise(ordered):
        if frame.object == before.object and frame.offset - (before.offset + before.length) < _MERGE_GAP:
            groups[-1].append(frame)
        else:
            groups.append([frame])
    return groups


def unpack(body: Body, frames: Mapping[Frame, bytes]) -> bytes:
    """The body out of its compressed frames. Never makes more than `raw_length` + 1 bytes. Raises as read_body does."""
    parts = []
    left = body.raw_length
    for frame in body.frames:
        data = frames[frame]
        if len(data) != frame.length:
            raise BodyDamaged(frame.object, body.field, f"the object ends inside the frame at {frame.offset}")
        if data and not data.strip(b"\0"):
            raise BodyMissing(frame.object, f"field {body.field!r} was deleted")
        try:
            part = _decompress(data, left)
        except ValueError as error:
            raise BodyDamaged(frame.object, body.field, f"frame at {frame.offset}: {error}") from None
        parts.append(part)
        left -= len(part)
    raw = b"".join(parts)
    named = body.frames[0].object if body.frames else ""
    if left:
        raise BodyDamaged(named, body.field, f"{len(raw)} bytes, not {body.raw_length}")
    if hashlib.sha256(raw).hexdigest() != body.sha256:
        raise BodyDamaged(named, body.field, "its sha256 differs")
    return raw


def _decompress(frame: bytes, limit: int) -> bytes:
    """One whole zstd frame of at most `limit` bytes decompressed. Raises ValueError.

    The decompressor's own window is bounded by its default of 128 MiB.
    """
    decompressor = zstd.ZstdDecompressor()
    try:
        raw = decompressor.decompress(frame, max_length=limit + 1)
    except zstd.ZstdError as error:
        raise ValueError(str(error)) from None
    if len(raw) > limit:
        raise ValueError(f"longer than {limit} bytes")
    if not decompressor.eof:
        raise ValueError("incomplete")
    if decompressor.unused_data:
        raise ValueError("something follows it")
    return raw


# Footers


def read_footer(store: BodyStore, key: str, size: int) -> list[FooterEntry]:
    """The users of a pack of `size` bytes, in stored order. Raises BodyMissing, BodyDamaged or BodyStoreError."""
    start = max(0, size - _FOOTER_GUESS)
    end = store.get(key, start, size - start)
    if len(end) != size - start:
        raise BodyDamaged(key, "", f"it is not {size} bytes long")
    length = _footer_length(end, key, size)
    if length + _TAIL > len(end):
        start = size - _TAIL - length
        end = store.get(key, start, length) + end[-_TAIL:]
    return _parse_footer(end[-_TAIL - length : -_TAIL], key, size - _TAIL - length)


def footer_entries(data: bytes, key: str = "") -> list[FooterEntry]:
    """The users of a whole pack. Raises BodyDamaged."""
    length = _footer_length(data, key, len(data))
    return _parse_footer(data[len(data) - _TAIL - length : -_TAIL], key, len(data) - _TAIL - length)


def _footer_length(end: bytes, key: str, size: int) -> int:
    if len(end) < _TAIL or end[-8:] != MAGIC:
        raise BodyDamaged(key, "", "it does not end like a pack")
    length = int.from_bytes(end[-16:-8], "little")
    if length > size - _TAIL:
        raise BodyDamaged(key, "", "its footer is longer than itself")
    return length


def _parse_footer(footer: bytes, key: str, end_of_frames: int) -> list[FooterEntry]:
    try:
        lines = _decompress(footer, _MAX_FOOTER).split(b"\n")
        entries = [_entry(orjson.loads(line)) for line in lines if line]
    except (ValueError, KeyError, TypeError) as error:
        raise BodyDamaged(key, "", f"its footer cannot be read: {error!r}") from None
    for entry in entries:
        if entry.offset < 0 or entry.length < 0 or entry.offset + entry.length > end_of_frames:
            raise BodyDamaged(key, "", f"its footer names a frame outside of it: {entry.offset}, {entry.length}")
    return entries


def _entry(line: Mapping[str, object]) -> FooterEntry:
    offset, length, raw_length, *names = (line[name] for name in "olrtsf")
    if not (isinstance(offset, int) and isinstance(length, int) and isinstance(raw_length, int)):
        raise TypeError("an offset or length is not a number")
    trace_id, span_id, field = names
    if not (isinstance(trace_id, str) and isinstance(span_id, str) and isinstance(field, str)):
        raise TypeError("an id or field is not a text")
    return FooterEntry(offset, length, raw_length, trace_id, span_id, field)


def blank_frames(data: bytes, entries: Collection[FooterEntry]) -> bytes:
    """The whole pack without these users: frames that nobody else uses are zeros, all offsets as before.

    The result is as long as `data` (a footer that compresses worse without them may make it a few bytes longer) and
    holds none of the removed names. Whoever finds `footer_entries` of it empty deletes the object instead. Raises
    BodyDamaged. Two processes that do this to one object at the same time undo each other: let one do it at a time.
    """
    users = footer_entries(data)
    removed = set(entries)
    kept = [user for user in users if user not in removed]
    kept_frames = {(user.offset, user.length) for user in kept}
    frames_end = max((user.offset + user.length for user in users), default=0)
    result = bytearray(data[:frames_end])
    for user in users:
        if user in removed and (user.offset, user.length) not in kept_frames:
            result[user.offset : user.offset + user.length] = bytes(user.length)
    footer = _footer(kept)
    padding = len(data) - frames_end - len(footer)
    return bytes(result) + bytes(max(0, padding)) + footer
