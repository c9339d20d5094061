"""Recordings of real agents (../shared/captures) go in through the real doors and come out right.

Right = `truth.json` and `stub_requests.json` of the recording, minus what its wire does not carry: the list WIRE_LACKS.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from otel_blackboard.collector.group_commit import GroupCommit
from otel_blackboard.collector.http import make_http_door
from otel_blackboard.config import Settings
from otel_blackboard.query.api import make_api
from otel_blackboard.service import Stores, open_stores

SHARED = Path(os.environ.get("BLACKBOARD_SHARED") or Path(__file__).parents[2] / "shared")
CAPTURES = SHARED / "captures"
NAMES = sorted(path.name for path in CAPTURES.iterdir() if path.is_dir()) if CAPTURES.is_dir() else []
pytestmark = pytest.mark.skipif(not NAMES, reason=f"not on this machine: no recordings in {CAPTURES}")

FINAL = "It is 22C and sunny in Paris."


@dataclass(frozen=True)
class Lacks:
    """What a recording's wire does not carry, and why."""

    calls: dict[int, str] = field(default_factory=dict)
    """Model calls (by their place in truth.json) of which there is no span."""
    prompts: dict[int, str] = field(default_factory=dict)
    """Calls whose prompt is missing or cut."""
    outputs: dict[int, str] = field(default_factory=dict)
    tokens: dict[int, tuple[int | None, int | None, str]] = field(default_factory=dict)
    """Calls whose span reports other figures: (input, output, why)."""


def _all(count: int, why: str) -> dict[int, str]:
    return dict.fromkeys(range(count), why)


_EMBEDDING = "the instrumentation records no embedding input"
_RESPONSES = "openai-v2 does not see the Responses API"
_NO_LLM = "this instrumentation emits no model call spans; it expects genai-openai beside it"

WIRE_LACKS: dict[str, Lacks] = {
    "genai-openai-1.3b0": Lacks(prompts={5: _EMBEDDING}),
    "genai-openai-1.3b0-default-no-content": Lacks(
        prompts=_all(7, "content capture is off"), outputs=_all(7, "content capture is off")
    ),
    "genai-openai-1.3b0-upload-hook": Lacks(
        prompts=_all(7, "content is elsewhere, by pointer"), outputs=_all(7, "content is elsewhere, by pointer")
    ),
    "genai-anthropic-1.3b0": Lacks(),
    "openai-v2-2.1b0-legacy-events": Lacks(
        calls={3: _RESPONSES, 4: _RESPONSES, 5: "2.1b0 records no embeddings"},
    ),
    "openai-v2-2.4b0-default": Lacks(calls={3: _RESPONSES, 4: _RESPONSES}, prompts={5: _EMBEDDING}),
    "limits-value-1000-genai": Lacks(prompts={0: "the SDK cut the value at 1,000 characters"}),
    "google-genai-otel-1.3b0": Lacks(
        calls={0: "automatic function calling: one span covers both requests and reports the last one"},
        prompts={1: "the span has the first request's messages"},
        tokens=dict.fromkeys((1, 2), (120, 25, "Gemini's 18 candidate and 7 thinking tokens, one sum")),
    ),
    "agent-framework-1.23": Lacks(),
    "openai-agents-genai": Lacks(calls=_all(5, _NO_LLM)),
    "llamaindex-genai": Lacks(calls=_all(5, _NO_LLM)),
}

EXECUTED_TOOLS: dict[str, list[tuple[str, Any, Any]]] = {
    "google-genai-otel-1.3b0": [("get_weather", {"city": "Paris"}, {"city": "Paris", "temp_c": 22})],
    "agent-framework-1.23": [("get_weather", {"city": "Paris"}, {"city": "Paris", "temp_c": 22})] * 3,
    "openai-agents-genai": [("get_weather", {"city": "Paris"}, {"city": "Paris", "temp_c": 22})] * 2,
    "llamaindex-genai": [
        ("get_weather", {"city": "Paris"}, {"city": "Paris", "temp_c": 22}),
        # util-genai gives id and score of a document, no text.
        ("retrieval", {"query": "weather in Paris?"}, [{"id": "8d05e4e9-42a2-4c78-8b43-b3f96e814338", "score": 1.0}]),
    ],
}


