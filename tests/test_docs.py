"""The documents say what is there: settings, routes, options, attributes, refusals and folders, each against its one source."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import click
import httpx
import pytest
from pydantic import SecretStr

from otel_blackboard.access import ORGANIZATION_ATTRIBUTE, PERMISSIONS, PROJECT_ATTRIBUTE
from otel_blackboard.cli import main
from otel_blackboard.collector.answers import ANSWERS
from otel_blackboard.config import Settings
from otel_blackboard.exporter.clickhouse import OLDEST_SERVER
from otel_blackboard.exporter.reader import Reader
from otel_blackboard.processor.dialects import blackboard
from otel_blackboard.processor.dialects.log_spans import FROM_LOG, TRACED
from otel_blackboard.query.api import make_api
from tests.running_service import RunningService, service

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "otel_blackboard"
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "deploy/README.md",
]
OURS = [path for path in DOCUMENTS if path.parent.name != "deploy"]

documents = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
ours = pytest.mark.parametrize("path", OURS, ids=lambda path: str(path.relative_to(ROOT)))


def rows(path: Path, heading: str) -> list[list[str]]:
    """The cells of all tables below a heading, without the head rows."""
    text = path.read_text()
    assert text.count(f"\n## {heading}\n") == 1, f"{path.name} has no heading {heading!r}"
    section = text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    found = []
    for position, line in enumerate(lines):
        is_rule = line.startswith("| ---")
        is_head = position + 1 < len(lines) and lines[position + 1].startswith("| ---")
        if not is_rule and not is_head:
            found.append([cell.strip() for cell in line.strip("|").split(" | ")])
    assert found, f"{path.name}: no table below {heading!r}"
    return found


_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(path: Path, language: str) -> list[str]:
    return [content for name, content in _BLOCK.findall(path.read_text()) if name == language]


def quoted(text: str) -> list[str]:
    """What stands in backquotes, blocks left out."""
    return re.findall(r"`([^`]+)`", _BLOCK.sub("", text))


README = ROOT / "README.md"
AGENT = ROOT / "docs" / "point-your-agent.md"
WORKS = ROOT / "docs" / "how-it-works.md"


# --- tables ------------------------------------------------------------------------------------------------------------


def test_the_settings_table_is_config() -> None:
    def shown(value: Any) -> str:
        if isinstance(value, SecretStr):
            value = value.get_secret_value()
        if value is None or value == "":
            return "empty"
        return f"`{str(value).lower() if isinstance(value, bool) else value}`"

    expected = [
        [f"`BLACKBOARD_{name.upper()}`", shown(field.default), field.description]
        for name, field in Settings.model_fields.items()
    ]
    assert rows(README, "Settings") == expected


def test_the_routes_table_is_the_api(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path, token_secret=SecretStr("a secret of thirty-two bytes, yes"))
    paths = make_api(cast(Reader, None), settings, None, lambda: "").openapi()["paths"]
    there = {
        f"{method.upper()} {path}": description for path, each in paths.items() for method, description in each.items()
    }
    told = {quoted(cells[0])[0]: cells[1] for cells in rows(README, "REST")}
    assert set(told) == set(there)
    for route, text in told.items():
        known = {parameter["name"] for parameter in there[route].get("parameters", [])}
        assert {word for word in quoted(text) if re.fullmatch("[a-z_]+", word)} <= known, route


def test_the_command_table_is_the_command_line() -> None:
    told = {quoted(cells[0])[0].split(" ", 1)[1]: cells[1] for cells in rows(README, "The command line")}
    commands = dict(_commands(main))
    assert {name.removesuffix(" FILE…") for name in told} == set(commands)
    for name, text in told.items():
        command = commands[name.removesuffix(" FILE…")]
        named = {word for word in quoted(text) if word.startswith("--")}
        assert named <= _options(command), name
        if name in ("serve", "demo", "keys new"):
            assert named == _options(command) - {"--help", "-h"}, f"{name}: an option is not told"


def _commands(group: click.Group, above: str = "") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from _commands(command, f"{above}{name} ")
        else:
            yield above + name, command


def _options(command: click.Command) -> set[str]:
    names = {"--help", "-h"}
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            names |= {*parameter.opts, *parameter.secondary_opts}
    return names


def test_the_attributes_table_is_what_the_dialect_reads() -> None:
    dialect = blackboard.DIALECT
    tables = (dialect.facts, dialect.content, dialect.labels)
    read = {key for table in tables for keys in table.values() for key in keys if key.startswith("blackboard.")}
    read -= {FROM_LOG, TRACED}  # not for emitters
    read |= {ORGANIZATION_ATTRIBUTE, PROJECT_ATTRIBUTE, "blackboard.span.role", "blackboard.pending"}
    section = AGENT.read_text().split("\n## Our own attributes\n")[1]
    assert {word for word in quoted(section) if re.fullmatch(r"blackboard\.[a-z_.]+[a-z]", word)} == read


def test_the_page_of_dialects_is_what_the_dialects_say() -> None:
    """Made anew by `python -m tests.dialect_table > docs/dialects.md`."""
    from tests.dialect_table import document

    assert (ROOT / "docs" / "dialects.md").read_text() == document()


def test_the_refusals_table_is_the_contract_of_the_doors() -> None:
    from google.rpc import code_pb2

    told = {
        (int(cells[1]), cells[2], cells[3].startswith("yes"))
        for cells in rows(WORKS, "What an acknowledgement means")
        if len(cells) == 4
    }
    left_out = {"not_found", "method_not_allowed", "internal"}  # no sender of OTLP meets these
    assert told == {
        (answer.http, code_pb2.Code.Name(answer.grpc), answer.retryable)
        for situation, answer in ANSWERS.items()
        if situation not in left_out
    }


def test_roles_and_the_oldest_server_are_told() -> None:
    text = README.read_text()
    assert set(PERMISSIONS) <= set(quoted(text.split("\n## For a team\n")[1]))
    assert f"({'.'.join(map(str, OLDEST_SERVER))} or newer)" in text


@documents
def test_variables_that_are_named_exist(path: Path) -> None:
    from otel_blackboard.doctor import _OTHER_VARIABLES

    known = {f"BLACKBOARD_{name.upper()}" for name in Settings.model_fields} | _OTHER_VARIABLES
    named = set(re.findall(r"\bBLACKBOARD_[A-Z0-9_]*[A-Z0-9]\b", path.read_text()))
    assert {name for name in named if "_TEST_" not in name} <= known


# --- text --------------------------------------------------------------------------------------------------------------


@documents
def test_links_lead_somewhere(path: Path) -> None:
    text = path.read_text()
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in target:
            assert (path.parent / target).exists(), f"{path.name} links to {target}"
    # Paths in the text itself, as `deploy/collector/config.yaml`; a leading `src/otel_blackboard/` may be left out.
    for word in quoted(text):
        if re.fullmatch(r"\.?[a-z_][\w.-]*(/[\w.-]+)+", word) and not word.startswith(
            ("application/", "http/", "rows/")
        ):
            places = (path.parent / word, ROOT / word, SOURCE / word)
            assert any(place.exists() for place in places), f"{path.name} names {word}"


@ours
def test_no_document_shows_a_path_of_the_machine_it_was_written_on(path: Path) -> None:
    assert not re.search(r"(?<![\w.~-])/(?:tmp|root|work|home|Users)/", path.read_text())


@documents
def test_commands_of_ours_name_what_exists(path: Path) -> None:
    commands = dict(_commands(main))
    for words in _shell_commands(path):
        names = [word.rsplit("/", 1)[-1] for word in words]
        if "otel-blackboard" in names and words[0] not in ("docker", "cd"):
            arguments = words[names.index("otel-blackboard") + 1 :]
            if arguments[:1] == ["--help"] or not arguments:
                continue
            name = next((name for name in commands if arguments[: len(name.split())] == name.split()), None)
            assert name, f"{path.name}: {' '.join(words)}"
            given = {word.split("=")[0] for word in arguments if word.startswith("--")}
            assert given <= _options(commands[name]), f"{path.name}: {' '.join(words)}"
            required = {
                max(parameter.opts, key=len)
                for parameter in commands[name].params
                if isinstance(parameter, click.Option) and parameter.required
            }
            assert required <= given, f"{path.name}: {' '.join(words)}"
        if words[0] == "make":
            targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
            variables = re.findall(r"^([A-Z_]+) \?=", (ROOT / "Makefile").read_text(), re.MULTILINE)
            for word in words[1:]:
                assert word.split("=")[0] in (variables if "=" in word else targets), f"{path.name}: {' '.join(words)}"


def _shell_commands(path: Path) -> Iterator[list[str]]:
    for block in blocks(path, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            try:
                words = shlex.split(line, comments=True)
            except ValueError:  # a quotation over several lines, or a substitution: not one of ours
                continue
            # Assignments before a command (`NAME=value otel-blackboard serve`) belong to the shell.
            while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                words = words[1:]
            if words:
                yield words


def test_the_two_commands_stand_in_the_readme() -> None:
    first = blocks(README, "sh")[0]
    assert re.findall(r"^make (\w+)", first, re.MULTILINE) == ["demo", "test"]


def test_the_excerpt_of_the_demo_is_what_the_demo_prints() -> None:
    """Its headings and its ledger, word for word; ids and times are of one run."""
    from otel_blackboard.demo import story
    from otel_blackboard.query.ledger import HEADING

    excerpt = next(block for block in blocks(README, "") if "Action ledger" in block)
    source = Path(story.__file__).read_text()
    for title in re.findall(r"^([A-Z].+?) -{5,}$", excerpt, re.MULTILINE):
        assert title.removesuffix(" of researcher") in source
    told = "\n".join(line.removeprefix("  | ") for line in excerpt.splitlines() if line.startswith("  | "))
    assert told.startswith(HEADING)


# --- the layout --------------------------------------------------------------------------------------------------------

ORDER = (
    {"cli"}, {"doctor", "importing"}, {"service"}, {"collector", "query"}, {"exporter"}, {"processor"}, {"access"},
    {"records", "config"}, {"failures"}, {"__init__"},
)  # fmt: skip
"""The arrows rule of CONTRIBUTING.md: each imports from later sets only."""


def test_the_layout_in_contributing_is_the_folders() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    layout = next(block for block in blocks(ROOT / "CONTRIBUTING.md", "") if block.startswith("src/"))
    told = {line.split()[0].rstrip("/") for line in layout.splitlines() if re.match(r" {4}\S", line)}
    there = {
        path.name
        for path in SOURCE.iterdir()
        if path.suffix == ".py" or (path.is_dir() and (path / "__init__.py").exists())
    }
    assert told == there
    parents = [line.split()[0] for line in layout.splitlines() if re.match(r"\S", line)]
    assert all((ROOT / parent).is_dir() for parent in parents)
    for name in re.findall(r"^ {8}(\w+)/", layout, re.MULTILINE):
        assert list(SOURCE.glob(f"*/{name}/")), name
    rule = text[text.index("**Arrows point down only**") :].split("Each may use")[0]
    told_order = [set(re.findall(r"`(\w+)(?:/|\.py)?`", part)) for part in rule.split("→")]
    assert told_order == list(ORDER[:-1])


def test_arrows_point_down_only() -> None:
    rank = {room: place for place, rooms in enumerate(ORDER) for room in rooms}
    for path in SOURCE.rglob("*.py"):
        room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        for target in _imports(path):
            if target == room or target == "__init__":
                continue
            where = f"{path.relative_to(SOURCE)} imports {target}"
            if room == "demo":
                raise AssertionError(where)
            if target == "demo":
                assert room == "cli", where
            else:
                assert rank[room] < rank[target], where


def _imports(path: Path) -> set[str]:
    """The rooms of ours that a module imports, also inside its functions."""
    rooms = {each.name.removesuffix(".py") for each in SOURCE.iterdir()}
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if (
            isinstance(node, ast.ImportFrom)
            and node.level == 0
            and (node.module or "").split(".")[0] == "otel_blackboard"
        ):
            names = (
                [node.module or ""] if node.module != "otel_blackboard" else [f".{each.name}" for each in node.names]
            )
        elif isinstance(node, ast.Import):
            names = [each.name for each in node.names if each.name.startswith("otel_blackboard")]
        for name in names:
            room = name.split(".")[1] if "." in name else "__init__"
            found.add(room if room in rooms else "__init__")
    return found


# --- what the documents let you do -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    with service(tmp_path_factory.mktemp("docs"), environment={"BLACKBOARD_RETRIEVAL": "true"}) as started:
        yield started


def test_the_example_in_code_makes_the_run_that_the_next_section_reads(running: RunningService) -> None:
    (code,) = blocks(AGENT, "python")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = running.http
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=60)
    run = running.get("/runs/run_paris")
    assert (run["agents"], run["usage"]["input_tokens"], run["status"]) == (["researcher"], 120, "complete")

    shell = "\n".join(blocks(AGENT, "sh"))
    ledger_path = re.search(r'"\$API(/runs/run_paris/ledger)\?project_id=default&agent_id=researcher"', shell)
    tokens_path = re.search(r'"\$API(/runs/run_paris/tokens)\?project_id=default"', shell)
    bodies = re.findall(r"--json '([^']+)'", shell)
    assert ledger_path and tokens_path and len(bodies) == 2
    ledger_told, recall_told = (json.loads(block) for block in blocks(AGENT, "json"))
    ledger = running.get(ledger_path[1], agent_id="researcher")
    assert set(ledger_told) == set(ledger) and ledger_told["lines"] == ledger["lines"]

    headers = {"content-type": "application/json"}
    made = httpx.post(
        f"{running.api}/api/v1{tokens_path[1]}", params={"project_id": "default"}, content=bodies[0], headers=headers
    )
    headers["authorization"] = f"Bearer {made.json()['token']}"
    (found,) = httpx.post(f"{running.api}/api/v1/recall", content=bodies[1], headers=headers).json()["results"]
    (told,) = recall_told["results"]
    assert found | {"artifact_id": ""} == told | {"artifact_id": ""}
