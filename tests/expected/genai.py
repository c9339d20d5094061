"""OpenTelemetry's GenAI conventions."""

from tests.recordings import PARIS, Expected, whole

_EMBEDDING = "the instrumentation records no embedding input"
_RESPONSES = "openai-v2 does not see the Responses API"
_NO_LLM = "this instrumentation emits no model call spans; it expects genai-openai beside it"

RECORDINGS = {
    "genai-openai-1.3b0": Expected(prompts={5: _EMBEDDING}),
    "genai-openai-1.3b0-default-no-content": Expected(
        prompts=whole(7, "content capture is off"), outputs=whole(7, "content capture is off"), answer=None
    ),
    "genai-openai-1.3b0-upload-hook": Expected(
        prompts=whole(7, "content is elsewhere, by pointer"),
        outputs=whole(7, "content is elsewhere, by pointer"),
        answer=None,
    ),
    "genai-anthropic-1.3b0": Expected(),
    "openai-v2-2.1b0-legacy-events": Expected(
        calls={3: _RESPONSES, 4: _RESPONSES, 5: "2.1b0 records no embeddings"},
    ),
    "openai-v2-2.4b0-default": Expected(calls={3: _RESPONSES, 4: _RESPONSES}, prompts={5: _EMBEDDING}),
    "limits-value-1000-genai": Expected(prompts={0: "the SDK cut the value at 1,000 characters"}),
    "google-genai-otel-1.3b0": Expected(
        calls={0: "automatic function calling: one span covers both requests and reports the last one"},
        prompts={1: "the span has the first request's messages"},
        tokens=dict.fromkeys((1, 2), (120, 25, "Gemini's 18 candidate and 7 thinking tokens, one sum")),
        tools=[PARIS],
    ),
    "openai-agents-genai": Expected(calls=whole(5, _NO_LLM), tools=[PARIS] * 2, answer=None),
    "llamaindex-genai": Expected(
        calls=whole(5, _NO_LLM),
        tools=[
            PARIS,
            # util-genai gives id and score of a document, no text.
            (
                "retrieval",
                {"query": "weather in Paris?"},
                [{"id": "8d05e4e9-42a2-4c78-8b43-b3f96e814338", "score": 1.0}],
            ),
        ],
    ),
}
