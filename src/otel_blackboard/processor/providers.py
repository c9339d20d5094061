"""Who answered a model call whose sender named a framework at most: by the server, else by a model that only one sells."""

from __future__ import annotations

import re
from functools import lru_cache

from otel_blackboard.processor.model_names import BEDROCK, SOLD_BY_ONE
from otel_blackboard.processor.values import first_text
from otel_blackboard.records import Attributes

INFERRED = "provider_inferred_from"
"""Label of a call whose provider nobody stated: what it was taken from, `server.address` or `model`."""

# The end of server.address → gen_ai.provider.name; the first that fits.
_SERVERS = (
    ("api.openai.com", "openai"),
    ("openai.azure.com", "azure.ai.openai"),
    ("ai.azure.com", "azure.ai.inference"),
    ("cognitiveservices.azure.com", "azure.ai.openai"),
    ("api.anthropic.com", "anthropic"),
    ("generativelanguage.googleapis.com", "gcp.gemini"),
    ("aiplatform.googleapis.com", "gcp.vertex_ai"),
    ("api.mistral.ai", "mistral_ai"),
    ("api.cohere.com", "cohere"),
    ("api.cohere.ai", "cohere"),
    ("api.deepseek.com", "deepseek"),
    ("api.groq.com", "groq"),
    ("api.perplexity.ai", "perplexity"),
    ("api.x.ai", "x_ai"),
    ("ml.cloud.ibm.com", "ibm.watsonx.ai"),
    ("openrouter.ai", "openrouter"),
    ("api.together.xyz", "together"),
    ("api.fireworks.ai", "fireworks"),
)
_BEDROCK_SERVER = re.compile(r"bedrock[a-z-]*\.[a-z0-9-]+\.amazonaws\.com(?:\.cn)?")

# What stands before the first slash of a model's name in gateways, and ways of writing that one cloud has.
_PREFIXES = {
    "anthropic": "anthropic",
    "azure": "azure.ai.openai",
    "azure_ai": "azure.ai.inference",
    "bedrock": "aws.bedrock",
    "cohere": "cohere",
    "deepseek": "deepseek",
    "gemini": "gcp.gemini",
    "groq": "groq",
    "mistral": "mistral_ai",
    "openai": "openai",
    "openrouter": "openrouter",
    "perplexity": "perplexity",
    "vertex_ai": "gcp.vertex_ai",
    "xai": "x_ai",
}
_WRITTEN = (
    (re.compile(r"(?:projects/.*/)?publishers/[^/]+/models/"), "gcp.vertex_ai"),
    (re.compile(r"arn:aws[a-z-]*:bedrock:"), "aws.bedrock"),
    (BEDROCK, "aws.bedrock"),
)


def inferred_provider(attributes: Attributes, model: str) -> tuple[str, str]:
    """(gen_ai.provider.name, what it was taken from); two empty texts where nothing tells."""
    server = first_text(attributes.get("server.address") or attributes.get("net.peer.name"))
    if server and (found := _of_server(server)):
        return found, "server.address"
    return (found, "model") if model and (found := _of_model(model)) else ("", "")


@lru_cache(maxsize=1024)
def _of_server(server: str) -> str:
    host = server.lower().removeprefix("https://").removeprefix("http://").partition("/")[0].partition(":")[0]
    if _BEDROCK_SERVER.fullmatch(host):
        return "aws.bedrock"
    for end, provider in _SERVERS:
        if host == end or host.endswith(("." + end, "-" + end)):  # europe-west1-aiplatform.googleapis.com
            return provider
    return ""


@lru_cache(maxsize=1024)
def _of_model(model: str) -> str:
    name = model.strip().lower()
    for beginning, provider in (*_WRITTEN, *SOLD_BY_ONE):
        if beginning.match(name.removeprefix("models/")):
            return provider
    prefix, slash, _ = name.partition("/")
    return _PREFIXES.get(prefix, "") if slash else ""
