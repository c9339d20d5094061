"""Errors of the REST routes: RFC 9457 problem documents, the whole list as one table."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import anyio
import anyio.lowlevel
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MEDIA_TYPE = "application/problem+json"


class Kind(NamedTuple):
    status: int
    title: str


COME_AGAIN = {"Retry-After": "2"}
"""Headers of an answer that a store kept from being given."""

PREFIX = "urn:otel-blackboard:problem:"
KINDS: dict[str, Kind] = {
    "invalid-request": Kind(422, "A parameter or the body is missing or wrong"),
    "unauthenticated": Kind(401, "A key is needed"),
    "forbidden": Kind(403, "The key's role may not do this"),
    "not-found": Kind(404, "There is no such thing in this project"),
    "method-not-allowed": Kind(405, "This address does not take that method"),
    "store-unavailable": Kind(503, "The store does not answer"),
    "body-gone": Kind(410, "The body has expired or was deleted"),
    "too-large": Kind(413, "The request is larger than this route takes"),
    "internal": Kind(500, "The service failed; its log says where"),
}
_OF_STATUS = {kind.status: name for name, kind in KINDS.items()}


class Problem(Exception):
    """Raised anywhere in a route; answered as a problem document."""

    def __init__(self, name: str, detail: str = "", headers: dict[str, str] | None = None, **more: Any) -> None:
        super().__init__(name)
        self.name, self.detail, self.headers, self.more = name, detail, headers, more


def document(name: str, detail: str = "", **more: Any) -> dict[str, Any]:
    kind = KINDS[name]
    body = {"type": PREFIX + name, "title": kind.title, "status": kind.status}
    return body | ({"detail": detail} if detail else {}) | more


def answer(name: str, detail: str = "", headers: dict[str, str] | None = None, **more: Any) -> JSONResponse:
    body = document(name, detail, **more)
    return JSONResponse(body, KINDS[name].status, headers=headers, media_type=MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Makes every error of the application a problem document."""

    @app.exception_handler(Problem)
    async def _problem(request: Request, error: Problem) -> JSONResponse:
        return answer(error.name, error.detail, error.headers, **error.more)

    @app.exception_handler(RequestValidationError)
    async def _invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        # Where and why, but not what was sent: a value may be a secret in the wrong place.
        errors = [{"where": ".".join(map(str, e["loc"])), "why": e["msg"]} for e in error.errors()[:20]]
        detail = "; ".join(f"{e['where']}: {e['why']}" for e in errors[:3])
        return answer("invalid-request", detail, errors=errors)

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> JSONResponse:
        name = _OF_STATUS.get(error.status_code, "internal" if error.status_code >= 500 else "invalid-request")
        return answer(name, headers=dict(error.headers or {}))


class Patience:
    """Answers 503 to a request that was not answered in time: with a store that hangs, readers wait for each other's turn."""

    def __init__(self, app: ASGIApp, seconds: float) -> None:
        self._app, self._seconds = app, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        with anyio.move_on_after(self._seconds) as waiting:

            async def begin(message: Message) -> None:
                # A thread is not stopped at the deadline: what it answers after that must not be begun as well.
                await anyio.lowlevel.checkpoint_if_cancelled()
                waiting.deadline = math.inf  # how long a client takes to read is its own business
                await send(message)

            await self._app(scope, receive, begin)
        if waiting.cancelled_caught:
            late = answer("store-unavailable", "No answer in time.", COME_AGAIN)
            await late(scope, receive, send)


def documented(*names: str) -> dict[int | str, dict[str, Any]]:
    """The problems a route may answer, for its OpenAPI description."""
    return {
        KINDS[name].status: {
            "description": KINDS[name].title,
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}, "example": document(name)}},
        }
        for name in names
    }
