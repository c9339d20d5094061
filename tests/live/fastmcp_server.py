import asyncio

from fastmcp import Client, FastMCP
from scenario import trace_to_service, weather

trace_to_service()
server = FastMCP("weather")


@server.tool
def get_weather(city: str) -> dict:
    return weather(city)


async def main() -> None:
    async with Client(server) as client:
        await client.call_tool("get_weather", {"city": "Paris"})


asyncio.run(main())
