"""The service as its users run it: a process of its own, through its own doors."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

# One for all: each client of its own costs 20 ms of CPU.
_client = httpx.Client(timeout=30)
_READY = re.compile(r"ready: OTLP/gRPC (\S+), OTLP/HTTP (http://\S+), API (http://[^;]+);")


@dataclass
class RunningService:
    grpc: str
    http: str
    api: str
    process: subprocess.Popen[bytes]
    log: Path

    def get(self, path: str, project: str = "default", **query: Any) -> Any:
        return self._ask(path, project, **query).json()

    def raw(self, path: str, project: str = "default") -> bytes:
        return self._ask(path, project).content

    def _ask(self, path: str, project: str, **query: Any) -> httpx.Response:
        answer = _client.get(f"{self.api}/api/v1{path}", params={"project_id": project, **query})
        assert answer.status_code == 200, answer.text
        return answer

    def post(self, signal_name: str, body: bytes, kind: str = "application/x-protobuf") -> httpx.Response:
        return httpx.post(f"{self.http}/v1/{signal_name}", content=body, headers={"content-type": kind}, timeout=60)

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(40)


def launch(
    data: Path, *options: str, environment: Mapping[str, str] | None = None
) -> tuple[subprocess.Popen[bytes], Path]:
    """Starts `otel-blackboard serve` on free ports and does not wait for it. Its log lies beside the data folder."""
    data.mkdir(parents=True, exist_ok=True)
    log = data / f"service-{time.monotonic_ns()}.log"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("BLACKBOARD_")}
    command = [
        sys.executable, "-m", "otel_blackboard.cli", "serve", "--data", str(data), "--otlp-grpc", "127.0.0.1:0",
        "--otlp-http", "127.0.0.1:0", "--api", "127.0.0.1:0", *options,
    ]  # fmt: skip
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=clean | dict(environment or {})
        )
    return process, log


@contextlib.contextmanager
def service(data: Path, *options: str, environment: Mapping[str, str] | None = None) -> Iterator[RunningService]:
    """Starts `otel-blackboard serve` on free ports, waits until it is ready, and ends it."""
    process, log = launch(data, *options, environment=environment)
    try:
        deadline = time.monotonic() + 60
        while (match := _READY.search(log.read_text())) is None:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        yield RunningService(match[1], match[2], match[3], process, log)
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
