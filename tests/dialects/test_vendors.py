"""AI SDK, Pydantic AI, Logfire, LangSmith, MLflow, LiteLLM, Langfuse, Haystack (dialects.md §4 to 7, §10, §16 to 18; B, C)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from otel_blackboard.processor.dialects.dialect import FLOW_RUN, GUARD, PROVIDER_CALL, STEP, TOOL
from otel_blackboard.processor.usage import include_cache, take_usage
from otel_blackboard.records import Light, Span
from tests.dialects.reading import artifact_of, body_of, event, fields_of, light_of, scoped, tree_of
from tests.spans import Trace

MESSAGES = json.dumps([{"role": "user", "content": "hello"}])


def sent(trace: Trace, scope: str, name: str, attributes: dict[str, Any], *place: Any, **more: Any) -> Span:
    """A span with attribute names as they are on the wire."""
    span = scoped(scope, trace.span(name, *place, **more))
    span.attributes |= attributes
    return span


# ---------------------------------------------------------------------------------------------------------------- AI SDK


def ai(trace: Trace, operation: str, *place: Any, error: str | None = None, **attributes: Any) -> Span:
    said = {
        "ai.operationId": f"ai.{operation}",
        "ai.telemetry.functionId": "weather",
        "ai.model.provider": "openai.chat",
        "ai.model.id": "gpt-4o-mini",
    }
    more = {f"ai.{key.replace('__', '.')}": value for key, value in attributes.items()}
    return sent(trace, "ai", f"ai.{operation}", said | more, *place, error=error)


@pytest.mark.parametrize("outer_usage", [(120, 18), (240, 36)], ids=["of the last call", "of all calls"])
def test_ai_sdk_bills_the_calls_and_not_their_pass(outer_usage: tuple[int, int]) -> None:
    trace = Trace()
    reading, writing = outer_usage
    outer = ai(trace, "generateText", 0, 9, usage__promptTokens=reading, usage__completionTokens=writing,
               telemetry__metadata__sessionId="s1", telemetry__metadata__userId="u1",
               telemetry__metadata__tags=["a"], response__text="done")  # fmt: skip
    first = ai(trace, "generateText.doGenerate", 1, 2, outer, usage__promptTokens=120, usage__completionTokens=18,
               prompt__messages=MESSAGES, response__id="r1",
               response__toolCalls='[{"toolCallId":"c1","toolName":"look","args":"{\\"x\\": 1}"}]')  # fmt: skip
    tool = ai(trace, "toolCall", 3, 4, outer, toolCall__name="look", toolCall__id="c1", toolCall__args='{"x":1}',
              toolCall__result='"found"')  # fmt: skip
    ai(trace, "generateText.doGenerate", 5, 6, outer, usage__promptTokens=120, usage__completionTokens=18,
       response__id="r2", response__text="done")  # fmt: skip
    rows, part = tree_of(trace.spans)
    assert (part.name, part.agents, part.conversation_id, part.user_id) == ("weather", ("weather",), "s1", "u1")
    assert part.counts == {"provider_call": 2, "step": 1, "tool_invocation": 1}
    assert (part.input_tokens, part.output_tokens) == (240, 36)
    assert rows[first.span_id].provider == "openai" and rows[outer.span_id].labels["tags"] == '["a"]'
    assert (rows[tool.span_id].requested_by, rows[tool.span_id].tool_call_id) == (first.span_id, "c1")
    row = artifact_of(tool, "tool_result")
    assert row is not None and (row.arguments, row.summary) == ('{"x":1}', "found")
    assert body_of(tool, "tool_result") == b'"found"'


def test_ai_sdk_4_tells_cache_and_reasoning_inside_the_provider_metadata() -> None:
    trace = Trace()
    metadata = {"openai": {"reasoningTokens": 7, "cachedPromptTokens": 64}}
    light = light_of(ai(trace, "generateText.doGenerate", usage__promptTokens=120, usage__completionTokens=18,
                        response__providerMetadata=json.dumps(metadata)))  # fmt: skip
    assert (light.cached_input_tokens, light.reasoning_tokens, light.cache_write_tokens) == (64, 7, None)
    light = light_of(ai(trace, "generateText.doGenerate", response__providerMetadata='{"openai":{"cachedPromptTok'))
    assert light.cached_input_tokens is None


def test_ai_sdk_4_counts_anthropics_cache_beside_the_input() -> None:
    metadata = json.dumps({"anthropic": {"cacheCreationInputTokens": 30, "cacheReadInputTokens": 70}})
    call = ai(Trace(), "generateText.doGenerate", usage__promptTokens=200, response__providerMetadata=metadata)
    call.attributes |= {"ai.model.provider": "anthropic.messages", "ai.prompt.format": "prompt"}
    light = light_of(call)
    assert (light.input_tokens, light.cached_input_tokens, light.cache_write_tokens) == (300, 70, 30)
    del call.attributes["ai.prompt.format"]  # a later version, whose input may hold it already
    assert light_of(call).input_tokens == 200


def test_ai_sdk_streams_without_usage_are_unknown() -> None:
    light = light_of(ai(Trace(), "streamText.doStream", usage__promptTokens=float("nan"), usage__completionTokens=None))
    assert (light.role, light.input_tokens, light.output_tokens, light.cost_usd) == (PROVIDER_CALL, None, None, None)


def test_ai_sdk_text_reasoning_and_tool_calls_are_one_answer() -> None:
    call = ai(Trace(), "generateText.doGenerate", response__text="Let me look.", response__reasoning="hm",
              response__toolCalls='[{"toolCallId":"c1","toolName":"look","input":{"x":1}}]')  # fmt: skip
    assert fields_of(call, "agent_output") == [
        "ai.response.reasoning#reasoning",
        "ai.response.text",
        "ai.response.toolCalls",
    ]
    assert [(each.id, each.name) for each in light_of(call).requested] == [("c1", "look")]
    row = artifact_of(call, "agent_output")
    assert row is not None and row.summary == "Let me look."
    pass_ = ai(Trace(), "generateText", response__text="done", response__toolCalls="[]")  # 7 lists all of its calls
    assert fields_of(pass_, "agent_output") == ["ai.response.text"]


def test_ai_sdk_embedding_twice_nested_is_one_call_without_an_output() -> None:
    trace = Trace()
    outer = ai(trace, "embed", 0, 3, value='"hi"', embedding="[0.1]", usage__tokens=9)
    inner = ai(trace, "embed.doEmbed", 1, 2, outer, values=['"hi"'], embeddings=["[0.1]"], usage__tokens=9)
    rows, part = tree_of(trace.spans)
    assert (part.counts, part.input_tokens, part.name) == ({"provider_call": 1}, 9, "weather")
    assert rows[inner.span_id].call_span_id == outer.span_id
    assert artifact_of(outer, "agent_output") is None and artifact_of(inner, "agent_output") is None
    many = Trace("many")
    outer = ai(many, "embedMany", 0, 9, usage__tokens=18)
    for start in (1, 3):
        ai(many, "embedMany.doEmbed", start, start + 1, outer, usage__tokens=9)
    _, part = tree_of(many.spans)
    assert (part.counts, part.input_tokens) == ({"provider_call": 2}, 18)


def test_ai_sdk_tool_errors_fail_the_tool_alone() -> None:
    trace = Trace()
    outer = ai(trace, "generateText", 0, 9)
    tool = ai(trace, "toolCall", 1, 2, outer, error="boom", toolCall__name="look", toolCall__id="c1")
    rows, part = tree_of(trace.spans)
    assert (part.status, rows[tool.span_id].status, rows[tool.span_id].error) == ("complete", "failed", "boom")


def test_ai_sdk_7_names_no_agent_without_a_function_id() -> None:
    said = {"gen_ai.operation.name": "invoke_agent", "gen_ai.request.model": "gpt-4o-mini"}
    span = sent(Trace(), "gen_ai", "invoke_agent gpt-4o-mini", said)
    assert (light_of(span).is_agent, light_of(span).agent_id) == (True, "")
    span.attributes["gen_ai.agent.name"] = "weather"
    assert light_of(span).agent_id == "weather"


@pytest.mark.parametrize(
    ("sent_as", "provider"),
    [
        ("google.generative-ai", "gcp.gemini"),
        ("google.vertex.chat", "gcp.vertex_ai"),
        ("amazon-bedrock", "aws.bedrock"),
        ("xai.chat", "x_ai"),
        ("anthropic.messages", "anthropic"),
        ("groq.chat", "groq"),
    ],
)
def test_ai_sdk_providers(sent_as: str, provider: str) -> None:
    span = ai(Trace(), "generateText.doGenerate")
    span.attributes |= {"ai.model.provider": sent_as, "gen_ai.system": sent_as}
    assert light_of(span).provider == provider


# --------------------------------------------------------------------------------------------------- Pydantic AI, Logfire


def test_pydantic_ai_before_1_0() -> None:
    trace = Trace()
    agent = sent(trace, "pydantic-ai", "agent run", {
        "agent_name": "bot", "model_name": "gpt-4o-mini", "final_result": "done",
        "gen_ai.usage.input_tokens": 120, "gen_ai.usage.output_tokens": 18,
    }, 0, 9)  # fmt: skip
    asked = {"event.name": "gen_ai.user.message", "content": "hello", "role": "user"}
    choice = {"event.name": "gen_ai.choice", "index": 0, "message": {"role": "assistant", "content": "done"}}
    call = sent(trace, "pydantic-ai", "chat gpt-4o-mini", {
        "gen_ai.operation.name": "chat", "gen_ai.system": "openai", "gen_ai.request.model": "gpt-4o-mini",
        "gen_ai.usage.input_tokens": 120, "gen_ai.usage.output_tokens": 18, "gen_ai.usage.details.reasoning_tokens": 7,
        "gen_ai.usage.details.cached_tokens": 64, "operation.cost": 0.001, "events": json.dumps([asked, choice]),
    }, 1, 2, agent)  # fmt: skip
    wrapper = sent(trace, "pydantic-ai", "running 1 tools", {"tools": ["look"]}, 3, 6, agent)
    tool = sent(trace, "pydantic-ai", "running tool", {
        "gen_ai.tool.name": "look", "gen_ai.tool.call.id": "c1", "tool_arguments": '{"x":1}', "tool_response": "found",
    }, 4, 5, wrapper)  # fmt: skip
    rows, part = tree_of(trace.spans)
    assert (part.agents, part.counts) == (("bot",), {"provider_call": 1, "step": 1, "tool_invocation": 1})
    assert (part.input_tokens, part.cached_input_tokens, part.reasoning_tokens) == (120, 64, 7)
    assert str(part.cost_usd) == "0.001000000000" and rows[wrapper.span_id].role == ""
    row = artifact_of(tool, "tool_result")
    assert row is not None and (row.arguments, row.summary) == ('{"x":1}', "found")
    assert fields_of(agent, "agent_output") == ["final_result"]
    assert fields_of(call, "llm_prompt") == ["events"] and fields_of(call, "agent_output") == ["events#output"]
    output = artifact_of(call, "agent_output")
    assert output is not None and output.summary == "done"


def test_pydantic_ai_sums_stand_only_for_calls_that_are_not_told() -> None:
    trace = Trace()
    agent = sent(trace, "pydantic-ai", "invoke_agent bot", {
        "gen_ai.operation.name": "invoke_agent", "agent_name": "bot", "model_name": "m",
        "gen_ai.aggregated_usage.input_tokens": 240, "gen_ai.aggregated_usage.output_tokens": 36,
    }, 0, 9)  # fmt: skip
    rows, part = tree_of(trace.spans)
    assert (part.input_tokens, rows[agent.span_id].is_aggregate) == (240, True)
    trace.chat(1, 2, agent, tokens=(120, 18))
    rows, part = tree_of(trace.spans)
    assert (part.input_tokens, rows[agent.span_id].billed) == (120, False)


def test_pydantic_ai_answer_of_a_pass_is_what_ends_its_conversation() -> None:
    said = [{"role": "user", "parts": []}, {"role": "assistant", "parts": [{"type": "text", "content": "done"}]}]
    span = sent(Trace(), "pydantic-ai", "invoke_agent bot", {
        "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "bot", "pydantic_ai.all_messages": json.dumps(said),
    })  # fmt: skip
    output = artifact_of(span, "agent_output")
    assert output is not None and output.summary == "done"
    span.attributes["pydantic_ai.all_messages"] = json.dumps(said[:1])  # it failed before there was one
    assert artifact_of(span, "agent_output") is None


def logfire_call(trace: Trace, *place: Any, **more: Any) -> Span:
    said = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4o-mini",
        "gen_ai.input.messages": MESSAGES,
        "logfire.span_type": "span",
    }
    return sent(trace, "logfire.openai", "Chat Completion with {request_data[model]!r}", said | more, *place)


def test_logfire_tells_a_streamed_answer_beside_its_request() -> None:
    trace = Trace()
    root = sent(trace, "logfire", "my run {q}", {"logfire.msg": "my run x", "logfire.span_type": "span"}, 0, 9)
    answer = {
        "gen_ai.output.messages": '[{"role":"assistant","parts":[{"type":"text","content":"done"}]}]',
        "gen_ai.usage.input_tokens": 120,
        "gen_ai.usage.output_tokens": 18,
        "gen_ai.response.id": "r1",
        "gen_ai.usage.raw": '{"completion_tokens_details":{"reasoning_tokens":7}}',
        "operation.cost": 2.4e-05,
        "logfire.span_type": "log",
    }
    whole = logfire_call(trace, 1, 2, root, **(answer | {"logfire.span_type": "span", "gen_ai.response.id": "r0"}))
    request = logfire_call(trace, 3, 4, root)
    told = logfire_call(trace, 5, 5, root, **answer)
    lost = logfire_call(trace, 6, 7, root)  # the stream was never read to its end
    sent(trace, "logfire", "a log {x}", {"logfire.span_type": "log", "logfire.msg": "a log 1"}, 8, 8, root)
    rows, part = tree_of(trace.spans)
    calls = {span.span_id: rows[span.span_id].call_span_id for span in (whole, request, told, lost)}
    assert calls == {whole.span_id: whole.span_id, request.span_id: request.span_id, told.span_id: request.span_id,
                     lost.span_id: lost.span_id}  # fmt: skip
    assert (part.name, part.counts, part.calls_with_usage) == ("my run x", {"provider_call": 3}, 2)
    assert (part.input_tokens, part.reasoning_tokens, str(part.cost_usd)) == (240, 14, "0.000048000000")


def test_logfire_copies_of_open_spans_are_no_calls() -> None:
    trace = Trace()
    call = logfire_call(trace, 1, 2, **{"gen_ai.usage.input_tokens": 120, "gen_ai.usage.output_tokens": 18})
    copy = logfire_call(trace, 1, 1, call, **{"logfire.span_type": "pending_span"})
    agent = sent(trace, "pydantic-ai", "agent run", {"agent_name": "bot", "model_name": "m"}, 3, 4)
    copied = sent(
        trace, "pydantic-ai", "agent run", agent.attributes | {"logfire.span_type": "pending_span"}, 3, 3, agent
    )
    rows, part = tree_of(trace.spans)
    assert (rows[copy.span_id].role, rows[copied.span_id].role) == ("", "")
    assert part.counts == {"provider_call": 1, "step": 1}


def test_logfire_before_the_conventions() -> None:
    span = sent(Trace(), "logfire.openai", "Chat Completion with {request_data[model]!r}", {
        "gen_ai.system": "openai", "gen_ai.request.model": "gpt-4o-mini",
        "request_data": json.dumps({"model": "gpt-4o-mini", "messages": json.loads(MESSAGES)}),
        "response_data": json.dumps({"message": {"role": "assistant", "content": "done"},
                                     "usage": {"prompt_tokens": 120, "completion_tokens": 18}}),
    })  # fmt: skip
    light = light_of(span)
    assert (light.role, light.input_tokens, light.output_tokens) == (PROVIDER_CALL, 120, 18)
    assert fields_of(span, "llm_prompt") == ["request_data#input"]
    output = artifact_of(span, "agent_output")
    assert output is not None and output.summary == "done"


def test_openai_agents_through_logfire() -> None:
    trace, scope = Trace(), "logfire.openai_agents"
    root = sent(trace, scope, "OpenAI Agents trace: {name}", {
        "name": "flow", "group_id": "g1", "logfire.msg": "OpenAI Agents trace: flow"}, 0, 9)  # fmt: skip
    agent = sent(trace, scope, "Agent run: {name!r}", {"name": "bot", "gen_ai.system": "openai"}, 1, 8, root)
    turn = sent(
        trace, scope, "Turn {turn} for agent {name!r}", {"name": "bot", "usage": '{"input_tokens":120}'}, 1, 5, agent
    )
    asked = {"event.name": "gen_ai.user.message", "content": "hello", "role": "user"}
    choice = {"event.name": "gen_ai.choice", "index": 0, "message": {"role": "assistant", "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"x": 1}'}}]}}  # fmt: skip
    call = sent(trace, scope, "Responses API with {gen_ai.request.model!r}", {
        "gen_ai.request.model": "gpt-4o-mini", "gen_ai.usage.input_tokens": 120, "gen_ai.usage.output_tokens": 18,
        "events": json.dumps([asked, choice]), "response": '{"id": "resp_1"}',
    }, 2, 3, turn)  # fmt: skip
    tool = sent(trace, scope, "Function: {name}", {"name": "look", "input": '{"x":1}', "output": "found",
                "gen_ai.system": "openai"}, 4, 5, agent)  # fmt: skip
    broken = sent(trace, scope, "Function: {name}", {"name": "look", "input": '{"x":2}', "error": json.dumps(
        {"message": "Error running tool (non-fatal)", "data": {"error": "no such x"}})}, 5, 6, agent)  # fmt: skip
    handoff = sent(
        trace, scope, "Handoff: {from_agent} → {to_agent}", {"from_agent": "bot", "to_agent": "Boss 2"}, 6, 7, agent
    )
    guard = sent(trace, scope, "Guardrail {name!r} {triggered=}", {"name": "safe", "triggered": True}, 7, 8, agent)
    rows, part = tree_of(trace.spans)
    assert (part.name, part.conversation_id, part.agents) == ("flow", "g1", ("bot",))
    assert part.counts == {"flow_run": 1, "guard": 1, "provider_call": 1, "step": 1, "tool_invocation": 3}
    assert (part.input_tokens, rows[turn.span_id].role) == (120, "")
    assert (rows[tool.span_id].requested_by, rows[tool.span_id].tool_call_id) == (call.span_id, "c1")
    assert light_of(call).response_id == "resp_1"
    assert (rows[broken.span_id].status, rows[broken.span_id].error) == ("failed", "no such x")
    assert body_of(broken, "tool_result") == b"no such x"
    assert rows[handoff.span_id].tool_name == "transfer_to_boss_2"
    assert rows[guard.span_id].labels == {"guard_name": "safe", "guard_status": "blocked"}


# -------------------------------------------------------------------------------------------------------------- LangSmith


def langsmith(trace: Trace, kind: str, name: str, *place: Any, error: str | None = None, **attributes: Any) -> Span:
    said = {"langsmith.span.kind": kind, "langsmith.trace.name": name, "gen_ai.system": "langchain"}
    more = {key.replace("__", "."): value for key, value in attributes.items()}
    return sent(trace, "langsmith", name, said | more, *place, error=error)


def test_langsmith_roles_come_from_its_kinds() -> None:
    for kind, operation, role in (
        ("llm", "chat", PROVIDER_CALL),
        ("prompt", "chat", ""),
        ("parser", "parser", ""),
        ("retriever", "embeddings", TOOL),
        ("tool", "execute_tool", TOOL),
        ("chain", "chain", ""),
    ):
        light = light_of(langsmith(Trace(), kind, "x", gen_ai__operation__name=operation, gen_ai__request__model="m"))
        assert light.role == role, kind


def test_langsmith_nodes_and_agents_are_told_from_what_passes_down() -> None:
    trace = Trace()
    agent = {"langsmith__metadata__lc_agent_name": "bot", "langsmith__metadata__session_id": "s1"}
    node = agent | {"langsmith__metadata__langgraph_node": "model", "langsmith__span__tags": "t1, t2"}
    root = langsmith(trace, "chain", "outer", 0, 9)
    graph = langsmith(trace, "chain", "my run", 1, 8, root, **agent)
    model = langsmith(trace, "chain", "model", 2, 7, graph, **node)
    inside = langsmith(trace, "chain", "RunnableSequence", 3, 6, model, **node)
    call = langsmith(trace, "llm", "ChatOpenAI", 4, 5, inside, gen_ai__request__model="m", **node)
    rows, part = tree_of(trace.spans)
    assert (part.name, part.conversation_id, part.agents) == ("outer", "s1", ("bot",))
    assert [rows[span.span_id].role for span in (graph, model, inside)] == [STEP, STEP, ""]
    assert (rows[call.span_id].step_span_id, rows[call.span_id].agent_id) == (graph.span_id, "bot")
    assert rows[call.span_id].labels["tags"] == '["t1","t2"]'
    plain = langsmith(Trace("plain"), "chain", "lookup", langsmith__metadata__langgraph_node="lookup")
    light = light_of(plain)
    assert (light.role, light.is_node, light.step_name) == (STEP, True, "lookup")


def test_langsmith_model_id_and_details_stand_inside_json() -> None:
    message = {"lc": 1, "type": "constructor", "id": ["langchain", "AIMessage"],
               "kwargs": {"content": "done", "response_metadata": {"id": "r1", "model_name": "m-1"}}}  # fmt: skip
    usage = {"input_tokens": 120, "output_tokens": 18, "input_token_details": {"cache_read": 64},
             "output_token_details": {"reasoning": 7}}  # fmt: skip
    span = langsmith(Trace(), "llm", "ChatOpenAI", gen_ai__request__model="m",
                     gen_ai__completion=json.dumps({"generations": [[{"text": "done", "message": message}]]}),
                     langsmith__metadata__usage_metadata=json.dumps(usage),
                     langsmith__metadata__ls_provider="openai")  # fmt: skip
    light = light_of(span)
    assert (light.response_id, light.response_model, light.provider) == ("r1", "m-1", "openai")
    assert (light.input_tokens, light.cached_input_tokens, light.reasoning_tokens) == (120, 64, 7)
    output = artifact_of(span, "agent_output")
    assert output is not None and output.summary == "done"
    span.attributes["gen_ai.completion"] = json.dumps({"id": "r2", "model": "m-2", "choices": []})  # without LangChain
    assert (light_of(span).response_id, light_of(span).response_model) == ("r2", "m-2")
    span.attributes["gen_ai.completion"] = '{"generations": [[{"text'
    assert light_of(span).response_id == ""


def test_langsmith_tools() -> None:
    told = {"output": {"content": '{"temp_c": 22}', "type": "tool", "tool_call_id": "c1", "status": "success"}}
    tool = langsmith(Trace(), "tool", "look", gen_ai__prompt='{"x":1}', gen_ai__completion=json.dumps(told))
    row = artifact_of(tool, "tool_result")
    assert row is not None and (row.arguments, row.summary) == ('{"x":1}', '{"temp_c":22}')
    assert body_of(tool, "tool_result") == json.dumps(told).encode()
    failed = langsmith(Trace(), "tool", "look", error="no", gen_ai__prompt='{"x":1}', gen_ai__completion="{}")
    assert body_of(failed, "tool_result") == b"no"
    found = langsmith(
        Trace(), "retriever", "store", gen_ai__prompt='{"query":"q"}', gen_ai__completion='{"documents":[]}'
    )
    row = artifact_of(found, "tool_result")
    assert row is not None and row.arguments == '{"query":"q"}' and light_of(found).tool_class == "knowledge_base"


# ---------------------------------------------------------------------------------------------------------------- MLflow


def mlflow(trace: Trace, kind: str, name: str, *place: Any, error: str | None = None, **attributes: Any) -> Span:
    """Every value as MLflow writes it: JSON in a string."""
    said = {"mlflow.spanType": kind, "mlflow.traceRequestId": "tr-1"}
    more = {key.replace("__", "."): value for key, value in attributes.items()}
    quoted = {key: json.dumps(value) for key, value in (said | more).items()}
    return sent(trace, "mlflow.tracing.provider", name, quoted, *place, error=error)


def test_mlflow_quotes_every_value() -> None:
    trace = Trace()
    agent = mlflow(trace, "AGENT", "bot", 0, 9, mlflow__spanOutputs="done")
    call = mlflow(trace, "CHAT_MODEL", "Completions", 1, 2, agent, model="gpt-4o-mini",
                  mlflow__llm__model="gpt-4o-mini-2024-07-18", mlflow__chat__tokenUsage={
                      "input_tokens": 120, "output_tokens": 18, "cache_read_input_tokens": 64},
                  mlflow__llm__cost={"total_cost": 0.5}, mlflow__spanInputs={"messages": json.loads(MESSAGES)},
                  mlflow__spanOutputs={"id": "r1", "choices": [{"message": {"role": "assistant", "tool_calls": [
                      {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"x": 1}'}}]}}]})  # fmt: skip
    tool = mlflow(trace, "TOOL", "look", 3, 4, agent, mlflow__spanInputs={"x": 1}, mlflow__spanOutputs="found")
    rows, part = tree_of(trace.spans)
    assert (part.agents, part.counts) == (("bot",), {"provider_call": 1, "step": 1, "tool_invocation": 1})
    assert (part.input_tokens, part.cached_input_tokens, str(part.cost_usd)) == (120, 64, "0.500000000000")
    light = light_of(call)
    assert (light.request_model, light.response_model) == ("gpt-4o-mini", "gpt-4o-mini-2024-07-18")
    assert (light.response_id, light.provider) == ("r1", "openai")
    assert (rows[tool.span_id].requested_by, rows[tool.span_id].tool_call_id) == (call.span_id, "c1")
    row = artifact_of(tool, "tool_result")
    assert row is not None and (row.arguments, row.summary) == ('{"x":1}', "found")
    output = artifact_of(agent, "agent_output")
    assert output is not None and output.summary == "done" and body_of(agent, "agent_output") == b'"done"'


@pytest.mark.parametrize(
    ("kind", "role"),
    [("WORKFLOW", FLOW_RUN), ("TASK", STEP), ("CHAIN", ""), ("GUARDRAIL", GUARD), ("EVALUATOR", "verifier"),
     ("EMBEDDING", PROVIDER_CALL), ("RETRIEVER", TOOL), ("PARSER", ""), ("UNKNOWN", "")],
)  # fmt: skip
def test_mlflow_types(kind: str, role: str) -> None:
    span = mlflow(Trace(), kind, "x", mlflow__spanOutputs=[0.1])
    assert light_of(span).role == role
    assert artifact_of(span, "agent_output") is None or role == STEP


def test_mlflow_chunks_of_a_stream_are_no_content() -> None:
    span = mlflow(Trace(), "CHAT_MODEL", "Completions", model="m")
    event(span, "mlflow.chunk.item.0", mlflow__chunk__value='{"choices": [{"delta": {"content": "d"}}]}')
    assert artifact_of(span, "agent_output") is None


# --------------------------------------------------------------------------------------------------------------- LiteLLM


def litellm(trace: Trace, name: str, *place: Any, error: str | None = None, **attributes: Any) -> Span:
    said = {"litellm.call_id": "x", "metadata.user_api_key_alias": ""}
    more = {key.replace("__", "."): value for key, value in attributes.items()}
    return sent(trace, "litellm", name, said | more, *place, error=error)


def test_litellm_request_and_its_raw_copy_are_one_call() -> None:
    trace = Trace()
    usage = {"prompt_tokens": 120, "completion_tokens_details": {"reasoning_tokens": 7},
             "prompt_tokens_details": {"cached_tokens": 70, "cache_write_tokens": 30}}  # fmt: skip
    call = litellm(trace, "litellm_request", 0, 2, llm__request__type="acompletion", gen_ai__operation__name="chat",
                   gen_ai__request__model="gpt-4o-mini", gen_ai__system="openai", llm__user="u1",
                   gen_ai__usage__input_tokens=120, gen_ai__usage__output_tokens=18, metadata__usage_object=repr(usage),
                   gen_ai__cost__total_cost=0.5, hidden_params='{"response_cost": 0.4}',
                   gen_ai__output__messages='[{"role": "assistant", "parts": []}]',
                   gen_ai__completion__0__function_call__name="look",
                   gen_ai__completion__0__function_call__arguments='{"x": 1}')  # fmt: skip
    raw = litellm(trace, "raw_gen_ai_request", 0, 2, call, llm__openai__usage=repr(usage), llm__openai__id="r1")
    rows, part = tree_of(trace.spans)
    assert (part.counts, part.user_id, rows[raw.span_id].role) == ({"provider_call": 1}, "u1", "")
    assert (part.input_tokens, part.cached_input_tokens, part.cache_write_tokens, part.reasoning_tokens) == (
        120,
        70,
        30,
        7,
    )
    assert str(part.cost_usd) == "0.500000000000"
    assert [each.name for each in light_of(call).requested] == ["look"]
    assert fields_of(call, "agent_output") == ["gen_ai.output.messages", "gen_ai.completion.*"]
    # Should a later version list the calls where they belong, they are not there twice.
    call.attributes["gen_ai.output.messages"] = json.dumps([{"role": "assistant", "parts": [
        {"type": "tool_call", "id": "c1", "name": "look", "arguments": {"x": 1}}]}])  # fmt: skip
    assert [each.id for each in light_of(call).requested] == ["c1"]


def test_litellm_counts_in_reprs_of_objects_are_read() -> None:
    usage = (
        "{'prompt_tokens': 9, 'prompt_tokens_details': PromptTokensDetailsWrapper(audio_tokens=None, cached_tokens=4)}"
    )
    light = light_of(
        litellm(Trace(), "litellm_request", metadata__usage_object=usage, litellm__provider__model="groq/m")
    )
    assert (light.cached_input_tokens, light.reasoning_tokens, light.provider) == (4, None, "groq")


def test_litellm_failed_calls_cost_nothing_known() -> None:
    span = litellm(Trace(), "litellm_request", error="RateLimitError", llm__request__type="completion",
                   gen_ai__request__model="m", metadata__usage_object="{}", hidden_params='{"response_cost": 0.0}')  # fmt: skip
    light = light_of(span)
    assert (light.role, light.status, light.cost_usd, light.input_tokens) == (PROVIDER_CALL, "failed", None, None)


def test_litellm_embeddings_and_guardrails() -> None:
    light = light_of(
        litellm(Trace(), "litellm_request", gen_ai__operation__name="embedding", llm__request__type="aembedding")
    )
    assert (light.role, light.operation) == (PROVIDER_CALL, "embeddings")
    light = light_of(litellm(Trace(), "guardrail", guardrail_name="pii", guardrail_status="guardrail_intervened"))
    assert (light.role, light.labels) == (GUARD, {"guard_name": "pii", "guard_status": "blocked"})
    assert light_of(litellm(Trace(), "Received Proxy Server Request")).role == ""


# -------------------------------------------------------------------------------------------------------------- Langfuse


def langfuse(trace: Trace, kind: str, name: str, *place: Any, error: str | None = None, **attributes: Any) -> Span:
    said = {"langfuse.observation.type": kind, "langfuse.trace.name": "my trace", "langfuse.trace.tags": ["a"],
            "session.id": "s1", "user.id": "u1"}  # fmt: skip
    more = {f"langfuse.observation.{key.replace('__', '.')}": value for key, value in attributes.items()}
    return sent(trace, "langfuse-sdk", name, said | more, *place, error=error)


def test_langfuse_observations() -> None:
    trace = Trace()
    root = langfuse(trace, "span", "flow", 0, 9)
    agent = langfuse(trace, "agent", "bot", 1, 8, root, output="done")
    usage = {"prompt_tokens": 120, "completion_tokens": 18, "prompt_tokens_details": {"cached_tokens": 64},
             "completion_tokens_details": {"reasoning_tokens": 7}}  # fmt: skip
    call = langfuse(trace, "generation", "OpenAI-generation", 2, 3, agent, model__name="gpt-4o-mini", input=MESSAGES,
                    usage_details=json.dumps(usage), cost_details='{"total": 0.5}', prompt__name="greet",
                    prompt__version=3, output=json.dumps({"role": "assistant", "content": None, "tool_calls": [
                        {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"x": 1}'}}]}))  # fmt: skip
    tool = langfuse(trace, "tool", "look", 4, 5, agent, input='{"args": [], "kwargs": {"x": 1}}', output='{"y": 2}')
    guard = langfuse(trace, "guardrail", "safe", 6, 7, agent, output='{"ok": true}')
    rows, part = tree_of(trace.spans)
    assert (part.name, part.conversation_id, part.user_id, part.agents) == ("my trace", "s1", "u1", ("bot",))
    assert part.counts == {"guard": 1, "provider_call": 1, "step": 1, "tool_invocation": 1}
    assert (part.input_tokens, part.cached_input_tokens, part.reasoning_tokens) == (120, 64, 7)
    assert str(part.cost_usd) == "0.500000000000" and rows[call.span_id].provider == "openai"
    assert rows[call.span_id].labels == {"tags": '["a"]', "prompt_name": "greet", "prompt_version": "3"}
    assert (rows[tool.span_id].requested_by, rows[tool.span_id].tool_call_id) == (call.span_id, "c1")
    row = artifact_of(tool, "tool_result")
    assert row is not None and row.arguments == '{"x":1}'
    assert rows[guard.span_id].labels | {"tags": ""} == {
        "tags": "",
        "guard_name": "safe",
        "guard_result": '{"ok": true}',
    }


def test_langfuse_level_error_is_a_failure() -> None:
    light = light_of(langfuse(Trace(), "generation", "gen", level="ERROR", status_message="too long"))
    assert (light.status, light.error) == ("failed", "too long")
    assert light_of(langfuse(Trace(), "generation", "gen", level="WARNING", status_message="sm")).status == "succeeded"


def test_langfuse_marks_of_the_trace_on_the_span_of_another_say_no_role() -> None:
    span = Trace().chat(tokens=(1, 1))
    span.attributes |= {"langfuse.trace.name": "my trace", "session.id": "s1"}
    light = light_of(span)
    assert (light.role, light.dialect, light.run_name) == (PROVIDER_CALL, "gen_ai", "my trace")


@pytest.mark.parametrize(
    ("usage", "found"),
    [
        ({"prompt_tokens": 120, "completion_tokens": 18}, (120, 18, None, None, None)),
        ({"input_tokens": 120, "output_tokens": 18, "input_tokens_details": {"cached_tokens": 64},
          "output_tokens_details": {"reasoning_tokens": 7}}, (120, 18, 64, None, 7)),
        # Anthropic counts its cache beside
        ({"input_tokens": 20, "output_tokens": 18, "cache_read_input_tokens": 70, "cache_creation_input_tokens": 30},
         (120, 18, 70, 30, None)),
        ({"input": 10, "output": 5, "cache_read_input_tokens": 4}, (10, 5, 4, None, None)),
        ({"input": 10, "output": 5, "cache_read_input_tokens": 40}, (50, 5, 40, None, None)),
        # Langfuse's handler for LangChain takes the details out
        ({"input": 56, "output": 11, "input_cache_read": 64, "output_reasoning": 7}, (120, 18, 64, None, 7)),
        ({"input": "x", "output": None, "total": 3}, (None, None, None, None, None)),
        ("nothing", (None, None, None, None, None)),
    ],
)  # fmt: skip
def test_usage_objects(usage: Any, found: tuple[int | None, ...]) -> None:
    light = Light("t", "s")
    take_usage(light, usage)
    said = (light.input_tokens, light.output_tokens, light.cached_input_tokens, light.cache_write_tokens,
            light.reasoning_tokens)  # fmt: skip
    assert said == found


def test_what_is_known_already_is_not_taken_from_a_usage_object() -> None:
    light = Light("t", "s", input_tokens=1)
    take_usage(light, {"input_tokens": 20, "cache_read_input_tokens": 70})
    include_cache(light)
    assert (light.input_tokens, light.cached_input_tokens) == (1, None)


# --------------------------------------------------------------------------------------------------------------- Haystack


def haystack(trace: Trace, name: str, *place: Any, **attributes: Any) -> Span:
    more = {f"haystack.{key.replace('__', '.')}": value for key, value in attributes.items()}
    return sent(trace, "my app", f"haystack.{name}", more, *place)


def reply(content: Any) -> str:
    meta = {"model": "gpt-4o-mini-2024-07-18", "usage": {"prompt_tokens": 120, "completion_tokens": 18,
            "prompt_tokens_details": {"cached_tokens": 64}}}  # fmt: skip
    return json.dumps({"replies": [{"role": "assistant", "meta": meta, "content": [content]}]})


def test_haystack_agent() -> None:
    trace = Trace()
    agent = haystack(trace, "agent.run", 0, 9, agent__output='{"messages": [], "token_usage": {"prompt_tokens": 240}}')
    first = haystack(trace, "agent.step", 1, 5, agent, agent__step=0)
    asks = {"tool_call": {"tool_name": "look", "arguments": {"x": 1}, "id": "c1"}}
    call = haystack(trace, "agent.step.llm", 2, 3, first, agent__step__llm__output=reply(asks))
    tool = haystack(trace, "agent.step.tool", 4, 5, first, tool__name="look", agent__step__tool__input='{"x": 1}',
                    agent__step__tool__output="found")  # fmt: skip
    second = haystack(trace, "agent.step", 6, 8, agent, agent__step=1)
    haystack(trace, "agent.step.llm", 6, 7, second, agent__step__llm__output=reply({"text": "done"}))
    rows, part = tree_of(trace.spans)
    assert part.counts == {"provider_call": 2, "step": 1, "tool_invocation": 1}
    assert (part.input_tokens, part.output_tokens, part.cached_input_tokens) == (240, 36, 128)
    assert (rows[call.span_id].model, rows[call.span_id].provider) == ("gpt-4o-mini-2024-07-18", "openai")
    assert (rows[tool.span_id].requested_by, rows[tool.span_id].tool_call_id) == (call.span_id, "c1")
    row = artifact_of(tool, "tool_result")
    assert row is not None and (row.arguments, row.summary) == ('{"x":1}', "found")


def test_haystack_pipeline_components_by_their_type() -> None:
    trace = Trace()
    run = haystack(trace, "pipeline.run", 0, 9, pipeline__metadata='{"name": "rag"}')

    def component(name: str, kind: str, start: float, **more: Any) -> Span:
        return haystack(
            trace, "component.run", start, start + 1, run, component__name=name, component__type=kind, **more
        )

    vectors = json.dumps(
        {"embedding": [0.1], "meta": {"model": "text-embedding-3-small", "usage": {"prompt_tokens": 9}}}
    )
    embedder = component("embedder", "OpenAITextEmbedder", 1, component__output=vectors)
    retriever = component("retriever", "InMemoryEmbeddingRetriever", 2, component__input='{"query": "q"}',
                          component__output='{"documents": []}')  # fmt: skip
    builder = component("prompt", "ChatPromptBuilder", 3, component__output="{}")
    joiner = component("joiner", "BranchJoiner", 4)
    model = component("llm", "OpenAIChatGenerator", 5, component__output=reply({"text": "done"}))
    rows, part = tree_of(trace.spans)
    assert (part.name, part.input_tokens) == ("rag", 129)
    assert part.counts == {"flow_run": 1, "provider_call": 2, "step": 2, "tool_invocation": 1}
    assert (rows[embedder.span_id].operation, rows[model.span_id].operation) == ("embeddings", "chat")
    assert artifact_of(embedder, "agent_output") is None
    assert (rows[retriever.span_id].tool_name, rows[retriever.span_id].tool_class) == ("retriever", "knowledge_base")
    steps = [(rows[span.span_id].step_id, rows[span.span_id].step_name) for span in (builder, joiner)]
    assert steps == [("step_prompt", "prompt"), ("step_joiner", "joiner")]


def test_haystack_without_content_has_calls_without_usage() -> None:
    trace = Trace()
    haystack(trace, "component.run", component__name="llm", component__type="OpenAIGenerator")
    _, part = tree_of(trace.spans)
    assert (part.counts, part.calls_with_usage, part.input_tokens) == ({"provider_call": 1}, 0, None)
    old = haystack(trace, "component.run", component__type="OpenAIGenerator", component__output=json.dumps(
        {"replies": ["done"], "meta": [{"model": "m", "usage": {"prompt_tokens": 120, "completion_tokens": 18}}]}))  # fmt: skip
    assert (light_of(old).input_tokens, light_of(old).response_model) == (120, "m")
