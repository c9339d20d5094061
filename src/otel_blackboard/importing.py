"""`otel-blackboard import`: OTLP/JSON lines into a running service, or into the stores when none runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import click
import orjson
import urllib3

from otel_blackboard.collector.arrival import Arrival, Decoded, DecodeError, admit
from otel_blackboard.collector.otlp_json import decode_logs, decode_traces
from otel_blackboard.config import Settings
from otel_blackboard.records import Tenant
from otel_blackboard.service import StartError, open_stores

_SIGNALS = {"resourceSpans": "traces", "resourceLogs": "logs", "resourceMetrics": "metrics"}
_FLUSH_BYTES = 4 * 1024 * 1024


@dataclass
class Report:
    where: str
    requests: int = 0
    spans: int = 0
    logs: int = 0
    skipped: list[str] = field(default_factory=list)
    """What could not be taken: file, line, why."""
    metrics: int = 0

    @property
    def complete(self) -> bool:
        return not self.skipped

    def text(self) -> str:
        lines = [
            f"{_count(self.requests, 'request')} into {self.where}: "
            f"{_count(self.spans, 'span')}, {_count(self.logs, 'log record')}"
        ]
        if self.metrics:
            lines.append(f"{_count(self.metrics, 'request')} of metrics left out: metrics are not stored")
        lines += [f"not taken: {each}" for each in self.skipped[:20]]
        if len(self.skipped) > 20:
            lines.append(f"… and {len(self.skipped) - 20} more")
        return "\n".join(lines)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


class _Taken(NamedTuple):
    """What came of one request: how many of its records are stored, and why the others are not."""

    spans: int = 0
    logs: int = 0
    rejected: Sequence[str] = ()


class _Target(Protocol):
    where: str

    def take(self, signal: str, line: bytes, decoded: Decoded) -> _Taken:
        """Raises StartError when it can take nothing more."""

    def finish(self) -> None: ...


def import_all(files: Sequence[Path], settings: Settings, key: str | None = None) -> Report:
    address = f"http://{settings.otlp_http}" if settings.otlp_http else ""
    if address and _answers(address):
        target: _Target = _Service(address, key)
        return _read(files, target)
    with open_stores(settings) as stores:
        direct = _Direct(stores.exporter.flush, settings)
        return _read(files, direct)


def _answers(address: str) -> bool:
    try:
        urllib3.request("POST", f"{address}/v1/metrics", body=b"{}", headers={"Content-Type": "application/json"},
                        timeout=1, retries=False)  # fmt: skip
    except urllib3.exceptions.HTTPError:
        return False
    return True


def _read(files: Sequence[Path], target: _Target) -> Report:
    report = Report(target.where)
    total = sum(path.stat().st_size for path in files)
    with click.progressbar(length=total, label="importing", show_pos=False, file=sys.stderr) as bar:
        for path, number, line in _lines(files):
            bar.update(len(line))
            if not line.strip():
                continue
            place = f"{path}:{number}"
            try:
                signal = _signal(line)
                if signal == "metrics":
                    report.metrics += 1
                    continue
                decoded = (decode_traces if signal == "traces" else decode_logs)(line)
            except (DecodeError, ValueError) as error:
                report.skipped.append(f"{place}: {error}")
                continue
            taken = target.take(signal, line, decoded)
            report.requests += 1
            report.spans += taken.spans
            report.logs += taken.logs
            report.skipped += [f"{place}: {reason}" for reason in taken.rejected]
        target.finish()
    return report


def _lines(files: Sequence[Path]) -> Iterator[tuple[Path, int, bytes]]:
    for path in files:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                yield path, number, line


def _signal(line: bytes) -> str:
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg}, at character {error.pos}") from None
    for name, signal in _SIGNALS.items():
        if isinstance(value, dict) and name in value:
            return signal
    raise ValueError("no OTLP/JSON request: none of resourceSpans, resourceLogs, resourceMetrics")


class _Service:
    """A running service, through its OTLP/HTTP door."""

    def __init__(self, address: str, key: str | None) -> None:
        self.where = f"the service at {address}"
        self._address = address
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        # The door's own contract: what may be tried again says so, and when.
        retry = urllib3.Retry(total=8, status_forcelist=(429, 503), allowed_methods=None, backoff_factor=0.5)
        self._pool = urllib3.PoolManager(retries=retry, timeout=urllib3.Timeout(connect=3, read=120))

    def take(self, signal: str, line: bytes, decoded: Decoded) -> _Taken:
        try:
            answer = self._pool.request("POST", f"{self._address}/v1/{signal}", body=line, headers=self._headers)
        except urllib3.exceptions.HTTPError as error:
            raise StartError(
                f"{self.where} stopped answering: {error}. Run the import again: nothing is doubled."
            ) from error
        if answer.status in (401, 403):
            raise StartError(f"{self.where} wants a key with role writer: give --key or set BLACKBOARD_KEY.")
        said = _object(answer.data)
        if answer.status != 200:
            return _Taken(rejected=[str(said.get("message") or f"HTTP {answer.status}")])
        partial = said.get("partialSuccess") or {}
        lost = int(partial.get("rejectedSpans") or partial.get("rejectedLogRecords") or 0) - len(decoded.rejected)
        spans, logs = len(decoded.spans), len(decoded.logs)
        why = [str(partial["errorMessage"])] if partial.get("errorMessage") else []
        return _Taken(spans - lost, logs, why) if signal == "traces" else _Taken(spans, logs - lost, why)

    def finish(self) -> None:
        pass


class _Direct:
    """The stores themselves, for which no service may be running."""

    def __init__(self, flush: Callable[..., None], settings: Settings) -> None:
        self.where = str(settings.data) if not settings.clickhouse else "ClickHouse"
        self._flush = flush
        self._default = Tenant(settings.organization, settings.project)
        self._waiting: list[Arrival] = []
        self._size = 0

    def take(self, signal: str, line: bytes, decoded: Decoded) -> _Taken:
        arrival, rejected = admit(decoded, None, self._default)
        self._waiting.append(arrival)
        self._size += len(line)
        if self._size >= _FLUSH_BYTES:
            self.finish()
        return _Taken(len(arrival.spans), len(arrival.logs), rejected)

    def finish(self) -> None:
        arrivals = self._waiting
        self._flush([s for a in arrivals for s in a.spans], [record for a in arrivals for record in a.logs])
        self._waiting, self._size = [], 0


def _object(data: bytes) -> dict[str, Any]:
    """A JSON object out of an answer; empty where it is none (another program's page, an empty body)."""
    try:
        value = orjson.loads(data)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
