"""Reading a run: which run an id means, and its blackboard out of the stores."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from otel_blackboard.config import Settings
from otel_blackboard.exporter.bodies import BodyDamaged, BodyMissing
from otel_blackboard.exporter.reader import Reader
from otel_blackboard.processor.tree import USAGE
from otel_blackboard.query import recall
from otel_blackboard.query.artifacts import Artifact, Blackboard, assemble, blackboard
from otel_blackboard.query.runs import Run, merge_parts
from otel_blackboard.records import LogLight, Resolved, Tenant

_OF_TRACE = re.compile(r"run_([0-9a-f]{32})")


MOST = 1000
"""Rows a page may have."""


class NoSuchRun(Exception):
    """No run of that id in this project."""


class MovedRun(Exception):
    """The id was made from a trace that has since become part of another run."""

    def __init__(self, run_id: str) -> None:
        super().__init__(run_id)
        self.run_id = run_id


class Place(NamedTuple):
    """Which run an id means, and in which traces it is, by their start."""

    run_id: str
    trace_ids: list[str]


class Board:
    def __init__(self, reader: Reader, settings: Settings, clock_ns: Callable[[], int] = time.time_ns) -> None:
        self.reader, self.settings, self.clock_ns = reader, settings, clock_ns
        self._beside = ThreadPoolExecutor(4, thread_name_prefix="read")

    def run(self, tenant: Tenant, run_id: str) -> Run:
        """Raises NoSuchRun, or MovedRun for `run_` + the id of a trace that was joined to another run."""
        parts = self.reader.parts_of_run(tenant, run_id)
        if not parts:
            raise self._absent(tenant, run_id)
        return merge_parts(parts, self.clock_ns(), self.settings.run_idle_timeout * 10**9)

    def place(self, tenant: Tenant, run_id: str) -> Place:
        """Like run(), for those who do not show the run itself."""
        parts = self.reader.places_of_run(tenant, run_id)
        if not parts:
            raise self._absent(tenant, run_id)
        return Place(run_id, list(dict.fromkeys(part.trace_id for part in parts)))

    def _absent(self, tenant: Tenant, run_id: str) -> Exception:
        match = _OF_TRACE.fullmatch(run_id)
        joined = {part.run_id for part in self.reader.places_of_trace(tenant, match[1])} if match else set()
        return MovedRun(joined.pop()) if len(joined) == 1 else NoSuchRun(run_id)

    def follow(self, tenant: Tenant, run_id: str) -> Place:
        """Like place(), going along to where the run has moved."""
        try:
            return self.place(tenant, run_id)
        except MovedRun as moved:
            return self.place(tenant, moved.run_id)

    def resolved(self, tenant: Tenant, run: Run) -> list[Resolved]:
        return self.reader.resolved(tenant, run.run_id, run.trace_ids)

    def calls(self, tenant: Tenant, place: Place) -> list[Resolved]:
        """What numbering needs of the spans of a run."""
        return self.reader.calls(tenant, place.run_id, place.trace_ids)

    def timeline(self, tenant: Tenant, run: Run, with_logs: bool) -> tuple[list[Resolved], list[LogLight]]:
        """All spans, and the log records that belong to none of them."""
        if not with_logs:
            return self.resolved(tenant, run), []
        logs = self._beside.submit(self.reader.loose_logs, tenant, run.trace_ids, MOST)
        return self.resolved(tenant, run), logs.result()

    def blackboard(
        self, tenant: Tenant, run: Place, kinds: Sequence[str] | None = None, whole: bool = False
    ) -> Blackboard:
        """Everything of these kinds (None = of all). Paths are computed, where the deployment wants them listed.
        `whole`: with what a span used, cost and asked for."""
        stored = [kind for kind in ("tool_result", "agent_output", "llm_prompt") if kinds is None or kind in kinds]
        paths = self.settings.plan_state_persistence and (kinds is None or "tool_path" in kinds)
        # Side by side: each query costs the engine some 10 ms, whatever it finds.
        rows = self._beside.submit(self.reader.artifacts, tenant, run.trace_ids, stored)
        spans = (self.reader.resolved if whole else self.reader.calls)(tenant, run.run_id, run.trace_ids)
        return blackboard(tenant, run.run_id, spans, rows.result(), paths)

    def body(self, artifact: Artifact) -> bytes | None:
        """None when no content was captured. Raises what the body store raises."""
        if not artifact.bodies and not artifact.text:
            return None
        return assemble(artifact, self.reader.bodies(artifact.bodies))

    def recall(self, tenant: Tenant, run_id: str, query: str, top_k: int) -> list[tuple[Artifact, str, bool]]:
        """(artifact, content, whether it was cut), best first, equals newest first; nothing outside this run."""
        words = recall.words_of(query)
        if not words:
            return []
        run = self.follow(tenant, run_id)
        found = self._beside.submit(
            self.reader.search_run, tenant, run.trace_ids, ("tool_result", "agent_output"), words
        )
        spans = self.calls(tenant, run)
        rows, hits, searched = found.result()
        board = blackboard(tenant, run.run_id, spans, rows, paths=False)
        by_row = {
            (a.row.trace_id, a.row.span_id, a.kind): a
            for a in board.artifacts
            if a.resolved.tool_class != "recall"  # RCL-09
        }
        scored = [
            (score, artifact)
            for score, hit in recall.rank(hits, searched)
            if (artifact := by_row.get((hit.row.trace_id, hit.row.span_id, hit.row.kind))) is not None
        ]
        scored.sort(key=lambda item: (-item[0], -item[1].start_ns, item[1].artifact_id, item[1].sort_key))
        chosen: dict[str, Artifact] = {}
        for _, artifact in scored:
            chosen.setdefault(artifact.artifact_id, artifact)
            if len(chosen) == top_k:
                break
        most = self.settings.recall_characters
        results = []
        for artifact in chosen.values():
            try:
                text = (self.body(artifact) or b"").decode(errors="replace")
            except (BodyMissing, BodyDamaged):  # expired or lost: the others are still there
                continue
            results.append((artifact, text[:most], len(text) > most))
        return results


def usage_of(row: Resolved | Run) -> dict[str, int | None]:
    return dict(row.usage) if isinstance(row, Run) else {name: getattr(row, name) for name in USAGE}
