"""MinIO itself, where a binary of it can be found (built from its Go module: no package index has one)."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from otel_blackboard.exporter.s3_store import S3Store
from tests.servers import ACCESS_KEY, SECRET_KEY, free_ports, running, wait_until


def find_minio() -> Path | None:
    """BLACKBOARD_TEST_MINIO, else ~/.cache/otel-blackboard/bin/minio, else PATH."""
    named = os.environ.get("BLACKBOARD_TEST_MINIO")
    for candidate in (named, "~/.cache/otel-blackboard/bin/minio", shutil.which("minio")):
        if candidate and os.access(path := Path(candidate).expanduser(), os.X_OK):
            return path
    return None


@contextlib.contextmanager
def minio_server(folder: Path, bucket: str = "bodies", port: int = 0) -> Iterator[str]:
    """Yields its S3 URL once an object could be written. Data and log lie in `folder`; about 1 second.

    With a port, a server that was ended can be started again at the same address.
    """
    minio = find_minio()
    if minio is None:
        raise RuntimeError("no MinIO binary: name one with BLACKBOARD_TEST_MINIO")
    data = folder / "minio"
    data.mkdir(parents=True, exist_ok=True)
    s3, console = free_ports(2)
    s3 = port or s3
    command = [
        *(str(minio), "server", str(data), "--quiet"),
        *("--address", f"127.0.0.1:{s3}", "--console-address", f"127.0.0.1:{console}"),
    ]
    environment = {"MINIO_ROOT_USER": ACCESS_KEY, "MINIO_ROOT_PASSWORD": SECRET_KEY, "MINIO_BROWSER": "off"}
    log = folder / "minio.log"
    url = f"http://{quote(ACCESS_KEY, '')}:{quote(SECRET_KEY, '')}@127.0.0.1:{s3}/{bucket}"
    store = S3Store(url, "us-east-1")

    def writable() -> bool:
        store.check()
        return True

    with running(command, log, environment, cwd=folder) as process:
        wait_until(writable, process, log)
        yield url
