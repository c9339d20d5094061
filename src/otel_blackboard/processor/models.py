"""What a model's name tells of who serves it: the last resort where an emitter names no provider."""

from __future__ import annotations

import re

_PROVIDERS = tuple(
    (re.compile(pattern), provider)
    for pattern, provider in (
        # Amazon Bedrock: `arn:aws:bedrock:…`, `us.anthropic.claude-sonnet-4-5-v1:0`, `amazon.nova-pro-v1:0`
        (r"arn:aws[a-z-]*:bedrock:", "aws.bedrock"),
        (r"(?:(?:us|eu|apac|ap|global|us-gov|jp|au|ca)\.)?(?:ai21|amazon|anthropic|cohere|deepseek|meta|mistral|openai|qwen|"
         r"stability|writer)\.", "aws.bedrock"),
        (r"(?:gpt-|chatgpt-|o[134](?:-|$)|text-embedding-(?:3|ada)|davinci|codex-)", "openai"),
        (r"claude-", "anthropic"),
        (r"(?:models/)?gemini-", "gcp.gemini"),
        (r"(?:mistral|ministral|magistral|codestral|pixtral|devstral)-", "mistral_ai"),
        (r"grok-", "x_ai"),
        (r"deepseek-", "deepseek"),
        (r"command-", "cohere"),
    )
)  # fmt: skip


def provider_of(model: str) -> str:
    """As gen_ai.provider.name; '' where the name does not tell."""
    name = model.lower()
    return next((provider for pattern, provider in _PROVIDERS if pattern.match(name)), "")
