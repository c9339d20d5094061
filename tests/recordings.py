"""Recordings of real agents (../shared/captures): sending them, reading what became of them, and what was really said.

`python -m tests.recordings [name …]` prints a table: what the service found of each recording beside the truth.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import httpx
from starlette.testclient import TestClient

from otel_blackboard.collector.group_commit import GroupCommit
from otel_blackboard.collector.http import make_http_door
from otel_blackboard.config import Settings
from otel_blackboard.processor.messages import read_messages, shown
from otel_blackboard.query.api import make_api
from otel_blackboard.service import Stores, open_stores

SHARED = Path(os.environ.get("BLACKBOARD_SHARED") or Path(__file__).parents[2] / "shared")
CAPTURES = SHARED / "captures"
NAMES = sorted(path.name for path in CAPTURES.iterdir() if path.is_dir()) if CAPTURES.is_dir() else []

FINAL = "It is 22C and sunny in Paris."
"""What the model stub answers in the end."""


@dataclass(frozen=True)
class Expected:
    """What must come out of a recording where it is less than, or not in, its truth.json: each with the reason."""

    calls: dict[int, str] = field(default_factory=dict)
    """Model calls (by their place in truth.json) of which the wire has no span or log record."""
    prompts: dict[int, str] = field(default_factory=dict)
    """Calls whose prompt is missing or cut on the wire."""
    outputs: dict[int, str] = field(default_factory=dict)
    """Calls whose answer is missing on the wire."""
    says: dict[int, tuple[str, Any]] = field(default_factory=dict)
    """Answers that are not by the stub's rule: the last atom of each."""
    tokens: dict[int, tuple[int | None, int | None, str]] = field(default_factory=dict)
    """Calls that report other figures: (input, output, why)."""
    beside: dict[str, tuple[int, int, str]] = field(default_factory=dict)
    """Models whose calls the wire tells of though the stub never got them: (input, output in all, why)."""
    aggregate: tuple[int, int, str] | None = None
    """Usage that only a container reports: (input, output, why)."""
    tools: list[tuple[str, Any, Any]] = field(default_factory=list)
    """Every tool invocation once, by start: (name, arguments, result). A failed one has `Failed(text in its error)`."""
    answer: str | None = FINAL
    """What the last agent_output of a pass or model call says; None = the wire does not carry it."""
    told: list[tuple[str, int, int]] = field(default_factory=list)
    """(model, input, output) of the calls by start, where the recorded program called no model and only told of calls."""
    runs: int | None = None
    """How many runs the recording is; None = not pinned."""


class Failed(str):
    """The result of a tool invocation that failed: a text that its error contains."""


class Contains(str):
    """Equal to any value that has this somewhere in its JSON text: for results that are long or have ids of their own."""

    def __eq__(self, other: object) -> bool:
        return str(self) in json.dumps(other, ensure_ascii=False)

    __hash__ = str.__hash__


PARIS = ("get_weather", {"city": "Paris"}, {"city": "Paris", "temp_c": 22})
"""The tool invocation of nearly every recording."""


def whole(count: int, why: str) -> dict[int, str]:
    """The same reason for calls 0 … count - 1."""
    return dict.fromkeys(range(count), why)


# ------------------------------------------------------------------------------------------------------------- harness


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


def requests_in(name: str, order: Order) -> Iterator[tuple[str, dict[str, str], bytes]]:
    """(signal, headers, body) of the requests of a recording, the bodies as they came."""
    for path in order([path for path in sorted((CAPTURES / name / "raw").iterdir()) if "metrics" not in path.name]):
        kind = "application/x-protobuf" if path.suffix == ".pb" else "application/json"
        headers = {"content-type": kind, "content-encoding": "gzip"}
        yield "traces" if "traces" in path.name else "logs", headers, gzip.compress(path.read_bytes())


def check_accepted(answer: httpx.Response) -> None:
    assert answer.status_code == 200, answer.text
    if answer.headers["content-type"] == "application/json":
        assert answer.json() == {}, answer.text


def send(stores: Stores, project: str, name: str, order: Order) -> None:
    """Posts a recording to the OTLP/HTTP door."""
    settings = stores.settings.model_copy(update={"project": project})
    intake = GroupCommit(stores.exporter, settings)
    door = make_http_door(intake, None, settings)

    async def post() -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=door), base_url="http://door") as client:
            for signal, headers, content in requests_in(name, order):
                check_accepted(await client.post(f"/v1/{signal}", content=content, headers=headers))

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
    return read_all(partial(ask, stores, project))


