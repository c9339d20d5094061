"""Reads through the REST API on a kept connection: routes for random runs, at rest and while spans arrive."""

from __future__ import annotations

import http.client
import itertools
import json
import random
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

from bench import payload
from bench.processes import settle
from bench.sending import Load, send
from tests.running_service import RunningService

_PROJECT = "project_id=default"
Times = dict[str, list[float]]
"""Route → ms of each read."""


class Client:
    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)

    def __call__(self, path: str, sent: Any = None, token: str = "") -> Any:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if sent is None:
            self._connection.request("GET", path, headers=headers)
        else:
            body = json.dumps(sent)
            self._connection.request("POST", path, body, headers | {"Content-Type": "application/json"})
        response = self._connection.getresponse()
        answer = json.loads(response.read())
        if response.status not in (200, 201):
            raise RuntimeError(f"{response.status} for {path}: {answer}")
        return answer


def at_rest(running: RunningService, load: Load, samples: int) -> Times:
    settle(quiet=1, most=120)
    reading = _reading(running, load.requests)
    next(reading)  # what is done once, the first time, is not what a read costs
    return _merged(next(reading) for _ in range(samples))


def while_spans_arrive(running: RunningService, load: Load, requests: int, senders: int) -> tuple[Times, float]:
    """Reads one after another for as long as the senders send; and spans/s of what arrived meanwhile."""
    reading, ended = _reading(running, load.requests), list[float]()
    bodies = list(load.next(requests))  # takes longer than an idle connection is kept
    next(reading)
    with ThreadPoolExecutor(1) as pool:
        begun = time.perf_counter()
        sending = pool.submit(send, running.http, bodies, senders)
        sending.add_done_callback(lambda _: ended.append(time.perf_counter()))
        times = _merged(itertools.takewhile(lambda _: not sending.done(), reading))
        sending.result()
    return times, len(bodies) * payload.SPANS_A_BODY / (ended[0] - begun)


def _reading(running: RunningService, sent: int) -> Iterator[Times]:
    """Every route once, each time for another run of the first `sent` requests."""
    ask, rnd = Client(running.api), random.Random(sent)
    seeds = rnd.sample(range(sent), min(8, sent))
    runs = [payload.run_of(trace) for seed in seeds for trace in payload.traces(payload.request(seed))]
    for run in itertools.cycle(rnd.sample(runs, len(runs))):
        token = ask(f"/api/v1/runs/{run}/tokens?{_PROJECT}", {"capabilities": ["query_blackboard"]})["token"]
        common, rare = (rnd.sample(words, 2) for words in (payload.COMMON, payload.RARE))
        # Path, and what must not be empty: no empty answer may pass for a fast one.
        routes = {
            "run list": ("/runs?limit=50", "count"),
            "run": (f"/runs/{run}?", "span_count"),
            "timeline": (f"/runs/{run}/timeline?", "count"),
            "artifact list": (f"/runs/{run}/artifacts?", "count"),
            "ledger": (f"/runs/{run}/ledger?", "lines"),
            "search, common words": (f"/search?q={'+'.join(common)}", ""),
            "search, rare words": (f"/search?q={'+'.join(rare)}", ""),
        }
        times: Times = {}
        for name, (path, wanted) in routes.items():
            begun = time.perf_counter()
            answer = ask(f"/api/v1{path}&{_PROJECT}")
            times[name] = [(time.perf_counter() - begun) * 1000]
            if wanted and not answer[wanted]:
                raise RuntimeError(f"{name}: the answer was empty")
        begun = time.perf_counter()
        ask("/api/v1/recall", {"query": " ".join(common), "top_k": 5}, token)
        times["recall"] = [(time.perf_counter() - begun) * 1000]
        yield times


def _merged(rounds: Iterator[Times]) -> Times:
    merged: Times = defaultdict(list)
    for times in rounds:
        for route, some in times.items():
            merged[route] += some
    return merged
