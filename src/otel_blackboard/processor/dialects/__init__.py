"""The tracing dialects: what each calls a run, a pass, a model call, a tool.

A dialect is a table (fact → attribute keys, first non-empty wins) and a few small functions for what it cannot say.
To add one, write a module with a `DIALECT` and name it in the two lists below; nothing else changes. Several dialects
may describe one span: its role comes from the first of BY_ROLE that knows one, every other fact from the first of
BY_FIELD that has it. `genai` is the last by role, for it also goes by the shape of a span.
"""

from otel_blackboard.processor.dialects import (
    autogen,
    blackboard,
    claude_code,
    codex,
    gemini_cli,
    genai,
    google_adk,
    temporal,
)
from otel_blackboard.processor.dialects.dialect import Dialect

BY_ROLE: tuple[Dialect, ...] = (
    blackboard.DIALECT,
    claude_code.DIALECT,
    codex.DIALECT,
    gemini_cli.DIALECT,
    google_adk.DIALECT,
    autogen.DIALECT,
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
    genai.DIALECT,
)

__all__ = ["BY_FIELD", "BY_ROLE", "Dialect"]
