"""OpenInference (dialects.md §2 and what frameworks do with it), each oddity by a span made for it."""

from __future__ import annotations

import json
from itertools import permutations
from typing import Any

import pytest

from otel_blackboard.processor.flattened import unflatten
from otel_blackboard.processor.messages import read_messages, read_tools, shown
from otel_blackboard.processor.reading import SpanReading, read_span
from otel_blackboard.query.artifacts import Blackboard
from otel_blackboard.records import Event, Scope, Span
from tests.spans import TENANT, Trace, at, board_of, by_span, derive, listed

SCOPES = "openinference.instrumentation."


def made(trace: Trace, kind: str, name: str, *place: Any, scope: str = "", **attributes: Any) -> Span:
    """`place`: start, end, parent."""
    span = trace.span(name, *place, openinference__span__kind=kind, **attributes)
    span.scope = Scope(SCOPES + scope if scope else "")
    return span


def flat(span: Span, **attributes: Any) -> Span:
    """Adds attributes `llm__input_messages__0__message__role`."""
    span.attributes |= {key.replace("__", "."): value for key, value in attributes.items()}
    return span


def one(kind: str, name: str = "x", parent: str = "", scope: str = "", **attributes: Any) -> SpanReading:
    return read_span(TENANT, made(Trace(), kind, name, 0, 1, parent, scope=scope, **attributes))


def same_in_every_order(trace: Trace) -> Blackboard:
    boards = [board_of(spans) for spans in permutations(trace.spans)] if len(trace.spans) < 6 else []
    board = board_of(trace.spans)
    for other in [*boards, board_of(trace.spans[::-1])]:
        assert [artifact.artifact_id for artifact in other.artifacts] == [a.artifact_id for a in board.artifacts]
    return board


@pytest.mark.parametrize(
    ("kind", "role", "operation"),
    [
        ("LLM", "provider_call", "chat"),
        ("llm", "provider_call", "chat"),
        ("EMBEDDING", "provider_call", "embeddings"),
        ("RERANKER", "provider_call", "rerank"),
        ("TOOL", "tool_invocation", "execute_tool"),
        ("RETRIEVER", "tool_invocation", "retrieval"),
        ("GUARDRAIL", "guard", "apply_guardrail"),
        ("EVALUATOR", "verifier", "evaluate"),
        ("AGENT", "step", "invoke_agent"),
        ("PROMPT", "", ""),
        ("DECISION", "", ""),
        ("UNKNOWN", "", ""),
        ("CHAIN", "", ""),
    ],
)
def test_the_kind_gives_the_role(kind: str, role: str, operation: str) -> None:
    light = one(kind, parent="00000000000000aa").light
    assert (light.role, light.operation) == (role, operation)


def test_a_chain_is_the_run_where_nothing_called_it() -> None:
    assert one("CHAIN", "weather_run").light.role == "flow_run"
    assert one("CHAIN", "crew.kickoff", "00000000000000aa", "crewai").light.role == "flow_run"
    assert one("CHAIN", "crew.kickoff").light.run_name == "crew"


def test_a_chain_is_a_step_where_it_is_a_node_of_a_graph() -> None:
    inside = json.dumps({"langgraph_node": "model", "lc_agent_name": "weather_agent", "thread_id": "t-7"})
    trace = Trace()
    root = made(trace, "CHAIN", "weather_run", 0, 9, metadata=json.dumps({"lc_agent_name": "weather_agent"}))
    node = made(trace, "CHAIN", "model", 1, 4, root, metadata=inside)
    made(trace, "CHAIN", "RunnableSequence", 2, 3, node, metadata=inside)
    resolved, parts, _ = derive(trace.spans)
    rows = by_span(resolved)
    assert [rows[span.span_id].role for span in trace.spans] == ["flow_run", "step", ""]
    row = rows[node.span_id]
    assert (row.step_id, row.step_name, row.agent_id) == ("step_model", "model", "weather_agent")
    assert (parts[0].conversation_id, parts[0].name) == ("t-7", "weather_run")
    assert one("CHAIN", "n", "00000000000000aa", graph__node__id="plan").light.step_name == "plan"


