"""The records that all parts speak. Types only: no I/O, no behaviour beyond what a value needs.

Three families, in the order of the data flow:
  what arrives     Span, LogRecord (decoded from the wire without loss)
  what is kept     Frame, Body (where content went), Light and LogLight (what one record alone says), ArtifactRow
  what is found    Resolved, RunPart (what the tree adds)
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from decimal import Decimal
from typing import NamedTuple

# An attribute value in memory. Lists and dicts come from ArrayValue and KeyValueList; None is the empty AnyValue.
Value = None | bool | int | float | str | bytes | list["Value"] | dict[str, "Value"]
Attributes = dict[str, Value]

DUPLICATES = "$duplicates"
"""Key under which earlier values of a repeated key are kept: a list of [key, value] pairs, in order of arrival."""


class InvalidText(bytes):
    """A string of the wire that is not UTF-8: its bytes, kept as they came and marked when written as JSON."""


class Tenant(NamedTuple):
    organization_id: str
    project_id: str


class Written(NamedTuple):
    """A resource or scope as its rows keep it; made once for all spans that share it."""

    text: str
    """JSON; values too large for a row are `{"$content": field}`."""
    large: tuple[tuple[str, bytes, str, str], ...]
    """(field, data, encoding, sha256) of those values."""


@dataclass(slots=True)
class Resource:
    attributes: Attributes = field(default_factory=dict)
    dropped_attributes_count: int = 0
    schema_url: str = ""
    written: Written | None = field(default=None, compare=False, repr=False)


@dataclass(slots=True)
class Scope:
    name: str = ""
    version: str = ""
    attributes: Attributes = field(default_factory=dict)
    dropped_attributes_count: int = 0
    schema_url: str = ""
    written: Written | None = field(default=None, compare=False, repr=False)


@dataclass(slots=True)
class Event:
    time_ns: int
    name: str
    attributes: Attributes = field(default_factory=dict)
    dropped_attributes_count: int = 0


@dataclass(slots=True)
class Link:
    trace_id: str
    span_id: str
    trace_state: str = ""
    attributes: Attributes = field(default_factory=dict)
    dropped_attributes_count: int = 0
    flags: int = 0


@dataclass(slots=True)
class Span:
    """One span as it arrived. Ids are lower-case hex (32 and 16 digits), times unix nanoseconds, 0 = not set."""

    trace_id: str
    span_id: str
    parent_span_id: str = ""
    name: str = ""
    kind: int = 0
    start_ns: int = 0
    end_ns: int = 0
    attributes: Attributes = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    status_code: int = 0
    status_message: str = ""
    trace_state: str = ""
    flags: int = 0
    dropped_attributes_count: int = 0
    dropped_events_count: int = 0
    dropped_links_count: int = 0
    resource: Resource = field(default_factory=Resource)
    scope: Scope = field(default_factory=Scope)


@dataclass(slots=True)
class LogRecord:
    """One log record as it arrived. trace_id and span_id are '' when the record has none."""

    trace_id: str = ""
    span_id: str = ""
    time_ns: int = 0
    observed_time_ns: int = 0
    severity_number: int = 0
    severity_text: str = ""
    event_name: str = ""
    body: Value = None
    attributes: Attributes = field(default_factory=dict)
    flags: int = 0
    dropped_attributes_count: int = 0
    resource: Resource = field(default_factory=Resource)
    scope: Scope = field(default_factory=Scope)


class Frame(NamedTuple):
    """One zstd frame inside a packed object of the body store."""

    object: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Body:
    """Where the content of one field lies. Concatenating the decompressed frames gives the bytes as received.

    A list of frames, so that a prompt can later be stored as a difference to the one before it.
    encoding: 'text' (UTF-8), 'json' (a structured value as compact JSON), 'pairs' (a flattened family as JSON
    [key, value] pairs), 'bytes', or 'not-text' (a string that is not UTF-8).
    """

    field: str
    frames: tuple[Frame, ...]
    raw_length: int
    sha256: str
    encoding: str = "text"


@dataclass(slots=True)
class Content:
    """Content on its way to the body store: one field of one span or log record."""

    tenant: Tenant
    kind: str
    """The pack it goes to: an artifact kind, or 'span' for content that is no artifact."""
    trace_id: str
    span_id: str
    field: str
    data: bytes
    """As received; empty once it is compressed."""
    encoding: str = "text"
    sha256: str = ""
    """Hex, of the content as received; '' until someone needs it."""
    frame: bytes = b""
    """The content compressed; empty until it is."""
    raw_length: int = 0
    """Bytes of the content as received, once it is compressed."""

    def digest(self) -> str:
        self.sha256 = self.sha256 or hashlib.sha256(self.data).hexdigest()
        return self.sha256


class RequestedCall(NamedTuple):
    """A tool call that a model's answer asks for."""

    id: str
    name: str
    arguments_sha256: str
    """Of the arguments as JSON with sorted keys; '' when none were sent."""


