"""OpenLLMetry (Traceloop), also beside other instrumentations."""

from tests.recordings import PARIS, Contains, Expected

_NO_LLM = "LlamaIndex under 0.62: model calls have no span"
_NO_USAGE = (None, None, "LlamaIndex under 0.62: embeddings carry no usage")

RECORDINGS = {
    # The tool was called by hand, with a positional argument.
    "traceloop-openai-0.45-2025": Expected(tools=[("get_weather", ["Paris"], PARIS[2])], runs=1),
    "traceloop-anthropic-0.45-2025": Expected(
        calls={3: "0.45 ends no span of a failed request"},
        tokens={2: (None, None, "0.45 reports no usage of a stream")},
        runs=3,
    ),
    # The Anthropic SDK's own spans stand in traces of their own beside each call.
    "traceloop-anthropic-0.62": Expected(runs=5),
    "llamaindex-traceloop": Expected(
        calls={0: _NO_LLM, 1: _NO_LLM, 4: _NO_LLM},
        tokens={2: _NO_USAGE, 3: _NO_USAGE},
        tools=[PARIS, ("VectorIndexRetriever", {"query": "weather in Paris?"}, Contains("Paris is sunny"))],
        runs=4,
    ),
    "double-openai-three-instrumentations": Expected(runs=1),
}
