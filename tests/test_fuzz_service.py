"""A real service under fuzzing: every answer is one of the contract, the process lives, its memory is bounded."""

from __future__ import annotations

import gzip
import re
import socket
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_blackboard.collector.answers import ANSWERS
from tests.effort import NIGHTLY
from tests.fuzzing import JSON_SEEDS, PROTOBUF_SEEDS, changed, fuzz
from tests.running_service import RunningService, service

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

HTTP_ANSWERS = {200} | {answer.http for situation, answer in ANSWERS.items() if situation != "internal"}
GRPC_ANSWERS = {0} | {answer.grpc for situation, answer in ANSWERS.items() if situation != "internal"}
READS = {200, 307, 404, 410}

MOST_MEMORY = 1_200 * 2**20
"""Bytes, design.md §7."""
_FAULTS = re.compile(r"Traceback|could not be|door failed|a read failed|derived|derivation|internal", re.IGNORECASE)
"""What the service says of a fault of its own."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    with service(tmp_path_factory.mktemp("fuzzed") / "data") as started:
        yield started
        assert started.process.poll() is None


def assert_well(running: RunningService) -> None:
    assert running.process.poll() is None, running.log.read_text()[-4_000:]
    assert httpx.get(f"{running.api}/readyz", timeout=60).status_code == 200
    assert memory(running) < MOST_MEMORY
    said = running.log.read_text()
    assert not _FAULTS.search(said.partition(" ready: ")[2]), said[-4_000:]


def memory(running: RunningService) -> int:
    status = Path(f"/proc/{running.process.pid}/status")
    if not status.exists():
        pytest.skip("not on this machine: /proc, which says what memory a process has")
    return int(re.findall(r"VmRSS:\s+(\d+)", status.read_text())[0]) * 1024


def read_some(running: RunningService) -> None:
    """What was taken can be shown."""
    with httpx.Client(base_url=f"{running.api}/api/v1", timeout=60) as client:
        for project in ("default", "seed"):
            query = {"project_id": project}
            listed = client.get("/runs", params=query | {"all": "true", "limit": 5})
            assert listed.status_code == 200
            for run in listed.json()["runs"]:
                base = f"/runs/{run['run_id']}"
                for route in ("", "/artifacts", "/prompts", "/paths", "/ledger"):
                    assert client.get(base + route, params=query).status_code in READS
                for span in client.get(f"{base}/timeline", params=query | {"limit": 3}).json()["spans"]:
                    place = query | {"trace_id": span["trace_id"]}
                    assert client.get(f"{base}/spans/{span['span_id']}", params=place).status_code in READS


# ---- OTLP/HTTP ----

ENCODINGS: dict[str, Any] = {
    "gzip": gzip.compress, "x-gzip": gzip.compress, "deflate": zlib.compress, "zstd": zstd.compress, "identity": bytes,
    "": bytes, "br": bytes, "gzip, gzip": bytes, "GZIP": gzip.compress, "é": bytes,
}  # fmt: skip
CONTENT_TYPES = st.sampled_from(
    ["application/x-protobuf", "application/json"] * 4
    + ["application/json; charset=utf-16", "APPLICATION/JSON", "text/plain", "", "application/x-protobuf;;", "é/ü"]
)
BODIES = changed(PROTOBUF_SEEDS) | changed(JSON_SEEDS)
NOISE = st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), max_size=3)
HEADERS = st.dictionaries(
    st.sampled_from(
        ["authorization", "x-forwarded-for", "traceparent", "accept-encoding", "user-agent", "expect", "te"]
    ),
    st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=20),
    max_size=2,
)


def test_any_request_over_http_is_answered_by_the_contract(running: RunningService) -> None:
    with httpx.Client(timeout=60) as client:

        @given(
            BODIES, st.sampled_from(["", "", "", "traces", "logs", "metrics", "traces/", "../api"]), CONTENT_TYPES,
            st.sampled_from(["identity", "gzip", *ENCODINGS]), NOISE, HEADERS,
            st.sampled_from(["POST"] * 8 + ["GET", "PUT", "OPTIONS", "HEAD", "FOO"]),
        )  # fmt: skip
        def check(
            sent: tuple[str, bytes], path: str, content_type: str, encoding: str, noise: list[tuple[int, int]],
            more: dict[str, str], method: str,
        ) -> None:  # fmt: skip
            signal, body = sent
            body = bytearray(ENCODINGS[encoding](body))
            for place, value in noise:
                if body:
                    body[place % len(body)] = value
            headers = {"content-type": content_type, "content-encoding": encoding} | more
            answer = client.request(
                method, f"{running.http}/v1/{path or signal}", content=bytes(body),
                headers={name: value.strip().encode("latin-1") for name, value in headers.items()},
            )  # fmt: skip
            assert answer.status_code in HTTP_ANSWERS, (answer.status_code, answer.text)

        fuzz(0.1, 80, check)
    assert_well(running)
    read_some(running)


def test_bytes_that_are_no_http_harm_nobody(running: RunningService) -> None:
    host, port = running.http.removeprefix("http://").rsplit(":", 1)
    head = b"POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-protobuf\r\n"
    head += b"content-length: 4\r\n\r\n\x0a\x02\x0a\x00"
    chunked = b"POST /v1/logs HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    chunked += b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
    seeds = [
        ("traces", head),
        ("logs", chunked),
        ("traces", head.replace(b" 4", b" -4")),
        ("logs", b"\x16\x03\x01\x00\xa5"),
    ]

    @given(changed(seeds))
    def check(sent: tuple[str, bytes]) -> None:
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            connection.sendall(sent[1])
            connection.shutdown(socket.SHUT_WR)
            answer = b""
            while piece := connection.recv(65_536):
                answer += piece
        status = re.match(rb"HTTP/1\.1 (\d+)", answer)
        assert not answer or (status and int(status[1]) in HTTP_ANSWERS), answer[:300]

    fuzz(0.05, 40, check)
    assert_well(running)


# ---- OTLP/gRPC ----

METADATA = st.lists(
    st.tuples(st.sampled_from(["authorization", "x-other", "grpc-trace-bin", "te2-bin"]), st.binary(max_size=12)),
    max_size=2,
)


def test_any_request_over_grpc_is_answered_by_the_contract(running: RunningService) -> None:
    names = {"traces": "trace.v1.Trace", "logs": "logs.v1.Logs", "metrics": "metrics.v1.Metrics", "no": "no.v1.No"}
    with grpc.insecure_channel(running.grpc) as channel:

        @given(
            BODIES, st.sampled_from(["", "", "", "traces", "logs", "metrics", "no"]), METADATA,
            st.sampled_from([grpc.Compression.NoCompression, grpc.Compression.Gzip, grpc.Compression.Deflate]),
        )  # fmt: skip
        def check(sent: tuple[str, bytes], other: str, metadata: list[tuple[str, bytes]], compression: Any) -> None:
            signal, body = sent
            service_name = f"opentelemetry.proto.collector.{names[other or signal]}Service"
            pairs = [(name, value if name.endswith("-bin") else value.hex()) for name, value in metadata]
            try:
                channel.unary_unary(f"/{service_name}/Export")(
                    body, metadata=pairs, compression=compression, timeout=60
                )
            except grpc.RpcError as error:
                assert error.code().value[0] in GRPC_ANSWERS, error

        fuzz(0.1, 80, check)
    assert_well(running)
    read_some(running)


def test_memory_does_not_grow_with_what_is_refused(running: RunningService) -> None:
    """Bombs, large noise and endless new keys, sent again and again: the second half adds no more than the first found."""

    def send(number: int) -> None:
        bomb = gzip.compress(bytes(60_000_000), 1)
        for signal, kind in (("traces", "application/json"), ("logs", "application/x-protobuf")):
            headers = {"content-type": kind, "content-encoding": "gzip"}
            assert (
                httpx.post(f"{running.http}/v1/{signal}", content=bomb, headers=headers, timeout=60).status_code == 413
            )
            assert running.post(signal, b"\xff" * 20_000_000, kind).status_code == 400
        keys = ",".join(f'{{"key":"{number} {n}","value":{{"stringValue":"{number} {n}"}}}}' for n in range(20_000))
        span = f'{{"traceId":"{number + 1:032x}","spanId":"{1:016x}","attributes":[{keys}]}}'
        body = f'{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{span}]}}]}}]}}'.encode()
        assert running.post("traces", body, "application/json").status_code == 200

    rounds = 30 if NIGHTLY else 3
    for number in range(rounds):
        send(number)
    half = memory(running)
    for number in range(rounds, 2 * rounds):
        send(number)
    assert memory(running) < half + 150 * 2**20
    assert_well(running)