def read_all(ask: Callable[..., Any]) -> Read:
    """`ask`: a path and a query → what the API answers about one project."""
    runs = ask("/runs", limit=1000)["runs"][::-1]
    result = Read(runs, [], [], [], [], [])
    for run in runs:
        base = f"/runs/{run['run_id']}"
        result.timelines.append(ask(base + "/timeline", limit=1000))
        result.artifacts += ask(base + "/artifacts", earlier=True)["artifacts"]
        result.prompts += ask(base + "/prompts")["prompts"]
        result.paths.append(ask(base + "/paths"))
        result.ledgers.append(ask(base + "/ledger"))
    return result


def body(stores: Stores, project: str, artifact: Any) -> Any:
    run = next(
        run for run in ask(stores, project, "/runs", limit=1000)["runs"] if artifact["trace_id"] in run["trace_ids"]
    )
    return ask(stores, project, f"/runs/{run['run_id']}/artifacts/{artifact['artifact_id']}")["body"]


# ------------------------------------------------------------------------------------------------ what was really said

Atom = tuple[str, Any]


def loads(value: Any) -> Any:
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
        if said == "thinking":
            return []
        if said == "tool" and ("tool_call_id" in content or "id" in content):
            return [("result", _result(content.get("content")))]
        inner = content.get("parts", content.get("content"))
        calls = [atom for call in content.get("tool_calls") or [] for atom in atoms("assistant", call)]
        return atoms(said, inner) + calls
    if "function" in content:
        return [("call", (content["function"]["name"], loads(content["function"]["arguments"])))]
    if kind in ("tool_call", "function_call", "tool_use"):
        return [("call", (content["name"], loads(content.get("arguments", content.get("input")))))]
    if call := content.get("functionCall", content.get("function_call")):
        return [("call", (call["name"], call["args"]))]
    if answer := content.get("functionResponse", content.get("function_response")):
        return [("result", answer["response"])]
    if "toolUse" in content:
        return [("call", (content["toolUse"]["name"], content["toolUse"]["input"]))]
    if kind is None and {"name", "arguments"} <= content.keys():  # flattened: nothing says that it is a function
        return [("call", (content["name"], loads(content["arguments"])))]
    if kind in ("tool_call_response", "function_call_output", "tool_result"):
        return [("result", _result(next(content[key] for key in ("response", "output", "content") if key in content)))]
    if kind == "blob":
        return [("media", content["content"])]
    if kind == "uri":
        return [("media", re.sub("^data:[^,]*,", "", content["uri"]))]
    if kind == "input_image":
        return [("media", re.sub("^data:[^,]*,", "", content["image_url"]))]
    return atoms(role, content.get("text", content.get("content")))


def _result(value: Any) -> Any:
    """What a tool returned: as it is, as JSON text, or as text parts."""
    value = loads(value)
    if isinstance(value, list) and value and all(isinstance(part, dict) and "text" in part for part in value):
        return loads("".join(part["text"] for part in value))
    return value


def said_in_request(request: Any) -> list[Atom]:
    data = request["body"]
    system = data.get("instructions") or data.get("system") or (data.get("systemInstruction") or {}).get("parts")
    if "systemInstruction" in data and isinstance(data["systemInstruction"], dict):
        system = [part["text"] for part in data["systemInstruction"]["parts"]]
    messages = data.get("messages") or data.get("contents") or data.get("input") or []
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    return _settled(atoms("system", system) + atoms("user", messages))


def said_in_answer(answer: str) -> list[Atom]:
    """An answer stands as it was sent, in the shape of its dialect (tests/dialects/test_messages.py)."""
    return atoms("assistant", [shown(message) for message in read_messages(answer, "assistant")])


def said_in_prompt(prompt: Any) -> list[Atom]:
    return _settled(atoms("system", prompt.get("system")) + atoms("user", prompt["messages"]))


def _settled(said: list[Atom]) -> list[Atom]:
    """Who tells instructions beside the messages does not say before or after which system messages they were sent."""
    first = next((n for n, (role, _) in enumerate(said) if role != "system"), len(said))
    return sorted(said[:first]) + said[first:]


def expected_answer(request: Any) -> Atom:
    """The stub's rule: with tools offered and no result yet, it asks for the first of them, else it answers."""
    data = request["body"]
    heard = said_in_request(request)
    since = max((n for n, atom in enumerate(heard) if atom[0] == "user"), default=-1)
    seen = any(kind == "result" for kind, _ in heard[since + 1 :])
    if seen or not data.get("tools"):
        return ("assistant", FINAL)
    tool = data["tools"][0]
    tool = tool.get("function", tool.get("functionDeclarations", [tool]))
    return ("call", ((tool[0] if isinstance(tool, list) else tool)["name"], {"city": "Paris"}))


# -------------------------------------------------------------------------------------------------------------- reading


