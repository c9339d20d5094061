from contextlib import suppress

import openai
from scenario import DESCRIPTION, KEY, MODEL, QUESTION, REJECTED, SYSTEM, URL, trace_to_service, weather
from strands import Agent, tool
from strands.models.openai import OpenAIModel


@tool(description=DESCRIPTION)
def get_weather(city: str) -> dict:
    return {"status": "success", "content": [{"json": weather(city)}]}


trace_to_service()
for model in (MODEL, REJECTED):
    chat = OpenAIModel(client_args={"api_key": KEY, "base_url": URL, "max_retries": 0}, model_id=model)
    agent = Agent(chat, tools=[get_weather], system_prompt=SYSTEM, name="weather_agent", callback_handler=None)
    with suppress(openai.BadRequestError):
        agent(QUESTION)
