"""What a dialect has to say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from otel_blackboard.records import Event, LogRecord, Span, Value

PROVIDER_CALL, TOOL, STEP, FLOW_RUN = "provider_call", "tool_invocation", "step", "flow_run"
ROLES = ("flow_run", "step", "skill", "provider_call", "tool_invocation", "proxy_request", "guard", "verifier")


class Role(NamedTuple):
    role: str
    """One of ROLES; '' = known to have none (a loop iteration, a configuration event)."""
    operation: str = ""
    is_agent: bool = False
    is_node: bool = False


class Part(NamedTuple):
    """One piece of content a span event or log record brings, by meaning (a key of Dialect.content)."""

    meaning: str
    field: str
    value: Value


@dataclass(frozen=True)
class Dialect:
    name: str
    role: Callable[[Span], Role | None]
    """The role of a span, None when the dialect does not know the span."""
    facts: Mapping[str, tuple[str, ...]]
    """Field of records.Light → attribute keys in order."""
    content: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Meaning (request, response, system, input, output, tools, arguments, result, query, documents, and their
    pointers `input_ref` …) → attribute keys in order. A key that ends in '.*' is a flattened family."""
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Label of records.Light.labels → attribute keys in order."""
    ignore: Mapping[str, Callable[[Span, Value], bool]] = field(default_factory=dict)
    """Fact → whether a value that a key offers for it must not be taken (a framework's name as provider …)."""
    event: Callable[[Event], list[Part]] = lambda event: []
    """The content of one span event."""
    log: Callable[[LogRecord, str], list[Part]] = lambda record, event_name: []
    """The content of one log record that has a trace and a span id."""
