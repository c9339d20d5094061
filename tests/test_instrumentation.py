"""A real client library under a real instrumentation, against the model stub: what was sent is what is read."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import openai
import pytest
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.genai.openai import OpenAIInstrumentor
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from otel_blackboard.demo.model_stub import MODEL, REJECTED, ModelStub
from tests.running_service import service
from tests.test_recordings import said_in_prompt, said_in_request

TOOLS = [{"type": "function", "function": {"name": "tide_lookup", "parameters": {"type": "object", "properties": {}}}}]
MESSAGES = [{"role": "system", "content": "You know the tides."}, {"role": "user", "content": "High water in Brest?"}]


@pytest.mark.parametrize("capture", ["SPAN_ONLY", "EVENT_ONLY", "SPAN_AND_EVENT"])
def test_openai_client_under_opentelemetrys_own_instrumentation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capture: str
) -> None:
    monkeypatch.setenv("OTEL_SEMCONV_STABILITY_OPT_IN", "gen_ai_latest_experimental")
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", capture)
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_EMIT_EVENT", "false" if capture == "SPAN_ONLY" else "true")
    with service(tmp_path) as running, ModelStub() as stub:
        traces, logs = TracerProvider(), LoggerProvider()
        traces.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{running.http}/v1/traces")))
        logs.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter(endpoint=f"{running.http}/v1/logs")))
        instrumentor = OpenAIInstrumentor()
        instrumentor.instrument(tracer_provider=traces, logger_provider=logs)
        try:
            client = openai.OpenAI(api_key="sk-of-nobody", base_url=stub.url, max_retries=0)
            with traces.get_tracer("app").start_as_current_span("app"):
                answer = client.chat.completions.create(model=MODEL, messages=MESSAGES)  # type: ignore[call-overload]
                with pytest.raises(openai.APIStatusError):
                    client.chat.completions.create(model=REJECTED, messages=MESSAGES)  # type: ignore[call-overload]
        finally:
            instrumentor.uninstrument()
        for provider in (traces, logs):
            assert provider.force_flush()
            provider.shutdown()
        run = running.get("/runs")["runs"][0]
        prompts = running.get(f"/runs/{run['run_id']}/prompts")["prompts"]
        assert [(p["label"], p["status"], p["exact"]) for p in prompts] == [
            ("LLM call 1", "ok", False),
            ("LLM call 2", "failed", False),
        ]
        assert run["usage"]["input_tokens"] == answer.usage.prompt_tokens
        assert run["usage"]["output_tokens"] == answer.usage.completion_tokens
        for prompt, sent in zip(prompts, stub.requests, strict=True):
            held = running.get(f"/runs/{run['run_id']}/artifacts/{prompt['artifact_id']}")["body"]
            assert said_in_prompt(json.loads(held)) == said_in_request({"body": json.loads(sent)})
        output = running.get(f"/runs/{run['run_id']}/artifacts/{prompts[0]['output_artifact_id']}")
        assert output["summary"] == " ".join(answer.choices[0].message.content.split())[:500]
        # Whatever the client sent along as a header is nowhere.
        everything = httpx.get(
            f"{running.api}/api/v1/runs/{run['run_id']}/timeline", params={"project_id": "default"}
        ).text
        assert "sk-of-nobody" not in everything
