"""The REST routes under /api/v1. Every route names the permission it needs; one function authorises them all."""

from __future__ import annotations

import base64
import json
import logging
import time
from collections.abc import Callable
from typing import Annotated, Any

import anyio
import anyio.to_thread
import orjson
from clickhouse_connect.driver.exceptions import ClickHouseError
from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from fastapi import Path as PathParameter
from fastapi.responses import JSONResponse, RedirectResponse
from fastapi_offline import FastAPIOffline
from starlette.concurrency import run_in_threadpool

from otel_blackboard import __version__
from otel_blackboard.access import Credential, KeyRing
from otel_blackboard.config import Settings
from otel_blackboard.exporter.bodies import BodyDamaged, BodyMissing, BodyStoreError
from otel_blackboard.exporter.clickhouse import StoreError, longest_read
from otel_blackboard.exporter.faults import fault
from otel_blackboard.exporter.reader import Reader, RunFilter
from otel_blackboard.failures import Outages
from otel_blackboard.processor.numbers import number, tool_path
from otel_blackboard.query import answers, ledger, problems, recall, tokens
from otel_blackboard.query.artifacts import Artifact, Blackboard
from otel_blackboard.query.authorization import Access, Guarded
from otel_blackboard.query.board import MOST, Board, MovedRun, NoSuchRun, Place
from otel_blackboard.query.problems import Patience, Problem, documented
from otel_blackboard.query.runs import merge_parts
from otel_blackboard.query.shown import (
    shown_artifact,
    shown_log,
    shown_prompt,
    shown_run,
    shown_span,
    shown_timeline_span,
)
from otel_blackboard.query.times import nanoseconds, rfc3339
from otel_blackboard.records import ARTIFACT_KINDS, Resolved, Tenant

log = logging.getLogger(__name__)

_ERRORS = documented("invalid-request", "unauthenticated", "forbidden", "not-found", "store-unavailable")


def make_api(
    reader: Reader,
    settings: Settings,
    keys: KeyRing | None,
    ready: Callable[[], str],
    clock_ns: Callable[[], int] = time.time_ns,
) -> FastAPI:
    """The application. `keys` None = no keys (loopback only). `ready` answers '' or why the service cannot serve."""
    app = FastAPIOffline(
        title="otel-blackboard",
        version=__version__,
        description="What AI agents did: runs, artifacts, exact prompts, ledger and recall. "
        "Times are RFC 3339 with Z; unknown numbers are null; money is decimal text in US dollars.",
        docs_url="/api/docs",
        redoc_url=None,
        openapi_url="/api/openapi.json",
        static_url="/api/static",
    )
    problems.install(app)
    _install_store_errors(app, settings)
    # A request may make several queries, each of which may take that long.
    app.add_middleware(Patience, seconds=2 * longest_read(settings))
    board = Board(reader, settings, clock_ns)
    secret = tokens.secret_of(settings)
    app.include_router(_routes(board, keys, secret))
    app.include_router(_recall(board, secret))
    app.include_router(_health(ready))
    original = app.openapi

    def openapi() -> dict[str, Any]:
        return _completed(original())

    app.openapi = openapi  # type: ignore[method-assign]
    return app


_SECURITY = {
    "Key": {"type": "http", "scheme": "bearer", "description": "API key; needed where the deployment has keys"},
    "RunToken": {"type": "http", "scheme": "bearer", "description": "Run token of `POST /runs/{run_id}/tokens`"},
}


_MOVED = {
    "description": "The id was made from a trace that has joined another run; Location is the same route of that run",
    "headers": {"Location": {"schema": {"type": "string"}}},
}


def _completed(description: dict[str, Any]) -> dict[str, Any]:
    """The description with what the framework leaves out: the example of each answer, who may ask, what a problem is."""
    schemas = description["components"]["schemas"]
    schemas.setdefault("Problem", answers.Problem.model_json_schema())
    description["components"]["securitySchemes"] = _SECURITY
    for path, methods in description["paths"].items():
        for operation in methods.values():
            if path.startswith("/api/v1/"):
                operation.setdefault("security", [{}, {"Key": []}])
            if "{run_id}" in path and operation is methods.get("get"):
                operation["responses"].setdefault("307", _MOVED)
            for answer in operation["responses"].values():
                for content in answer.get("content", {}).values():
                    name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
                    if "example" not in content and (examples := schemas.get(name, {}).get("examples")):
                        content["example"] = examples[0]
    return description


