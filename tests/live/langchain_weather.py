"""The agent that two instrumentations look at."""

from contextlib import suppress

import openai
from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from scenario import DESCRIPTION, KEY, MODEL, QUESTION, REJECTED, SYSTEM, URL, weather


@tool(description=DESCRIPTION)
def get_weather(city: str) -> dict:
    return weather(city)


def run() -> None:
    for model in (MODEL, REJECTED):
        chat = ChatOpenAI(model=model, api_key=KEY, base_url=URL, max_retries=0)
        agent = create_agent(chat, [get_weather], system_prompt=SYSTEM, name="weather_agent")
        with suppress(openai.BadRequestError):
            agent.invoke({"messages": [("user", QUESTION)]})
