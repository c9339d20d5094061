from openinference.instrumentation.langchain import LangChainInstrumentor
from scenario import trace_to_service

LangChainInstrumentor().instrument(tracer_provider=trace_to_service())

from langchain_weather import run  # noqa: E402

run()