# ------------------------------------------------------------------------------------------------------------- harness


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    settings = Settings(data=tmp_path_factory.mktemp("recordings"), database="recordings")
    with open_stores(settings) as opened:
        yield opened


@dataclass
class Read:
    """Everything the API answers about one project."""

    runs: list[Any]
    timelines: list[Any]
    artifacts: list[Any]
    prompts: list[Any]
    paths: list[Any]
    ledgers: list[Any]


Order = Callable[[list[Path]], list[Path]]
ORDERS: dict[str, Order] = {
    "as recorded": lambda files: files,
    "logs first": lambda files: [f for f in files if "logs" in f.name] + [f for f in files if "traces" in f.name],
    "traces first": lambda files: [f for f in files if "traces" in f.name] + [f for f in files if "logs" in f.name],
    "twice": lambda files: [*files, *files],
    "backwards, twice": lambda files: [*reversed(files), *reversed(files)],
}


def send(stores: Stores, project: str, name: str, order: Order) -> None:
    """Posts the request bodies of a recording, as they came, to the OTLP/HTTP door."""
    settings = stores.settings.model_copy(update={"project": project})
    intake = GroupCommit(stores.exporter, settings)
    door = make_http_door(intake, None, settings)
    files = order([path for path in sorted((CAPTURES / name / "raw").iterdir()) if "metrics" not in path.name])

    async def post() -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=door), base_url="http://door") as client:
            for path in files:
                signal = "traces" if "traces" in path.name else "logs"
                kind = "application/x-protobuf" if path.suffix == ".pb" else "application/json"
                headers = {"content-type": kind, "content-encoding": "gzip"}
                answer = await client.post(f"/v1/{signal}", content=gzip.compress(path.read_bytes()), headers=headers)
                assert answer.status_code == 200, answer.text
                if path.suffix == ".json":
                    assert answer.json() == {}, answer.text

    asyncio.run(post())
    assert intake.close()


@cache
def api_of(stores: Stores) -> TestClient:
    return TestClient(make_api(stores.reader, stores.settings, None, lambda: "", lambda: 1_900_000_000 * 10**9))


def ask(stores: Stores, project: str, path: str, **query: Any) -> Any:
    answer = api_of(stores).get(f"/api/v1{path}", params={"project_id": project, **query})
    assert answer.status_code == 200, answer.text
    return answer.json()


def read(stores: Stores, project: str) -> Read:
    runs = ask(stores, project, "/runs", limit=1000)["runs"][::-1]
    result = Read(runs, [], [], [], [], [])
    for run in runs:
        base = f"/runs/{run['run_id']}"
        result.timelines.append(ask(stores, project, base + "/timeline", limit=1000))
        result.artifacts += ask(stores, project, base + "/artifacts", earlier=True)["artifacts"]
        result.prompts += ask(stores, project, base + "/prompts")["prompts"]
        result.paths.append(ask(stores, project, base + "/paths"))
        result.ledgers.append(ask(stores, project, base + "/ledger"))
    return result


def body(stores: Stores, project: str, artifact: Any) -> Any:
    run = next(
        run for run in ask(stores, project, "/runs", limit=1000)["runs"] if artifact["trace_id"] in run["trace_ids"]
    )
    return ask(stores, project, f"/runs/{run['run_id']}/artifacts/{artifact['artifact_id']}")["body"]


# ------------------------------------------------------------------------------------------------ what was really said

Atom = tuple[str, Any]


def _loads(value: Any) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


