"""Measures the service against its budgets: `python -m bench --help`. Here: the service under measurement.

It runs as a process of its own, as a user starts it, in a temporary folder. Time is counted as CPU of that process
(/proc), because wall time on a shared machine says more about the neighbours.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

PROJECT = "default"
_TICKS = os.sysconf("SC_CLK_TCK")


class Figure(NamedTuple):
    """One line of a report."""

    name: str
    value: float | None
    unit: str
    note: str = ""

    def __str__(self) -> str:
        value = "–" if self.value is None else f"{self.value:,.0f}" if self.value >= 100 else f"{self.value:.3g}"
        return f"  {self.name:<52} {value:>10} {self.unit:<8} {self.note}".rstrip()


class Service:
    """A running `otel-blackboard serve` on free ports of this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.otlp_http, self.otlp_grpc, self.api = _free_ports(3)
        addresses = [f"--otlp-http=127.0.0.1:{self.otlp_http}", f"--otlp-grpc=127.0.0.1:{self.otlp_grpc}",
                     f"--api=127.0.0.1:{self.api}"]  # fmt: skip
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("BLACKBOARD_", "OTEL_"))}
        started = time.perf_counter()
        self._log = (folder / "service.log").open("wb")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "otel_blackboard.cli", "serve", f"--data={folder / 'data'}", *addresses],
            env=environment | {"BLACKBOARD_RETRIEVAL": "true"}, stdout=self._log, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise
        self.start_seconds = time.perf_counter() - started

    def _wait(self) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self.get("/readyz")[0] == 200:
                    return
            if self._process.poll() is not None:
                break
            time.sleep(0.02)
        raise RuntimeError("the service did not start:\n" + (self.folder / "service.log").read_text()[-2000:])

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._log.close()

    def get(self, path: str) -> tuple[int, Any]:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.api, timeout=60)) as connection:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, json.loads(response.read())

    def cpu_seconds(self) -> float:
        """User and system time of the process with all of its threads so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def memory_mib(self, key: str = "VmRSS") -> float:
        """VmRSS: now; VmHWM: the most so far."""
        for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            if line.startswith(key + ":"):
                return int(line.split()[1]) / 1024
        raise KeyError(key)

    def settle(self, quiet: float = 0.5, most: float = 30) -> None:
        """Waits until background merges are done: until the process takes hardly any CPU."""
        deadline = time.monotonic() + most
        while time.monotonic() < deadline:
            before = self.cpu_seconds()
            time.sleep(quiet)
            if self.cpu_seconds() - before < 0.1 * quiet:
                return


@contextlib.contextmanager
def running() -> Iterator[Service]:
    """A fresh service with an empty store."""
    folder = Path(tempfile.mkdtemp(prefix="blackboard-bench-"))
    try:
        service = Service(folder)
        try:
            yield service
        finally:
            service.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def percentile(values: list[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]