def test_an_operation_of_another_dialect_says_more_than_a_chain() -> None:
    light = one("CHAIN", "invoke_workflow p", "00000000000000aa", gen_ai__operation__name="invoke_workflow").light
    assert (light.role, light.dialect) == ("flow_run", "gen_ai")
    trace = Trace()
    root = made(trace, "CHAIN", "invocation [app1]", 0, 9)
    made(trace, "CHAIN", "invoke_workflow p", 1, 8, root, gen_ai__operation__name="invoke_workflow").attributes |= {
        "gen_ai.workflow.name": "pipeline"
    }
    for spans in (trace.spans, trace.spans[::-1]):
        assert derive(spans)[1][0].name == "pipeline"


def test_agents_have_the_name_that_the_framework_gave() -> None:
    assert one("AGENT", "weather_agent.run", scope="smolagents").light.agent_id == "weather_agent"
    assert one("AGENT", "W.task._execute_core", graph__node__id="W", task_name="task").light.agent_id == "W"
    assert one("AGENT", "agent_run [x]", agent__name="x").light.agent_id == "x"
    assert one("AGENT", "my.agent").light.agent_id == "my.agent"


def test_the_trace_of_openai_agents_is_the_run_and_its_twin_below_nothing() -> None:
    trace = Trace()
    root = made(trace, "AGENT", "my workflow", 0, 9, scope="openai_agents")
    twin = made(trace, "CHAIN", "Agent workflow", 1, 8, root, scope="openai_agents")
    made(trace, "AGENT", "triage", 2, 7, twin, scope="openai_agents", agent__name="triage", graph__node__id="triage")
    resolved, parts, _ = derive(trace.spans)
    assert [by_span(resolved)[span.span_id].role for span in trace.spans] == ["flow_run", "", "step"]
    assert (parts[0].name, parts[0].agents) == ("my workflow", ("triage",))


def test_turns_of_a_trajectory_have_no_role_and_a_call_without_an_end_has_ended() -> None:
    trace = Trace()
    root = trace.span("bot", 0, 9, openinference__span__kind="AGENT", agent__name="bot")
    turn = trace.span("turn-0", 1, 8, root, openinference__span__kind="AGENT")
    call = trace.span(
        "m", 2, 3, turn, openinference__span__kind="LLM", llm__token_count__prompt="12", input__value="[]"
    )
    for span in trace.spans:
        span.scope, span.status_code = Scope("harbor-atif2otel"), 1
    call.end_ns = 0
    resolved, parts, _ = derive(trace.spans)
    assert by_span(resolved)[turn.span_id].role == ""
    assert (by_span(resolved)[call.span_id].status, parts[0].status, parts[0].input_tokens) == (
        "succeeded",
        "complete",
        12,
    )


def test_a_guardrail_is_judged_by_the_turn_that_it_tripped() -> None:
    trace = Trace()
    for name, error in (("no_bad", "Guardrail tripwire triggered: {'guardrail': 'no_bad'}"), ("other", None)):
        turn = made(trace, "CHAIN", "turn", 0, 3, "00000000000000aa", scope="openai_agents")
        made(trace, "GUARDRAIL", name, 1, 2, turn, scope="openai_agents")
        if error:
            turn.status_code, turn.status_message = 2, error
    for spans in (trace.spans, trace.spans[::-1]):
        rows = {row.name: row for row in derive(spans)[0]}
        assert rows["no_bad"].labels == {"guard_status": "blocked"}
        assert rows["other"].labels == {}


# ----------------------------------------------------------------------------------------------------------- model calls


def call(**attributes: Any) -> Span:
    return flat(made(Trace(), "LLM", "ChatCompletion", scope="openai"), **attributes)


def test_facts_of_a_model_call() -> None:
    light = read_span(
        TENANT,
        call(
            llm__model_name="gpt-4o-mini-2024-07-18", llm__system="openai", llm__token_count__prompt=120,
            llm__invocation_parameters='{"model": "gpt-4o-mini", "temperature": 0}', llm__token_count__completion="18",
            llm__token_count__prompt_details__cache_read=64.0, llm__token_count__completion_details__reasoning=7,
            llm__token_count__prompt_details__cache_write=3, llm__cost__total=2e-05, session__id="s", user__id="u",
            output__value='{"choices": [{"message": {}}], "id": "chatcmpl-1", "object": "chat.completion"}',
            llm__prompt_template__template="{city}?", llm__prompt_template__version="v1", tag__tags=["a", "b"],
        ),
    ).light  # fmt: skip
    assert (light.request_model, light.response_model, light.provider) == (
        "gpt-4o-mini",
        "gpt-4o-mini-2024-07-18",
        "openai",
    )
    assert (light.input_tokens, light.output_tokens, light.cached_input_tokens) == (120, 18, 64)
    assert (light.cache_write_tokens, light.reasoning_tokens) == (3, 7)
    assert (str(light.cost_usd), light.cost_source) == ("0.000020000000", "span")
    assert (light.response_id, light.conversation_id, light.user_id) == ("chatcmpl-1", "s", "u")
    assert light.labels == {"prompt_template": "{city}?", "prompt_version": "v1", "tags": '["a","b"]'}


