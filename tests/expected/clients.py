"""Google ADK, Claude Code and its SDK, Codex, AutoGen."""

from tests.recordings import PARIS, Expected, whole

_THOUGHTS = "Gemini's 18 candidate and 7 thinking tokens, one sum"
_OFF = "content capture is off"
_NO_PROMPT = "the request's messages are on no signal"
_SAID = "the answer's text alone is on the wire, not the tool calls that it asks for"
_GET_WEATHER = ("get_weather", None, None)
_BASH = ("Bash", {"command": "echo sunny", "description": "print weather"}, "sunny")
_CODEX_OUTPUT = (
    "Chunk ID: 2ecd81\nWall time: 0.0000 seconds\nProcess exited with code 0\nOriginal token count: 2\nOutput:\nsunny\n"
)

RECORDINGS = {
    "google-adk-1.14": Expected(
        tokens=dict.fromkeys((0, 1), (120, 25, _THOUGHTS)),
        tools=[PARIS],
        runs=1,
    ),
    "google-adk-2.13": Expected(
        tokens=dict.fromkeys((0, 1), (120, 25, _THOUGHTS)),
        prompts=whole(2, _OFF),
        outputs=whole(2, _OFF),
        tools=[_GET_WEATHER],
        answer=None,
        runs=1,
    ),
    "google-adk-2.13-latest-experimental": Expected(
        tokens=dict.fromkeys((0, 1), (120, 25, _THOUGHTS)),
        # The tool's own span has no content without SPAN capture: the arguments are those that the model asked for.
        tools=[("get_weather", {"city": "Paris"}, None)],
        runs=1,
    ),
    "claude-code-2.1.197": Expected(prompts=whole(2, _NO_PROMPT), outputs={0: _SAID}, tools=[_BASH], runs=1),
    "claude-code-2.1.197-subagent": Expected(
        prompts=whole(4, _NO_PROMPT),
        outputs=whole(2, _SAID),
        tools=[
            (
                "Agent",
                {
                    "description": "look up weather",
                    "prompt": "Please look up the weather in Paris.",
                    "subagent_type": "general-purpose",
                },
                None,  # what the sub-agent reported is on no signal
            ),
            _BASH,
        ],
        runs=1,
    ),
    "claude-agent-sdk-native": Expected(prompts=whole(2, _NO_PROMPT), outputs={0: _SAID}, tools=[_BASH], runs=1),
    "codex-0.171": Expected(
        prompts=whole(2, _NO_PROMPT),
        outputs=whole(2, "no signal carries answers"),
        tools=[("exec_command", {"cmd": "echo sunny"}, _CODEX_OUTPUT)],
        answer=None,
        runs=1,
    ),
    "autogen-0.7-native": Expected(
        calls=whole(8, "AutoGen has no spans of model calls"), tools=[_GET_WEATHER] * 3, answer=None, runs=1
    ),
    "google-adk-2.13-openinference": Expected(
        tokens=dict.fromkeys((0, 1), (120, 25, _THOUGHTS)),
        prompts=dict.fromkeys((0, 1), "both calls write onto one span: the prompt of the second is left"),
        outputs={0: "the same", 1: "the same"},
        tools=[
            (
                "get_weather",
                {"city": "Paris"},
                {"id": "fc-stub-1", "name": "get_weather", "response": {"city": "Paris", "temp_c": 22}},
            )
        ],
        runs=1,
    ),
    "autogen-0.7-openinference": Expected(tools=[PARIS] * 3, runs=1),
}
