"""The bench runs, at a tiny size, and prints every figure that docs/benchmarks.md speaks of. No time is asserted."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import Table, payload, peers, stages
from tests.servers.otel_collector import find_collector

ROOT = Path(__file__).parents[1]


def test_the_bench_measures_a_real_service_and_prints_its_figures(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    done = subprocess.run(
        [sys.executable, "-m", "bench", "--tiny", "--markdown", "--json", str(report)],
        cwd=ROOT, env=os.environ | {"TMPDIR": str(tmp_path)}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    tables = json.loads(report.read_text())
    for title in tables:
        assert f"**{title}**" in done.stdout

    def figures(title: str, column: str) -> dict[str, float]:
        return {next(iter(row.values())): row[column] for row in tables[title]}

    (start,) = tables["Start and memory"]
    (visible,) = tables["Send → visible, 16 spans, idle service"]
    assert all(figure > 0 for figure in [*start.values(), *visible.values()])
    ingest = {title: rows for title, rows in tables.items() if title.startswith("Ingest, requests of 512 spans")}
    assert [[row["senders"] for row in rows] for rows in ingest.values()] == [["1", "2", "4", ""], ["4 on gRPC", ""]]
    for name in ("spans/s", "MB/s", "CPU µs/span", "spans/s, × baseline", "CPU, × baseline"):
        assert min(row[name] for rows in ingest.values() for row in rows) > 0, name
    by_stage = figures("CPU by stage, µs/span", "service")
    assert set(stages.STAGES) < set(by_stage)
    unused = [stage for stage in stages.STAGES if not by_stage[stage] > 0]
    assert not unused, "these stages measure functions that are not called any more"
    baseline = figures("CPU by stage, µs/span", "baseline")
    assert all(baseline[stage] > 0 for stage in ("decode", "encode", "insert", "together"))
    assert tables["Disk, bytes/span"][-1]["service"] > 0 < tables["Disk, bytes/span"][-1]["baseline"]
    at_rest, at_work = (title for title in tables if title.startswith("Reads, "))
    assert "2 senders at work" in at_work
    assert [row["route"] for row in tables[at_rest]] == [
        *("run list", "run", "timeline", "artifact list", "ledger"),
        *("search, common words", "search, rare words", "recall"),
    ]
    assert all(row[part] > 0 for row in tables[at_rest] for part in ("p50 ms", "p95 ms"))
    long = figures("One run of 200 spans in 2 requests, against 2 runs of 100", "CPU s")
    assert long["ratio"] > 0
    workers = next(rows for title, rows in tables.items() if title.startswith("Workers over the wire"))
    assert [row["workers"] for row in workers[:2]] == ["1", "2"]
    assert all(
        row[name] > 0 for row in workers for name in ("visible spans/s", "CPU of the workers", "CPU of the row store")
    )
    behind = [row["CPU of the Collector"] for row in workers if row["workers"].endswith("Collector")]
    assert [cpu > 0 for cpu in behind] == ([True] if find_collector() else [])
    assert {row[""] for row in tables["Budgets"]} <= {"met", "missed"}
    assert not list(tmp_path.glob("blackboard-bench-*")), "the bench left its folder behind"


def test_the_payload_is_the_same_on_every_machine() -> None:
    # sha256 of what the shared tools/otlp_payload.py makes.
    expected = "80f31ec8dbcfb72fd39e43bea735a1dea525e4d3fe20cd8fed33032b7c1b648f"
    assert hashlib.sha256(payload.request(3, 48, "p")).hexdigest() == expected
    shared = Path(os.environ.get("BLACKBOARD_SHARED") or ROOT.parent / "shared") / "tools" / "otlp_payload.py"
    if not shared.exists():
        pytest.skip("not on this machine: the shared tools/otlp_payload.py")
    make = runpy.run_path(str(shared))["request"]
    for given in ((0,), (7, 37), (1_000_000, 16, "another")):
        assert payload.request(*given) == make(*given)


def test_a_run_in_parts_is_one_trace_of_distinct_spans() -> None:
    trace = bytes(range(16))
    parts = [payload.part_body(1, trace, part, 100) for part in range(2)]
    assert [payload.traces(part) for part in parts] == [[trace], [trace]]
    assert parts[0] != parts[1]


def test_peers_are_waited_for_and_one_that_cannot_run_here_costs_the_others_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    @contextlib.contextmanager
    def missing(folder: Path) -> Iterator[peers.Door]:
        raise RuntimeError("No matching distribution found")
        yield

    @contextlib.contextmanager
    def late(folder: Path) -> Iterator[peers.Door]:
        """A service whose spans are counted as visible when someone has asked twice."""

        def visible() -> int:
            asked.append(len(asked))
            return 0 if asked[-1] % 2 == 0 else 10_000

        with peers.blackboard(folder) as door:
            yield door._replace(visible=visible)

    ours = peers.PEERS["otel-blackboard"]
    these = {"otel-blackboard": ours, "late": peers.Peer(late, 64, 1), "Phoenix": peers.Peer(missing, 64, 1)}
    monkeypatch.setattr(peers, "PEERS", these)
    table, ratios = peers.compare(0.01)
    assert [row[0] for row in table.rows] == [
        *("otel-blackboard", "late", "Phoenix: cannot run here: No matching distribution found")
    ]
    assert all(isinstance(figure, float | int) and figure > 0 for row in table.rows[:2] for figure in row[1:])
    assert len(asked) == 2 * 4, "each of three requests of 16 spans, and what came after them, is waited for"
    assert [(what, side) for what, _, side, _ in ratios] == [("visible spans/s in those of late", "at least")]


def test_tables_are_shown_as_text_and_as_markdown() -> None:
    table = Table("Title", ("what", "figure"), [("a", 1234.5), ("b", None), ("c", 0.1234)])
    text = "Title;  what  figure;  a      1,234;  b          –;  c      0.123"
    assert table.text().splitlines()[1:] == text.split(";")
    markdown = "**Title**;;| what | figure |;| --- | --- |;| a | 1,234 |;| b | – |;| c | 0.123 |"
    assert table.markdown().splitlines()[1:] == markdown.split(";")
