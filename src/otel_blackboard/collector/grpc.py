"""The OTLP/gRPC door: TraceService, LogsService and MetricsService."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NoReturn

import grpc

from otel_blackboard.access import KeyRing
from otel_blackboard.collector import answers, otlp_protobuf
from otel_blackboard.collector.arrival import (
    Counters,
    Decoded,
    Intake,
    Passage,
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
        # grpc reads each message whole before we are asked: a bound to what may lie there.
        maximum_concurrent_rpcs=32,
    )
    server.add_generic_rpc_handlers(
        tuple(
            grpc.method_handlers_generic_handler(
                service, {"Export": grpc.unary_unary_rpc_method_handler(_exporter(passage, signal))}
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


def _exporter(passage: Passage, signal: str) -> Callable[[bytes, Any], Awaitable[bytes]]:
    """The method Export of one service, from bytes to bytes."""

    async def export(body: bytes, context: Any) -> bytes:
        passage.counters.came()
        try:
            rejected = await _export(passage, signal, body, context)
        except Exception as error:
            return await _refuse(passage, context, error)
        return answers.encode(answers.accepted(signal, rejected), as_json=False)

    return export


async def _export(passage: Passage, signal: str, body: bytes, context: Any) -> list[str]:
    credential = passage.identify(_authorization(context))
    if len(body) > passage.limit:
        raise TooLarge(passage.limit)
    if signal == "metrics":
        log_metrics(passage.counters)
        return []
    decode = _DECODERS[signal]
    passage.undecoded.hold(len(body))
    try:
        arrival, rejected = await passage.decode(partial(decode, body), credential)
    finally:
        passage.undecoded.release(len(body))
    await passage.store(arrival, rejected)
    return rejected


def _authorization(context: Any) -> str | None:
    for key, value in context.invocation_metadata() or ():
        if key == "authorization":
            return value if isinstance(value, str) else None
    return None


async def _refuse(passage: Passage, context: Any, error: Exception) -> NoReturn:
    situation = answers.situation_of(error)
    if situation == "internal":
        log_failure(_log, "an OTLP door failed", error)
    passage.counters.refuse(situation)
    status = answers.status_of(situation, str(error), passage.retry_after)
    await context.abort(
        _CODES[status.code],
        status.message,
        trailing_metadata=(("grpc-status-details-bin", status.SerializeToString()),),
    )
    raise AssertionError("abort returns never")
