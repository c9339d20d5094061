"""`otel-blackboard rederive`: applies a better reader to what is stored, without its senders.

Records are put together again out of their rows and content, read as if they had come now, and written under their old
versions: of equal versions the last one written stands, in the partition of the one before. Content that is the same stays
where it is. Some traces at a time, in small pages; a record's own row, which says which reader read it, is written after all
that comes of it, and a trace is marked in `rederiving` until its runs are derived: who is stopped anywhere goes on from there.
"""

from __future__ import annotations

import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import orjson
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from otel_blackboard.config import Settings
from otel_blackboard.exporter.bodies import BodyDamaged, BodyMissing, BodyStore
from otel_blackboard.exporter.clickhouse import OF_TRACES as _OF_TRACES
from otel_blackboard.exporter.clickhouse import connect, insert
from otel_blackboard.exporter.clickhouse import of_project as _project
from otel_blackboard.exporter.faults import fault
from otel_blackboard.exporter.flush import Exporter, StoreFailed, captured_kinds
from otel_blackboard.exporter.packs import read_bodies
from otel_blackboard.exporter.preparation import leave_out
from otel_blackboard.exporter.tables import LOG_ROW, SPAN_ROW, TABLES, read_bodies_text
from otel_blackboard.failures import log_failure
from otel_blackboard.processor.drafts import Draft
from otel_blackboard.processor.reading import LogReading, SpanReading, mark_made, read_log, read_span, spans_of_log
from otel_blackboard.processor.restoring import Owners, Row, restored_log, restored_span
from otel_blackboard.processor.tree import READER_VERSION
from otel_blackboard.records import MADE_OF_LOG, ArtifactRow, Body, Span, Tenant

log = logging.getLogger(__name__)

MOST_KEYS = 20_000
"""Traces, or keys of rows, asked for at once."""

PAGE = 500
"""Rows read at once, and about as many records derived at once."""

LARGEST_PAGE = 64 * 1024 * 1024
"""Bytes of content held at once."""


@dataclass(frozen=True)
class Wanted:
    organization: str = ""
    project: str = ""
    since: date | None = None
    """Only traces of which something was received that day or later."""
    all: bool = False
    """Also what the current reader has read."""


@dataclass
class Progress:
    traces: int = 0
    records: int = 0
    """Spans and log records read anew, or left as they were."""
    all_records: int = 0
    left: int = 0
    """Of them left as they were: their content is gone, or the reader failed."""
    gone: int = 0
    """Spans made of log records that no longer stand for a call."""


Report = Callable[[Progress], None]


def rederive(
    exporter: Exporter, bodies: BodyStore, settings: Settings, wanted: Wanted, report: Report = lambda progress: None
) -> Progress:
    """Raises StoreFailed, StoreError or BodyError; run again, it goes on where it ended. With `wanted.all` it begins anew."""
    client = connect(settings, silence=600)
    try:
        return _Rederivation(exporter, bodies, settings, client, wanted, report).run()
    except ClickHouseError as error:
        raise StoreFailed(fault(settings, error)) from error
    finally:
        client.close()


@dataclass
class _Batch:
    """Traces of one tenant that are read and derived together."""

    tenant: Tenant
    traces: dict[str, date] = field(default_factory=dict)
    """Trace id → the last day on which something of it was received."""
    joined: dict[str, date] = field(default_factory=dict)
    """The same of other traces, in which a span was made of a log record: they are derived as well."""
    size: int = 0


