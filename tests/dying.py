"""A process that kills itself at a named point of a flush.

    python -m tests.dying '{settings}' POINT PROJECT

stores the first part of `story`, which is acknowledged, and dies while it stores the second.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from otel_blackboard.config import Settings
from otel_blackboard.exporter import flush
from otel_blackboard.exporter.bodies import BodyStore
from otel_blackboard.exporter.packs import Pack
from otel_blackboard.records import LogRecord, Span, Tenant
from otel_blackboard.service import open_stores
from tests.spans import DETAILS, Trace

Part = tuple[tuple[Span, ...], tuple[LogRecord, ...]]

POINTS: dict[str, frozenset[str]] = {
    "inside the put of a body": frozenset(),
    "one pack put": frozenset(),
    "bodies put": frozenset(),
    "spans inserted": frozenset({"spans"}),
    "artifacts inserted": frozenset({"artifacts"}),
    "logs inserted": frozenset({"logs"}),
    "all inserted": frozenset({"spans", "artifacts", "logs"}),
    "read back": frozenset({"spans", "artifacts", "logs"}),
    "resolved inserted": frozenset({"spans", "artifacts", "logs", "resolved"}),
    "run_parts inserted": frozenset({"spans", "artifacts", "logs", "run_parts"}),
    "not acknowledged": frozenset({"spans", "artifacts", "logs", "resolved", "run_parts"}),
}
"""Where a flush can be cut short → the tables that have been written by then."""


def story() -> tuple[Part, Part, Part]:
    """Three flushes of one run (and of a second trace that begins with the second).

    The second ends a tool that is under way, brings the span that a log record waits for, completes a span of the first by
    a log record, adds a pass, and gives the run its id.
    """
    main, other = Trace("main"), Trace("other")
    notice = main.flow("flow", 0, blackboard__pending=True)
    first = main.agent("planner", 10, 19, notice)
    main.chat(11, 12, first, tokens=(100, 10), said="first", blackboard__request__body='{"first":1}')
    tool = main.tool("look", 13, 14, first, '{"n":1}', "result one")
    quiet = main.tool("quiet", 15, 16, first, '{"n":2}')
    waiting = main.tool("late", 17, 18, first, '{"n":3}')
    begun = main.tool("slow", 18.2, 18.3, first, '{"n":4}', blackboard__pending=True)
    told = main.log(waiting, DETAILS, 17.5, gen_ai__tool__call__result="told before its span")
    loose = main.log(tool, "app.note", 18, body="a note of the trace")
    loose.span_id = ""
    before: Part = ((notice, first, main.spans[2], tool, quiet, begun), (told, loose))

    root = main.flow("flow", 0, 99, blackboard__run__id="run_named")
    root.span_id = notice.span_id
    done = main.tool("slow", 18.2, 18.9, first, '{"n":4}', "slow result")
    done.span_id = begun.span_id
    place = len(main.spans)
    second = main.agent("planner", 20, 29, root)
    main.chat(21, 22, second, tokens=(200, 20), said="second", blackboard__request__body='{"second":2}')
    main.tool("look", 23, 24, second, '{"n":5}', "result two")
    completes = main.log(quiet, DETAILS, 15.5, gen_ai__tool__call__result="told afterwards")
    far = other.agent("planner", 40, 49)
    other.tool("look", 41, 42, far, '{"n":6}', "result of another trace")
    half: Part = ((root, done, waiting, *main.spans[place:], *other.spans), (completes,))

    third = main.agent("planner", 30, 39, root)
    more = [third, main.tool("look", 31, 32, third, '{"n":7}', "result three")]
    more.append(other.tool("look", 43, 44, far, '{"n":8}', "another result"))
    return before, half, (tuple(more), ())


def of(tenant: Tenant, part: Part) -> tuple[list[tuple[Tenant, Span]], list[tuple[Tenant, LogRecord]]]:
    return [(tenant, span) for span in part[0]], [(tenant, record) for record in part[1]]


def die(*_: Any) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("SIGKILL")


def arm(point: str, exporter: flush.Exporter) -> None:
    """From now on the first flush ends in this process's death at `point`."""
    if point == "inside the put of a body":
        cut_a_put_short()
    elif point == "one pack put":
        put = flush.write_packs

        def first_pack(store: BodyStore, packs: Sequence[Pack], pool: Any) -> None:
            put(store, packs[:1])
            die()

        flush.write_packs = first_pack  # type: ignore[assignment]
    elif point == "bodies put":
        exporter._store = die  # type: ignore[method-assign]
    elif point == "all inserted":
        exporter._read_back = die  # type: ignore[method-assign]
    elif point == "read back":
        exporter._resolve = die  # type: ignore[method-assign]
    else:
        let_through(POINTS[point])


def let_through(tables: frozenset[str]) -> None:
    """Inserts into these tables are done, then the process dies; the others wait."""
    left, lock, insert = set(tables), threading.Lock(), flush.insert

    def some(client: Any, table: str, columns: Any, values: Any) -> None:
        if table not in tables:
            time.sleep(60)
            raise AssertionError(f"nobody killed the process before it wrote {table}")
        insert(client, table, columns, values)
        with lock:
            left.discard(table)
            if not left:
                die()

    flush.insert = some


def cut_a_put_short() -> None:
    """Into a folder: the file is written and not yet in its place. Into S3: half of the request's body is sent."""
    Path.replace = die  # type: ignore[assignment,method-assign]
    send = http.client.HTTPConnection.send

    def half(connection: http.client.HTTPConnection, data: Any) -> None:
        if isinstance(data, bytes) and not data.startswith((b"PUT ", b"POST ")):
            send(connection, data[: len(data) // 2])
            die()
        send(connection, data)

    http.client.HTTPConnection.send = half  # type: ignore[method-assign]


def main() -> None:
    point, project = sys.argv[2:]
    tenant = Tenant("default", project)
    before, half, _ = story()
    with open_stores(Settings(**json.loads(sys.argv[1]))) as stores:
        stores.exporter.flush(*of(tenant, before))
        print("acknowledged", flush=True)
        arm(point, stores.exporter)
        stores.exporter.flush(*of(tenant, half))


if __name__ == "__main__":
    main()
