"""An HTTP front over chDB for tests of the ClickHouse path. It is not a ClickHouse server.

Behind it is the same engine, in a process of its own because chDB allows one process per folder. In front it speaks as
much of ClickHouse's HTTP interface as clickhouse-connect's sync client uses:

  - GET and POST, the statement in the URL, the body or both, multipart forms, `param_*`, settings and `database` in the
    URL, sessions, /ping;
  - any output format; INSERT with the data behind `FORMAT name` in any input format;
  - bodies compressed with lz4 (frames), zstd, gzip or deflate, both ways;
  - X-ClickHouse-Summary, -Query-Id, -Format, -Timezone, -Exception-Code; errors as text with the server's status.

What a real server has and this has not: users, quotas and row policies, clusters and replication, external data,
asynchronous inserts, progress headers, results sent while they are made, `query_id`s that KILL QUERY knows,
ClickHouse's own block compression (`compress=1`). Every user is the same one; a password is checked only if one is set.

By hand, from the root of the checkout: `python -m tests.servers.clickhouse_over_chdb --data DIR --port 0`, which prints
the port.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import email.parser
import email.policy
import gzip
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
import zlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import chdb
import lz4.frame

from tests.servers import free_ports, running, wait_until

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

# HTTP status by error code, from exceptionCodeToHTTPStatus in ClickHouse's src/Server/HTTP; every other code is 500.
_STATUS = {
    **dict.fromkeys((46, 47, 50, 56, 60, 63, 73, 78, 81, 115, 336, 417), 404),
    **dict.fromkeys((6, 26, 27, 36, 38, 41, 43, 53, 62, 69, 72, 117, 130, 131, 349, 373, 456, 457), 400),
    **dict.fromkeys((192, 193, 516), 403),
    48: 501,
    159: 408,
    194: 401,
    223: 413,
}

# URL parameters that are not settings.
_RESERVED = frozenset(
    "query database user password quota_key session_id session_timeout session_check query_id default_format compress "
    "decompress buffer_size wait_end_of_query enable_http_compression http_zlib_compression_level role close_session "
    "send_progress_in_http_headers http_headers_progress_interval_ms client_protocol_version stacktrace".split()
)

_LONGEST_FIELD = 128 * 1024
"""A server's http_max_field_value_size: bytes in one parameter."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INSERT = re.compile(rb"(\s*INSERT\s+INTO\s.*?)\bFORMAT\s+(\w+)[ \t]*;?[ \t]*(?:\r?\n|\Z)", re.IGNORECASE | re.DOTALL)
_OUTPUT_FORMAT = re.compile(rb"\bFORMAT\s+(\w+)(?:\s+SETTINGS\s[^()]*)?\s*;?\s*\Z", re.IGNORECASE)
_CHANGES_SESSION = re.compile(rb"\s*(?:SET|USE|CREATE\s+TEMPORARY)\s", re.IGNORECASE)
_CODE = re.compile(r"Code: (\d+)\.")

_MAX_SESSIONS = 64


