import asyncio
from contextlib import suppress

from google.adk.agents import Agent
from google.adk.runners import InMemoryRunner
from google.genai import errors
from scenario import QUESTION, SYSTEM, trace_to_service, weather


def get_weather(city: str) -> dict:
    """The weather in a city."""
    return weather(city)


async def main() -> None:
    trace_to_service()
    for model in ("gemini-2.5-flash", "gemini-rejected"):
        agent = Agent(name="weather_agent", model=model, instruction=SYSTEM, tools=[get_weather])
        with suppress(errors.ClientError):
            await InMemoryRunner(agent, app_name="weather").run_debug(QUESTION, quiet=True)


asyncio.run(main())
