from contextlib import suppress

import openai
from haystack import Pipeline
from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.core.errors import PipelineRuntimeError
from haystack.dataclasses import ChatMessage
from haystack.tools import Tool
from haystack.tracing import enable_tracing
from haystack.utils import Secret
from haystack_integrations.tracing.opentelemetry import OpenTelemetryTracer
from scenario import DESCRIPTION, KEY, MODEL, PARAMETERS, QUESTION, REJECTED, SYSTEM, URL, trace_to_service, weather

enable_tracing(OpenTelemetryTracer(trace_to_service().get_tracer("haystack")))
tool = Tool("get_weather", DESCRIPTION, PARAMETERS, weather)
for model in (MODEL, REJECTED):
    chat = OpenAIChatGenerator(Secret.from_token(KEY), model, api_base_url=URL, max_retries=0)
    pipeline = Pipeline()
    pipeline.add_component("weather_agent", Agent(chat_generator=chat, tools=[tool], system_prompt=SYSTEM))
    with suppress(openai.BadRequestError, PipelineRuntimeError):
        pipeline.run({"weather_agent": {"messages": [ChatMessage.from_user(QUESTION)]}})
