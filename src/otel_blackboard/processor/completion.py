"""What log records and satellites say of spans, put into their light rows before the tree is made of them."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence

from otel_blackboard.processor.nodes import USAGE
from otel_blackboard.processor.prices import set_price
from otel_blackboard.processor.providers import INFERRED
from otel_blackboard.processor.usage import include_cache
from otel_blackboard.records import Light, LogLight

_FROM_LOGS = (
    "conversation_id",
    "user_id",
    "provider",
    "request_model",
    "response_model",
    "response_id",
    "requested",
    *USAGE,
)

_PRICED_BY = frozenset(("provider", "request_model", "response_model", *USAGE))


def take_usage(light: Light, told: Mapping[str, int]) -> None:
    for name, count in told.items():
        setattr(light, name, count)
    if light.cost_source != "span":
        light.cost_usd, light.cost_source = None, ""
        set_price(light)


def complete_from_logs(spans: Sequence[Light], logs: Iterable[LogLight]) -> None:
    """Log records complete their span: what an attribute said stays, several logs count by time, then hash."""
    by_span = {light.span_id: light for light in spans}
    priced_anew: dict[str, Light] = {}
    counted_anew: dict[str, Light] = {}
    for log in sorted(logs, key=lambda log: (log.time_ns, log.record_sha256)):
        light = by_span.get(log.span_id)
        if light is None:
            continue
        for name in _FROM_LOGS:
            said = getattr(log, name)
            if said in (None, "", ()):
                continue
            inferred = name == "provider" and INFERRED in light.labels
            if inferred or getattr(light, name) in (None, "", ()):
                setattr(light, name, said)
                if inferred:
                    light.labels = {label: value for label, value in light.labels.items() if label != INFERRED}
                if name in USAGE:
                    counted_anew[light.span_id] = light
                if name in _PRICED_BY and light.cost_source != "span":
                    priced_anew[light.span_id] = light
        light.has_input = light.has_input or log.has_input
        light.has_output = light.has_output or log.has_output
        if log.labels:
            light.labels = light.labels | log.labels
    for light in counted_anew.values():
        include_cache(light)
    for light in priced_anew.values():  # by all that is known in the end
        light.cost_usd, light.cost_source = None, ""
        set_price(light)


def without_restated(spans: Sequence[Light]) -> Sequence[Light]:
    """Spans made of log records have no part in a derived trace once one of its records was written inside another trace:
    then the emitter sends spans, which say the same (captured: Codex, whose records of usage name no call)."""
    if not any("traced" in light.labels for light in spans):
        return spans
    restated = [copy.copy(light) for light in spans]
    for light in restated:
        if "from_log" in light.labels:
            light.role, light.cost_usd, light.cost_source = "", None, ""
            for name in USAGE:
                setattr(light, name, None)
    return restated
