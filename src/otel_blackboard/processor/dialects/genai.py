"""OpenTelemetry's GenAI semantic conventions in all four generations (dialects.md §1).

G0 content in `gen_ai.prompt`/`gen_ai.completion` or span events `gen_ai.content.*`; G1 one event a message, as log
records or span events; G2 and G3 JSON in attributes, or the event `gen_ai.client.inference.operation.details` with the
same attributes, structured. Content by pointer (`*_ref`) is named, never opened.
"""

from __future__ import annotations

from otel_blackboard.processor.dialects.answers import FINISH_REASON, TIME_TO_FIRST_TOKEN, first_reason, seconds
from otel_blackboard.processor.dialects.dialect import (
    AGENT,
    CHAT,
    EMBEDDINGS,
    EXECUTE_TOOL,
    GUARDRAIL,
    NO_ROLE,
    NODE,
    RETRIEVAL,
    RUN,
    STEP,
    TOOL,
    Dialect,
    Part,
    Role,
    not_provider,
    says_nothing,
)
from otel_blackboard.processor.usage import include_cache
from otel_blackboard.processor.values import first_text, parsed, whole_number
from otel_blackboard.records import Attributes, Event, Light, LogRecord, Span

DETAILS = "gen_ai.client.inference.operation.details"

# gen_ai.operation.name → role. Values in the wild included (dialects.md §0); a loop iteration and a configuration event
# have no role (TRC-07).
_OPERATIONS: dict[str, Role] = {
    "embeddings": EMBEDDINGS,
    "invoke_agent": AGENT,
    "plan": Role(STEP, "plan", is_node=True),
    "execute_task": NODE,
    "apply_guardrail": GUARDRAIL,
}
for _values, _meant in (
    ("chat generate_content text_completion fetch_response llm_call", CHAT),
    ("retrieval vector_db_retrieve", RETRIEVAL),
    ("execute_tool tool_call", EXECUTE_TOOL),
    ("search_memory create_memory update_memory upsert_memory delete_memory", Role(TOOL, "memory")),
    ("create_memory_store delete_memory_store", Role(TOOL, "memory")),
    ("invoke_workflow handle_conversation_turn", RUN),
    ("create_agent agent_step execute_event_loop_cycle schedule_tool_calls", NO_ROLE),
    ("chain framework", NO_ROLE),
):
    _OPERATIONS |= dict.fromkeys(_values.split(), _meant)

# Values of gen_ai.provider.name and gen_ai.system that name a framework and are not said in a module of its own yet.
_FRAMEWORKS = ("langchain", "langgraph", "crewai")


def _role(span: Span) -> Role | None:
    attributes = span.attributes
    operation = first_text(attributes.get("gen_ai.operation.name"))
    if (role := _OPERATIONS.get(operation)) is not None:
        return role
    # Older emitters name no operation, others one that is not in the conventions: the shape tells.
    if "gen_ai.tool.name" in attributes:
        return _OPERATIONS["execute_tool"]
    if "gen_ai.request.model" in attributes and any(key in attributes for key in _ANSWERED):
        return _OPERATIONS["chat"]
    return None


def _names(span: Span, role: Role) -> dict[str, str]:
    if role.role == TOOL:
        return {"tool_name": span.name.removeprefix("execute_tool ")}
    if role.is_agent and span.name.startswith("invoke_agent "):
        return {"agent_id": span.name.removeprefix("invoke_agent ")}
    return {}


_ANSWERED = ("gen_ai.system", "gen_ai.provider.name", "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
"""With a model, any of these makes a model call."""


_DETAIL_PARTS = (
    ("system", "gen_ai.system_instructions"),
    ("input", "gen_ai.input.messages"),
    ("output", "gen_ai.output.messages"),
    ("tools", "gen_ai.tool.definitions"),
    ("arguments", "gen_ai.tool.call.arguments"),
    ("result", "gen_ai.tool.call.result"),
)


def _details(attributes: Attributes) -> list[Part]:
    return [
        Part(meaning, key, attributes[key])
        for meaning, key in _DETAIL_PARTS
        if key in attributes and not says_nothing(meaning, attributes[key])
    ]


def _event(event: Event) -> list[Part]:
    attributes = event.attributes
    if event.name == DETAILS:
        return _details(attributes)
    if event.name == "gen_ai.content.prompt":
        return [Part("input", "gen_ai.prompt", value) for value in (attributes.get("gen_ai.prompt"),) if value]
    if event.name == "gen_ai.content.completion":
        return [Part("output", "gen_ai.completion", value) for value in (attributes.get("gen_ai.completion"),) if value]
    role = _MESSAGE_EVENTS.get(event.name)
    if role is None:
        return []
    message: Attributes = {"role": message_role(event.name)}
    message |= {key: value for key, value in attributes.items() if not key.startswith("gen_ai.")}
    content = attributes.get("gen_ai.event.content")
    body = parsed(content) if isinstance(content, str) and content[:1] == "{" else content
    if isinstance(body, dict) and not _OF_BODY.isdisjoint(body):  # Azure's clients; others put the text there
        message |= body
    elif content is not None:
        message.setdefault("content", content)
    return [Part("output" if role == "choice" else "message", "*", message)]


_OF_BODY = frozenset(("role", "content", "message", "tool_calls"))

_MESSAGE_EVENTS = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
    "gen_ai.choice": "choice",
}


