"""One flush: put bodies → insert spans ‖ artifacts ‖ logs → read back → resolve → insert resolved ‖ run_parts.

When `Exporter.flush` returns, everything given is stored, derived and visible to the next query. When it raises, the
senders are asked to send again; the keys make that harmless.
"""

from __future__ import annotations

import copy
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, date, datetime
from typing import Any, NamedTuple

from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError, DataError

from otel_blackboard.config import Settings
from otel_blackboard.exporter.bodies import BodyError, BodyStore
from otel_blackboard.exporter.clickhouse import OF_PROJECT, OF_TRACES, StoreError, chunks, connect, insert, of_project
from otel_blackboard.exporter.faults import fault
from otel_blackboard.exporter.half_derived import half_derived
from otel_blackboard.exporter.large_traces import LargeTraces
from otel_blackboard.exporter.packs import compress, pack, write_packs
from otel_blackboard.exporter.preparation import Prepared, prepare
from otel_blackboard.exporter.satellites import Counterparts, call_of, find_counterparts, is_satellite
from otel_blackboard.exporter.tables import (
    ARTIFACT,
    LIGHT,
    LOG_LIGHT,
    TABLES,
    bodies_text,
    column_values,
    names,
    read_records,
)
from otel_blackboard.exporter.trace_cache import CachedTrace, TraceCache, TraceKey
from otel_blackboard.failures import Outages, log_failure
from otel_blackboard.processor.reading import LogReading, SpanReading
from otel_blackboard.processor.tree import READER_VERSION, resolve
from otel_blackboard.records import (
    ArtifactRow,
    Body,
    Light,
    LogLight,
    LogRecord,
    Resolved,
    RunPart,
    Span,
    Tenant,
)

log = logging.getLogger(__name__)

# DateTime64(9) holds 1900 to 2262; the raw nanoseconds stand beside it.
_LATEST_NS = 2**63 - 1


def captured_kinds(settings: Settings) -> frozenset[str]:
    """Artifact kinds that this deployment makes out of telemetry."""
    kinds = {"tool_result", "agent_output"} if settings.capture_artifacts else set()
    return frozenset(kinds | ({"llm_prompt"} if settings.capture_prompts else set()))


_STORE_FAILURES = (BodyError, ClickHouseError, StoreError, OSError)


class StoreFailed(Exception):
    """Rows or bodies could not be stored; nothing of the flush is promised. The text says the kind of fault (faults.py)."""


