"""What a call costs is what the price table's own package says, for every model it knows and any usage."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from genai_prices.data_snapshot import get_snapshot
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_blackboard.processor.prices import SOURCE, packaged_price, price, total_price
from otel_blackboard.records import Light

NOW = datetime(2026, 11, 30, tzinfo=UTC)
MODELS: list[tuple[str, Any]] = [
    (f"{provider.id}/{model.id}", model.get_prices(NOW))
    for provider in get_snapshot().providers
    for model in provider.models
]
tokens = st.one_of(st.integers(0, 2_000), st.integers(0, 2_000_000))


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(MODELS), tokens, tokens, tokens, tokens)
def test_our_sum_is_the_packages_sum(model: tuple[str, Any], read: int, written: int, cached: int, fresh: int) -> None:
    name, prices = model
    ours = total_price(prices, read + cached + fresh, written, cached, fresh)
    assert ours == packaged_price(prices, read + cached + fresh, written, cached, fresh), name


def test_usage_that_contradicts_itself_has_no_price() -> None:
    assert total_price(MODELS[0][1], 10, 0, 11, 0) is None


@pytest.mark.parametrize(
    ("provider", "model", "known"),
    [
        ("openai", "gpt-4o-mini-2024-07-18", True), ("gcp.gemini", "models/gemini-2.5-flash", True),
        ("anthropic", "claude-sonnet-4-5", True), ("openai", "no-such-model", False), ("", "", False),
    ],
)  # fmt: skip
def test_a_model_that_is_not_in_the_table_has_no_price(provider: str, model: str, known: bool) -> None:
    light = Light("t", "s", provider=provider, request_model=model, input_tokens=1000, output_tokens=10)
    found = price(light, int(NOW.timestamp()) * 10**9)
    assert (found is not None) == known
    if found:
        assert isinstance(found[0], Decimal) and found[0] > 0 and found[1] == SOURCE