@dataclass(slots=True)
class Light:
    """What one span alone says, as far as the tree needs it: resolving a trace never opens a body.

    Ids and names are the span's own ('' = not said by this span), numbers None = unknown. What a
    LogLight has as well is also taken from log records that complete the span.
    """

    trace_id: str
    span_id: str
    parent_span_id: str = ""
    name: str = ""
    start_ns: int = 0
    end_ns: int = 0
    """0 = still open."""
    status: str = "succeeded"
    """running, succeeded or failed (TRC-15)."""
    role: str = ""
    dialect: str = ""
    scope: str = ""
    operation: str = ""
    """What the call is in the words of gen_ai.operation.name: chat, embeddings, retrieval, execute_tool …"""
    is_agent: bool = False
    is_node: bool = False
    run_id: str = ""
    run_name: str = ""
    step_id: str = ""
    step_name: str = ""
    agent_id: str = ""
    agent_instance: str = ""
    use_case_id: str = ""
    conversation_id: str = ""
    user_id: str = ""
    mode: str = ""
    pass_seq: int | None = None
    attempt: int | None = None
    call_seq: int | None = None
    loop_iteration: int | None = None
    output_retry: int | None = None
    retry_count: int | None = None
    provider: str = ""
    request_model: str = ""
    response_model: str = ""
    response_id: str = ""
    join_key: str = ""
    """The run that this span's trace shares with other traces ('' = none), after SATELLITE where it may be one."""
    linked_traces: tuple[str, ...] = ()
    tool_name: str = ""
    tool_call_id: str = ""
    tool_class: str = ""
    arguments_sha256: str = ""
    requested: tuple[RequestedCall, ...] = ()
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_input_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost_usd: Decimal | None = None
    cost_source: str = ""
    """'span' where the span states its cost, else 'genai-prices <version>'; '' = unknown."""
    has_input: bool = False
    has_output: bool = False
    error: str = ""
    """One line: the error as sent, cut."""
    labels: dict[str, str] = field(default_factory=dict)
    """Facts that few spans have: skill, guard, fallback, trigger, outcome, original ids …"""
    version: int = 0
    stored_at_ns: int = 0


SATELLITE = "satellite:"
"""Begins the join key of a model call that may stand in a trace of its own beside the same call in another trace."""


MADE_OF_LOG = "log_record"
"""Label of a span that no one sent: the log record that stands for this call, as its trace id, a slash and its sha256."""

REQUEST = "request_sha256"
"""Label of a model call told in two pieces, on both: the hash of what was asked. Calls of one model may go on at once."""


CACHED_INPUT = "cached_input"
"""Label of a span whose sender counted the provider's cache beside its input tokens (`beside`): they were added, once."""


@dataclass(slots=True)
class LogLight:
    """What one log record says about its span, as far as the tree needs it."""

    trace_id: str
    span_id: str
    record_sha256: str
    time_ns: int
    event_name: str = ""
    severity_text: str = ""
    operation: str = ""
    agent_id: str = ""
    conversation_id: str = ""
    user_id: str = ""
    provider: str = ""
    request_model: str = ""
    response_model: str = ""
    response_id: str = ""
    requested: tuple[RequestedCall, ...] = ()
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_input_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    has_input: bool = False
    has_output: bool = False
    labels: dict[str, str] = field(default_factory=dict)
    """What the record says about its span and few records say: evaluations."""
    version: int = 0
    stored_at_ns: int = 0


