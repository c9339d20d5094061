from contextlib import suppress

from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from scenario import KEY, MODEL, QUESTION, REJECTED, SYSTEM, URL, trace_to_service, weather

trace_to_service()
Agent.instrument_all()
for model in (MODEL, REJECTED):
    chat = OpenAIChatModel(model, provider=OpenAIProvider(base_url=URL, api_key=KEY))
    agent = Agent(chat, name="weather_agent", instructions=SYSTEM)

    @agent.tool_plain
    def get_weather(city: str) -> dict:
        """The weather in a city."""
        return weather(city)

    with suppress(ModelHTTPError):
        agent.run_sync(QUESTION)
