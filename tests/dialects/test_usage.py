"""Usage objects of providers, and the cache inside or beside the input (dialects.md §0)."""

from __future__ import annotations

from typing import Any

import pytest

from otel_blackboard.processor.usage import include_cache, take_usage
from otel_blackboard.records import Light


@pytest.mark.parametrize(
    ("usage", "found"),
    [
        ({"prompt_tokens": 120, "completion_tokens": 18}, (120, 18, None, None, None)),
        ({"input_tokens": 120, "output_tokens": 18, "input_tokens_details": {"cached_tokens": 64},
          "output_tokens_details": {"reasoning_tokens": 7}}, (120, 18, 64, None, 7)),
        # Anthropic counts its cache beside
        ({"input_tokens": 20, "output_tokens": 18, "cache_read_input_tokens": 70, "cache_creation_input_tokens": 30},
         (120, 18, 70, 30, None)),
        ({"input": 10, "output": 5, "cache_read_input_tokens": 4}, (10, 5, 4, None, None)),
        ({"input": 10, "output": 5, "cache_read_input_tokens": 40}, (50, 5, 40, None, None)),
        # Langfuse's handler for LangChain takes the details out
        ({"input": 56, "output": 11, "input_cache_read": 64, "output_reasoning": 7}, (120, 18, 64, None, 7)),
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
