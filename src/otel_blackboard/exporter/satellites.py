"""Model calls in a trace of their own beside the same call in another trace: a native SDK's root spans next to an
instrumentation whose span was not current. They take the run of that other call, their host, and are not counted again; what
the SDK says was used is what counts.

A flush writes its satellites and its spans before it looks for the others: of two flushes the later one finds both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from clickhouse_connect.driver.client import Client

from otel_blackboard.exporter.clickhouse import MOST_IDS, chunks
from otel_blackboard.processor.calls import SAME_CALL_NS
from otel_blackboard.processor.dialects.dialect import PROVIDER_CALL
from otel_blackboard.processor.nodes import USAGE
from otel_blackboard.records import SATELLITE, Light, Tenant

OF_PROJECT = "organization_id = {organization:String} AND project_id = {project:String}"
_SATELLITES = f"SELECT DISTINCT trace_id FROM satellites WHERE {OF_PROJECT} AND call IN {{ids:Array(String)}}"
_CALL = f"trace_id, span_id, start_ns, end_ns, status, request_model, response_id, {', '.join(USAGE)}"
_TOLD = (
    f"SELECT {_CALL} FROM spans FINAL WHERE {OF_PROJECT} AND trace_id IN {{ids:Array(String)}} "
    f"AND startsWith(join_key, '{SATELLITE}')"
)
_A_HOST = f"role = '{PROVIDER_CALL}' AND NOT startsWith(join_key, '{SATELLITE}')"
# What was replaced may be among these: FINAL with an index that skips would not see what replaced it.
_ANSWERED = (
    f"SELECT trace_id, span_id FROM spans WHERE {OF_PROJECT} AND response_id IN {{ids:Array(String)}} AND {_A_HOST}"
)
_FAILED = (
    f"SELECT trace_id, span_id FROM spans WHERE {OF_PROJECT} AND status = 'failed' AND response_id = '' AND {_A_HOST} "
    "AND start_time BETWEEN fromUnixTimestamp64Nano({from:Int64}, 'UTC') AND fromUnixTimestamp64Nano({to:Int64}, 'UTC')"
)
_NAMED = "trace_id IN {traces:Array(String)} AND span_id IN {spans:Array(String)}"
_HOSTS = f"SELECT {_CALL} FROM spans FINAL WHERE {OF_PROJECT} AND {_NAMED} AND {_A_HOST}"
_RUNS = f"SELECT trace_id, span_id, run_id FROM resolved FINAL WHERE {OF_PROJECT} AND {_NAMED}"
_LONGEST_NS = 600_000_000_000
"""How long before its satellite a failed host may have begun: a client that tries again for ten minutes."""

SpanKey = tuple[str, str]
"""(trace id, span id)"""


def is_satellite(light: Light) -> bool:
    return light.join_key.startswith(SATELLITE)


def call_of(light: Light) -> str:
    """What a satellite and its host have in common: the response id; of a failed call, which has none, the model and the
    minute."""
    return light.response_id or _failed(light.request_model, light.start_ns)


def _failed(model: str, start_ns: int) -> str:
    return f"failed {start_ns // 60_000_000_000} {model}"


class _Call(NamedTuple):
    trace_id: str
    span_id: str
    start_ns: int
    end_ns: int
    status: str
    request_model: str
    response_id: str
    input_tokens: int | None
    output_tokens: int | None
    cached_input_tokens: int | None
    cache_write_tokens: int | None
    reasoning_tokens: int | None

    @property
    def usage(self) -> dict[str, int]:
        return {name: count for name in USAGE if (count := getattr(self, name)) is not None}


@dataclass(slots=True)
class Beside:
    """What other traces say of the calls of some traces."""

    runs: dict[SpanKey, str] = field(default_factory=dict)
    """Satellite → the run of its host."""
    usage: dict[SpanKey, dict[str, int]] = field(default_factory=dict)
    """Host → what its satellite says was used."""
    traces: set[str] = field(default_factory=set)
    """The traces of those others: they have to be derived as well."""


def calls_beside(client: Client, tenant: Tenant, lights: Iterable[Light]) -> Beside:
    found = Beside()
    calls = [light for light in lights if light.role == PROVIDER_CALL]
    satellites = [light for light in calls if is_satellite(light)]
    if satellites:
        _find_hosts(client, tenant, satellites, found)
    _find_satellites(client, tenant, [light for light in calls if not is_satellite(light)], found)
    return found


def _find_satellites(client: Client, tenant: Tenant, hosts: Sequence[Light], found: Beside) -> None:
    ids = {light.response_id for light in hosts} - {""}
    for light in hosts:
        if light.status == "failed" and not light.response_id:
            lasted = min(max(light.end_ns - light.start_ns, 0), _LONGEST_NS)
            first, last = light.start_ns - SAME_CALL_NS, light.start_ns + lasted + SAME_CALL_NS
            minutes = range(first, last + 60_000_000_000, 60_000_000_000)
            ids.update(_failed(light.request_model, minute) for minute in minutes)
    traces = sorted({row[0] for row in _rows(client, _SATELLITES, tenant, sorted(ids))})
    told: dict[str, list[_Call]] = defaultdict(list)
    for row in _rows(client, _TOLD, tenant, traces):
        call = _Call(*row)
        told[call.response_id].append(call)
    found.traces.update(traces)
    for light in hosts:
        beside = [call for call in told.get(light.response_id, ()) if call.trace_id != light.trace_id and call.usage]
        if light.response_id and (same := [call for call in beside if _overlap(call, light)]):
            found.usage[(light.trace_id, light.span_id)] = min(same, key=lambda call: call[:2]).usage


def _find_hosts(client: Client, tenant: Tenant, satellites: Sequence[Light], found: Beside) -> None:
    ids = sorted({light.response_id for light in satellites} - {""})
    candidates: set[SpanKey] = {(row[0], row[1]) for row in _rows(client, _ANSWERED, tenant, ids)}
    if failed := [light for light in satellites if not light.response_id]:
        first, last = min(light.start_ns for light in failed), max(light.start_ns for light in failed)
        span = {"from": _signed(first - _LONGEST_NS), "to": _signed(last + SAME_CALL_NS)}
        rows = client.query(_FAILED, parameters=span | _project(tenant)).result_rows
        candidates.update((trace_id, span_id) for trace_id, span_id in rows)
    host_of: dict[SpanKey, SpanKey] = {}
    by_id: dict[str, list[_Call]] = defaultdict(list)
    for row in _of_spans(client, _HOSTS, tenant, candidates):
        call = _Call(*row)
        by_id[call.response_id or call.request_model].append(call)
    for light in satellites:
        hosts = [call[:2] for call in by_id[light.response_id or light.request_model] if _is_host(call, light)]
        if hosts:
            host_of[(light.trace_id, light.span_id)] = min(hosts)
    rows = _of_spans(client, _RUNS, tenant, host_of.values())
    runs: dict[SpanKey, str] = {(trace_id, span_id): run_id for trace_id, span_id, run_id in rows}
    found.runs = {key: runs[host] for key, host in host_of.items() if host in runs}
    found.traces.update(trace_id for trace_id, _ in host_of.values())


def _is_host(call: _Call, satellite: Light) -> bool:
    if call.trace_id == satellite.trace_id or call.response_id != satellite.response_id:
        return False
    if not call.response_id:
        tried = -SAME_CALL_NS <= satellite.start_ns - call.start_ns <= _LONGEST_NS
        if call.status != "failed" or call.request_model != satellite.request_model or not tried:
            return False
    return _overlap(call, satellite)


def _overlap(one: _Call, other: Light) -> bool:
    end = 2**64
    return one.start_ns - SAME_CALL_NS <= (other.end_ns or end) and other.start_ns - SAME_CALL_NS <= (one.end_ns or end)


def _signed(time_ns: int) -> int:
    return min(max(time_ns, 0), 2**63 - 1)


def _rows(client: Client, sql: str, tenant: Tenant, ids: Sequence[str]) -> list[Sequence[Any]]:
    return [
        row
        for some in chunks(ids, MOST_IDS)
        for row in client.query(sql, parameters={"ids": list(some)} | _project(tenant)).result_rows
    ]


def _of_spans(client: Client, sql: str, tenant: Tenant, keys: Iterable[SpanKey]) -> list[Sequence[Any]]:
    """Rows of these spans, and of some others."""
    found: list[Sequence[Any]] = []
    for some in chunks(sorted(set(keys)), MOST_IDS):
        parameters = {"traces": [trace_id for trace_id, _ in some], "spans": [span_id for _, span_id in some]}
        found += client.query(sql, parameters=parameters | _project(tenant)).result_rows
    return found


def _project(tenant: Tenant) -> dict[str, Any]:
    return {"organization": tenant.organization_id, "project": tenant.project_id}
