"""OpenLLMetry old and new (dialects.md §3), B1, B2 where it is on the wire."""

from __future__ import annotations

import json
from typing import Any

import pytest

from otel_blackboard.processor.dialects.dialect import PROVIDER_CALL, TOOL
from tests.dialects.reading import artifact_of, body_of, fields_of, light_of, scoped, tree_of
from tests.spans import Trace


def test_decorators_make_run_agent_step_and_tool() -> None:
    trace = Trace()
    common = {"traceloop__workflow__name": "flow", "traceloop__association__properties__session_id": "s1",
              "traceloop__association__properties__user_id": "u1"}  # fmt: skip
    run = trace.span("flow.workflow", traceloop__span__kind="workflow", traceloop__entity__name="flow", **common)
    # 0.45: a nested agent overwrites the workflow's name.
    nested = common | {"traceloop__workflow__name": "bot"}
    agent = trace.span("bot.agent", 0, 1, run, traceloop__span__kind="agent", traceloop__entity__name="bot",
                       traceloop__entity__output='"done"', **nested)  # fmt: skip
    task = trace.span(
        "lookup.task", 0, 1, agent, traceloop__span__kind="task", traceloop__entity__name="lookup", **nested
    )
    tool = trace.span(
        "get_weather.tool", 0, 1, task, traceloop__span__kind="tool", traceloop__entity__name="get_weather",
        traceloop__entity__path="lookup", traceloop__entity__input='{"args": [], "kwargs": {"city": "Paris"}}',
        traceloop__entity__output='{"temp_c": 22}', **nested,
    )  # fmt: skip
    rows, part = tree_of(trace.spans)
    assert (part.name, part.conversation_id, part.user_id, part.agents) == ("flow", "s1", "u1", ("bot",))
    assert part.counts == {"flow_run": 1, "step": 2, "tool_invocation": 1}
    assert (rows[agent.span_id].agent_id, rows[task.span_id].step_name) == ("bot", "lookup")
    assert rows[tool.span_id].tool_name == "get_weather"
    row = artifact_of(tool, "tool_result")
    assert row is not None and (row.arguments, row.summary) == ('{"city":"Paris"}', '{"temp_c": 22}')
    output = artifact_of(agent, "agent_output")
    assert output is not None and output.summary == "done" and body_of(agent, "agent_output") == b'"done"'


def test_a_workflow_inside_of_a_task_is_a_step() -> None:
    trace = Trace()
    inner = trace.span("sub.workflow", traceloop__span__kind="workflow", traceloop__entity__name="sub",
                       traceloop__entity__path="lookup")  # fmt: skip
    light = light_of(inner)
    assert (light.role, light.is_node, light.step_name) == ("step", True, "sub")


@pytest.mark.parametrize(
    ("kind", "role", "operation"),
    [
        ("chat", PROVIDER_CALL, "chat"),
        ("completion", PROVIDER_CALL, "chat"),
        ("embedding", PROVIDER_CALL, "embeddings"),
        ("rerank", PROVIDER_CALL, "rerank"),
        ("unknown", "", ""),
    ],
)
def test_old_model_calls_by_request_type(kind: str, role: str, operation: str) -> None:
    light = light_of(Trace().span("x", llm__request__type=kind))
    assert (light.role, light.operation) == (role, operation)


def test_an_old_model_call() -> None:
    call = Trace().span(
        "anthropic.chat",
        llm__request__type="completion",
        **{
            "gen_ai.system": "Anthropic",
            "gen_ai.request.model": "claude-sonnet-4-5",
            "gen_ai.prompt.0.role": "user",
            "gen_ai.prompt.0.content": "Weather?",
            "gen_ai.completion.0.role": "assistant",
            "gen_ai.completion.0.content": "Sunny.",
            "llm.request.functions.0.name": "get_weather",
            "gen_ai.usage.prompt_tokens": "120",
            "gen_ai.usage.completion_tokens": 18,
            "gen_ai.usage.cache_read_input_tokens": 70,
            "gen_ai.usage.cache_creation_input_tokens": 30,
            "llm.usage.total_tokens": 138,
        },
    )
    light = light_of(call)
    assert (light.provider, light.input_tokens, light.output_tokens) == ("anthropic", 120, 18)
    assert (light.cached_input_tokens, light.cache_write_tokens) == (70, 30)
    assert light.cost_usd is not None
    assert fields_of(call, "llm_prompt") == ["gen_ai.prompt.*", "llm.request.functions.*"]
    output = artifact_of(call, "agent_output")
    assert output is not None and output.summary == "Sunny."


def test_langgraph_tools_wrap_what_they_get_and_give() -> None:
    given = json.dumps({"input_str": "{'city': 'Paris'}", "tags": None, "metadata": {"step": 1}})
    returned = json.dumps({"output": {"lc": 1, "type": "constructor", "id": ["langchain", "ToolMessage"],
                                      "kwargs": {"content": "22C", "tool_call_id": "call_1"}}})  # fmt: skip
    tool = Trace().tool("get_weather", arguments=given, result=returned, traceloop__span__kind="tool",
                        traceloop__entity__name="get_weather")  # fmt: skip
    row = artifact_of(tool, "tool_result")
    assert row is not None and (row.arguments, row.summary) == ('{"city":"Paris"}', "22C")
    assert body_of(tool, "tool_result") == returned.encode()
    assert light_of(tool).tool_call_id == "call_1"


