"""Who may send and ask: API keys, roles, and the tenant that data belongs to.

Keys are bearer keys. The key file holds their SHA-256 only; no secret is kept, printed or put into a message.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from otel_blackboard.records import Attributes, Tenant

PERMISSIONS: dict[str, frozenset[str]] = {
    "writer": frozenset({"write"}),
    "reader": frozenset({"read"}),
    "reviewer": frozenset({"read", "review"}),
    "admin": frozenset({"write", "read", "review", "admin"}),
}
"""What each role may do. write: telemetry and run tokens; read; review: decisions; admin: sweep, deletion, settings."""

ORGANIZATION_ATTRIBUTE = "blackboard.organization.id"
PROJECT_ATTRIBUTE = "blackboard.project.id"
LONGEST_TENANT_ID = 256
"""Characters. Tenant ids stand in every row and key; a longer one is a mistake, not a name."""

_ENTRY_FIELDS = {"id", "sha256", "role", "organization", "projects"}


class KeyFileError(ValueError):
    """The key file cannot be used; the message names file and entry and says what to do."""


class ForeignTenant(Exception):
    """Data names a tenant that its sender may not write to; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Credential:
    """Who a known key stands for. Holds no secret."""

    key_id: str
    organization_id: str
    projects: tuple[str, ...]
    role: str


def allows(role: str, permission: str) -> bool:
    """Whether a role may do something; an unknown role may do nothing."""
    return permission in PERMISSIONS.get(role, frozenset())


class KeyRing:
    """The known keys, by the SHA-256 of their text."""

    __slots__ = ("_credentials",)

    def __init__(self, credentials: Iterable[tuple[str, Credential]]) -> None:
        """`credentials`: pairs of the key's SHA-256 (lower-case hex) and what the key stands for."""
        self._credentials = tuple(credentials)

    @classmethod
    def load(cls, path: Path) -> KeyRing:
        """Reads `{"keys": [{"id", "sha256", "role", "organization", "projects"}]}`. Raises KeyFileError."""
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise KeyFileError(f"{path}: cannot be read ({error.strerror}); check BLACKBOARD_KEYS_FILE") from None
        except (ValueError, RecursionError):
            raise KeyFileError(f"{path}: is not JSON; write an object with a list `keys`") from None
        entries = document.get("keys") if isinstance(document, dict) else None
        if not isinstance(entries, list) or not entries:
            raise KeyFileError(f"{path}: holds no keys; write an object with a list `keys` of at least one entry")
        found: list[tuple[str, Credential]] = []
        for position, entry in enumerate(entries):
            name = f"{path}: keys[{position}]"
            if isinstance(entry, dict) and isinstance(entry.get("id"), str):
                name += f" (id {entry['id'][:80]!r})"
            try:
                digest, credential = _read_entry(entry)
            except ValueError as error:
                raise KeyFileError(f"{name}: {error}") from None
            if any(credential.key_id == other.key_id for _, other in found):
                raise KeyFileError(f"{name}: another entry has this id; give each key its own")
            if any(digest == other for other, _ in found):
                raise KeyFileError(f"{name}: another entry has this sha256; make a new key for this entry")
            found.append((digest, credential))
        return cls(found)

    def find(self, authorization_header: str | None) -> Credential | None:
        """The credential of `Bearer <key>`; None without a header, with another scheme or an unknown key."""
        scheme, _, key = (authorization_header or "").strip().partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            return None
        digest = _sha256(key.strip())
        found = None
        # No early exit: how long it takes says nothing about which entry matched.
        for known, credential in self._credentials:
            if hmac.compare_digest(known, digest):
                found = credential
        return found

    def __len__(self) -> int:
        return len(self._credentials)

    def __repr__(self) -> str:
        return f"KeyRing({len(self)} keys)"


def new_key(id: str, role: str, organization: str, projects: Iterable[str]) -> tuple[str, dict[str, Any]]:
    """A new secret and its entry for the key file. The secret is not kept anywhere. Raises ValueError."""
    secret = "bbk_" + secrets.token_urlsafe(32)
    entry = {
        "id": id,
        "sha256": _sha256(secret),
        "role": role,
        "organization": organization,
        "projects": list(projects),
    }
    _read_entry(entry)
    return secret, entry


def tenant_of(credential: Credential | None, resource: Attributes, own: Attributes, default: Tenant) -> Tenant:
    """The tenant of one span or log record: its own attributes before those of its resource.

    Without a credential the attributes are believed and `default` stands for missing ones. With one, the
    organization is the credential's; its only project is implied, of several the data must name one.
    Raises ForeignTenant where the data disagrees.
    """
    organization = _named(ORGANIZATION_ATTRIBUTE, resource, own)
    project = _named(PROJECT_ATTRIBUTE, resource, own)
    if credential is None:
        return Tenant(organization or default.organization_id, project or default.project_id)
    if organization not in (None, credential.organization_id):
        raise ForeignTenant(f"{ORGANIZATION_ATTRIBUTE} {organization!r} is not the organization of the key")
    if project is None:
        if len(credential.projects) != 1:
            choice = ", ".join(credential.projects)
            raise ForeignTenant(f"{PROJECT_ATTRIBUTE} is missing; the key has several projects, name one of: {choice}")
        project = credential.projects[0]
    elif project not in credential.projects:
        raise ForeignTenant(f"{PROJECT_ATTRIBUTE} {project!r} is not a project of the key")
    return Tenant(credential.organization_id, project)


def _named(attribute: str, resource: Attributes, own: Attributes) -> str | None:
    """The id that the data gives, None for a missing or empty one. Raises ForeignTenant if it is no text."""
    value = own.get(attribute)
    if value is None or value == "":
        value = resource.get(attribute)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise ForeignTenant(f"{attribute} is not text")
    if len(value) > LONGEST_TENANT_ID:
        raise ForeignTenant(f"{attribute} is longer than {LONGEST_TENANT_ID} characters")
    return value


def _read_entry(entry: object) -> tuple[str, Credential]:
    """SHA-256 and credential of one entry. Raises ValueError that says what to do and repeats no value of a field
    that might be a secret."""
    if not isinstance(entry, dict):
        raise ValueError("is not an object; write {id, sha256, role, organization, projects}")
    unknown = sorted(str(field) for field in entry.keys() - _ENTRY_FIELDS)
    if unknown:
        raise ValueError(f"unknown field {unknown[0]!r}; known are {', '.join(sorted(_ENTRY_FIELDS))}")
    texts = {}
    for field in ("id", "role", "organization"):
        value = entry.get(field)
        if not isinstance(value, str) or not value or len(value) > LONGEST_TENANT_ID:
            raise ValueError(f"`{field}` must be a text of 1 to {LONGEST_TENANT_ID} characters")
        texts[field] = value
    digest = entry.get("sha256")
    if not isinstance(digest, str) or not re.fullmatch(r"[0-9a-fA-F]{64}", digest):
        raise ValueError("`sha256` must be the SHA-256 of the key text, 64 hex digits, never the key itself")
    if texts["role"] not in PERMISSIONS:
        raise ValueError(f"`role` must be one of {', '.join(PERMISSIONS)}")
    projects = entry.get("projects")
    if (
        not isinstance(projects, list)
        or not projects
        or not all(isinstance(project, str) and 0 < len(project) <= LONGEST_TENANT_ID for project in projects)
        or len(set(projects)) != len(projects)
    ):
        raise ValueError("`projects` must be a list of at least one project id, none twice")
    return digest.lower(), Credential(texts["id"], texts["organization"], tuple(projects), texts["role"])


def _sha256(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
