"""Reading a run: which run an id means, and its blackboard out of the stores."""

from __future__ import annotations

import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple

from otel_blackboard.config import Settings
from otel_blackboard.exporter.bodies import BodyDamaged, BodyMissing
from otel_blackboard.exporter.reader import Reader
from otel_blackboard.processor.nodes import USAGE
from otel_blackboard.processor.numbers import SpanKey
from otel_blackboard.query import recall
from otel_blackboard.query.artifacts import (
    Artifact,
    Blackboard,
    assemble,
    blackboard,
    lacking_arguments,
    take_arguments,
)
from otel_blackboard.query.runs import Run, merge_parts
from otel_blackboard.records import ArtifactRow, Light, LogLight, Resolved, Tenant

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


class Timeline(NamedTuple):
    spans: list[Resolved]
    logs: list[LogLight]
    """Log records that belong to none of the spans."""
    deriving: bool
    """Whether some of the spans came just now and are not derived yet."""


def not_derived(
    run_id: str, known: Sequence[Resolved], lights: Sequence[Light], alone: Collection[str]
) -> list[Resolved]:
    """The rows of spans that are not derived yet and belong to this run: by their own run id, else by what they hang
    under, else because their trace is one of those that have no other run."""
    run_of = {(row.trace_id, row.span_id): run_id for row in known}
    waiting = [light for light in lights if (light.trace_id, light.span_id) not in run_of]
    below: dict[SpanKey, list[SpanKey]] = defaultdict(list)
    for light in waiting:
        if light.run_id:
            run_of[(light.trace_id, light.span_id)] = light.run_id
        else:
            below[(light.trace_id, light.parent_span_id)].append((light.trace_id, light.span_id))
    reached = [*run_of]
    while reached:
        above = reached.pop()
        for key in below.pop(above, ()):
            run_of[key] = run_of[above]
            reached.append(key)
    return [
        Resolved(
            light.trace_id, light.span_id, run_id=run_id, parent_span_id=light.parent_span_id, role=light.role,
            name=light.name, start_ns=light.start_ns, end_ns=light.end_ns, status=light.status, agent_id=light.agent_id,
            provider=light.provider, model=light.response_model or light.request_model, tool_name=light.tool_name,
            error=light.error,
        )
        for light in waiting
        if run_of.get((light.trace_id, light.span_id), run_id if light.trace_id in alone else "") == run_id
    ]  # fmt: skip


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
        joined = {part.run_id for part in self.reader.places_of_traces(tenant, [match[1]])} if match else set()
        return MovedRun(joined.pop()) if len(joined) == 1 else NoSuchRun(run_id)

    def follow(self, tenant: Tenant, run_id: str) -> Place:
        """Like place(), going along to where the run has moved."""
        try:
            return self.place(tenant, run_id)
        except MovedRun as moved:
            return self.place(tenant, moved.run_id)

    def resolved(self, tenant: Tenant, run: Run | Place) -> list[Resolved]:
        return self.reader.resolved(tenant, run.run_id, run.trace_ids)

    def calls(self, tenant: Tenant, place: Place) -> list[Resolved]:
        """What numbering needs of the spans of a run."""
        return self.reader.calls(tenant, place.run_id, place.trace_ids)

    def span(self, tenant: Tenant, run: Place, trace_id: str, span_id: str) -> Mapping[str, Any] | None:
        """What arrived of one span, if the timeline of this run shows it."""
        found = self.reader.span(tenant, trace_id, span_id)
        if found is None or found["run_id"]:
            return found if found and found["run_id"] == run.run_id else None
        shown = self.timeline(tenant, run, with_logs=False).spans
        return found if any((row.trace_id, row.span_id) == (trace_id, span_id) for row in shown) else None

    def timeline(self, tenant: Tenant, run: Run | Place, with_logs: bool) -> Timeline:
        logs = self._beside.submit(self.reader.loose_logs, tenant, run.trace_ids, MOST) if with_logs else None
        # First what waits, then what is derived: a derivation that ends in between is seen by the second look.
        deriving = self.reader.deriving(tenant, run.trace_ids)
        waiting = self.reader.not_derived(tenant, deriving) if deriving else []
        spans = self.resolved(tenant, run)
        if waiting:
            parts = Counter(part.trace_id for part in self.reader.places_of_traces(tenant, deriving))
            alone = [trace for trace, count in parts.items() if count == 1]
            spans += not_derived(run.run_id, spans, waiting, alone)
        return Timeline(spans, logs.result() if logs is not None else [], bool(deriving))

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
        found = blackboard(tenant, run.run_id, spans, rows.result(), paths)
        if lacking := lacking_arguments(found):
            told = "agent_output" in stored
            answers = rows.result() if told else self.reader.artifacts(tenant, run.trace_ids, ["agent_output"])
            self._take_arguments(lacking, answers)
        return found

    def _take_arguments(self, lacking: Mapping[SpanKey, list[Artifact]], rows: Sequence[ArtifactRow]) -> None:
        """Costs one more read for each answer, for those emitters alone whose tool spans do not tell the arguments."""
        answers: dict[SpanKey, list[ArtifactRow]] = defaultdict(list)
        for row in rows:
            if row.kind == "agent_output" and row.bodies and (row.trace_id, row.span_id) in lacking:
                answers[(row.trace_id, row.span_id)].append(row)

        def take(key: SpanKey) -> None:
            # What asks stands in the span itself, else in its log records by time: as the tree has it.
            for row in sorted(answers[key], key=lambda row: (row.source != "", row.time_ns, row.source)):
                with suppress(BodyMissing, BodyDamaged):  # expired or lost: then it is not known
                    if take_arguments(lacking[key], row.bodies, self.reader.bodies(row.bodies)):
                        return

        list(self._beside.map(take, list(answers)))

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
