"""The tracing dialects: what each calls a run, a pass, a model call, a tool.

A dialect is a table (fact → attribute keys, first non-empty wins) and a few small functions for what it cannot say.
To add one, write a module with a `DIALECT` and name it in the two lists below; nothing else changes. Several dialects
may describe one span: its role comes from the first of BY_ROLE that knows one, every other fact from the first of
BY_FIELD (of some facts of BY_FACT) that has it. `genai` is the last by role, for it also goes by the shape of a span.
"""

from collections.abc import Mapping

from otel_blackboard.processor.dialects import (
    agent_framework,
    agentops,
    ai_sdk,
    anthropic_sdk,
    autogen,
    blackboard,
    claude_code,
    codex,
    copilot,
    gemini_cli,
    genai,
    google_adk,
    haystack,
    laminar,
    langfuse,
    langsmith,
    litellm,
    llamaindex,
    logfire,
    loongsuite,
    mastra,
    mcp,
    mlflow,
    nemo_relay,
    nvidia_nat,
    openai_agents_logfire,
    openinference,
    openlit,
    pydantic_ai,
    semantic_kernel,
    spring_ai,
    strands,
    temporal,
    traceloop,
)
from otel_blackboard.processor.dialects.dialect import Dialect

BY_ROLE: tuple[Dialect, ...] = (
    blackboard.DIALECT,
    logfire.DIALECT,  # only says which spans are mere copies, whatever they copy
    langfuse.DIALECT,
    openinference.DIALECT,
    nvidia_nat.DIALECT,
    nemo_relay.DIALECT,
    llamaindex.DIALECT,
    traceloop.DIALECT,
    mlflow.DIALECT,
    langsmith.DIALECT,
    mastra.DIALECT,
    laminar.DIALECT,
    agentops.DIALECT,
    claude_code.DIALECT,
    codex.DIALECT,
    gemini_cli.DIALECT,
    spring_ai.DIALECT,
    ai_sdk.DIALECT,
    mcp.DIALECT,
    agent_framework.DIALECT,
    google_adk.DIALECT,
    autogen.DIALECT,
    strands.DIALECT,
    semantic_kernel.DIALECT,
    anthropic_sdk.DIALECT,
    openlit.DIALECT,
    copilot.DIALECT,
    loongsuite.DIALECT,
    pydantic_ai.DIALECT,
    openai_agents_logfire.DIALECT,
    haystack.DIALECT,
    litellm.DIALECT,
    temporal.DIALECT,
    genai.DIALECT,
)
BY_FIELD: tuple[Dialect, ...] = (
    blackboard.DIALECT,
    claude_code.DIALECT,
    codex.DIALECT,
    gemini_cli.DIALECT,
    google_adk.DIALECT,
    autogen.DIALECT,
    temporal.DIALECT,
    strands.DIALECT,
    genai.DIALECT,
    nemo_relay.DIALECT,
    openinference.DIALECT,
    nvidia_nat.DIALECT,
    ai_sdk.DIALECT,
    pydantic_ai.DIALECT,
    openai_agents_logfire.DIALECT,
    logfire.DIALECT,
    langfuse.DIALECT,
    mlflow.DIALECT,
    haystack.DIALECT,
    litellm.DIALECT,
    langsmith.DIALECT,
    agent_framework.DIALECT,
    semantic_kernel.DIALECT,
    spring_ai.DIALECT,
    anthropic_sdk.DIALECT,
    mcp.DIALECT,
    openlit.DIALECT,
    copilot.DIALECT,
    loongsuite.DIALECT,
    mastra.DIALECT,
    laminar.DIALECT,
    agentops.DIALECT,
    llamaindex.DIALECT,
    traceloop.DIALECT,
)

BY_FACT: Mapping[str, tuple[Dialect, ...]] = {
    # What an application says of its session before what a framework makes up.
    "conversation_id": (langfuse.DIALECT, genai.DIALECT, traceloop.DIALECT),
}
"""Fact → the dialects that come first for it, before those of BY_FIELD in their order."""

__all__ = ["BY_FACT", "BY_FIELD", "BY_ROLE", "Dialect"]
