"""otel-blackboard serve | demo | import | rederive | doctor | keys"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

try:
    import click
    from pydantic import ValidationError

    from otel_blackboard.config import Settings
except ModuleNotFoundError as missing:  # pragma: no cover - an agent's light install
    sys.exit(f"otel-blackboard needs the service's packages ({missing.name}): pip install 'otel-blackboard[embedded]'")

from otel_blackboard import __version__

Decorated = Callable[..., Any]


def _option(name: str) -> Callable[[Decorated], Decorated]:
    described = Settings.model_fields[name]
    kind: Any = click.Path(file_okay=False, path_type=Path) if name == "data" else str
    shown = f"{described.description}  [default: {described.default or 'none'}; BLACKBOARD_{name.upper()}]"
    return click.option(f"--{name.replace('_', '-')}", name, type=kind, default=None, help=shown)


STORE_OPTIONS = ("data", "clickhouse", "s3")
DOOR_OPTIONS = ("otlp_grpc", "otlp_http", "api")


def options(*names: str) -> Callable[[Decorated], Decorated]:
    def decorate(command: Decorated) -> Decorated:
        for name in reversed(names):
            command = _option(name)(command)
        return command

    return decorate


def settings_from(given: dict[str, Any]) -> Settings:
    """Options before environment before default."""
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        lines = [f"BLACKBOARD_{str(e['loc'][0]).upper()}: {e['msg']}" for e in error.errors()]
        raise click.ClickException("; ".join(lines)) from None


def log_to_stderr() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    for name in ("uvicorn", "uvicorn.error"):
        logging.getLogger(name).setLevel(logging.WARNING)
    quiet_clients()


def quiet_clients() -> None:
    """What these libraries say about a server that does not answer is said by us, once and with advice."""
    for name in ("clickhouse_connect", "urllib3"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def failing(action: Callable[[], Any]) -> Any:
    """Runs it; what can be expected to go wrong ends in one line that says what to do."""
    from otel_blackboard.access import KeyFileError
    from otel_blackboard.exporter.bodies import BodyError
    from otel_blackboard.exporter.clickhouse import StoreError
    from otel_blackboard.exporter.flush import StoreFailed
    from otel_blackboard.service import StartError

    try:
        return action()
    except (StartError, StoreError, StoreFailed, BodyError, KeyFileError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        if error.filename is None:
            raise
        raise click.ClickException(f"{error.filename}: {error.strerror}") from error


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="otel-blackboard")
def main() -> None:
    """Every run of your AI agents as a glass box, out of their OpenTelemetry."""


@main.command()
@options(*STORE_OPTIONS, *DOOR_OPTIONS)
def serve(**given: Any) -> None:
    """Run the service: OTLP doors and query service, until it is told to stop."""
    from otel_blackboard.service import serve as run

    log_to_stderr()
    settings = settings_from(given)
    failing(lambda: asyncio.run(run(settings)))


@main.command()
@click.option(
    "--data", type=click.Path(file_okay=False, path_type=Path), default=None, help="Keep the demo's data here."
)
@click.option(
    "--keep/--no-keep", default=None, help="Leave the service running afterwards (default: when at a terminal)."
)
def demo(data: Path | None, keep: bool | None) -> None:
    """See it work: starts the service, runs a small agent against a model stub, shows what came of it."""
    from otel_blackboard.demo.run import run_demo

    sys.exit(run_demo(data, sys.stdout.isatty() if keep is None else keep, click.echo))


@main.command("import")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@options(*STORE_OPTIONS, "otlp_http")
@click.option(
    "--key", envvar="BLACKBOARD_KEY", default=None, help="API key, where the service wants one (BLACKBOARD_KEY)."
)
def import_files(files: tuple[Path, ...], key: str | None, **given: Any) -> None:
    """Read OTLP/JSON lines, as the Collector's file exporter writes them.

    Goes to the running service (--otlp-http); without one it opens the stores itself.
    """
    from otel_blackboard.importing import import_all

    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    quiet_clients()
    settings = settings_from(given)
    report = failing(lambda: import_all(files, settings, key))
    click.echo(report.text())
    sys.exit(0 if report.complete else 1)


@main.command()
@options(*STORE_OPTIONS)
@click.option("--organization", default="", help="Only this organization.")
@click.option("--project", default="", help="Only projects of this name.")
@click.option(
    "--since", type=click.DateTime(["%Y-%m-%d"]), help="Only traces of which something was received that day or later."
)
@click.option(
    "--all", "everything", is_flag=True, help="Also what the reader of this version has read: begins anew each time."
)
def rederive(organization: str, project: str, since: datetime | None, everything: bool, **given: Any) -> None:
    """Apply this version's reader to what is stored, after an upgrade.

    Can be stopped at any time, and goes on when it is run again (with --all, from the beginning). In embedded mode the
    service must be stopped; with ClickHouse it may run, in this version. What is captured goes by the settings of now.
    """
    from otel_blackboard.exporter.clickhouse import is_locked
    from otel_blackboard.exporter.rederive import Progress, Wanted
    from otel_blackboard.exporter.rederive import rederive as run
    from otel_blackboard.service import open_stores

    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    quiet_clients()
    settings = settings_from(given)
    if not settings.clickhouse and is_locked(settings.data / "rows"):
        raise click.ClickException(f"a service uses {settings.data}: stop it first, rederive needs the data to itself.")
    wanted = Wanted(organization, project, since.date() if since else None, everything)
    started = told = time.monotonic()

    def tell(progress: Progress) -> None:
        nonlocal told
        now = time.monotonic()
        if now - told > _TELL_EVERY or progress.records == progress.all_records:
            told = now
            rate = progress.records / max(now - started, 0.001)
            click.echo(
                f"{progress.records:,} of {progress.all_records:,} spans and log records, {rate:,.0f} a second",
                err=True,
            )

    def apply() -> Progress:
        with open_stores(settings) as stores:
            return run(stores.exporter, stores.bodies, settings, wanted, tell)

    try:
        done = failing(apply)
    except KeyboardInterrupt:
        click.echo("stopped; run it again to go on" + " (--all begins anew)" * everything, err=True)
        sys.exit(130)
    click.echo(f"{done.traces:,} traces derived anew, {done.records - done.left:,} spans and log records read")
    if done.gone:
        click.echo(f"{done.gone:,} spans made of log records are gone: those stand for no call")
    if done.left:
        click.echo(f"{done.left:,} spans and log records stay as they were: their content is gone, or cannot be read")


_TELL_EVERY = 5
"""Seconds between two lines on how far it is."""


@main.command()
@options(*STORE_OPTIONS, *DOOR_OPTIONS)
def doctor(**given: Any) -> None:
    """Check settings, ClickHouse, body store and ports, and say what to do."""
    from otel_blackboard.doctor import examine

    quiet_clients()
    findings = examine(settings_from(given), dict(os.environ))
    for finding in findings:
        mark = click.style("ok  ", fg="green") if finding.ok else click.style("FAIL", fg="red")
        click.echo(f"{mark} {finding.what}: {finding.found}")
        if finding.advice:
            click.echo(f"     {finding.advice}")
    sys.exit(0 if all(finding.ok for finding in findings) else 1)


@main.group()
def keys() -> None:
    """API keys."""


@keys.command()
@click.option("--id", "key_id", required=True, help="Name of the key, for logs and lists.")
@click.option("--role", required=True, type=click.Choice(["writer", "reader", "reviewer", "admin"]))
@click.option("--organization", required=True)
@click.option("--project", "projects", required=True, multiple=True, help="Repeatable.")
@click.option("--file", "path", type=click.Path(dir_okay=False, path_type=Path), help="Add it to this keys file.")
def new(key_id: str, role: str, organization: str, projects: tuple[str, ...], path: Path | None) -> None:
    """Make a key. It is shown once; only its hash is kept."""
    from otel_blackboard.access import new_key

    def make() -> tuple[str, dict[str, Any]]:
        return new_key(key_id, role, organization, projects)

    secret, entry = failing(make)
    if path is not None:
        failing(lambda: _add(entry, path))
        click.echo(f"added to {path}", err=True)
    else:
        click.echo(json.dumps({"keys": [entry]}, indent=2), err=True)
    click.echo(secret)


def _add(entry: dict[str, Any], path: Path) -> None:
    """Into the keys file, whose mode stays: a service in a container may read it as another user."""
    from otel_blackboard.access import KeyRing

    held: dict[str, Any] = {"keys": []}
    mode = 0o600
    if path.exists():
        KeyRing.load(path)
        held, mode = json.loads(path.read_text()), path.stat().st_mode & 0o777
    if any(known["id"] == entry["id"] for known in held["keys"]):
        raise click.ClickException(f"{path} already has a key {entry['id']!r}")
    held["keys"].append(entry)
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(json.dumps(held, indent=2) + "\n")
    fresh.chmod(mode)
    fresh.replace(path)


if __name__ == "__main__":
    main()
