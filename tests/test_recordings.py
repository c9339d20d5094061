"""Recordings of real agents (../shared/captures) go in through the real doors and come out right.

Right = `truth.json` and `stub_requests.json` of the recording, minus what its wire does not carry: tests/expected.
`python -m tests.recordings` prints the same facts as a table.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import httpx
import pytest

from otel_blackboard.config import Settings
from otel_blackboard.processor.dialects.log_spans import FROM_LOG
from otel_blackboard.service import Stores, open_stores
from tests.effort import NIGHTLY
from tests.expected import EXPECTED
from tests.recordings import (
    CAPTURES,
    NAMES,
    ORDERS,
    Failed,
    Read,
    api_of,
    ask,
    body,
    calls_of,
    check_accepted,
    expected_answer,
    read,
    read_all,
    request_of,
    requests_in,
    requests_of,
    said_in_answer,
    said_in_prompt,
    said_in_request,
    same_call,
    send,
    tools_of,
    truth_of,
)
from tests.running_service import RunningService, service

pytestmark = pytest.mark.skipif(not NAMES, reason=f"not on this machine: no recordings in {CAPTURES}")


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    settings = Settings(data=tmp_path_factory.mktemp("recordings"), database="recordings")
    with open_stores(settings) as opened:
        yield opened


def _project(order: str, name: str) -> str:
    return f"{order}-{name}"


@cache
def sent_and_read(stores: Stores, name: str, order: str = "as recorded") -> tuple[str, Read]:
    """(project, what the API answers about it)"""
    project = _project(order, name)
    send(stores, project, name, ORDERS[order])
    return project, read(stores, project)


@pytest.mark.parametrize("name", [name for name in NAMES if name in EXPECTED and not EXPECTED[name].told])
def test_model_calls_are_those_of_the_truth(stores: Stores, name: str) -> None:
    project, found = sent_and_read(stores, name)
    expected, truth, requests = EXPECTED[name], truth_of(name), requests_of(name)
    assert expected.runs in (None, len(found.runs))
    calls = [call for call in calls_of(found) if call["model"] not in expected.beside]
    places = [n for n in range(len(truth)) if n not in expected.calls]
    assert len(calls) == len(places), [(call["name"], call["start_time"]) for call in calls]
    prompts = {(prompt["trace_id"], prompt["span_id"]): prompt for prompt in found.prompts}
    billed = [expected.aggregate[:2]] if expected.aggregate else []
    billed += [(reading, writing) for reading, writing, _ in expected.beside.values()]
    for call, place in zip(calls, places, strict=True):
        true, request = truth[place], request_of(requests, truth, place)
        where = f"{name}, call {place}"
        assert (call["status"] == "failed") == true["failed"], where
        if true["failed"]:
            assert "rate limit" in call["error"] or "RateLimit" in call["error"], where
        assert true["model"] in (call["model"], _requested_model(call, true)), where
        reading, writing, _ = expected.tokens.get(place, (true["input_tokens"], true["output_tokens"], ""))
        if not true["failed"] and (reading, writing) == (None, None):
            assert not any(span["billed"] for span in same_call(found, call)), where
        elif not true["failed"]:
            usage = next(span for span in same_call(found, call) if span["billed"])["usage"]
            assert (usage["input_tokens"], usage["output_tokens"] or 0) == (reading, writing), where
            billed.append((usage["input_tokens"], usage["output_tokens"] or 0))
        prompt = prompts.get((call["trace_id"], call["span_id"]))
        if true["kind"] == "embedding":
            continue
        assert prompt is not None, where
        if place in expected.prompts and not prompt["body_bytes"] and prompt["metadata"]["content"] != "captured":
            assert body(stores, project, prompt) is None, where
        elif place in expected.prompts:
            assert prompt["metadata"]["exact"] is False, where
        else:
            assert prompt["exact"] is False and prompt["metadata"]["mark"] == "reconstructed"
            assert said_in_prompt(json.loads(body(stores, project, prompt))) == said_in_request(request), where
        if not true["failed"] and place not in expected.outputs:
            answer = expected.says.get(place) or expected_answer(request)
            names = [requested["name"] for requested in prompt["requested_calls"]]
            assert names == ([answer[1][0]] if answer[0] == "call" else []), where
            output = next(a for a in found.artifacts if a["artifact_id"] == prompt["output_artifact_id"])
            said = said_in_answer(body(stores, project, output))
            assert said[-1] == answer, where
    assert sum(run["usage"]["input_tokens"] or 0 for run in found.runs) == sum(each[0] for each in billed)
    assert sum(run["usage"]["output_tokens"] or 0 for run in found.runs) == sum(each[1] for each in billed)
    if expected.answer is not None:
        outputs = [artifact["summary"] for artifact in found.artifacts if artifact["kind"] == "agent_output"]
        assert any(expected.answer in text for text in outputs)


@pytest.mark.parametrize("name", [name for name in NAMES if name in EXPECTED and EXPECTED[name].told])
def test_model_calls_are_those_that_the_program_told_of(stores: Stores, name: str) -> None:
    (_, found), expected = sent_and_read(stores, name), EXPECTED[name]
    assert len(found.runs) == expected.runs
    billed = [next(span for span in same_call(found, call) if span["billed"]) for call in calls_of(found)]
    usage = [(span["model"], span["usage"]["input_tokens"], span["usage"]["output_tokens"]) for span in billed]
    assert usage == expected.told
    assert sum(run["usage"]["input_tokens"] for run in found.runs) == sum(reading for _, reading, _ in expected.told)
    outputs = [artifact["summary"] for artifact in found.artifacts if artifact["kind"] == "agent_output"]
    assert any(str(expected.answer) in text for text in outputs)


@pytest.mark.parametrize("name", [name for name in NAMES if name in EXPECTED])
def test_one_output_stands_for_each_pass_that_has_any(stores: Stores, name: str) -> None:
    project, found = sent_and_read(stores, name)
    for run in found.runs:
        path, kind = f"/runs/{run['run_id']}/artifacts", "agent_output"
        all_of_them = ask(stores, project, path, kind=kind, earlier=True)["artifacts"]
        standing = [_pass_of(artifact) for artifact in ask(stores, project, path, kind=kind)["artifacts"]]
        assert sorted(standing) == sorted({_pass_of(artifact) for artifact in all_of_them})


def _pass_of(artifact: Any) -> tuple[str, str, int]:
    return artifact["step_id"], artifact["agent_id"], artifact["pass_seq"]


def _requested_model(call: Any, true: Any) -> str:
    """The answer's model is the request's, with a date or a mark behind it."""
    return true["model"] if str(call["model"]).startswith(true["model"]) else ""


@pytest.mark.parametrize("name", [name for name in NAMES if name in EXPECTED])
def test_every_tool_invocation_is_there_once(stores: Stores, name: str) -> None:
    found, expected = tools_of(stores, *sent_and_read(stores, name)), EXPECTED[name].tools
    shown = [
        (tool, arguments, Failed(wanted) if isinstance(wanted, Failed) and wanted in result else result)
        for (tool, arguments, result), (_, _, wanted) in zip(found, expected, strict=False)
    ]
    assert shown + found[len(shown) :] == expected


@pytest.mark.parametrize("name", [name for name in NAMES if name in EXPECTED])
def test_every_order_of_the_same_requests_reads_the_same(stores: Stores, name: str) -> None:
    answers = {}
    for order in ORDERS if NIGHTLY else ("as recorded", "twice", "backwards, twice"):
        project, found = sent_and_read(stores, name, order)
        text = json.dumps(found.__dict__, sort_keys=True)
        # The project stands in rows and in the hash that makes ids: take both out.
        answers[order] = re.sub(r"art_[0-9a-f]{32}", "art", text.replace(project, "project"))
    assert len(set(answers.values())) == 1, [order for order in answers if answers[order] != answers["as recorded"]]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """As its users start it, with a key for each recording's project."""
    folder = tmp_path_factory.mktemp("running")
    keys = [
        {
            "id": name, "sha256": hashlib.sha256(name.encode()).hexdigest(), "role": "admin",
            "organization": "default", "projects": [_project("as recorded", name)],
        }
        for name in NAMES
    ]  # fmt: skip
    (folder / "keys.json").write_text(json.dumps({"keys": keys}))
    with service(folder / "data", environment={"BLACKBOARD_KEYS_FILE": str(folder / "keys.json")}) as started:
        yield started


