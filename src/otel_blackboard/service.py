"""The service in one process: stores, doors, query service; from start to a graceful stop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio.to_thread
import uvicorn
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp

from otel_blackboard import __version__
from otel_blackboard.access import KeyRing
from otel_blackboard.collector.arrival import Counters
from otel_blackboard.collector.group_commit import GroupCommit
from otel_blackboard.collector.grpc import start_grpc_door
from otel_blackboard.collector.http import make_http_door
from otel_blackboard.config import Settings, is_loopback, split_address
from otel_blackboard.exporter import clickhouse
from otel_blackboard.exporter.bodies import BodyStore
from otel_blackboard.exporter.body_stores import open_body_store
from otel_blackboard.exporter.flush import Exporter
from otel_blackboard.exporter.reader import Reader
from otel_blackboard.query.api import make_api

log = logging.getLogger("otel_blackboard")

READERS = 8
"""Requests of the query service that are answered at once."""

READY_TIMEOUT = 2.0
"""Seconds that a store may take to say that it is ready; whoever asks /readyz gives up soon after."""

_GOODBYE = 2
"""Seconds for the last answers of a stop, whatever else it took."""


class StartError(Exception):
    """The service cannot start; the message says why and what to do."""


@dataclass(frozen=True, eq=False)
class Stores:
    """Everything opened: what `serve` and the commands that work without it share."""

    settings: Settings
    bodies: BodyStore
    exporter: Exporter
    reader: Reader

    def close(self) -> None:
        self.exporter.close()
        self.reader.close()


@contextlib.contextmanager
def open_stores(settings: Settings) -> Iterator[Stores]:
    """Raises StoreError or BodyStoreError, with what to do."""
    if not settings.clickhouse or not settings.s3:
        settings.data.mkdir(parents=True, exist_ok=True)
    bodies = open_body_store(settings)
    bodies.check()
    with _scratch(settings) if not settings.clickhouse else contextlib.nullcontext():
        clickhouse.prepare(settings)
        stores = Stores(
            settings, bodies, Exporter(settings, bodies, alone=not settings.clickhouse), Reader(settings, bodies)
        )
        try:
            yield stores
        finally:
            stores.close()


_emptied: set[Path] = set()


@contextlib.contextmanager
def _scratch(settings: Settings) -> Iterator[None]:
    """chDB's client writes every insert to a temporary file first, content and all, and the engine has a temporary folder
    while it starts. A process that is killed leaves them behind: so they lie in a folder of ours, which the first to open the
    data empties."""
    folder = settings.data / "scratch"
    if folder not in _emptied and not clickhouse.is_locked(settings.data / "rows"):
        shutil.rmtree(folder, ignore_errors=True)
        _emptied.add(folder)
    folder.mkdir(mode=0o700, exist_ok=True)
    before = tempfile.tempdir, os.environ.get("TMPDIR")
    tempfile.tempdir = os.environ["TMPDIR"] = str(folder)  # Python's, and what the engine asks for
    try:
        yield
    finally:
        tempfile.tempdir = before[0]
        os.environ.pop("TMPDIR")
        if before[1] is not None:
            os.environ["TMPDIR"] = before[1]


def load_keys(settings: Settings) -> KeyRing | None:
    """The keys, or None where none are set: then every door must be on loopback."""
    if settings.keys_file is not None:
        return KeyRing.load(settings.keys_file)
    for option in ("otlp_grpc", "otlp_http", "api"):
        address = getattr(settings, option)
        if address:
            checked(option, address)
        if address and not is_loopback(address):
            raise StartError(
                f"--{option.replace('_', '-')} {address} can be reached from other machines, and no keys are set. "
                "Make one with `otel-blackboard keys new`, put it in a file and name it in BLACKBOARD_KEYS_FILE; "
                "or listen on 127.0.0.1."
            )
    return None


def checked(option: str, address: str) -> tuple[str, int]:
    """Host and port. Raises StartError that names the option."""
    try:
        return split_address(address)
    except ValueError as error:
        raise StartError(f"--{option.replace('_', '-')}: {error}") from error


def listen(option: str, address: str) -> socket.socket:
    host, port = checked(option, address)
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # Named as TCP, or asyncio leaves Nagle on: an answer of two packets would wait 40 ms for the client's ACK.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(1024)
    except OSError as error:
        why = error.strerror or error
        raise StartError(f"--{option} {address}: {why}. Stop what listens there, or give another address.") from error
    listener.setblocking(False)
    return listener


class StoreChecks:
    """Asks the stores side by side whether they answer: each by one thread, and no question while the last one is open."""

    def __init__(self, checks: Mapping[str, Callable[[], None]]) -> None:
        self._checks = checks
        self._pool = ThreadPoolExecutor(len(checks), thread_name_prefix="ready")
        self._asked: dict[str, Future[None]] = {}
        self._lock = threading.Lock()

    def failing(self) -> str:
        """The name of one that does not answer, else ''. Takes at most READY_TIMEOUT."""
        with self._lock:
            for name, check in self._checks.items():
                if name not in self._asked or self._asked[name].done():
                    self._asked[name] = self._pool.submit(check)
            asked = dict(self._asked)
        wait(asked.values(), READY_TIMEOUT)
        return next((name for name, answer in asked.items() if not answer.done() or answer.exception()), "")


class _Server(uvicorn.Server):
    """A uvicorn server that leaves signals to the service."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _server(app: ASGIApp) -> _Server:
    return _Server(
        uvicorn.Config(
            app, log_config=None, access_log=False, lifespan="off", server_header=False, date_header=False,
        )
    )  # fmt: skip


