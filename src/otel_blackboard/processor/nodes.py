"""A span as it stands in the tree of its trace, and what its neighbours ask of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from otel_blackboard.processor.dialects.dialect import TOOL
from otel_blackboard.records import Light

USAGE = ("input_tokens", "output_tokens", "cached_input_tokens", "cache_write_tokens", "reasoning_tokens")


@dataclass(slots=True)
class Node:
    light: Light
    parent: Node | None = None
    part: str = ""
    step: Node | None = None
    """Innermost pass this span belongs to, by its identity-giving (outermost) span."""
    inner_step: Node | None = None
    agents: set[str] = field(default_factory=set)
    """The agents that the steps inside this pass name."""
    depth: int = 0
    marked: Node | None = None
    """The nearest pass or call above."""
    agent_id: str = ""
    """Of the span, else of the nearest span above that names one."""
    step_id: str = ""
    pass_seq: int | None = None
    attempt: int | None = None
    """What is stamped on the pass; on its outermost span also what only an inner one says."""

    @property
    def key(self) -> tuple[int, str]:
        return (self.light.start_ns, self.light.span_id)


def node_of(light: Light) -> Node:
    if is_agent_tool(light):  # it is stamped with the numbers of the pass that it is a call of
        return Node(light, agent_id=light.agent_id)
    return Node(light, agent_id=light.agent_id, step_id=light.step_id, pass_seq=light.pass_seq, attempt=light.attempt)


def is_agent_tool(light: Light) -> bool:
    """A tool call that runs an agent: a call of the pass above, and itself the pass of what is below."""
    return light.role == TOOL and light.is_agent


def own_pass(node: Node) -> str:
    return node.step.light.span_id if node.step is not None else ""


def has_usage(light: Light) -> bool:
    return light.cost_usd is not None or light.input_tokens is not None or light.output_tokens is not None


def end_of(light: Light) -> int:
    return light.end_ns or 2**64
