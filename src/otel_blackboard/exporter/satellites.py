"""Model calls in a trace of their own beside the same call in another trace: a native SDK's root spans next to an
instrumentation whose span was not current. They take the run of that other call, their host, and are not counted again.

A flush writes its satellites and its spans before it looks for the others: of two flushes the later one finds both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from clickhouse_connect.driver.client import Client

from otel_blackboard.exporter.clickhouse import MOST_IDS, chunks
from otel_blackboard.processor.dialects.dialect import PROVIDER_CALL
from otel_blackboard.processor.tree import SAME_CALL_NS
from otel_blackboard.records import SATELLITE, Light, Tenant

OF_PROJECT = "organization_id = {organization:String} AND project_id = {project:String}"
_SATELLITES = f"SELECT DISTINCT trace_id FROM satellites WHERE {OF_PROJECT} AND response_id IN {{ids:Array(String)}}"
_HOSTS = (
    f"SELECT response_id, trace_id, span_id, start_ns, end_ns FROM spans WHERE {OF_PROJECT} "
    f"AND response_id IN {{ids:Array(String)}} AND role = '{PROVIDER_CALL}' AND NOT startsWith(join_key, '{SATELLITE}')"
)
_RUNS = (
    f"SELECT trace_id, span_id, run_id FROM resolved FINAL WHERE {OF_PROJECT} "
    "AND trace_id IN {traces:Array(String)} AND span_id IN {spans:Array(String)}"
)


def is_satellite(light: Light) -> bool:
    return light.join_key.startswith(SATELLITE)


def satellites_of(client: Client, tenant: Tenant, lights: Iterable[Light]) -> list[str]:
    """Trace ids of the satellites of these calls."""
    ids = sorted(
        {light.response_id for light in lights if light.role == PROVIDER_CALL and not is_satellite(light)} - {""}
    )
    return sorted({row[0] for row in _rows(client, _SATELLITES, tenant, ids)})


class _Host(NamedTuple):
    trace_id: str
    span_id: str
    start_ns: int
    end_ns: int


def runs_of_hosts(client: Client, tenant: Tenant, lights: Iterable[Light]) -> dict[tuple[str, str], str]:
    """(trace id, span id) of those of these satellites that have a host → its run."""
    satellites = [light for light in lights if is_satellite(light)]
    if not satellites:
        return {}
    hosts: dict[str, list[_Host]] = defaultdict(list)
    for response_id, *host in _rows(client, _HOSTS, tenant, sorted({light.response_id for light in satellites})):
        hosts[response_id].append(_Host(*host))
    host_of: dict[tuple[str, str], _Host] = {}
    for light in satellites:
        beside = [
            host for host in hosts[light.response_id] if host.trace_id != light.trace_id and _overlap(host, light)
        ]
        if beside:
            host_of[(light.trace_id, light.span_id)] = min(beside)
    runs: dict[tuple[str, str], str] = {}
    for some in chunks(sorted(set(host_of.values())), MOST_IDS):
        parameters = {"traces": [host.trace_id for host in some], "spans": [host.span_id for host in some]}
        found = client.query(_RUNS, parameters=parameters | _project(tenant)).result_rows
        runs |= {(trace_id, span_id): run_id for trace_id, span_id, run_id in found}
    return {key: runs[host[:2]] for key, host in host_of.items() if host[:2] in runs}


def _overlap(host: _Host, light: Light) -> bool:
    end = 2**64
    return host.start_ns - SAME_CALL_NS <= (light.end_ns or end) and light.start_ns - SAME_CALL_NS <= (
        host.end_ns or end
    )


def _rows(client: Client, sql: str, tenant: Tenant, ids: Sequence[str]) -> list[Sequence[Any]]:
    return [
        row
        for some in chunks(ids, MOST_IDS)
        for row in client.query(sql, parameters={"ids": list(some)} | _project(tenant)).result_rows
    ]


def _project(tenant: Tenant) -> dict[str, Any]:
    return {"organization": tenant.organization_id, "project": tenant.project_id}
