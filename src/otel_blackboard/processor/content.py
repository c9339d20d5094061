"""Which values leave the row for the body store, whatever their size. Values of other keys leave it above LARGE bytes.

These are the content keys of every dialect, and of emitters that have no table yet: what is content must not swell rows.
"""

from __future__ import annotations

import re
from functools import lru_cache

from otel_blackboard.processor.dialects import BY_FIELD

LARGE = 4096
"""Bytes above which any other value leaves the row."""

_OF_DIALECTS = {
    source if isinstance(source, str) else source.key
    for dialect in BY_FIELD
    for sources in dialect.content.values()
    for source in sources
}
KEYS = frozenset(key for key in _OF_DIALECTS if not key.endswith(".*")) | frozenset(
    """
    gen_ai.content gen_ai.event.content
    input.value output.value llm.prompts llm.prompt_template.template llm.prompt_template.variables
    tool.parameters tool_arguments tool_response
    ai.prompt ai.prompt.messages ai.prompt.tools ai.prompt.system ai.response.text ai.response.toolCalls
    ai.response.object ai.response.reasoning ai.toolCall.args ai.toolCall.result ai.value ai.values ai.schema
    all_messages_events pydantic_ai.all_messages final_result raw_input request_data response response_data
    mlflow.spanInputs mlflow.spanOutputs
    gcp.vertex.agent.llm_request gcp.vertex.agent.llm_response gcp.vertex.agent.tool_call_args
    gcp.vertex.agent.tool_response gcp.vertex.agent.data
    langfuse.observation.input langfuse.observation.output langfuse.trace.input langfuse.trace.output
    spring.ai.tool.call.arguments spring.ai.tool.call.result
    db.vector.query.content db.vector.query.response.documents
    """.split()
)

PLAIN = frozenset(key for dialect in BY_FIELD for key in dialect.plain)
"""Keys whose value is an answer itself, and no message around one."""

_FAMILIES = {key[:-2] for key in _OF_DIALECTS if key.endswith(".*")} | set(
    """
    llm.input_messages llm.output_messages llm.prompts llm.choices llm.tools
    retrieval.documents reranker.input_documents reranker.output_documents embedding.embeddings
    """.split()
)
FAMILIES = re.compile("(" + "|".join(map(re.escape, sorted(_FAMILIES))) + r")\.\d")
"""Flattened families: all keys of one go to the body store together, as one frame of [key, value] pairs."""

_PATTERNS = re.compile(
    r"haystack\..*\.(?:input|output|input_data|output_data)"
    r"|crewai\..*\.(?:result|output|description|backstory)"
    r"|llm\.[a-z]+\.(?:messages|content|completion|choices)"
    r"|nemo_relay\.(?:start|end)\.(?:data|input|output)\..*"
)

EVENT_KEYS = frozenset(("content", "message", "tool_calls", "gen_ai.event.content", "tool.result", "reasoning_content"))
"""Attributes of span events that carry content under plain names."""


_LONGEST_KEY = 256
"""Characters of a key that is remembered or can be content: memory must not grow with what is sent."""


def family(key: str) -> str:
    """The family of a flattened key, as the field name `family.*`; '' for every other key."""
    return _family(key) if len(key) <= _LONGEST_KEY else ""


def is_content(key: str) -> bool:
    return len(key) <= _LONGEST_KEY and _is_content(key)


@lru_cache(maxsize=4096)
def _family(key: str) -> str:
    match = FAMILIES.match(key)
    return match[1] + ".*" if match else ""


@lru_cache(maxsize=4096)
def _is_content(key: str) -> bool:
    return key in KEYS or _PATTERNS.fullmatch(key) is not None
