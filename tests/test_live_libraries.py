"""The newest releases of real libraries against the model stub, into a running service: what they did is what is read.

Each plays the same scene (tests/live) in an environment of its own. The truth is what the stub was asked and what it
billed. A release that changes its spans fails here with the library, its version and the facts that are wrong.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.effort import NIGHTLY
from tests.library_environments import Node, NotHere, Python
from tests.recordings import (
    FINAL,
    Contains,
    Read,
    calls_of,
    loads,
    read_all,
    said_in_answer,
    said_in_prompt,
    said_in_request,
    same_call,
)
from tests.running_service import RunningService, service
from tests.servers.model_apis import Exchange, ModelApis

SCRIPTS = Path(__file__).parent / "live"
OPENTELEMETRY = ("opentelemetry-sdk>=1.38", "opentelemetry-exporter-otlp-proto-http>=1.38")
Tool = tuple[str, Any, Any]
WEATHER: Tool = ("get_weather", {"city": "Paris"}, {"city": "Paris", "temp_c": 22})


@dataclass(frozen=True)
class Library:
    requirements: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    runs: int = 2
    """An agent runs twice: the second time the model refuses. A client's calls are one run, under the application's span."""
    agents: tuple[str, ...] = ("weather_agent",)
    tools: tuple[Tool, ...] = (WEATHER,)
    node: bool = False
    """Packages of npm, a script in JavaScript."""
    refused_prompt: bool = True
    """Whether the wire has the prompt of a call that the model refused."""


def client(*requirements: str, **environment: str) -> Library:
    """A client library: the application runs the tool, nobody tells of it."""
    return Library(requirements, environment, runs=1, agents=(), tools=())


def langchain(*requirements: str, **environment: str) -> Library:
    """The agent of LangChain, whose tool answers with a message."""
    common = ("langchain>=1.5", "langgraph>=1.2", "langchain-openai>=1.7")
    result = Contains(json.dumps(json.dumps(WEATHER[2]))[1:-1])
    return Library((*common, *requirements), environment, tools=((*WEATHER[:2], result),))


LIBRARIES = {
    "openai_under_opentelemetry": client(
        "openai>=2", "opentelemetry-instrumentation-genai-openai>=1.3b0",
        OTEL_SEMCONV_STABILITY_OPT_IN="gen_ai_latest_experimental",
        OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT="SPAN_ONLY",
    ),
    "openai_under_openinference": client("openai>=2", "openinference-instrumentation-openai>=0.1.60"),
    "openai_under_traceloop": client("openai>=2", "opentelemetry-instrumentation-openai>=0.62"),
    "openai_under_logfire": client("openai>=2", "logfire>=5"),
    "openai_under_langfuse": client("openai>=2", "langfuse>=5"),
    "anthropic_native": client("anthropic>=2", ANTHROPIC_OPEN_TELEMETRY_TRACES_CONTENT_MODE="content"),
    "litellm_otel": client(
        "litellm>=1.100", LITELLM_LOCAL_MODEL_COST_MAP="True",
        USE_OTEL_LITELLM_REQUEST_SPAN="true",  # else all calls under one span are written onto that one
    ),
    "langgraph_under_openinference": langchain("openinference-instrumentation-langchain>=0.1.80"),
    "langgraph_under_langsmith": langchain(
        "langsmith[otel]>=0.14",
        LANGSMITH_TRACING="true", LANGSMITH_OTEL_ENABLED="true", LANGSMITH_OTEL_ONLY="true",
        LANGSMITH_API_KEY="of-nobody", LANGSMITH_ENDPOINT="http://127.0.0.1:9",
    ),
    "pydantic_ai_agent": Library(("pydantic-ai-slim[openai]>=2.60",), refused_prompt=False),
    "strands_agent": Library(
        ("strands-agents[openai,otel]>=1.60",), tools=((*WEATHER[:2], [{"json": WEATHER[2]}]),)
    ),
    "openai_agents_under_openinference": Library(
        ("openai-agents>=0.24", "openinference-instrumentation-openai-agents>=2.6"), refused_prompt=False
    ),
    "smolagents_under_openinference": Library(
        ("smolagents[openai]>=1.26", "openinference-instrumentation-smolagents>=0.1.43"),
        tools=(WEATHER, ("final_answer", {"answer": FINAL}, FINAL)),
    ),
    "google_adk_agent": Library(
        ("google-adk>=2.13",),
        {
            "OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental",
            "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY",
        },
    ),
    "haystack_agent": Library(
        ("haystack-ai>=3.4", "opentelemetry-haystack>=2"),
        {"HAYSTACK_TELEMETRY_ENABLED": "False", "HAYSTACK_CONTENT_TRACING_ENABLED": "true"},
        agents=(),  # Haystack's have no names
    ),
    "agent_framework_agent": Library(("agent-framework-core>=1.23", "agent-framework-openai>=1.17")),
    "fastmcp_server": Library(("fastmcp>=4",), runs=1, agents=(), tools=(("get_weather", None, None),)),
    # npm takes the newest that run on the Node.js here.
    "ai_sdk": Library(
        (
            "ai", "@ai-sdk/openai", "zod", "@opentelemetry/api", "@opentelemetry/resources",
            "@opentelemetry/sdk-trace-node", "@opentelemetry/exporter-trace-otlp-proto",
        ),
        node=True,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Played:
    library: Library
    versions: str
    exchanges: list[Exchange]
    exit: int
    errors: str


def play(name: str, running: RunningService) -> Played:
    """Makes the environment and runs the script in it, its project being the script's name. Raises NotHere."""
    library = LIBRARIES[name]
    made = Node(name, library.requirements) if library.node else (Python(name, (*library.requirements, *OPENTELEMETRY)))
    with ModelApis() as apis:
        quiet = {key: value for key, value in os.environ.items() if not key.startswith(("OTEL_", "PYTHON"))}
        nowhere = {"DO_NOT_TRACK": "true", "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
        nowhere |= dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9")
        told = {
            "MODEL_URL": apis.url.removesuffix("/v1"),
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{running.http}/v1/traces",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_RESOURCE_ATTRIBUTES": f"blackboard.project.id={name},service.name={name}",
            "GOOGLE_API_KEY": "of-nobody",
            "GOOGLE_GEMINI_BASE_URL": apis.url.removesuffix("/v1"),
        }
        ran = subprocess.run(
            made.command(SCRIPTS / name), env=quiet | nowhere | told | dict(library.environment), timeout=120,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        return Played(library, made.versions(library.requirements), apis.exchanges, ran.returncode, ran.stderr)


@dataclass(frozen=True)
class Scene:
    running: RunningService
    plays: dict[str, Future[Played]]


@pytest.fixture(scope="module")
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """All that are asked for begin at once: two wait for the network while two compute."""
    names = [
        item.callspec.params["name"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.module is request.module and hasattr(item, "callspec")
    ]
    with service(tmp_path_factory.mktemp("live")) as running, ThreadPoolExecutor(4) as pool:
        yield Scene(running, {name: pool.submit(play, name, running) for name in names})


IN_EVERY_RUN = tuple(LIBRARIES)[::2]
"""Half of them: their downloads and runs take a minute or two on a new machine. `make nightly` drives all."""


@pytest.mark.parametrize("name", LIBRARIES if NIGHTLY else IN_EVERY_RUN)
def test_newest_release_is_read_right(scene: Scene, name: str, record_property: Callable[[str, object], None]) -> None:
    try:
        played = scene.plays[name].result()
    except NotHere as missing:
        pytest.skip(f"not on this machine: {name}: {missing}")
    record_property("library", played.versions)
    assert played.exit == 0, f"{played.versions}: the script failed:\n{played.errors}"
    wrong = [
        f"- {fact}: read {found!r}, true {true!r}"
        for fact, found, true in facts(scene.running, name, played)
        if found != true
    ]
    if wrong:
        pytest.fail("\n".join([f"{played.versions} is not read right:", *wrong]), pytrace=False)


def facts(running: RunningService, project: str, played: Played) -> Iterator[tuple[str, Any, Any]]:
    """(What, as the service says it, as it was.)"""
    library, exchanges = played.library, played.exchanges
    found = read_all(partial(running.get, project=project))
    yield "runs", len(found.runs), library.runs
    calls = calls_of(found)
    yield (
        "model calls",
        [call["status"] for call in calls],
        ["succeeded" if each.usage else "failed" for each in exchanges],
    )
    prompts = {(prompt["trace_id"], prompt["span_id"]): prompt for prompt in found.prompts}
    for place, (call, exchange) in enumerate(zip(calls, exchanges, strict=False)):
        where = f"of model call {place + 1}"
        if exchange.usage is not None:
            yield f"model {where}", str(call["model"]).startswith(exchange.model), True
            usage = [span["usage"] for span in same_call(found, call) if span["billed"]]
            yield f"tokens {where}", [(u["input_tokens"], u["output_tokens"]) for u in usage], [exchange.usage]
        elif not library.refused_prompt:
            continue
        prompt = prompts.get((call["trace_id"], call["span_id"]))
        if prompt is None:
            yield f"prompt {where}", None, "there"
            continue
        held = body(running, project, found, prompt["artifact_id"])
        said = said_in_request({"body": exchange.body})
        yield f"prompt {where}", said_in_prompt(json.loads(held)) if held else None, said
        if exchange.usage is not None:
            output = body(running, project, found, prompt["output_artifact_id"])
            yield f"answer {where}", said_in_answer(output)[-1:] if output else None, [exchange.said]
    tools = sorted(
        (artifact for artifact in found.artifacts if artifact["kind"] == "tool_result"),
        key=lambda tool: (tool["created_at"], tool["span_id"]),
    )
    yield (
        "tools",
        [
            (
                tool["metadata"]["tool_name"],
                tool["metadata"]["arguments"],
                loads(body(running, project, found, tool["artifact_id"])),
            )
            for tool in tools
        ],
        list(library.tools),
    )
    yield "failed tools", [tool["metadata"].get("error") for tool in tools if tool["status"] == "failed"], []
    spans = [span for timeline in found.timelines for span in timeline["spans"]]
    yield "agents", sorted({span["agent_id"] for span in spans if span["agent_id"]}), sorted(library.agents)
    outputs = [artifact["summary"] for artifact in found.artifacts if artifact["kind"] == "agent_output"]
    if exchanges:
        yield "the final answer as agent_output", any(FINAL in text for text in outputs), True


def body(running: RunningService, project: str, found: Read, artifact_id: str | None) -> Any:
    artifact = next((a for a in found.artifacts if a["artifact_id"] == artifact_id), None)
    if artifact is None:
        return None
    run = next(run for run in found.runs if artifact["trace_id"] in run["trace_ids"])
    return running.get(f"/runs/{run['run_id']}/artifacts/{artifact_id}", project)["body"]
