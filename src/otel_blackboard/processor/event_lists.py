"""G1 message events that an emitter keeps in one attribute, as JSON `[{"event.name": …, role, content, …}, …]` (Pydantic AI
before 1.0, Logfire's bridge to the OpenAI Agents SDK): which of them were asked and which answered."""

from __future__ import annotations

from otel_blackboard.processor.values import parsed
from otel_blackboard.records import Value

_ANSWER = "gen_ai.choice"


def asked(value: Value) -> Value:
    """The messages of the request: all before the answer."""
    events = _events(value)
    return events[: _first_answer(events)] or None


def answered(value: Value) -> Value:
    """The answer: the choices, or the messages of the assistant that end the list (the Responses API has no choices)."""
    events = _events(value)
    return events[_first_answer(events) :] or None


def _events(value: Value) -> list[Value]:
    events = parsed(value)
    return [event for event in events if isinstance(event, dict)] if isinstance(events, list) else []


def _first_answer(events: list[Value]) -> int:
    place = len(events)
    while place and _answers(events[place - 1]):
        place -= 1
    return place


def _answers(event: Value) -> bool:
    return isinstance(event, dict) and (event.get("event.name") == _ANSWER or event.get("role") == "assistant")
