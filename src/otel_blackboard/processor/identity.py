"""Ids and slugs: how names become ids, and which artifact a span's artifact is."""

from __future__ import annotations

import hashlib
import re

from otel_blackboard.records import Tenant

# `.` and `..` are no ids: they could never stand in an address.
_ID = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._:-]{1,128}")
_OUTSIDE_SLUG = re.compile(r"[^a-z0-9]+")


def slug(text: str) -> str:
    """TRC-10: lower case, every run of other characters one '-', 'item' when nothing is left."""
    return _OUTSIDE_SLUG.sub("-", text.lower()).strip("-") or "item"


def safe_id(prefix: str, text: str) -> str:
    """The id as sent where it is one; anything else becomes prefix + 32 hex digits of its SHA-256 ('' stays '')."""
    if not text or _ID.fullmatch(text):
        return text
    return prefix + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def joined_run(dialect: str, key: str) -> str:
    """The run of all spans that share a dialect's join key, whatever traces they are in."""
    return "run_" + hashlib.sha256(f"{dialect}\0{key}".encode("utf-8", "surrogatepass")).hexdigest()[:32]


def run_of_trace(trace_id: str) -> str:
    return f"run_{trace_id}"


def artifact_id(tenant: Tenant, *parts: str) -> str:
    """`art_` + 32 hex digits over tenant and parts: run, step, pass, call, kind where all are stamped on the span
    itself, else trace, span, kind (ART-09, design.md §4)."""
    text = "\n".join((*tenant, *parts))
    return "art_" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
