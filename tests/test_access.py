"""Keys open only what their role allows, data goes only where its sender may write, and no secret is ever shown."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from otel_blackboard.access import (
    PERMISSIONS,
    Credential,
    ForeignTenant,
    KeyFileError,
    KeyRing,
    allows,
    new_key,
    tenant_of,
)
from otel_blackboard.records import Attributes, InvalidText, Tenant

DEFAULT = Tenant("default", "default")


def write(path: Path, document: Any) -> Path:
    path.write_text(json.dumps(document))
    return path


def entry(**changes: Any) -> dict[str, Any]:
    digest = hashlib.sha256(b"key of agents").hexdigest()
    known = {"id": "agents", "sha256": digest, "role": "writer", "organization": "acme", "projects": ["research"]}
    return known | changes


def names(organization: str | None = None, project: str | None = None) -> Attributes:
    found: Attributes = {}
    if organization is not None:
        found["blackboard.organization.id"] = organization
    if project is not None:
        found["blackboard.project.id"] = project
    return found


class TestKeys:
    def test_a_new_key_opens_the_ring_that_holds_its_entry(self, tmp_path: Path) -> None:
        secret, made = new_key("agents", "writer", "acme", ["research", "ops"])
        ring = KeyRing.load(write(tmp_path / "keys.json", {"keys": [made]}))
        assert ring.find(f"Bearer {secret}") == Credential("agents", "acme", ("research", "ops"), "writer")
        assert ring.find(f"bearer  {secret} ") is not None
        assert secret.startswith("bbk_")

    @pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "Basic {}", "{}", "Bearer {}x", "Bearer \udc80"])
    def test_nothing_but_the_key_opens_it(self, tmp_path: Path, header: str | None) -> None:
        secret, made = new_key("agents", "writer", "acme", ["research"])
        ring = KeyRing.load(write(tmp_path / "keys.json", {"keys": [made]}))
        assert ring.find(header.format(secret) if header is not None else None) is None

    def test_two_new_keys_differ(self) -> None:
        assert new_key("a", "reader", "acme", ["p"])[0] != new_key("a", "reader", "acme", ["p"])[0]

    def test_a_hash_may_be_written_in_upper_case(self, tmp_path: Path) -> None:
        ring = KeyRing.load(write(tmp_path / "keys.json", {"keys": [entry(sha256=entry()["sha256"].upper())]}))
        assert ring.find("Bearer key of agents") is not None

    def test_no_secret_and_no_hash_is_shown(self, tmp_path: Path) -> None:
        secret, made = new_key("agents", "writer", "acme", ["research"])
        ring = KeyRing.load(write(tmp_path / "keys.json", {"keys": [made]}))
        shown = repr(ring) + repr(ring.find(f"Bearer {secret}"))
        assert secret not in shown and made["sha256"] not in shown
        assert secret not in json.dumps(made)


class TestKeyFile:
    @pytest.mark.parametrize(
        ("document", "said"),
        [
            ([], "list `keys`"),
            ({}, "list `keys`"),
            ({"keys": []}, "at least one entry"),
            ({"keys": [5]}, "keys[0]: is not an object"),
            ({"keys": [entry(role="owner")]}, "`role` must be one of writer, reader, reviewer, admin"),
            ({"keys": [entry(sha256="abc")]}, "keys[0] (id 'agents'): `sha256` must be the SHA-256"),
            ({"keys": [entry(id="")]}, "`id` must be a text"),
            ({"keys": [entry(organization=None)]}, "`organization` must be a text"),
            ({"keys": [entry(projects=[])]}, "`projects` must be a list"),
            ({"keys": [entry(projects="research")]}, "`projects` must be a list"),
            ({"keys": [entry(projects=["a", "a"])]}, "none twice"),
            ({"keys": [entry(rôle="writer")]}, "unknown field 'rôle'"),
            ({"keys": [entry(), entry(sha256="0" * 64)]}, "keys[1] (id 'agents'): another entry has this id"),
            ({"keys": [entry(), entry(id="other")]}, "keys[1] (id 'other'): another entry has this sha256"),
        ],
    )
    def test_an_error_names_file_and_entry_and_says_what_to_do(self, tmp_path: Path, document: Any, said: str) -> None:
        path = write(tmp_path / "keys.json", document)
        with pytest.raises(KeyFileError) as raised:
            KeyRing.load(path)
        assert said in str(raised.value)
        assert str(path) in str(raised.value)

    def test_a_missing_file_and_broken_json_are_said(self, tmp_path: Path) -> None:
        with pytest.raises(KeyFileError, match="cannot be read"):
            KeyRing.load(tmp_path / "none.json")
        (tmp_path / "keys.json").write_bytes(b"\xff{")
        with pytest.raises(KeyFileError, match="is not JSON"):
            KeyRing.load(tmp_path / "keys.json")
        (tmp_path / "keys.json").write_text("[" * 100_000)
        with pytest.raises(KeyFileError, match="is not JSON"):
            KeyRing.load(tmp_path / "keys.json")

    @pytest.mark.parametrize("field", ["sha256", "role", "projects", "key"])
    def test_a_key_written_into_the_wrong_field_is_not_repeated(self, tmp_path: Path, field: str) -> None:
        secret = "bbk_do-not-show-me"
        with pytest.raises(KeyFileError) as raised:
            KeyRing.load(write(tmp_path / "keys.json", {"keys": [entry(**{field: secret})]}))
        assert secret not in str(raised.value)

    def test_a_key_with_a_role_that_does_not_exist_is_not_made(self) -> None:
        with pytest.raises(ValueError, match="`role` must be one of"):
            new_key("agents", "owner", "acme", ["research"])


class TestRoles:
    @pytest.mark.parametrize(
        ("role", "permissions"),
        [
            ("writer", {"write"}),
            ("reader", {"read"}),
            ("reviewer", {"read", "review"}),
            ("admin", {"write", "read", "review", "admin"}),
            ("", set()),
            ("root", set()),
        ],
    )
    def test_each_role_may_do_what_the_table_says_and_nothing_else(self, role: str, permissions: set[str]) -> None:
        asked = {permission for permissions in PERMISSIONS.values() for permission in permissions}
        assert {permission for permission in asked if allows(role, permission)} == permissions


class TestTenantWithoutKeys:
    def test_attributes_are_believed_the_own_ones_first(self) -> None:
        assert tenant_of(None, names("acme", "research"), {}, DEFAULT) == ("acme", "research")
        assert tenant_of(None, names("acme", "research"), names(project="ops"), DEFAULT) == ("acme", "ops")

    def test_defaults_stand_for_what_is_missing_or_empty(self) -> None:
        assert tenant_of(None, {}, {}, DEFAULT) == DEFAULT
        assert tenant_of(None, names(project="ops"), names(project=""), DEFAULT) == ("default", "ops")

    @pytest.mark.parametrize("value", [5, True, [], {}, b"x", InvalidText(b"\xff"), "x" * 257])
    def test_what_is_no_name_is_refused(self, value: Any) -> None:
        with pytest.raises(ForeignTenant):
            tenant_of(None, {"blackboard.project.id": value}, {}, DEFAULT)


class TestTenantWithKeys:
    one = Credential("agents", "acme", ("research",), "writer")
    several = Credential("agents", "acme", ("research", "ops"), "writer")

    def test_one_project_is_implied(self) -> None:
        assert tenant_of(self.one, {}, {}, DEFAULT) == ("acme", "research")
        assert tenant_of(self.one, names("acme", "research"), {}, DEFAULT) == ("acme", "research")

    def test_another_organization_or_project_is_refused(self) -> None:
        for resource in (names("other"), names("other", "research"), names("acme", "ops"), names(project="ops")):
            with pytest.raises(ForeignTenant):
                tenant_of(self.one, resource, {}, DEFAULT)
            with pytest.raises(ForeignTenant):
                tenant_of(self.one, {}, resource, DEFAULT)

    def test_of_several_projects_one_must_be_named(self) -> None:
        assert tenant_of(self.several, names(project="ops"), {}, DEFAULT) == ("acme", "ops")
        assert (
            tenant_of(self.several, names(project="ops"), names(project="research"), DEFAULT).project_id == "research"
        )
        with pytest.raises(ForeignTenant, match="name one of: research, ops"):
            tenant_of(self.several, {}, {}, DEFAULT)
        with pytest.raises(ForeignTenant):
            tenant_of(self.several, names(project="default"), {}, DEFAULT)
