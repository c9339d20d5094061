"""Reads through the REST API on a kept connection, at a store of many spans."""

from __future__ import annotations

import http.client
import json
import random
import time
from collections.abc import Callable
from typing import Any

from bench import PROJECT, Figure, Service, payload, percentile
from bench.ingest import send

Answer = Callable[[str], int]
"""Asks for one run; gives the number of things answered."""


class Client:
    def __init__(self, service: Service) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", service.api, timeout=60)

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


def fill(service: Service, seeds: range) -> None:
    send(service, (payload.body(seed) for seed in seeds), threads=4)
    service.settle(quiet=1, most=120)


def measure(service: Service, seeds: range, samples: int) -> list[Figure]:
    """p50 and p95 of each route over random runs of `seeds`."""
    ask = Client(service)
    rnd = random.Random(1)
    runs_a_body = payload.SPANS_A_BODY // payload.SPANS_A_RUN
    runs = [payload.run_id(rnd.choice(seeds), rnd.randrange(runs_a_body)) for _ in range(samples)]
    project = f"project_id={PROJECT}"
    tokens = {
        run: ask(f"/api/v1/runs/{run}/tokens?{project}", {"capabilities": ["query_blackboard"]})["token"]
        for run in runs
    }
    words = [" ".join(rnd.sample(payload.words(), 2)) for _ in runs]

    def recall(run: str) -> int:
        query = words[runs.index(run)]
        return len(ask("/api/v1/recall", {"query": query, "top_k": 5}, tokens[run])["results"])

    routes: dict[str, tuple[Answer, str]] = {
        "run list, 50 of all": (lambda run: ask(f"/api/v1/runs?{project}&limit=50")["count"], "budget 40 / 80"),
        "run": (lambda run: ask(f"/api/v1/runs/{run}?{project}")["span_count"], ""),
        "timeline": (lambda run: ask(f"/api/v1/runs/{run}/timeline?{project}")["count"], ""),
        "artifact list": (lambda run: ask(f"/api/v1/runs/{run}/artifacts?{project}")["count"], "budget 40 / 80"),
        "ledger": (lambda run: len(ask(f"/api/v1/runs/{run}/ledger?{project}")["lines"]), "budget 40 / 80"),
        "recall, 5 with their bodies": (recall, "budget 40 / 80"),
    }
    figures = []
    for name, (answer, note) in routes.items():
        answer(runs[0])
        cpu, times, found = service.cpu_seconds(), [], 0
        for run in runs:
            started = time.perf_counter()
            found += answer(run)
            times.append((time.perf_counter() - started) * 1000)
        cpu = (service.cpu_seconds() - cpu) / samples * 1000
        if not found:
            raise RuntimeError(f"{name}: every answer was empty")
        figures.append(Figure(f"{name}, p50", percentile(times, 0.5), "ms", f"CPU {cpu:.0f} ms {note}".rstrip()))
        figures.append(Figure(f"{name}, p95", percentile(times, 0.95), "ms"))
    return figures
