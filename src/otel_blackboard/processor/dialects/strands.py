"""AWS Strands (dialects.md §9), 0.2 and 1.x: content in span events, messages as Bedrock blocks, usage twice.

A tool's arguments and result are the events `gen_ai.tool.message` and `gen_ai.choice` of its own span, told from those of
a model call by their `id`. With `gen_ai_latest_experimental` all events are named
`gen_ai.client.inference.operation.details`, one attribute each; before 1.62 a tool's arguments and result are the parts of
its messages there. Until August 2026 `input_tokens` was what the model's API said: of Bedrock without the cache, which the
total counts (read: strands-agents/harness-sdk#3886).
"""

from __future__ import annotations

from otel_blackboard.processor.dialects.answers import TIME_TO_FIRST_TOKEN, milliseconds
from otel_blackboard.processor.dialects.dialect import (
    NO_ROLE,
    RUN,
    TOOL,
    Dialect,
    Part,
    Role,
    not_provider,
)
from otel_blackboard.processor.values import first_text, parsed, to_json
from otel_blackboard.processor.wrappers import part_of_call
from otel_blackboard.records import Event, Light, Span, Value

SCOPE = "strands.telemetry.tracer"

_OPERATIONS = {"execute_event_loop_cycle": NO_ROLE, "invoke_graph": RUN, "invoke_swarm": RUN}


def _role(span: Span) -> Role | None:
    if span.scope.name != SCOPE:
        return None
    if span.name.startswith("Cycle "):  # 0.2 names no operation
        return NO_ROLE
    return _OPERATIONS.get(first_text(span.attributes.get("gen_ai.operation.name")))


def _event(event: Event) -> list[Part]:
    attributes = event.attributes
    if "id" not in attributes:
        return []
    if event.name == "gen_ai.tool.message" and "content" in attributes:
        return [Part("arguments", "content", attributes["content"])]
    if event.name == "gen_ai.choice" and "message" in attributes:
        return [Part("result", "message", attributes["message"])]
    return []


def _result(value: Value) -> Value:
    """One block `[{"json": …}]` or `[{"text": …}]` is what it holds."""
    blocks = parsed(value)
    if isinstance(blocks, list) and len(blocks) == 1 and isinstance(blocks[0], dict) and len(blocks[0]) == 1:
        for key in ("json", "text"):
            if key in blocks[0]:
                return blocks[0][key]  # type: ignore[no-any-return]
    return value


def _returned(light: Light, span: Span) -> Value:
    for event in reversed(span.events):
        if event.name == "gen_ai.choice":
            return event.attributes.get("message")
        if (messages := event.attributes.get("gen_ai.output.messages")) is not None:
            return part_of_call(messages, "tool_call_response", light.tool_call_id, light.tool_name).get("response")
    return None


def _complete(light: Light, span: Span) -> None:
    attributes = span.attributes
    failed = "error" in (attributes.get("gen_ai.tool.status"), attributes.get("tool.status"))
    if light.role == TOOL and failed and light.status == "succeeded":  # 0.2 says OK
        light.status = "failed"
        shown = _result(_returned(light, span))
        light.error = light.error or ("" if shown is None else first_text(shown) or to_json(shown))[:2_000]


DIALECT = Dialect(
    name="strands",
    lacks=("The provider of the model. Version 0.2: the system prompt; failed tools have the status OK."),
    keys=(),
    scopes=(SCOPE,),
    role=_role,
    facts={},
    content={"system": ("system_prompt",)},
    labels={TIME_TO_FIRST_TOKEN: (milliseconds("gen_ai.server.time_to_first_token"),)},
    ignore={"provider": not_provider("strands-agents")},
    unwrap={"result": _result},
    complete=_complete,
    event=_event,
)
