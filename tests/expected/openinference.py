"""OpenInference's instrumentations, and what speaks OpenInference besides its own attributes."""

from tests.recordings import FINAL, PARIS, Expected, Failed, whole

_NO_LLM = "CrewAI calls its own OpenAI client, of which nobody tells"

_RELAY = [("gpt-4o-mini-2024-07-18", 120, 18)] * 2

_TOOL_MESSAGE = {
    "type": "tool",
    "data": {
        "content": '{"city": "Paris", "temp_c": 22}',
        "additional_kwargs": {},
        "response_metadata": {},
        "type": "tool",
        "name": "get_weather",
        "id": None,
        "tool_call_id": "call_stub_1",
        "artifact": None,
        "status": "success",
    },
}

RECORDINGS = {
    "openinference-openai": Expected(runs=7),
    "openinference-anthropic": Expected(runs=5),
    "limits-128-attributes-openinference": Expected(
        prompts={0: "the SDK keeps the last 128 attributes: the first 104 messages are gone"}
    ),
    "langgraph-openinference": Expected(
        calls=dict.fromkeys((3, 4), "embeddings of LangChain have no span"),
        tokens={2: (None, None, "a streamed answer without usage")},
        # A tool of one argument is sent bare: what the model asked for is known of the first only.
        tools=[
            ("get_weather", {"city": "Paris"}, _TOOL_MESSAGE),
            (
                "VectorStoreRetriever",
                {"query": "weather in Paris"},
                [{"document": {"content": "Oslo is cold"}}],
            ),
            ("get_weather", "Nowhere", Failed("no such city")),
        ],
        runs=4,
    ),
    "smolagents-openinference": Expected(
        prompts={3: "two messages of one role, sent as one"},
        says={
            1: ("call", ("final_answer", {"answer": FINAL})),
            2: ("assistant", 'Thought: I know it.\n<code>\nw = get_weather(city="Paris")\nprint(w)\n</code>'),
            3: ("assistant", f'Thought: done.\n<code>\nfinal_answer("{FINAL}")\n</code>'),
        },
        tools=[
            PARIS,
            ("final_answer", {"answer": FINAL}, FINAL),
            PARIS,
            ("final_answer", [FINAL], FINAL),  # the code agent calls it by place
        ],
        runs=2,
    ),
    "openai-agents-openinference": Expected(
        prompts=dict.fromkeys((1, 2), "the empty arguments of the handoff are left out"),
        says={
            0: ("call", ("transfer_to_weather_agent", None)),
            1: ("call", ("get_weather", {"city": "Paris"})),  # the handoff is no result yet
        },
        tools=[("handoff to weather_agent", "triage", "weather_agent"), PARIS, PARIS],
        runs=2,
    ),
    "crewai-openinference": Expected(calls=whole(2, _NO_LLM), tools=[PARIS], runs=1),
    "claude-agent-sdk-openinference": Expected(
        calls=whole(2, "the instrumentation has no model calls, only their sum on the agent"),
        aggregate=(240, 2, "the agent sums up; of the output only the first chunk of each answer is counted"),
        tools=[
            (
                "Bash",
                {"command": "echo sunny", "description": "print weather"},
                {"stdout": "sunny", "stderr": "", "interrupted": False, "isImage": False, "noOutputExpected": False},
            )
        ],
        runs=1,
    ),
    "harbor-atif2otel-0.1.1": Expected(
        told=[("gpt-4o-mini", 120, 18), ("m-sub", 50, 5), ("gpt-4o-mini", 150, 9), ("gpt-4o-mini", 160, 2)],
        tools=[
            ("render", '{"x": "' + "y" * 2027 + "...[truncated]", "ok"),
            ("get_weather", {"city": "Paris"}, {"temp_c": 22}),
            ("delegate", {}, ""),
        ],
        answer="bye",
        runs=1,
    ),
    "nvidia-nat-1.9": Expected(
        told=[("gpt-4o-mini", 120, 18)],
        tools=[("get_weather", {"city": "Paris"}, {"temp_c": 22})],
        answer="It is 22C",
        runs=1,
    ),
    "nemo-relay-0.10-full": Expected(told=_RELAY, tools=[PARIS, ("retr", {"q": "paris"}, None)], runs=1),
    "nemo-relay-0.10-gen_ai": Expected(told=_RELAY, tools=[PARIS, ("retrieval", None, None)], runs=1),
}
