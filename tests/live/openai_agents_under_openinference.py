from contextlib import suppress

import openai
from agents import Agent, Runner, function_tool, set_default_openai_client, set_trace_processors
from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor
from scenario import DESCRIPTION, KEY, MODEL, QUESTION, REJECTED, SYSTEM, URL, trace_to_service, weather


@function_tool(description_override=DESCRIPTION)
def get_weather(city: str) -> dict:
    return weather(city)


set_trace_processors([])
OpenAIAgentsInstrumentor().instrument(tracer_provider=trace_to_service())
set_default_openai_client(openai.AsyncOpenAI(api_key=KEY, base_url=URL, max_retries=0), use_for_tracing=False)
for model in (MODEL, REJECTED):
    agent = Agent("weather_agent", instructions=SYSTEM, tools=[get_weather], model=model)
    with suppress(openai.BadRequestError):
        Runner.run_sync(agent, QUESTION)
