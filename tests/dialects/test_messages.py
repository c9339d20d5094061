"""Chat messages of every shape (dialects.md A) become those of OpenTelemetry's GenAI conventions."""

from __future__ import annotations

import json
import sys
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_blackboard.processor.flattened import lost, unflatten
from otel_blackboard.processor.messages import (
    Message,
    finish_reason,
    read_messages,
    read_request,
    read_system,
    read_tools,
    shown,
)
from tests.fuzzing import fuzz
from tests.spans import TENANT, Trace, board_of, listed


def said(role: str, *parts: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "parts": [text(part) if isinstance(part, str) else part for part in parts], **more}


def text(content: str) -> dict[str, Any]:
    return {"type": "text", "content": content}


def thought(content: str) -> dict[str, Any]:
    return {"type": "reasoning", "content": content}


def call(identity: str | None = "c1", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_call", "id": identity, "name": "look", "arguments": arguments or {"city": "Paris"}}


def result(response: Any, identity: str | None = "c1", **more: Any) -> dict[str, Any]:
    return {"type": "tool_call_response", "id": identity, "response": response, **more}


def blob(content: str = "aGk=", modality: str = "image", mime_type: str = "image/png") -> dict[str, Any]:
    return {"type": "blob", "modality": modality, "mime_type": mime_type, "content": content}


def messages(value: Any, role: str = "user") -> list[dict[str, Any]]:
    return [shown(message) for message in read_messages(value, role)]


ASKED, HEARD = said("user", "hi"), said("tool", result("sunny"))
CALLED = said("assistant", call())
ARGUMENTS = '{"city": "Paris"}'
OPENAI_CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": ARGUMENTS}}


def lc(name: str, **kwargs: Any) -> dict[str, Any]:
    return {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", name], "kwargs": kwargs}


def by(role: str, *content: Any) -> list[Any]:
    return [{"role": role, "content": list(content)}]


def parts(role: str, *content: Any) -> list[Any]:
    return [{"role": role, "parts": list(content)}]


SHAPES: dict[str, tuple[Any, list[dict[str, Any]]]] = {
    # containers
    "an array": ([{"role": "user", "content": "hi"}], [ASKED]),
    "an array as JSON": ('[{"role":"user","content":"hi"}]', [ASKED]),
    "JSON in JSON": (json.dumps('[{"role":"user","content":"hi"}]'), [ASKED]),
    "an array of JSON texts": (['{"role":"user","content":"hi"}'], [ASKED]),
    "one message": ({"role": "user", "parts": [{"type": "text", "content": "hi"}]}, [ASKED]),
    "bare text": ("hi", [ASKED]),
    "quoted text": ('"hi"', [ASKED]),
    "several prompts": (["hi", "there"], [ASKED, said("user", "there")]),
    "bytes": (b"hi", [ASKED]),
    "nothing": ("", []),
    "an empty list": ([], []),
    "a prompt that is JSON": ('{"city": "Paris"}', [said("user", '{"city": "Paris"}')]),
    "a prompt that is a list": ("[1, 2]", [said("user", "[1, 2]")]),
    "prose": ("system: be\nbrief\nuser: hi", [said("system", "be\nbrief"), ASKED]),
    "no prose": ("the system: be brief", [said("user", "the system: be brief")]),
    "Python's repr": ("[{'role': 'user', 'content': 'it\\'s \"hi\"', 'name': None}]", [said("user", 'it\'s "hi"')]),
    "a repr of objects": ("[ChatMessage(role='user')]", [said("user", "[ChatMessage(role='user')]")]),
    "lists in a list": ({"messages": [[{"role": "user", "content": "hi"}]]}, [ASKED]),
    "one list of events": (
        [
            {"event.name": "gen_ai.user.message", "content": "hi", "gen_ai.message.index": 0},
            {"event.name": "gen_ai.tool.message", "content": "sunny", "id": "c1"},
            {"event.name": "gen_ai.choice", "index": 0, "message": {"role": "assistant", "content": "22C"}},
        ],
        [ASKED, HEARD],
    ),
    # roles
    "roles": (
        [
            {"role": role, "content": "x"}
            for role in ("developer", "human", "ai", "model", "USER", "MessageRole.SYSTEM", "ghost")
        ],
        [said(role, "x") for role in ("developer", "user", "assistant", "assistant", "user", "system", "ghost")],
    ),
    "smolagents' roles": (
        [{"role": role, "content": "x"} for role in ("tool-call", "tool-response")],
        [said("assistant", "x"), said("user", "x")],
    ),
    "role thinking": ([{"role": "thinking", "content": "hm"}], [said("assistant", thought("hm"))]),
    "who spoke": ([{"role": "user", "content": "hi", "name": "ann"}], [said("user", "hi", name="ann")]),
    # text and reasoning
    "text parts": (
        by("user", {"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}, {"text": "c"}, "d"),
        [said("user", "a", "b", "c", "d")],
    ),
    "parts alone": ([{"type": "text", "content": "a"}, {"type": "output_text", "text": "b"}], [said("user", "a", "b")]),
    "an empty text is no part": (parts("user", {"type": "text", "content": ""}), [said("user")]),
    "a refusal": ([{"role": "assistant", "content": None, "refusal": "no"}], [said("assistant", "no")]),
    "thinking": (
        by("assistant", {"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "a"}),
        [said("assistant", thought("hm"), "a")],
    ),
    "reasoning beside": (
        [{"role": "assistant", "content": "a", "reasoning_content": "hm"}],
        [said("assistant", thought("hm"), "a")],
    ),
    "Gemini's thought": (
        parts("model", {"text": "hm", "thought": True}, {"text": "a"}),
        [said("assistant", thought("hm"), "a")],
    ),
    "Bedrock's reasoning": (
        by("assistant", {"reasoningContent": {"reasoningText": {"text": "hm"}}}),
        [said("assistant", thought("hm"))],
    ),
    "redacted": (
        by("assistant", {"type": "thinking", "thinking": "<REDACTED>"}),
        [said("assistant", thought("<REDACTED>"))],
    ),
    # calls
    "OpenAI calls": ([{"role": "assistant", "content": None, "tool_calls": [OPENAI_CALL]}], [CALLED]),
    "calls as JSON": ([{"role": "assistant", "tool_calls": json.dumps([OPENAI_CALL])}], [CALLED]),
    "OpenAI's old call": (
        [{"role": "assistant", "function_call": {"name": "look", "arguments": ARGUMENTS}}],
        [said("assistant", call(None))],
    ),
    "the conventions' call": (
        parts("assistant", {"type": "tool_call", "id": "c1", "name": "look", "arguments": ARGUMENTS}),
        [CALLED],
    ),
    "LangChain's call": (
        [
            {
                "type": "ai",
                "content": "",
                "tool_calls": [{"name": "look", "args": {"city": "Paris"}, "id": "c1", "type": "tool_call"}],
            }
        ],
        [CALLED],
    ),
    "flattened call": (
        [{"role": "assistant", "tool_calls": [{"id": "c1", "name": "look", "arguments": ARGUMENTS}]}],
        [CALLED],
    ),
    "tool_use": (
        by("assistant", {"type": "tool_use", "id": "c1", "name": "look", "input": {"city": "Paris"}}),
        [CALLED],
    ),
    "Bedrock's call": (
        by("assistant", {"toolUse": {"toolUseId": "c1", "name": "look", "input": {"city": "Paris"}}}),
        [CALLED],
    ),
    "Gemini's call": (
        parts("model", {"functionCall": {"id": "c1", "name": "look", "args": {"city": "Paris"}}}),
        [CALLED],
    ),
    "Gemini's call in snake case": (
        parts("model", {"function_call": {"id": "c1", "name": "look", "args": {"city": "Paris"}}}),
        [CALLED],
    ),
    "AI SDK's call": (
        by("assistant", {"type": "tool-call", "toolCallId": "c1", "toolName": "look", "input": {"city": "Paris"}}),
        [CALLED],
    ),
    "AI SDK 4's call": (
        by("assistant", {"toolCallType": "function", "toolCallId": "c1", "toolName": "look", "args": ARGUMENTS}),
        [CALLED],
    ),
    "Haystack's call": (
        [
            {
                "role": "assistant",
                "meta": {},
                "content": [{"tool_call": {"tool_name": "look", "arguments": {"city": "Paris"}, "id": "c1"}}],
            }
        ],
        [CALLED],
    ),
    "LlamaIndex's call, said twice": (
        {
            "role": "assistant",
            "additional_kwargs": {"tool_calls": [OPENAI_CALL]},
            "blocks": [
                {"block_type": "tool_call", "tool_call_id": "c1", "tool_name": "look", "tool_kwargs": ARGUMENTS}
            ],
        },
        [CALLED],
    ),
    "AutoGen's call": (
        {
            "finish_reason": "function_calls",
            "content": [{"id": "c1", "name": "look", "arguments": ARGUMENTS}],
            "thought": None,
        },
        [said("user", call(), finish_reason="tool_call", raw_finish_reason="function_calls")],
    ),
    "a call without arguments": (
        [{"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "go", "arguments": ""}}]}],
        [said("assistant", {"type": "tool_call", "id": "c1", "name": "go"})],
    ),
    "arguments that are no JSON": (
        parts("assistant", {"type": "tool_call", "id": "c1", "name": "go", "arguments": '{"a":'}),
        [said("assistant", {"type": "tool_call", "id": "c1", "name": "go", "arguments": '{"a":'})],
    ),
    "two equal calls without ids": (
        [{"role": "model", "parts": [{"functionCall": {"name": "look", "args": {"city": "Paris"}}}] * 2}],
        [said("assistant", call(None), call(None))],
    ),
    # results
    "OpenAI's result": ([{"role": "tool", "tool_call_id": "c1", "content": "sunny"}], [HEARD]),
    "the conventions' result": (
        parts("tool", {"type": "tool_call_response", "id": "c1", "response": "sunny"}),
        [HEARD],
    ),
    "pydantic-ai's result": (
        parts("user", {"type": "tool_call_response", "id": "c1", "name": "look", "result": {"a": 1}}),
        [said("user", result({"a": 1}, name="look"))],
    ),
    "the text of a tool": (
        [{"role": "tool", "tool_call_id": "c1", "parts": [{"type": "text", "content": "sunny"}]}],
        [HEARD],
    ),
    "tool_result": (
        by("user", {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "sunny"}]}),
        [said("user", result("sunny"))],
    ),
    "Bedrock's result": (
        by("user", {"toolResult": {"toolUseId": "c1", "status": "success", "content": [{"json": {"a": 1}}]}}),
        [said("user", result({"a": 1}))],
    ),
    "Gemini's result": (
        parts("user", {"functionResponse": {"id": "c1", "name": "look", "response": {"a": 1}}}),
        [said("user", result({"a": 1}, name="look"))],
    ),
    "AI SDK's result": (
        by(
            "tool",
            {
                "type": "tool-result",
                "toolCallId": "c1",
                "toolName": "look",
                "output": {"type": "json", "value": {"a": 1}},
            },
        ),
        [said("tool", result({"a": 1}, name="look"))],
    ),
    "AI SDK 4's result": (
        by("tool", {"type": "tool-result", "toolCallId": "c1", "toolName": "look", "result": {"a": 1}}),
        [said("tool", result({"a": 1}, name="look"))],
    ),
    "LangChain's ToolMessage": (
        {"type": "tool", "data": {"content": "sunny", "type": "tool", "name": "look", "tool_call_id": "c1"}},
        [said("tool", result("sunny", name="look"))],
    ),
    "Haystack's result": (
        by(
            "tool",
            {"tool_call_result": {"result": "sunny", "origin": {"id": "c1", "tool_name": "look"}, "error": False}},
        ),
        [said("tool", result("sunny", name="look"))],
    ),
    "LlamaIndex's result": (
        [
            {
                "role": "tool",
                "additional_kwargs": {"tool_call_id": "c1"},
                "blocks": [{"block_type": "text", "text": "sunny"}],
            }
        ],
        [HEARD],
    ),
    "results of tools that failed": (
        [
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "no", "is_error": True}],
            },
            {"role": "user", "content": [{"toolResult": {"toolUseId": "c1", "status": "error", "content": "no"}}]},
            {
                "role": "user",
                "content": [
                    {"type": "tool-result", "toolCallId": "c1", "output": {"type": "error-text", "value": "no"}},
                    {"tool_call_result": {"result": "no", "origin": {"id": "c1"}, "error": True}},
                    {"call_id": "c1", "content": "no", "is_error": True},
                    {"type": "tool_result", "tool_use_id": "c1", "is_error": True},
                ],
            },
            {"type": "tool", "data": {"content": "no", "tool_call_id": "c1", "status": "error"}},
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "a", "is_error": False}],
            },
        ],
        [
            said("user", result("no", is_error=True)),
            said("user", result("no", is_error=True)),
            said("user", *[result("no", is_error=True)] * 3, result(None, is_error=True)),
            said("tool", result("no", is_error=True)),
            said("user", result("a")),
        ],
    ),
    "a result that says nothing": (
        [{"role": "tool", "tool_call_id": "c1", "content": None}],
        [said("tool", result(None))],
    ),
    # media
    "an image's data": (
        by("user", {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}),
        [said("user", blob())],
    ),
    "an image's address": (
        by("user", {"type": "input_image", "image_url": "https://x/a.png"}),
        [said("user", {"type": "uri", "modality": "image", "uri": "https://x/a.png"})],
    ),
    "Anthropic's image": (
        by("user", {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}),
        [said("user", blob())],
    ),
    "Gemini's image": (
        parts(
            "user",
            {"inline_data": {"mime_type": "image/png", "data": "aGk="}},
            {"inlineData": {"mimeType": "image/png", "data": "aGk="}},
        ),
        [said("user", blob(), blob())],
    ),
    "Gemini's file": (
        parts("user", {"fileData": {"mimeType": "video/mp4", "fileUri": "gs://a"}}),
        [said("user", {"type": "uri", "modality": "video", "mime_type": "video/mp4", "uri": "gs://a"})],
    ),
    "Bedrock's image": (by("user", {"image": {"format": "png", "source": {"bytes": "aGk="}}}), [said("user", blob())]),
    "AI SDK's image": (by("user", {"type": "image", "image": "data:image/png;base64,aGk="}), [said("user", blob())]),
    "pydantic-ai's media": (
        parts(
            "user",
            {"type": "image-url", "url": "https://x"},
            {"type": "binary", "media_type": "image/png", "content": "aGk="},
        ),
        [said("user", {"type": "uri", "modality": "image", "uri": "https://x"}, blob())],
    ),
    "OpenAI's sound": (
        by("user", {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}}),
        [said("user", blob(modality="audio", mime_type="audio/wav"))],
    ),
    "a file by id": (
        by("user", {"type": "file", "file": {"file_id": "f1"}}, {"type": "input_image", "file_id": "f2"}),
        [
            said(
                "user",
                {"type": "file", "modality": "file", "file_id": "f1"},
                {"type": "file", "modality": "image", "file_id": "f2"},
            )
        ],
    ),
    "data in a uri": (
        parts("user", {"type": "uri", "modality": "image", "uri": "data:image/png;base64,aGk="}),
        [said("user", blob())],
    ),
    "a blob": (parts("user", blob()), [said("user", blob())]),
    # what nobody knows
    "a server's tool": (
        parts("assistant", {"type": "server_tool_call", "name": "s", "server_tool_call": {"type": "web"}}),
        [said("assistant", {"type": "server_tool_call", "name": "s", "server_tool_call": {"type": "web"}})],
    ),
    "unknown parts": (
        parts("assistant", {"type": "compaction"}, {"type": "generic", "generic_type": "x"}),
        [said("assistant", {"type": "compaction"}, {"type": "generic", "generic_type": "x"})],
    ),
    "an unknown map": ({"city": "Paris"}, [said("user", {"city": "Paris"})]),
    "no message": (
        [{"role": "user", "content": "hi"}, 5, None, "x"],
        [ASKED, said("user", "5"), said("user"), said("user", "x")],
    ),
    # LangChain
    "LangChain's serialisation": (
        {
            "messages": [
                [
                    lc("SystemMessage", content="be brief", type="system"),
                    lc("HumanMessage", content="hi", type="human", id="1"),
                    lc(
                        "AIMessage",
                        content="",
                        type="ai",
                        tool_calls=[{"name": "look", "args": {"city": "Paris"}, "id": "c1", "type": "tool_call"}],
                        additional_kwargs={"tool_calls": [OPENAI_CALL]},
                        response_metadata={"finish_reason": "tool_calls"},
                    ),
                    lc("ToolMessage", content="sunny", tool_call_id="c1"),
                ]
            ]
        },
        [
            said("system", "be brief"),
            ASKED,
            CALLED | {"finish_reason": "tool_call", "raw_finish_reason": "tool_calls"},
            HEARD,
        ],
    ),
    "LangChain's dumps": (
        [{"type": "human", "data": {"content": "hi"}}, {"content": "22C", "type": "ai"}],
        [ASKED, said("assistant", "22C")],
    ),
    "a graph's update": (
        [{"graph": None, "update": {"messages": [{"type": "ai", "data": {"content": "22C"}}]}}],
        [said("assistant", "22C")],
    ),
    # OpenInference
    "OpenInference": (
        [
            {
                "message": {
                    "role": "user",
                    "contents": [
                        {"message_content": {"type": "text", "text": "hi"}},
                        {
                            "message_content": {
                                "type": "image",
                                "image": {"image": {"url": "data:image/png;base64,aGk="}},
                            }
                        },
                    ],
                }
            },
            {
                "message": {
                    "role": "assistant",
                    "contents": [
                        {"message_content": {"type": "reasoning", "text": "hm", "signature": "s"}},
                        {
                            "message_content": {"type": "tool_use"},
                            "tool_call": {"id": "c1", "function": {"name": "look", "arguments": ARGUMENTS}},
                        },
                    ],
                    "tool_calls": [{"tool_call": {"id": "c1", "function": {"name": "look", "arguments": ARGUMENTS}}}],
                }
            },
            {"message": {"role": "tool", "tool_call_id": "c1", "content": "sunny", "name": "look"}},
            {
                "message": {
                    "role": "model",
                    "content": "22C",
                    "contents": [{"message_content": {"type": "text", "text": "22C"}}],
                }
            },
            {"message": {"role": "assistant", "content": ["a", "b"]}},
            {
                "message": {"role": "function"},
                "function": ['{"name":"look","content":"sunny","call_id":"c1","is_error":false}'],
            },
        ],
        [
            said("user", "hi", blob()),
            said("assistant", thought("hm"), call()),
            said("tool", result("sunny", name="look")),
            said("assistant", "22C"),
            said("assistant", "a", "b"),
            said("tool", result("sunny", name="look")),
        ],
    ),
    "OpenInference's prompts": (
        [{"prompt": {"text": "hi"}}, {"completion": {"text": "22C"}}],
        [ASKED, said("user", "22C")],
    ),
    # Traceloop, Strands
    "blocks as JSON text": (
        [
            {"role": "user", "content": '[{"type":"tool_result","tool_use_id":"c1","content":"sunny"}]'},
            {"role": "assistant", "content": '[{"toolUse":{"toolUseId":"c1","name":"look","input":{"city":"Paris"}}}]'},
        ],
        [said("user", result("sunny")), CALLED],
    ),
    "a list that is no blocks": (
        [{"role": "assistant", "content": '[{"type":"tide","height":3}]'}, {"role": "assistant", "content": "[]"}],
        [said("assistant", '[{"type":"tide","height":3}]'), said("assistant", "[]")],
    ),
    "Strands' choice": (
        {"role": "choice", "finish_reason": "end_turn", "message": '[{"text": "22C"}]'},
        [said("assistant", "22C", finish_reason="stop", raw_finish_reason="end_turn")],
    ),
    # the Responses API
    "items": (
        [
            {"role": "user", "content": "hi"},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
            {"type": "function_call", "call_id": "c1", "id": "fc_1", "name": "look", "arguments": ARGUMENTS},
            {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "22C", "annotations": []}],
            },
        ],
        [ASKED, said("assistant", thought("hm")), CALLED, HEARD, said("assistant", "22C")],
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_becomes_the_one_form(name: str) -> None:
    value, expected = SHAPES[name]
    assert messages(value) == expected
    assert messages(messages(value)) == expected
    assert messages(orjson.dumps(value).decode() if not isinstance(value, str | bytes | dict) else value) == expected