def truth_of(name: str) -> list[Any]:
    path = CAPTURES / name / "truth.json"
    calls: list[Any] = json.loads(path.read_text())["calls"] if path.exists() else []
    return calls


def requests_of(name: str) -> list[Any]:
    path = CAPTURES / name / "stub_requests.json"
    requests = json.loads(path.read_text()) if path.exists() else []
    return [request for request in requests if "count_tokens" not in request["path"]]


def calls_of(found: Read) -> list[Any]:
    """The model calls, each once, by start."""
    calls = [
        span
        for timeline in found.timelines
        for span in timeline["spans"]
        if span["role"] == "provider_call" and span["call_span_id"] == span["span_id"]
    ]
    return sorted(calls, key=lambda span: (span["start_time"], span["span_id"]))


def same_call(found: Read, call: Any) -> list[Any]:
    """All records of a call."""
    return [
        span
        for timeline in found.timelines
        for span in timeline["spans"]
        if span["trace_id"] == call["trace_id"] and span["call_span_id"] == call["span_id"]
    ]


def tools_of(stores: Stores, project: str, found: Read) -> list[tuple[str, Any, Any]]:
    """Every tool invocation: (name, arguments, result or what failed), by start."""
    tools = [artifact for artifact in found.artifacts if artifact["kind"] == "tool_result"]
    return [
        (
            tool["metadata"]["tool_name"],
            tool["metadata"]["arguments"],
            Failed(tool["metadata"].get("error", ""))
            if tool["status"] == "failed"
            else loads(body(stores, project, tool)),
        )
        for tool in sorted(tools, key=lambda tool: (tool["created_at"], tool["span_id"]))
    ]


def request_of(requests: list[Any], truth: list[Any], place: int) -> Any:
    """Client libraries send a rejected request again: truth counts it once."""
    if len(requests) == len(truth):
        return requests[place]
    plain = [request for request in requests if request["body"].get("model") != "error-model"]
    if truth[place]["failed"]:
        return next(request for request in requests if request["body"].get("model") == "error-model")
    return plain[sum(not call["failed"] for call in truth[:place])]


def summary_of(stores: Stores, name: str) -> dict[str, str]:
    """One row of the table: what was found beside the truth."""
    project = f"summary-{name}"
    send(stores, project, name, ORDERS["as recorded"])
    found, truth, requests = read(stores, project), truth_of(name), requests_of(name)
    calls = calls_of(found)
    billed = [sum(run["usage"][key] or 0 for run in found.runs) for key in ("input_tokens", "output_tokens")]
    true = [sum(call[key] or 0 for call in truth) for key in ("input_tokens", "output_tokens")]
    failed = sum(call["status"] == "failed" for call in calls)
    failed_truly = sum(call["failed"] for call in truth)
    wanted = [said_in_request(request) for request in requests]
    prompts = [body(stores, project, prompt) for prompt in found.prompts]
    right = sum(said_in_prompt(json.loads(prompt)) in wanted for prompt in prompts if prompt)
    outputs = [artifact["summary"] for artifact in found.artifacts if artifact["kind"] == "agent_output"]
    return {
        "recording": name,
        "runs": str(len(found.runs)),
        "calls": f"{len(calls) - failed} / {len(truth) - failed_truly}",
        "failed": f"{failed} / {failed_truly}",
        "input": f"{billed[0]} / {true[0]}",
        "output": f"{billed[1]} / {true[1]}",
        "coverage": " ".join(sorted({str(run["usage_coverage"]) for run in found.runs})),
        "prompts": f"{right} of {sum(prompt is not None for prompt in prompts)} / {len(truth)}",
        "answer": "yes" if any(FINAL in text for text in outputs) else "no",
        "tools": "; ".join(
            f"{tool}({compact(arguments)}) → {'failed: ' + result[:40] if isinstance(result, Failed) else compact(result)}"
            for tool, arguments, result in tools_of(stores, project, found)
        ),
    }


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))[:80]


def main(wanted: list[str]) -> None:
    names = [name for name in NAMES if not wanted or any(each in name for each in wanted)]
    with (
        tempfile.TemporaryDirectory(prefix="recordings-") as folder,
        open_stores(Settings(data=Path(folder), database="recordings")) as stores,
    ):
        rows = [summary_of(stores, name) for name in names]
    print("found / true. prompts: those that say what was sent, of those that were found / model calls\n")
    widths = {key: max(len(key), *(len(row[key]) for row in rows)) for key in rows[0]} if rows else {}
    for row in [{key: key for key in widths}, *rows]:
        print("  ".join(row[key].ljust(widths[key]) for key in widths).rstrip())


if __name__ == "__main__":
    main(sys.argv[1:])