def test_the_response_id_that_langchain_keeps() -> None:
    kwargs = {"id": "lc_run-1", "response_metadata": {"id": "chatcmpl-7"}}
    answer = json.dumps({"generations": [[{"text": "", "message": {"lc": 1, "kwargs": kwargs}}]]})
    assert read_span(TENANT, call(output__value=answer)).light.response_id == "chatcmpl-7"
    assert one("TOOL", output__value='{"id": "invoice-1"}').light.response_id == ""


def test_the_first_token_is_an_event_without_a_value() -> None:
    span = call()
    span.events = [Event(at(0.25), "First Token Stream Event")]
    assert read_span(TENANT, span).light.labels == {"time_to_first_token_ms": "250"}


def test_litellm_puts_the_provider_before_the_model() -> None:
    light = one("LLM", "completion", scope="litellm", llm__model_name="openai/gpt-4o-mini").light
    assert (light.provider, light.response_model) == ("openai", "gpt-4o-mini")
    kept = one("LLM", "completion", scope="openai", llm__model_name="meta-llama/Llama-3-8b").light
    assert kept.response_model == "meta-llama/Llama-3-8b"


def messages(**attributes: Any) -> Any:
    pairs = unflatten([[key.replace("__", "."), value] for key, value in attributes.items()])
    return [shown(message) for message in read_messages(pairs, "user")]


def test_messages_out_of_flattened_keys() -> None:
    found = messages(
        llm__input_messages__0__message__role="system",
        llm__input_messages__0__message__content="Be short.",
        llm__input_messages__1__message__role="user",
        llm__input_messages__1__message__contents__0__message_content__type="text",
        llm__input_messages__1__message__contents__0__message_content__text="Look:",
        llm__input_messages__1__message__contents__1__message_content__type="image",
        llm__input_messages__1__message__contents__1__message_content__image__image__url="data:image/png;base64,AA==",
        llm__input_messages__2__message__role="assistant",
        llm__input_messages__2__message__tool_calls__0__tool_call__id="c1",
        llm__input_messages__2__message__tool_calls__0__tool_call__function__name="look",
        llm__input_messages__2__message__tool_calls__0__tool_call__function__arguments='{"n": 1}',
        llm__input_messages__3__message__role="tool",
        llm__input_messages__3__message__tool_call_id="c1",
        llm__input_messages__3__message__content="seen",
    )
    call = {"type": "tool_call", "id": "c1", "name": "look", "arguments": {"n": 1}}
    image = {"type": "blob", "modality": "image", "mime_type": "image/png", "content": "AA=="}
    assert found == [
        {"role": "system", "parts": [{"type": "text", "content": "Be short."}]},
        {"role": "user", "parts": [{"type": "text", "content": "Look:"}, image]},
        {"role": "assistant", "parts": [call]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "seen"}]},
    ]


def test_anthropics_calls_stand_in_two_places_and_count_once() -> None:
    begin = "llm__output_messages__0__message__"
    found = messages(
        **{
            begin + "role": "assistant",
            begin + "contents__0__message_content__type": "reasoning",
            begin + "contents__0__message_content__text": "hm",
            begin + "tool_calls__0__tool_call__id": "toolu_1",
            begin + "tool_calls__0__tool_call__function__name": "look",
            begin + "contents__1__message_content__type": "tool_use",
            begin + "contents__1__tool_call__id": "toolu_1",
            begin + "contents__1__tool_call__function__name": "look",
        }
    )
    call = {"type": "tool_call", "id": "toolu_1", "name": "look"}
    assert found == [{"role": "assistant", "parts": [{"type": "reasoning", "content": "hm"}, call]}]


