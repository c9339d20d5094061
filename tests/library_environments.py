"""Environments for the scripts of tests/live, each with the newest releases of its library.

They lie under a cache folder (BLACKBOARD_CACHE, else ~/.cache/otel-blackboard), in `live`: one a script, made anew by the
first run of a day. uv makes those of Python (`pip install uv` once where it is missing): what several need is downloaded
once and shared by hard links.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

ROOT = Path(os.environ.get("BLACKBOARD_CACHE") or "~/.cache/otel-blackboard").expanduser() / "live"


class NotHere(Exception):
    """The environment cannot be made on this machine."""


class Python:
    def __init__(self, name: str, requirements: Sequence[str]) -> None:
        """Raises NotHere."""
        folder = ROOT / name
        self._python = str(folder / "bin" / "python")

        def make(new: Path) -> None:
            uv, python = _uv(), new / "bin" / "python"
            _run(uv, "venv", "--quiet", "--python", sys.executable, str(new))
            # Not --upgrade: it downloads again what is there.
            _run(uv, "pip", "install", "--quiet", "--python", str(python), *requirements)

        _current(folder, requirements, make, "uv")

    def command(self, script: Path) -> list[str]:
        return [self._python, str(script.with_suffix(".py"))]

    def versions(self, requirements: Sequence[str]) -> str:
        """`name version, …` of what the environment has of them."""
        listed = "import sys, importlib.metadata as m; print(', '.join(f'{n} {m.version(n)}' for n in sys.argv[1:]))"
        names = [requirement.partition(">")[0].partition("[")[0] for requirement in requirements]
        command = [self._python, "-c", listed, *names]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


class Node:
    def __init__(self, name: str, requirements: Sequence[str]) -> None:
        """Raises NotHere."""
        self._folder = ROOT / name
        if not (shutil.which("node") and shutil.which("npm")):
            raise NotHere("node and npm")

        def make(new: Path) -> None:
            new.mkdir()
            quick = ("--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-timeout=60000")
            _run("npm", "install", "--prefix", str(new), "--no-audit", "--no-fund", *quick, *requirements)

        _current(self._folder, requirements, make, "npm")

    def command(self, script: Path) -> list[str]:
        """A module finds packages from where it lies."""
        copy = self._folder / script.with_suffix(".mjs").name
        copy.write_bytes(script.with_suffix(".mjs").read_bytes())
        return ["node", str(copy)]

    def versions(self, requirements: Sequence[str]) -> str:
        packages = [self._folder / "node_modules" / name / "package.json" for name in requirements]
        return ", ".join(
            f"{(package := json.loads(path.read_text()))['name']} {package['version']}" for path in packages
        )


def _current(folder: Path, requirements: Sequence[str], make: Callable[[Path], None], tool: str) -> None:
    """Made anew once a day; where that fails, yesterday's stays. One after the other: two uv at once would download and
    keep twice what both need."""
    new, stamp = folder.with_suffix(".new"), folder / "resolved.json"
    today = {"requirements": [*requirements], "day": datetime.datetime.now(datetime.UTC).date().isoformat()}
    with _locked(tool):
        made = json.loads(stamp.read_text()) if stamp.exists() else {}
        if made == today:
            return
        shutil.rmtree(new, ignore_errors=True)
        try:
            make(new)
        except NotHere as failed:
            if made.get("requirements") != today["requirements"]:
                raise
            print(f"{folder.name} is as of {made['day']}: {failed}", file=sys.stderr)
            return
        shutil.rmtree(folder, ignore_errors=True)
        new.rename(folder)
        stamp.write_text(json.dumps(today))


_no_uv: list[NotHere] = []
"""Why there is none: asked once, for it takes seconds."""


def _uv() -> str:
    if found := shutil.which("uv"):
        return found
    own = ROOT / "uv" / "bin" / "uv"
    if _no_uv:
        raise _no_uv[0]
    if not own.exists():
        try:
            _run(sys.executable, "-m", "venv", "--clear", str(ROOT / "uv"))
            _run(str(ROOT / "uv" / "bin" / "python"), "-m", "pip", "install", "--quiet", "--retries=1", "uv")
        except NotHere as why:
            _no_uv.append(why)
            raise
    return str(own)


def _run(*command: str) -> None:
    # Without a network each of them is to say so soon.
    environment = os.environ | {"UV_CACHE_DIR": str(ROOT / "uv-cache"), "UV_HTTP_RETRIES": "1"}
    made = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=environment)
    if made.returncode:
        raise NotHere(f"{' '.join(command)}: {' '.join(made.stderr.split())[-500:]}")


@contextlib.contextmanager
def _locked(name: str) -> Iterator[None]:
    ROOT.mkdir(parents=True, exist_ok=True)
    with (ROOT / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
