"""The OTLP/HTTP door: POST /v1/traces, /v1/logs and /v1/metrics in protobuf or JSON."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from otel_blackboard.access import Credential, KeyRing
from otel_blackboard.collector import answers, encodings, otlp_json, otlp_protobuf
from otel_blackboard.collector.arrival import (
    Arrival,
    Counters,
    Decoded,
    Intake,
    Passage,
    Stalled,
    TooLarge,
    UnsupportedMediaType,
    log_metrics,
)
from otel_blackboard.config import Settings
from otel_blackboard.failures import log_failure

PROTOBUF = "application/x-protobuf"
JSON = "application/json"

_DECODERS: dict[tuple[str, str], Callable[[bytes], Decoded]] = {
    ("traces", PROTOBUF): otlp_protobuf.decode_traces,
    ("traces", JSON): otlp_json.decode_traces,
    ("logs", PROTOBUF): otlp_protobuf.decode_logs,
    ("logs", JSON): otlp_json.decode_logs,
}

_STALLED = 30.0
"""Seconds without a byte of a body that was begun. What was read counts against other senders until then."""

_LONGEST = 300.0
"""Seconds that a whole body may take."""

_log = logging.getLogger(__name__)


def make_http_door(
    intake: Intake, keys: KeyRing | None, settings: Settings, counters: Counters | None = None
) -> Starlette:
    """The ASGI application. `keys` None: everybody may send and tenant attributes are believed."""
    passage = Passage(intake, keys, settings, counters)

    async def export(request: Request, signal: str) -> Response:
        passage.counters.came()
        try:
            return await _export(passage, request, signal)
        except ClientDisconnect:
            # Nobody is left to read an answer.
            passage.counters.refuse("bad_body")
            return Response(status_code=400)
        except Exception as error:
            return _refusal(passage, request, error)

    async def no_route(request: Request, error: Exception) -> Response:
        wrong_method = isinstance(error, HTTPException) and error.status_code == 405
        return _answer(passage, request, "method_not_allowed" if wrong_method else "not_found")

    door = Starlette(
        routes=[
            Route(f"/v1/{signal}", partial(export, signal=signal), methods=["POST"])
            for signal in ("traces", "logs", "metrics")
        ],
        exception_handlers={404: no_route, 405: no_route},
    )
    door.router.redirect_slashes = False
    return door


async def _export(passage: Passage, request: Request, signal: str) -> Response:
    # Everything that needs no body comes first.
    credential = passage.identify(request.headers.get("authorization"))
    media_type = _media_type(request)
    if media_type not in (PROTOBUF, JSON):
        raise UnsupportedMediaType(f"Content-Type must be {PROTOBUF} or {JSON}")
    encoding = encodings.check_encoding(request.headers.get("content-encoding"))
    if signal == "metrics":
        passage.undecoded.release(len(await _read(passage, request)))
        log_metrics(passage.counters)
        return _success(signal, [], media_type)
    arrival, rejected = await _admitted(passage, request, _DECODERS[signal, media_type], encoding, credential)
    await passage.store(arrival, rejected)
    return _success(signal, rejected, media_type)


async def _admitted(
    passage: Passage,
    request: Request,
    decode: Callable[[bytes], Decoded],
    encoding: str,
    credential: Credential | None,
) -> tuple[Arrival, list[str]]:
    """The request's records with their tenants. Its body is let go when this returns."""
    body = await _read(passage, request)
    try:
        return await passage.decode(lambda: decode(encodings.decompress(body, encoding, passage.limit)), credential)
    finally:
        passage.undecoded.release(len(body))


async def _read(passage: Passage, request: Request) -> bytes:
    """The body as sent; its bytes are held in `passage.undecoded` for the caller to release."""
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > passage.limit:
        raise TooLarge(passage.limit)
    chunks: list[bytes] = []
    size = 0
    stream = request.stream()
    clock = asyncio.get_running_loop().time
    end = clock() + _LONGEST
    try:
        while True:
            try:
                async with asyncio.timeout_at(min(clock() + _STALLED, end)):
                    chunk = await anext(stream, None)
            except TimeoutError:
                raise Stalled from None
            if chunk is None:
                return b"".join(chunks)
            if size + len(chunk) > passage.limit:
                raise TooLarge(passage.limit)
            passage.undecoded.hold(len(chunk))
            size += len(chunk)
            chunks.append(chunk)
    except BaseException:
        passage.undecoded.release(size)
        raise


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _success(signal: str, rejected: list[str], media_type: str) -> Response:
    content = answers.encode(answers.accepted(signal, rejected), media_type == JSON)
    return Response(content, 200, media_type=media_type)


def _refusal(passage: Passage, request: Request, error: Exception) -> Response:
    situation = answers.situation_of(error)
    if situation == "internal":
        log_failure(_log, "an OTLP door failed", error)
    return _answer(passage, request, situation, str(error))


def _answer(passage: Passage, request: Request, situation: str, detail: str = "") -> Response:
    passage.counters.refuse(situation)
    # A sender of neither encoding is most likely a person with curl.
    media_type = PROTOBUF if _media_type(request) == PROTOBUF else JSON
    status = answers.status_of(situation, detail, passage.retry_after)
    return Response(
        answers.encode(status, media_type == JSON),
        answers.ANSWERS[situation].http,
        headers=answers.headers_of(situation, passage.retry_after),
        media_type=media_type,
    )
