"""What a call costs is what the price table's own package says, for every model it knows and any usage."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from genai_prices.data_snapshot import get_snapshot
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_blackboard.processor.model_names import known_model
from otel_blackboard.processor.prices import SOURCE, packaged_price, price, total_price
from otel_blackboard.processor.providers import inferred_provider
from otel_blackboard.records import Light
from tests.spans import Trace, derive

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


AT = int(NOW.timestamp()) * 10**9


def priced(provider: str, model: str, **more: Any) -> Decimal | None:
    """Of a million tokens read."""
    light = Light("t", "s", provider=provider, request_model=model, input_tokens=1_000_000, output_tokens=0)
    for name, value in more.items():
        setattr(light, name, value)
    found = price(light, AT)
    return found[0] if found else None


@pytest.mark.parametrize(
    ("provider", "model", "same_as"),
    [
        ("openai", "gpt-4o-mini-2024-07-18", "openai/gpt-4o-mini"),
        ("gcp.gemini", "models/gemini-2.5-flash", "google/gemini-2.5-flash"),
        ("gcp.gemini", "gemini-2.0-flash-001", "google/gemini-2.0-flash"),
        ("gcp.vertex_ai", "publishers/google/models/gemini-2.5-flash", "google/gemini-2.5-flash"),
        ("gcp.vertex_ai", "projects/p/locations/l/publishers/google/models/gemini-2.5-pro", "google/gemini-2.5-pro"),
        ("gcp.vertex_ai", "claude-sonnet-4@20250514", "anthropic/claude-sonnet-4-0"),
        ("gcp.vertex_ai", "claude-3-5-sonnet-v2@20241022", "anthropic/claude-3-5-sonnet"),
        ("anthropic", "claude-sonnet-4-5", "anthropic/claude-sonnet-4-5"),
        ("aws.bedrock", "us.anthropic.claude-3-5-sonnet-20241022-v2:0", "anthropic/claude-3-5-sonnet"),
        ("aws.bedrock", "eu.anthropic.claude-3-haiku-20240307-v1:0", "anthropic/claude-3-haiku"),
        ("aws.bedrock", "apac.anthropic.claude-3-haiku-20240307-v1:0", "anthropic/claude-3-haiku"),
        (
            "aws.bedrock",
            "global.anthropic.claude-sonnet-4-5-20250929-v1:0",
            "aws/global.anthropic.claude-sonnet-4-5-20250929-v1:0",
        ),
        ("", "us.anthropic.claude-3-haiku-20240307-v1:0", "anthropic/claude-3-haiku"),
        ("aws.bedrock", "bedrock/anthropic.claude-3-haiku-20240307-v1:0", "anthropic/claude-3-haiku"),
        ("aws.bedrock", "amazon.nova-pro-v1:0:300k", "aws/amazon.nova-pro-v1:0"),
        (
            "aws.bedrock",
            "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-3-haiku-20240307-v1:0",
            "anthropic/claude-3-haiku",
        ),
        (
            "aws.bedrock",
            "arn:aws:bedrock:us-east-1::foundation-model/anthropic.claude-3-haiku-20240307-v1:0",
            "anthropic/claude-3-haiku",
        ),
        ("openrouter", "openai/gpt-4o-mini", "openai/gpt-4o-mini"),
        ("", "openrouter/openai/gpt-4o-mini", "openai/gpt-4o-mini"),
        ("openai", "openai/gpt-4o-mini", "openai/gpt-4o-mini"),
        ("litellm", "gpt-4o-mini", "openai/gpt-4o-mini"),
        ("azure.ai.openai", "gpt-4o-2024-08-06", "openai/gpt-4o"),
        ("openai", "deepseek-chat", "deepseek/deepseek-chat"),
        ("openai", "ft:gpt-4o-mini-2024-07-18:org::abc", "openai/ft:gpt-4o-mini"),
    ],
)  # fmt: skip
def test_a_model_is_known_by_every_name_that_clouds_send(provider: str, model: str, same_as: str) -> None:
    assert priced(provider, model) == total_price(dict(MODELS)[same_as], 1_000_000, 0, 0, 0) != 0


@pytest.mark.parametrize(
    ("provider", "model"),
    [
        ("openai", "no-such-model"), ("", ""), ("", "none"),
        ("azure.ai.openai", "my-gpt-4o-deployment"), ("azure.ai.openai", "gpt-4o-prod"),
        ("openai", "gpt-4o-mini-made-up"), ("anthropic", "my-claude-v2-thing"), ("anthropic", "claude-opus-4-10"),
        ("gcp.gemini", "super-gemini-1.5-flash"), ("gcp.vertex_ai", "projects/p/locations/l/endpoints/123"),
        ("aws.bedrock", "arn:aws:bedrock:us-east-1:1:application-inference-profile/a1b2c3"),
        ("ollama", "mistral-7b"), ("ollama", "gpt-oss:20b"), ("openrouter", "openai/gpt-4o-mini:online"),
        ("anthropic", "claude-3-haiku" + "-2024-01-02" * 90 + "x"),
    ],
)  # fmt: skip
def test_a_model_that_is_not_in_the_table_has_no_price(provider: str, model: str) -> None:
    assert priced(provider, model) is None


def test_the_model_that_answered_decides() -> None:
    assert priced("azure.ai.openai", "my-deployment", response_model="gpt-4o-2024-08-06") == priced("openai", "gpt-4o")
    assert priced("openai", "gpt-4o", response_model="something-else") is None
    light = Light("t", "s", provider="openrouter", request_model="deepseek/deepseek-r1:free", input_tokens=10)
    light.response_model, light.output_tokens = "deepseek/deepseek-r1", 10
    assert price(light, AT) == (Decimal(0), SOURCE)


def test_without_what_was_written_the_price_is_unknown() -> None:
    assert priced("openai", "gpt-4o", output_tokens=None) is None
    assert priced("openai", "gpt-4o", output_tokens=None, operation="embeddings") is not None


_WORDS = st.from_regex(r"[a-z]{2,9}[a-z0-9]{0,3}", fullmatch=True).filter(
    lambda word: word not in ("latest", "default", "preview", "exp", "experimental", "beta", "thinking", "v")
)
_CLOSED = [model for model in MODELS if re.match("(openai|anthropic|google)/[a-z0-9.-]*[a-z0-9]$", model[0])]


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(_CLOSED), _WORDS, st.booleans())
def test_a_name_that_merely_contains_a_known_one_is_not_priced_as_that(
    model: tuple[str, Any], word: str, before: bool
) -> None:
    provider, _, name = model[0].partition("/")
    made_up = f"{word}-{name}" if before else f"{name}-{word}"
    found = known_model(provider, made_up)
    assert found is None or found.id != name


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(MODELS), st.text(max_size=40))
def test_every_model_is_known_by_its_own_name_and_no_name_breaks(model: tuple[str, Any], text: str) -> None:
    provider, _, name = model[0].partition("/")
    theirs = next(each for each in get_snapshot().providers if each.id == provider).find_model(name)
    if theirs is not None and not name.startswith(("regional.", "c4ai-")):  # rules that no name meets whole
        assert known_model(provider, name) is theirs
    known_model(provider, name + text)
    known_model(text, text + name)


def test_a_name_is_read_once() -> None:
    known_model.cache_clear()
    for _ in range(3):
        priced("anthropic", "claude-sonnet-4-5")
    assert known_model.cache_info().misses <= 1


@pytest.mark.parametrize(
    ("attributes", "model", "provider", "taken_from"),
    [
        ({"server.address": "api.openai.com"}, "anything", "openai", "server.address"),
        ({"server.address": "my-resource.openai.azure.com"}, "gpt-4o", "azure.ai.openai", "server.address"),
        ({"server.address": "bedrock-runtime.us-east-1.amazonaws.com"}, "x", "aws.bedrock", "server.address"),
        ({"server.address": "europe-west1-aiplatform.googleapis.com"}, "x", "gcp.vertex_ai", "server.address"),
        ({"net.peer.name": "https://api.anthropic.com:443/v1"}, "x", "anthropic", "server.address"),
        ({"server.address": "127.0.0.1"}, "gpt-4o-mini", "openai", "model"),
        ({}, "models/gemini-2.5-flash", "gcp.gemini", "model"),
        ({}, "us.anthropic.claude-3-haiku-20240307-v1:0", "aws.bedrock", "model"),
        ({}, "publishers/google/models/gemini-2.5-flash", "gcp.vertex_ai", "model"),
        ({}, "azure/my-deployment", "azure.ai.openai", "model"),
        ({"server.address": "notopenai.com"}, "gpt-oss:20b", "", ""),
        ({"server.address": "api.openai.com.example.org"}, "my-model", "", ""),
        ({}, "meta-llama/Llama-3.1-8B", "", ""), ({}, "", "", ""),
    ],
)  # fmt: skip
def test_who_answered_where_nobody_says(attributes: Any, model: str, provider: str, taken_from: str) -> None:
    assert inferred_provider(attributes, model) == (provider, taken_from)


@pytest.mark.parametrize("logged", ["", "azure.ai.openai"])
def test_an_inferred_provider_is_marked_and_gives_way_to_one_that_is_stated(logged: str) -> None:
    trace = Trace()
    chat = trace.chat(tokens=(1000, 10))
    chat.attributes["gen_ai.provider.name"] = "langchain"
    trace.log(chat, "gen_ai.user.message", 0.5, {"content": "Hi"}, gen_ai__system=logged or None)
    for logs in (trace.logs, [*trace.logs, *trace.logs]):
        (row,), _, _ = derive(trace.spans, logs)
        assert row.provider == (logged or "openai")
        assert ("provider_inferred_from" in row.labels) is not bool(logged)
        assert row.cost_usd is not None
