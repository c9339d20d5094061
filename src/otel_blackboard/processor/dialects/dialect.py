"""What a dialect has to say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from otel_blackboard.processor.values import first_text, parsed
from otel_blackboard.records import Event, Light, LogRecord, Span, Value

PROVIDER_CALL, TOOL, STEP, FLOW_RUN, GUARD = "provider_call", "tool_invocation", "step", "flow_run", "guard"
ROLES = ("flow_run", "step", "skill", "provider_call", "tool_invocation", "proxy_request", "guard", "verifier")


class Role(NamedTuple):
    role: str
    """One of ROLES; '' = known to have none (a loop iteration, a configuration event)."""
    operation: str = ""
    is_agent: bool = False
    """An agent's pass; of a tool: that the call runs an agent, whose pass is all that nests under it."""
    is_node: bool = False


RUN = Role(FLOW_RUN, "invoke_workflow")
AGENT = Role(STEP, "invoke_agent", is_agent=True)
NODE = Role(STEP, "execute_task", is_node=True)
CHAT = Role(PROVIDER_CALL, "chat")
EMBEDDINGS = Role(PROVIDER_CALL, "embeddings")
RERANK = Role(PROVIDER_CALL, "rerank")
EXECUTE_TOOL = Role(TOOL, "execute_tool")
RETRIEVAL = Role(TOOL, "retrieval")
GUARDRAIL = Role(GUARD, "apply_guardrail")
VERIFIER = Role("verifier", "evaluate")
SKILL = Role("skill", "invoke_skill")
NO_ROLE = Role("")


class Source(NamedTuple):
    """Where a fact may stand: an attribute key, and what to take out of its value."""

    key: str
    read: Callable[[Value], Value] | None = None
    """None = the value itself. Returns None or '' where the value does not have the fact. Must be fast, and never raise."""


def value_at(value: Value, *path: str | int) -> Value:
    """What stands at `path` inside a map, a list or their JSON text; None where nothing does."""
    for name in path:
        value = parsed(value)
        if isinstance(value, dict) and isinstance(name, str):
            value = value.get(name)
        elif isinstance(value, list) and isinstance(name, int) and -len(value) <= name < len(value):
            value = value[name]
        else:
            return None
    return value


def inside(key: str, *path: str | int) -> Source:
    return Source(key, lambda value: value_at(value, *path))


Keys = Mapping[str, tuple[str | Source, ...]]


def not_provider(*names: str) -> Callable[[Span, Value], bool]:
    """For Dialect.ignore["provider"]: values that name the framework, not who answered."""
    frameworks = frozenset(names)
    return lambda span, value: first_text(value) in frameworks


class Part(NamedTuple):
    """One piece of content, by meaning (a key of Dialect.content)."""

    meaning: str
    field: str
    value: Value


def says_nothing(meaning: str, value: Value) -> bool:
    """Whether the value is there and empty. What a tool was given and returned may be an empty list or map."""
    return value is None or value == "" or (meaning in _OF_MESSAGES and value in _NOTHING)


_OF_MESSAGES = frozenset(("system", "input", "output", "reasoning", "calls", "tools"))
_NOTHING: tuple[Value, ...] = ("[]", "{}", "null", [], {})


@dataclass(frozen=True)
class Dialect:
    """A dialect is asked about the spans and log records that it knows: by an attribute key, or by the instrumentation
    scope. Where several know one, all their tables count, in the order of dialects/__init__.py."""

    name: str
    keys: tuple[str, ...]
    """Attribute keys of which one is enough; one that ends in '.' is the beginning of a key."""
    scopes: tuple[str, ...] = ()
    """Names of instrumentation scopes of which one is enough; one that ends in '.' is the beginning of a name."""
    lacks: str = ""
    """What its emitters do not send, for docs/dialects.md: whole sentences, from the point of view of who reads a run."""
    role: Callable[[Span], Role | None] = lambda span: None
    """The role of a span, None when the dialect cannot tell: then the next one is asked."""
    facts: Keys = field(default_factory=dict)
    """Field of records.Light → where it stands, in order."""
    content: Keys = field(default_factory=dict)
    """Meaning (request, response, system, input, output, tools, arguments, result, query, documents, summary, and the
    pointers `input_ref` …) → where it stands, in order. A key that ends in '.*' is a flattened family. Where an emitter
    keeps the pieces of a model's answer apart: `calls` (of tools, where the output itself lists none) and `reasoning`."""
    plain: tuple[str, ...] = ()
    """Keys of `output` whose value is the answer itself, text or an application's own structure: never a message to be
    read, whatever it looks like."""
    labels: Keys = field(default_factory=dict)
    """Label of records.Light.labels → where it stands, in order."""
    ignore: Mapping[str, Callable[[Span, Value], bool]] = field(default_factory=dict)
    """Fact → whether a value that was found for it, under whatever key, must not be taken (a framework's name as provider)."""
    unwrap: Mapping[str, Callable[[Value], Value]] = field(default_factory=dict)
    """Meaning → the value without the emitter's wrapper, for ledger, summary and search; what is no wrapper stays as it
    is. The body of an artifact is the value as sent."""
    pieces: Callable[[Span, Role], list[Part]] | None = None
    """Content that no one attribute holds, such as a map flattened into many: before what the table finds."""
    names: Callable[[Span, Role], Mapping[str, str]] | None = None
    """Facts that a span's name says, where no attribute does (tool_name, agent_id, step_name, run_name). The role is the one
    that this dialect gives the span, NO_ROLE where it gives none or the span is something else by another: what the spans of
    one emitter are called says nothing of another's."""
    complete: Callable[[Light, Span], None] | None = None
    """What no table can say, on the span's light row after all tables: sums, status, numbers told otherwise."""
    event: Callable[[Event], list[Part]] = lambda event: []
    """The content of one event of a span that the dialect knows."""
    log: Callable[[LogRecord, str], list[Part]] = lambda record, event_name: []
    """The content of one log record that has a trace and a span id."""
    log_spans: Callable[[LogRecord, str], list[Span]] = lambda record, event_name: []
    """The calls that a log record stands for, where an emitter may send logs alone: as spans, a function of that one
    record. Where the spans are sent as well, the same call id or response id makes both one call."""
    join_key: Callable[[Span], str] = lambda span: ""
    """What spans of several traces share that are one run; '' = nothing. Any text; equal texts of one dialect join."""
    satellite: Callable[[Span], bool] = lambda span: False
    """Whether the span may stand in a trace of its own beside the same call in another trace, whose run it then takes."""
