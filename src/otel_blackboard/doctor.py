"""`otel-blackboard doctor`: what stands in the way of serving, and what to do about it."""

from __future__ import annotations

import difflib
import errno
import socket
from collections.abc import Mapping
from typing import NamedTuple

import urllib3

from otel_blackboard.access import KeyFileError
from otel_blackboard.config import Settings, is_loopback, split_address
from otel_blackboard.exporter import clickhouse
from otel_blackboard.exporter.bodies import BodyError
from otel_blackboard.exporter.body_stores import open_body_store
from otel_blackboard.service import StartError, load_keys

_PREFIX = "BLACKBOARD_"
_OTHER_VARIABLES = frozenset(
    f"{_PREFIX}{name}"
    for name in (
        "KEY",  # of `import`
        "ENDPOINT", "INSECURE", "API_KEY",  # deploy/collector/config.yaml
        "CACHE", "SHARED",  # .ci/run
    )
)  # fmt: skip


class Finding(NamedTuple):
    what: str
    ok: bool
    found: str
    advice: str = ""


def examine(settings: Settings, environment: Mapping[str, str]) -> list[Finding]:
    running = _running(settings)
    return [
        *_settings(environment),
        _keys(settings),
        *(_port(settings, option, running) for option in ("otlp_grpc", "otlp_http", "api")),
        _rows(settings, running),
        _bodies(settings),
    ]


def _running(settings: Settings) -> bool:
    """Whether a service answers already at the API's address: then its ports and its folder are taken, as they should."""
    try:
        split_address(settings.api)
        answer = urllib3.request("GET", f"http://{settings.api}/healthz", timeout=2, retries=False)
        return answer.status == 200 and answer.json() == {"status": "ok"}
    except (ValueError, urllib3.exceptions.HTTPError):
        return False


def _settings(environment: Mapping[str, str]) -> list[Finding]:
    known = {f"{_PREFIX}{name.upper()}" for name in Settings.model_fields} | _OTHER_VARIABLES
    unknown = sorted(
        name for name in environment if name.startswith(_PREFIX) and name not in known and "_TEST_" not in name
    )
    findings = []
    for name in unknown:
        # Without the prefix, which makes any two of them alike.
        near = difflib.get_close_matches(name[len(_PREFIX) :], [each[len(_PREFIX) :] for each in known], 1)
        advice = f"Did you mean {_PREFIX}{near[0]}?" if near else "Remove it."
        findings.append(Finding("settings", False, f"{name} is no setting and has no effect", advice))
    return findings or [Finding("settings", True, "all BLACKBOARD_* variables are known")]


def _keys(settings: Settings) -> Finding:
    try:
        keys = load_keys(settings)
    except (StartError, KeyFileError, OSError) as error:
        return Finding("keys", False, str(error))
    if keys is None:
        return Finding("keys", True, "none; the doors are on loopback only")
    return Finding("keys", True, f"{len(keys)} from {settings.keys_file}")


def _port(settings: Settings, option: str, running: bool) -> Finding:
    address = getattr(settings, option)
    what = f"--{option.replace('_', '-')}"
    if not address:
        return Finding(what, True, "closed")
    try:
        host, port = split_address(address)
    except ValueError as error:
        return Finding(what, False, str(error), "Give host:port, as 127.0.0.1:4318; an empty text closes the door.")
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if running and error.errno == errno.EADDRINUSE:
                return Finding(what, True, f"{address} is in use; a service answers at {settings.api} already")
            return Finding(
                what, False, f"{address}: {error.strerror}", "Stop what listens there, or give another address."
            )
    return Finding(what, True, f"{address} is free{'' if is_loopback(address) else ' (reachable from other machines)'}")


def _rows(settings: Settings, running: bool) -> Finding:
    if not clickhouse.DATABASE_NAME.fullmatch(settings.database):
        return Finding(
            "rows", False, f"database name {settings.database!r} is not an identifier", "Set BLACKBOARD_DATABASE."
        )
    where = clickhouse.where(settings)
    if not settings.clickhouse and clickhouse.is_locked(settings.data / "rows"):
        if running:
            return Finding("rows", True, f"{where} is open; a service answers at {settings.api} already")
        advice = "Stop it, or give --data another folder."
        return Finding("rows", False, f"{where}: another process owns this folder", advice)
    try:
        client = clickhouse.connect(settings, database="default")
    except clickhouse.StoreError as error:
        return Finding("rows", False, str(error))
    try:
        version = str(client.command("SELECT version()"))
        numbers = tuple(int(part) for part in version.split(".")[:2])
        if numbers < clickhouse.OLDEST_SERVER:
            oldest = ".".join(map(str, clickhouse.OLDEST_SERVER))
            return Finding("rows", False, f"{where} is {version}", f"Use {oldest} or newer.")
        query = "SELECT count() FROM system.databases WHERE name = {name:String}"
        exists = client.command(query, parameters={"name": settings.database})
    except Exception as error:
        return Finding("rows", False, f"{where}: {str(error).splitlines()[0][:200]}")
    finally:
        client.close()
    state = "database is there" if exists == 1 else f"database {settings.database} will be made"
    return Finding("rows", True, f"{where}, version {version}; {state}")


def _bodies(settings: Settings) -> Finding:
    try:
        store = open_body_store(settings)
        store.check()
    except (BodyError, ValueError, OSError) as error:
        return Finding("bodies", False, str(error))
    return Finding("bodies", True, f"{store}: writes and reads")