def test_lists_under_content_and_autogens_results() -> None:
    begin = "llm__output_messages__"
    result = json.dumps({"name": "look", "content": "seen", "call_id": "c1", "is_error": False})
    found = messages(
        **{
            begin + "0__message__content__0": "Let me check.",
            begin + "0__message__role": "assistant",
            begin + "1__message__role": "function",
            begin + "1__function__0": result,
        }
    )
    answer = {"type": "tool_call_response", "id": "c1", "response": "seen", "name": "look"}
    assert found == [
        {"role": "assistant", "parts": [{"type": "text", "content": "Let me check."}]},
        {"role": "tool", "parts": [answer]},
    ]


def test_huge_and_missing_indexes_are_only_an_order() -> None:
    found = messages(
        llm__input_messages__999999999__message__content="last", llm__input_messages__104__message__content="first"
    )
    assert [message["parts"][0]["content"] for message in found] == ["first", "last"]


def test_a_span_that_lost_attributes_says_so() -> None:
    span = call(llm__input_messages__104__message__role="user", llm__input_messages__104__message__content="hi")
    span.dropped_attributes_count = 215
    (draft,) = read_span(TENANT, span).drafts
    assert (draft.row.kind, draft.row.truncated) == ("llm_prompt", "sender")


def test_completions_and_tools_that_are_no_chat() -> None:
    reading = read_span(
        TENANT,
        call(
            llm__prompts__0__prompt__text="Once", llm__choices__0__completion__text="upon a time",
            llm__tools__0__tool__json_schema='{"name": "look"}',
        ),
    )  # fmt: skip
    prompt, output = reading.drafts
    assert [reading.contents[index].field for index in prompt.contents] == ["llm.prompts.*", "llm.tools.*"]
    assert output.row.summary == "upon a time"
    assert read_tools(unflatten([["llm.tools.0.tool.json_schema", '{"name": "look"}']])) == [{"name": "look"}]


def test_vectors_are_no_artifact() -> None:
    span = made(
        Trace(), "EMBEDDING", "CreateEmbeddings", embedding__model_name="text-embedding-3-small",
        output__value='{"data": [{"embedding": [0.1]}]}', llm__token_count__prompt=9,
    )  # fmt: skip
    flat(span, embedding__embeddings__0__embedding__text="hello", embedding__embeddings__1__embedding__text="world")
    flat(span, embedding__embeddings__0__embedding__vector=[0.1, 0.2])
    reading = read_span(TENANT, span)
    (draft,) = reading.drafts
    assert [reading.contents[index].data for index in draft.contents] == [b'["hello","world"]']
    assert reading.light.request_model == "text-embedding-3-small"


def test_a_reranker_is_a_call_with_a_query_and_documents() -> None:
    span = made(Trace(), "RERANKER", "rerank", reranker__query="paris", reranker__model_name="rr", input__value="x")
    flat(span, reranker__output_documents__0__document__content="Paris is sunny")
    prompt, output = (reading := read_span(TENANT, span)).drafts
    assert (reading.light.operation, reading.light.request_model) == ("rerank", "rr")
    assert reading.contents[prompt.contents[0]].data == b"paris"
    assert reading.contents[output.contents[0]].field == "reranker.output_documents.*"


def test_what_llamaindex_calls_llm_and_is_none() -> None:
    assert one("LLM", "OpenAI._prepare_chat_with_tools", "00000000000000aa").light.role == ""
    trace = Trace()
    outer = made(trace, "LLM", "LLM.predict", 0, 3)
    made(trace, "LLM", "OpenAI.chat", 1, 2, outer, llm__model_name="m", llm__token_count__prompt=120)
    for spans in (trace.spans, trace.spans[::-1]):
        (part,) = derive(spans)[1]
        assert (part.counts, part.input_tokens) == ({"provider_call": 1}, 120)


def test_sums_on_an_agent_are_billed_only_where_no_call_is_known() -> None:
    trace = Trace()
    agent = made(trace, "AGENT", "a.run", 0, 9, llm__token_count__prompt=240)
    assert derive(trace.spans)[1][0].input_tokens == 240
    for start in (1, 3):
        made(trace, "LLM", "generate", start, start + 1, agent, llm__token_count__prompt=120)
    for spans in (trace.spans, trace.spans[::-1]):
        rows = by_span(derive(spans)[0])
        assert [rows[span.span_id].billed for span in trace.spans] == [False, True, True]