ARTIFACT_KINDS = ("tool_result", "agent_output", "tool_path", "llm_prompt", "trajectory")
SPAN_PACK = "span"
"""The pack of content that is no artifact."""


@dataclass(slots=True)
class ArtifactRow:
    """What one span or log record says of one artifact. Never rewritten for the tree."""

    trace_id: str
    span_id: str
    kind: str
    source: str = ""
    """'' for the span itself, the record's sha256 for a log record."""
    artifact_id: str = ""
    origin: str = ""
    """'attribute', 'event' or 'log': where the content came from; '' = none was sent."""
    status: str = "ok"
    exact: bool = True
    """False for a prompt that has to be rebuilt from message attributes."""
    label: str = ""
    summary: str = ""
    arguments: str = ""
    """Compact JSON (LED-05), cut at ARGUMENTS_KEPT characters; the whole is a body of the span."""
    arguments_sha256: str = ""
    content_type: str = ""
    characters: int = 0
    truncated: str = ""
    """Mark of a cut that the sender made, '' when none is known."""
    bodies: tuple[Body, ...] = ()
    """The first one is the artifact's content; a rebuilt prompt has one for each part."""
    search_text: str = ""
    time_ns: int = 0
    version: int = 0


@dataclass(slots=True)
class Resolved:
    """What the tree finds for one span. `part` is the own id of its run inside the trace, '' for the unnamed one."""

    trace_id: str
    span_id: str
    part: str = ""
    run_id: str = ""
    parent_span_id: str = ""
    """Nearest ancestor that is known ('' = a top of the run); cycles are cut."""
    role: str = ""
    name: str = ""
    start_ns: int = 0
    end_ns: int = 0
    status: str = ""
    step_span_id: str = ""
    """The span that is this attempt of the pass; '' = the implicit pass."""
    step_id: str = ""
    step_name: str = ""
    agent_id: str = ""
    use_case_id: str = ""
    pass_seq: int | None = None
    attempt: int | None = None
    call_seq: int | None = None
    call_span_id: str = ""
    """The span that stands for this call (itself, or another record of the same request); '' = not a call."""
    requested_by: str = ""
    requested_index: int = 0
    tool_call_id: str = ""
    tool_name: str = ""
    tool_class: str = ""
    operation: str = ""
    provider: str = ""
    model: str = ""
    stands: bool = False
    """Whether this span's agent_output stands for its pass."""
    billed: bool = False
    is_aggregate: bool = False
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_input_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost_usd: Decimal | None = None
    cost_source: str = ""
    loop_iteration: int | None = None
    output_retry: int | None = None
    retry_count: int | None = None
    requested: tuple[RequestedCall, ...] = ()
    error: str = ""
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class RunPart:
    """One run inside one trace. Sums are None where nothing in it is known."""

    trace_id: str
    part: str
    run_id: str
    original_run_id: str = ""
    root_span_id: str = ""
    """The top of its tree under which other tops are shown."""
    name: str = ""
    is_root: bool = False
    """Whether the part has a flow_run span at its top: the part that says how the whole run went."""
    status: str = ""
    start_ns: int = 0
    end_ns: int = 0
    """Latest end seen; the run itself is open while open_spans > 0."""
    open_spans: int = 0
    span_count: int = 0
    role_spans: int = 0
    failed_spans: int = 0
    agents: tuple[str, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_input_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost_usd: Decimal | None = None
    calls_succeeded: int = 0
    calls_with_usage: int = 0
    calls_without_cost: int = 0
    conversation_id: str = ""
    use_case_id: str = ""
    user_id: str = ""
    trigger: str = ""
    error: str = ""
    last_stored_ns: int = 0