ANSWERS: dict[str, tuple[Any, list[dict[str, Any]]]] = {
    "OpenAI": (
        {
            "id": "x",
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "tool_calls",
                    "message": {"role": "assistant", "content": None, "tool_calls": [OPENAI_CALL]},
                }
            ],
        },
        [CALLED | {"finish_reason": "tool_call", "raw_finish_reason": "tool_calls"}],
    ),
    "a stream's sum": (
        {"choices": [{"delta": {"content": "22C"}, "finish_reason": "stop"}]},
        [said("assistant", "22C", finish_reason="stop")],
    ),
    "a completion": (
        {"choices": [{"index": 0, "text": "22C", "finish_reason": "length"}]},
        [said("assistant", "22C", finish_reason="length")],
    ),
    "Responses": (
        {
            "object": "response",
            "instructions": "be brief",
            "output": [
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
                {"type": "function_call", "call_id": "c1", "name": "look", "arguments": ARGUMENTS},
            ],
        },
        [said("assistant", thought("hm"), call())],
    ),
    "Anthropic": (
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "text", "text": "22C", "citations": None}],
            "stop_reason": "end_turn",
            "usage": {},
        },
        [said("assistant", "22C", finish_reason="stop", raw_finish_reason="end_turn")],
    ),
    "Gemini": (
        {"candidates": [{"content": {"parts": [{"text": "22C"}], "role": "model"}, "finishReason": "MAX_TOKENS"}]},
        [said("assistant", "22C", finish_reason="length", raw_finish_reason="MAX_TOKENS")],
    ),
    "ADK": (
        {
            "content": {
                "parts": [{"function_call": {"id": "c1", "args": {"city": "Paris"}, "name": "look"}}],
                "role": "model",
            },
            "finish_reason": "STOP",
        },
        [CALLED | {"finish_reason": "stop", "raw_finish_reason": "STOP"}],
    ),
    "LangChain": (
        {
            "generations": [
                [
                    {
                        "text": "22C",
                        "generation_info": {"finish_reason": "stop"},
                        "type": "ChatGeneration",
                        "message": lc("AIMessage", content="22C", type="ai"),
                    }
                ]
            ],
            "llm_output": {},
        },
        [said("assistant", "22C", finish_reason="stop")],
    ),
    "Haystack": (
        {
            "replies": [
                {"role": "assistant", "meta": {"finish_reason": "stop"}, "name": None, "content": [{"text": "22C"}]}
            ]
        },
        [said("assistant", "22C", finish_reason="stop")],
    ),
    "AI SDK": ([{"toolCallId": "c1", "toolName": "look", "input": ARGUMENTS}], [CALLED]),
    "LiteLLM": ([{"function_call": {"name": "look", "arguments": ARGUMENTS}}], [said("assistant", call(None))]),
    "LlamaIndex": ("assistant: 22C", [said("assistant", "22C")]),
    "what looks like prose": ("user: a word\nsystem: another", [said("assistant", "user: a word\nsystem: another")]),
    "wrapped": ({"output": "22C"}, [said("assistant", "22C")]),
    "structured": ('{"answer": "22C"}', [said("assistant", '{"answer": "22C"}')]),
    "structured, with a role in it": (
        '{"name": "Ann", "role": "pilot"}',
        [said("assistant", '{"name": "Ann", "role": "pilot"}')],
    ),
    "one list of events": (
        [
            {"event.name": "gen_ai.user.message", "content": "hi"},
            {"event.name": "gen_ai.choice", "message": {"content": "22C"}},
        ],
        [said("assistant", "22C")],
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_every_answer_becomes_the_one_form(name: str) -> None:
    value, expected = ANSWERS[name]
    assert messages(value, "assistant") == expected
    assert messages(messages(value, "assistant"), "assistant") == expected


TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
REQUESTS: dict[str, Any] = {
    "OpenAI": {
        "model": "m",
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}],
        "tools": [TOOL],
    },
    "Anthropic": {"model": "m", "system": "be brief", "messages": [{"role": "user", "content": "hi"}], "tools": [TOOL]},
    "Anthropic's blocks": {
        "system": [{"type": "text", "text": "be brief", "cache_control": {}}],
        "messages": [{"role": "user", "content": "hi"}],
        "tools": [TOOL],
    },
    "Responses": {"model": "m", "instructions": "be brief", "input": "hi", "tools": [TOOL]},
    "Responses' items": {"instructions": "be brief", "input": [{"role": "user", "content": "hi"}], "tools": [TOOL]},
    "Gemini": {
        "systemInstruction": {"parts": [{"text": "be brief"}]},
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
        "tools": [TOOL],
    },
    "google-genai": {
        "model": "m",
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
        "config": {"system_instruction": "be brief", "tools": [TOOL]},
    },
    "Bedrock": {
        "system": [{"text": "be brief"}],
        "messages": [{"role": "user", "content": [{"text": "hi"}]}],
        "toolConfig": {"tools": [TOOL]},
    },
    "AI SDK": {"system": "be brief", "prompt": "hi", "tools": [json.dumps(TOOL)]},
    "keyword arguments": {
        "args": [],
        "kwargs": {"system": "be brief", "messages": [{"role": "user", "content": "hi"}], "tools": [TOOL]},
    },
}


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("as_text", [False, True])
def test_a_whole_request_gives_system_messages_and_tools(name: str, as_text: bool) -> None:
    value = json.dumps(REQUESTS[name]) if as_text else REQUESTS[name]
    found = read_request(value)
    assert [shown(message) for message in found.messages][-1:] == [ASKED]
    in_messages = [shown(message) for message in found.messages][:-1]
    # A system message stays where it was said.
    assert (found.system, in_messages) == (
        ([], [said("system", "be brief")]) if name == "OpenAI" else ([text("be brief")], [])
    )
    assert found.tools == [TOOL]


