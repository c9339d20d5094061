"""Model calls in a trace of their own beside the same call in another trace: a native SDK's root spans next to an
instrumentation whose span was not current. They take the run of that other call, their host, and are not counted again; what
the SDK says was used is what counts.

A flush stores its spans before it looks for the others, and derives the hosts of its satellites before them: of two flushes
the later one finds both, and a satellite is derived once the run of its host is written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple

from clickhouse_connect.driver.client import Client

from otel_blackboard.exporter.clickhouse import OF_PROJECT, chunks, of_project
from otel_blackboard.processor.calls import SAME_CALL_NS
from otel_blackboard.processor.dialects.dialect import PROVIDER_CALL
from otel_blackboard.processor.nodes import USAGE
from otel_blackboard.records import SATELLITE, Light, Tenant

_SATELLITES = f"SELECT DISTINCT trace_id FROM satellites WHERE {OF_PROJECT} AND call IN {{ids:Array(String)}}"
_CALL = f"trace_id, span_id, start_ns, end_ns, status, request_model, response_id, {', '.join(USAGE)}"
_TOLD = (
    f"SELECT {_CALL} FROM spans FINAL WHERE {OF_PROJECT} AND trace_id IN {{ids:Array(String)}} "
    f"AND startsWith(join_key, '{SATELLITE}')"
)
_A_HOST = f"role = '{PROVIDER_CALL}' AND NOT startsWith(join_key, '{SATELLITE}')"
# Without FINAL, which would read all of each trace; what was replaced is left out where the spans themselves are read.
# No index serves this: a flush asks for tens of ids, and then one by bloom filters reads most of the rows as well.
_BEGUN = (
    f"SELECT trace_id, span_id FROM spans WHERE {OF_PROJECT} AND {_A_HOST} "
    "AND start_time BETWEEN fromUnixTimestamp64Nano({from:Int64}, 'UTC') AND fromUnixTimestamp64Nano({to:Int64}, 'UTC') "
)
_ANSWERED = f"{_BEGUN} AND response_id IN {{ids:Array(String)}}"
_FAILED = f"{_BEGUN} AND status = 'failed' AND response_id = '' AND request_model IN {{ids:Array(String)}}"
_NAMED = "trace_id IN {traces:Array(String)} AND span_id IN {spans:Array(String)}"
_HOSTS = f"SELECT {_CALL} FROM spans FINAL WHERE {OF_PROJECT} AND {_NAMED} AND {_A_HOST}"
_RUNS = f"SELECT trace_id, span_id, run_id FROM resolved FINAL WHERE {OF_PROJECT} AND {_NAMED}"
_MINUTE_NS = 60_000_000_000
_FARTHEST_NS = 86_400_000_000_000
"""How far apart a satellite and its host may begin: no call lasts longer, and no more has to be read."""
_LONGEST_NS = 600_000_000_000
"""How long before its satellite a failed host may have begun: a client that tries again for ten minutes."""

SpanKey = tuple[str, str]
"""(trace id, span id)"""

_BY_SPAN = itemgetter(0, 1)


def is_satellite(light: Light) -> bool:
    return light.join_key.startswith(SATELLITE)


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


def call_of(satellite: Light | _Call) -> str:
    """What a satellite and its host have in common: the response id; of a failed call, which has none, the model and the
    minute."""
    return satellite.response_id or _failed(satellite.request_model, satellite.start_ns)


def _calls_of(host: Light | _Call) -> list[str]:
    """What `call_of` is of its satellites."""
    if host.response_id:
        return [host.response_id]
    if host.status != "failed":
        return []
    lasted = min(max(host.end_ns - host.start_ns, 0), _LONGEST_NS)
    first, last = host.start_ns - SAME_CALL_NS, host.start_ns + lasted + SAME_CALL_NS
    return [_failed(host.request_model, minute) for minute in range(first, last + _MINUTE_NS, _MINUTE_NS)]


def _failed(model: str, start_ns: int) -> str:
    return f"failed {start_ns // _MINUTE_NS} {model}"


@dataclass(slots=True)
class Counterparts:
    """What other traces say of the calls of one trace, by span id."""

    hosts: dict[str, str] = field(default_factory=dict)
    """Satellite → the trace of its host."""
    runs: dict[str, str] = field(default_factory=dict)
    """Satellite → the run of its host, once that is derived."""
    satellites: dict[str, set[str]] = field(default_factory=dict)
    """Host → the traces of its satellites."""
    usage: dict[str, dict[str, int]] = field(default_factory=dict)
    """Host → what its satellite says was used."""


def find_counterparts(client: Client, tenant: Tenant, lights: Iterable[Light]) -> Mapping[str, Counterparts]:
    """By trace id."""
    found: dict[str, Counterparts] = defaultdict(Counterparts)
    calls = [light for light in lights if light.role == PROVIDER_CALL]
    _find_hosts(client, tenant, [light for light in calls if is_satellite(light)], found)
    _find_satellites(client, tenant, [light for light in calls if not is_satellite(light)], found)
    return found


def _find_satellites(client: Client, tenant: Tenant, hosts: Sequence[Light], found: dict[str, Counterparts]) -> None:
    ids = {call for light in hosts for call in _calls_of(light)}
    traces = {row[0] for row in _rows(client, _SATELLITES, tenant, ids)}
    told: dict[str, list[_Call]] = defaultdict(list)
    for row in sorted(_rows(client, _TOLD, tenant, traces), key=_BY_SPAN):
        call = _Call(*row)
        told[call_of(call)].append(call)
    for light in hosts if told else ():
        same = [each for call in _calls_of(light) for each in told.get(call, ()) if _is_same(each, light)]
        if same:
            found[light.trace_id].satellites[light.span_id] = {each.trace_id for each in same}
        if usage := next((each.usage for each in same if light.response_id and each.usage), None):
            found[light.trace_id].usage[light.span_id] = usage


def _find_hosts(client: Client, tenant: Tenant, satellites: Sequence[Light], found: dict[str, Counterparts]) -> None:
    candidates: set[SpanKey] = set()
    answered, failed = [x for x in satellites if x.response_id], [x for x in satellites if not x.response_id]
    if answered:
        begun = _begun(answered, _FARTHEST_NS, _FARTHEST_NS)
        ids = {light.response_id for light in answered}
        candidates.update((row[0], row[1]) for row in _rows(client, _ANSWERED, tenant, ids, begun))
    if failed:
        begun = _begun(failed, _LONGEST_NS, SAME_CALL_NS)
        models = {light.request_model for light in failed}
        candidates.update((row[0], row[1]) for row in _rows(client, _FAILED, tenant, models, begun))
    hosts: dict[str, list[_Call]] = defaultdict(list)
    for row in sorted(_of_spans(client, _HOSTS, tenant, candidates), key=_BY_SPAN):
        host = _Call(*row)
        for call in _calls_of(host):
            hosts[call].append(host)
    host_of: dict[SpanKey, SpanKey] = {}
    for light in satellites:
        if first := next((host for host in hosts.get(call_of(light), ()) if _is_same(light, host)), None):
            host_of[(light.trace_id, light.span_id)] = first.trace_id, first.span_id
    rows = _of_spans(client, _RUNS, tenant, host_of.values())
    runs: dict[SpanKey, str] = {(trace_id, span_id): run_id for trace_id, span_id, run_id in rows}
    for (trace_id, span_id), key in host_of.items():
        found[trace_id].hosts[span_id] = key[0]
        if key in runs:
            found[trace_id].runs[span_id] = runs[key]


def _is_same(satellite: Light | _Call, host: Light | _Call) -> bool:
    if host.trace_id == satellite.trace_id or host.response_id != satellite.response_id:
        return False
    since = satellite.start_ns - host.start_ns
    if host.response_id:
        near = abs(since) <= _FARTHEST_NS
    else:
        tried = host.status == "failed" and host.request_model == satellite.request_model
        near = tried and -SAME_CALL_NS <= since <= _LONGEST_NS
    return near and _overlap(satellite, host)


def _overlap(one: Light | _Call, other: Light | _Call) -> bool:
    end = 2**64
    return one.start_ns - SAME_CALL_NS <= (other.end_ns or end) and other.start_ns - SAME_CALL_NS <= (one.end_ns or end)


def _begun(satellites: Sequence[Light], before_ns: int, after_ns: int) -> dict[str, Any]:
    """When hosts of these may have begun."""
    starts = [light.start_ns for light in satellites]
    first, last = min(starts) - before_ns, max(starts) + after_ns
    return {"from": min(max(first, 0), 2**63 - 1), "to": min(max(last, 0), 2**63 - 1)}


def _rows(
    client: Client, sql: str, tenant: Tenant, ids: Iterable[str], more: dict[str, Any] | None = None
) -> list[Sequence[Any]]:
    return [
        row
        for some in chunks(sorted(ids))
        for row in client.query(sql, parameters={"ids": some} | of_project(tenant) | (more or {})).result_rows
    ]


def _of_spans(client: Client, sql: str, tenant: Tenant, keys: Iterable[SpanKey]) -> list[Sequence[Any]]:
    """Rows of these spans, and of some others."""
    found: list[Sequence[Any]] = []
    for some in chunks(sorted(set(keys))):
        parameters = {"traces": [trace_id for trace_id, _ in some], "spans": [span_id for _, span_id in some]}
        found += client.query(sql, parameters=parameters | of_project(tenant)).result_rows
    return found