@pytest.mark.parametrize("name", NAMES)
def test_a_running_service_reads_the_same(stores: Stores, running: RunningService, name: str) -> None:
    project, found = sent_and_read(stores, name)
    with httpx.Client(headers={"authorization": f"Bearer {name}"}, timeout=60) as client:
        for signal, headers, content in requests_in(name, ORDERS["as recorded"]):
            check_accepted(client.post(f"{running.http}/v1/{signal}", content=content, headers=headers))

        def ask(path: str, **query: Any) -> Any:
            answer = client.get(f"{running.api}/api/v1{path}", params={"project_id": project, **query})
            assert answer.status_code == 200, answer.text
            return answer.json()

        assert read_all(ask) == found


@pytest.mark.parametrize("name", NAMES)
def test_every_recording_is_stored_whole_and_crashes_nothing(stores: Stores, name: str) -> None:
    project, _ = sent_and_read(stores, name, "twice")
    sent = _sent_spans(name)
    tenant = {"o": "default", "p": project}
    with stores.reader._clients.client() as client:
        query = (
            "SELECT trace_id, span_id FROM spans FINAL WHERE organization_id = {o:String} AND project_id = {p:String} "
            f"AND position(attributes, '{FROM_LOG}') = 0"  # those are made of log records
        )
        stored = {tuple(row) for row in client.query(query, parameters=tenant).result_rows}
    assert stored == set(sent)
    assert stores.exporter.derivation_failures == 0
    for (trace_id, span_id), span in sorted(sent.items())[:60]:
        run = f"run_{trace_id}"
        detail = (
            ask(stores, project, f"/runs/{run}/spans/{span_id}", trace_id=trace_id)
            if _is_run(stores, project, run)
            else None
        )
        if detail is not None:
            assert detail["name"] == span["name"]
            assert detail["attributes"] == _attributes(span.get("attributes", []))
            assert [event["attributes"] for event in detail["events"]] == [
                _attributes(event.get("attributes", [])) for event in span.get("events", [])
            ]