def _install_store_errors(app: FastAPI, settings: Settings) -> None:
    outages = Outages(log, "reads fail")

    async def unavailable(request: Request, error: Exception) -> JSONResponse:
        outages.failed(fault(settings, error))
        return problems.answer("store-unavailable", headers=problems.COME_AGAIN)

    async def gone(request: Request, error: Exception) -> JSONResponse:
        return problems.answer("body-gone", "The record is still there; its body has expired or was deleted.")

    async def moved(request: Request, error: Exception) -> Response:
        assert isinstance(error, MovedRun)
        old = request.path_params["run_id"]
        # Relative: what stands before this service (a proxy, another host name) stays the client's business.
        path = request.url.path.replace(f"/runs/{old}", f"/runs/{error.run_id}", 1)
        return RedirectResponse(f"{path}?{request.url.query}", 307)

    async def no_run(request: Request, error: Exception) -> JSONResponse:
        return problems.answer("not-found")

    async def damaged(request: Request, error: Exception) -> JSONResponse:
        log.error("a body is damaged: %s", error)
        return problems.answer("internal", "The body in the store is not what was written.")

    app.add_exception_handler(BodyDamaged, damaged)
    for kind in (ClickHouseError, StoreError, BodyStoreError):
        app.add_exception_handler(kind, unavailable)
    app.add_exception_handler(BodyMissing, gone)
    app.add_exception_handler(MovedRun, moved)
    app.add_exception_handler(NoSuchRun, no_run)


ProjectId = Annotated[
    str, Query(min_length=1, max_length=256, description="Project to read; required", examples=["default"])
]
OrganizationId = Annotated[
    str | None, Query(max_length=256, description="Organization; without keys `default`, with a key the key's own")
]
RunId = Annotated[str, PathParameter(description="Run id", examples=["run_4f1c0c6f0a2e4d5b8f7a"])]
ArtifactId = Annotated[str, PathParameter(description="Artifact id", examples=["art_0d1f9c2b7a6e5d4c3b2a190817161514"])]
Limit = Annotated[int, Query(ge=1, le=MOST, description="Rows of this page")]
Cursor = Annotated[str | None, Query(description="`next_cursor` of the page before")]
Earlier = Annotated[bool, Query(description="Also rows that a retry has written over, and answers inside a pass")]


_ARTIFACT_PLACE = (int, str, str, int, bool, int, str, int, int, str, str, str)
"""The types of Artifact.sort_key: a page goes on after a place, so that rows which come or go in between lose none."""


def encode_cursor(*values: Any) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(values)).decode().rstrip("=")


def _all_positive(values: list[Any]) -> bool:
    return all(value >= 0 for value in values if isinstance(value, int))


def decode_cursor(cursor: str | None, *kinds: type) -> list[Any] | None:
    if cursor is None:
        return None
    try:
        values = orjson.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        if isinstance(values, list) and [type(value) for value in values] == list(kinds) and _all_positive(values):
            return values
    except ValueError:
        pass
    raise Problem("invalid-request", "cursor: not a cursor of this route")


# ------------------------------------------------------------------------------------------------------------- routes


def _health(ready: Callable[[], str]) -> APIRouter:
    router = APIRouter(tags=["health"])

    # Neither takes a turn among the readers: with a store that hangs they would come last.
    own_turns = anyio.CapacityLimiter(4)

    @router.get("/healthz", response_model=answers.Health)
    async def healthz() -> dict[str, str]:
        """The process is up."""
        return {"status": "ok"}

    @router.get("/readyz", response_model=answers.Health, responses=documented("store-unavailable"))
    async def readyz() -> dict[str, str]:
        """The doors are open and the stores answer."""
        if why := await anyio.to_thread.run_sync(ready, limiter=own_turns):
            raise Problem("store-unavailable", why)
        return {"status": "ok"}

    @router.get("/", include_in_schema=False)
    def root() -> RedirectResponse:
        return RedirectResponse("/api/docs")

    return router


