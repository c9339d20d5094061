"""The action ledger (LED): what an agent has already done in its run, as text for its system prompt. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from otel_blackboard.processor.drafts import RECALL_TOOL, sameness
from otel_blackboard.query.artifacts import Artifact

HEADING = """## Actions already taken this run
You have already performed these tool calls in this run. Do NOT repeat an
identical call (same tool + same arguments); reuse the stated outcome or
refine your approach. For the full result of any call, use the blackboard."""

MOST_LINES = 30
ARGUMENTS_SHOWN = 300
OUTCOME_SHOWN = 200


_NO_ARGUMENTS = sameness("{}")


class Call(NamedTuple):
    """One tool call of the ledger, in the order made."""

    tool: str
    arguments: str
    """Compact JSON in the order sent (LED-05); '' when none were sent."""
    sameness: str
    """Equal where tool and arguments are the same call (LED-07)."""
    outcome: str
    failed: bool


def calls_of(artifacts: Iterable[Artifact], agent_id: str | None, recall_calls: bool = False) -> list[Call]:
    """The tool calls of one agent (None = of all), oldest first. Only tool results count."""
    own = [
        artifact
        for artifact in artifacts
        if artifact.kind == "tool_result"
        and (agent_id is None or artifact.attempt.agent_id == agent_id)
        and (recall_calls or artifact.resolved.tool_name != RECALL_TOOL)
    ]
    # In the order made: passes may overlap, and what a retry left of an earlier attempt was made before it.
    own.sort(key=lambda artifact: (artifact.start_ns, *artifact.sort_key))
    return [
        Call(
            artifact.resolved.tool_name,
            artifact.row.arguments,
            artifact.row.arguments_sha256 or _NO_ARGUMENTS,
            artifact.row.summary,
            artifact.resolved.status == "failed",
        )
        for artifact in own
    ]


def lines(calls: Iterable[Call]) -> list[str]:
    """One line for each distinct call, at the place of its latest, the most recent thirty, newest last."""
    latest: dict[tuple[str, str], Call] = {}
    for call in calls:
        key = (call.tool, call.sameness)
        latest.pop(key, None)
        latest[key] = call
    return [line(call) for call in list(latest.values())[-MOST_LINES:]]


def line(call: Call) -> str:
    arguments = cut(call.arguments or "{}", ARGUMENTS_SHOWN)
    mark = " (failed)" if call.failed else ""
    tool, outcome = (" ".join(text.split()) for text in (call.tool, call.outcome))
    return f"- {tool}({arguments}){mark} -> {cut(outcome, OUTCOME_SHOWN)}"


def text(ledger_lines: list[str]) -> str:
    """The block for the prompt; '' without calls, not even its heading."""
    return "\n".join((HEADING, "", *ledger_lines)) if ledger_lines else ""


def cut(value: str, most: int) -> str:
    """At most `most` characters, the `…` of a cut included."""
    return value if len(value) <= most else value[: most - 1] + "…"
