"""Spring AI, from hand-made spans: no recording exists (dialects.md §22)."""

from __future__ import annotations

from tests.spans import Trace, board_of, by_span, derive, listed

SPRING = {"gen_ai__operation__name": "framework", "gen_ai__system": "spring_ai"}


def conversation() -> Trace:
    """A chat client with two advisors, whose model asks for a tool, and a vector store beside it. All values are strings."""
    trace = Trace()
    client = trace.span(
        "spring_ai chat_client", 0, 10, spring__ai__kind="chat_client", spring__ai__chat__client__stream="false",
        spring__ai__chat__client__conversation__id="007", spring__ai__chat__client__advisors='["memory", "call"]', **SPRING,
    )  # fmt: skip
    memory = trace.span(
        "memory", 0.1, 9.9, client, spring__ai__kind="advisor", spring__ai__advisor__name="memory",
        spring__ai__advisor__order="0", **SPRING,
    )  # fmt: skip
    trace.span(
        "pg_vector query", 0.2, 0.5, memory, spring__ai__kind="vector_store", db__operation__name="query",
        db__system="pg_vector", db__vector__query__content="weather", db__vector__query__response__documents='["a"]',
    )  # fmt: skip
    trace.span("pg_vector add", 0.6, 0.7, memory, spring__ai__kind="vector_store", db__operation__name="add")
    call = trace.span("call", 1, 9, memory, spring__ai__kind="advisor", spring__ai__advisor__name="call", **SPRING)
    for start in (2, 6):
        trace.span(
            "chat gpt-4o-mini", start, start + 1, call, gen_ai__operation__name="chat", gen_ai__system="openai",
            gen_ai__request__model="gpt-4o-mini", gen_ai__response__model="none", gen_ai__usage__input_tokens="120",
            gen_ai__usage__output_tokens="18", gen_ai__usage__total_tokens="138",
            gen_ai__response__finish_reasons="[STOP]", spring__ai__model__request__tool__names='["get_weather"]',
        )  # fmt: skip
    trace.span(
        "tool_call get_weather", 4, 5, call, spring__ai__kind="tool_call", spring__ai__tool__definition__name="get_weather",
        spring__ai__tool__call__id="c1", spring__ai__tool__call__arguments='{"city": "Paris"}',
        spring__ai__tool__call__result='{"temp_c": 22}', **SPRING,
    )  # fmt: skip
    return trace


def test_the_chat_client_is_the_pass_and_its_advisors_are_no_steps() -> None:
    trace = conversation()
    for spans in (trace.spans, trace.spans[::-1]):
        resolved, (part,), _ = derive(spans)
        rows = {row.name: row for row in resolved}
        assert rows["spring_ai chat_client"].role == "step"
        assert rows["memory"].role == rows["call"].role == rows["pg_vector add"].role == ""
        assert {row.step_name for row in resolved} == {"spring_ai chat_client"}
        assert part.counts == {"provider_call": 2, "step": 1, "tool_invocation": 2}
        assert (part.input_tokens, part.output_tokens, part.conversation_id) == (240, 36, "007")
        calls = [row for row in resolved if row.role == "provider_call"]
        assert {(row.provider, row.model) for row in calls} == {("openai", "gpt-4o-mini")}
        assert part.cost_usd is not None and part.calls_without_cost == 0


def test_tools_and_retrievals_have_arguments_and_results() -> None:
    tool, query = sorted(listed(board_of(conversation().spans), "tool_result"), key=lambda each: each.label)
    assert (tool.row.label, tool.row.arguments, tool.row.summary) == (
        "get_weather",
        '{"city":"Paris"}',
        '{"temp_c": 22}',
    )
    assert (query.row.arguments, query.row.summary) == ('{"query":"weather"}', '["a"]')
    assert query.resolved.tool_class == "knowledge_base"


def test_placeholders_are_no_values() -> None:
    trace = Trace()
    chat = trace.span(
        "chat none", 0, 1, gen_ai__operation__name="chat", gen_ai__system="none", gen_ai__request__model="none",
        spring__ai__model__request__tool__names="[]",
    )  # fmt: skip
    client = trace.span(
        "spring_ai chat_client", 2, 3, spring__ai__kind="chat_client",
        spring__ai__chat__client__conversation__id="default", **SPRING,
    )  # fmt: skip
    resolved, parts, _ = derive([chat, client])
    assert (by_span(resolved)[chat.span_id].model, by_span(resolved)[chat.span_id].provider) == ("", "")
    assert {part.conversation_id for part in parts} == {""}
