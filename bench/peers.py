"""Other systems that take the same payload, each as its makers ship it, on this machine: `python -m bench.peers`.

Each is installed into an environment of its own under a cache folder (BLACKBOARD_CACHE, else ~/.cache/otel-blackboard; 2 GB,
once), listens on 127.0.0.1, phones nobody, and gets as much as it can take in a minute. A span counts when it is visible
in the peer's store, whether or not it was acknowledged before. rotel writes into the front over chDB of tests/servers, the
same engine as the service's own.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import clickhouse_connect

from bench import Cell, Table, payload, percentile
from bench.ingest import stored_bytes, table_bytes
from bench.processes import measured, memory_mib, settle
from bench.sending import Load, Sender, send
from tests.running_service import service
from tests.servers import free_ports, running, wait_until
from tests.servers.clickhouse_over_chdb import clickhouse_over_chdb

_QUIET = {"DO_NOT_TRACK": "true", "OTEL_SDK_DISABLED": "true"}
COLUMNS = (
    *("system", "visible spans/s", "CPU µs/span", "send → visible p50 ms"),
    *("memory, most, MiB", "disk bytes/span", "spans"),
)


class Door(NamedTuple):
    url: str
    visible: Callable[[], int] | None
    """Spans that a query finds; None: an acknowledgement means visible (bench/ingest.py proves it)."""
    disk: Callable[[], int]
    """Bytes of what is stored; asked when the system has stopped."""
    empty: int = 0
    """The same before anything came."""
    headers: Mapping[str, str] = {}


class Peer(NamedTuple):
    start: Callable[[Path], contextlib.AbstractContextManager[Door]]
    requests: int
    """Of 512 spans: about a minute of it."""
    faster: float = 0
    """How many times as fast the service is to be."""


class Result(NamedTuple):
    rate: float
    cpu: float
    latency: float
    memory: float
    disk: float
    spans: int


def measure(peer: Peer, share: float) -> Result:
    load, requests, samples = Load(), max(1, round(peer.requests * share)), max(2, round(20 * share))
    with tempfile.TemporaryDirectory(prefix="blackboard-bench-") as folder, contextlib.ExitStack() as stack:
        door = stack.enter_context(peer.start(Path(folder)))
        sender, there = Sender(door.url, door.headers), 0

        def wait(spans: int, pause: float) -> None:
            deadline = time.monotonic() + 300
            while door.visible is not None and (found := door.visible()) < spans:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{found} of {spans} spans are visible after 300 s")
                time.sleep(pause)

        times = []
        for seed in range(20_000_000, 20_000_000 + samples + 1):
            body, there = payload.request(seed, 16), there + 16
            settle(quiet=0.1, most=5)
            begun = time.perf_counter()
            sender(body)
            wait(there, 0.002)
            times.append((time.perf_counter() - begun) * 1000)
        bodies = list(load.next(requests))

        def work() -> None:
            send(door.url, bodies, 4, door.headers)
            wait(there + load.spans, 0.05)

        cost, memory = measured(work), memory_mib("VmHWM")
        stack.close()
        return Result(
            load.spans / cost.seconds,
            cost.cpu / load.spans * 1e6,
            percentile(times[1:], 0.5),  # the first one finds everything cold
            memory,
            (door.disk() - door.empty) / (there + load.spans),
            load.spans,
        )


@contextlib.contextmanager
def blackboard(folder: Path) -> Iterator[Door]:
    with service(folder / "data") as started:
        yield Door(started.http, None, lambda: sum(stored_bytes(folder / "data").values()))


@contextlib.contextmanager
def rotel(folder: Path) -> Iterator[Door]:
    package = _environment("rotel==0.0.1a15") / "lib"
    (agent,) = package.glob("python*/site-packages/rotel/rotel-agent")
    with clickhouse_over_chdb(folder) as dsn:
        client = clickhouse_connect.get_client(dsn=dsn)
        client.command("CREATE DATABASE otel ENGINE = Atomic")
        client.command(_OTEL_TRACES)
        http, grpc = free_ports(2)
        command = [
            *(str(agent), "start", "--exporter=clickhouse", "--clickhouse-exporter-compression=none"),
            # The front has neither its block compression nor asynchronous inserts.
            "--clickhouse-exporter-async-insert=false",
            f"--clickhouse-exporter-endpoint=http://{dsn.partition('@')[2]}",
            *(f"--otlp-http-endpoint=127.0.0.1:{http}", f"--otlp-grpc-endpoint=127.0.0.1:{grpc}"),
            *(f"--pid-file={folder / 'rotel.pid'}", f"--log-file={folder / 'rotel.log'}"),
        ]
        with _running(command, folder / "rotel.out", f"http://127.0.0.1:{http}/"):
            yield Door(
                f"http://127.0.0.1:{http}",
                lambda: client.query("SELECT count() FROM otel.otel_traces").result_rows[0][0],
                lambda: sum(table_bytes(folder / "clickhouse", "otel").values()),
            )


# The columns that rotel names in its INSERT, as OpenTelemetry's own exporter makes them, without its indexes.
_OTEL_TRACES = """
CREATE TABLE otel.otel_traces (
    Timestamp DateTime64(9), TraceId String, SpanId String, ParentSpanId String, TraceState String,
    SpanName LowCardinality(String), SpanKind LowCardinality(String), ServiceName LowCardinality(String),
    ResourceAttributes Map(LowCardinality(String), String), ScopeName String, ScopeVersion String,
    SpanAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)), Duration Int64,
    StatusCode LowCardinality(String), StatusMessage String,
    Events Nested (Timestamp DateTime64(9), Name LowCardinality(String), Attributes Map(LowCardinality(String), String)),
    Links Nested (TraceId String, SpanId String, TraceState String, Attributes Map(LowCardinality(String), String))
) ENGINE = MergeTree PARTITION BY toDate(Timestamp) ORDER BY (ServiceName, SpanName, Timestamp)
"""


@contextlib.contextmanager
def mlflow(folder: Path) -> Iterator[Door]:
    binary, database, port = _environment("mlflow==3.17.2") / "bin" / "mlflow", folder / "mlflow.db", free_ports(1)[0]
    command = [
        *(str(binary), "server", "--host=127.0.0.1", f"--port={port}", f"--backend-store-uri=sqlite:///{database}"),
        f"--default-artifact-root={folder / 'artifacts'}",
    ]
    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with _running(command, folder / "mlflow.out", f"http://127.0.0.1:{port}/health", quiet):
        yield _sqlite_door(f"http://127.0.0.1:{port}", database, {"x-mlflow-experiment-id": "0"})


@contextlib.contextmanager
def phoenix(folder: Path) -> Iterator[Door]:
    binary = _environment("arize-phoenix==20.26.1") / "bin" / "phoenix"
    http, grpc = free_ports(2)
    settings = {
        "PHOENIX_HOST": "127.0.0.1", "PHOENIX_PORT": str(http), "PHOENIX_GRPC_PORT": str(grpc),
        "PHOENIX_WORKING_DIR": str(folder), "PHOENIX_TELEMETRY_ENABLED": "false",
        "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
    }  # fmt: skip
    with _running([str(binary), "serve"], folder / "phoenix.out", f"http://127.0.0.1:{http}/healthz", settings):
        yield _sqlite_door(f"http://127.0.0.1:{http}", folder / "phoenix.db")


PEERS = {
    "otel-blackboard": Peer(blackboard, 64),
    "rotel 0.0.1a15 → chDB": Peer(rotel, 64, faster=0.3),
    "MLflow 3.17.2, SQLite": Peer(mlflow, 16, faster=20),
    "Phoenix 20.26.1, SQLite": Peer(phoenix, 4, faster=50),
}


def compare(share: float = 1) -> tuple[Table, list[tuple[str, float, str, float]]]:
    """The table, and what the budgets speak of: (what, ratio, 'at least' or 'at most', budget)."""
    results: dict[str, Result] = {}
    rows: list[tuple[Cell, ...]] = []
    for name, peer in PEERS.items():
        try:
            results[name] = measure(peer, share)
            rows.append((name, *results[name]))
        except Exception as error:  # one that cannot run here must not cost the others
            why = " ".join(str(error).split())[-300:]
            rows.append((f"{name}: cannot run here: {why}", *[None] * (len(COLUMNS) - 1)))
    ours = results.pop("otel-blackboard", None)
    ratios: list[tuple[str, float, str, float]] = []
    for name, result in results.items() if ours else ():
        ratios.append((f"visible spans/s in those of {name}", ours.rate / result.rate, "at least", PEERS[name].faster))
        if name.startswith("Phoenix"):
            ratios.append((f"disk a span in that of {name}", ours.disk / result.disk, "at most", 0.25))
    return Table("Peers, the same payload", COLUMNS, rows), ratios


def _environment(requirement: str) -> Path:
    """A virtual environment that has it; made when it is missing."""
    cache = Path(os.environ.get("BLACKBOARD_CACHE") or "~/.cache/otel-blackboard").expanduser()
    folder = cache / "peers" / requirement
    done = folder / "installed"
    if not done.exists():
        print(f"installing {requirement} into {folder} …", file=sys.stderr, flush=True)
        for command in (
            [sys.executable, "-m", "venv", "--clear", str(folder)],
            [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", requirement],
        ):
            made = subprocess.run(command, capture_output=True, text=True)
            if made.returncode:
                raise RuntimeError(f"{' '.join(command)}: {made.stderr}")
        done.touch()
    return folder


@contextlib.contextmanager
def _running(
    command: list[str], log: Path, ready_url: str, environment: Mapping[str, str] | None = None
) -> Iterator[None]:
    def answers() -> bool:
        try:
            urllib.request.urlopen(ready_url, timeout=5).close()
        except urllib.error.HTTPError as error:
            return error.code < 500
        return True

    with running(command, log, _QUIET | dict(environment or {}), cwd=log.parent) as process:
        wait_until(answers, process, log, seconds=120)
        yield


def _sqlite_door(url: str, database: Path, headers: Mapping[str, str] | None = None) -> Door:
    def visible() -> int:
        with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=60)) as connection:
            return int(connection.execute("SELECT count(*) FROM spans").fetchone()[0])

    def size() -> int:
        with contextlib.closing(sqlite3.connect(database, timeout=60)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # what waits in its log counts once
        return database.stat().st_size

    return Door(url, visible, size, size(), headers or {})


def main() -> None:
    table, ratios = compare(float(sys.argv[1]) if len(sys.argv) > 1 else 1)
    print(table.text())
    for what, ratio, side, budget in ratios:
        print(f"  {what}: {ratio:.3g} ({side} {budget:g})")


if __name__ == "__main__":
    main()
