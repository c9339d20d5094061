"""Pydantic AI, InstrumentationSettings.version 1 to 6 (dialects.md §5): scope `pydantic-ai`.

Version 2 and later speak the conventions and add to them. Before, the pass is `agent run`, a tool `running tool`, the
wrapper around tools of one answer `running tools`, and messages are G1 events in one attribute. The totals of a pass are
`gen_ai.aggregated_usage.*`; in 0.x `gen_ai.usage.*`, as on a model call.
"""

from __future__ import annotations

from otel_blackboard.processor.dialects.dialect import AGENT, NO_ROLE, Dialect, Role, Source, inside
from otel_blackboard.processor.event_lists import answered
from otel_blackboard.processor.values import parsed
from otel_blackboard.records import Span, Value


def _role(span: Span) -> Role | None:
    if span.scope.name != "pydantic-ai":
        return None
    if span.name == "agent run" or ("agent_name" in span.attributes and "model_name" in span.attributes):
        return AGENT
    return NO_ROLE if span.name.startswith("running ") and span.name.endswith("tools") else None


def _last_said(value: Value) -> Value:
    """The answer of a pass in its whole conversation, if that ends with one."""
    messages = parsed(value)
    last = messages[-1] if isinstance(messages, list) and messages else None
    return [last] if isinstance(last, dict) and last.get("role") == "assistant" else None


DIALECT = Dialect(
    name="pydantic_ai",
    lacks=("That a call went to a TestModel: it is shown as the call that its span says it is."),
    keys=("pydantic_ai.", "gen_ai.usage.details."),
    scopes=("pydantic-ai",),
    role=_role,
    facts={
        "agent_id": ("agent_name",),
        "request_model": ("model_name",),
        "input_tokens": ("gen_ai.aggregated_usage.input_tokens",),
        "output_tokens": ("gen_ai.aggregated_usage.output_tokens",),
        "cached_input_tokens": (
            "gen_ai.usage.details.cache_read_tokens",
            "gen_ai.usage.details.cached_tokens",
            "gen_ai.usage.details.cache_read_input_tokens",
            "gen_ai.aggregated_usage.cache_read.input_tokens",
        ),
        "cache_write_tokens": (
            "gen_ai.usage.details.cache_write_tokens",
            "gen_ai.usage.details.cache_creation_input_tokens",
        ),
        "reasoning_tokens": (
            "gen_ai.usage.details.reasoning_tokens",
            "gen_ai.aggregated_usage.details.reasoning_tokens",
        ),
        "cost_usd": ("operation.cost",),
    },
    content={
        "input": ("events",),
        "output": (
            "final_result",
            Source("pydantic_ai.all_messages", _last_said),
            Source("events", answered),
            Source("all_messages_events", answered),
        ),
        "tools": (inside("model_request_parameters", "function_tools"),),
        "arguments": ("tool_arguments",),
        "result": ("tool_response",),
    },
    plain=("final_result",),
)
