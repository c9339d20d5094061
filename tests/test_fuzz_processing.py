"""Spans and log records of any kind through processor, stores and API: nothing raises, nothing hangs, all comes back."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from otel_blackboard.exporter.tables import SPAN_ROW
from otel_blackboard.processor.reading import read_span
from otel_blackboard.processor.values import restore
from otel_blackboard.query.api import make_api
from otel_blackboard.records import LogRecord, Span, Tenant
from otel_blackboard.service import Stores
from tests.conftest import new_project
from tests.fuzzing import any_log, any_span, fuzz
from tests.otlp import said
from tests.spans import derive

TENANT = Tenant("default", "default")


def test_no_span_or_log_record_upsets_the_processor() -> None:
    @given(st.lists(any_span(), min_size=1, max_size=6), st.lists(any_log(), max_size=4))
    def check(spans: list[Span], logs: list[LogRecord]) -> None:
        for span in spans:
            reading = read_span(TENANT, span)
            row = dict(zip((column.name for column in SPAN_ROW), reading.row, strict=False))
            for name in ("attributes", "events", "links", "resource", "instrumentation_scope"):
                orjson.loads(row[name])
            assert 0 <= reading.light.version < 2**256
            for draft in reading.drafts:
                assert all(index < len(reading.contents) for index in draft.contents)
                assert len(draft.row.summary) <= 500
        resolved, parts, _ = derive(spans, logs)
        assert {(row.trace_id, row.span_id) for row in resolved} == {(span.trace_id, span.span_id) for span in spans}
        assert sum(part.span_count for part in parts) == len(resolved)

    fuzz(0.1, 60, check)


def test_what_was_sent_is_what_is_shown(embedded: Stores) -> None:
    """Through the embedded pair and every read route, a batch of spans and records in each flush."""
    client = TestClient(make_api(embedded.reader, embedded.settings, None, lambda: ""), follow_redirects=False)

    @given(st.lists(any_span(), min_size=1, max_size=8, unique_by=lambda span: (span.trace_id, span.span_id)),
           st.lists(any_log(), max_size=4))  # fmt: skip
    def check(spans: list[Span], logs: list[LogRecord]) -> None:
        before = embedded.exporter.derivation_failures
        project = new_project(embedded)
        project.store(spans, logs)
        assert embedded.exporter.derivation_failures == before

        def ask(path: str, **query: Any) -> Any:
            answer = client.get(f"/api/v1{path}", params={"project_id": project.tenant.project_id} | query)
            assert answer.status_code == 200, (path, answer.text)
            return answer.json()

        shown: dict[tuple[str, str], Any] = {}
        for run in ask("/runs", all="true")["runs"]:
            base = f"/runs/{run['run_id']}"
            for row in ask(f"{base}/timeline")["spans"]:
                place = (row["trace_id"], row["span_id"])
                shown[place] = ask(f"{base}/spans/{row['span_id']}", trace_id=row["trace_id"])
            for artifact in ask(f"{base}/artifacts", earlier="true")["artifacts"][:3]:
                ask(f"{base}/artifacts/{artifact['artifact_id']}")
            for route in ("/prompts", "/paths", "/ledger"):
                ask(base + route)
        assert shown.keys() == {(span.trace_id, span.span_id) for span in spans}
        for span in spans:
            detail = shown[(span.trace_id, span.span_id)]
            assert said(restore(detail["attributes"])) == said(span.attributes)
            assert (detail["name"], detail["status_message"]) == (span.name, span.status_message)
            assert detail["trace_state"] == span.trace_state
            assert (detail["start_time_unix_nano"], detail["end_time_unix_nano"]) == (
                str(span.start_ns),
                str(span.end_ns),
            )
            for one, event in zip(detail["events"], span.events, strict=True):
                assert (one["name"], one["time_ns"], said(restore(one["attributes"]))) == (
                    event.name, event.time_ns, said(event.attributes)
                )  # fmt: skip
            for other, link in zip(detail["links"], span.links, strict=True):
                assert said(restore(other["attributes"])) == said(link.attributes)
            assert said(restore(detail["resource"]["attributes"])) == said(span.resource.attributes)
            assert said(restore(detail["scope"]["attributes"])) == said(span.scope.attributes)
            assert detail["scope"].get("name", "") == span.scope.name

    fuzz(0.15, 12, check, shrink=False)