class _Rederivation:
    def __init__(
        self, exporter: Exporter, bodies: BodyStore, settings: Settings, client: Client, wanted: Wanted, report: Report
    ) -> None:
        self._exporter, self._bodies, self._client, self._report = exporter, bodies, client, report
        self._captured = captured_kinds(settings)
        self._wanted = wanted
        self._stale = "1" if wanted.all else f"reader_version < {READER_VERSION}"
        self.progress = Progress()

    def run(self) -> Progress:
        self.progress.all_records = int(self._query(_COUNT)[0][0] or 0)
        for batch in self._batches():
            self._read_anew(batch)
            self.progress.traces += len(batch.traces)
            self._report(self.progress)
        return self.progress

    def _query(self, sql: str, **parameters: Any) -> Sequence[Sequence[Any]]:
        conditions = []
        if self._wanted.organization:
            conditions.append("organization_id = {organization:String}")
            parameters.setdefault("organization", self._wanted.organization)
        if self._wanted.project:
            conditions.append("project_id = {project:String}")
            parameters.setdefault("project", self._wanted.project)
        parameters["since"] = self._wanted.since or date(1970, 1, 1)
        if "after_trace_id" in parameters:
            conditions.append(f"({_after('organization_id', 'project_id', 'trace_id')})")
        sql = sql.replace("{SCOPE}", " AND ".join(conditions) or "1").replace("{STALE}", self._stale)
        rows: Sequence[Sequence[Any]] = self._client.query(sql, parameters=parameters).result_rows
        return rows

    def _batches(self) -> Iterator[_Batch]:
        batch: _Batch | None = None
        for organization, project, trace_id, records, day in self._traces():
            tenant = Tenant(organization, project)
            if batch is not None and (batch.tenant != tenant or batch.size >= PAGE):
                yield batch
                batch = None
            batch = batch or _Batch(tenant)
            batch.traces[trace_id] = day
            batch.size += int(records) or 1
        if batch is not None:
            yield batch

    def _traces(self) -> Iterator[Sequence[Any]]:
        """By their day as far as they are asked for at once: the rows of a day are inserted together."""
        place = dict[str, str]()
        while True:
            found = self._query(_TRACES, most=MOST_KEYS, **place)
            yield from sorted(found, key=lambda row: (row[0], row[1], row[2] != "", row[4], row[2]))
            if len(found) < MOST_KEYS:
                return
            place = dict(zip(("after_organization_id", "after_project_id", "after_trace_id"), found[-1], strict=False))

    # ------------------------------------------------------------------------------------------------------- one batch

    def _read_anew(self, batch: _Batch) -> None:
        self._mark(batch.tenant, batch.traces)
        for rows in self._pages("logs", _LOG_COLUMNS, batch):
            self._logs(batch, rows)
        for rows in self._pages("spans", _SPAN_COLUMNS, batch):
            self._spans(batch.tenant, rows)
        days: dict[date, list[str]] = defaultdict(list)
        for trace_id, day in (batch.joined | batch.traces).items():
            if trace_id:
                days[day].append(trace_id)
        for day, traces in days.items():
            self._exporter.derive_anew({batch.tenant: traces}, day)
        self._mark(batch.tenant, batch.joined | batch.traces, derived=True)

    def _mark(self, tenant: Tenant, traces: Iterable[str], derived: bool = False) -> None:
        """Before their rows are read anew, and when their runs are derived: in between no row tells that they are not."""
        ids = [trace_id for trace_id in traces if trace_id]
        if ids:
            columns = [column for column in TABLES["rederiving"] if column.name != "version"]
            count = len(ids)
            of_project: list[list[Any]] = [[tenant.organization_id] * count, [tenant.project_id] * count]
            insert(self._client, "rederiving", columns, [*of_project, ids, [int(derived)] * count])

    def _pages(self, table: str, columns: Sequence[str], batch: _Batch) -> Iterator[list[dict[str, Any]]]:
        """Rows of one day of receipt each, with as much content as may be held at once.

        The keys are asked for first, for however few rows are wanted, the engine goes through all that are left."""
        key = "span_id" if table == "spans" else "record_sha256"
        stale = f"FROM {table} FINAL WHERE {_OF_TRACES} AND {self._stale} AND {_after('trace_id', key)}"
        parameters = _project(batch.tenant) | {"traces": list(batch.traces)}
        keys_of = f"SELECT trace_id, {key} {stale} ORDER BY trace_id, {key} LIMIT {MOST_KEYS}"
        rows_of = f"SELECT {', '.join(columns)} {stale} AND {_until('trace_id', key)}"
        place = {"after_trace_id": "", f"after_{key}": ""}
        while True:
            keys = self._client.query(keys_of, parameters=parameters | place).result_rows
            for first in range(0, len(keys), PAGE):
                some = keys[first : first + PAGE]
                place |= {"until_trace_id": some[-1][0], f"until_{key}": some[-1][1]}
                found = self._client.query(rows_of, parameters=parameters | place).result_rows
                place |= {"after_trace_id": some[-1][0], f"after_{key}": some[-1][1]}
                by_day: dict[date, list[dict[str, Any]]] = defaultdict(list)
                for values in found:
                    row = dict(zip(columns, values, strict=True))
                    row["bodies"] = read_bodies_text(row["bodies"])
                    by_day[row["stored"]].append(row)
                for rows in by_day.values():
                    yield from _small(rows)
            if len(keys) < MOST_KEYS:
                return

    def _data(self, rows: Sequence[Row]) -> list[list[bytes] | None]:
        """The content of each row; None where some of it is gone."""
        with contextlib.suppress(BodyMissing, BodyDamaged):
            data = iter(read_bodies(self._bodies, [body for row in rows for body in row["bodies"]]))
            return [[next(data) for _ in row["bodies"]] for row in rows]
        found: list[list[bytes] | None] = []
        for row in rows:
            try:
                found.append(read_bodies(self._bodies, row["bodies"]))
            except (BodyMissing, BodyDamaged):
                found.append(None)
        return found

    def _spans(self, tenant: Tenant, rows: list[dict[str, Any]]) -> None:
        owners = Owners()
        made = self._made_of_logs(tenant, sorted({name for row in rows if (name := _log_of(row))}))
        readings: list[tuple[Row, SpanReading]] = []
        gone: list[Row] = []
        for row, data in zip(rows, self._data(rows), strict=True):
            self.progress.records += 1
            key = row["trace_id"], row["span_id"]
            made_of = _log_of(row)
            try:
                if made_of in made:
                    span = made[made_of].get(key)
                    if span is None:
                        gone.append(row)
                        continue
                elif data is None or made_of:
                    self.progress.left += 1
                    continue
                else:
                    span = restored_span(row, data, owners)
                reading = self._read_span(tenant, span, row["stored_at_ns"])
                if made_of:
                    mark_made(reading, *_log_named(made_of))
                _set_version(reading, row["version"])
            except Exception as error:
                self._leave(error)
                continue
            readings.append((row, reading))
        self._rewrite(tenant, readings, [])
        self._drop(tenant, gone)

    def _logs(self, batch: _Batch, rows: list[dict[str, Any]]) -> None:
        tenant, owners = batch.tenant, Owners()
        readings: list[tuple[Row, LogReading]] = []
        made: _Made = {}
        for row, data in zip(rows, self._data(rows), strict=True):
            self.progress.records += 1
            if data is None:
                self.progress.left += 1
                continue
            try:
                record = restored_log(row, data, owners)
                spans = spans_of_log(record)
                reading = read_log(tenant, record)
            except Exception as error:
                self._leave(error)
                continue
            leave_out(reading, self._captured)
            light = reading.light
            light.record_sha256, light.version = row["record_sha256"], row["version"]
            light.stored_at_ns = row["stored_at_ns"]
            for draft in reading.drafts:
                draft.row.source, draft.row.version = light.record_sha256, light.version
            readings.append((row, reading))
            for span in spans:
                self._consider(tenant, span, row, made)
        new: dict[date, list[tuple[Row, SpanReading]]] = defaultdict(list)
        for of, span_reading in self._not_held(tenant, made):  # in whatever trace they are
            new[of["stored"]].append((of, span_reading))
            trace_id = span_reading.light.trace_id
            batch.joined[trace_id] = max(of["stored"], batch.joined.get(trace_id, date.min))
        self._mark(tenant, sorted({reading.light.trace_id for each in new.values() for _, reading in each}))
        for each in new.values():
            self._rewrite(tenant, each, [])
        self._rewrite(tenant, [], readings)

    def _consider(self, tenant: Tenant, span: Span, row: Row, made: _Made) -> None:
        """Several log records may stand for one call: the span that wins is the one that would, had all come now."""
        try:
            reading = self._read_span(tenant, span, row["stored_at_ns"])
            mark_made(reading, row["trace_id"], row["record_sha256"])
        except Exception as error:
            self._leave(error)
            return
        key = (span.trace_id, span.span_id)
        if key not in made or made[key][1].light.version < reading.light.version:
            made[key] = row, reading

    def _not_held(self, tenant: Tenant, made: _Made) -> list[tuple[Row, SpanReading]]:
        """Those of these spans whose row is not there, or was made of a log record that now has less to say of it; each with
        the row of its log record, as of the day on which its own is stored."""
        if not made:
            return []
        sql = f"SELECT trace_id, span_id, labels, version, stored FROM spans FINAL WHERE {_OF_SPANS}"
        rows = self._client.query(sql, parameters=_of_spans(tenant, list(made))).result_rows
        held = {(row[0], row[1]): (_log_of({"labels": row[2]}), int(row[3]), row[4]) for row in rows}
        others = {
            holder
            for key, (holder, _, _) in held.items()
            if key in made and holder not in ("", _name_of_log(made[key][0]))
        }
        holders = self._made_of_logs(tenant, sorted(others))
        new: list[tuple[Row, SpanReading]] = []
        for key, (row, reading) in made.items():
            if key in held:
                holder, version, stored = held[key]
                if holder not in others:
                    continue  # where it is this very record, its row is read anew like any other
                if span := holders.get(holder, {}).get(key):
                    other = read_span(tenant, span)
                    mark_made(other, *_log_named(holder))
                    if other.light.version >= reading.light.version:
                        continue
                # Of equal versions in two partitions it is not the last one written that stands.
                _set_version(reading, max(version, reading.light.version))
                new.append(({**row, "stored": stored}, reading))
            else:
                new.append((row, reading))
        return new

    def _leave(self, error: Exception) -> None:
        self.progress.left += 1
        log_failure(log, "a stored record could not be read anew; it stays as it was", error)

    def _read_span(self, tenant: Tenant, span: Span, stored_at_ns: int) -> SpanReading:
        reading = read_span(tenant, span)
        leave_out(reading, self._captured)
        reading.light.stored_at_ns = stored_at_ns
        return reading

    def _made_of_logs(self, tenant: Tenant, logs: Sequence[str]) -> dict[str, dict[tuple[str, str], Span]]:
        """The spans that these log records stand for now."""
        if not logs:
            return {}
        sql = (
            f"SELECT {', '.join(_LOG_COLUMNS)} FROM logs FINAL WHERE {_OF_TRACES} "
            "AND record_sha256 IN {records:Array(String)}"
        )
        parameters = _project(tenant) | {
            "traces": sorted({_log_named(name)[0] for name in logs}),
            "records": sorted({_log_named(name)[1] for name in logs}),
        }
        found = self._client.query(sql, parameters=parameters).result_rows
        records = [dict(zip(_LOG_COLUMNS, values, strict=True)) for values in found]
        for record in records:
            record["bodies"] = read_bodies_text(record["bodies"])
        made: dict[str, dict[tuple[str, str], Span]] = {}
        owners = Owners()
        for record, data in zip(records, self._data(records), strict=True):
            if data is not None:
                with contextlib.suppress(Exception):  # it is told where the log record itself is read
                    spans = spans_of_log(restored_log(record, data, owners))
                    made[_name_of_log(record)] = {(span.trace_id, span.span_id): span for span in spans}
        return made

    # --------------------------------------------------------------------------------------------------------- writing

    def _rewrite(
        self, tenant: Tenant, spans: list[tuple[Row, SpanReading]], logs: list[tuple[Row, LogReading]]
    ) -> None:
        if not spans and not logs:
            return
        read: list[tuple[Row, SpanReading | LogReading]] = [*spans, *logs]
        self._forget_artifacts(tenant, read)
        known: list[list[Body | None]] = []
        for row, reading in read:
            stored = {(body.sha256, body.raw_length): body for body in row["bodies"]}
            known.append([])
            for content in reading.contents:
                body = stored.get((content.digest(), len(content.data)))
                known[-1].append(
                    body and Body(content.field, body.frames, body.raw_length, body.sha256, content.encoding)
                )
        day: date = read[0][0]["stored"]
        self._exporter.rewrite([(tenant, r) for _, r in spans], [(tenant, r) for _, r in logs], known, day)

    def _forget_artifacts(self, tenant: Tenant, read: Sequence[tuple[Row, SpanReading | LogReading]]) -> None:
        """What the records no longer make gets a row without an id and content in its place."""
        readings = {
            (r.light.trace_id, r.light.span_id, "" if isinstance(r, SpanReading) else r.light.record_sha256): r
            for _, r in read
        }
        sql = (
            f"SELECT trace_id, span_id, kind, source FROM artifacts FINAL WHERE {_OF_SPANS} "
            "AND source IN {sources:Array(String)} AND artifact_id != ''"
        )
        parameters = _of_spans(tenant, [key[:2] for key in readings])
        parameters["sources"] = sorted({source for _, _, source in readings})
        for trace_id, span_id, kind, source in self._client.query(sql, parameters=parameters).result_rows:
            reading = readings.get((trace_id, span_id, source))
            if reading is None or any(draft.row.kind == kind for draft in reading.drafts):
                continue
            gone = ArtifactRow(trace_id, span_id, kind, source, version=reading.light.version)
            gone.time_ns = reading.light.start_ns if isinstance(reading, SpanReading) else reading.light.time_ns
            reading.drafts.append(Draft(gone, []))

    def _drop(self, tenant: Tenant, rows: Sequence[Row]) -> None:
        """Spans that nobody sent and that no log record stands for any more. What a service has stored of them since stays,
        and so does what was sent and hidden by them. Their own rows go last."""
        if not rows:
            return
        made_of = {(row["trace_id"], row["span_id"]): _log_of(row) for row in rows}
        parameters = _of_spans(tenant, list(made_of))
        sql = f"SELECT trace_id, span_id, version, labels, reader_version FROM spans WHERE {_OF_SPANS}"
        parameters["gone"] = [
            (trace_id, span_id, version)
            for trace_id, span_id, version, labels, reader in self._client.query(sql, parameters=parameters).result_rows
            if (of := _log_of({"labels": labels})) and (name := made_of.get((trace_id, span_id)))
            if of == name or reader < READER_VERSION
        ]
        parameters["spans_gone"] = list(made_of)
        for table, condition in (
            ("artifacts", f"source = '' AND {_GONE}"),
            ("resolved", "(trace_id, span_id) IN {spans_gone:Array(Tuple(String, String))}"),
            ("spans", _GONE),
        ):
            self._client.command(f"DELETE FROM {table} WHERE {_OF_SPANS} AND {condition}", parameters=parameters)
        self.progress.gone += len(rows)


