"""What passes between the doors and the rest: decoded requests, admission, refusals, counters."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

from otel_blackboard.access import Credential, ForeignTenant, KeyRing, allows, tenant_of
from otel_blackboard.config import Settings
from otel_blackboard.exporter.preparation import Prepared
from otel_blackboard.records import DUPLICATES, Attributes, LogRecord, Resource, Span, Tenant, Value

# ---- refusals (answers.py says how each is told to the sender) ----


class DecodeError(ValueError):
    """The body is not what it says it is; the message says why and quotes no content."""


class TooLarge(ValueError):
    """The request is larger than allowed, decompressed."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the request is larger than {limit} bytes, decompressed")


class UnsupportedEncoding(ValueError):
    """A Content-Encoding that the doors do not read."""


class UnsupportedMediaType(ValueError):
    """A Content-Type that the doors do not read."""


class Unauthenticated(Exception):
    """No key, or an unknown one."""


class Forbidden(Exception):
    """The role of the key does not allow it."""


class QueueFull(Exception):
    """More waits already than may wait; the sender keeps the data and tries again."""


class Stalled(Exception):
    """The body was begun and its rest did not come; the sender keeps the data and tries again."""


class StoreUnavailable(Exception):
    """The store did not take it; the sender keeps the data and tries again."""


class ShuttingDown(Exception):
    """The service is closing; the sender keeps the data and tries again."""


# ---- what arrives ----

REASONS_KEPT = 100
"""Reasons told apart in one request; beyond, a request of a million bad spans would be answered from gigabytes."""
MORE_REASONS = "more like these"


DEEPEST_LEVEL = 100
"""Levels of lists and dicts kept; the value of an attribute stands on level 1."""
TOO_DEEP = "[nested too deeply]"
"""Stands for a value below the deepest level."""


def with_duplicates(pairs: Sequence[tuple[str, Value]]) -> Attributes:
    """A dict of pairs whose keys repeat: the last value wins, the earlier ones go under DUPLICATES, in order."""
    attributes: Attributes = {}
    last = {key: position for position, (key, _) in enumerate(pairs)}
    earlier: list[Value] = []
    for position, (key, value) in enumerate(pairs):
        # A sender's own key of that name gives way to the list, which takes it in.
        if last[key] == position and key != DUPLICATES:
            attributes[key] = value
        else:
            earlier.append([key, value])
    attributes[DUPLICATES] = earlier
    return attributes


def note(rejected: list[str], reason: str) -> None:
    """Adds a reason. The list has one entry for each record rejected, however many there are."""
    rejected.append(reason if len(rejected) < REASONS_KEPT else MORE_REASONS)


@dataclass(slots=True)
class Decoded:
    """One request: its records, one reason for each record that was rejected, its bytes decompressed, and how many
    attribute values were blanked because their keys name credentials."""

    spans: list[Span] = field(default_factory=list)
    logs: list[LogRecord] = field(default_factory=list)
    rejected: list[str] = field(default_factory=list)
    size: int = 0
    blanked: int = 0

    def add_span(self, span: Span) -> None:
        blanked = blank_credentials(span.attributes)
        for event in span.events:
            blanked += blank_credentials(event.attributes)
        for link in span.links:
            blanked += blank_credentials(link.attributes)
        self.blanked += blanked
        self.spans.append(span)

    def add_log(self, log: LogRecord) -> None:
        self.blanked += blank_credentials(log.attributes)
        self.logs.append(log)


@dataclass(slots=True)
class Arrival:
    """One admitted request. `size` is its bytes, decompressed."""

    spans: list[tuple[Tenant, Span]]
    logs: list[tuple[Tenant, LogRecord]]
    size: int
    blanked: int = 0
    prepared: Prepared | None = None
    """The records read; `spans` and `logs` are let go of then."""
    span_count: int = 0
    log_count: int = 0


class Intake(Protocol):
    """What takes arrivals from the doors."""

    def prepare(self, arrival: Arrival) -> None:
        """Does what needs no store. Called in a thread of the door."""
        ...

    def submit(self, arrival: Arrival) -> Future[None]:
        """Raises QueueFull or ShuttingDown at once. The future completes when the arrival is stored, derived and
        visible; it fails with StoreUnavailable or another exception. Called on the door's event loop: must not block.
        """
        ...


