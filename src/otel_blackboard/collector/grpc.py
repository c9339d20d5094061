"""The OTLP/gRPC door: TraceService, LogsService and MetricsService."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, NoReturn

import grpc

from otel_blackboard.access import Credential, KeyRing
from otel_blackboard.collector import answers, otlp_protobuf
from otel_blackboard.collector.arrival import (
    Arrival,
    Counters,
    Decoded,
    DecodeError,
    Intake,
    Passage,
    QueueFull,
    Stalled,
    TooLarge,
    log_metrics,
)
from otel_blackboard.config import Settings, split_address
from otel_blackboard.failures import log_failure

_DECODERS: dict[str, Callable[[bytes], Decoded]] = {
    "traces": otlp_protobuf.decode_traces,
    "logs": otlp_protobuf.decode_logs,
}
_SERVICES = {
    "traces": "opentelemetry.proto.collector.trace.v1.TraceService",
    "logs": "opentelemetry.proto.collector.logs.v1.LogsService",
    "metrics": "opentelemetry.proto.collector.metrics.v1.MetricsService",
}
_RECEIVING = 32
"""Messages that are read at once, all doors' bound to what may lie in memory uncounted: grpc reads each one whole."""

_STALLED = 60.0
"""Seconds for one message to come."""

_CODES = {code.value[0]: code for code in grpc.StatusCode}

_log = logging.getLogger(__name__)


async def start_grpc_door(
    intake: Intake, keys: KeyRing | None, settings: Settings, counters: Counters | None = None
) -> tuple[grpc.aio.Server, int]:
    """Opens the door at `settings.otlp_grpc` (port 0: any free one); gives the server and its port. Raises OSError
    when the address cannot be had, ValueError when it is none."""
    passage = Passage(intake, keys, settings, counters)
    host, port = split_address(settings.otlp_grpc)
    server = grpc.aio.server(
        options=[
            # Above our own limit, so that we say what was too large; grpc counts decompressed bytes and stops there.
            ("grpc.max_receive_message_length", min(2 * passage.limit, 2**31 - 1)),
            # Without it a second process would share the port silently.
            ("grpc.so_reuseport", 0),
        ],
    )
    # Not grpc's own maximum_concurrent_rpcs: it refuses without a hint when to come again, and senders drop their data.
    turns = asyncio.Semaphore(_RECEIVING)
    server.add_generic_rpc_handlers(
        tuple(
            grpc.method_handlers_generic_handler(
                service, {"Export": grpc.stream_unary_rpc_method_handler(_exporter(passage, signal, turns))}
            )
            for signal, service in _SERVICES.items()
        )
    )
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        bound = server.add_insecure_port(address)
    except RuntimeError:
        bound = 0
    if not bound:
        raise OSError(f"the OTLP/gRPC door cannot listen at {address}; is another process there?")
    await server.start()
    return server, bound


def _exporter(
    passage: Passage, signal: str, turns: asyncio.Semaphore
) -> Callable[[AsyncIterator[bytes], Any], Awaitable[bytes]]:
    """The method Export of one service, from bytes to bytes. A stream of one message is what a unary call is on the wire;
    so it is we who decide when it is read."""

    async def export(messages: AsyncIterator[bytes], context: Any) -> bytes:
        # An iterator that was read from holds the message for as long as grpc holds this frame (see below).
        del messages
        passage.counters.came()
        try:
            rejected = await _export(passage, signal, context, turns)
            return answers.encode(answers.accepted(signal, rejected), as_json=False)
        except Exception as error:
            situation, detail = answers.situation_of(error), str(error)
            if situation == "internal":
                log_failure(_log, "an OTLP door failed", error)
        # Outside of `except`: abort() raises, and grpc keeps what it raises in a cycle, with this frame and, were it raised
        # inside, with that error and all that its frames hold: a body each time until somebody looks for cycles.
        return await _refuse(passage, context, situation, detail)

    return export


async def _export(passage: Passage, signal: str, context: Any, turns: asyncio.Semaphore) -> list[str]:
    credential = passage.identify(_authorization(context))
    await _take_turn(turns, passage.patience)
    try:
        body = await _read(context)
        if len(body) > passage.limit:
            raise TooLarge(passage.limit)
        if signal == "metrics":
            log_metrics(passage.counters)
            return []
        passage.undecoded.hold(len(body))
    finally:
        turns.release()
    arrival, rejected = await _decoded(passage, signal, body, credential)
    del body
    await passage.store(arrival, rejected)
    return rejected


async def _take_turn(turns: asyncio.Semaphore, patience: float) -> None:
    try:
        async with asyncio.timeout(patience):
            await turns.acquire()
    except TimeoutError:
        raise QueueFull from None


async def _read(context: Any) -> bytes:
    try:
        async with asyncio.timeout(_STALLED):
            message = await context.read()
    except TimeoutError:
        raise Stalled from None
    if not isinstance(message, bytes):
        raise DecodeError("a call without a message")
    return message


async def _decoded(
    passage: Passage, signal: str, body: bytes, credential: Credential | None
) -> tuple[Arrival, list[str]]:
    """The records of a body that is held in `passage.undecoded`."""
    try:
        return await passage.decode(partial(_DECODERS[signal], body), credential)
    finally:
        passage.undecoded.release(len(body))


def _authorization(context: Any) -> str | None:
    for key, value in context.invocation_metadata() or ():
        if key == "authorization":
            return value if isinstance(value, str) else None
    return None


async def _refuse(passage: Passage, context: Any, situation: str, detail: str) -> NoReturn:
    passage.counters.refuse(situation)
    status = answers.status_of(situation, detail, passage.retry_after)
    details = [("grpc-status-details-bin", status.SerializeToString())]
    if hint := answers.hint_of(situation, passage.retry_after):
        details.append(("google.rpc.retryinfo-bin", hint.SerializeToString()))
    await context.abort(_CODES[status.code], status.message, trailing_metadata=tuple(details))
    raise AssertionError("abort returns never")