class Exporter:
    """Writes. One flush at a time; each insert has a client of its own, for a client answers one query at a time.

    `alone`: no other worker writes to these stores.
    """

    def __init__(
        self, settings: Settings, bodies: BodyStore, clock_ns: Callable[[], int] = time.time_ns, alone: bool = False
    ) -> None:
        self._settings, self._bodies, self._clock_ns, self._alone = settings, bodies, clock_ns, alone
        self._captured = captured_kinds(settings)
        self._clients: dict[str, Client] = {
            role: connect(settings)
            for role in ("spans", "logs", "artifacts", "resolved", "run_parts", "deriving", "satellites", "read")
        }
        self._pool = ThreadPoolExecutor(max_workers=8, thread_name_prefix="flush")
        self._cache = TraceCache()
        self._large = LargeTraces()
        self._take_over_at: float | None = 0.0
        self._cut_short = True
        """Whether a flush may have been: the last one of a process before, or one of ours in which a store failed."""
        self._outages = Outages(log, "large traces wait to be derived")
        self.derivation_failures = 0

    def close(self) -> None:
        self._pool.shutdown()
        for client in self._clients.values():
            client.close()

    def warm_up(self) -> None:
        """The first insert of a process costs seconds in chDB: spend them before anyone waits."""
        self._clients["spans"].command("CREATE TABLE IF NOT EXISTS warm_up (n UInt8) ENGINE = Null")
        insert(self._clients["spans"], "warm_up", _WARM, [[1]])
        self._clients["spans"].query("SELECT 1")

    def prepare(self, spans: Sequence[tuple[Tenant, Span]], logs: Sequence[tuple[Tenant, LogRecord]]) -> Prepared:
        """All that can be done before a store is asked; any thread may do it."""
        return prepare(spans, logs, self._captured)

    def flush(self, spans: Sequence[tuple[Tenant, Span]], logs: Sequence[tuple[Tenant, LogRecord]]) -> None:
        self.commit([self.prepare(spans, logs)])

    def commit(self, prepared: Sequence[Prepared]) -> None:
        """Stores and derives all of it. Raises StoreFailed when a store fails."""
        now_ns = self._clock_ns()
        today = datetime.fromtimestamp(now_ns / 1e9, tz=UTC).date()
        spans = [each for some in prepared for each in some.spans]
        logs = [each for some in prepared for each in some.logs]
        for reading in (reading for some in prepared for reading in some.readings):
            reading.light.stored_at_ns = now_ns
        try:
            bodies = self._put_bodies([*spans, *logs], today)
            self._store(spans, logs, bodies, today)
            self._derive(spans, logs, today)
        except DataError:  # a value that a column cannot take: a fault of ours, and the same however often it is sent
            self._cache.clear()
            raise
        except _STORE_FAILURES as error:
            self._cache.clear()
            self._cut_short = True
            raise StoreFailed(fault(self._settings, error)) from error
        except BaseException:
            self._cache.clear()
            raise
        self.derivation_failures += sum(some.failures for some in prepared)
        if self._cut_short:
            self._take_over_at = 0.0  # the store works again: what it cut short can be finished

    # ------------------------------------------------------------------------------------------------------- storing

    def _put_bodies(self, readings: Sequence[tuple[Tenant, SpanReading | LogReading]], today: date) -> list[list[Body]]:
        """Packs all content, side by side with nothing else: rows must never name a body that is not there."""
        contents = [content for _, reading in readings for content in reading.contents]
        packed = pack(contents, today)
        write_packs(self._bodies, packed.packs, self._pool)
        found, place = [], 0
        for _, reading in readings:
            found.append(packed.bodies[place : place + len(reading.contents)])
            place += len(reading.contents)
        return [list(bodies) for bodies in found]

    def _store(
        self,
        spans: Sequence[tuple[Tenant, SpanReading]],
        logs: Sequence[tuple[Tenant, LogReading]],
        bodies: list[list[Body]],
        today: date,
    ) -> None:
        artifacts = self._artifacts([*spans, *logs], bodies, today)
        _finish([*self._rows(spans, logs, bodies, today), *self._satellites(spans), *artifacts])

    def _artifacts(
        self, readings: Sequence[tuple[Tenant, SpanReading | LogReading]], bodies: list[list[Body]], today: date
    ) -> list[Future[None]]:
        artifacts: list[tuple[Tenant, ArtifactRow]] = []
        for (tenant, reading), own in zip(readings, bodies, strict=True):
            for draft in reading.drafts:
                draft.row.bodies = tuple(own[index] for index in draft.contents)
                artifacts.append((tenant, draft.row))
        if not artifacts:
            return []
        rows = [row for _, row in artifacts]
        values = _tenants(artifacts) + column_values(rows, ARTIFACT) + [[self._clock_ns()] * len(rows)]
        return [self._insert("artifacts", values, [row.time_ns for row in rows], today)]

    def _satellites(self, spans: Sequence[tuple[Tenant, SpanReading]]) -> list[Future[None]]:
        satellites = [(tenant, r.light) for tenant, r in spans if is_satellite(r.light)]
        if not satellites:
            return []
        lights = [light for _, light in satellites]
        values = [*_tenants(satellites), [call_of(x) for x in lights], [x.trace_id for x in lights]]
        return [self._pool.submit(insert, self._clients["satellites"], "satellites", TABLES["satellites"], values)]

    def _rows(
        self,
        spans: Sequence[tuple[Tenant, SpanReading]],
        logs: Sequence[tuple[Tenant, LogReading]],
        bodies: list[list[Body]],
        today: date,
    ) -> list[Future[None]]:
        jobs = []
        if spans:
            values = _tenants(spans) + column_values([r.light for _, r in spans], LIGHT)
            values += [*_row_values([r.row for _, r in spans], bodies[: len(spans)]), [READER_VERSION] * len(spans)]
            jobs.append(self._insert("spans", values, [r.light.start_ns for _, r in spans], today))
        if logs:
            values = _tenants(logs) + column_values([r.light for _, r in logs], LOG_LIGHT)
            values += [*_row_values([r.row for _, r in logs], bodies[len(spans) :]), [READER_VERSION] * len(logs)]
            jobs.append(self._insert("logs", values, [r.light.time_ns for _, r in logs], today))
        return jobs

    def rewrite(
        self,
        spans: Sequence[tuple[Tenant, SpanReading]],
        logs: Sequence[tuple[Tenant, LogReading]],
        known: Sequence[list[Body | None]],
        day: date,
    ) -> None:
        """Stores records that were read anew. `known`: of each reading's content what is stored already. `day`: that of their
        receipt, which their rows keep. A record's own row comes last: it says that all of it is done."""
        readings: list[tuple[Tenant, SpanReading | LogReading]] = [*spans, *logs]
        fresh = [
            content
            for (_, reading), own in zip(readings, known, strict=True)
            for content, body in zip(reading.contents, own, strict=True)
            if body is None
        ]
        compress(fresh)
        packed = pack(fresh, day)
        write_packs(self._bodies, packed.packs, self._pool)
        new = iter(packed.bodies)
        bodies = [[body or next(new) for body in own] for own in known]
        _finish([*self._artifacts(readings, bodies, day), *self._satellites(spans)])
        _finish(self._rows(spans, logs, bodies, day))

    def derive_anew(self, traces: Mapping[Tenant, Iterable[str]], day: date) -> None:
        """Derives traces whose rows have been read anew, under the same versions: what is remembered of them is old.

        Twice beside other workers. What they remember is old as well, and only by a derivation that stands here before they
        look do they see it; one of them may have looked before, and write later, under a version between the two."""
        touched: dict[Tenant, _Touched] = {t: {trace_id: ([], []) for trace_id in each} for t, each in traces.items()}
        for _ in range(1 if self._alone else 2):
            self._cache.clear()
            self._derive_now(touched, day)

    def _insert(
        self, table: str, values: list[list[Any]], times: Iterable[int], today: date, deleted: list[int] | None = None
    ) -> Future[None]:
        columns = TABLES[table]
        count = len(values[0])
        values += [[today] * count, [min(time_ns, _LATEST_NS) for time_ns in times]]
        if columns[-1].name == "is_deleted":
            values.append(deleted or [0] * count)
        return self._pool.submit(insert, self._clients[table], table, columns, values)

    # ------------------------------------------------------------------------------------------------------ deriving

    def _derive(
        self, spans: Sequence[tuple[Tenant, SpanReading]], logs: Sequence[tuple[Tenant, LogReading]], today: date
    ) -> None:
        touched: dict[Tenant, _Touched] = defaultdict(dict)
        for tenant, reading in spans:
            touched[tenant].setdefault(reading.light.trace_id, ([], []))[0].append(reading.light)
        for tenant, log_reading in logs:
            if log_reading.light.trace_id:
                touched[tenant].setdefault(log_reading.light.trace_id, ([], []))[1].append(log_reading.light)
        self._derive_now(self._without_resting(touched), today)

    def _without_resting(self, touched: Mapping[Tenant, _Touched]) -> dict[Tenant, _Touched]:
        """Those of these that are derived now; the others are marked."""
        now: dict[Tenant, _Touched] = defaultdict(dict)
        resting: dict[Tenant, _Touched] = defaultdict(dict)
        for tenant, traces in touched.items():
            for trace_id, brought in traces.items():
                rests = self._large.rests((tenant, trace_id))
                (resting if rests else now)[tenant][trace_id] = brought
        if resting:
            _finish([self._mark(resting)])
        return now

    def _mark(self, resting: Mapping[Tenant, _Touched]) -> Future[None]:
        """Notes in the store that these have spans which are not derived yet: with every flush, for another worker may
        have taken back the mark before."""
        keys = [(tenant, trace_id) for tenant, traces in resting.items() for trace_id in traces]
        for tenant, traces in resting.items():
            for trace_id, (lights, log_lights) in traces.items():
                if trace := self._cache.get((tenant, trace_id)):
                    trace.put_all(lights, log_lights)
                    self._cache.put((tenant, trace_id), trace)
        columns = [column for column in TABLES["deriving"] if column.name != "version"]
        values = [*_tenants(keys), [trace_id for _, trace_id in keys], [0] * len(keys)]
        return self._pool.submit(insert, self._clients["deriving"], "deriving", columns, values)

    def _unmark(self, seen: Sequence[tuple[TraceKey, int]]) -> Future[None]:
        """`seen`: traces that are derived, and the time at which their spans were seen."""
        keys = [key for key, _ in seen]
        values = [*_tenants(keys), [trace_id for _, trace_id in keys], [at for _, at in seen], [1] * len(keys)]
        return self._pool.submit(insert, self._clients["deriving"], "deriving", TABLES["deriving"], values)

    def derive_due(self) -> float | None:
        """Derives large traces whose turn has come. Seconds until this should be called again; None = not before the
        next flush. Raises nothing: what failed is tried again."""
        keys: list[TraceKey] = []
        try:
            if self._take_over_at is not None and self._take_over_at <= time.monotonic():
                self._take_over()
            if keys := self._large.due():
                touched: dict[Tenant, _Touched] = defaultdict(dict)
                for tenant, trace_id in keys:
                    touched[tenant][trace_id] = ([], [])
                self._derive_now(touched, datetime.fromtimestamp(self._clock_ns() / 1e9, tz=UTC).date())
                self._outages.worked()
        except Exception as error:
            self._cache.clear()
            self._large.put_off(keys)
            if self._take_over_at is not None:
                self._take_over_at = time.monotonic() + _TAKE_OVER_EVERY
            if isinstance(error, _STORE_FAILURES) and not isinstance(error, DataError):
                self._outages.failed(fault(self._settings, error))
            else:
                log_failure(log, "large traces could not be derived; they are tried again", error)
        waits = [self._large.due_in()]
        if self._take_over_at is not None:
            waits.append(max(0.0, self._take_over_at - time.monotonic()))
        return min((each for each in waits if each is not None), default=None)

    def _take_over(self) -> None:
        """What a process that is gone left behind: at the start all marks where nobody else works, else those that have
        stood for longer than a worker that lives would let them."""
        since = 0 if self._alone else _TAKE_OVER_EVERY * 10**9
        rows = self._clients["read"].query(_MARKED, parameters={"since": int(since)}).result_rows
        marked = [(Tenant(organization, project), trace_id) for organization, project, trace_id in rows]
        self._large.take_over(marked, marked=True)
        if self._cut_short:
            self._large.take_over(half_derived(self._clients["read"]), marked=False)
            self._cut_short = False
        self._take_over_at = None if self._alone else time.monotonic() + _TAKE_OVER_EVERY

    def _derive_now(self, touched: Mapping[Tenant, _Touched], today: date) -> None:
        while touched:
            started = time.monotonic()
            versions: dict[Tenant, dict[str, _Derived]] = defaultdict(dict)
            due, hosts_first = touched, True
            for _ in range(_STAGES):
                written, satellites = self._write_derived(due, today, hosts_first)
                for tenant, of_traces in written.items():
                    versions[tenant] |= of_traces
                due, hosts_first = self._without_resting(satellites), False
                if not due:
                    break
            seconds = time.monotonic() - started
            touched, soon = ({}, []) if self._alone else self._overtaken(versions)
            derivations = [
                ((tenant, trace_id), derived)
                for tenant, of_traces in versions.items()
                for trace_id, derived in of_traces.items()
            ]
            # The last bit of a version is no time.
            if seen := [(key, derived.version // 2) for key, derived in derivations if self._large.is_marked(key)]:
                _finish([self._unmark(seen)])
            for key, derived in derivations:
                self._large.derived(key, derived.seen[0], seconds)
            self._large.take_over(soon, marked=False)

    def _write_derived(
        self, touched: Mapping[Tenant, _Touched], today: date, hosts_first: bool
    ) -> tuple[dict[Tenant, dict[str, _Derived]], dict[Tenant, _Touched]]:
        """Derives these traces: the version under which each was written, and the traces of satellites whose hosts are new
        or got another run. `hosts_first`: new satellites wait until they have, too, and their hosts are derived with these,
        for they take the usage."""
        satellites: dict[Tenant, _Touched] = defaultdict(dict)
        versions: dict[Tenant, dict[str, _Derived]] = defaultdict(dict)
        resolved: list[tuple[Tenant, Resolved, int]] = []
        parts: list[tuple[Tenant, RunPart, int]] = []
        gone: list[tuple[Tenant, RunPart, int]] = []
        for tenant, traces in touched.items():
            for seen_at, trace_id, trace, counterparts in self._seen(tenant, traces, hosts_first):
                if hosts_first and _new_hosts(trace, counterparts):
                    satellites[tenant][trace_id] = ([], [])
                else:
                    # Its last bit says that every row of the trace was written, not only those that differ.
                    version = 2 * seen_at + (not trace.resolved)
                    versions[tenant][trace_id] = _Derived(version, trace.check())
                    rows, run_parts = self._resolve(trace, counterparts)
                    for of_call in _satellites_to_tell(trace, rows, counterparts):
                        satellites[tenant][of_call] = ([], [])
                    resolved += [(tenant, row, version) for row in rows if trace.resolved.get(row.span_id) != row]
                    parts += [(tenant, part, version) for part in run_parts]
                    names_now = {part.part for part in run_parts}
                    old = sorted(trace.parts - names_now)
                    gone += [(tenant, RunPart(trace_id, name, ""), version) for name in old]
                    trace.resolved, trace.parts = {row.span_id: row for row in rows}, names_now
                    trace.derived_at, trace.fresh = version, set()
                self._cache.put((tenant, trace_id), trace)
        jobs = []
        if resolved:
            values = self._derived_values("resolved", resolved)
            jobs.append(self._insert("resolved", values, [row.start_ns for _, row, _ in resolved], today))
        if parts or gone:
            both = [*parts, *gone]
            values = self._derived_values("run_parts", both)
            deleted = [0] * len(parts) + [1] * len(gone)
            jobs.append(self._insert("run_parts", values, [part.start_ns for _, part, _ in both], today, deleted))
        _finish(jobs)
        return versions, satellites

    def _seen(
        self, tenant: Tenant, traces: _Touched, hosts_first: bool
    ) -> Iterator[tuple[int, str, CachedTrace, Counterparts]]:
        """These traces, and with `hosts_first` those of the hosts of new satellites in them: when each was seen, its id, all of
        it, and what other traces say of it."""
        hosts: set[str] = set()
        for some in chunks(list(traces)):
            # The version of what is found is the time at which this tenant's traces were seen, not another's.
            seen_at, known, satellites = self._read_back(tenant, {trace_id: traces[trace_id] for trace_id in some})
            found: Mapping[str, Counterparts] = {}
            if satellites:
                lights = [light for trace in known.values() for light in trace.spans.values()]
                found = find_counterparts(self._clients["read"], tenant, lights)
            for trace_id, trace in known.items():
                counterparts = found.get(trace_id, _NO_COUNTERPARTS)
                hosts |= _new_hosts(trace, counterparts)
                yield seen_at, trace_id, trace, counterparts
        if hosts_first and (others := hosts - traces.keys()):
            now = self._without_resting({tenant: {trace_id: ([], []) for trace_id in sorted(others)}})
            if now:
                yield from self._seen(tenant, now[tenant], hosts_first=False)

    def _overtaken(
        self, versions: Mapping[Tenant, Mapping[str, _Derived]]
    ) -> tuple[dict[Tenant, _Touched], list[TraceKey]]:
        """What has to be derived again. At once, because another worker derived it later than this one and did not see these
        rows, which were still on their way: it may have left out rows that did not differ from its own, or have left a
        run part standing that is none any more. And soon, because something of it has come since it was seen here: who brings
        it may have seen the trace before these rows were there, and writes later."""
        again: dict[Tenant, _Touched] = {}
        soon: list[TraceKey] = []
        for tenant, of_traces in versions.items():
            for some in chunks(list(of_traces)):
                parameters = of_project(tenant) | {"traces": some}
                standing: dict[str, dict[str, tuple[int, int | None]]] = defaultdict(dict)
                for trace_id, held, one, other in (
                    self._clients["read"].query(_STANDING, parameters=parameters).result_rows
                ):
                    standing[trace_id][held] = (one, other)
                for trace_id, tables in standing.items():
                    derived = of_traces[trace_id]
                    newest, oldest = tables.get("run_parts", (0, None))
                    left_out = newest > derived.version and not newest % 2
                    if left_out or (oldest is not None and oldest < newest):
                        again.setdefault(tenant, {})[trace_id] = ([], [])
                    elif newest <= derived.version:
                        now = (*tables.get("spans", (0, 0)), *tables.get("logs", (0, 0)))
                        if now != derived.seen:
                            soon.append((tenant, trace_id))
        return again, soon

    def _resolve(self, trace: CachedTrace, counterparts: Counterparts) -> tuple[list[Resolved], list[RunPart]]:
        # Others complete the light rows: work on copies, for the cache holds what was stored.
        lights = [copy.copy(light) if trace.logs or counterparts.usage else light for light in trace.spans.values()]
        try:
            return resolve(lights, trace.logs.values(), counterparts.runs, counterparts.usage)
        except Exception as error:
            self.derivation_failures += 1
            log_failure(log, "a trace could not be derived; its spans are stored", error)
            rows = [
                Resolved(light.trace_id, light.span_id, run_id=f"run_{light.trace_id}", name=light.name,
                         start_ns=light.start_ns, end_ns=light.end_ns, labels={"derivation_failed": "true"})
                for light in lights
            ]  # fmt: skip
            if not lights:
                return [], []
            first = lights[0]
            return rows, [
                RunPart(first.trace_id, "", f"run_{first.trace_id}", name=first.name, status="complete",
                        start_ns=min(light.start_ns for light in lights), end_ns=max(light.end_ns for light in lights),
                        span_count=len(lights), role_spans=sum(bool(light.role) for light in lights),
                        error="this trace could not be derived")
            ]  # fmt: skip

    def _derived_values(self, table: str, rows: Sequence[tuple[Tenant, Any, int]]) -> list[list[Any]]:
        columns = [c for c in TABLES[table][2:] if c.name not in _ADDED]
        values = _tenants([(tenant, row) for tenant, row, _ in rows]) + column_values(
            [row for _, row, _ in rows], columns
        )
        return [*values, [version for _, _, version in rows], [READER_VERSION] * len(rows)]

    def _read_back(self, tenant: Tenant, traces: _Touched) -> tuple[int, dict[str, CachedTrace], bool]:
        """The server's time inside the query that saw each touched trace, the whole of each, and whether the project has
        satellites."""
        client = self._clients["read"]
        parameters = of_project(tenant) | {"traces": list(traces)}
        result = client.query(_CHECK, parameters=parameters)
        version = max(int(row[1]) for row in result.result_rows)
        counted: dict[tuple[str, str], tuple[int, int]] = {}
        parts: dict[str, set[str]] = {}
        derived_at: dict[str, int] = {}
        satellites = any(row[2] == "satellites" and row[3] for row in result.result_rows)
        for trace_id, _, table, count, digest, names_of_parts, newest in result.result_rows:
            counted[(table, trace_id)] = (int(count), int(digest))
            if table == "run_parts":
                parts[trace_id], derived_at[trace_id] = set(names_of_parts), int(newest)
        known: dict[str, CachedTrace] = {}
        missing: list[str] = []
        for trace_id, (lights, log_lights) in traces.items():
            trace = self._cache.get((tenant, trace_id)) or CachedTrace()
            trace.put_all(lights, log_lights)
            stored = (*counted.get(("spans", trace_id), (0, 0)), *counted.get(("logs", trace_id), (0, 0)))
            # Another worker may have read rows anew since (rederive): their versions do not tell.
            if trace.check() == stored and trace.derived_at == derived_at.get(trace_id, 0):
                known[trace_id] = trace
            else:
                missing.append(trace_id)
        if missing:
            whole = self._read_whole(client, parameters | {"traces": missing})
            for trace_id in missing:
                _require(whole.setdefault(trace_id, CachedTrace()), *traces[trace_id])
            known |= whole
        for trace_id, trace in known.items():
            trace.parts |= parts.get(trace_id, set())
        return version, {trace_id: known[trace_id] for trace_id in traces}, satellites

    def _read_whole(self, client: Client, parameters: dict[str, Any]) -> dict[str, CachedTrace]:
        found: dict[str, CachedTrace] = defaultdict(CachedTrace)

        def rows_of(table: str, columns: str) -> Sequence[Sequence[Any]]:
            query = _READ.format(columns=columns, table=table)
            rows: Sequence[Sequence[Any]] = client.query(query, parameters=parameters).result_rows
            return rows

        for light in read_records(Light, LIGHT, rows_of("spans", names(LIGHT))):
            found[light.trace_id].put(light)
        for log_light in read_records(LogLight, LOG_LIGHT, rows_of("logs", names(LOG_LIGHT))):
            found[log_light.trace_id].put_log(log_light)
        return dict(found)


class _Derived(NamedTuple):
    """A derivation of a trace: its version, and what it saw (`CachedTrace.check`)."""

    version: int
    seen: tuple[int, int, int, int]


_Touched = dict[str, tuple[list[Light], list[LogLight]]]
"""Trace id → what a flush brings of it."""


def _require(trace: CachedTrace, lights: Sequence[Light], logs: Sequence[LogLight]) -> None:
    """A store that does not show what was just written (a replica behind) must not be told as acknowledged."""
    seen = all(light.span_id in trace.spans for light in lights)
    if not seen or not all(log.record_sha256 in trace.logs for log in logs):
        raise StoreError("the row store does not show what was just written")


_NO_COUNTERPARTS = Counterparts()
_STAGES = 3
"""Hosts, their satellites, and the satellites of calls in the traces of those: no chain of records is longer."""


def _new_hosts(trace: CachedTrace, counterparts: Counterparts) -> set[str]:
    """The traces of the hosts of its new satellites."""
    return {host for span_id, host in counterparts.hosts.items() if span_id in trace.fresh}


def _satellites_to_tell(trace: CachedTrace, rows: Sequence[Resolved], counterparts: Counterparts) -> set[str]:
    """The traces of satellites whose host is new, or was derived into another run than the last time."""
    if not counterparts.satellites:
        return set()
    return {
        satellite
        for row in rows
        if row.span_id in trace.fresh or trace.resolved[row.span_id].run_id != row.run_id
        for satellite in counterparts.satellites.get(row.span_id, ())
    }


_OF_TRACES = f"WHERE {OF_TRACES}"
_NEWEST = (
    "SELECT trace_id, {key}, reinterpretAsUInt64(max(version)) AS newest FROM {table} "
    + _OF_TRACES.replace("{", "{{").replace("}", "}}")
    + " GROUP BY trace_id, {key}"
)
# The time stands first: the engine takes up a table where the query is read, and a time that it reads later would be newer
# than what is seen. What FINAL would count, for less than half of its price: the newest version of each key.
_CHECK = (
    "SELECT '' AS trace_id, toUnixTimestamp64Nano(now64(9)) AS at, '' AS held, 0 AS rows, 0 AS digest, "
    "emptyArrayString() AS parts, 0 AS newest UNION ALL "
    f"SELECT '' AS trace_id, 0 AS at, 'satellites' AS held, count() AS rows, 0 AS digest, emptyArrayString() AS parts, "
    f"0 AS newest FROM satellites WHERE {OF_PROJECT} UNION ALL "
    + " UNION ALL ".join(
        f"SELECT trace_id, 0 AS at, '{table}' AS held, count() AS rows, "
        f"groupBitXor(newest) AS digest, {parts} AS parts, max(newest) FROM ({_NEWEST.format(table=table, key=key)}) "
        "GROUP BY trace_id"
        for table, key, parts in (
            ("spans", "span_id", "emptyArrayString()"),
            ("logs", "record_sha256", "emptyArrayString()"),
            ("run_parts", "part", "groupArray(part)"),
        )
    )
)
# Of each trace the newest derivation, and the oldest that a run part which is not deleted comes from; and what is stored.
_STANDING = (
    "SELECT trace_id, 'run_parts', max(newest), minOrNullIf(newest, NOT gone) FROM (SELECT trace_id, part, max(version) "
    f"AS newest, argMax(is_deleted, version) AS gone FROM run_parts {_OF_TRACES} GROUP BY trace_id, part) GROUP BY trace_id"
) + "".join(
    f" UNION ALL SELECT trace_id, '{table}', count(), groupBitXor(newest) FROM ({_NEWEST.format(table=table, key=key)}) "
    "GROUP BY trace_id"
    for table, key in (("spans", "span_id"), ("logs", "record_sha256"))
)
_READ = "SELECT {columns} FROM {table} FINAL " + _OF_TRACES.replace("{", "{{").replace("}", "}}")
_MARKED = (
    "SELECT organization_id, project_id, trace_id FROM deriving FINAL "
    "WHERE version <= toUnixTimestamp64Nano(now64(9)) - {since:UInt64}"
)
_TAKE_OVER_EVERY = 60
"""Seconds between two looks at what other workers left behind."""
_ADDED = frozenset(("version", "reader_version", "stored", "start_time", "is_deleted"))
_WARM = (TABLES["spans"][0]._replace(name="n", type="UInt8"),)


def _tenants(rows: Sequence[tuple[Tenant, Any]]) -> list[list[Any]]:
    return [[tenant.organization_id for tenant, _ in rows], [tenant.project_id for tenant, _ in rows]]


def _row_values(rows: Sequence[tuple[Any, ...]], bodies: Sequence[Sequence[Body]]) -> list[list[Any]]:
    return [*map(list, zip(*rows, strict=True)), [bodies_text(own) for own in bodies]]


def _finish(jobs: Sequence[Future[None]]) -> None:
    """Waits for all of them, then raises what one of them raised: none may still write when the flush is given up."""
    errors = [error for job in jobs if (error := job.exception()) is not None]
    if errors:
        raise errors[0]
