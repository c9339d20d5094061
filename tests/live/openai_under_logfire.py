import logfire
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from scenario import openai_conversation

logfire.configure(
    send_to_logfire=False, console=False, additional_span_processors=[BatchSpanProcessor(OTLPSpanExporter())]
)
logfire.instrument_openai()
openai_conversation()
