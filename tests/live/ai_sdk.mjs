// Vercel's AI SDK; see scenario.py.
import { createOpenAI } from '@ai-sdk/openai';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import { detectResources, envDetector } from '@opentelemetry/resources';
import { BatchSpanProcessor, NodeTracerProvider } from '@opentelemetry/sdk-trace-node';
import { generateText, stepCountIs, tool } from 'ai';
import { z } from 'zod';

const provider = new NodeTracerProvider({
  resource: detectResources({ detectors: [envDetector] }),
  spanProcessors: [new BatchSpanProcessor(new OTLPTraceExporter())],
});
provider.register();
const openai = createOpenAI({ apiKey: 'sk-of-nobody', baseURL: `${process.env.MODEL_URL}/v1` });
const getWeather = tool({
  description: 'The weather in a city.',
  inputSchema: z.object({ city: z.string() }),
  execute: async ({ city }) => ({ city, temp_c: 22 }),
});
for (const model of ['gpt-4o-mini', 'rejected']) {
  try {
    await generateText({
      model: openai(model),
      system: 'You know the weather.',
      prompt: 'What is the weather in Paris?',
      tools: { get_weather: getWeather },
      stopWhen: stepCountIs(3),
      maxRetries: 0,
      experimental_telemetry: { isEnabled: true, functionId: 'weather_agent' },
    });
  } catch (error) {
    if (model !== 'rejected') throw error;
  }
}
await provider.shutdown();
