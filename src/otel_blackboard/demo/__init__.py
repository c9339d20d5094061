"""The demo: an agent, a model that needs no key, and the story that the service tells about the run.

model_stub  the model: OpenAI chat completions over HTTP, scripted
agent       the agent: a tool loop instrumented by hand with OpenTelemetry
story       what the service knows about the run, printed
"""