def test_system_instructions_in_any_form() -> None:
    for value in (
        "be brief",
        '"be brief"',
        '[{"type":"text","content":"be brief"}]',
        [{"text": "be brief"}],
        {"parts": [{"text": "be brief"}]},
        {"role": "system", "content": "be brief"},
        ["be brief"],
    ):
        assert read_system(value) == [text("be brief")], value
    assert read_system('{"rule": 1}') == [text('{"rule": 1}')]
    assert read_system("") == []


def test_tools_in_any_form() -> None:
    plain = {"name": "look", "parameters": {"type": "object"}}
    for value in (
        [plain],
        json.dumps([plain]),
        [json.dumps(plain)],
        json.dumps(json.dumps([plain])),
        {"tools": [plain]},
        plain,
        [{"name": "look", "parameters": '{"type": "object"}'}],
        [{"tool": {"json_schema": json.dumps(plain)}}],
        [{"type": "haystack.tools.tool.Tool", "data": plain}],
        {"function_tools": [plain], "output_mode": "text"},
        "[{'name': 'look', 'parameters': {'type': 'object'}}]",
    ):
        assert read_tools(value) == [plain], value
    declared = [{"function_declarations": [plain]}]
    assert read_tools(declared) == declared
    assert read_tools('["look", "listen"]') == ["look", "listen"]
    assert read_tools("") == read_tools(None) == []


