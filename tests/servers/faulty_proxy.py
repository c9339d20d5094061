"""A TCP proxy on 127.0.0.1 that can break what passes through it, in the ways networks and servers do.

with faulty_proxy(port_of_a_server) as proxy:
    proxy.port                           where clients connect
    proxy.refuse()                       connections are refused, those that are open are reset
    proxy.hang()                         bytes are taken and nothing comes back
    proxy.slow(0.3)                      every piece of an answer comes that much later
    proxy.lose_answers()                 requests arrive, their answers do not: the connection is reset
    proxy.cut_requests(1000)             reset after so many bytes of a request
    proxy.cut_answers(100)               reset after so many bytes of an answer
    proxy.answer(503, b"...", {...})     this HTTP answer to every request, the server never hears of it
    proxy.heal()                         as before; what hung is passed on now, however late

`only=b"INSERT"` breaks just those connections on which a piece of a request holds these bytes.
"""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

_PIECE = 64 * 1024
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER of zero seconds: closing sends RST."""


@dataclass(frozen=True)
class Fault:
    kind: str
    only: bytes = b""
    seconds: float = 0
    count: int = 0
    status: int = 0
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


_NONE = Fault("")


class FaultyProxy:
    def __init__(self, target: int) -> None:
        self._target = target
        self._fault = _NONE
        self._changed = threading.Condition()
        self._open: set[socket.socket] = set()
        self._listener: socket.socket | None = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port: int = self._listener.getsockname()[1]
        self.struck = 0
        """Times that a fault has struck."""
        self._accept()

    # ---- what can be asked of it

    def heal(self) -> None:
        self._become(_NONE)

    def refuse(self) -> None:
        self._become(Fault("refuse"))

    def hang(self, only: bytes = b"") -> None:
        self._become(Fault("hang", only))

    def slow(self, seconds: float) -> None:
        self._become(Fault("slow", seconds=seconds))

    def lose_answers(self, only: bytes = b"") -> None:
        self._become(Fault("lose", only))

    def cut_requests(self, count: int, only: bytes = b"") -> None:
        self._become(Fault("cut requests", only, count=count))

    def cut_answers(self, count: int, only: bytes = b"") -> None:
        self._become(Fault("cut answers", only, count=count))

    def answer(
        self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None, only: bytes = b""
    ) -> None:
        self._become(Fault("answer", only, status=status, body=body, headers=headers or {}))

    def close(self) -> None:
        self.refuse()

    # ---- how

    def _become(self, fault: Fault) -> None:
        with self._changed:
            self._fault = fault
            self.struck = 0
            self._changed.notify_all()
            connections = list(self._open)
        if fault.kind == "refuse":
            if self._listener is not None:
                with contextlib.suppress(OSError):
                    self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
                self._listener.close()
                self._listener = None
            for connection in connections:
                _reset(connection)
        elif self._listener is None:
            self._listener = socket.create_server(("127.0.0.1", self.port), backlog=512)
            self._accept()

    def _accept(self) -> None:
        listener = self._listener
        assert listener is not None

        def accept() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(("127.0.0.1", self._target))
        except OSError:
            _reset(client)
            return
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._changed:
            self._open |= {client, server}
        broken: list[Fault] = []
        back = threading.Thread(target=self._pump, args=(server, client, broken, False), daemon=True)
        back.start()
        self._pump(client, server, broken, True)
        back.join()
        with self._changed:
            self._open -= {client, server}
        client.close()
        server.close()

    def _pump(self, source: socket.socket, sink: socket.socket, broken: list[Fault], from_client: bool) -> None:
        """One direction. `broken` tells the other one which fault has taken hold of this connection."""
        passed = 0
        try:
            while piece := source.recv(_PIECE):
                fault = self._fault
                if from_client and fault.only in piece:
                    broken[:] = [fault] if fault.kind else []
                held = broken[0] if broken and broken[0] is fault else _NONE
                if not fault.only:
                    held = fault
                if held.kind:
                    self.struck += 1
                if held.kind == "answer" and from_client:
                    _answer(source, piece, held)
                    return
                if held.kind == "slow" and not from_client:
                    time.sleep(held.seconds)
                if held.kind == "hang":
                    with self._changed:
                        self._changed.wait_for(lambda at=held: self._fault is not at)  # type: ignore[misc]
                    if self._fault.kind == "refuse":
                        return
                lost = held.kind == "lose" and not from_client
                if lost or held.kind == ("cut requests" if from_client else "cut answers"):
                    if not lost and passed + len(piece) <= held.count:
                        sink.sendall(piece)
                        passed += len(piece)
                        continue
                    if not lost:
                        sink.sendall(piece[: held.count - passed])
                        time.sleep(0.05)  # let it arrive before the reset overtakes it
                    _reset(source)
                    _reset(sink)
                    return
                passed += len(piece)
                sink.sendall(piece)
        except OSError:
            _reset(source)
            _reset(sink)
        finally:
            with contextlib.suppress(OSError):
                sink.shutdown(socket.SHUT_WR)


def _reset(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        end.shutdown(socket.SHUT_RD)  # wakes recv() in the other thread
    with contextlib.suppress(OSError):
        end.close()


def _answer(client: socket.socket, begun: bytes, fault: Fault) -> None:
    """Reads the whole request, as a server would, and gives the answer."""
    while b"\r\n\r\n" not in begun:
        begun += client.recv(_PIECE)
    head, _, rest = begun.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    if re.search(rb"(?i)\r\ntransfer-encoding: *chunked", head):
        while not rest.endswith(b"0\r\n\r\n"):
            rest += client.recv(_PIECE)
    elif length is not None:
        missing = int(length[1]) - len(rest)
        while missing > 0 and (piece := client.recv(_PIECE)):
            missing -= len(piece)
    headers = {"Content-Length": str(len(fault.body)), "Connection": "close", **fault.headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    body = b"" if head.startswith(b"HEAD ") else fault.body
    client.sendall(f"HTTP/1.1 {fault.status} Said by the proxy\r\n{lines}\r\n".encode() + body)
    client.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def faulty_proxy(target: int) -> Iterator[FaultyProxy]:
    """A healthy proxy to a port of 127.0.0.1."""
    proxy = FaultyProxy(target)
    try:
        yield proxy
    finally:
        proxy.close()
