"""What is measured of running processes, from outside: CPU and memory of all that this process has started, out of /proc."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")


class Measured(NamedTuple):
    seconds: float
    """Wall time of the work itself."""
    cpu: float
    """CPU seconds, what came after the work (background merges) included: it is part of the price."""
    cores: float
    """Cores that were busy during the work."""
    busiest: float
    """The share of the busiest thread in that."""


def measured(work: Callable[[], object]) -> Measured:
    settle()
    cpu, threads, started = cpu_seconds(), _threads(), time.perf_counter()
    work()
    seconds = time.perf_counter() - started
    cores = (cpu_seconds() - cpu) / seconds
    busiest = max((used - threads.get(thread, 0) for thread, used in _threads().items()), default=0) / seconds
    settle()
    return Measured(seconds, cpu_seconds() - cpu, cores, busiest)


def cpu_seconds(command: str = "") -> float:
    """User and system time so far of every process started by this one, or by those, that still runs.

    `command`: only of those whose command line holds it.
    """
    found = [Path(f"/proc/{pid}") for pid in _started()]
    return sum(_cpu(each / "stat") for each in found if not command or command in _command(each))


def memory_mib(key: str = "VmRSS") -> float:
    """VmRSS: now; VmHWM: the most so far."""
    total = 0
    for pid in _started():
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        total += sum(int(line.split()[1]) for line in lines if line.startswith(key + ":"))
    return total / 1024


def settle(quiet: float = 0.5, most: float = 60) -> None:
    """Waits until background merges are done: until the processes take hardly any CPU."""
    deadline = time.monotonic() + most
    while time.monotonic() < deadline:
        before = cpu_seconds()
        time.sleep(quiet)
        if cpu_seconds() - before < 0.1 * quiet:
            return


def _started() -> list[int]:
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parents[int(folder.name)] = int(_fields(folder / "stat")[1])
            except OSError:
                continue  # it has just ended
    found, layer = [], {os.getpid()}
    while layer := {pid for pid, parent in parents.items() if parent in layer}:
        found += layer
    return found


def _threads() -> dict[Path, float]:
    """Thread → its CPU seconds."""
    tasks = [task for pid in _started() for task in Path(f"/proc/{pid}/task").iterdir()]
    return {task: _cpu(task / "stat") for task in tasks}


def _command(process: Path) -> str:
    return (process / "cmdline").read_text().replace("\0", " ")


def _cpu(stat: Path) -> float:
    try:
        fields = _fields(stat)
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _fields(stat: Path) -> list[str]:
    """From the state on; the name before it may hold anything."""
    return stat.read_text().rpartition(")")[2].split()