def _log(record: LogRecord, event_name: str) -> list[Part]:
    if event_name == DETAILS:
        return _details(record.attributes)
    role = _MESSAGE_EVENTS.get(event_name)
    if role is None or record.body is None:
        return []
    return [Part("output" if role == "choice" else "message", "body", record.body)]


def message_role(event_name: str) -> str:
    """The role a message has by the name of its event: G1 bodies often leave it out."""
    role = _MESSAGE_EVENTS.get(event_name, "")
    return "assistant" if role == "choice" else role


def _complete(light: Light, span: Span) -> None:
    """Not in the conventions, but with most emitters: where it counts the cache besides input and output, so did they."""
    if light.cached_input_tokens or light.cache_write_tokens:
        include_cache(light, total=whole_number(span.attributes.get("gen_ai.usage.total_tokens")))


DIALECT = Dialect(
    name="gen_ai",
    lacks=(
        "Content, unless capture is switched on; by pointer it is named and never opened. Embedding inputs "
        "(openai, 1.3b0). openai-v2 up to 2.4b0 does not see the Responses API, 2.1b0 no embeddings either; the "
        "packages for OpenAI Agents and LlamaIndex emit no model calls and expect genai-openai beside them. Texts "
        "of retrieved documents: id and score alone."
    ),
    keys=("gen_ai.", "session.id", "user.id", "enduser.id"),
    scopes=("opentelemetry.instrumentation.genai.",),
    role=_role,
    facts={
        "run_name": ("gen_ai.workflow.name",),
        "agent_id": ("gen_ai.agent.name",),
        "agent_instance": ("gen_ai.agent.id",),
        "conversation_id": ("session.id", "gen_ai.conversation.id", "gen_ai.session.id"),
        "user_id": ("user.id", "enduser.id", "gen_ai.user.id", "gen_ai.user"),
        "provider": ("gen_ai.provider.name", "gen_ai.system"),
        "request_model": ("gen_ai.request.model",),
        "response_model": ("gen_ai.response.model",),
        "response_id": ("gen_ai.response.id",),
        "tool_name": ("gen_ai.tool.name",),
        "tool_call_id": ("gen_ai.tool.call.id", "gen_ai.tool.call_id"),
        "input_tokens": ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
        "output_tokens": ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
        "cached_input_tokens": ("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens"),
        "cache_write_tokens": (
            "gen_ai.usage.cache_write.input_tokens",
            "gen_ai.usage.cache_creation.input_tokens",
            "gen_ai.usage.cache_creation_input_tokens",
            "gen_ai.usage.cache_write_input_tokens",
        ),
        "reasoning_tokens": ("gen_ai.usage.reasoning.output_tokens", "gen_ai.usage.reasoning_tokens"),
        "cost_usd": ("gen_ai.cost.total_cost", "gen_ai.usage.cost"),
    },
    content={
        "system": ("gen_ai.system_instructions",),
        "input": ("gen_ai.input.messages", "gen_ai.prompt.*", "gen_ai.prompt"),
        "output": ("gen_ai.output.messages", "gen_ai.completion.*", "gen_ai.completion"),
        "tools": ("gen_ai.tool.definitions",),
        "arguments": ("gen_ai.tool.call.arguments",),
        "result": ("gen_ai.tool.call.result",),
        "query": ("gen_ai.retrieval.query.text", "gen_ai.memory.query.text"),
        "documents": ("gen_ai.retrieval.documents", "gen_ai.memory.records"),
        "system_ref": ("gen_ai.system_instructions_ref",),
        "input_ref": ("gen_ai.input.messages_ref",),
        "output_ref": ("gen_ai.output.messages_ref",),
        "tools_ref": ("gen_ai.tool.definitions_ref",),
    },
    labels={
        FINISH_REASON: (
            first_reason("gen_ai.response.finish_reasons"),
            "gen_ai.completion.0.finish_reason",
            "gen_ai.response.finish_reason",
        ),
        TIME_TO_FIRST_TOKEN: (
            seconds("gen_ai.response.time_to_first_chunk"),
            seconds("gen_ai.client.operation.time_to_first_chunk"),
        ),
        "skill_name": ("gen_ai.skill.name",),
        "skill_version": ("gen_ai.skill.version",),
        "skill_source": ("gen_ai.skill.source.uri",),
        "skills": ("gen_ai.skills",),
        "guard_name": ("gen_ai.guardrail.component.name",),
        "guard_type": ("gen_ai.guardrail.policy.id",),
        "guard_result": ("gen_ai.guardrail.result.type",),
    },
    names=_names,
    complete=_complete,
    ignore={"provider": not_provider(*_FRAMEWORKS)},
    event=_event,
    log=_log,
)
