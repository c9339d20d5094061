"""Run list and search take the newest candidates and then exact rows: they must show what going through all rows shows."""

from __future__ import annotations

import random

import pytest

from otel_blackboard.exporter import reader
from otel_blackboard.exporter.reader import Reader, RunFilter
from tests.conftest import Project
from tests.spans import Trace


def _pages(project: Project, wanted: RunFilter, limit: int) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    before = None
    while page := project.stores.reader.list_runs(project.tenant, wanted, 0, limit, before):
        found += [(min(part.start_ns for part in parts), parts[0].run_id) for parts in page]
        before = found[-1]
    return found


def _store(project: Project, rnd: random.Random) -> None:
    """Runs of one and of several traces, equal starts, starts that are corrected both ways, traces without any role."""
    for version in range(2):
        spans = []
        for number in range(24):
            run_id = f"shared-{rnd.randrange(4)}" if number % 3 == 0 else ""
            trace = Trace(f"{project.tenant.project_id}-{number}", run_id=run_id)
            made = trace.span("noise") if number % 5 == 4 else trace.flow()
            made.start_ns = 1_790_000_000_000_000_000 + rnd.randrange(12) * 10**9
            made.end_ns = made.start_ns + rnd.randrange(10**9)
            if version == 0 or rnd.random() < 0.5:
                spans.append(made)
        project.store(spans)


@pytest.mark.parametrize("seed", range(4))
def test_pages_of_the_newest_runs_are_those_of_all_runs(
    embedded_project: Project, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    _store(embedded_project, random.Random(seed))
    for wanted in (RunFilter(), RunFilter(also_without_roles=True)):
        with monkeypatch.context() as patch:
            patch.setattr(Reader, "_newest_runs", lambda *_: None)
            whole = _pages(embedded_project, wanted, 100)
        assert len(whole) == len({run_id for _, run_id in whole}) > 8
        for spare, limit in ((0, 1), (0, 5), (2, 3), (100, 7), (100, 100)):
            monkeypatch.setattr(reader, "_SPARE_CANDIDATES", spare)
            assert _pages(embedded_project, wanted, limit) == whole


@pytest.mark.parametrize("seed", range(3))
def test_the_newest_hits_of_a_search_are_those_of_all_hits(
    embedded_project: Project, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rnd = random.Random(seed)
    for version in range(2):  # some say other words, or the same at another time, in what is sent again
        spans = []
        for number in range(20):
            trace = Trace(f"{embedded_project.tenant.project_id}-search-{number}")
            made = trace.tool("look", start=rnd.randrange(6), result=rnd.choice(("harbour", "harbour tides", "tides")))
            if version == 0 or rnd.random() < 0.6:
                spans.append(made)
        embedded_project.store(spans)
        embedded_project.store(spans[:3])  # sent again
    found = embedded_project.stores.reader.search
    for words in (["harbour"], ["tides"], ["tides", "harbour"], ["none"]):
        monkeypatch.setattr(reader, "_SPARE_CANDIDATES", 10_000)
        whole = found(embedded_project.tenant, words, 1000)
        monkeypatch.setattr(reader, "_SPARE_CANDIDATES", 0)
        for limit in (1, 3, 50):
            assert found(embedded_project.tenant, words, limit) == whole[:limit]
        assert bool(whole) == (words != ["none"])
