"""Usage as providers give it: objects in the names of OpenAI, Anthropic, or frameworks that hand theirs on; and whether
`input_tokens` counts what the provider's cache read and wrote. The conventions say it does; Anthropic counts it beside."""

from __future__ import annotations

from typing import Any

from otel_blackboard.processor.values import whole_number
from otel_blackboard.records import Light

_PLACES: dict[str, tuple[tuple[str, ...], ...]] = {
    "input_tokens": (("input",), ("prompt_tokens",), ("input_tokens",)),
    "output_tokens": (("output",), ("completion_tokens",), ("output_tokens",)),
    "cached_input_tokens": (
        ("cache_read_input_tokens",),
        ("prompt_tokens_details", "cached_tokens"),
        ("input_tokens_details", "cached_tokens"),
        ("input_cache_read",),
        ("input_cached_tokens",),
    ),
    "cache_write_tokens": (
        ("cache_creation_input_tokens",),
        ("prompt_tokens_details", "cache_write_tokens"),
        ("input_tokens_details", "cache_write_tokens"),
        ("input_cache_creation",),
    ),
    "reasoning_tokens": (
        ("completion_tokens_details", "reasoning_tokens"),
        ("output_tokens_details", "reasoning_tokens"),
        ("output_reasoning",),
    ),
}


def take_usage(light: Light, usage: Any) -> None:
    """Fills the counts that are not known yet from a usage object; anything else changes nothing."""
    if not isinstance(usage, dict) or light.input_tokens is not None or light.output_tokens is not None:
        return
    for name, places in _PLACES.items():
        if getattr(light, name) is None:
            setattr(light, name, next((n for path in places if (n := _count(usage, path)) is not None), None))
    # Langfuse's handler for LangChain takes the details out of `input` and `output`.
    anthropic = "input_tokens" in usage and (
        "cache_read_input_tokens" in usage or "cache_creation_input_tokens" in usage
    )
    include_cache(light, beside=anthropic or "input_cache_read" in usage or "input_cache_creation" in usage)
    if light.output_tokens is not None and "output_reasoning" in usage:
        light.output_tokens += light.reasoning_tokens or 0


def _count(usage: dict[str, Any], path: tuple[str, ...]) -> int | None:
    value: Any = usage
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return whole_number(value)


def include_cache(light: Light, *, beside: bool = False) -> None:
    """Makes `input_tokens` the whole input. `beside`: the emitter is known to count the cache beside it; else only where it
    cannot be otherwise, because more came from the cache than was read."""
    if light.input_tokens is None:
        return
    cached = (light.cached_input_tokens or 0) + (light.cache_write_tokens or 0)
    if beside or cached > light.input_tokens:
        light.input_tokens += cached
