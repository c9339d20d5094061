"""The tracing dialects: what each calls a run, a pass, a model call, a tool.

A dialect is a table (fact → attribute keys, first non-empty wins) and a few small functions for what it cannot say.
To add one, write a module with a `DIALECT` and name it in the two lists below; nothing else changes. Several dialects
may describe one span: its role comes from the first of BY_ROLE that knows one, every other fact from the first of
BY_FIELD that has it. `genai` is the last by role, for it also goes by the shape of a span.
"""

from otel_blackboard.processor.dialects import (
    agent_framework,
    agentops,
    ai_sdk,
    anthropic_sdk,
    blackboard,
    copilot,
    genai,
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
    strands,
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
    ai_sdk.DIALECT,
    mcp.DIALECT,
    agent_framework.DIALECT,
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
    genai.DIALECT,
)
BY_FIELD: tuple[Dialect, ...] = (
    blackboard.DIALECT,
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

__all__ = ["BY_FIELD", "BY_ROLE", "Dialect"]
