"""The pass that each span belongs to, its place in the run, and the output that stands for each pass."""

from __future__ import annotations

from collections import defaultdict

from otel_blackboard.processor.dialects.dialect import FLOW_RUN, GUARD, PROVIDER_CALL, STEP, TOOL
from otel_blackboard.processor.identity import slug
from otel_blackboard.processor.nodes import USAGE, Node, is_agent_tool
from otel_blackboard.records import Resolved


def assign_steps(nodes: list[Node], root: Node) -> None:
    """Each span's pass. A step directly holding one of the same agent is that same pass: the outer gives the identity.

    A span whose parent is missing is shown under the run's root, so where that is a pass, it belongs to it.
    """
    root_pass = root if root.light.role == STEP and not root.light.parent_span_id else None
    for node in nodes:
        parent = node.parent
        if parent is None and node.light.parent_span_id and node.light.role != STEP:
            parent = root_pass
        if parent is not None:
            node.marked = parent if parent.light.role in (STEP, TOOL, PROVIDER_CALL) else parent.marked
            node.agent_id = node.agent_id or parent.agent_id
        if parent is None or parent is root_pass or is_agent_tool(parent.light):
            node.step = node.inner_step = parent
        else:
            node.step, node.inner_step = parent.step, parent.inner_step
        above = node.step
        if node.light.role == STEP:
            node.step = node.inner_step = node
            if above is not None and _same_pass(above, node) and _directly(above, node):
                node.step = above
                above.step_id = above.step_id or node.step_id
                if above.pass_seq is None:
                    above.pass_seq, above.attempt = node.pass_seq, node.attempt
    for node in nodes:  # a step that names no agent is the pass of the one agent that it holds
        inner = node.inner_step
        if inner is not None and node.step is not None and inner is not node.step and inner.light.agent_id:
            node.step.agents.add(inner.light.agent_id)
    _number_retries(nodes)


def _number_retries(nodes: list[Node]) -> None:
    """Steps that say which pass they are without a number (label `pass_key`): one that comes again is its next attempt."""
    keyed = [node for node in nodes if node.step is node and "pass_key" in node.light.labels and node.pass_seq is None]
    passes: dict[tuple[str, str], dict[str, list[Node]]] = defaultdict(lambda: defaultdict(list))
    for node in sorted(keyed, key=lambda node: node.key):
        passes[(node.step_id, node.light.agent_id)][node.light.labels["pass_key"]].append(node)
    for of_step in passes.values():
        for pass_seq, attempts in enumerate(of_step.values(), 1):
            if len(attempts) > 1:
                for attempt, node in enumerate(attempts, 1):
                    node.pass_seq, node.attempt = pass_seq, attempt


def _same_pass(outer: Node, inner: Node) -> bool:
    one, other = outer.light.agent_id, inner.light.agent_id
    if one and one == other:
        # Both numbered and different: an outer pass that really holds another pass of its own agent.
        numbers = [(node.pass_seq, node.attempt or 1) for node in (outer, inner) if node.pass_seq is not None]
        return len(set(numbers)) < 2
    return bool(outer.step_id) and outer.step_id == inner.step_id and not (one and other)


def _directly(outer: Node, inner: Node) -> bool:
    """Whether no call stands between them: what is right above is the outer step, or another span of its pass."""
    above = inner.marked
    return above is not None and above.light.role == STEP and above.step is outer


def row_of(node: Node, part: str, run_id: str, implicit_step: str, only_agent: str, use_case: str) -> Resolved:
    light = node.light
    row = Resolved(light.trace_id, light.span_id, part, run_id)
    row.parent_span_id = node.parent.light.span_id if node.parent is not None else ""
    row.role, row.name, row.operation = light.role, light.name, light.operation
    row.start_ns, row.end_ns, row.status, row.error = light.start_ns, light.end_ns, light.status, light.error
    row.labels, row.requested = light.labels, light.requested
    row.loop_iteration, row.output_retry, row.retry_count = light.loop_iteration, light.output_retry, light.retry_count
    row.provider, row.model = light.provider, light.response_model or light.request_model
    row.tool_name, row.tool_class, row.tool_call_id = light.tool_name, light.tool_class, light.tool_call_id
    row.use_case_id = light.use_case_id or use_case
    for name in USAGE:
        setattr(row, name, getattr(light, name))
    row.cost_usd, row.cost_source = light.cost_usd, light.cost_source
    step = node.step
    if step is None:
        row.step_id = light.step_id or implicit_step
        row.step_name = light.step_name
        calling = node.parent if is_agent_tool(light) else node
        row.agent_id = (calling.agent_id if calling is not None else "") or only_agent
        row.pass_seq, row.attempt = light.pass_seq, light.attempt
    else:
        own = step.light
        named = _named(node)
        row.step_span_id = own.span_id
        said = light.agent_id if light.role in (TOOL, PROVIDER_CALL) and not is_agent_tool(light) else ""
        row.agent_id = own.agent_id or named or said or step.agent_id
        row.step_id = step.step_id or light.step_id or "step_" + slug(own.agent_id or own.step_name or own.name)
        row.step_name = own.step_name or own.agent_id or own.name
        row.pass_seq = step.pass_seq if step.pass_seq is not None else light.pass_seq
        row.attempt = step.attempt if step.attempt is not None else light.attempt
    row.call_seq = light.call_seq
    return row


def _named(node: Node) -> str:
    """The agent that a step inside the pass names, where the outer one names none."""
    if node.step is not None and len(node.step.agents) == 1:
        return next(iter(node.step.agents))
    return node.inner_step.light.agent_id if node.inner_step is not None else ""


def judge_guards(nodes: list[Node], rows: dict[str, Resolved]) -> None:
    """A guard whose verdict only the span above it tells, by failing: it names the guard (label `tripped_guard`)."""
    for node in nodes:
        light = node.light
        if light.role == GUARD and node.parent is not None and "guard_status" not in light.labels:
            tripped = node.parent.light.labels.get("tripped_guard")
            if tripped and tripped == light.labels.get("guard_name", light.name):
                rows[light.span_id].labels = light.labels | {"guard_status": "blocked"}


def choose_outputs(nodes: list[Node], rows: dict[str, Resolved], root: Node) -> None:
    """Which span's output stands for each pass: the pass's own (outermost first), else that of its last model call.

    What a flow_run at the root returns is the answer of the calls under no step, where no step tells one."""
    of_flow = (
        root.light.role == FLOW_RUN
        and root.light.has_output
        and not any(node.light.role == STEP and node.light.has_output for node in nodes)
        and any(node.step is None and rows[node.light.span_id].call_span_id for node in nodes)
    )
    best: dict[tuple[str, str, str, int | None, int | None], tuple[tuple[int, int, int, str], str]] = {}
    for node in nodes:
        light, row = node.light, rows[node.light.span_id]
        answers = light.role in (STEP, PROVIDER_CALL) or (of_flow and node is root)
        if not light.has_output or not answers or light.operation == "embeddings":
            continue
        if light.role == PROVIDER_CALL and not row.call_span_id:
            continue
        rank = (
            (0, light.start_ns, -node.depth, light.span_id)
            if light.role == PROVIDER_CALL
            else (1, -node.depth, -light.start_ns, light.span_id)
        )
        key = (row.step_span_id, row.step_id, row.agent_id, row.pass_seq, row.attempt)
        if key not in best or rank > best[key][0]:
            best[key] = (rank, light.span_id)
    for _, span_id in best.values():
        rows[span_id].stands = True
