from contextlib import suppress

from openinference.instrumentation.smolagents import SmolagentsInstrumentor
from scenario import KEY, MODEL, QUESTION, REJECTED, SYSTEM, URL, trace_to_service, weather
from smolagents import AgentGenerationError, OpenAIServerModel, ToolCallingAgent, tool


@tool
def get_weather(city: str) -> dict:
    """The weather in a city.

    Args:
        city: its name
    """
    return weather(city)


SmolagentsInstrumentor().instrument(tracer_provider=trace_to_service())
for model in (MODEL, REJECTED):
    chat = OpenAIServerModel(model, api_base=URL, api_key=KEY, client_kwargs={"max_retries": 0})
    agent = ToolCallingAgent([get_weather], chat, name="weather_agent", instructions=SYSTEM, verbosity_level=0)
    with suppress(AgentGenerationError):
        agent.run(QUESTION)