def _is_run(stores: Stores, project: str, run: str) -> bool:
    return api_of(stores).get(f"/api/v1/runs/{run}", params={"project_id": project}).status_code == 200


def _sent_spans(name: str) -> dict[tuple[str, str], Any]:
    path = CAPTURES / name / "traces.jsonl"
    spans = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        for resource in json.loads(line)["resourceSpans"]:
            for scope in resource["scopeSpans"]:
                for span in scope["spans"]:
                    spans[(span["traceId"], span["spanId"])] = span
    return spans


_NUMBERS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def _value(value: Any) -> Any:
    """An OTLP/JSON value as the API shows it."""
    if not value:
        return None
    kind, held = next(iter(value.items()))
    if kind == "intValue":
        return int(held)
    if kind == "doubleValue":
        return {"$double": "NaN"} if held is None or held == "NaN" else held
    if kind == "arrayValue":
        return [_value(item) for item in held.get("values", [])]
    if kind == "kvlistValue":
        return _attributes(held.get("values", []))
    if kind == "bytesValue":
        return {"$bytes": held}
    return held


def _attributes(pairs: list[Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    repeated: list[Any] = []
    for pair in pairs:
        if pair["key"] in result:
            repeated.append([pair["key"], result.pop(pair["key"])])
        result[pair["key"]] = _value(pair.get("value"))
    return result | ({"$duplicates": repeated} if repeated else {})