def _recall(board: Board, secret: str) -> APIRouter:
    router = APIRouter(prefix="/api/v1", tags=["agent"], route_class=Guarded)
    body_of_recall = {
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "properties": {
                        "query": {"type": "string", "description": "What to find, in concrete terms and names"},
                        "top_k": {"type": "integer", "minimum": 1, "maximum": 10, "default": 5},
                    },
                },
                "example": {"query": "next high water in Brest", "top_k": 5},
            }
        }
    }

    @router.post(
        "/recall",
        response_model=answers.Recall,
        responses=documented("unauthenticated"),
        openapi_extra={"requestBody": body_of_recall, "security": [{"RunToken": []}]},
    )
    async def recall_artifacts(
        request: Request,
    ) -> dict[str, Any]:
        """Full text over the artifacts of the run that the run token names. Whatever else the body says has no effect;
        a missing query, retrieval switched off and failures give an empty result, never an error."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        try:
            if scheme.lower() != "bearer":
                raise tokens.InvalidToken
            context = tokens.read(secret, token.strip(), lambda: board.clock_ns() / 1e9)
        except tokens.InvalidToken:
            raise Problem(
                "unauthenticated", "Send a run token: `Authorization: Bearer <token>`.", {"WWW-Authenticate": "Bearer"}
            ) from None
        if not board.settings.retrieval or "query_blackboard" not in context.capabilities:
            return {"results": []}
        try:
            sent = json.loads(await request.body())  # unlike orjson it reads numbers of any size
        except (ValueError, RecursionError):
            sent = {}
        query = sent.get("query") if isinstance(sent, dict) else None
        top_k = recall.clamp_top_k(sent.get("top_k", 5)) if isinstance(sent, dict) else 5
        if not isinstance(query, str) or not query.strip():
            return {"results": []}
        try:
            found = await run_in_threadpool(board.recall, context.tenant, context.run_id, query, top_k)
        except NoSuchRun:
            return {"results": []}
        except Exception as error:  # RCL-10: the run goes on
            log.warning("recall failed and answered nothing: %s", type(error).__name__)
            return {"results": []}
        return {"results": [_recalled(artifact, content, cut) for artifact, content, cut in found]}

    return router


def _recalled(artifact: Artifact, content: str, cut: bool) -> dict[str, Any]:
    return {
        "artifact_id": artifact.artifact_id,
        "step_id": artifact.attempt.step_id,
        "pass_seq": artifact.attempt.pass_seq,
        "call_seq": artifact.call_seq,
        "kind": artifact.kind,
        "label": artifact.label,
        "summary": artifact.row.summary,
        "content": content,
        "truncated": cut,
    }


def _routes(board: Board, keys: KeyRing | None, secret: str) -> APIRouter:
    router = APIRouter(prefix="/api/v1", responses=_ERRORS, route_class=Guarded)
    access = Access(keys, board.settings)

    def permitted(permission: str) -> Any:
        def who(request: Request) -> Credential | None:
            return access.credential(request, permission)

        def tenant(
            project_id: ProjectId, organization_id: OrganizationId = None, credential: Credential | None = Depends(who)
        ) -> Tenant:
            return access.tenant(credential, project_id, organization_id)

        tenant.permission, tenant.who = permission, who  # type: ignore[attr-defined]
        return Depends(tenant)

    Reading, Writing = permitted("read"), permitted("write")
    _run_routes(router, board, Reading)
    _artifact_routes(router, board, Reading)
    _agent_routes(router, board, secret, Reading, Writing)
    return router


def _run_routes(router: APIRouter, board: Board, Reading: Any) -> None:
    @router.get("/runs", response_model=answers.Runs, tags=["runs"])
    def list_runs(
        tenant: Tenant = Reading,
        status: Annotated[str | None, Query(pattern="^(running|complete|failed|interrupted)$")] = None,
        agent_id: str | None = None,
        use_case_id: str | None = None,
        conversation_id: str | None = None,
        from_: Annotated[str | None, Query(alias="from", description="Started at or after, RFC 3339")] = None,
        to: Annotated[str | None, Query(description="Started before, RFC 3339")] = None,
        q: Annotated[str | None, Query(description="Part of the name, or a whole run or trace id")] = None,
        everything: Annotated[
            bool, Query(alias="all", description="Also traces in which no agent, model call or tool was recognised")
        ] = False,
        total: Annotated[bool, Query(description="Also count all that match")] = False,
        limit: Limit = 50,
        cursor: Cursor = None,
    ) -> dict[str, Any]:
        """Runs, newest first."""
        wanted = RunFilter(
            status or "", agent_id or "", use_case_id or "", conversation_id or "",
            _moment("from", from_), _moment("to", to), q or "", everything,
        )  # fmt: skip
        before = decode_cursor(cursor, int, str)
        now = board.clock_ns()
        found = board.reader.list_runs(tenant, wanted, now, limit + 1, (before[0], before[1]) if before else None)
        idle = board.settings.run_idle_timeout * 10**9
        runs = [merge_parts(parts, now, idle) for parts in found]
        page = runs[:limit]
        return {
            "runs": [shown_run(run) for run in page],
            "count": len(page),
            "next_cursor": encode_cursor(page[-1].start_ns, page[-1].run_id) if len(runs) > limit else None,
            "total": board.reader.count_runs(tenant, wanted, now) if total else None,
        }

    @router.get("/runs/{run_id}", response_model=answers.Run, tags=["runs"])
    def get_run(run_id: RunId, tenant: Tenant = Reading) -> dict[str, Any]:
        """One run. An id made from a trace that has joined another run answers 307."""
        return shown_run(board.run(tenant, run_id))

    @router.get("/runs/{run_id}/timeline", response_model=answers.Timeline, tags=["runs"])
    def timeline(
        run_id: RunId,
        tenant: Tenant = Reading,
        parent: Annotated[
            str | None, Query(description="Only the spans right below this span id; '' = the top")
        ] = None,
        limit: Limit = 200,
        cursor: Cursor = None,
    ) -> dict[str, Any]:
        """Every span of the run, oldest first, without bodies."""
        run = board.run(tenant, run_id)
        after = decode_cursor(cursor, int, str, str)
        found = board.timeline(tenant, run, with_logs=after is None and parent is None)
        rows = sorted(found.spans, key=_span_order)
        root = (run.root.trace_id, run.root.root_span_id)
        numbering = number(rows)
        chosen = [
            (row, above)
            for row in rows
            for above in (_parent(row, root),)
            if (parent is None or (above or "") == parent) and (after is None or _span_order(row) > tuple(after))
        ]
        page = chosen[:limit]
        return {
            "run_id": run.run_id,
            "spans": [shown_timeline_span(row, above, numbering.spans.get((row.trace_id, row.span_id))) for row, above in page],
            "logs": [shown_log(each) for each in found.logs],
            "deriving": found.deriving,
            "count": len(page),
            "next_cursor": encode_cursor(*_span_order(page[-1][0])) if len(chosen) > limit else None,
        }  # fmt: skip

    @router.get("/runs/{run_id}/spans/{span_id}", response_model=answers.SpanDetail, tags=["runs"])
    def span_detail(
        run_id: RunId,
        span_id: Annotated[str, PathParameter(description="Span id, 16 hex digits", examples=["ade7b7c2b5d0a1e7"])],
        tenant: Tenant = Reading,
        trace_id: Annotated[
            str | None, Query(description="Needed where the run has this span id in two traces")
        ] = None,
    ) -> dict[str, Any]:
        """Everything that arrived of one span, its content included."""
        run = board.place(tenant, run_id)
        for trace in run.trace_ids:
            if trace_id in (None, trace) and (found := board.span(tenant, run, trace, span_id)):
                logs = board.reader.logs_of_span(tenant, trace, span_id, MOST)
                return shown_span(board, trace, span_id, found, logs)
        raise Problem("not-found")


def _artifact_routes(router: APIRouter, board: Board, Reading: Any) -> None:
    @router.get("/runs/{run_id}/artifacts", response_model=answers.Artifacts, tags=["artifacts"])
    def list_artifacts(
        run_id: RunId,
        tenant: Tenant = Reading,
        kind: Annotated[list[str] | None, Query(description="Repeatable")] = None,
        step_id: str | None = None,
        pass_seq: int | None = None,
        agent_id: str | None = None,
        earlier: Earlier = False,
        limit: Limit = 200,
        cursor: Cursor = None,
    ) -> dict[str, Any]:
        """What is on the run's blackboard, in the order of its passes and calls, without bodies."""
        if unknown := sorted(set(kind or ()) - set(ARTIFACT_KINDS)):
            raise Problem("invalid-request", f"kind: {unknown[0]!r} is none of {', '.join(ARTIFACT_KINDS)}")
        after = decode_cursor(cursor, *_ARTIFACT_PLACE)
        run = board.place(tenant, run_id)
        found = board.blackboard(tenant, run, kind)
        listed = _listed(found, earlier)
        listed = [
            artifact
            for artifact in listed
            if step_id in (None, artifact.attempt.step_id)
            and pass_seq in (None, artifact.attempt.pass_seq)
            and agent_id in (None, artifact.attempt.agent_id)
        ]
        if after is not None:
            listed = [artifact for artifact in listed if artifact.sort_key > tuple(after)]
        page = listed[:limit]
        return {
            "run_id": run.run_id,
            "artifacts": [shown_artifact(board, tenant, run, artifact) for artifact in page],
            "count": len(page),
            "next_cursor": encode_cursor(*page[-1].sort_key) if len(listed) > limit else None,
        }

    def find(tenant: Tenant, run_id: str, artifact_id: str) -> tuple[Place, Artifact]:
        run = board.place(tenant, run_id)
        artifact = board.blackboard(tenant, run).find(artifact_id)
        if artifact is None:
            raise Problem("not-found")
        return run, artifact

    @router.get(
        "/runs/{run_id}/artifacts/{artifact_id}", response_model=answers.ArtifactWithBody, tags=["artifacts"],
        responses=documented("body-gone"),
    )  # fmt: skip
    def get_artifact(run_id: RunId, artifact_id: ArtifactId, tenant: Tenant = Reading) -> dict[str, Any]:
        """One artifact with its whole body."""
        run, artifact = find(tenant, run_id, artifact_id)
        data = board.body(artifact)
        encoding, text = None, None
        if data is not None:
            try:
                encoding, text = "utf-8", data.decode()
            except UnicodeDecodeError:
                encoding, text = "base64", base64.b64encode(data).decode()
        return shown_artifact(board, tenant, run, artifact) | {"body": text, "body_encoding": encoding}

    @router.get(
        "/runs/{run_id}/artifacts/{artifact_id}/raw", tags=["artifacts"], response_class=Response,
        responses=documented("body-gone") | {
            200: {"description": "The exact bytes", "content": {
                "application/json": {"schema": {}, "example": {"tides": 4}},
                "text/plain": {"schema": {"type": "string"}, "example": "4 tides"},
                "application/octet-stream": {"schema": {"type": "string", "format": "binary"}, "example": "4 tides"},
            }}
        },
    )  # fmt: skip
    def raw(run_id: RunId, artifact_id: ArtifactId, tenant: Tenant = Reading) -> Response:
        """The exact bytes that were captured, with their content type."""
        _, artifact = find(tenant, run_id, artifact_id)
        data = board.body(artifact)
        if data is None:
            raise Problem("not-found", "The content of this artifact was not captured.")
        described = artifact.row.content_type or "application/json"
        kind = "application/json" if artifact.bodies and artifact.whole is None else described
        # What agents and tools sent is data: a browser must neither guess its kind nor run it.
        headers = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox; default-src 'none'"}
        if artifact.whole is not None:
            headers["ETag"] = f'"{artifact.whole.sha256}"'
        return Response(data, media_type=kind, headers=headers)

    @router.get("/runs/{run_id}/prompts", response_model=answers.Prompts, tags=["artifacts"])
    def prompts(
        run_id: RunId,
        tenant: Tenant = Reading,
        step_id: str | None = None,
        pass_seq: int | None = None,
        agent_id: str | None = None,
        earlier: Earlier = False,
    ) -> dict[str, Any]:
        """The model calls of the run, or of one pass: `LLM call 1`, `LLM call 2`, … in the order sent."""
        run = board.place(tenant, run_id)
        found = board.blackboard(tenant, run, ("llm_prompt", "agent_output"), whole=True)
        outputs = {
            (a.resolved.trace_id, a.resolved.call_span_id or a.resolved.span_id): a.artifact_id
            for a in (*found.replaced, *found.artifacts)
            if a.kind == "agent_output"
        }
        billed = {
            (numbered.row.trace_id, numbered.row.call_span_id): numbered.row
            for numbered in found.numbering.spans.values()
            if numbered.row.billed and numbered.row.call_span_id
        }
        entries = [
            artifact
            for artifact in _listed(found, earlier)
            if artifact.kind == "llm_prompt"
            and step_id in (None, artifact.attempt.step_id)
            and pass_seq in (None, artifact.attempt.pass_seq)
            and agent_id in (None, artifact.attempt.agent_id)
        ]
        return {
            "run_id": run.run_id,
            "prompts": [shown_prompt(board, tenant, run, artifact, outputs, billed) for artifact in entries],
            "count": len(entries),
        }

    @router.get("/search", response_model=answers.SearchResult, tags=["artifacts"])
    def search(
        q: Annotated[str, Query(min_length=1, max_length=1000, description="Words that must all stand in it")],
        tenant: Tenant = Reading,
        limit: Annotated[int, Query(ge=1, le=200)] = 50,
    ) -> dict[str, Any]:
        """What agents said and tools returned, over all runs of the project, newest first."""
        words = recall.words_of(q)
        found = board.reader.search(tenant, words, 4 * limit) if words else []
        # A retried call has a row for each attempt: the newest stands for it.
        found = list({row.artifact_id: (row, run_id) for row, run_id in reversed(found)}.values())[::-1][:limit]
        results = [
            {
                "run_id": run_id,
                "artifact_id": row.artifact_id,
                "kind": row.kind,
                "label": row.label,
                "summary": row.summary,
                "trace_id": row.trace_id,
                "span_id": row.span_id,
                "time": rfc3339(row.time_ns),
            }
            for row, run_id in found
        ]
        return {"results": results, "count": len(results)}


