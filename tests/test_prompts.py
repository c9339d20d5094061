"""Prompts: the bytes sent to the model, call by call; what is rebuilt says so."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from tests.conftest import Project
from tests.spans import DETAILS, Trace, board_of, listed, stamps

BODY = b'{"model": "gpt-4o-mini",  "messages": [{"role":"user","content":"caf\\u00e9"}],\r\n "temperature": 0.10}'


def run(trace: Trace) -> str:
    return f"/runs/run_{trace.trace_id}"


def two_passes() -> Trace:
    trace = Trace(run_id="r1")
    root = trace.flow("main", 0, 99)
    for seq, start in ((1, 1), (2, 20)):
        step = trace.step("a", start, start + 15, root, **stamps("s", seq, 1))
        asks = [("c1", "look", {"n": 1})]
        trace.chat(start + 1, start + 2, step, blackboard__request__body=f'{{"call":1,"pass":{seq}}}', asks=asks)
        trace.tool("look", start + 3, start + 4, step, call_id="c1", result="x")
        trace.span(
            "embed", start + 5, start + 6, step, gen_ai__operation__name="embeddings", gen_ai__request__model="e",
            gen_ai__provider__name="openai",
        )  # fmt: skip
        trace.chat(start + 7, start + 8, step, blackboard__request__body=f'{{"call":2,"pass":{seq}}}', said="done")
    return trace


def test_the_body_is_kept_byte_for_byte(project: Project) -> None:
    trace = Trace()
    root = trace.agent("a", 0, 99)
    trace.chat(1, 2, root, blackboard__request__body=BODY, tokens=(5, 1))
    trace.chat(3, 4, root, blackboard__request__body=BODY.decode(), prompt="ignored, the bytes are there")
    trace.chat(5, 6, root, blackboard__request__body=b"\xff\xfe not text")
    project.store(trace.spans)
    api = project.api()
    prompts = api.json(f"{run(trace)}/prompts")["prompts"]
    expected = [BODY, BODY, b"\xff\xfe not text"]
    assert [p["label"] for p in prompts] == ["LLM call 1", "LLM call 2", "LLM call 3"]
    assert [p["exact"] for p in prompts] == [True, True, True]
    for prompt, body in zip(prompts, expected, strict=True):
        path = f"{run(trace)}/artifacts/{prompt['artifact_id']}"
        raw = api.get(f"{path}/raw")
        assert raw.content == body
        assert raw.headers["content-type"] == "application/json"
        row = api.json(path)
        assert row["body_sha256"] == hashlib.sha256(body).hexdigest()
        assert (row["body_bytes"], row["metadata"]["exact"]) == (len(body), True)


def test_entries_of_a_pass_are_labelled_in_the_order_sent(embedded_project: Project) -> None:
    embedded_project.store(two_passes().spans)
    api = embedded_project.api()
    found = api.json("/runs/r1/prompts", step_id="s", pass_seq=2)
    assert found["count"] == 2
    assert [(p["label"], p["pass_seq"], p["call_seq"]) for p in found["prompts"]] == [
        ("LLM call 1", 2, 1), ("LLM call 2", 2, 4),
    ]  # fmt: skip
    assert api.json("/runs/r1/prompts")["count"] == 4
    for nothing in ({"step_id": "other"}, {"pass_seq": 3}, {"agent_id": "b"}):
        assert api.json("/runs/r1/prompts", **nothing)["prompts"] == []


def test_an_entry_leads_to_its_answer_and_names_the_calls_it_asks_for(embedded_project: Project) -> None:
    embedded_project.store(two_passes().spans)
    api = embedded_project.api()
    first, second = api.json("/runs/r1/prompts", pass_seq=1)["prompts"]
    assert first["requested_calls"] == [{"id": "c1", "name": "look"}]
    answer = api.json(f"/runs/r1/artifacts/{second['output_artifact_id']}")
    assert (answer["kind"], answer["summary"]) == ("agent_output", "done")
    assert api.json(f"/runs/r1/artifacts/{first['output_artifact_id']}")["summary"].startswith("look(")


def test_every_round_trip_has_its_iteration_retry_and_sends() -> None:
    trace = Trace()
    root = trace.agent("a", 0, 99)
    numbers = [(1, None, None), (2, 0, 0), (2, 1, 3)]
    for start, (iteration, retry, resent) in enumerate(numbers, 1):
        trace.chat(
            start, parent=root, blackboard__request__body="{}", blackboard__loop__iteration=iteration,
            blackboard__output__retry=retry, blackboard__retry__count=resent,
        )  # fmt: skip
    from otel_blackboard.query.artifacts import metadata

    found = [metadata(artifact) for artifact in listed(board_of(trace.spans), "llm_prompt")]
    assert [(m["loop_iteration"], m["output_retry"], m["send_count"]) for m in found] == [
        (1, None, 1), (2, 0, 1), (2, 1, 4),
    ]  # fmt: skip


def test_a_call_that_the_provider_rejects_keeps_its_body(embedded_project: Project) -> None:
    trace = Trace()
    trace.chat(1, 2, blackboard__request__body=BODY, error="400 unsupported parameter")
    embedded_project.store(trace.spans)
    api = embedded_project.api()
    (prompt,) = api.json(f"{run(trace)}/prompts")["prompts"]
    assert (prompt["status"], prompt["error"], prompt["output_artifact_id"]) == (
        "failed",
        "400 unsupported parameter",
        None,
    )
    assert api.get(f"{run(trace)}/artifacts/{prompt['artifact_id']}/raw").content == BODY


def test_a_prompt_made_from_messages_says_so(project: Project) -> None:
    trace = Trace()
    trace.chat(
        1, 2, prompt="hi", gen_ai__system_instructions='[{"type":"text","content":"be brief"}]',
        gen_ai__tool__definitions='[{"name":"look"}]',
    )  # fmt: skip
    project.store(trace.spans)
    api = project.api()
    (prompt,) = api.json(f"{run(trace)}/prompts")["prompts"]
    assert (prompt["exact"], prompt["metadata"]["mark"], prompt["body_bytes"]) == (False, "reconstructed", None)
    row = api.json(f"{run(trace)}/artifacts/{prompt['artifact_id']}")
    assert row["body_sha256"] is None
    rebuilt: Any = json.loads(row["body"])
    assert rebuilt == {
        "model": "gpt-4o-mini",
        "system": [{"type": "text", "content": "be brief"}],
        "messages": [{"role": "user", "parts": [{"type": "text", "content": "hi"}]}],
        "tools": [{"name": "look"}],
    }


def test_a_prompt_from_message_records_keeps_their_order_and_roles(project: Project) -> None:
    trace = Trace()
    span = trace.chat(1, 9)
    trace.log(span, "gen_ai.user.message", 3, body={"content": "second"})
    trace.log(span, "gen_ai.system.message", 2, body={"content": "first"})
    trace.log(span, "gen_ai.choice", 5, body={"message": {"content": "answer", "role": "assistant"}})
    project.store([], trace.logs[1:])
    project.store(trace.spans)
    project.store([], trace.logs[:1])
    api = project.api()
    (prompt,) = api.json(f"{run(trace)}/prompts")["prompts"]
    body = json.loads(api.json(f"{run(trace)}/artifacts/{prompt['artifact_id']}")["body"])
    assert [(message["role"], message["parts"][0]["content"]) for message in body["messages"]] == [
        ("system", "first"), ("user", "second"),
    ]  # fmt: skip
    assert api.json(f"{run(trace)}/artifacts/{prompt['output_artifact_id']}")["summary"] == "answer"


def test_exact_bytes_go_before_messages_wherever_those_came_from() -> None:
    trace = Trace()
    span = trace.chat(1, 9, blackboard__request__body=BODY, prompt="rebuilt")
    trace.log(span, DETAILS, 2, gen_ai__input__messages="[]")
    (prompt,) = listed(board_of(trace.spans, trace.logs), "llm_prompt")
    assert prompt.row.exact
    assert [body.sha256 for body in prompt.bodies] == [hashlib.sha256(BODY).hexdigest()]


def test_a_call_without_content_has_an_entry_without_a_body(embedded_project: Project) -> None:
    trace = Trace()
    trace.chat(1, 2, tokens=(5, 1))
    embedded_project.store(trace.spans)
    api = embedded_project.api()
    (prompt,) = api.json(f"{run(trace)}/prompts")["prompts"]
    assert (prompt["exact"], prompt["token_size"], prompt["metadata"]["content"]) == (None, None, "not captured")
    assert api.json(f"{run(trace)}/artifacts/{prompt['artifact_id']}")["body"] is None
    assert api.get(f"{run(trace)}/artifacts/{prompt['artifact_id']}/raw").status_code == 404


def test_two_records_of_one_request_are_one_entry() -> None:
    trace = Trace()
    outer = trace.chat(1, 9, prompt="as messages", tokens=(5, 1))
    trace.chat(2, 8, outer, blackboard__request__body=BODY)
    (prompt,) = listed(board_of(trace.spans), "llm_prompt")
    assert (prompt.label, prompt.row.exact) == ("LLM call 1", True)


def test_prompts_have_a_switch_of_their_own(embedded_project: Project) -> None:
    embedded_project.store(two_passes().spans)
    only = embedded_project.api(
        capture_artifacts=False, action_ledger=False, retrieval=False, plan_state_persistence=False
    )
    assert {a["kind"] for a in only.json("/runs/r1/artifacts")["artifacts"]} >= {"llm_prompt"}
    assert only.json("/runs/r1/prompts")["count"] == 4


def test_prompts_of_an_earlier_attempt_are_shown_on_request(embedded_project: Project) -> None:
    trace = Trace(run_id="r1")
    for attempt in (1, 2):
        step = trace.step("a", attempt * 10, attempt * 10 + 5, **stamps("s", 1, attempt))
        trace.chat(attempt * 10 + 1, parent=step, blackboard__request__body=f'{{"attempt":{attempt}}}')
    embedded_project.store(trace.spans)
    api = embedded_project.api()
    assert [p["attempt"] for p in api.json("/runs/r1/prompts")["prompts"]] == [2]
    both = api.json("/runs/r1/prompts", earlier=True)["prompts"]
    assert [(p["attempt"], p["earlier_attempt"], p["label"]) for p in both] == [
        (1, True, "LLM call 1"), (2, False, "LLM call 1"),
    ]  # fmt: skip
