"""G1 message events that an emitter keeps in one attribute, as JSON `[{"event.name": …, role, content, …}, …]`: Pydantic AI
before 1.0, Logfire's bridge to the OpenAI Agents SDK. What was asked is read out of the whole (processor/messages.py)."""

from __future__ import annotations

from typing import Any

from otel_blackboard.processor.values import parsed
from otel_blackboard.records import Value


def answered(value: Value) -> Value:
    """The answer: the choices, or the assistant's messages, that end the list."""
    events = parsed(value)
    if not isinstance(events, list):
        return None
    place = len(events)
    while place and _answers(events[place - 1]):
        place -= 1
    return events[place:] or None


def _answers(event: Any) -> bool:
    return isinstance(event, dict) and (event.get("event.name") == "gen_ai.choice" or event.get("role") == "assistant")
