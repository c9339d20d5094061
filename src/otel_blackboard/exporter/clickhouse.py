"""ClickHouse through clickhouse-connect: chDB in process, or a server by DSN. One SQL dialect, one code path."""

from __future__ import annotations

import fcntl
import re
import textwrap
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from queue import Empty, LifoQueue
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import clickhouse_connect
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    MaxRetryError,
    NewConnectionError,
    ProtocolError,
    ReadTimeoutError,
)

from otel_blackboard.config import Settings
from otel_blackboard.exporter.tables import Column
from otel_blackboard.records import Tenant

OLDEST_SERVER = (26, 3)
"""The text index and FINAL with skip indexes need it."""

_BOOT_TIMEOUT = 60
"""Seconds for what is done once, at the start: a schema is made while nobody waits."""

_LONGEST_EMBEDDED_READ = 30

OF_PROJECT = "organization_id = {organization:String} AND project_id = {project:String}"
"""What keeps tenants apart: every statement about a project has it, with the values of `of_project`."""

OF_TRACES = f"{OF_PROJECT} AND trace_id IN {{traces:Array(String)}}"

MOST_IDS = 2_000
"""Ids in one query, if they are as short as trace ids."""

_LONGEST_PARAMETER = 120 * 1024
"""Bytes of ids in one query: a server takes at most 128 KiB in one parameter."""

PINNED = {
    # So FINAL never shows an old row: versions of one key lie in several partitions (days of receipt).
    "do_not_merge_across_partitions_select_final": 0,
    "use_skip_indexes_if_final": 1,
    "use_skip_indexes_if_final_exact_mode": 1,
    # An insert that returns has been written: a profile of the server must not make it wait elsewhere.
    "async_insert": 0,
    "wait_for_async_insert": 1,
}


DATABASE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
SECURE = ("https", "clickhouses")
_HTTP_STATUS = re.compile(r"\bHTTP status (\d{3})\b")


class StoreError(Exception):
    """The row store cannot be used. The message says where, why and what to do; it holds no secret."""


def where(settings: Settings) -> str:
    """The store in words, without credentials."""
    if not settings.clickhouse:
        return f"chDB in {settings.data / 'rows'}"
    try:
        parts = urlsplit(settings.clickhouse)
        host, port = parts.hostname, parts.port or (8443 if parts.scheme in SECURE else 8123)
    except ValueError:
        host = None
    return f"ClickHouse at {host}:{port}" if host else "ClickHouse (no host in the DSN)"


def connect(
    settings: Settings, database: str | None = None, extra: Mapping[str, Any] | None = None, silence: int = 0
) -> Client:
    """One client. Each role or thread takes its own: a client answers one query at a time. `silence`: seconds that a server
    may take to answer, if not `store_timeout`."""
    options: dict[str, Any] = dict(PINNED) | dict(extra or {})
    name = settings.database if database is None else database
    try:
        if settings.clickhouse:
            # The driver goes by the port alone and would send an https DSN in clear to any other.
            secure = urlsplit(settings.clickhouse).scheme in SECURE
            return clickhouse_connect.get_client(
                interface="https" if secure else "http",
                dsn=settings.clickhouse, database=name, settings=options, connect_timeout=3,
                send_receive_timeout=silence or settings.store_timeout, autogenerate_session_id=False, query_retries=0,
            )  # fmt: skip
        folder = settings.data / "rows"
        folder.mkdir(parents=True, exist_ok=True)
        return clickhouse_connect.get_client(interface="chdb", path=str(folder), database=name, settings=options)
    except Exception as error:  # each driver raises its own kinds
        raise StoreError(_advice(settings, error)) from error


def _advice(settings: Settings, error: Exception) -> str:
    text = textwrap.shorten(str(error).split("\n")[0], 300, placeholder=" …")
    if settings.clickhouse:
        password = urlsplit(settings.clickhouse).password or ""
        for secret in filter(None, (password, unquote(password))):
            text = text.replace(secret, "***")
        told = in_words(error) if isinstance(error, ClickHouseError) else text
        return f"{where(settings)}: {told}. Check --clickhouse and that the server answers."
    if is_locked(settings.data / "rows"):
        return f"{where(settings)}: another process owns this folder. Stop it, or give --data another folder."
    return f"{where(settings)}: {text}. Check that --data names a folder this user may write."


def in_words(error: BaseException) -> str:
    """What an error of the driver says, without its text: a server quotes data and statements, urllib3 the whole URL."""
    code, name = getattr(error, "code", None), getattr(error, "name", None)
    if code:
        return f"error {code}" + (f" ({name})" if name else "")
    if status := _HTTP_STATUS.search(str(error)):
        return f"an answer with HTTP status {status[1]} that is not ClickHouse's"
    cause = error.__cause__ or error.__context__
    while isinstance(cause, MaxRetryError) and cause.reason is not None:
        cause = cause.reason
    if isinstance(cause, ReadTimeoutError):
        return "no answer in time"
    if isinstance(cause, ConnectTimeoutError) and not isinstance(cause, NewConnectionError):
        return "no connection in time"
    if isinstance(cause, NewConnectionError):
        return re.sub(r"^\[Errno \S+\] ", "", str(cause).rpartition(": ")[2])
    if isinstance(cause, ProtocolError):
        slow = any(isinstance(each, TimeoutError) for each in cause.args)
        return "no answer in time" if slow else "the connection was cut"
    if isinstance(cause, HTTPError | OSError):
        return f"the connection failed ({type(cause).__name__})"
    return f"an answer that cannot be read ({type(error).__name__})"


