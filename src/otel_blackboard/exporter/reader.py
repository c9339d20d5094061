"""Rows and bodies out of the stores. Every method takes the tenant and reads nothing of another: none can bypass it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from otel_blackboard.config import Settings
from otel_blackboard.exporter.bodies import BodyStore
from otel_blackboard.exporter.clickhouse import OF_PROJECT, OF_TRACES, ClientPool, chunks, of_project
from otel_blackboard.exporter.packs import read_bodies, read_body
from otel_blackboard.exporter.tables import (
    ARTIFACT,
    CALLS,
    FOUND,
    LOG_LIGHT,
    PLACES,
    UNDERIVED,
    Column,
    columns_of,
    names,
    read_bodies_text,
    read_records,
)
from otel_blackboard.records import ArtifactRow, Body, Light, LogLight, Resolved, RunPart, Tenant

# Not `AS search_text`: the alias would stand for the column in WHERE too, and nothing would ever be found.
_ARTIFACT_COLUMNS = ", ".join("'' AS no_text" if c.name == "search_text" else c.name for c in ARTIFACT)
# Without an id it is one that a better reader no longer makes.
_KINDS = "kind IN {kinds:Array(String)} AND artifact_id != ''"
_RESOLVED = columns_of(Resolved)
_RUN_PART = columns_of(RunPart)
_SPARE_CANDIDATES = 100
"""Rows read beyond those asked for: old versions, further parts of a run, traces that show no agent."""
_LIMITS = {"max_memory_usage": 1_500_000_000}


@dataclass(frozen=True)
class RunFilter:
    """What a run list shows. Times are unix nanoseconds; None and '' = not asked for."""

    status: str = ""
    agent_id: str = ""
    use_case_id: str = ""
    conversation_id: str = ""
    from_ns: int | None = None
    to_ns: int | None = None
    text: str = ""
    also_without_roles: bool = False
    """Traces in which no agent, model call or tool was recognised, too."""


@dataclass(frozen=True, slots=True)
class Hit:
    """An artifact row in which a word stands: how often each stands in it whole, and inside other words."""

    row: ArtifactRow
    length: int
    whole: tuple[int, ...]
    inside: tuple[int, ...]
    in_heading: tuple[bool, ...]


class Reader:
    def __init__(self, settings: Settings, bodies: BodyStore) -> None:
        self._clients = ClientPool(settings, _LIMITS)
        self._bodies = bodies
        self._idle_ns = settings.run_idle_timeout * 10**9

    def close(self) -> None:
        self._clients.close()

    def _query(self, sql: str, tenant: Tenant, **parameters: Any) -> Sequence[Sequence[Any]]:
        values = of_project(tenant) | parameters
        with self._clients.client() as client:
            rows: Sequence[Sequence[Any]] = client.query(sql, parameters=values).result_rows
        return rows

    def _of_traces(self, sql: str, tenant: Tenant, traces: Sequence[str], **parameters: Any) -> Sequence[Sequence[Any]]:
        """The rows of any number of traces; a query takes only so many ids."""
        found = [self._query(sql, tenant, traces=some, **parameters) for some in chunks(traces)]
        return found[0] if len(found) == 1 else [row for rows in found for row in rows]

    def check(self) -> None:
        """Raises what the engine raises when it cannot answer."""
        with self._clients.client() as client:
            client.query("SELECT 1")

    # ---------------------------------------------------------------------------------------------------------- runs

    def parts_of_run(self, tenant: Tenant, run_id: str) -> list[RunPart]:
        return self._parts(tenant, _RUN_PART, "run_id = {run:String}", run=run_id)

    def places_of_run(self, tenant: Tenant, run_id: str) -> list[RunPart]:
        """The parts of a run, of which only PLACES are read."""
        return self._parts(tenant, PLACES, "run_id = {run:String}", run=run_id)

    def places_of_traces(self, tenant: Tenant, traces: Sequence[str]) -> list[RunPart]:
        return [
            part
            for some in chunks(traces)
            for part in self._parts(tenant, PLACES, "trace_id IN {traces:Array(String)}", traces=some)
        ]

    def _parts(self, tenant: Tenant, columns: Sequence[Column], condition: str, **parameters: Any) -> list[RunPart]:
        sql = f"SELECT {names(columns)} FROM run_parts FINAL WHERE {OF_PROJECT} AND {condition}"
        parts = read_records(RunPart, columns, self._query(sql, tenant, **parameters))
        return sorted(parts, key=lambda part: (part.start_ns, part.trace_id, part.part))

    def list_runs(
        self, tenant: Tenant, wanted: RunFilter, now_ns: int, limit: int, before: tuple[int, str] | None
    ) -> list[list[RunPart]]:
        """The parts of each run, newest run first by (start, run_id)."""
        if wanted == RunFilter(also_without_roles=wanted.also_without_roles):
            newest = self._newest_runs(tenant, wanted, limit, before)
            if newest is not None:
                return newest
        having, parameters = _having(wanted, now_ns - self._idle_ns)
        if before is not None:
            having.append("(start, run_id) < ({before_start:UInt64}, {before_run:String})")
            parameters |= {"before_start": before[0], "before_run": before[1]}
        sql = (
            f"SELECT run_id, min(start_ns) AS start FROM run_parts FINAL WHERE {OF_PROJECT} "
            f"GROUP BY run_id HAVING {' AND '.join(having)} "
            f"ORDER BY start DESC, run_id DESC LIMIT {{limit:UInt32}}"
        )
        order = [row[0] for row in self._query(sql, tenant, limit=limit, **parameters)]
        by_run = self._parts_of_runs(tenant, order)
        return [by_run[run_id] for run_id in order if run_id in by_run]

    def _parts_of_runs(self, tenant: Tenant, run_ids: Sequence[str]) -> dict[str, list[RunPart]]:
        by_run: dict[str, list[RunPart]] = {}
        for runs in chunks(run_ids):
            for part in self._parts(tenant, _RUN_PART, "run_id IN {runs:Array(String)}", runs=runs):
                by_run.setdefault(part.run_id, []).append(part)
        return by_run

    def _newest_runs(
        self, tenant: Tenant, wanted: RunFilter, limit: int, before: tuple[int, str] | None
    ) -> list[list[RunPart]] | None:
        """The same without going through all runs: candidates by what any version of their rows says, of those the exact
        rows. None when too few of the candidates are shown.

        A run that starts at T has a row that says T. So all runs that start after the last candidate row are among the
        candidates, whatever old rows say.
        """
        most = limit + _SPARE_CANDIDATES
        condition = "AND start_ns <= {before_start:UInt64} " if before is not None else ""
        sql = (
            f"SELECT run_id, start_ns FROM run_parts WHERE {OF_PROJECT} {condition}"
            "ORDER BY start_ns DESC LIMIT {most:UInt32}"
        )
        parameters = {} if before is None else {"before_start": before[0]}
        candidates = self._query(sql, tenant, most=most, **parameters)
        known_after = candidates[-1][1] if len(candidates) == most else -1
        found = []
        for run_id, parts in self._parts_of_runs(tenant, list(dict.fromkeys(row[0] for row in candidates))).items():
            place = (min(part.start_ns for part in parts), run_id)
            shown = wanted.also_without_roles or any(part.role_spans for part in parts)
            if shown and place[0] > known_after and (before is None or place < before):
                found.append((place, parts))
        if len(found) < limit and known_after >= 0:
            return None
        found.sort(key=lambda each: each[0], reverse=True)
        return [parts for _, parts in found[:limit]]

    def count_runs(self, tenant: Tenant, wanted: RunFilter, now_ns: int) -> int:
        having, parameters = _having(wanted, now_ns - self._idle_ns)
        sql = (
            f"SELECT count() FROM (SELECT run_id, min(start_ns) AS start FROM run_parts FINAL WHERE {OF_PROJECT} "
            f"GROUP BY run_id HAVING {' AND '.join(having)})"
        )
        return int(self._query(sql, tenant, **parameters)[0][0])

    # --------------------------------------------------------------------------------------------------- inside a run

    def resolved(self, tenant: Tenant, run_id: str, traces: Sequence[str]) -> list[Resolved]:
        return self._resolved(tenant, run_id, traces, _RESOLVED)

    def calls(self, tenant: Tenant, run_id: str, traces: Sequence[str]) -> list[Resolved]:
        """The spans of a run, of which only CALLS are read."""
        return self._resolved(tenant, run_id, traces, CALLS)

    def _resolved(
        self, tenant: Tenant, run_id: str, traces: Sequence[str], columns: Sequence[Column]
    ) -> list[Resolved]:
        sql = f"SELECT {names(columns)} FROM resolved FINAL WHERE {OF_TRACES} AND run_id = {{run:String}}"
        return read_records(Resolved, columns, self._of_traces(sql, tenant, traces, run=run_id))

    def deriving(self, tenant: Tenant, traces: Sequence[str]) -> list[str]:
        """Those of these traces that have spans which are stored and not derived yet."""
        return [
            row[0] for row in self._of_traces(f"SELECT trace_id FROM deriving FINAL WHERE {OF_TRACES}", tenant, traces)
        ]

    def not_derived(self, tenant: Tenant, traces: Sequence[str]) -> list[Light]:
        """The spans of these traces that are not derived yet, as far as UNDERIVED."""
        sql = (
            f"SELECT {names(UNDERIVED)} FROM spans FINAL WHERE {OF_TRACES} AND (trace_id, span_id) NOT IN "
            f"(SELECT trace_id, span_id FROM resolved WHERE {OF_TRACES})"
        )
        return read_records(Light, UNDERIVED, self._of_traces(sql, tenant, traces))

    def artifacts(self, tenant: Tenant, traces: Sequence[str], kinds: Sequence[str]) -> list[ArtifactRow]:
        """Rows without their search text, one for each span or log record and kind."""
        sql = f"SELECT {_ARTIFACT_COLUMNS} FROM artifacts FINAL WHERE {OF_TRACES} AND {_KINDS}"
        rows = self._of_traces(sql, tenant, traces, kinds=list(kinds))
        return read_records(ArtifactRow, ARTIFACT, rows)

    def loose_logs(self, tenant: Tenant, traces: Sequence[str], limit: int) -> list[LogLight]:
        """Log records of these traces that belong to no span, or to one that is not shown, oldest first."""
        sql = (
            f"SELECT {names(LOG_LIGHT)} FROM logs FINAL WHERE {OF_TRACES} AND (trace_id, span_id) NOT IN "
            # Not `spans`: one that is stored and not yet derived would hide the record, and show it nowhere.
            f"(SELECT trace_id, span_id FROM resolved WHERE {OF_TRACES}) "
            "ORDER BY time_ns, record_sha256 LIMIT {limit:UInt32}"
        )
        found = read_records(LogLight, LOG_LIGHT, self._of_traces(sql, tenant, traces, limit=limit))
        return sorted(found, key=lambda log: (log.time_ns, log.record_sha256))[:limit]

    def logs_of_span(self, tenant: Tenant, trace_id: str, span_id: str, limit: int) -> list[LogLight]:
        sql = (
            f"SELECT {names(LOG_LIGHT)} FROM logs FINAL WHERE {OF_TRACES} AND span_id = {{span:String}} "
            "ORDER BY time_ns, record_sha256 LIMIT {limit:UInt32}"
        )
        rows = self._query(sql, tenant, traces=[trace_id], span=span_id, limit=limit)
        return read_records(LogLight, LOG_LIGHT, rows)

    def span(self, tenant: Tenant, trace_id: str, span_id: str) -> Mapping[str, Any] | None:
        """What arrived of one span: JSON texts as stored, `bodies` as records.Body, `run_id` '' while it is not derived."""
        columns = (
            "name kind status_code status_message trace_state start_ns sent_end_ns parent_span_id attributes events links "
            "dropped resource instrumentation_scope dialect scope labels bodies"
        ).split()
        this = f"FINAL WHERE {OF_PROJECT} AND trace_id = {{trace:String}} AND span_id = {{span:String}}"
        parameters = {"trace": trace_id, "span": span_id}
        runs = self._query(f"SELECT run_id FROM resolved {this}", tenant, **parameters)
        rows = self._query(f"SELECT {', '.join(columns)} FROM spans {this}", tenant, **parameters)
        if not rows:
            return None
        found = dict(zip(columns, rows[0], strict=True))
        return found | {"bodies": read_bodies_text(found["bodies"]), "run_id": runs[0][0] if runs else ""}

    # --------------------------------------------------------------------------------------------------------- search

    def search_run(
        self, tenant: Tenant, traces: Sequence[str], kinds: Sequence[str], words: Sequence[str]
    ) -> tuple[list[ArtifactRow], list[Hit], int]:
        """All artifact rows of these traces and kinds, those in which any of the words stands, and how many were
        searched. One query: each costs more than the rows that it reads."""
        sql = (
            f"SELECT {_ARTIFACT_COLUMNS}, length(artifacts.search_text), "
            "arrayMap(w -> countEqual(splitByNonAlpha(artifacts.search_text), w), {words:Array(String)}), "
            "arrayMap(w -> countSubstrings(artifacts.search_text, w), {words:Array(String)}), "
            "arrayMap(w -> position(lowerUTF8(concat(label, ' ', summary)), w) > 0, {words:Array(String)}) "
            f"FROM artifacts FINAL WHERE {OF_TRACES} AND {_KINDS}"
        )
        found = self._of_traces(sql, tenant, traces, kinds=list(kinds), words=list(words))
        count = len(ARTIFACT)
        rows = read_records(ArtifactRow, ARTIFACT, [row[:count] for row in found])
        hits = [
            Hit(row, int(length), tuple(whole), tuple(inside), tuple(map(bool, heading)))
            for row, (length, whole, inside, heading) in zip(rows, (row[count:] for row in found), strict=True)
            if length and any(inside)
        ]
        return rows, hits, sum(row[count] > 0 for row in found)

    def search(self, tenant: Tenant, words: Sequence[str], limit: int) -> list[tuple[ArtifactRow, str]]:
        """(artifact row, of which only FOUND is read; run id) of all runs of the project in which all words stand, newest
        first.

        Matches are looked for in every version of the rows; those that are not the newest of their key are left out.
        """
        most = limit + _SPARE_CANDIDATES
        while True:
            sql = (
                f"SELECT {names(FOUND)}, read_at_ns FROM artifacts WHERE {OF_PROJECT} "
                "AND hasAllTokens(search_text, {words:Array(String)}) "
                "ORDER BY time_ns DESC, trace_id DESC, span_id DESC, kind DESC, source DESC LIMIT {most:UInt32}"
            )
            matches = self._query(sql, tenant, words=list(words), most=most)
            found = read_records(ArtifactRow, FOUND, [match[:-1] for match in matches])
            newest = self._newest_versions(tenant, list(dict.fromkeys(row.trace_id for row in found)))
            rows = list({
                _key(row): row
                for row, match in zip(found, matches, strict=True)
                if newest.get(_key(row)) == (row.version, match[-1])
            }.values())  # fmt: skip
            if len(rows) >= limit or len(found) < most:
                break
            most *= 4
        rows = rows[:limit]
        # What a flow_run returns is on the blackboard only where it stands for a pass.
        listed = "(role != 'flow_run' OR stands)"
        sql = f"SELECT trace_id, span_id, run_id FROM resolved FINAL WHERE {OF_TRACES} AND {listed}"
        places = self._of_traces(sql, tenant, sorted({row.trace_id for row in rows})) if rows else []
        runs = {(row[0], row[1]): row[2] for row in places}
        return [(row, runs[key]) for row in rows if (key := (row.trace_id, row.span_id)) in runs]

    def _newest_versions(
        self, tenant: Tenant, traces: Sequence[str]
    ) -> dict[tuple[str, str, str, str], tuple[int, int]]:
        """Of each row the newest version, and when that was last read."""
        key = "trace_id, span_id, kind, source"
        sql = f"SELECT {key}, max((version, read_at_ns)) FROM artifacts WHERE {OF_TRACES} GROUP BY {key}"
        rows = self._of_traces(sql, tenant, traces) if traces else []
        return {(row[0], row[1], row[2], row[3]): tuple(row[4]) for row in rows}

    # --------------------------------------------------------------------------------------------------------- bodies

    def body(self, body: Body) -> bytes:
        return read_body(self._bodies, body)

    def bodies(self, bodies: Sequence[Body]) -> list[bytes]:
        return read_bodies(self._bodies, bodies)


# A run's status out of its parts: the same rule as query/runs.py, so that filter and answer agree (a test holds them).
_STATUS = (
    "multiIf(sum(open_spans) = 0, argMin(status, (NOT is_root, start_ns, trace_id, part)), "
    "max(last_stored_ns) < {idle_before:UInt64}, 'interrupted', 'running')"
)


def _key(row: ArtifactRow) -> tuple[str, str, str, str]:
    return (row.trace_id, row.span_id, row.kind, row.source)


def _unsigned(time_ns: int) -> int:
    return min(max(time_ns, 0), 2**64 - 1)


def _having(wanted: RunFilter, idle_before_ns: int) -> tuple[list[str], dict[str, Any]]:
    # Of the run, not of its parts: its start is that of all of them.
    having = ["1" if wanted.also_without_roles else "sum(role_spans) > 0"]
    parameters: dict[str, Any] = {}
    if wanted.status:
        having.append(f"{_STATUS} = {{status:String}}")
        parameters |= {"status": wanted.status, "idle_before": max(0, idle_before_ns)}
    if wanted.agent_id:
        having.append("max(has(JSONExtract(agents, 'Array(String)'), {agent:String}))")
        parameters["agent"] = wanted.agent_id
    for name in ("use_case_id", "conversation_id"):
        if value := getattr(wanted, name):
            having.append(f"max({name} = {{{name}:String}})")
            parameters[name] = value
    if wanted.from_ns is not None:
        having.append("start >= {from_ns:UInt64}")
        parameters["from_ns"] = _unsigned(wanted.from_ns)
    if wanted.to_ns is not None:
        having.append("start < {to_ns:UInt64}")
        parameters["to_ns"] = _unsigned(wanted.to_ns)
    if wanted.text:
        having.append(
            "(max(positionCaseInsensitiveUTF8(name, {text:String}) > 0) OR run_id = {text:String} "
            "OR max(trace_id = {text:String}))"
        )
        parameters["text"] = wanted.text
    return having, parameters