def admit(decoded: Decoded, credential: Credential | None, default_tenant: Tenant) -> tuple[Arrival, list[str]]:
    """Gives every record its tenant. Returns the arrival and all reasons: those of decoding, then one for each record
    that names a tenant which its sender may not write to."""
    arrival = Arrival([], [], decoded.size, decoded.blanked)
    rejected = list(decoded.rejected)
    # Nearly always the resource decides for all of its records.
    by_resource: dict[int, Tenant | ForeignTenant] = {}

    def tenant(resource: Resource, own: Attributes) -> Tenant:
        if "blackboard.project.id" in own or "blackboard.organization.id" in own:
            return tenant_of(credential, resource.attributes, own, default_tenant)
        found = by_resource.get(id(resource))
        if found is None:
            try:
                found = tenant_of(credential, resource.attributes, {}, default_tenant)
            except ForeignTenant as error:
                found = error
            by_resource[id(resource)] = found
        if isinstance(found, ForeignTenant):
            raise ForeignTenant(*found.args)
        return found

    for span in decoded.spans:
        try:
            arrival.spans.append((tenant(span.resource, span.attributes), span))
        except ForeignTenant as error:
            note(rejected, f"span {span.span_id} {span.name[:80]!r}: {error}")
    for position, log in enumerate(decoded.logs):
        try:
            arrival.logs.append((tenant(log.resource, log.attributes), log))
        except ForeignTenant as error:
            note(rejected, f"log record {position} {log.event_name[:80]!r}: {error}")
    arrival.span_count, arrival.log_count = len(arrival.spans), len(arrival.logs)
    return arrival, rejected


# ---- credentials ----

BLANKED = "[blanked]"

CREDENTIAL_NAMES = (
    # headers
    "authorization",
    "cookie",
    "cookies",
    # keys
    "api_key",
    "api_keys",
    "apikey",
    "apikeys",
    "access_key",
    "account_key",
    "encryption_key",
    "private_key",
    "secret_key",
    "signing_key",
    "subscription_key",
    # passwords
    "credential",
    "credentials",
    "passphrase",
    "passwd",
    "password",
    "passwords",
    "pwd",
    # secrets and tokens; a bare `token` is not listed: it is a unit of text here
    "secret",
    "secrets",
    "access_token",
    "api_token",
    "auth_token",
    "bearer_token",
    "bot_token",
    "csrf_token",
    "github_token",
    "gitlab_token",
    "hf_token",
    "id_token",
    "private_token",
    "refresh_token",
    "security_token",
    "session_token",
    "vault_token",
    "xsrf_token",
)
"""Names of credentials as words joined by `_`. A key names a credential when its last words are one of these, in any
case, whatever joins them (`.`, `-`, `_`, camelCase) and whether or not an index follows: `db.password`,
`http.request.header.x-api-key`, `openaiApiKey`, `headers.cookie.0`; not `gen_ai.usage.input_tokens`."""

_ENDINGS = tuple("_" + name for name in CREDENTIAL_NAMES)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_JOINT = re.compile(r"[^a-z0-9]+")
_INDEX = re.compile(r"(_[0-9]+)+_?$")

_INNOCENT_KEPT = 20_000
_LONGEST_REMEMBERED_KEY = 256
_innocent: set[str] = set()


def names_credential(key: str) -> bool:
    """Whether an attribute key names a credential."""
    words = _JOINT.sub("_", _CAMEL.sub("_", key[-_LONGEST_REMEMBERED_KEY:]).lower()).rstrip("_")
    return ("_" + _INDEX.sub("", words)).endswith(_ENDINGS)


def blank_credentials(attributes: Attributes) -> int:
    """Puts BLANKED for the values of keys that name credentials, earlier duplicates included; gives their number."""
    # Nearly all keys were seen before, and are looked up in one call.
    if _innocent.issuperset(attributes):
        return 0
    count = 0
    for key in list(attributes):
        if key in _innocent:
            continue
        if key == DUPLICATES:
            count += _blank_pairs(attributes[key])
        elif names_credential(key):
            attributes[key] = BLANKED
            count += 1
        elif len(key) <= _LONGEST_REMEMBERED_KEY:
            if len(_innocent) >= _INNOCENT_KEPT:
                _innocent.clear()
            _innocent.add(key)
    return count


def _blank_pairs(pairs: object) -> int:
    """Blanks the earlier values of repeated keys: a list of [key, value]."""
    count = 0
    for pair in pairs if isinstance(pairs, list) else ():
        if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) and names_credential(pair[0]):
            pair[1] = BLANKED
            count += 1
    return count


# ---- counting ----


