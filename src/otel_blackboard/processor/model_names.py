"""Which model of the price table a name means, and who answers to it: names as clouds, gateways and SDKs really send them.

The table of `genai-prices` matches loosely (`*claude-v2*`, `gemini-2.5-pro…`): a name that only contains a known one would
be priced as that one. Here what such a rule leaves over must be a mark of version or place: a date, `-latest`, `-v1:0`, the
region and maker of a Bedrock id. Everything else is another model, or an alias that nobody but its owner can read: unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

# gen_ai.provider.name, or what stands before the first slash of a model's name → provider id of genai-prices, where
# they differ; others are passed as they are.
_SELLERS = {
    "gcp.gemini": "google",
    "gcp.vertex_ai": "google",
    "gcp.gen_ai": "google",
    "gemini": "google",
    "vertex_ai": "google",
    "aws.bedrock": "aws",
    "aws_bedrock": "aws",
    "bedrock": "aws",
    "bedrock_converse": "aws",
    "azure.ai.openai": "azure",
    "azure.ai.inference": "azure",
    "azure_ai": "azure",
    "mistral_ai": "mistral",
    "mistralai": "mistral",
    "x_ai": "x-ai",
    "xai": "x-ai",
    "moonshot_ai": "moonshotai",
    "moonshot": "moonshotai",
    "together_ai": "together",
    "fireworks_ai": "fireworks",
}

_PATH = re.compile(
    r"models/|(?:projects/[^/]+/locations/[^/]+/)?publishers/[^/]+/models/"
    r"|arn:aws[a-z-]*:bedrock:[^/]*:(?:foundation-model|inference-profile)/"
)
"""What stands before the name. Endpoints and application profiles have numbers for names: nobody knows what they run."""

_MAKERS = (
    "ai21|amazon|anthropic|cohere|deepseek|google|luma|meta|minimax|mistral|moonshot|moonshotai|nvidia|openai|qwen|"
    "stability|twelvelabs|writer|zai"
)
_REGIONS = "af|ap|apac|au|ca|eu|global|in|jp|kr|me|sa|uk|us|us-gov"
BEDROCK = re.compile(rf"(?P<region>(?:{_REGIONS})\.)?(?:{_MAKERS})\.(?=[a-z])")
_BEFORE_NAME = re.compile(rf"(?:(?:{_REGIONS})\.)?(?:(?:{_MAKERS})\.)?")

_DATE = r"20\d\d-?\d\d-?\d\d|\d\d-20\d\d|\d\d-\d\d|\d{3}|\d{4}|\d{6}"
_VERSION = re.compile(rf"(?:[-@:](?:{_DATE}|latest|default|preview|exp|experimental|v\d)|:\d+k?){{0,4}}")
"""Marks that say which edition of a model, not another model."""

_UNFINISHED = re.compile(r"-\d*$")
"""The end of a rule that may break off inside a mark: `claude-sonnet-4-2025…`, `*gemini-2.0-flash-0*`."""

_SAME_PRICE = re.compile(r":(?:beta|thinking)$")
"""Variants of OpenRouter that cost what the model costs. Others (`:online`, `:nitro`) do not."""

SOLD_BY_ONE = (
    (re.compile(r"gpt-(?!oss)|chatgpt-|o[134](?:-|$)|text-embedding-(?:3|ada)|ft:gpt-"), "openai"),
    (re.compile(r"claude-"), "anthropic"),
    (re.compile(r"gemini-"), "gcp.gemini"),
    (re.compile(r"grok-"), "x_ai"),
)
"""Models whose weights nobody else has, and their makers: whoever passes a call on, this is what is paid for it."""


@lru_cache(maxsize=4096)
def known_model(provider: str, model: str) -> Any:
    """The ModelInfo of `genai-prices`; None for a name that is not, but for such marks, one of the table's."""
    name = model.strip().lower()
    found = _known(provider, name)
    if found is None and (plain := _SAME_PRICE.sub("", name)) != name:
        found = _known(provider, plain)
    return found


def _known(provider: str, name: str) -> Any:
    if path := _PATH.match(name):
        name = name[path.end() :]
    return next((found for seller, each in _readings(provider, name) if (found := _sold(seller, each))), None)


def _readings(provider: str, name: str) -> Iterator[tuple[Any, str]]:
    """Who may sell it, under which name, the likeliest first."""
    from genai_prices.data_snapshot import get_snapshot

    if bedrock := BEDROCK.match(name):
        aws = _seller("aws")
        yield aws, name
        if (bedrock["region"] or "global.") != "global.":
            yield aws, name.removeprefix(bedrock["region"])
        return
    stated = _seller(provider)
    if stated is not None:
        yield stated, name
    maker, slash, rest = name.partition("/")
    if slash:  # `openai/gpt-4o-mini`, `openrouter/openai/gpt-4o-mini`
        if (seller := _seller(maker)) is not None:
            yield from _readings(seller.id, rest)
        return
    # OpenAI's SDK, which names `openai`, speaks to many servers. Others serve open weights at prices of their own.
    if (
        not provider
        or (stated is not None and stated.id == "openai")
        or any(each.match(name) for each, _ in SOLD_BY_ONE)
    ):
        for seller in get_snapshot().providers:
            if seller.model_match is not None and seller.model_match.is_match(name):
                yield seller, name


def _seller(provider: str) -> Any:
    from genai_prices.data_snapshot import find_provider_by_id, get_snapshot

    return find_provider_by_id(get_snapshot().providers, _SELLERS.get(provider, provider)) if provider else None


def _sold(seller: Any, name: str) -> Any:
    from genai_prices.data_snapshot import get_snapshot

    others = seller.fallback_model_providers or ()
    models = [
        model for each in (seller, *(p for p in get_snapshot().providers if p.id in others)) for model in each.models
    ]
    at_vertex = name.replace("@", "-")
    dashed = re.sub(r"-(20\d\d)(\d\d)(\d\d)$", r"-\1-\2-\3", at_vertex)
    for each in dict.fromkeys((name, at_vertex, dashed)):
        for model in models:
            if _means(model.match, each, seller.id):
                return model
    return None


def _means(rule: Any, name: str, seller: str) -> bool:
    """Whether a rule of the table is met, and leaves nothing over that could make it another model."""
    if not rule.is_match(name):
        return False
    if (some := getattr(rule, "or_", None)) is not None:
        return any(_means(each, name, seller) for each in some)
    if (all_ := getattr(rule, "and_", None)) is not None:
        return any(_means(each, name, seller) for each in all_)
    if (regex := getattr(rule, "regex", None)) is not None:
        match = re.search(regex, name)
        start, end = match.span() if match else (0, 0)
        if start == end:
            return False
    else:
        (text,) = vars(rule).values()
        text = text.lower()
        start = len(name) - len(text) if hasattr(rule, "ends_with") else name.index(text)
        end = start + len(text)
        if text.startswith("ft:") or ".ft-" in text:  # a tuned model: its owner names the rest
            return start == 0
        broken = _UNFINISHED.search(text)
        if broken and end < len(name) and (name[end].isdigit() or broken[0] == "-"):
            end -= len(broken[0])
    before = name[:start]
    of_seller = before in ("", f"{seller}-") or (seller == "aws" and _BEFORE_NAME.fullmatch(before) is not None)
    return of_seller and _VERSION.fullmatch(name[end:]) is not None
