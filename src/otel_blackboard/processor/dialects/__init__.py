"""The tracing dialects: what each calls a run, a pass, a model call, a tool.

A dialect is a table (fact → attribute keys, first non-empty wins) and a few small functions for what it cannot say.
To add one, write a module with a `DIALECT` and name it in the two lists below; nothing else changes. Several dialects
may describe one span: its role comes from the first of BY_ROLE that knows one, every other fact from the first of
BY_FIELD that has it. `genai` is the last by role, for it also goes by the shape of a span.
"""

from otel_blackboard.processor.dialects import (
    agent_framework,
    agentops,
    anthropic_sdk,
    blackboard,
    copilot,
    genai,
    laminar,
    llamaindex,
    loongsuite,
    mastra,
    mcp,
    openlit,
    semantic_kernel,
    strands,
    traceloop,
)
from otel_blackboard.processor.dialects.dialect import Dialect

BY_ROLE: tuple[Dialect, ...] = (
    blackboard.DIALECT,
    llamaindex.DIALECT,
    traceloop.DIALECT,
    mastra.DIALECT,
    laminar.DIALECT,
    agentops.DIALECT,
    mcp.DIALECT,
    agent_framework.DIALECT,
    strands.DIALECT,
    semantic_kernel.DIALECT,
    anthropic_sdk.DIALECT,
    openlit.DIALECT,
    copilot.DIALECT,
    loongsuite.DIALECT,
    genai.DIALECT,
)
BY_FIELD: tuple[Dialect, ...] = (
    blackboard.DIALECT,
    strands.DIALECT,
    genai.DIALECT,
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