def test_finish_reasons() -> None:
    table = {
        "stop": ["stop", "end_turn", "STOP", "FinishReason.STOP", "[STOP]", '["stop"]', "stop_sequence", ["stop"]],
        "tool_call": ["tool_calls", "tool_call", "tool-calls", "tool_use", "FinishReason.TOOL_CALLS", "function_call"],
        "length": ["length", "max_tokens", "MAX_TOKENS"],
        "content_filter": ["content_filter", "content-filter", "SAFETY", "refusal"],
        "": ["", None, [], 5, "[]", {"a": 1}],
        "pause_turn": ["pause_turn"],
    }
    for meant, sent in table.items():
        assert [finish_reason(each) for each in sent] == [meant] * len(sent)
    assert "finish_reason" not in messages([{"role": "assistant", "content": "x", "finish_reason": ""}])[0]


# --------------------------------------------------------------------------------------------------------------- hostile

_JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.sampled_from(["", "hi", "user", "tool", ARGUMENTS, '[{"text":"a"}]', '"\\"a\\""', "[STOP]"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                """role content parts type text message messages contents tool_calls tool_call id name arguments function choices
        finish_reason delta data kwargs lc output input response result tool_call_id image source url format bytes
        message_content blocks block_type additional_kwargs event.name system tools config thought functionCall toolUse
        toolResult functionResponse reasoning update generations json_schema tool parameters raw_finish_reason""".split()
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)
_TYPED = st.deferred(
    lambda: st.builds(
        lambda kind, role, more: more | {"type": kind} | ({"role": role} if role else {}),
        st.sampled_from(
            """text thinking reasoning tool_call tool_use function_call function_call_output tool-call tool-result
            tool_result tool_call_response blob uri file image image_url input_audio human ai tool constructor message
            function ToolMessage refusal""".split()
        ),
        st.sampled_from(["", "user", "tool", "assistant", "thinking", "x"]),
        st.dictionaries(
            st.text("abcdefghijklmnopqrstuvwxyz_", max_size=1)
            | st.sampled_from(
                ["content", "id", "name", "arguments", "text", "file_id", "image_url", "data", "output", "response"]
            ),
            _JSON,
            max_size=4,
        ),
    )
)
ANYTHING = _JSON | _TYPED | st.lists(_TYPED | _JSON, max_size=4)


def test_reading_never_fails_and_its_own_form_stays_as_it_is() -> None:
    @given(ANYTHING, st.sampled_from(["", "user", "assistant", "tool"]), st.booleans())
    def check(value: Any, role: str, as_text: bool) -> None:
        found = messages(json.dumps(value) if as_text else value, role)
        assert messages(found, role) == found
        assert messages(json.dumps(found), role) == found
        for message in read_messages(value, role):
            assert isinstance(message.text + message.reasoning, str)
            assert all(isinstance(part, str) for called in message.tool_calls for part in called)
        request = read_request(value)
        again = {"system": request.system, "messages": [shown(m) for m in request.messages], "tools": request.tools}
        second = read_request(again)
        assert ([shown(m) for m in second.messages], second.tools) == (again["messages"], again["tools"])
        assert all(isinstance(part, dict) for part in read_system(value))
        assert read_tools(read_tools(value)) == read_tools(value)

    fuzz(0.1, 300, check)


def _nested(depth: int, opening: str = '{"content":[', closing: str = "]}") -> str:
    return opening * depth + closing * depth


@pytest.mark.parametrize(
    "value",
    [
        _nested(500),
        _nested(100_000),
        _nested(400, '{"messages":[', "]}"),
        _nested(400, '{"image":', "}") + "}",
        '{"image":' * 300 + '{"url":"x"}' + "}" * 300,
        '{"format":"png","image":' * 300 + "1" + "}" * 300,
        "[" * 900 + "]" * 900,
        "[{'role': " * 400 + "]",
        "[{'a': " + "-" * 100_000 + "1}]",
        "[{'a': " + "(" * 150 + ")" * 150 + "}]",
        "{'a': 1e999}",
        "{'a': 0777}",
        "[{'role': 'user', 'content': '\\N{BULLET}'}]",
        "{'role': 'user', 'content': b'x'}",
        "{'a': {1, 2}}",
        "{'a': __import__('os')}",
        "{'a': 'b' 'c'}",
        "{'a': 9999999999999999999999999}",
        "\ud800",
        '[{"role":"user","content":"\ud800"}]',
        float("nan"),
        5,
        True,
        {"role": {"a": 1}, "content": {"b": [2]}},
        {"role": ["x"], "type": ["y"]},
        [{"type": {"a": 1}}],
        [{"role": "assistant", "tool_calls": 5}],
        [{"role": "assistant", "tool_calls": [None, 5, {"function": 5}, {"tool_call": 5}]}],
        {"messages": 5},
        {"messages": {"messages": {"messages": []}}},
        {"lc": 1, "type": "constructor", "id": [], "kwargs": {}},
        {"lc": 1, "type": "constructor", "id": 5, "kwargs": {"type": 5}},
        [{"message_content": {"message_content": {"message_content": 1}}}],
    ],
)
def test_hostile_values_are_read(value: Any) -> None:
    for role in ("user", "assistant"):
        for message in read_request(value, role).messages:
            assert isinstance(message.text, str)
            shown(message)
    read_system(value)
    read_tools(value)


def test_contradictory_messages_keep_both_sides() -> None:
    both = {
        "message": {
            "role": "tool",
            "content": "a",
            "contents": [{"message_content": {"type": "text", "text": "b"}}],
            "tool_call_id": "c1",
        }
    }
    assert messages([both]) == [said("tool", result("ba"))]
    twice = {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "c2", "name": "look", "input": {"city": "Paris"}}],
        "tool_calls": [OPENAI_CALL],
    }
    assert messages([twice]) == [said("assistant", call("c2"), call("c1"))]