# ----------------------------------------------------------------------------------------------------------------- tools


def tool(name: str = "look", **attributes: Any) -> SpanReading:
    return one("TOOL", name, "00000000000000aa", **attributes)


MESSAGE = {"type": "tool", "data": {"content": '{"t": 22}', "tool_call_id": "c1", "status": "success"}}
CONSTRUCTOR = {"lc": 1, "type": "constructor", "id": ["ToolMessage"], "kwargs": {"content": "hi", "tool_call_id": "c2"}}


@pytest.mark.parametrize(
    ("output", "call_id", "shown"),
    [
        (json.dumps(MESSAGE), "c1", '{"t":22}'),
        (json.dumps(CONSTRUCTOR), "c2", "hi"),
        (json.dumps({"graph": None, "update": {"messages": [MESSAGE]}, "goto": []}), "c1", '{"t":22}'),
        ('{"tool_call_id": "mine"}', "", '{"tool_call_id": "mine"}'),
        ("tool_call_id {", "", "tool_call_id {"),
    ],
)
def test_the_call_id_stands_inside_langchains_message(output: str, call_id: str, shown: str) -> None:
    reading = tool(output__value=output, tool__name="look")
    (draft,) = reading.drafts
    assert reading.light.tool_call_id == call_id
    assert reading.contents[draft.contents[0]].data == output.encode()  # the body is the value as sent
    assert draft.row.summary == shown


def test_a_message_that_says_error_is_a_failure() -> None:
    output = {"type": "tool", "data": {"content": "no such city", "tool_call_id": "c1", "status": "error"}}
    light = tool(output__value=json.dumps(output)).light
    assert (light.status, light.error) == ("failed", "no such city")


def test_langchain_puts_its_traceback_into_the_status() -> None:
    span = made(Trace(), "TOOL", "look", scope="langchain", input__value="Nowhere")
    span.status_code, span.status_message = 2, "ValueError('no such city')Traceback (most recent call last):\n  File"
    reading = read_span(TENANT, span)
    assert reading.light.error == "ValueError('no such city')"
    assert reading.drafts[0].row.summary == "ValueError('no such city')"


@pytest.mark.parametrize(
    ("sent", "arguments"),
    [
        ('{"city": "Paris"}', '{"city":"Paris"}'),
        ("Paris", '"Paris"'),
        ("{'city': 'Paris', 'days': 2}", '{"city":"Paris","days":2}'),
        ('{"args": [], "sanitize_inputs_outputs": true, "kwargs": {"city": "Paris"}}', '{"city":"Paris"}'),
        ('{"args": ["ls", "-l"]}', '{"args":["ls","-l"]}'),
        ('{"kwargs": {"a": 1}}', '{"kwargs":{"a":1}}'),
        ('{"args": [1], "kwargs": {}}', "[1]"),
        ('{"args": [], "kwargs": {}}', "{}"),
        ('{"args": ["ls"], "kwargs": {}, "shell": true}', '{"args":["ls"],"kwargs":{},"shell":true}'),
        ('{"x": "yyy...[truncated]', '"{\\"x\\": \\"yyy...[truncated]"'),
    ],
)
def test_arguments_in_the_shapes_of_frameworks(sent: str, arguments: str) -> None:
    (draft,) = tool(input__value=sent, tool__name="look", tool__parameters='{"type": "object"}').drafts
    assert draft.row.arguments == arguments


def test_an_argument_called_args_is_as_it_was_asked_for() -> None:
    (draft,) = tool(input__value='{"args": ["ls", "-l"]}', tool__name="run").drafts
    asking = Trace().chat(1, 2, asks=[("c1", "run", {"args": ["ls", "-l"]})])
    (asked,) = read_span(TENANT, asking).light.requested
    assert draft.row.arguments_sha256 == asked.arguments_sha256


def test_the_name_of_a_tool_is_not_that_of_its_class() -> None:
    assert tool("SimpleTool", tool__name="get_weather").light.tool_name == "get_weather"
    assert tool("get_weather.run").light.tool_name == "get_weather"
    handoff = tool("handoff to weather_agent", input__value="triage", output__value="weather_agent").light
    assert (handoff.tool_name, handoff.labels) == ("handoff to weather_agent", {"handoff_to": "weather_agent"})