def is_locked(folder: Path) -> bool:
    """Whether another process holds the engine's lock. The engine itself only says that it could not start."""
    try:
        with (folder / "status").open("rb+") as status:
            fcntl.flock(status, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def prepare(settings: Settings) -> None:
    """Makes the database and brings its schema up to date; refuses a store that is newer than this code."""
    bootstrap = connect(settings, database="default", silence=_BOOT_TIMEOUT)
    try:
        if not DATABASE_NAME.fullmatch(settings.database):
            raise StoreError(f"database name {settings.database!r} is not an identifier; set BLACKBOARD_DATABASE")
        bootstrap.command(f"CREATE DATABASE IF NOT EXISTS {settings.database} ENGINE = Atomic")
    except ClickHouseError as error:
        raise StoreError(_advice(settings, error)) from error
    finally:
        bootstrap.close()
    client = connect(settings, silence=_BOOT_TIMEOUT)
    try:
        version = str(client.command("SELECT version()"))
        if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_SERVER:
            oldest = ".".join(map(str, OLDEST_SERVER))
            raise StoreError(f"{where(settings)} is version {version}; use {oldest} or newer")
        migrate(client)
    except ClickHouseError as error:
        raise StoreError(_advice(settings, error)) from error
    finally:
        client.close()


def migrations() -> list[tuple[int, str, str]]:
    """(number, name, SQL), in order."""
    folder = files("otel_blackboard.exporter") / "migrations"
    found = [entry for entry in folder.iterdir() if entry.name.endswith(".sql")]
    return sorted((int(entry.name[:4]), entry.name, entry.read_text()) for entry in found)


def migrate(client: Client) -> None:
    client.command(
        "CREATE TABLE IF NOT EXISTS migrations (number UInt32, name String, applied_at DateTime DEFAULT now()) "
        "ENGINE = MergeTree ORDER BY number"
    )
    applied = {row[0] for row in client.query("SELECT number FROM migrations").result_rows}
    known = migrations()
    newer = sorted(applied - {number for number, _, _ in known})
    if newer:
        raise StoreError(f"the store has migration {newer[-1]}, this version knows {known[-1][0]}: use a newer version")
    for number, name, sql in known:
        if number in applied:
            continue
        for statement in re.split(r"(?m)^;$", sql):
            if statement.strip() and not all(line.startswith("--") for line in statement.strip().splitlines()):
                client.command(statement)
        client.insert("migrations", [[number, name]], column_names=["number", "name"])


def insert(client: Client, table: str, columns: Sequence[Column], values: Sequence[Sequence[Any]]) -> None:
    """One block, column by column. Types are given, so that no DESCRIBE goes first; words are sent as text, for the engine
    makes their dictionaries faster than the client."""
    client.insert(
        table,
        values,
        column_names=[column.name for column in columns],
        column_type_names=[column.type.replace("LowCardinality(String)", "String") for column in columns],
        column_oriented=True,
    )


def of_project(tenant: Tenant) -> dict[str, Any]:
    return {"organization": tenant.organization_id, "project": tenant.project_id}


Id = TypeVar("Id", str, tuple[str, str])


def chunks(ids: Sequence[Id]) -> Iterator[list[Id]]:
    """As many at once as one query takes, of pairs each half in a parameter of its own."""
    some: list[Id] = []
    length = 0
    for each in ids:
        own = _length(each) if isinstance(each, str) else max(map(_length, each))
        if some and (len(some) == MOST_IDS or length + own > _LONGEST_PARAMETER):
            yield some
            some, length = [], 0
        some.append(each)
        length += own
    if some:
        yield some


def _length(text: str) -> int:
    """Bytes in a list that is a parameter: with quotes, a comma, and what the driver escapes."""
    escaped = 0 if text.isalnum() else sum(map(text.count, "\\'`\t\n"))
    return len(text.encode()) + escaped + 4


def longest_read(settings: Settings) -> int:
    """Seconds that one query of a reader may take. The engine in this process does not go away: it can only be slow."""
    return settings.store_timeout if settings.clickhouse else _LONGEST_EMBEDDED_READ


class ClientPool:
    """Clients for readers: as many as are in use at once, each by one thread at a time."""

    def __init__(self, settings: Settings, extra: Mapping[str, Any]) -> None:
        # The server is to end a query that takes too long, and say so, before its silence is taken for an outage.
        self._settings, self._extra = settings, {"max_execution_time": longest_read(settings), **extra}
        self._idle: LifoQueue[Client] = LifoQueue()
        self._all: list[Client] = []
        self._lock = threading.Lock()

    @contextmanager
    def client(self) -> Iterator[Client]:
        try:
            client = self._idle.get_nowait()
        except Empty:
            client = connect(self._settings, extra=self._extra, silence=longest_read(self._settings) + 1)
            with self._lock:
                self._all.append(client)
        try:
            yield client
        finally:
            self._idle.put(client)

    def close(self) -> None:
        with self._lock:
            for client in self._all:
                client.close()
            self._all.clear()
