"""AWS Strands, and what MCP clients and servers send themselves."""

from tests.recordings import Expected, Failed

_PARIS = ("get_weather", {"city": "Paris"}, [{"json": {"city": "Paris", "temp_c": 22}}])
_TOOLS = [_PARIS, ("boom", {"city": "Paris"}, Failed("boom"))]

_SYSTEM = "0.2 says the system prompt on the agent's span alone"

RECORDINGS = {
    "strands-0.2.1": Expected(prompts={0: _SYSTEM, 1: _SYSTEM}, tools=_TOOLS, runs=2),
    "strands-1.62-default": Expected(tools=_TOOLS, runs=2),
    # No model. Three spans a call, arguments and results are not sent.
    "mcp-fastmcp4-native": Expected(
        tools=[("get_weather", None, None), ("boom", None, Failed("Error calling tool 'boom': boom"))], answer=None
    ),
}