def atoms(role: str, content: Any) -> list[Atom]:
    """A message of any provider, or of the conventions, as what it says: texts, calls, results, media."""
    if content is None:
        return []
    if isinstance(content, str):
        return [(role, content)] if content else []
    if isinstance(content, list):
        return [atom for part in content for atom in atoms(role, part)]
    kind = content.get("type")
    if kind in ("reasoning", "thinking"):
        return []
    if "role" in content and kind in (None, "message"):
        said = {"model": "assistant", "developer": "system"}.get(content["role"], content["role"])
        if said == "tool" and ("tool_call_id" in content or "id" in content):
            return [("result", _loads(content.get("content")))]
        inner = content.get("parts", content.get("content"))
        calls = [atom for call in content.get("tool_calls") or [] for atom in atoms("assistant", call)]
        return atoms(said, inner) + calls
    if "function" in content:
        return [("call", (content["function"]["name"], _loads(content["function"]["arguments"])))]
    if kind in ("tool_call", "function_call", "tool_use"):
        return [("call", (content["name"], _loads(content.get("arguments", content.get("input")))))]
    if "functionCall" in content:
        return [("call", (content["functionCall"]["name"], content["functionCall"]["args"]))]
    if "functionResponse" in content:
        return [("result", content["functionResponse"]["response"])]
    if kind in ("tool_call_response", "function_call_output", "tool_result"):
        result = next(content[key] for key in ("response", "output", "content") if key in content)
        if isinstance(result, list):
            result = "".join(part["text"] for part in result)
        return [("result", _loads(result))]
    if kind == "blob":
        return [("media", content["content"])]
    if kind == "input_image":
        return [("media", re.sub("^data:[^,]*,", "", content["image_url"]))]
    return atoms(role, content.get("text", content.get("content")))


def said_in_request(request: Any) -> list[Atom]:
    data = request["body"]
    system = data.get("instructions") or data.get("system") or (data.get("systemInstruction") or {}).get("parts")
    if "systemInstruction" in data and isinstance(data["systemInstruction"], dict):
        system = [part["text"] for part in data["systemInstruction"]["parts"]]
    messages = data.get("messages") or data.get("contents") or data.get("input") or []
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    return atoms("system", system) + atoms("user", messages)


def said_in_prompt(prompt: Any) -> list[Atom]:
    return atoms("system", prompt.get("system")) + atoms("user", prompt["messages"])


def expected_answer(request: Any) -> Atom:
    """The stub's rule: with tools offered and no result yet, it asks for get_weather, else it answers."""
    data = request["body"]
    heard = said_in_request(request)
    since = max((n for n, atom in enumerate(heard) if atom[0] == "user"), default=-1)
    seen = any(kind == "result" for kind, _ in heard[since + 1 :])
    return ("assistant", FINAL) if seen or not data.get("tools") else ("call", ("get_weather", {"city": "Paris"}))


# ------------------------------------------------------------------------------------------------------------ promises


@pytest.mark.parametrize("name", [name for name in NAMES if name in WIRE_LACKS])
def test_model_calls_of_otel_recordings_are_right(stores: Stores, name: str) -> None:
    project = f"right-{name}"
    send(stores, project, name, ORDERS["as recorded"])
    found = read(stores, project)
    lacks = WIRE_LACKS[name]
    truth = json.loads((CAPTURES / name / "truth.json").read_text())["calls"]
    requests = [
        request
        for request in json.loads((CAPTURES / name / "stub_requests.json").read_text())
        if "count_tokens" not in request["path"]
    ]
    calls = [
        span
        for timeline in found.timelines
        for span in timeline["spans"]
        if span["role"] == "provider_call" and span["call_span_id"] == span["span_id"]
    ]
    expected = [n for n in range(len(truth)) if n not in lacks.calls]
    assert len(calls) == len(expected)
    prompts = {(prompt["trace_id"], prompt["span_id"]): prompt for prompt in found.prompts}
    billed = [(0, 0)] * 0
    for call, place in zip(sorted(calls, key=lambda span: span["start_time"]), expected, strict=True):
        true, request = truth[place], _request_of(requests, truth, place)
        where = f"{name}, call {place}"
        assert (call["status"] == "failed") == true["failed"], where
        if true["failed"]:
            assert "rate limit" in call["error"] or "RateLimit" in call["error"], where
        assert true["model"] in (call["model"], _requested_model(call, true)), where
        reading, writing, _ = lacks.tokens.get(place, (true["input_tokens"], true["output_tokens"], ""))
        if not true["failed"]:
            usage = next(s for s in _same_call(found, call) if s["billed"])["usage"]
            assert (usage["input_tokens"], usage["output_tokens"] or 0) == (reading, writing), where
            billed.append((usage["input_tokens"], usage["output_tokens"] or 0))
        prompt = prompts.get((call["trace_id"], call["span_id"]))
        if true["kind"] == "embedding":
            continue
        assert prompt is not None, where
        if place in lacks.prompts and not prompt["body_bytes"] and prompt["metadata"]["content"] != "captured":
            assert body(stores, project, prompt) is None, where
        elif place in lacks.prompts:
            assert prompt["metadata"]["exact"] is False, where
        else:
            assert prompt["exact"] is False and prompt["metadata"]["mark"] == "reconstructed"
            assert said_in_prompt(json.loads(body(stores, project, prompt))) == said_in_request(request), where
        if not true["failed"] and place not in lacks.outputs:
            answer = expected_answer(request)
            output = next(a for a in found.artifacts if a["artifact_id"] == prompt["output_artifact_id"])
            said = atoms("assistant", _answer(json.loads(body(stores, project, output))))
            assert said[-1] == answer, where
            names = [requested["name"] for requested in prompt["requested_calls"]]
            assert names == (["get_weather"] if answer[0] == "call" else []), where
    assert sum(run["usage"]["input_tokens"] or 0 for run in found.runs) == sum(each[0] for each in billed)
    assert sum(run["usage"]["output_tokens"] or 0 for run in found.runs) == sum(each[1] for each in billed)


