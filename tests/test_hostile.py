"""Hostile input through the flush and out of every read route: one bad span costs that span at most, and nothing hangs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from otel_blackboard.config import Settings
from otel_blackboard.query.api import make_api
from otel_blackboard.records import Event, InvalidText, Link, LogRecord, Resource, Scope, Span, Tenant, Value
from otel_blackboard.service import Stores, open_stores

TRACE = "9f8234c2b5d0a1e7f3648b92d5c01a77"
START = 1_790_000_000 * 10**9
LATEST = 2**64 - 1


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    with open_stores(Settings(data=tmp_path_factory.mktemp("hostile"), database="hostile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def api(stores: Stores) -> TestClient:
    return TestClient(make_api(stores.reader, stores.settings, None, lambda: "", lambda: START + 10**12))


def tool(span_id: int, parent: int = 0, **values: Any) -> Span:
    attributes: dict[str, Value] = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "lookup"}
    attributes |= values.pop("attributes", {})
    fields = {"name": "execute_tool lookup", "start_ns": START + span_id, "end_ns": START + span_id + 1000} | values
    return Span(
        values.pop("trace_id", TRACE), f"{span_id:016x}", f"{parent:016x}" if parent else "", attributes=attributes,
        **{name: value for name, value in fields.items() if name != "trace_id"},
    )  # fmt: skip


def model_call(span_id: int, **attributes: Value) -> Span:
    span = tool(span_id)
    span.name, span.attributes = "chat m", {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", **attributes}
    return span


def read_everything(api: TestClient, project: str, run_id: str = f"run_{TRACE}") -> dict[str, Any]:
    """Every read route of the run; each must answer, whatever is in there."""
    query = {"project_id": project}
    base = f"/api/v1/runs/{run_id}"
    found = {}
    for name in ("", "/timeline", "/artifacts", "/prompts", "/paths", "/ledger"):
        answer = api.get(base + name, params=query | ({"limit": 1000} if name in ("/timeline", "/artifacts") else {}))
        assert answer.status_code == 200, (name, answer.text)
        found[name] = answer.json()
    for artifact in found["/artifacts"]["artifacts"][-30:]:
        for path in (f"{base}/artifacts/{artifact['artifact_id']}", f"{base}/artifacts/{artifact['artifact_id']}/raw"):
            answer = api.get(path, params=query)
            captured = artifact["metadata"].get("content", "captured") == "captured"
            assert answer.status_code == (200 if captured or not path.endswith("/raw") else 404), answer.text
    for span in found["/timeline"]["spans"][:30]:
        assert api.get(f"{base}/spans/{span['span_id']}", params=query).status_code == 200
    assert api.get("/api/v1/runs", params=query).status_code == 200
    assert api.get("/api/v1/search", params=query | {"q": "lookup"}).status_code == 200
    return found


DEEP = "[" * 50_000 + "]" * 50_000

CALL_WITH_DEEP_ARGUMENTS = (
    '[{"role":"assistant","content":[{"type":"tool_call","name":"x","arguments":' + "[" * 300 + "]" * 300 + "}]}]"
)

SPANS: dict[str, list[Span]] = {
    "no times": [tool(1, start_ns=0, end_ns=0)],
    "the last nanosecond there is": [tool(1, start_ns=LATEST, end_ns=LATEST)],
    "end before start": [tool(1, start_ns=START, end_ns=START - 10**9)],
    "150 days": [
        tool(n, start_ns=START + n * 86_400 * 10**9, end_ns=START + n * 86_400 * 10**9 + 1) for n in range(1, 150)
    ],
    "own parent": [tool(1, parent=1)],
    "cycle": [tool(1, parent=3), tool(2, parent=1), tool(3, parent=2), tool(4, parent=3)],
    "parents that never come": [tool(n, parent=1000 + n) for n in range(1, 20)],
    "deep parents": [tool(n, parent=n - 1) for n in range(1, 900)],
    "not UTF-8": [tool(1, attributes={"gen_ai.tool.call.result": InvalidText(b"\xff\xfe"), "x": InvalidText(b"\xff")})],
    "NUL": [tool(1, name="a\0b", attributes={"gen_ai.tool.call.result": "a\0b", "gen_ai.tool.name": "t\0"})],
    "NaN": [tool(1, attributes={"x": float("nan"), "gen_ai.usage.input_tokens": float("inf")})],
    "bytes": [tool(1, attributes={"gen_ai.tool.call.result": b"\x00\x01\xff", "y": b"1"})],
    "null and empty": [tool(1, attributes={"gen_ai.tool.call.result": None, "gen_ai.tool.call.arguments": "", "": ""})],
    "deep JSON text": [tool(1, attributes={"gen_ai.tool.call.arguments": DEEP, "gen_ai.tool.call.result": DEEP})],
    "deep prompt": [model_call(1, **{"gen_ai.input.messages": DEEP, "gen_ai.output.messages": DEEP})],
    "deep value": [model_call(1, **{"gen_ai.output.messages": json.loads("[" * 90 + "]" * 90)})],
    "huge index": [
        model_call(1, **{"gen_ai.prompt.2147483647.content": "late", "gen_ai.prompt.0.content": "first"}),
        model_call(2, **{"gen_ai.completion.99999999999999999999.content": "x", "gen_ai.completion.0": "scalar"}),
        model_call(
            3, **{"gen_ai.prompt.0": "scalar", "gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.role.x": "deep"}
        ),
    ],
    "10 MB": [tool(1, attributes={"gen_ai.tool.call.result": "x" * 10_000_000, "note": "y" * 1_000_000})],
    "many attributes": [tool(1, attributes={f"k{n}": n for n in range(5000)})],
    "unknown enums": [tool(1, kind=99), tool(2, status_code=77)],
    "surprising types": [
        model_call(
            1, **{"gen_ai.usage.input_tokens": "134", "gen_ai.usage.output_tokens": -5, "gen_ai.response.id": 7}
        ),
        model_call(2, **{"gen_ai.output.messages": [1, None, {"role": None, "parts": "x"}, [[]]]}),
        model_call(3, **{"gen_ai.input.messages": {"role": {"a": 1}, "content": {"b": [2]}}}),
        model_call(
            4, **{"gen_ai.output.messages": '[{"role":"assistant","parts":[{"type":"tool_call","name":{"a":1}}]}]'}
        ),
        tool(5, attributes={"gen_ai.tool.name": {"a": 1}, "gen_ai.tool.call.arguments": [1, {"b": float("nan")}]}),
        tool(6, attributes={"blackboard.pass.seq": "x", "blackboard.call.seq": 2**60, "blackboard.cost.usd": "1e999"}),
    ],
    "numbers no column takes": [
        tool(1, attributes={"blackboard.loop.iteration": 5_000_000_000, "blackboard.pass.seq": 2**32}),
        *[
            model_call(n, **{"gen_ai.usage.input_tokens": 2**53 - 1, "gen_ai.usage.output_tokens": 2**40})
            for n in range(2, 40)
        ],
    ],
    "deeper than can be written": [
        model_call(1, **{"gen_ai.output.messages": CALL_WITH_DEEP_ARGUMENTS}),
        tool(2, attributes={"gen_ai.tool.call.arguments": "[" * 300 + "]" * 300}),
    ],
    "a number that is no decimal": [
        model_call(1, **{"gen_ai.prompt.1².content": "x", "gen_ai.completion.¹.content": "y"})
    ],
    "white space first": [tool(1, attributes={"gen_ai.tool.call.result": " " * 20_000 + "hello"})],
    "long keys": [tool(1, attributes={f"{n}" + "k" * 100_000: "v" for n in range(20)})],
    "reserved keys": [tool(1, attributes={"$content": 0, "m": {"$content": 5}, "$bytes": "no", "n": {"$bytes": "zz"}})],
    "same response id everywhere": [
        model_call(n, **{"gen_ai.response.id": "r", "gen_ai.usage.input_tokens": 5}) for n in range(1, 50)
    ],
    "events and links": [
        tool(
            1,
            events=[Event(LATEST, "exception", {"exception.message": None}), Event(0, "gen_ai.choice", {"message": 5})],
        ),
        tool(2, links=[Link(TRACE, "0" * 16), Link("a" * 32, "b" * 16, attributes={"x": b"1"})]),
    ],
    "long names": [
        tool(1, name="n" * 100_000, attributes={"gen_ai.tool.name": "t" * 100_000, "user.id": "u" * 100_000})
    ],
}


@pytest.mark.parametrize("kind", SPANS)
def test_a_bad_span_costs_that_span_at_most(stores: Stores, api: TestClient, kind: str) -> None:
    tenant = Tenant("default", kind)
    good = tool(0xFFFF, attributes={"gen_ai.tool.call.result": "good"})
    before = stores.exporter.derivation_failures
    stores.exporter.flush([(tenant, span) for span in [*SPANS[kind], good]], [])
    assert stores.exporter.derivation_failures == before
    found = read_everything(api, kind)
    assert found[""]["span_count"] == len(SPANS[kind]) + 1
    assert "good" in [artifact["summary"] for artifact in found["/artifacts"]["artifacts"]]


@pytest.mark.parametrize("identity", ["a/b", "..", "../../etc/passwd", "with space", "x" * 4096, "é", "a\nb", "%2e%2e"])
def test_any_text_can_be_a_run_step_agent_or_project(stores: Stores, api: TestClient, identity: str) -> None:
    attributes: dict[str, Value] = {
        "blackboard.run.id": identity,
        "blackboard.step.id": identity,
        "gen_ai.agent.name": identity,
        "gen_ai.tool.call.result": "kept",
    }
    project = identity if len(identity) <= 256 else "long"
    stores.exporter.flush([(Tenant("default", project), tool(1, attributes=attributes))], [])
    run = api.get("/api/v1/runs", params={"project_id": project}).json()["runs"][0]
    assert run["original_run_id"] in (None, identity)
    assert run["run_id"] == identity or (run["run_id"].startswith("run_") and run["original_run_id"] == identity)
    artifacts = read_everything(api, project, run["run_id"])["/artifacts"]["artifacts"]
    assert [artifact["summary"] for artifact in artifacts] == ["kept"]


def test_equal_ids_in_two_projects_and_two_traces_never_meet(stores: Stores, api: TestClient) -> None:
    other = "0" * 31 + "1"
    for project in ("one", "two"):
        for trace in (TRACE, other):
            span = tool(
                7, attributes={"gen_ai.tool.call.result": f"{project} {trace[:4]}", "blackboard.run.id": "run_same"}
            )
            span.trace_id = trace
            stores.exporter.flush([(Tenant("default", project), span)], [])
    for project in ("one", "two"):
        found = read_everything(api, project, "run_same")["/artifacts"]["artifacts"]
        assert sorted(artifact["summary"] for artifact in found) == [f"{project} 0000", f"{project} 9f82"]


LOGS: dict[str, LogRecord] = {
    "no ids": LogRecord(body="text"),
    "no times": LogRecord(TRACE, f"{1:016x}", 0, 0, event_name="gen_ai.choice", body={"message": None}),
    "body of any kind": LogRecord(
        TRACE, f"{1:016x}", START, event_name="gen_ai.choice", body=[1, b"\xff", float("nan")]
    ),
    "not UTF-8": LogRecord(TRACE, f"{1:016x}", START, event_name="gen_ai.user.message", body=InvalidText(b"\xff")),
    "a call with deep arguments": LogRecord(
        TRACE, f"{1:016x}", START, event_name="gen_ai.choice", body={"message": {"content": CALL_WITH_DEEP_ARGUMENTS}}
    ),
    "deep": LogRecord(TRACE, f"{1:016x}", START, event_name="gen_ai.user.message", body=DEEP),
    "its span never comes": LogRecord(TRACE, "f" * 16, START, event_name="gen_ai.choice", body="x"),
    "only a trace": LogRecord(TRACE, "", START, event_name="note", body="x"),
}


@pytest.mark.parametrize("kind", LOGS)
def test_a_bad_log_record_costs_itself_at_most(stores: Stores, api: TestClient, kind: str) -> None:
    tenant = Tenant("default", f"log {kind}")
    stores.exporter.flush([(tenant, model_call(1))], [(tenant, LOGS[kind])])
    stores.exporter.flush([], [(tenant, LOGS[kind])])
    found = read_everything(api, f"log {kind}")
    assert found[""]["span_count"] == 1
    loose = kind in ("only a trace", "its span never comes")
    assert len(found["/timeline"]["logs"]) == loose
    held = api.get(f"/api/v1/runs/run_{TRACE}/spans/{1:016x}", params={"project_id": f"log {kind}"}).json()["logs"]
    assert len(held) == (not loose and kind != "no ids")


def test_what_many_spans_share_is_held_once_and_shown_whole(stores: Stores, api: TestClient) -> None:
    """A large resource or scope attribute is repeated in no row."""
    shared, scope = (
        Resource({"big": "b" * 1_000_000, "service.name": "s"}),
        Scope("scope" * 2000, attributes={"x": "y" * 9000}),
    )
    spans = [tool(n, resource=shared, scope=scope, name="n" * 5000) for n in range(1, 301)]
    stores.exporter.flush([(Tenant("default", "shared"), span) for span in spans], [])
    with stores.reader._clients.client() as client:
        longest = client.query(
            "SELECT max(length(resource)), max(length(instrumentation_scope)), max(length(name)) FROM spans "
            "WHERE project_id = 'shared'"
        ).result_rows[0]
    assert max(longest) < 5000
    detail = api.get(f"/api/v1/runs/run_{TRACE}/spans/{7:016x}", params={"project_id": "shared"}).json()
    assert detail["resource"]["attributes"] == shared.attributes
    assert (detail["scope"]["name"], detail["scope"]["attributes"]) == (scope.name, scope.attributes)
    assert detail["name"] == "n" * 5000