def test_the_id_of_a_tool_and_of_its_twin() -> None:
    assert tool(tool__id="c1").light.tool_call_id == "c1"
    assert tool(tool_call__id="c2").light.tool_call_id == "c2"


def test_a_tool_without_an_id_belongs_to_the_call_that_asked_for_it() -> None:
    trace = Trace()
    agent = made(trace, "AGENT", "a.run", 0, 9)
    asks = {
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.tool_calls.0.tool_call.id": "c1",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "look",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": '{"n": 1}',
        "llm.output_messages.0.message.tool_calls.1.tool_call.id": "c2",
        "llm.output_messages.0.message.tool_calls.1.tool_call.function.name": "look",
        "llm.output_messages.0.message.tool_calls.1.tool_call.function.arguments": '{"n": 2}',
    }
    made(trace, "LLM", "generate", 1, 2, agent).attributes |= asks
    made(trace, "TOOL", "Look", 3, 4, agent, tool__name="look", input__value='{"n": 2}', output__value="b")
    made(trace, "TOOL", "Look", 5, 6, agent, tool__name="look", input__value='{"n": 1}', output__value="a")
    board = same_in_every_order(trace)
    found = listed(board, "tool_result")
    assert [(each.resolved.tool_call_id, each.row.summary) for each in found] == [("c1", "a"), ("c2", "b")]


def test_a_retrieval_has_a_query_and_documents() -> None:
    trace = Trace()
    span = made(trace, "RETRIEVER", "VectorStoreRetriever", input__value="weather", output__value='{"documents": []}')
    flat(span, retrieval__documents__0__document__content="Oslo is cold", retrieval__documents__0__document__score=0.5)
    reading = read_span(TENANT, span)
    (draft,) = reading.drafts
    assert (reading.light.tool_name, reading.light.tool_class) == ("VectorStoreRetriever", "knowledge_base")
    assert draft.row.arguments == '{"query":"weather"}'
    assert reading.contents[draft.contents[0]].field == "retrieval.documents.*"
    assert draft.row.summary == '[{"document":{"content":"Oslo is cold","score":0.5}}]'


def test_a_retriever_in_a_retriever_is_one() -> None:
    trace = Trace()
    outer = made(trace, "RETRIEVER", "VectorIndexRetriever.retrieve", 0, 3, input__value="q", output__value="a")
    made(trace, "RETRIEVER", "VectorIndexRetriever._retrieve", 1, 2, outer, input__value="q")
    assert len(listed(same_in_every_order(trace), "tool_result")) == 1


# --------------------------------------------------------------------------------------------------------------- outputs


def test_crewai_says_its_answer_as_raw() -> None:
    output = {"description": "What?", "summary": "What?...", "raw": "It is sunny.", "json_dict": None}
    (draft,) = one("AGENT", "W.t._execute_core", graph__node__id="W", output__value=json.dumps(output)).drafts
    assert draft.row.summary == "It is sunny."


def test_evaluations_are_labels() -> None:
    light = one("LLM", evaluations__0__evaluation__name="good", evaluations__0__evaluation__score=0.5).light
    assert light.labels == {"evaluations.0.evaluation.name": "good", "evaluations.0.evaluation.score": "0.5"}


@pytest.mark.parametrize("value", [None, 5, [], {}, "", "{", "[1", {"a": None}, [None], b"\xff", True, "9" * 9000])
def test_nothing_that_is_sent_breaks_the_reading(value: Any) -> None:
    keys = ("input.value", "output.value", "metadata", "llm.invocation_parameters", "agent.name", "tool.name",
            "llm.input_messages.0", "llm.input_messages.0.message", "llm.output_messages.0.message.contents.0",
            "llm.output_messages.0.message.tool_calls", "embedding.embeddings.0.embedding.text", "llm.token_count.prompt",
            "llm.tools.0.tool.json_schema", "retrieval.documents.0.document", "evaluation.score")  # fmt: skip
    for kind in ("LLM", "EMBEDDING", "TOOL", "RETRIEVER", "AGENT", "CHAIN", "RERANKER", "GUARDRAIL", "nonsense"):
        span = made(Trace(), kind, "x")
        span.attributes |= dict.fromkeys(keys, value)
        derive([span])
    span.attributes["openinference.span.kind"] = value
    derive([span])
