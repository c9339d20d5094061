"""Logfire and its wrappers of model clients (dialects.md §5): scopes `logfire`, `logfire.<integration>`, keys `logfire.*`.

A span's name is a template (`Chat Completion with {request_data[model]!r}`), `logfire.msg` what it says. Spans of other
instrumentations that pass through Logfire have its keys, too. Of a span that has not ended a copy may come with
`logfire.span_type` = `pending_span`. A streamed answer is a span of zero length beside its request's (`log`): content, ids
and usage are on it alone. Before 4.0 the request and the answer are `request_data` and `response_data`; since then
`request_data` has the model alone, unless the older version of its conventions is asked for, too.
"""

from __future__ import annotations

import hashlib

from otel_blackboard.processor.dialects.dialect import NO_ROLE, PROVIDER_CALL, Dialect, Role, inside
from otel_blackboard.processor.values import first_text, to_json
from otel_blackboard.records import REQUEST, Light, Span


def _role(span: Span) -> Role | None:
    return NO_ROLE if span.attributes.get("logfire.span_type") == "pending_span" else None


def _names(span: Span, role: Role) -> dict[str, str]:
    return {} if span.parent_span_id else {"run_name": first_text(span.attributes.get("logfire.msg"))}


_REQUEST = ("request_data", "gen_ai.system_instructions", "gen_ai.input.messages")
"""What was asked; the same on both pieces (captured)."""


def _complete(light: Light, span: Span) -> None:
    """A request that tells no answer may be that of a stream, whose answer says the same of it."""
    attributes = span.attributes
    if light.role != PROVIDER_CALL or "request_data" not in attributes:
        return
    waits = light.input_tokens is None and light.output_tokens is None and not light.response_id
    if waits or attributes.get("logfire.span_type") == "log":
        asked = hashlib.sha256()
        for key in _REQUEST:
            if (value := attributes.get(key)) is not None:
                text = value if isinstance(value, str) else to_json(value)
                asked.update(text.encode(errors="surrogatepass") + b"\n")
        light.labels[REQUEST] = asked.hexdigest()[:32]


DIALECT = Dialect(
    name="logfire",
    lacks=("The answer of a stream on the request's own span: it stands in a second, empty span and is put together."),
    keys=("logfire.msg", "logfire.span_type", "logfire.json_schema"),
    scopes=("logfire", "logfire."),
    role=_role,
    facts={
        "input_tokens": (inside("response_data", "usage", "prompt_tokens"),),
        "output_tokens": (inside("response_data", "usage", "completion_tokens"),),
        "cached_input_tokens": (inside("response_data", "usage", "prompt_tokens_details", "cached_tokens"),),
        "reasoning_tokens": (
            inside("gen_ai.usage.raw", "completion_tokens_details", "reasoning_tokens"),
            inside("gen_ai.usage.raw", "output_tokens_details", "reasoning_tokens"),
            inside("response_data", "usage", "completion_tokens_details", "reasoning_tokens"),
        ),
        "cost_usd": ("operation.cost",),
    },
    content={
        "system": (inside("request_data", "system"),),
        "input": (inside("request_data", "messages"), inside("request_data", "input")),
        "tools": (inside("request_data", "tools"),),
        "output": (inside("response_data", "message"), inside("response_data", "combined_chunk_content")),
    },
    labels={"tags": ("logfire.tags",)},
    names=_names,
    complete=_complete,
)