class QueryError(Exception):
    """An error as ClickHouse words it."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def query_error(error: Exception) -> QueryError:
    """What chDB raised, without what chDB puts before it."""
    text = str(error)
    text = text[max(0, text.find("Code: ")) :].strip()
    code = _CODE.match(text)
    return QueryError(int(code[1]), text) if code else QueryError(1002, f"Code: 1002. DB::Exception: {text}")


@dataclass
class Handle:
    """One chDB connection and what was set on it."""

    connection: Any
    database: str = ""
    settings: dict[str, str] = field(default_factory=dict)

    def prepare(self, database: str, settings: Mapping[str, str]) -> None:
        """Makes database and settings those of the request, by statements for the differences only."""
        if database and database != self.database:
            quoted = database.replace("\\", "\\\\").replace("`", "\\`")
            self.connection.query(f"USE `{quoted}`", "Null")
            self.database = database
        for name in [name for name in self.settings if name not in settings]:
            self.connection.query(f"SET {name} = DEFAULT", "Null")
            del self.settings[name]
        # readonly last: it forbids the others.
        for name, value in sorted(settings.items(), key=lambda item: item[0] == "readonly"):
            if self.settings.get(name) == value:
                continue
            if not _NAME.fullmatch(name):
                raise QueryError(
                    115, f"Code: 115. DB::Exception: Setting {name} is neither a builtin setting nor started"
                )
            quoted = value.replace("\\", "\\\\").replace("'", "\\'")
            self.connection.query(f"SET {name} = '{quoted}'", "Null")
            self.settings[name] = value


class Engine:
    """The chDB folder: connections without a session are pooled, each session keeps its own."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._free: list[Handle] = []
        self._sessions: OrderedDict[str, Handle | None] = OrderedDict()
        with self.handle("", {}, "") as first:
            self.timezone = first.connection.query("SELECT timezone()", "TabSeparatedRaw").bytes().decode().strip()

    @contextlib.contextmanager
    def handle(self, database: str, settings: dict[str, str], session: str, keep: bool = True) -> Iterator[Handle]:
        """A connection with this database and these settings. Raises QueryError.

        `keep` is false for a statement whose effect must end with the request, as it does without a session.
        """
        handle = self._take(database, settings, session)
        healthy = False
        try:
            handle.prepare(database if session else database or "default", settings)
            yield handle
            healthy = keep or bool(session)
        except QueryError:
            healthy = keep or bool(session)
            raise
        except Exception as error:
            healthy = keep or bool(session)
            raise query_error(error) from error
        finally:
            # What is read-only cannot be set back.
            if "readonly" in handle.settings and not session:
                healthy = False
            self._give_back(handle, session, healthy)

    def _take(self, database: str, settings: dict[str, str], session: str) -> Handle:
        with self._lock:
            if session:
                if session in self._sessions:
                    handle = self._sessions[session]
                    if handle is None:
                        raise QueryError(
                            373, f"Code: 373. DB::Exception: Session {session} is locked by a concurrent client"
                        )
                    self._sessions[session] = None
                    return handle
                self._sessions[session] = None
            elif self._free:
                fitting = (h for h in self._free if h.database == (database or "default") and h.settings == settings)
                handle = next(fitting, self._free[-1])
                self._free.remove(handle)
                return handle
        return Handle(chdb.connect(self._path))

    def _give_back(self, handle: Handle, session: str, healthy: bool) -> None:
        closing: list[Handle | None] = []
        with self._lock:
            if session and healthy:
                self._sessions[session] = handle
                self._sessions.move_to_end(session)
                idle = [name for name, kept in self._sessions.items() if kept is not None]
                closing += [self._sessions.pop(name) for name in idle[:-_MAX_SESSIONS]]
            elif session:
                del self._sessions[session]
                closing.append(handle)
            elif healthy:
                self._free.append(handle)
            else:
                closing.append(handle)
        for one in closing:
            if one is not None:
                one.connection.close()


@dataclass
class Request:
    """One request, decoded: the statement, the data of an INSERT, and what goes with them."""

    statement: bytes
    data: bytes | None
    """None when the statement is no INSERT with data behind it."""
    input_format: str
    database: str
    session: str
    settings: dict[str, str]
    parameters: dict[str, str]
    default_format: str


@dataclass
class Answer:
    body: bytes
    format: str
    """'' when the statement has no result set."""
    summary: dict[str, str]


def read_request(method: str, options: Mapping[str, str], body: bytes) -> Request:
    """Sorts a request into its parts. Raises QueryError."""
    if options.get("compress", "0") != "0" or options.get("decompress", "0") != "0":
        raise QueryError(48, "Code: 48. DB::Exception: this front knows no block compression (NOT_IMPLEMENTED)")
    if any(len(value.encode("utf-8", "surrogateescape")) > _LONGEST_FIELD for value in options.values()):
        raise QueryError(1000, "Code: 1000. DB::Exception: Field value too long in HTML Form. (POCO_EXCEPTION)")
    settings = {
        name: value for name, value in options.items() if name not in _RESERVED and not name.startswith("param_")
    }
    if method == "GET":
        settings.setdefault("readonly", "2")
    text = options.get("query", "").encode()
    # As the server does: what the URL says comes before what the body says.
    whole = text + b"\n" + body if text and body else text or body
    insert = _INSERT.match(whole[: len(text) + 65536])
    return Request(
        statement=insert[1] if insert else whole,
        data=whole[insert.end() :] if insert else None,
        input_format=insert[2].decode() if insert else "",
        database=options.get("database", ""),
        session=options.get("session_id", ""),
        settings=settings,
        parameters={name[6:]: value for name, value in options.items() if name.startswith("param_")},
        default_format=options.get("default_format", ""),
    )


