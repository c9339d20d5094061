"""Senders: OTLP/HTTP on kept connections, as an exporter does it, and the bodies that were sent so far."""

from __future__ import annotations

import http.client
import queue
import threading
import time
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from bench import payload

_PROTOBUF = {"Content-Type": "application/x-protobuf"}


class Load:
    """What a store was given: the bodies of seeds 0, 1, 2 …"""

    def __init__(self) -> None:
        self.requests = 0

    @property
    def spans(self) -> int:
        return self.requests * payload.SPANS_A_BODY

    def next(self, count: int) -> Iterable[bytes]:
        first, self.requests = self.requests, self.requests + count
        return (payload.request(seed) for seed in range(first, first + count))


class Sender:
    """Posts bodies to one OTLP/HTTP door; refused ones again, when the door says so."""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=300)
        self._headers = _PROTOBUF | dict(headers or {})
        self.refused = 0

    def __call__(self, body: bytes) -> None:
        while True:
            self._connection.request("POST", "/v1/traces", body, self._headers)
            response = self._connection.getresponse()
            answer = response.read()
            if response.status == 200:
                return
            if response.status not in (429, 503):
                raise RuntimeError(f"{response.status}: {answer[:300]!r}")
            self.refused += 1
            time.sleep(float(response.headers.get("Retry-After") or 1))

    def close(self) -> None:
        self._connection.close()


def send(url: str, bodies: Iterable[bytes], senders: int, headers: Mapping[str, str] | None = None) -> int:
    """Sends all with that many senders at once; returns when the last is acknowledged. Gives the refusals."""
    waiting: queue.Queue[bytes | None] = queue.Queue(maxsize=2 * senders)
    each_sender = [Sender(url, headers) for _ in range(senders)]
    errors: list[BaseException] = []

    def work(sender: Sender) -> None:
        while (body := waiting.get()) is not None:
            if errors:
                continue
            try:
                sender(body)
            except BaseException as error:
                errors.append(error)

    threads = [threading.Thread(target=work, args=(sender,)) for sender in each_sender]
    for thread in threads:
        thread.start()
    for body in bodies:
        waiting.put(body)
    for _ in threads:
        waiting.put(None)
    for thread in threads:
        thread.join()
    for sender in each_sender:
        sender.close()
    if errors:
        raise errors[0]
    return sum(sender.refused for sender in each_sender)
