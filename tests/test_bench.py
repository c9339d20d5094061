"""The bench runs, at a tiny size, and prints every figure that docs/benchmarks.md speaks of. No time is asserted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from bench import payload

ROOT = Path(__file__).parents[1]


def test_the_bench_measures_a_real_service_and_prints_its_figures(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    sizes = "--spans 1024 --bodies 1 --rounds 1 --samples 3 --long 2".split()
    done = subprocess.run(
        [sys.executable, "-m", "bench", *sizes, "--json", str(report)],
        cwd=ROOT, env=os.environ | {"TMPDIR": str(tmp_path)}, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    figures = {row["name"].strip(): row["value"] for rows in json.loads(report.read_text()).values() for row in rows}
    for name in (
        "ingest, acknowledged and visible",
        "CPU of the service",
        "CPU of the service / a",
        "CPU of the service / b",
        "OTLP/gRPC, CPU of the service",
        "memory, most so far",
        "send → visible, 16 spans, idle, p50",
        "disk: together",
        "start to ready and first 16 spans visible",
        "run list, 50 of all, p50",
        "artifact list, p95",
        "ledger, p50",
        "recall, 5 with their bodies, p50",
        "timeline, p50",
        "ratio, CPU",
    ):
        assert figures[name] > 0, name
        assert name in done.stdout
    assert not list(tmp_path.glob("blackboard-bench-*")), "the bench left its folder behind"


def test_bodies_are_the_same_for_a_seed_and_distinct_otherwise() -> None:
    assert payload.body(1, 32) == payload.body(1, 32)
    assert payload.body(1, 32) != payload.body(2, 32)
    assert payload.trace_id(1, 1) in payload.body(1, 32)