@dataclass
class Counters:
    """What the doors did since the start; shared by all of them. `spans` and `logs` are those acknowledged, `rejected`
    records named in a partial success, `blanked` attribute values, `refused` requests by situation (answers.py)."""

    requests: int = 0
    spans: int = 0
    logs: int = 0
    rejected: int = 0
    blanked: int = 0
    metrics_requests: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def came(self) -> None:
        with self._lock:
            self.requests += 1

    def took(self, arrival: Arrival, rejected: int) -> None:
        with self._lock:
            self.spans += arrival.span_count
            self.logs += arrival.log_count
            self.rejected += rejected
            self.blanked += arrival.blanked

    def refuse(self, situation: str) -> None:
        with self._lock:
            self.refused[situation] = self.refused.get(situation, 0) + 1

    def metrics_came(self) -> bool:
        """Counts a metrics request; True for the first one."""
        with self._lock:
            self.metrics_requests += 1
            return self.metrics_requests == 1


class UndecodedBytes:
    """Bounds the bytes of bodies that are being read or wait to be decoded, so that many senders cannot fill memory
    ahead of the queue."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = 0
        self._lock = threading.Lock()

    def hold(self, count: int) -> None:
        """Raises QueueFull when it would be too much."""
        with self._lock:
            if self._held + count > self._limit:
                raise QueueFull
            self._held += count

    def release(self, count: int) -> None:
        with self._lock:
            self._held -= count


# ---- what the doors log: never content ----

_log = logging.getLogger(__name__)


def log_metrics(counters: Counters) -> None:
    """Counts a metrics request and says once that metrics are not kept."""
    if counters.metrics_came():
        _log.warning("OTLP metrics are accepted and not stored; nothing is made of them")


# ---- the way through a door ----

_DECODERS = 1
"""Threads that decode, for each door. Decoding holds the interpreter, so more would only hold more memory at once."""


class Passage:
    """What every door does with a request, whatever the transport."""

    def __init__(self, intake: Intake, keys: KeyRing | None, settings: Settings, counters: Counters | None) -> None:
        self.counters = counters if counters is not None else Counters()
        self.limit = settings.max_request_bytes
        self.retry_after = settings.retry_after
        # At least one request of the largest size must always fit.
        self.undecoded = UndecodedBytes(max(settings.max_queue_bytes, settings.max_request_bytes))
        self._intake = intake
        self._keys = keys
        self.patience = settings.store_timeout
        self._default = Tenant(settings.organization, settings.project)
        self._threads = ThreadPoolExecutor(_DECODERS, thread_name_prefix="otlp-decode")

    def identify(self, authorization_header: str | None) -> Credential | None:
        """Who sends; None where no keys are used. Raises Unauthenticated or Forbidden."""
        if self._keys is None:
            return None
        credential = self._keys.find(authorization_header)
        if credential is None:
            raise Unauthenticated
        if not allows(credential.role, "write"):
            raise Forbidden(f"the role {credential.role!r} may not write")
        return credential

    async def decode(self, decode: Callable[[], Decoded], credential: Credential | None) -> tuple[Arrival, list[str]]:
        """Runs `decode`, admission and all else that needs no store in a thread, so that the loop goes on."""

        def work() -> tuple[Arrival, list[str]]:
            arrival, rejected = admit(decode(), credential, self._default)
            self._intake.prepare(arrival)
            return arrival, rejected

        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def store(self, arrival: Arrival, rejected: list[str]) -> None:
        """Hands the arrival on and waits until it is stored and visible. Raises what the intake raises, and QueueFull when
        its turn has not come in `store_timeout`: then it is taken back, for its sender is about to give up."""
        if arrival.span_count or arrival.log_count:
            future = self._intake.submit(arrival)
            stored = asyncio.wrap_future(future)
            stored.add_done_callback(_look_at)
            try:
                # A sender that goes away cancels its own waiting, never the intake's future.
                await asyncio.wait({stored}, timeout=self.patience)
                if not stored.done() and future.cancel():
                    raise QueueFull
                await asyncio.shield(stored)
            except asyncio.CancelledError:
                if future.cancelled():
                    raise ShuttingDown from None
                raise
            finally:
                # An error in them would hold this frame, and the frame them and the arrival, until cycles are looked for.
                del future, stored
        self.counters.took(arrival, len(rejected))


def _look_at(stored: asyncio.Future[None]) -> None:
    """An error that nobody is left to hear is no news for the log."""
    if not stored.cancelled():
        stored.exception()