_Made = dict[tuple[str, str], tuple[Row, SpanReading]]
"""(trace id, span id) of a span that a log record stands for → the record's row, and the span read."""


def _small(rows: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    some: list[dict[str, Any]] = []
    size = 0
    for row in rows:
        length = sum(body.raw_length for body in row["bodies"])
        if some and size + length > LARGEST_PAGE:
            yield some
            some, size = [], 0
        some.append(row)
        size += length
    if some:
        yield some


def _log_of(row: Row) -> str:
    """The log record of which the row was made; '' for a span that was sent."""
    labels = row["labels"]
    return str(orjson.loads(labels).get(MADE_OF_LOG, "")) if MADE_OF_LOG in labels else ""


def _name_of_log(row: Row) -> str:
    return f"{row['trace_id']}/{row['record_sha256']}"


def _log_named(name: str) -> tuple[str, str]:
    trace_id, _, record_sha256 = name.partition("/")
    return trace_id, record_sha256


def _set_version(reading: SpanReading, version: int) -> None:
    reading.light.version = version
    for draft in reading.drafts:
        draft.row.version = version


def _of_spans(tenant: Tenant, keys: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Parameters of _OF_SPANS, which takes more spans than these: each trace with each span id."""
    traces, spans = sorted({trace for trace, _ in keys}), sorted({span for _, span in keys})
    return _project(tenant) | {"traces": traces, "spans": spans}


_OF_SPANS = f"{_OF_TRACES} AND span_id IN {{spans:Array(String)}}"
_GONE = "(trace_id, span_id, version) IN {gone:Array(Tuple(String, String, UInt256))}"


def _after(*columns: str) -> str:
    """Rows behind the parameters `after_…`. Of `(a, b) > (x, y)` the engine makes no use to skip what is not wanted."""
    *outer, last = columns
    said = f"{last} > {{after_{last}:String}}"
    for column in reversed(outer):
        said = f"{column} >= {{after_{column}:String}} AND ({column} > {{after_{column}:String}} OR {said})"
    return said


def _until(*columns: str) -> str:
    """Rows up to the parameters `until_…`."""
    *outer, last = columns
    said = f"{last} <= {{until_{last}:String}}"
    for column in reversed(outer):
        said = f"{column} <= {{until_{column}:String}} AND ({column} < {{until_{column}:String}} OR {said})"
    return said


_KEY = "organization_id, project_id, trace_id"
_SPAN_COLUMNS = (
    "trace_id", "span_id", "parent_span_id", "name", "start_ns", "labels", "version", "stored_at_ns", "stored",
    *(column.name for column in SPAN_ROW),
)  # fmt: skip
_LOG_COLUMNS = (
    "trace_id", "span_id", "record_sha256", "time_ns", "event_name", "severity_text", "version", "stored_at_ns", "stored",
    *(column.name for column in LOG_ROW),
)  # fmt: skip
_OF_TABLE = (
    f"SELECT {_KEY}, {{count}} AS found, max({{STALE}}) AS stale, max(stored) AS received FROM {{table}} FINAL "
    f"WHERE {{SCOPE}} GROUP BY {_KEY} UNION ALL "
)
_WORK = (
    f"SELECT {_KEY}, sum(found) AS records, max(received) AS day FROM ("
    + "".join(
        _OF_TABLE.replace("{count}", count).replace("{table}", table)
        for table, count in (("spans", "countIf({STALE})"), ("logs", "countIf({STALE})"), ("run_parts", "0"))
    )
    + f"SELECT {_KEY}, 0 AS found, 1 AS stale, toDate(0) AS received FROM rederiving FINAL WHERE {{SCOPE}}) "
    f"GROUP BY {_KEY} HAVING max(stale) AND day >= {{since:Date}}"
)
"""Traces in which a row was read, or a run derived, by an older reader, and those whose rederivation was stopped."""
_COUNT = f"SELECT sum(records) FROM ({_WORK})"
_TRACES = f"{_WORK} ORDER BY {_KEY} LIMIT {{most:UInt32}}"
