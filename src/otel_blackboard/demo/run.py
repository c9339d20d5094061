"""`otel-blackboard demo`: the service in a process of its own, the agent, and the story of its run."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from otel_blackboard.demo.agent import run_agent
from otel_blackboard.demo.model_stub import ModelStub
from otel_blackboard.demo.story import print_story

_READY = re.compile(r"ready: OTLP/gRPC (\S+), OTLP/HTTP (http://\S+?), API (http://\S+?);")
_SWITCHES = {"BLACKBOARD_RETRIEVAL": "true", "BLACKBOARD_PLAN_STATE_PERSISTENCE": "true"}
"""Off by default; the demo shows what they do."""


def run_demo(data: Path | None, keep: bool, write: Callable[[str], None]) -> int:
    """0 when the run was told. The service stays up until Ctrl-C with `keep`."""
    with tempfile.TemporaryDirectory(prefix="otel-blackboard-demo-") as temporary:
        folder = data or Path(temporary)
        service = _start(folder)
        try:
            found = _wait_until_ready(service)
            if found is None:
                write("The service did not start; what it said stands above.")
                return 1
            otlp, api = found
            write(f"The service is up: OTLP/HTTP {otlp}, API {api}, data in {folder}.\n")
            with ModelStub() as stub:
                run = run_agent(otlp, api, stub.url, write=write)
            print_story(api, run.run_id, "default", write, otlp)
            if keep:
                write(f"\nThe service keeps running for you to look around ({api}/api/docs). Ctrl-C ends it.")
                service.wait()
            elif data is not None:
                write(f"\nLook again with:  BLACKBOARD_RETRIEVAL=true otel-blackboard serve --data {data}")
        except KeyboardInterrupt:
            write("")
        finally:
            service.terminate()
            service.wait(30)
    return 0


def _start(folder: Path) -> subprocess.Popen[str]:
    addresses = {"otlp-grpc": 4317, "otlp-http": 4318, "api": 8787}
    command = [sys.executable, "-m", "otel_blackboard.cli", "serve", "--data", str(folder)]
    for option, port in addresses.items():
        command += [f"--{option}", f"127.0.0.1:{port if _is_free(port) else 0}"]
    # The demo shows the embedded default, whatever this shell has set for a real deployment.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BLACKBOARD_")}
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=kept | _SWITCHES)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _wait_until_ready(service: subprocess.Popen[str]) -> tuple[str, str] | None:
    """(OTLP/HTTP, API) once the service says so. Anything but its usual lines goes on to stderr."""
    assert service.stderr is not None
    for line in service.stderr:
        if match := _READY.search(line):
            threading.Thread(target=_pass_on, args=(service,), daemon=True).start()
            return match[2], match[3]
        sys.stderr.write(line)
    return None


def _pass_on(service: subprocess.Popen[str]) -> None:
    assert service.stderr is not None
    for line in service.stderr:
        if " INFO " not in line:
            sys.stderr.write(line)
