import json
from contextlib import suppress

import anthropic
from opentelemetry import trace
from scenario import DESCRIPTION, HOST, KEY, PARAMETERS, QUESTION, REJECTED, SYSTEM, trace_to_service, weather

trace_to_service()
client = anthropic.Anthropic(api_key=KEY, base_url=HOST, max_retries=0)
tools = [{"name": "get_weather", "description": DESCRIPTION, "input_schema": PARAMETERS}]
asking = {"model": "claude-sonnet-4-5", "max_tokens": 100, "system": SYSTEM, "tools": tools}
messages = [{"role": "user", "content": QUESTION}]
with trace.get_tracer("app").start_as_current_span("app"):
    message = client.messages.create(messages=messages, **asking)
    (call,) = [block for block in message.content if block.type == "tool_use"]
    result = {"type": "tool_result", "tool_use_id": call.id, "content": json.dumps(weather("Paris"))}
    messages += [
        {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in message.content]},
        {"role": "user", "content": [result]},
    ]
    with client.messages.stream(messages=messages, **asking) as stream:
        stream.until_done()
    with suppress(anthropic.BadRequestError):
        client.messages.create(messages=messages[:1], **asking | {"model": REJECTED})