def _steps(value: Any) -> int:
    """How many functions a reading calls."""
    count = 0

    def step(frame: Any, event: str, _: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(step)
    try:
        for message in read_messages(value, "assistant"):
            _ = shown(message), message.text, message.tool_calls
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("name", [*SHAPES, *ANSWERS])
def test_reading_is_linear(name: str) -> None:
    value = (SHAPES | ANSWERS)[name][0]
    if isinstance(value, list) and value and not isinstance(value[0], str):
        assert _steps(value * 200) < 2.2 * _steps(value * 100)
    elif isinstance(value, str | bytes):
        assert _steps(value * 200) < 2.2 * _steps(value * 100) + 100


def test_many_parts_and_calls_in_one_message() -> None:
    def steps(count: int) -> int:
        return _steps(
            [
                {
                    "role": "assistant",
                    "content": [{"type": "text", "text": "a"}] * count,
                    "tool_calls": [OPENAI_CALL] * count,
                }
            ]
        )

    assert steps(2000) < 2.2 * steps(1000)


# ------------------------------------------------------------------------------------------------------------- flattened


def pairs(**values: Any) -> list[Any]:
    return [["gen_ai.prompt." + key.replace("__", "."), value] for key, value in values.items()]


def test_flattened_messages() -> None:
    sent = {
        "0.role": "system",
        "0.content": "be brief",
        "1.role": "assistant",
        "1.tool_calls.0.id": "c1",
        "1.tool_calls.0.name": "look",
        "1.tool_calls.0.arguments": ARGUMENTS,
        "10.role": "user",
        "10.content": "hi",
        "2.role": "tool",
        "2.content": "sunny",
        "2.tool_call_id": "c1",
    }
    for order in (sent, dict(reversed(sent.items()))):
        found = messages(unflatten([["gen_ai.prompt." + key, value] for key, value in order.items()]))
        assert found == [said("system", "be brief"), CALLED, HEARD, ASKED]


def test_an_index_is_an_order_however_large() -> None:
    huge = [
        ["gen_ai.prompt.99999999999999999999.content", "c"],
        ["gen_ai.prompt.10000000000000000000.content", "b"],
        ["gen_ai.prompt.007.content", "a"],
    ]
    assert messages(unflatten(huge)) == [said("user", "a"), said("user", "b"), said("user", "c")]
    assert lost(huge) == 6


def test_one_key_both_scalar_and_parent_keeps_both() -> None:
    sent = [
        ["gen_ai.prompt.0.content", "a"],
        ["gen_ai.prompt.0.content.0", "b"],
        ["gen_ai.prompt.1", "c"],
        ["gen_ai.prompt.2", "d"],
        ["gen_ai.prompt.2.role", "user"],
    ]
    for order in (sent, sent[::-1]):
        assert messages(unflatten(order)) == [said("user", "a", "b"), said("user", "c"), said("user", "d")]


def test_messages_that_the_sender_dropped_are_counted() -> None:
    def of(*indexes: int) -> int:
        return lost([[f"gen_ai.prompt.{index}.role", "user"] for index in indexes])

    assert [of(), of(0, 1), of(1, 2), of(104, 105), of(0, 3)] == [0, 0, 0, 103, 2]


# ------------------------------------------------------------------------------------------------------- in the service


def _prompt(trace: Trace) -> dict[str, Any]:
    from otel_blackboard.processor.reading import read_span
    from otel_blackboard.query.artifacts import assemble

    (prompt,) = listed(board_of(trace.spans, trace.logs), "llm_prompt")
    contents = {content.field: content.data for span in trace.spans for content in read_span(TENANT, span).contents}
    body: dict[str, Any] = json.loads(assemble(prompt, [contents[stored.field] for stored in prompt.bodies]))
    return body


def test_a_prompt_is_shown_in_the_one_form_whatever_was_sent() -> None:
    trace = Trace()
    trace.chat(1, 2, **{"gen_ai.prompt": json.dumps(REQUESTS["Anthropic"])})
    assert _prompt(trace) == {
        "model": "gpt-4o-mini",
        "system": [text("be brief")],
        "messages": [ASKED],
        "tools": [TOOL],
    }


def test_what_is_said_by_a_key_of_its_own_goes_before_what_the_request_says() -> None:
    trace = Trace()
    trace.chat(
        1, 2, **{"gen_ai.prompt": json.dumps(REQUESTS["Anthropic"]), "gen_ai.tool.definitions": '[{"name":"other"}]'}
    )
    assert _prompt(trace)["tools"] == [{"name": "other"}]


def test_a_prompt_says_how_many_messages_were_dropped() -> None:
    trace = Trace()
    trace.chat(1, 2, **{"gen_ai.prompt.5.role": "user", "gen_ai.prompt.5.content": "hi"})
    assert _prompt(trace) == {"model": "gpt-4o-mini", "messages": [ASKED], "lost_messages": 4}
    (prompt,) = listed(board_of(trace.spans), "llm_prompt")
    assert prompt.row.truncated == "sender"


def test_a_value_nested_deeper_than_can_be_written_stands_as_its_text() -> None:
    deep = "[" * 400 + "]" * 400
    trace = Trace()
    trace.chat(1, 2, **{"gen_ai.prompt": f'{{"messages":[{{"role":"user","content":[{{"x":{deep}}}]}}]}}'})
    (message,) = _prompt(trace)["messages"]
    assert deep in message["parts"][0]["content"]


@pytest.mark.parametrize("name", ANSWERS)
def test_the_calls_that_an_answer_asks_for_are_known(name: str) -> None:
    from otel_blackboard.processor.reading import read_span

    value, expected = ANSWERS[name]
    trace = Trace()
    span = trace.chat(1, 2, **{"gen_ai.completion": value if isinstance(value, str) else json.dumps(value)})
    reading = read_span(TENANT, span)
    calls = [part for message in expected for part in message["parts"] if part["type"] == "tool_call"]
    assert [called.name for called in reading.light.requested] == [part["name"] for part in calls]
    (answer,) = (draft.row for draft in reading.drafts if draft.row.kind == "agent_output")
    if not calls:
        assert answer.summary == expected[-1]["parts"][-1]["content"].replace("\n", " ")


def test_a_flattened_answer_is_shown_as_messages() -> None:
    from otel_blackboard.processor.reading import read_span
    from otel_blackboard.query.artifacts import assemble

    trace = Trace()
    trace.chat(
        1,
        2,
        **{
            "gen_ai.completion.0.role": "assistant",
            "gen_ai.completion.0.content": "22C",
            "gen_ai.completion.0.finish_reason": "stop",
        },
    )
    (answer,) = listed(board_of(trace.spans), "agent_output")
    contents = {content.field: content.data for content in read_span(TENANT, trace.spans[0]).contents}
    assert answer.whole is None
    assert json.loads(assemble(answer, [contents[answer.bodies[0].field]])) == [
        said("assistant", "22C", finish_reason="stop")
    ]


def test_a_message_keeps_what_kinds_of_thing_it_says_apart() -> None:
    (message,) = read_messages(
        [
            {
                "role": "assistant",
                "content": [{"type": "thinking", "thinking": "hm"}, "a", "b"],
                "tool_calls": [OPENAI_CALL],
            }
        ]
    )
    assert isinstance(message, Message)
    assert (message.reasoning, message.text) == ("hm", "ab")
    assert message.tool_calls == [("c1", "look", ARGUMENTS)]
