import json
from contextlib import suppress

import litellm
from opentelemetry import trace
from scenario import DESCRIPTION, KEY, MODEL, PARAMETERS, QUESTION, REJECTED, SYSTEM, URL, trace_to_service, weather

trace_to_service()
litellm.callbacks = ["otel"]
function = {"name": "get_weather", "description": DESCRIPTION, "parameters": PARAMETERS}
asking = {"api_base": URL, "api_key": KEY, "num_retries": 0, "max_retries": 0}
messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]
with trace.get_tracer("app").start_as_current_span("app"):
    tools = [{"type": "function", "function": function}]
    message = litellm.completion(f"openai/{MODEL}", messages, tools=tools, **asking).choices[0].message
    (call,) = message.tool_calls
    messages += [
        {"role": "assistant", "content": None, "tool_calls": [call.model_dump()]},
        {"role": "tool", "tool_call_id": call.id, "content": json.dumps(weather("Paris"))},
    ]
    litellm.completion(f"openai/{MODEL}", messages, tools=tools, **asking)
    with suppress(litellm.BadRequestError):
        litellm.completion(f"openai/{REJECTED}", messages[:2], **asking)