def run(engine: Engine, request: Request) -> Answer:
    """Runs it. Raises QueryError."""
    if not request.statement.strip():
        raise QueryError(62, "Code: 62. DB::Exception: Syntax error: empty query. (SYNTAX_ERROR)")
    keep = not _CHANGES_SESSION.match(request.statement)
    started = time.monotonic_ns()
    with engine.handle(request.database, request.settings, request.session, keep) as handle:
        answer = _query(handle, request) if request.data is None else _insert(handle, request)
    answer.summary["elapsed_ns"] = str(time.monotonic_ns() - started)
    return answer


def _insert(handle: Handle, request: Request) -> Answer:
    if request.parameters:
        raise QueryError(48, "Code: 48. DB::Exception: this front knows no parameters in INSERT (NOT_IMPLEMENTED)")
    with handle.connection.send_insert(request.statement.decode(), request.input_format) as stream:
        if request.data:
            stream.append(request.data)
        result = stream.finish()
    return Answer(b"", "", {"written_rows": str(result.rows_written), "written_bytes": str(result.bytes_written)})


def _query(handle: Handle, request: Request) -> Answer:
    named = _OUTPUT_FORMAT.search(request.statement)
    output = named[1].decode() if named else request.default_format
    # chDB does not say whether a statement has a result set. With names every result has at least that line.
    result = handle.connection.query(
        request.statement.decode("utf-8", "surrogateescape"), output or "TabSeparatedWithNames", request.parameters
    )
    body = bytes(result.bytes() or b"")
    if not output:
        output = "TabSeparated" if body else ""
        body = body.partition(b"\n")[2]
    summary = {"read_rows": str(result.rows_read()), "read_bytes": str(result.bytes_read())}
    return Answer(body, output, summary)


# Compression


def decompress(data: bytes, encoding: str) -> bytes:
    """A body in the encoding that its header names; frames may follow each other. Raises QueryError."""
    if encoding in ("", "identity"):
        return data
    if encoding == "lz4":
        parts = []
        while data:
            decompressor = lz4.frame.LZ4FrameDecompressor()
            parts.append(decompressor.decompress(data))
            data = decompressor.unused_data or b""
        return b"".join(parts)
    if encoding == "zstd":
        return bytes(zstd.decompress(data))
    if encoding == "gzip":
        return gzip.decompress(data)
    if encoding == "deflate":
        return zlib.decompress(data)
    raise QueryError(48, f"Code: 48. DB::Exception: Unknown compression method {encoding} (NOT_IMPLEMENTED)")


def compress(data: bytes, accepted: str) -> tuple[bytes, str]:
    """The body in the first encoding asked for that is known, and that encoding or ''."""
    for encoding in (part.partition(";")[0].strip() for part in accepted.split(",")):
        if encoding == "lz4":
            return lz4.frame.compress(data), encoding
        if encoding == "zstd":
            return zstd.compress(data), encoding
        if encoding == "gzip":
            return gzip.compress(data, 1), encoding
        if encoding == "deflate":
            return zlib.compress(data, 1), encoding
    return data, ""


