"""The model stub, asked by OpenAI's own client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam

from otel_blackboard.demo.model_stub import (
    MODEL,
    RATE_LIMITED_ONCE,
    REJECTED,
    Answer,
    ModelStub,
    Refusal,
    count_tokens,
    read_request,
)

LOOKUP: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "tide_lookup",
        "description": "Tides of a port",
        "parameters": {
            "type": "object",
            "properties": {"port": {"type": "string"}, "day": {"type": "integer"}},
        },
    },
}
HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "When is high water? ⚓"}]


@pytest.fixture
def stub() -> Iterator[ModelStub]:
    with ModelStub(retry_after=0) as stub:
        yield stub


@pytest.fixture
def client(stub: ModelStub) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=stub.url, api_key="sk-test", max_retries=0) as client:
        yield client


def test_plain_answer_is_a_chat_completion(client: openai.OpenAI) -> None:
    completion = client.chat.completions.create(model=MODEL, messages=HELLO)
    assert completion.model == "gpt-4o-mini-2024-07-18"
    assert completion.id.startswith("chatcmpl-")
    assert completion.choices[0].finish_reason == "stop"
    assert completion.choices[0].message.content == "You say: When is high water? ⚓"


def test_models_are_listed(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]


def test_tool_call_and_the_answer_from_its_result(client: openai.OpenAI) -> None:
    first = client.chat.completions.create(model=MODEL, messages=HELLO, tools=[LOOKUP])
    assert first.choices[0].finish_reason == "tool_calls"
    assert first.choices[0].message.content is None
    calls = first.choices[0].message.tool_calls
    assert calls and calls[0].type == "function"
    assert calls[0].function.name == "tide_lookup"
    assert json.loads(calls[0].function.arguments) == {"port": "Brest", "day": 1}

    messages: list[Any] = [*HELLO, first.choices[0].message, _result(calls[0].id, "06:12")]
    second = client.chat.completions.create(model=MODEL, messages=messages, tools=[LOOKUP])
    assert second.choices[0].message.content == "The tool says: 06:12"
    assert second.id != first.id


def test_the_same_conversation_gets_the_same_answer_under_new_ids(client: openai.OpenAI) -> None:
    completions = [client.chat.completions.create(model=MODEL, messages=HELLO, tools=[LOOKUP]) for _ in range(3)]
    calls = [completion.choices[0].message.tool_calls for completion in completions]
    assert len({completion.id for completion in completions}) == 3
    assert len({call[0].id for call in calls if call}) == 3
    assert len({call[0].function.arguments for call in calls if call and call[0].type == "function"}) == 1


def test_streamed_text_is_the_plain_text_with_usage_last(client: openai.OpenAI) -> None:
    plain = client.chat.completions.create(model=MODEL, messages=HELLO)
    with client.chat.completions.create(
        model=MODEL, messages=HELLO, stream=True, stream_options={"include_usage": True}
    ) as stream:
        chunks = list(stream)
    pieces = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(pieces) == plain.choices[0].message.content
    assert len([piece for piece in pieces if piece]) > 1
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert [chunk.usage is None for chunk in chunks] == [True] * (len(chunks) - 1) + [False]
    assert plain.usage and chunks[-1].usage and chunks[-1].usage.total_tokens == plain.usage.total_tokens
    assert len({chunk.id for chunk in chunks}) == 1


def test_streamed_tool_call_comes_in_pieces(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(model=MODEL, messages=HELLO, tools=[LOOKUP]) as stream:
        for _ in stream:
            pass
        completion = stream.get_final_completion()
    assert completion.usage is None
    assert completion.choices[0].finish_reason == "tool_calls"
    calls = completion.choices[0].message.tool_calls
    assert calls and json.loads(calls[0].function.arguments) == {"port": "Brest", "day": 1}


def test_the_connection_survives_a_stream(client: openai.OpenAI, stub: ModelStub) -> None:
    for _ in range(2):
        with client.chat.completions.create(model=MODEL, messages=HELLO, stream=True) as stream:
            assert list(stream)
    assert len(stub.requests) == 2


def test_usage_follows_the_text(client: openai.OpenAI, stub: ModelStub) -> None:
    completion = client.chat.completions.create(model=MODEL, messages=HELLO, tools=[LOOKUP], tool_choice="none")
    request = read_request(stub.requests[0])
    assert not isinstance(request, Refusal)
    usage = completion.usage
    assert usage is not None
    assert usage.prompt_tokens == count_tokens(*request.prompt())
    assert usage.completion_tokens == count_tokens("You say: When is high water? ⚓") == 8
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_a_growing_conversation_is_cached_as_far_as_it_was_seen(client: openai.OpenAI) -> None:
    messages: list[Any] = [{"role": "system", "content": "Be brief. " * 100}, *HELLO]
    cached = []
    for _ in range(3):
        completion = client.chat.completions.create(model=MODEL, messages=messages)
        usage = completion.usage
        assert usage and usage.prompt_tokens_details and usage.prompt_tokens_details.cached_tokens is not None
        cached.append(usage.prompt_tokens_details.cached_tokens)
        assert cached[-1] <= usage.prompt_tokens
        messages += [completion.choices[0].message, {"role": "user", "content": "And then? " * 60}]
    assert cached[0] == 0
    assert 0 < cached[1] < cached[2]
    assert all(tokens % 64 == 0 for tokens in cached)


def test_rate_limit_is_answered_once_with_retry_after(client: openai.OpenAI) -> None:
    with pytest.raises(openai.RateLimitError) as refused:
        client.chat.completions.create(model=RATE_LIMITED_ONCE, messages=HELLO)
    assert refused.value.response.headers["retry-after"] == "0"
    assert refused.value.code == "rate_limit_exceeded"
    again = client.chat.completions.create(model=RATE_LIMITED_ONCE, messages=HELLO)
    assert again.choices[0].message.content == "You say: When is high water? ⚓"


def test_the_clients_own_retry_gets_through_the_rate_limit(stub: ModelStub) -> None:
    with openai.OpenAI(base_url=stub.url, api_key="sk-test", max_retries=1) as client:
        client.chat.completions.create(model=RATE_LIMITED_ONCE, messages=HELLO)
    assert len(stub.requests) == 2
    assert stub.requests[0] == stub.requests[1]


def test_a_scripted_refusal_is_given_once_for_each_conversation() -> None:
    refusal = Refusal(503, "overloaded", type="server_error", code="overloaded", then=Answer("Here I am."))
    with (
        ModelStub(lambda request: refusal) as stub,
        openai.OpenAI(base_url=stub.url, api_key="k", max_retries=0) as client,
    ):
        for key in ("a", "b"):
            with pytest.raises(openai.InternalServerError, match="overloaded"):
                client.chat.completions.create(model=MODEL, messages=HELLO, prompt_cache_key=key)
            again = client.chat.completions.create(model=MODEL, messages=HELLO, prompt_cache_key=key)
            assert again.choices[0].message.content == "Here I am."


def test_rejected_requests_are_answered_400(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="rejected"):
        client.chat.completions.create(model=REJECTED, messages=HELLO)
    with pytest.raises(openai.BadRequestError, match="messages"):
        client.chat.completions.create(model=MODEL, messages=[])
    with pytest.raises(openai.BadRequestError, match="reasoning_effort") as refused:
        client.chat.completions.create(model=MODEL, messages=HELLO, reasoning_effort="low")
    assert refused.value.param == "reasoning_effort"
    orphan: list[Any] = [*HELLO, _result("call_unknown", "x")]
    with pytest.raises(openai.BadRequestError, match="tool_calls"):
        client.chat.completions.create(model=MODEL, messages=orphan)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"\xff",
        b"[]",
        b"{}",
        b'{"model":"m"}',
        b'{"model":"m","messages":[1]}',
        b'{"model":"m","messages":[{"role":"assistant","tool_calls":[1]}]}',
        b'{"model":"m","messages":[{}],"tools":[1]}',
    ],
)
def test_a_body_that_is_no_request_is_refused(raw: bytes) -> None:
    refusal = read_request(raw)
    assert isinstance(refusal, Refusal)
    assert refusal.status == 400


def test_unknown_addresses_are_not_found(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model=MODEL, input="x")


def test_requests_are_kept_byte_for_byte(client: openai.OpenAI, stub: ModelStub) -> None:
    sent = client.chat.completions.with_raw_response.create(model=MODEL, messages=HELLO).http_request.content
    assert stub.requests == [sent]


def _result(call_id: str, content: str) -> dict[str, str]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}
