"""What a call cost, by the price table of the `genai-prices` package. Unknown model, unknown price: None.

The package's own calculation takes 160 µs a call; where a model's prices are known by the token the same sum is taken
here. A property test holds the two equal.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from importlib.metadata import version
from typing import Any, NamedTuple

from otel_blackboard.processor.model_names import known_model
from otel_blackboard.records import Light

SOURCE = f"genai-prices {version('genai-prices')}"
_MILLION = Decimal(1_000_000)


def price(light: Light, at_ns: int) -> tuple[Decimal, str] | None:
    """(US dollars, source) of one provider call from its own usage; `at_ns` picks the price of that day.

    The model that answered decides; the one that was asked for may be an alias, and counts where no other is named."""
    day = min(max(at_ns, 0) // 86_400_000_000_000, 2_900_000)
    model = light.response_model or light.request_model
    if light.request_model == f"{model}:free":  # OpenRouter answers with the name of the model that costs
        model = light.request_model
    prices = _prices(model, light.provider, day) if model else None
    if prices is None:
        return None
    if light.output_tokens is None and prices.output_mtok and light.operation != "embeddings":
        return None
    total = total_price(
        prices,
        light.input_tokens or 0,
        light.output_tokens or 0,
        light.cached_input_tokens or 0,
        light.cache_write_tokens or 0,
    )
    return None if total is None else (total.quantize(Decimal("1e-12")).normalize(), SOURCE)


def set_price(light: Light) -> None:
    """Prices a model call whose usage is known and whose cost was not stated."""
    if light.role != "provider_call" or light.cost_usd is not None or light.input_tokens is None:
        return
    if found := price(light, light.start_ns):
        light.cost_usd, light.cost_source = found


def total_price(prices: Any, read: int, written: int, cached: int, cache_write: int) -> Decimal | None:
    """The price of one call; None where the usage contradicts itself (more cached than read)."""
    fresh = read - cached - cache_write
    if fresh < 0:
        return None
    per_read = prices.input_mtok
    parts = [
        (count, _rate(each, read))
        for count, each in (
            (fresh, per_read),
            (cached, prices.cache_read_mtok if prices.cache_read_mtok is not None else per_read),
            (cache_write, prices.cache_write_mtok if prices.cache_write_mtok is not None else per_read),
            (written, prices.output_mtok),
        )
        if count
    ]
    if all(isinstance(each, Decimal) for _, each in parts) and not prices.requests_kcount:
        return sum((count * each for count, each in parts), Decimal(0)) / _MILLION
    return packaged_price(prices, read, written, cached, cache_write)


def _rate(price: Any, read: int) -> Any:
    """The price a million tokens that holds for `read` input tokens: the highest tier they exceed prices all of them."""
    if isinstance(price, Decimal) or price is None:
        return price
    return next((tier.price for tier in reversed(price.tiers) if read > tier.start), price.base)


def packaged_price(prices: Any, read: int, written: int, cached: int, cache_write: int) -> Decimal | None:
    from genai_prices import Usage

    usage = Usage(
        input_tokens=read,
        output_tokens=written or None,
        cache_read_tokens=cached or None,
        cache_write_tokens=cache_write or None,
    )
    try:
        return Decimal(prices.calc_price(usage)["total_price"])
    except (ValueError, LookupError):
        return None


class _Prices(NamedTuple):
    """The package's ModelPrice: it looks each name up anew, these are plain fields."""

    input_mtok: Any
    output_mtok: Any
    cache_read_mtok: Any
    cache_write_mtok: Any
    requests_kcount: Any
    calc_price: Any


@lru_cache(maxsize=4096)
def _prices(model: str, provider: str, day: int) -> _Prices | None:
    """The prices of that day, None for a model the package does not know."""
    found = known_model(provider, model)
    if found is None:
        return None
    prices = found.get_prices(datetime.fromtimestamp(day * 86_400, tz=UTC))
    return _Prices(*(getattr(prices, name) for name in _Prices._fields))
