"""What every script here plays: a question, a tool, an answer, against the model stub, told over OTLP.

The scripts run in environments that have neither the product nor its tests: they get the stub's address as MODEL_URL,
and everything of OpenTelemetry through its own environment variables.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import Any

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

HOST = os.environ.get("MODEL_URL", "")
URL = f"{HOST}/v1"
KEY = "sk-of-nobody"
MODEL, REJECTED = "gpt-4o-mini", "rejected"
SYSTEM = "You know the weather."
QUESTION = "What is the weather in Paris?"
DESCRIPTION = "The weather in a city."
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def weather(city: str) -> dict[str, Any]:
    return {"city": city, "temp_c": 22}


def trace_to_service() -> TracerProvider:
    """The global provider; it sends what is left when the script ends."""
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return provider


def openai_conversation(make_client: Any = None) -> None:
    """A tool call, the answer as a stream, and a request that the model refuses, under one span of the application's."""
    import openai

    client = (make_client or openai.OpenAI)(api_key=KEY, base_url=URL, max_retries=0)
    function = {"name": "get_weather", "description": DESCRIPTION, "parameters": PARAMETERS}
    asking: dict[str, Any] = {"tools": [{"type": "function", "function": function}]}
    messages: list[Any] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]
    with trace.get_tracer("app").start_as_current_span("app"):
        message = client.chat.completions.create(model=MODEL, messages=messages, **asking).choices[0].message
        (call,) = message.tool_calls or []
        messages += [
            message.model_dump(include={"role", "content", "tool_calls"}),
            {"role": "tool", "tool_call_id": call.id, "content": json.dumps(weather("Paris"))},
        ]
        asking |= {"stream": True, "stream_options": {"include_usage": True}}
        for _ in client.chat.completions.create(model=MODEL, messages=messages, **asking):
            pass
        with suppress(openai.BadRequestError):
            client.chat.completions.create(model=REJECTED, messages=messages[:2])
