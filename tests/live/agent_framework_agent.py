import asyncio
from contextlib import suppress

from agent_framework import Agent
from agent_framework.exceptions import ChatClientException
from agent_framework.observability import enable_instrumentation
from agent_framework.openai import OpenAIChatClient
from scenario import KEY, MODEL, QUESTION, REJECTED, SYSTEM, URL, trace_to_service, weather


def get_weather(city: str) -> dict:
    """The weather in a city."""
    return weather(city)


async def main() -> None:
    trace_to_service()
    enable_instrumentation(enable_sensitive_data=True)
    for model in (MODEL, REJECTED):
        chat = OpenAIChatClient(model=model, api_key=KEY, base_url=URL)
        agent = Agent(chat, SYSTEM, name="weather_agent", tools=[get_weather])
        with suppress(ChatClientException):
            await agent.run(QUESTION)


asyncio.run(main())