def _request_of(requests: list[Any], truth: list[Any], place: int) -> Any:
    """Client libraries send a rejected request again: truth counts it once."""
    if len(requests) == len(truth):
        return requests[place]
    plain = [request for request in requests if request["body"].get("model") != "error-model"]
    if truth[place]["failed"]:
        return next(request for request in requests if request["body"].get("model") == "error-model")
    return plain[sum(not call["failed"] for call in truth[:place])]


def _requested_model(call: Any, true: Any) -> str:
    """The answer's model is the request's, with a date or a mark behind it."""
    return true["model"] if str(call["model"]).startswith(true["model"]) else ""


def _same_call(found: Read, call: Any) -> list[Any]:
    return [
        span
        for timeline in found.timelines
        for span in timeline["spans"]
        if span["trace_id"] == call["trace_id"] and span["call_span_id"] == call["span_id"]
    ]


def _answer(output: Any) -> Any:
    """A choice event, or messages."""
    return output["message"] | {"role": "assistant"} if isinstance(output, dict) and "message" in output else output


@pytest.mark.parametrize("name", [name for name in NAMES if name in EXECUTED_TOOLS])
def test_executed_tools_have_arguments_and_results(stores: Stores, name: str) -> None:
    project = f"tools-{name}"
    send(stores, project, name, ORDERS["as recorded"])
    tools = [artifact for artifact in read(stores, project).artifacts if artifact["kind"] == "tool_result"]
    found = [
        (tool["metadata"]["tool_name"], tool["metadata"]["arguments"], _loads(body(stores, project, tool)))
        for tool in tools
    ]
    assert found == EXECUTED_TOOLS[name]


@pytest.mark.parametrize("name", [name for name in NAMES if name in WIRE_LACKS])
def test_every_order_of_the_same_requests_reads_the_same(stores: Stores, name: str) -> None:
    answers = {}
    for order, arrange in ORDERS.items():
        project = f"{order}-{name}"
        send(stores, project, name, arrange)
        text = json.dumps(read(stores, project).__dict__, sort_keys=True)
        # The project stands in rows and in the hash that makes ids: take both out.
        answers[order] = re.sub(r"art_[0-9a-f]{32}", "art", text.replace(project, "project"))
    assert len(set(answers.values())) == 1, [order for order in answers if answers[order] != answers["as recorded"]]


@pytest.mark.parametrize("name", NAMES)
def test_every_recording_is_stored_whole_and_crashes_nothing(stores: Stores, name: str) -> None:
    project = f"whole-{name}"
    send(stores, project, name, ORDERS["twice"])
    read(stores, project)
    sent = _sent_spans(name)
    tenant = {"o": "default", "p": project}
    with stores.reader._clients.client() as client:
        query = (
            "SELECT trace_id, span_id FROM spans FINAL WHERE organization_id = {o:String} AND project_id = {p:String}"
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
