"""Usage objects of providers and of frameworks that hand them on; and whether `input_tokens` counts what the provider's
cache read and wrote. The conventions and OpenAI say it does; Anthropic and Bedrock count it beside, and so do emitters that
hand their figures on. What a span says of its total tells which; else the emitter, where it is known; else what cannot be."""

from __future__ import annotations

from typing import Any

from otel_blackboard.processor.values import whole_number
from otel_blackboard.records import CACHED_INPUT, Light

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
        ("cache_write_input_tokens",),
        ("prompt_tokens_details", "cache_write_tokens"),
        ("input_tokens_details", "cache_write_tokens"),
        ("input_cache_creation",),
        ("input_cache_write_tokens",),
    ),
    "reasoning_tokens": (
        ("completion_tokens_details", "reasoning_tokens"),
        ("output_tokens_details", "reasoning_tokens"),
        ("output_reasoning",),
        ("output_reasoning_tokens",),
    ),
}
_TOTAL = (("total",), ("total_tokens",))
_BESIDE = ("cache_read_input_tokens", "cache_creation_input_tokens", "cache_write_input_tokens")
"""Anthropic's and Bedrock's names, whose figures exclude each other."""
_DETAILS = ("prompt_tokens_details", "input_tokens_details")
"""OpenAI's: parts of the input."""


def take_usage(light: Light, usage: Any) -> None:
    """Fills the counts that are not known yet from a usage object; anything else changes nothing."""
    if not isinstance(usage, dict) or light.input_tokens is not None or light.output_tokens is not None:
        return
    for name, places in _PLACES.items():
        if getattr(light, name) is None:
            setattr(light, name, _first(usage, places))
    total = _first(usage, _TOTAL)
    if "input" in usage:
        _add_buckets(light, usage, total)
    else:
        beside = any(name in usage for name in _BESIDE) and not any(usage.get(name) for name in _DETAILS)
        include_cache(light, beside=beside, total=total)


def _add_buckets(light: Light, usage: dict[str, Any], total: int | None) -> None:
    """Langfuse's own schema is buckets that exclude each other: `input` is what none of the others counts. Some who send it
    do not know; their total is no more than `input` and `output`."""
    if not light.cache_write_tokens:  # langchain-anthropic tells it by lifetime, and then the sum as 0
        told = [_count(usage, (f"input_ephemeral_{lifetime}_input_tokens",)) for lifetime in ("5m", "1h")]
        light.cache_write_tokens = sum(each or 0 for each in told) or light.cache_write_tokens
    read, written = light.input_tokens or 0, light.output_tokens or 0
    if total is not None and total <= read + written:
        include_cache(light, total=total)
        return
    more_read = sum(_count(usage, (name,)) or 0 for name in _BESIDE) + _sum_of_others(usage, "input_")
    more_written = _sum_of_others(usage, "output_")
    if more_written:
        light.output_tokens = written + more_written
    if more_read:
        whole = read + more_read
        if total is not None:  # details that overlap
            whole = min(whole, max(read, total - written - more_written))
        light.input_tokens = whole
        _mark_beside(light)


def _sum_of_others(usage: dict[str, Any], prefix: str) -> int:
    """Of what stands apart from the bucket called as the prefix is. Tokens of a service tier are among the others."""
    return sum(
        _count(usage, (name,)) or 0
        for name in usage
        if name.startswith(prefix) and name != f"{prefix}tokens" and not name.startswith(f"{prefix}priority")
    )


def _first(usage: dict[str, Any], places: tuple[tuple[str, ...], ...]) -> int | None:
    return next((count for path in places if (count := _count(usage, path)) is not None), None)


def _count(usage: dict[str, Any], path: tuple[str, ...]) -> int | None:
    value: Any = usage
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return whole_number(value)


def include_cache(light: Light, *, beside: bool = False, total: int | None = None) -> None:
    """Makes `input_tokens` the whole input, once. `total`: what the emitter says of all tokens, and believed. `beside`: it is
    known to count the cache beside its input; else only where it cannot be otherwise, because more came from the cache."""
    cached = (light.cached_input_tokens or 0) + (light.cache_write_tokens or 0)
    if not cached or light.input_tokens is None or CACHED_INPUT in light.labels:
        return
    if total is not None and light.output_tokens is not None:
        rest = total - light.input_tokens - light.output_tokens
        beside = rest == cached or (beside and rest != 0)
    if beside or cached > light.input_tokens:
        light.input_tokens += cached
        _mark_beside(light)


def _mark_beside(light: Light) -> None:
    if light.cached_input_tokens or light.cache_write_tokens:
        light.labels = light.labels | {CACHED_INPUT: "beside"}
