"""Logfire and its wrappers of model clients (dialects.md §5): scopes `logfire`, `logfire.<integration>`, keys `logfire.*`.

A span's name is a template (`Chat Completion with {request_data[model]!r}`), `logfire.msg` what it says. Spans of other
instrumentations that pass through Logfire have its keys, too. Of a span that has not ended a copy may come with
`logfire.span_type` = `pending_span`. A streamed answer is a span of zero length beside its request's (`log`): content, ids
and usage are on it alone. Before 4.0 the request and the answer are `request_data` and `response_data`.
"""

from __future__ import annotations

from otel_blackboard.processor.dialects.dialect import NO_ROLE, Dialect, Role, inside
from otel_blackboard.processor.values import first_text
from otel_blackboard.records import Span


def _role(span: Span) -> Role | None:
    return NO_ROLE if span.attributes.get("logfire.span_type") == "pending_span" else None


def _names(span: Span, role: Role) -> dict[str, str]:
    return {} if span.parent_span_id else {"run_name": first_text(span.attributes.get("logfire.msg"))}


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
)