def _agent_routes(router: APIRouter, board: Board, secret: str, Reading: Any, Writing: Any) -> None:
    @router.get("/runs/{run_id}/ledger", response_model=answers.Ledger, tags=["agent"])
    def get_ledger(
        run_id: RunId,
        tenant: Tenant = Reading,
        agent_id: Annotated[str | None, Query(description="One agent; '' = the one without a name; none = all")] = None,
    ) -> dict[str, Any]:
        """The tool calls already made in this run, as text for the agent's next prompt."""
        run = board.place(tenant, run_id)
        lines: list[str] = []
        if board.settings.action_ledger:
            artifacts = board.blackboard(tenant, run, ("tool_result",)).artifacts
            lines = ledger.lines(ledger.calls_of(artifacts, agent_id, board.settings.ledger_recall_calls))
        return {"run_id": run.run_id, "agent_id": agent_id, "text": ledger.text(lines), "lines": lines}

    @router.get("/runs/{run_id}/paths", response_model=answers.Paths, tags=["agent"])
    def paths(run_id: RunId, tenant: Tenant = Reading) -> dict[str, Any]:
        """The tools of each pass in call order: one line a pass, its latest attempt."""
        run = board.place(tenant, run_id)
        found = [
            {
                "step_id": attempt.step_id,
                "agent_id": attempt.agent_id,
                "pass_seq": attempt.pass_seq,
                "attempt": attempt.attempt,
                "calls": len([row for row in attempt.calls if row.role == "tool_invocation"]),
                "path": path,
            }
            for attempt in number(board.calls(tenant, run)).attempts
            if not attempt.superseded and (path := tool_path(attempt.calls))
        ]
        return {"run_id": run.run_id, "paths": found}

    @router.post("/runs/{run_id}/tokens", response_model=answers.Token, tags=["agent"])
    def make_token(
        run_id: Annotated[
            str, PathParameter(pattern=r"^[A-Za-z0-9._:-]{1,128}$", examples=["run_4f1c0c6f0a2e4d5b8f7a"])
        ],
        wanted: answers.TokenRequest,
        tenant: Tenant = Writing,
    ) -> dict[str, Any]:
        """A run token for an agent: all that recall is told of the run. May be made before the first span arrives."""
        lifetime = min(wanted.lifetime_seconds or board.settings.token_lifetime, board.settings.token_lifetime)
        context = tokens.RunContext(tenant, run_id, wanted.agent_id, tuple(wanted.capabilities))
        token, expires = tokens.make(secret, context, board.clock_ns() / 1e9, lifetime)
        return {"token": token, "expires_at": rfc3339(expires * 10**9), "run_id": run_id}


def _moment(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return nanoseconds(text)
    except ValueError as error:
        raise Problem("invalid-request", f"{name}: {error}") from None


def _span_order(row: Resolved) -> tuple[int, str, str]:
    return (row.start_ns, row.trace_id, row.span_id)


def _parent(row: Resolved, root: tuple[str, str]) -> str | None:
    if row.parent_span_id:
        return row.parent_span_id
    return None if (row.trace_id, row.span_id) == root else root[1]


def _listed(found: Blackboard, earlier: bool) -> list[Artifact]:
    if not earlier:
        return found.artifacts
    return sorted((*found.artifacts, *found.replaced), key=lambda artifact: artifact.sort_key)
