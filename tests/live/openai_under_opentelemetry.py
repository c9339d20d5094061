from opentelemetry.instrumentation.genai.openai import OpenAIInstrumentor
from scenario import openai_conversation, trace_to_service

OpenAIInstrumentor().instrument(tracer_provider=trace_to_service())
openai_conversation()
