"""Real servers for tests, each a context manager that starts one on free ports of 127.0.0.1 and ends it again.

with seaweedfs(tmp_path) as url: ...               an S3 URL as BLACKBOARD_S3 takes it; its bucket exists
with minio_server(tmp_path) as url: ...            the same from MinIO's own binary, where find_minio() finds one
with clickhouse_over_chdb(tmp_path) as dsn: ...    a DSN as BLACKBOARD_CLICKHOUSE takes it; a front, not a server
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

ACCESS_KEY = "blackboard-test"
SECRET_KEY = "se/cret@key:100%-of-tests"
"""Holds every character that must be percent-encoded in a URL, so that each test proves the decoding."""


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that were free a moment ago, all different."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@contextlib.contextmanager
def running(
    command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """The command as a process group of its own, its output in `log`. Ends that group and nothing else."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            cwd=cwd,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes], patience: float = 2.0) -> None:
    """SIGTERM, then SIGKILL for all that is left of the group.

    The leader is reaped last: until then its pid, which is the group's id, can belong to nobody else.
    """
    if process.returncode is not None:  # a test has waited for it: the id may be anybody's
        return
    deadline = time.monotonic() + patience
    os.killpg(process.pid, signal.SIGTERM)
    while time.monotonic() < deadline:
        if has_ended(process):
            break
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Like poll(), but leaves the process to be reaped, so that its pid stays its own."""
    return process.returncode is not None or bool(
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    )


def wait_until(ready: Callable[[], bool], process: subprocess.Popen[bytes], log: Path, seconds: float = 60) -> None:
    """Asks until it says yes; an exception is a no. Raises RuntimeError with the end of the log when it never does."""
    deadline = time.monotonic() + seconds
    problem = "not ready"
    while time.monotonic() < deadline and not has_ended(process):
        try:
            if ready():
                return
        except Exception as error:
            problem = str(error)
        time.sleep(0.1)
    tail = log.read_text(errors="replace")[-3000:]
    state = "has ended" if has_ended(process) else "still runs"
    raise RuntimeError(f"{process.args!r} {state}: {problem}\n{tail}")
