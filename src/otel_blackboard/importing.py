"""`otel-blackboard import`: OTLP/JSON lines into a running service, or into the stores when none runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import click
import orjson
import urllib3

from otel_blackboard.collector.arrival import Decoded, DecodeError, admit
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
        lines = [f"{self.requests} requests into {self.where}: {self.spans} spans, {self.logs} log records"]
        if self.metrics:
            lines.append(f"{self.metrics} requests of metrics left out: metrics are not stored")
        lines += [f"not taken: {each}" for each in self.skipped[:20]]
        if len(self.skipped) > 20:
            lines.append(f"… and {len(self.skipped) - 20} more")
        return "\n".join(lines)


class _Target(Protocol):
    where: str

    def take(self, signal: str, line: bytes, decoded: Decoded) -> list[str]:
        """Reasons of what was rejected. Raises StartError when it can take nothing more."""

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
    with click.progressbar(length=total, label="importing", show_pos=False) as bar:
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
            rejected = target.take(signal, line, decoded)
            report.requests += 1
            report.spans += len(decoded.spans)
            report.logs += len(decoded.logs)
            report.skipped += [f"{place}: {reason}" for reason in rejected]
        target.finish()
    return report


def _lines(files: Sequence[Path]) -> Iterator[tuple[Path, int, bytes]]:
    for path in files:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                yield path, number, line


def _signal(line: bytes) -> str:
    value = orjson.loads(line)
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

    def take(self, signal: str, line: bytes, decoded: Decoded) -> list[str]:
        try:
            answer = self._pool.request("POST", f"{self._address}/v1/{signal}", body=line, headers=self._headers)
        except urllib3.exceptions.HTTPError as error:
            raise StartError(
                f"{self.where} stopped answering: {error}. Run the import again: nothing is doubled."
            ) from error
        if answer.status == 401:
            raise StartError(f"{self.where} wants a key with role writer: give --key or set BLACKBOARD_KEY.")
        said = orjson.loads(answer.data) if answer.data else {}
        if answer.status != 200:
            return [str(said.get("message") or f"HTTP {answer.status}")]
        partial = said.get("partialSuccess") or {}
        return [str(partial["errorMessage"])] if partial.get("errorMessage") else []

    def finish(self) -> None:
        pass


class _Direct:
    """The stores themselves, for which no service may be running."""

    def __init__(self, flush: Callable[..., None], settings: Settings) -> None:
        self.where = str(settings.data) if not settings.clickhouse else "ClickHouse"
        self._flush = flush
        self._default = Tenant(settings.organization, settings.project)
        self._waiting: list[Decoded] = []
        self._size = 0

    def take(self, signal: str, line: bytes, decoded: Decoded) -> list[str]:
        rejected = list(decoded.rejected)
        self._waiting.append(decoded)
        self._size += len(line)
        if self._size >= _FLUSH_BYTES:
            self.finish()
        return rejected

    def finish(self) -> None:
        arrivals = [admit(decoded, None, self._default)[0] for decoded in self._waiting]
        self._flush([s for a in arrivals for s in a.spans], [record for a in arrivals for record in a.logs])
        self._waiting, self._size = [], 0