def _for_this_machine(app: ASGIApp, keys: KeyRing | None) -> ASGIApp:
    """Without keys only requests that name this machine: a page elsewhere could point its own host name at it."""
    return (
        app
        if keys is not None
        else TrustedHostMiddleware(app, ["localhost", "127.0.0.1", "::1", "[::1]"], www_redirect=False)
    )


def _settle() -> None:
    """Once everything is loaded. What is there now lives as long as the process: the collector of cycles need not walk it,
    nor look after every few hundred of the many short-lived records of a request (a third of decoding went into that).
    Reads are CPU-bound in the engine: more at once than this only wait for each other and hold memory."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    anyio.to_thread.current_default_thread_limiter().total_tokens = READERS


async def serve(settings: Settings) -> None:
    """Runs until SIGTERM or SIGINT. Raises StartError, StoreError, BodyStoreError or KeyFileError before it is ready."""
    keys = load_keys(settings)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    with contextlib.ExitStack() as opened:
        sockets = {
            option: opened.enter_context(listen(option.replace("_", "-"), address))
            for option in ("otlp_http", "api")
            if (address := getattr(settings, option))
        }
        stores = opened.enter_context(open_stores(settings))
        await asyncio.to_thread(stores.exporter.warm_up)
        _settle()
        intake = GroupCommit(stores.exporter, settings)
        counters = Counters()

        stores_answer = StoreChecks(
            {"row store": stores.reader.check, "body store": partial(stores.bodies.check, make=False)}
        )

        def ready() -> str:
            if stop.is_set():
                return "The service is stopping."
            if what := stores_answer.failing():
                return f"The {what} does not answer."
            return "The last flush failed." if intake.failing() else ""

        servers: list[_Server] = []
        running: list[asyncio.Task[None]] = []
        where: list[str] = []
        grpc_server = None
        if settings.otlp_grpc:
            try:
                grpc_server, port = await start_grpc_door(intake, keys, settings, counters)
            except OSError as error:
                raise StartError(
                    f"--otlp-grpc {settings.otlp_grpc}: it cannot be listened at. Stop what listens there, or give "
                    "another address."
                ) from error
            where.append(f"OTLP/gRPC {split_address(settings.otlp_grpc)[0]}:{port}")
        apps: dict[str, tuple[str, ASGIApp]] = {
            "otlp_http": ("OTLP/HTTP http://", make_http_door(intake, keys, settings, counters)),
            "api": ("API http://", _for_this_machine(make_api(stores.reader, settings, keys, ready), keys)),
        }
        for option, listener in sockets.items():
            name, app = apps[option]
            server = _server(app)
            servers.append(server)
            running.append(asyncio.create_task(server.serve(sockets=[listener])))
            host, port = listener.getsockname()[:2]
            where.append(f"{name}{f'[{host}]' if ':' in host else host}:{port}")
        while not all(server.started for server in servers):
            await asyncio.sleep(0.01)
            if failed := next((task for task in running if task.done()), None):
                failed.result()
        log.info(
            "otel-blackboard %s ready: %s; rows %s; bodies %s; keys %s", __version__, ", ".join(where),
            clickhouse.where(settings), stores.bodies, "none, loopback only" if keys is None else len(keys),
        )  # fmt: skip
        await stop.wait()
        log.info("stopping: finishing what was taken")
        deadline = time.monotonic() + settings.shutdown_timeout
        finished = await asyncio.to_thread(intake.close)
        if grpc_server is not None:
            await grpc_server.stop(grace=_GOODBYE)
        for server in servers:
            server.config.timeout_graceful_shutdown = max(_GOODBYE, round(deadline - time.monotonic()))
            server.should_exit = True
        await asyncio.gather(*running, return_exceptions=True)
        if not finished:
            # Threads that wait for a store would hold the process for as long as it hangs. Nothing they might still
            # write was acknowledged: to end like this is to end like a kill, which loses nothing.
            log.warning("stopped, a flush was still running: its senders were not acknowledged")
            logging.shutdown()
            os._exit(1)
        log.info("stopped")
