"""The OpenTelemetry Collector itself, with the configuration of deploy/, where `.ci/servers` has built a binary of it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.servers import free_ports, running, wait_until

CONFIGURATION = Path(__file__).parents[2] / "deploy" / "collector"


def find_collector() -> Path | None:
    """BLACKBOARD_TEST_OTELCOL, else otelcol-blackboard in the cache folder of `.ci/servers`, else in PATH."""
    cache = Path(os.environ.get("BLACKBOARD_CACHE") or "~/.cache/otel-blackboard")
    named = os.environ.get("BLACKBOARD_TEST_OTELCOL")
    for candidate in (named, cache / "bin" / "otelcol-blackboard", shutil.which("otelcol-blackboard")):
        if candidate and os.access(path := Path(candidate).expanduser(), os.X_OK):
            return path
    return None


class Collector(NamedTuple):
    """A running Collector: where it listens, and where it writes."""

    http: str
    """`http://127.0.0.1:port`, without /v1/traces."""
    grpc: str
    """`127.0.0.1:port`, no TLS."""
    metrics: str
    """URL of its own metrics."""
    file: Path
    """OTLP/JSON lines; written where the configuration has record.yaml."""
    log: Path
    process: subprocess.Popen[bytes]

    def kill(self) -> None:
        """SIGKILL, as a machine that fails would end it."""
        os.kill(self.process.pid, signal.SIGKILL)


@contextlib.contextmanager
def otel_collector(
    folder: Path,
    service_endpoint: str,
    api_key: str | None = None,
    configuration: Sequence[str] = ("config.yaml",),
) -> Iterator[Collector]:
    """Yields a Collector that forwards to the OTLP/gRPC door `host:port`, once it takes requests; under a second.

    Queue, file and log lie in `folder`: a second one with the same folder goes on with what the first had not delivered.
    `configuration` names files of deploy/collector.
    """
    binary = find_collector()
    if binary is None:
        raise RuntimeError("no Collector binary: run .ci/servers, or name one with BLACKBOARD_TEST_OTELCOL")
    grpc, http, health, metrics = free_ports(4)
    folder.mkdir(parents=True, exist_ok=True)
    file, log = folder / "otlp.jsonl", folder / "collector.log"
    environment = {
        "COLLECTOR_GRPC": f"127.0.0.1:{grpc}",
        "COLLECTOR_HTTP": f"127.0.0.1:{http}",
        "COLLECTOR_HEALTH": f"127.0.0.1:{health}",
        "COLLECTOR_METRICS_PORT": str(metrics),
        "COLLECTOR_STORAGE": str(folder / "queue"),
        "COLLECTOR_FILE": str(file),
        "BLACKBOARD_ENDPOINT": service_endpoint,
        "BLACKBOARD_INSECURE": "true",
        "BLACKBOARD_API_KEY": api_key or "none",
    }
    command = [str(binary), *(part for name in configuration for part in ("--config", str(CONFIGURATION / name)))]

    def healthy() -> bool:
        with urllib.request.urlopen(f"http://127.0.0.1:{health}/", timeout=2) as answer:
            return bool(answer.status == 200)

    with running(command, log, environment, cwd=folder) as process:
        wait_until(healthy, process, log)
        yield Collector(
            f"http://127.0.0.1:{http}",
            f"127.0.0.1:{grpc}",
            f"http://127.0.0.1:{metrics}/metrics",
            file,
            log,
            process,
        )
