"""Usage objects of providers, and the cache inside or beside the input (dialects.md §0)."""

from __future__ import annotations

from typing import Any

import pytest

from otel_blackboard.processor.tree import resolve
from otel_blackboard.processor.usage import include_cache, take_usage
from otel_blackboard.records import CACHED_INPUT, Light, LogLight
from tests.dialects.reading import light_of, tree_of
from tests.spans import Trace


@pytest.mark.parametrize(
    ("usage", "found"),
    [
        ({"prompt_tokens": 120, "completion_tokens": 18}, (120, 18, None, None, None)),
        ({"input_tokens": 120, "output_tokens": 18, "input_tokens_details": {"cached_tokens": 64},
          "output_tokens_details": {"reasoning_tokens": 7}}, (120, 18, 64, None, 7)),
        # Anthropic counts its cache beside
        ({"input_tokens": 20, "output_tokens": 18, "cache_read_input_tokens": 70, "cache_creation_input_tokens": 30},
         (120, 18, 70, 30, None)),
        # so does Haystack's generator, which renames two of the four, and of Bedrock's figures the total tells
        ({"prompt_tokens": 1000, "completion_tokens": 18, "cache_read_input_tokens": 500}, (1500, 18, 500, None, None)),
        ({"prompt_tokens": 1000, "completion_tokens": 18, "total_tokens": 1548, "cache_read_input_tokens": 500,
          "cache_write_input_tokens": 30}, (1530, 18, 500, 30, None)),
        # LiteLLM and those who speak as OpenAI does have it in `prompt_tokens`
        ({"prompt_tokens": 1500, "completion_tokens": 18, "cache_read_input_tokens": 500,
          "prompt_tokens_details": {"cached_tokens": 500}}, (1500, 18, 500, None, None)),
        ({"prompt_tokens": 1500, "completion_tokens": 18, "total_tokens": 1518, "cache_read_input_tokens": 500,
          "prompt_tokens_details": None}, (1500, 18, 500, None, None)),
        # Langfuse's own schema: buckets that exclude each other
        ({"input": 10, "output": 5, "cache_read_input_tokens": 4}, (14, 5, 4, None, None)),
        ({"input": 10, "output": 5, "cache_read_input_tokens": 40}, (50, 5, 40, None, None)),
        ({"input": 56, "output": 11, "input_cache_read": 64, "output_reasoning": 7}, (120, 18, 64, None, 7)),
        ({"input": 56, "output": 11, "total": 138, "input_cached_tokens": 60, "input_audio_tokens": 4,
          "output_reasoning_tokens": 7}, (120, 18, 60, None, 7)),
        ({"input": 20, "output": 18, "total": 138, "input_cache_read": 70, "input_cache_creation": 0,
          "input_ephemeral_5m_input_tokens": 30, "input_ephemeral_1h_input_tokens": 0}, (120, 18, 70, 30, None)),
        ({"input": 0, "output": 18, "total": 118, "input_cached_tokens": 90, "input_audio_tokens": 50},
         (100, 18, 90, None, None)),  # some of the cached ones are audio
        ({"input": 120, "output": 18, "input_priority": 120}, (120, 18, None, None, None)),
        # its plugin for Codex, and its wrapper of OpenAI's client for JavaScript at first: the total says that they do not
        ({"input": 120, "output": 18, "total": 138, "cache_read_input_tokens": 64, "output_reasoning": 7},
         (120, 18, 64, None, 7)),
        ({"input": 120, "output": None, "input_tokens": 3, "output_x": "y"}, (120, None, None, None, None)),
        ({"input": "x", "output": None, "total": 3}, (None, None, None, None, None)),
        ("nothing", (None, None, None, None, None)),
    ],
)  # fmt: skip
def test_usage_objects(usage: Any, found: tuple[int | None, ...]) -> None:
    light = Light("t", "s")
    take_usage(light, usage)
    said = (light.input_tokens, light.output_tokens, light.cached_input_tokens, light.cache_write_tokens,
            light.reasoning_tokens)  # fmt: skip
    assert said == found


def test_what_is_known_already_is_not_taken_from_a_usage_object() -> None:
    light = Light("t", "s", input_tokens=1)
    take_usage(light, {"input_tokens": 20, "cache_read_input_tokens": 70})
    include_cache(light)
    assert (light.input_tokens, light.cached_input_tokens) == (1, None)


@pytest.mark.parametrize(
    ("known", "beside", "total", "whole"),
    [
        ((20, 18, 64, 30), False, None, 114),  # it cannot be otherwise
        ((120, 18, 64, 30), False, None, 120),
        ((120, 18, 64, 30), True, None, 214),
        ((120, 18, 64, 30), False, 232, 214),
        ((120, 18, 64, 30), True, 138, 120),
        ((120, 18, 64, 30), False, 140, 120),  # something else is in the total
        ((120, 18, 64, 30), True, 140, 214),
        ((120, None, 64, None), True, 120, 184),
        ((20, 18, 64, None), False, 38, 84),
        ((120, 18, None, None), True, 200, 120),
        ((None, 18, 64, None), True, 200, None),
    ],
)
def test_the_cache_is_counted_once(
    known: tuple[int | None, ...], beside: bool, total: int | None, whole: int | None
) -> None:
    light = Light("t", "s", input_tokens=known[0], output_tokens=known[1], cached_input_tokens=known[2],
                  cache_write_tokens=known[3])  # fmt: skip
    for _ in range(2):
        include_cache(light, beside=beside, total=total)
        include_cache(light)
        assert light.input_tokens == whole
    assert (CACHED_INPUT in light.labels) == (whole != known[0])


def _chat(
    trace: Trace, read: int, *, cached: int = 64, written: int | None = None, total: int | None = None, **more: Any
) -> None:
    trace.chat(1, 2, tokens=(read, 18), gen_ai__usage__cache_read__input_tokens=cached,
               gen_ai__usage__cache_write__input_tokens=written, gen_ai__usage__total_tokens=total, **more)  # fmt: skip


@pytest.mark.parametrize(
    ("read", "written", "total", "whole"),
    [(20, None, None, 84), (20, 30, None, 114), (120, 30, None, 120), (120, 30, 138, 120), (120, 30, 232, 214)],
)
def test_of_any_span_that_counts_the_cache_beside_its_input(
    read: int, written: int | None, total: int | None, whole: int
) -> None:
    trace = Trace()
    _chat(trace, read, written=written, total=total)
    _, part = tree_of(trace.spans)
    assert (part.input_tokens, part.cached_input_tokens) == (whole, 64)
    assert part.cost_usd is not None
    assert light_of(trace.spans[0]).labels.get(CACHED_INPUT, "") == ("beside" if whole != read else "")


def test_of_a_span_whose_log_records_tell_of_the_cache() -> None:
    trace = Trace()
    span = trace.chat(1, 2, tokens=(20, 18))
    light = light_of(span)
    without = light.cost_usd
    told = LogLight(span.trace_id, span.span_id, "00", 1, cached_input_tokens=64)
    for _ in range(2):
        _, (part,) = resolve([light], [told])
        assert (part.input_tokens, part.cached_input_tokens) == (84, 64)
        assert part.cost_usd is not None and without is not None and part.cost_usd > without
