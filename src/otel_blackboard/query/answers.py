"""What the REST routes answer: the shapes, with an example each. The OpenAPI description is made from them."""

from __future__ import annotations

from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field

_TIME = "2026-11-30T12:00:00.123456789Z"
_LATER = "2026-11-30T12:00:04.500000000Z"
_TRACE = "9f8234c2b5d0a1e7f3648b92d5c01a77"
_RUN = "run_4f1c0c6f0a2e4d5b8f7a"
_ART = "art_0d1f9c2b7a6e5d4c3b2a190817161514"


class Answer(BaseModel):
    """Every answer carries an example, so that the description shows what to expect."""

    model_config = ConfigDict(extra="forbid")


def _example(**values: Any) -> ConfigDict:
    return ConfigDict(extra="forbid", json_schema_extra=cast("dict[str, Any]", {"examples": [values]}))


_PROBLEM: dict[str, Any] = {
    "type": "urn:otel-blackboard:problem:not-found",
    "title": "There is no such thing in this project",
    "status": 404,
}


class Problem(BaseModel):
    """RFC 9457."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"examples": [_PROBLEM]})
    type: str
    title: str
    status: int
    detail: str | None = None


_USAGE = {
    "input_tokens": 2400,
    "output_tokens": 310,
    "cached_input_tokens": 1024,
    "cache_write_tokens": None,
    "reasoning_tokens": None,
}


class Usage(Answer):
    """Tokens as the providers counted them. Unknown is null, never 0. Input includes cached, output includes reasoning."""

    model_config = _example(**_USAGE)
    input_tokens: int | None
    output_tokens: int | None
    cached_input_tokens: int | None
    cache_write_tokens: int | None
    reasoning_tokens: int | None


_RUN_EXAMPLE = {
    "run_id": _RUN, "original_run_id": None, "name": "harbour research", "status": "complete", "start_time": _TIME,
    "end_time": _LATER, "duration_ms": 4376, "agents": ["researcher", "writer"],
    "counts": {"flow_run": 1, "provider_call": 9, "step": 5, "tool_invocation": 7}, "span_count": 22, "failed_spans": 3,
    "usage": _USAGE, "cost_usd": "0.000546", "calls_without_cost": 0, "usage_coverage": 1.0,
    "conversation_id": "conv-1", "use_case_id": None, "user_id": None, "trigger": "manual", "trace_ids": [_TRACE],
    "error": None,
}  # fmt: skip


class Run(Answer):
    model_config = _example(**_RUN_EXAMPLE)
    run_id: str
    original_run_id: str | None = Field(description="The id as sent, where it was no valid id")
    name: str
    status: Literal["running", "complete", "failed", "interrupted"]
    start_time: str | None
    end_time: str | None = Field(description="null while a span is open")
    duration_ms: int | None
    agents: list[str]
    counts: dict[str, int] = Field(
        description="Spans by role; the records of one request count once, and so does a run with those inside it"
    )
    span_count: int
    failed_spans: int
    usage: Usage
    cost_usd: str | None = Field(description="US dollars, decimal; null = no call's cost is known")
    calls_without_cost: int = Field(description="Succeeded model calls whose cost is unknown and not in the sum")
    usage_coverage: float | None = Field(description="Share of succeeded model calls whose usage is known")
    conversation_id: str | None
    use_case_id: str | None
    user_id: str | None
    trigger: str
    trace_ids: list[str]
    error: str | None


class Runs(Answer):
    model_config = _example(runs=[_RUN_EXAMPLE], count=1, next_cursor=None, total=None)
    runs: list[Run]
    count: int = Field(description="Runs on this page")
    next_cursor: str | None
    total: int | None = Field(description="All that match; only with total=true")


_SPAN_EXAMPLE = {
    "trace_id": _TRACE, "span_id": "ade7b7c2b5d0a1e7", "parent_span_id": "1111b7c2b5d0a1e7", "role": "provider_call",
    "name": "chat gpt-4o-mini", "start_time": _TIME, "end_time": _LATER, "duration_ms": 4376, "status": "succeeded",
    "step_id": "step_search", "agent_id": "researcher", "pass_seq": 1, "attempt": 1, "call_seq": 1,
    "provider": "openai", "model": "gpt-4o-mini-2024-07-18", "tool_name": None, "usage": _USAGE, "cost_usd": "0.00006",
    "billed": True, "aggregate": False, "call_span_id": "ade7b7c2b5d0a1e7", "labels": {}, "error": None,
}  # fmt: skip


class TimelineSpan(Answer):
    model_config = _example(**_SPAN_EXAMPLE)
    trace_id: str
    span_id: str
    parent_span_id: str | None = Field(description="A span whose parent is missing is shown under the run's root")
    role: str | None
    name: str
    start_time: str | None
    end_time: str | None
    duration_ms: int | None
    status: str
    step_id: str | None
    agent_id: str | None
    pass_seq: int | None
    attempt: int | None
    call_seq: int | None
    provider: str | None
    model: str | None
    tool_name: str | None
    usage: Usage
    cost_usd: str | None
    billed: bool = Field(description="Whether this span's usage counts; others only restate it")
    aggregate: bool = Field(description="A container that counts because nothing below reports usage")
    call_span_id: str | None = Field(description="The span that stands for this call, where several record one request")
    labels: dict[str, str]
    error: str | None


_LOG_EXAMPLE = {
    "record_sha256": "ab" * 32,
    "trace_id": _TRACE,
    "time": _TIME,
    "event_name": "app.note",
    "severity": "INFO",
}


class TimelineLog(Answer):
    model_config = _example(**_LOG_EXAMPLE)
    record_sha256: str
    trace_id: str
    time: str | None
    event_name: str
    severity: str


class Timeline(Answer):
    model_config = _example(run_id=_RUN, spans=[_SPAN_EXAMPLE], logs=[], deriving=False, count=1, next_cursor=None)
    run_id: str
    spans: list[TimelineSpan]
    logs: list[TimelineLog] = Field(
        description="Log records of the run's traces that belong to no span that has come (first page only)"
    )
    deriving: bool = Field(
        description="Whether spans came just now: of a long run they are shown first without step, pass, call and cost"
    )
    count: int
    next_cursor: str | None


_SPAN_DETAIL = {
    "trace_id": _TRACE, "span_id": "ade7b7c2b5d0a1e7", "parent_span_id": "1111b7c2b5d0a1e7", "name": "execute_tool x",
    "kind": 1, "status_code": 1, "status_message": "", "start_time": _TIME, "end_time": _LATER,
    "start_time_unix_nano": "1796040000123456789", "end_time_unix_nano": "1796040004500000000",
    "attributes": {"gen_ai.tool.name": "x", "gen_ai.tool.call.result": "{}"}, "events": [], "links": [],
    "resource": {"attributes": {"service.name": "demo"}}, "scope": {"name": "demo", "attributes": {}},
    "dropped": {}, "trace_state": "", "dialect": "gen_ai", "logs": [],
}  # fmt: skip


class SpanDetail(Answer):
    """Everything that arrived of one span. What JSON cannot say is tagged: `$bytes`, `$double`, `$duplicates`."""

    model_config = _example(**_SPAN_DETAIL)
    trace_id: str
    span_id: str
    parent_span_id: str
    name: str
    kind: int
    status_code: int
    status_message: str
    start_time: str | None
    end_time: str | None
    start_time_unix_nano: str
    end_time_unix_nano: str
    attributes: dict[str, Any]
    events: list[dict[str, Any]]
    links: list[dict[str, Any]]
    resource: dict[str, Any]
    scope: dict[str, Any]
    dropped: dict[str, int]
    trace_state: str
    dialect: str
    logs: list[TimelineLog] = Field(description="Log records of this span, oldest first")


_ARTIFACT_EXAMPLE = {
    "artifact_id": _ART, "organization_id": "default", "project_id": "default", "use_case_id": None, "run_id": _RUN,
    "trace_id": _TRACE, "span_id": "ade7b7c2b5d0a1e7", "step_id": "step_search", "step_name": "search",
    "agent_id": "researcher", "pass_seq": 1, "attempt": 1, "call_seq": 2, "kind": "tool_result", "label": "tide_lookup",
    "summary": "4 tides; next high water 06:12", "status": "ok", "token_size": 96, "body_bytes": 382,
    "body_sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "content_type": "application/json",
    "metadata": {
        "tool_name": "tide_lookup", "arguments": {"port": "Brest", "day": 2}, "tool_call_id": "call_1",
        "tool_class": "system", "content": "captured",
    },
    "created_at": _TIME, "updated_at": _LATER,
}  # fmt: skip


class Artifact(Answer):
    model_config = _example(**_ARTIFACT_EXAMPLE)
    artifact_id: str
    organization_id: str
    project_id: str
    use_case_id: str | None
    run_id: str
    trace_id: str
    span_id: str
    step_id: str
    step_name: str | None
    agent_id: str = Field(description="'' for an agent without a name")
    pass_seq: int
    attempt: int
    call_seq: int
    kind: str
    label: str
    summary: str
    status: Literal["ok", "failed"]
    token_size: int | None = Field(description="Approximate (characters / 4); null when no content was captured")
    body_bytes: int | None = Field(description="null when no content was captured, or the body is rebuilt on reading")
    body_sha256: str | None
    content_type: str | None
    metadata: dict[str, Any]
    created_at: str | None
    updated_at: str | None


class Artifacts(Answer):
    model_config = _example(run_id=_RUN, artifacts=[_ARTIFACT_EXAMPLE], count=1, next_cursor=None)
    run_id: str
    artifacts: list[Artifact]
    count: int
    next_cursor: str | None


class ArtifactWithBody(Artifact):
    model_config = _example(**_ARTIFACT_EXAMPLE, body='{"tides":4}', body_encoding="utf-8")
    body: str | None = Field(description="null when no content was captured")
    body_encoding: Literal["utf-8", "base64"] | None


class Ledger(Answer):
    model_config = _example(
        run_id=_RUN,
        agent_id="researcher",
        text="## Actions already taken this run\n…",
        lines=['- tide_lookup({"port":"Brest","day":2}) -> 4 tides; next high water 06:12'],
    )
    run_id: str
    agent_id: str | None
    text: str = Field(description="The block for the system prompt; '' when there was no call")
    lines: list[str]


_PATH = {
    "step_id": "step_search", "agent_id": "researcher", "pass_seq": 1, "attempt": 2, "calls": 3,
    "path": "tide_lookup -> fetch_page x2",
}  # fmt: skip


class Path(Answer):
    model_config = _example(**_PATH)
    step_id: str
    agent_id: str
    pass_seq: int
    attempt: int
    calls: int
    path: str


class Paths(Answer):
    model_config = _example(run_id=_RUN, paths=[_PATH])
    run_id: str
    paths: list[Path]


_PROMPT = {
    "artifact_id": _ART, "label": "LLM call 1", "step_id": "step_search", "agent_id": "researcher", "pass_seq": 1,
    "attempt": 1, "call_seq": 1, "trace_id": _TRACE, "span_id": "ade7b7c2b5d0a1e7", "status": "ok", "exact": True,
    "provider": "openai", "model": "gpt-4o-mini-2024-07-18", "operation": "chat", "usage": _USAGE, "cost_usd": "0.00006",
    "cost_source": "genai-prices 0.2.3", "token_size": 412, "body_bytes": 1648, "output_artifact_id": _ART,
    "requested_calls": [{"id": "call_1", "name": "tide_lookup"}], "summary": "gpt-4o-mini", "earlier_attempt": False,
    "start_time": _TIME, "end_time": _LATER, "error": None,
    "metadata": {"exact": True, "loop_iteration": 1, "output_retry": None, "send_count": 1, "content": "captured"},
}  # fmt: skip


class RequestedCall(Answer):
    model_config = _example(id="call_1", name="tide_lookup")
    id: str | None
    name: str


class Prompt(Answer):
    model_config = _example(**_PROMPT)
    artifact_id: str
    label: str
    step_id: str
    agent_id: str
    pass_seq: int
    attempt: int
    call_seq: int
    trace_id: str
    span_id: str
    status: Literal["ok", "failed"]
    exact: bool | None = Field(
        description="true: the bytes sent; false: rebuilt from message attributes; null: no content"
    )
    provider: str | None
    model: str | None
    operation: str
    usage: Usage
    cost_usd: str | None
    cost_source: str | None
    token_size: int | None
    body_bytes: int | None
    output_artifact_id: str | None = Field(description="The model's answer; fetch it like any artifact")
    requested_calls: list[RequestedCall]
    summary: str
    earlier_attempt: bool
    start_time: str | None
    end_time: str | None
    error: str | None
    metadata: dict[str, Any]


class Prompts(Answer):
    model_config = _example(run_id=_RUN, prompts=[_PROMPT], count=1)
    run_id: str
    prompts: list[Prompt]
    count: int


_FOUND = {
    "run_id": _RUN, "artifact_id": _ART, "kind": "tool_result", "label": "tide_lookup",
    "summary": "4 tides; next high water 06:12", "trace_id": _TRACE, "span_id": "ade7b7c2b5d0a1e7", "time": _TIME,
}  # fmt: skip


class Found(Answer):
    model_config = _example(**_FOUND)
    run_id: str
    artifact_id: str
    kind: str
    label: str
    summary: str
    trace_id: str
    span_id: str
    time: str | None


class SearchResult(Answer):
    model_config = _example(results=[_FOUND], count=1)
    results: list[Found]
    count: int


class TokenRequest(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"agent_id": "researcher", "capabilities": ["query_blackboard"]}]},
    )
    agent_id: str = Field("", max_length=1024)
    capabilities: list[Literal["query_blackboard"]] = Field(default_factory=list)
    lifetime_seconds: int | None = Field(
        None, gt=0, description="Shorter than the deployment's token_lifetime, if given"
    )


class Token(Answer):
    model_config = _example(token="eyJhbGciOi…", expires_at=_LATER, run_id=_RUN)
    token: str
    expires_at: str
    run_id: str


_RECALLED = {
    "artifact_id": _ART, "step_id": "step_search", "pass_seq": 1, "call_seq": 2, "kind": "tool_result",
    "label": "tide_lookup", "summary": "4 tides; next high water 06:12", "content": '{"tides":4}', "truncated": False,
}  # fmt: skip


class Recalled(Answer):
    model_config = _example(**_RECALLED)
    artifact_id: str
    step_id: str
    pass_seq: int
    call_seq: int
    kind: str
    label: str
    summary: str
    content: str
    truncated: bool


class Recall(Answer):
    model_config = _example(results=[_RECALLED])
    results: list[Recalled]


class Health(Answer):
    model_config = _example(status="ok")
    status: str
