"""Tracing of vendors and of the frameworks that have one of their own: AI SDK, Pydantic AI, Logfire, LangSmith, MLflow,
Langfuse, LiteLLM, Haystack."""

from tests.recordings import PARIS, Contains, Expected, Failed

_NO_USAGE = "the stream was asked for no usage, and none is reported"
_OBJECT = "the answer is an object"
_BOOM = ("get_weather", {"city": "Paris"}, Failed("boom"))
_SKY = ("get_weather", {"city": "Paris"}, {"city": "Paris", "temp_c": 22, "sky": "sunny"})

_FLAKY = [("flaky", {"x": 0}, Failed("try other x"))] * 2 + [("flaky", {"x": 0}, Failed("exceeded max retries"))]
_PYDANTIC = Expected(
    # The outer agent's tool ends after the inner one's, but begins before.
    tools=[PARIS, PARIS, *_FLAKY, ("get_weather_sub", {"city": "Paris"}, "It is 22C and sunny in Paris."), PARIS],
    beside={"test": (171, 24, "Pydantic AI's TestModel answers in the process")},
    runs=4,
)

RECORDINGS = {
    "ai-sdk-v4": Expected(
        tokens=dict.fromkeys((2, 3), (None, None, _NO_USAGE)), outputs={4: _OBJECT}, tools=[PARIS, PARIS, _BOOM], runs=6
    ),
    "ai-sdk-v6": Expected(outputs={4: _OBJECT}, tools=[PARIS, PARIS, _BOOM, PARIS], runs=7),
    "ai-sdk-v7-legacy": Expected(
        prompts={8: "of the tool's error the provider got JSON that the library makes after it has told of the call"},
        outputs={4: _OBJECT},
        tools=[PARIS, PARIS, _BOOM, PARIS],
        runs=7,
    ),
    "pydantic-ai-2.68-v2": _PYDANTIC,
    "pydantic-ai-2.68-v5": _PYDANTIC,
    "pydantic-ai-logfire": _PYDANTIC,
    "logfire-openai-anthropic": Expected(runs=1),
    "langsmith-otel": Expected(
        calls=dict.fromkeys((3, 4), "LangChain's callbacks do not see embeddings"),
        tokens={2: (None, None, _NO_USAGE)},
        tools=[
            # The body is LangChain's message of the tool, as it was sent.
            ("get_weather", {"city": "Paris"}, Contains("temp_c")),
            (
                "VectorStoreRetriever",
                {"query": "weather in Paris"},
                {"documents": [{"id": "d2", "metadata": {}, "page_content": "Oslo is cold", "type": "Document"}]},
            ),
            ("get_weather", {"city": "Nowhere"}, Failed("no such city")),
        ],
        runs=1,
    ),
    "mlflow-3": Expected(
        tools=[
            _SKY,
            (
                "retr",
                {"q": "What is the weather in Paris?"},
                [{"page_content": "Paris is sunny", "metadata": {"doc_uri": "a"}, "id": "d1"}],
            ),
        ],
        runs=1,
    ),
    "langfuse-5": Expected(
        tools=[_SKY, ("retr", {"q": "What is the weather in Paris?"}, [{"d": "Paris is sunny"}])],
        beside={
            "m1": (14, 5, "a generation that the application told by hand: 10 and, in a bucket beside, 4 of the cache")
        },
        runs=1,
    ),
    "litellm-native": Expected(
        tokens={2: (24, 10, "LiteLLM counts the tokens of a stream itself where it gets no usage")}, runs=6
    ),
    "haystack-native": Expected(tools=[PARIS], runs=2),
}
