from langfuse import Langfuse
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from scenario import openai_conversation

langfuse = Langfuse(public_key="pk-of-nobody", secret_key="sk-of-nobody", span_exporter=OTLPSpanExporter())

from langfuse.openai import OpenAI  # noqa: E402

openai_conversation(OpenAI)
langfuse.flush()
