"""Microsoft Agent Framework (dialects.md §14) and Semantic Kernel (§13)."""

from __future__ import annotations

import json

from otel_blackboard.processor.reading import read_log
from tests.dialects.reading import light_of, scoped, tree_of
from tests.spans import TENANT, Trace, derive

SCOPE = "agent_framework"


def test_the_previous_response_is_no_conversation_and_the_framework_no_provider() -> None:
    trace = Trace()
    said = {"gen_ai__conversation__id": "resp_1", "gen_ai__provider__name": "microsoft.agent_framework"}
    light = light_of(scoped(SCOPE, trace.agent("bot", **said)))
    assert (light.conversation_id, light.provider) == ("", "")
    kept = light_of(scoped(SCOPE, trace.agent("bot", gen_ai__conversation__id="thread-1")))
    assert kept.conversation_id == "thread-1"
    elsewhere = light_of(trace.agent("bot", gen_ai__conversation__id="resp_1"))
    assert elsewhere.conversation_id == "resp_1"


def test_a_workflow_with_executors() -> None:
    trace = Trace()
    run = scoped(SCOPE, trace.span("workflow.run", 0, 9, workflow__name="pipeline"))
    more = {"executor__id": "writer", "executor__type": "AgentExecutor"}
    executor = scoped(SCOPE, trace.span("executor.process writer", 1, 5, run, **more))
    agent = scoped(SCOPE, trace.agent("writer", 2, 4, executor))
    plain = scoped(SCOPE, trace.span("executor.process upper", 6, 7, run, executor__id="upper",
                                     executor__type="FunctionExecutor"))  # fmt: skip
    for name in ("workflow.build", "edge_group.process X", "message.send"):
        scoped(SCOPE, trace.span(name, 5, 6, run))
    rows, part = tree_of(trace.spans)
    assert (part.name, part.agents) == ("pipeline", ("writer",))
    assert part.counts == {"flow_run": 1, "step": 3}
    assert rows[agent.span_id].step_span_id == executor.span_id
    assert rows[plain.span_id].step_name == "upper"


def test_the_name_of_a_workflow_that_has_none_is_not_another_one_with_every_run() -> None:
    for identity in ("63dbbf6e-ce06-4e73-8c4c-4e827b2d05a8", "0a1b2c3d-0000-4000-8000-4e827b2d05a8"):
        trace = Trace()
        scoped(SCOPE, trace.span("workflow.run", 0, 9, workflow__name=f"WorkflowBuilder-{identity}"))
        assert tree_of(trace.spans)[1].name == "workflow.run"


def test_semantic_kernels_content_is_json_text_in_log_records() -> None:
    trace = Trace()
    scope = "semantic_kernel.utils.telemetry.model_diagnostics.decorators"
    agent = trace.agent("bot", 0, 9)
    loop = scoped("semantic_kernel.connectors.ai.x", trace.span("AutoFunctionInvocationLoop", 0, 9, agent))
    call = scoped(scope, trace.chat(1, 2, loop, tokens=(120, 18), gen_ai__response__finish_reason="FinishReason.STOP"))
    said = {"role": "user", "content": "Weather?"}
    trace.log(call, "", 1.1, json.dumps(said), event__name="gen_ai.user.message", CHAT_MESSAGE_INDEX=0)
    choice = {"message": {"role": "assistant", "content": "Sunny."}, "finish_reason": "stop"}
    trace.log(call, "", 1.2, json.dumps(choice), event__name="gen_ai.choice")
    for record in trace.logs:
        record.scope.name = scope
    assert light_of(loop).role == ""
    assert light_of(call).labels["finish_reason"] == "FinishReason.STOP"
    answers = [derive(trace.spans[::way], trace.logs[::way]) for way in (1, -1)]
    for _, _, artifacts in answers:
        outputs = [row.summary for row in artifacts if row.kind == "agent_output" and row.source]
        assert outputs == ["Sunny."]
    assert read_log(TENANT, trace.logs[0]).light.has_input