# HTTP


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    engine: Engine
    password: str

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def log_message(self, format: str, *args: object) -> None:
        """Tests would only drown in it."""

    def _serve(self) -> None:
        body = self._read_body()
        url = urlsplit(self.path)
        options = dict(parse_qsl(url.query, keep_blank_values=True))
        if url.path == "/ping" or (url.path == "/" and not options and not body):
            self._answer(200, b"Ok.\n", {})
            return
        headers = {
            "X-ClickHouse-Query-Id": options.get("query_id") or str(uuid.uuid4()),
            "X-ClickHouse-Server-Display-Name": "chdb-front",
            "X-ClickHouse-Timezone": self.engine.timezone,
        }
        try:
            self._authenticate(options)
            body = self._read_form(options, decompress(body, self.headers.get("Content-Encoding", "")))
            answer = run(self.engine, read_request(self.command, options, body))
        except Exception as error:
            failure = error if isinstance(error, QueryError) else query_error(error)
            headers["X-ClickHouse-Exception-Code"] = str(failure.code)
            self._answer(_STATUS.get(failure.code, 500), f"{failure}\n".encode(), headers)
            return
        headers["X-ClickHouse-Summary"] = json.dumps(answer.summary)
        if answer.format:
            headers["X-ClickHouse-Format"] = answer.format
        data = answer.body
        if options.get("enable_http_compression", "0") != "0" and data:
            data, encoding = compress(data, self.headers.get("Accept-Encoding", ""))
            if encoding:
                headers["Content-Encoding"] = encoding
        self._answer(200, data, headers)

    def _authenticate(self, options: Mapping[str, str]) -> None:
        if not self.password:
            return
        given = self.headers.get("X-ClickHouse-Key") or options.get("password", "")
        authorization = self.headers.get("Authorization", "")
        if authorization.startswith("Basic "):
            given = base64.b64decode(authorization[6:]).decode().partition(":")[2]
        if given != self.password:
            raise QueryError(
                516,
                "Code: 516. DB::Exception: default: Authentication failed: password is incorrect, or there is no user "
                "with such name. (AUTHENTICATION_FAILED)",
            )

    def _read_form(self, options: dict[str, str], body: bytes) -> bytes:
        """Fields of a multipart form become options, as large parameters come. Files (external data) are refused."""
        content_type = self.headers.get("Content-Type", "")
        if not content_type.startswith("multipart/form-data"):
            return body
        head = f"Content-Type: {content_type}\r\n\r\n".encode()
        form = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + body)
        for part in form.iter_parts():
            name = part.get_param("name", header="content-disposition")
            if part.get_filename() is not None:
                raise QueryError(48, "Code: 48. DB::Exception: this front knows no external data (NOT_IMPLEMENTED)")
            payload = part.get_payload(decode=True)
            assert isinstance(payload, bytes)
            options[str(name)] = payload.decode("utf-8", "surrogateescape")
        return b""

    def _read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(parts)

    def _answer(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "text/plain; charset=UTF-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def main() -> None:
    parser = argparse.ArgumentParser(description="A front over chDB that speaks ClickHouse's HTTP protocol, for tests")
    parser.add_argument("--data", required=True, help="folder of the engine")
    parser.add_argument("--port", type=int, default=0, help="port of 127.0.0.1; 0 = any free one")
    parser.add_argument("--password", default="", help="of every user; empty = not asked for")
    arguments = parser.parse_args()
    Handler.engine = Engine(arguments.data)
    Handler.password = arguments.password
    server = Server(("127.0.0.1", arguments.port), Handler)
    print(server.server_port, flush=True)
    _end_with(os.getppid())
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    server.serve_forever()


def _end_with(parent: int) -> None:
    """Ends this process when the one that started it is gone, however it went."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


@contextlib.contextmanager
def clickhouse_over_chdb(folder: Path, port: int = 0, password: str = "") -> Iterator[str]:
    """Yields a DSN once it answers queries. Engine folder and log lie in `folder`; about 2 seconds.

    Start it again with the same folder and port to test what an outage does.
    """
    port = port or free_ports(1)[0]
    with front_process(folder, port, password):
        yield f"clickhouse://default:{quote(password, '')}@127.0.0.1:{port}"


@contextlib.contextmanager
def front_process(folder: Path, port: int, password: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """The same, for tests that kill the process."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [
        *(sys.executable, "-m", "tests.servers.clickhouse_over_chdb"),
        *(f"--data={folder / 'clickhouse'}", f"--port={port}", f"--password={password}"),
    ]
    log = folder / "clickhouse.log"

    def answers() -> bool:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/ping", timeout=5) as response:
            return bool(response.read() == b"Ok.\n")

    root = Path(__file__).parents[2]
    with running(command, log, {"TZ": "UTC"}, cwd=root) as process:
        wait_until(answers, process, log)
        yield process


if __name__ == "__main__":
    main()