def test_langgraph_says_one_pass_twice_and_its_own_name_as_provider() -> None:
    trace = Trace()
    more = {"gen_ai__provider__name": "langgraph"}
    outer = scoped("opentelemetry.instrumentation.langchain", trace.agent("bot", 0, 5, **more))
    inner = scoped("opentelemetry.instrumentation.langchain", trace.agent("bot", 1, 4, outer, **more))
    call = trace.chat(2, 3, inner, tokens=(120, 18))
    rows, part = tree_of(trace.spans)
    assert {row.step_span_id for row in rows.values()} == {outer.span_id}
    assert rows[outer.span_id].provider == "" and rows[call.span_id].provider == "openai"
    assert part.counts["step"] == 2 and part.agents == ("bot",)


@pytest.mark.parametrize("between", [False, True])
def test_a_workflow_in_a_workflow_is_no_second_run(between: bool) -> None:
    trace = Trace()
    outer = trace.span("a.workflow", 0, 9, traceloop__span__kind="workflow", traceloop__entity__name="a")
    above = trace.span("GET /", 1, 8, outer) if between else outer
    inner = trace.span("b.workflow", 2, 7, above, traceloop__span__kind="workflow", traceloop__entity__name="b",
                       traceloop__workflow__name="b")  # fmt: skip
    trace.span("c.workflow", 3, 6, inner, traceloop__span__kind="workflow", traceloop__entity__name="c")
    rows, part = tree_of(trace.spans)
    assert (part.counts, part.name) == ({"flow_run": 1}, "a")
    assert rows[inner.span_id].role == "flow_run", "what it is goes by the span alone"


def test_workflows_side_by_side_are_counted_each() -> None:
    trace = Trace(run_id="r")
    for name in ("a", "b"):
        trace.span(f"{name}.workflow", 0, 9, traceloop__span__kind="workflow", traceloop__entity__name=name)
    assert tree_of(trace.spans)[1].counts == {"flow_run": 2}


def test_making_an_agent_is_no_pass() -> None:
    made = Trace().span("create_agent bot", gen_ai__operation__name="create_agent", traceloop__span__kind="agent")
    assert light_of(made).role == ""


def test_a_crews_tokens_count_only_where_its_calls_have_none() -> None:
    """B1."""
    for with_calls in (False, True):
        trace = Trace()
        crew = trace.span(
            "crewai.workflow", 0, 9, traceloop__span__kind="workflow", traceloop__entity__name="crewai",
            **{"crewai.crew.token_usage": "total_tokens=276 prompt_tokens=240 cached_prompt_tokens=0 completion_tokens=36"},
        )  # fmt: skip
        if with_calls:
            trace.chat(1, 2, crew, tokens=(120, 18))
        rows, part = tree_of(trace.spans)
        assert (part.input_tokens, part.output_tokens) == ((120, 18) if with_calls else (240, 36))
        assert rows[crew.span_id].is_aggregate is not with_calls


CREWAI = "opentelemetry.instrumentation.crewai"


@pytest.mark.parametrize(
    "more", [{"gen_ai__provider__name": "crewai", "gen_ai__operation__name": "invoke_agent"}, {"gen_ai__system": "crewai"},
             {"traceloop__span__kind": "workflow"}]
)  # fmt: skip
def test_a_crew_is_the_run_and_its_result_the_answer(more: dict[str, Any]) -> None:
    """As 0.62 and 0.45 write it (read: its source), and with a kind."""
    trace = Trace()
    crew = scoped(CREWAI, trace.span("crewai.workflow", 0, 9, crewai__crew__result="It is 22C.", **more))
    task = scoped(CREWAI, trace.span("Tell the weather.task", 1, 8, crew, traceloop__span__kind="task",
                                     crewai__task__description="Tell the weather", crewai__task__name="weather",
                                     crewai__task__agent="Reporter", traceloop__entity__output="It is 22C."))  # fmt: skip
    agent = scoped(CREWAI, trace.span("Reporter.agent", 2, 7, task, traceloop__span__kind="agent",
                                      crewai__agent__role="Reporter", crewai__agent__backstory="You report."))  # fmt: skip
    light = light_of(crew)
    assert (light.role, light.provider, light.has_output) == ("flow_run", "", True)
    row = artifact_of(crew, "agent_output")
    assert row is not None and row.summary == "It is 22C."
    assert body_of(crew, "agent_output") == b"It is 22C."
    assert (light_of(task).step_name, light_of(task).agent_id) == ("weather", "")
    assert light_of(agent).agent_id == "Reporter"
    agent.attributes["gen_ai.agent.name"] = "Senior Reporter"
    assert light_of(agent).agent_id == "Senior Reporter"
    assert tree_of(trace.spans)[1].counts == {"flow_run": 1, "step": 2}


def test_values_of_any_type_do_not_raise() -> None:
    for value in (None, 1, 2.5, True, b"\xff", ["workflow"], {"a": 1}, "", "{", "[" * 200):
        keys = ("traceloop.span.kind", "traceloop.entity.name", "traceloop.entity.input", "traceloop.entity.output",
                "traceloop.entity.path", "llm.request.type", "gen_ai.tool.call.arguments", "gen_ai.tool.call.result")  # fmt: skip
        light_of(Trace().span("x", **dict.fromkeys(keys, value)))
        light_of(Trace().span("x", **dict.fromkeys(keys, value) | {"traceloop.span.kind": "tool"}))


def test_positional_arguments_stay_a_list() -> None:
    tool = Trace().span(
        "t.tool", traceloop__span__kind="tool", traceloop__entity__input='{"args": ["Paris"], "kwargs": {}}'
    )
    row = artifact_of(tool, "tool_result")
    assert row is not None and row.arguments == '["Paris"]'
    assert light_of(tool).role == TOOL
