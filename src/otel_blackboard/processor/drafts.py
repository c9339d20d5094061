"""The artifact rows that one span or log record makes, and which of its contents are their bodies."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from otel_blackboard.processor.content import PLAIN
from otel_blackboard.processor.dialects.dialect import STEP, Part
from otel_blackboard.processor.flattened import lost, unflatten
from otel_blackboard.processor.identity import artifact_id
from otel_blackboard.processor.messages import Message, ToolCall, plain_answer, read_messages
from otel_blackboard.processor.row_text import Contents
from otel_blackboard.processor.values import (
    compact,
    first_text,
    parsed,
    sorted_keys,
    to_json,
)
from otel_blackboard.processor.wrappers import part_of_call
from otel_blackboard.records import (
    ArtifactRow,
    Content,
    Light,
    LogLight,
    RequestedCall,
    Tenant,
    Value,
)

RECALL_TOOL = "__query_blackboard"
ARGUMENTS_KEPT = 16_384
"""Characters of a call's arguments that stand in the artifact row; sameness uses the hash of the whole."""

SEARCHED = 20_000
"""Characters of a body that full text covers (RCL-08)."""

SUMMARY = 500

_SKILL = re.compile(r"""skills(?:/|\\{1,4})([^/\\"']{1,64})(?:/|\\{1,4})SKILL\.md""")
"""A tool that reads the file of a skill, where nothing says that it is used: `…/skills/<name>/SKILL.md` (dialects.md §29)."""


@dataclass(slots=True)
class Draft:
    """An artifact row and which contents of the reading are its bodies."""

    row: ArtifactRow
    contents: list[int]


def model_call_drafts(
    tenant: Tenant, light: Light, parts: dict[str, Part], events: list[Part], contents: Contents
) -> list[Draft]:
    prompt = _prompt_row(tenant, light)
    indexes: list[int] = []
    if "request" in parts:
        prompt.exact, prompt.origin = True, "attribute"
        indexes.append(contents.value(parts["request"].field, parts["request"].value, "llm_prompt"))
        prompt.content_type = "application/json"
    else:
        prompt.exact = False
        for meaning in ("system", "input", "tools"):
            if meaning in parts:
                prompt.origin = "attribute"
                indexes.append(_content(contents, parts[meaning], "llm_prompt"))
        if "input" not in parts and (messages := _inputs(events)):
            prompt.origin = prompt.origin or "event"
            indexes += [_content(contents, part, "llm_prompt") for part in messages]
    light.has_input = bool(indexes)
    _describe_prompt(prompt, light, [contents.items[index] for index in indexes], parts)
    drafts = [Draft(prompt, indexes)] if indexes or light.operation == "chat" else []
    if light.operation == "embeddings":  # vectors are no artifact
        return drafts
    return drafts + output_drafts(tenant, light, parts, events, contents, exact_response=True)


def _inputs(parts: list[Part]) -> list[Part]:
    """What a prompt is rebuilt from."""
    return [part for part in parts if part.meaning in ("system", "input", "message", "tools")]


def _prompt_row(tenant: Tenant, light: Light) -> ArtifactRow:
    row = ArtifactRow(
        light.trace_id, light.span_id, "llm_prompt", artifact_id=_artifact_id(tenant, light, "llm_prompt")
    )
    row.label = "LLM call"
    row.status = "failed" if light.status == "failed" else "ok"
    return row


def _describe_prompt(row: ArtifactRow, light: Light, contents: list[Content], parts: dict[str, Part]) -> None:
    row.characters = _characters(contents)
    marks = (_cut(content.data, True, _is_json(content.data)) for content in contents)
    row.truncated = next((mark for mark in marks if mark), "")
    if "input" in parts and _is_family(parts["input"]) and lost(parts["input"].value):
        row.truncated = "sender"
    if "input_ref" in parts and not contents:
        row.origin = "pointer"
    model = light.request_model or light.response_model
    row.summary = _one_line(light.error if light.status == "failed" else model, SUMMARY)


_ANSWER = ("reasoning", "output", "calls")
"""Pieces of an answer that some emitters keep apart; of a pass only `output` is its result."""


def output_drafts(
    tenant: Tenant, light: Light, parts: dict[str, Part], events: list[Part], contents: Contents, exact_response: bool
) -> list[Draft]:
    """The agent_output of a pass or a model call, and the tool calls it requests. No output, no row."""
    row = ArtifactRow(light.trace_id, light.span_id, "agent_output")
    indexes: list[int] = []
    messages: list[Message] = []
    answers = [part for part in events if part.meaning == "output"]
    said = [parts[meaning] for meaning in _ANSWER if meaning in parts and (exact_response or meaning == "output")]
    if said:
        row.origin = "attribute"
        for part in said:
            more = _messages_of(part)
            if part.meaning == "calls" and any(message.tool_calls for message in messages):
                continue  # listed by the output itself
            indexes.append(_content(contents, part, "agent_output"))
            messages += more
    elif answers:
        row.origin = "event"
        indexes += [_content(contents, part, "agent_output") for part in answers]
        messages = [message for part in answers for message in _messages_of(part)]
    elif exact_response and "response" in parts:
        row.origin = "attribute"
        indexes.append(contents.value(parts["response"].field, parts["response"].value, "agent_output"))
        messages = read_messages(parts["response"].value, "assistant")
    if not light.has_input:
        light.has_input = "input" in parts
    if not indexes:
        return []
    light.has_output = True
    light.requested = _requested(call for message in messages for call in message.tool_calls)
    row.artifact_id = _artifact_id(tenant, light, "agent_output", call="0" if light.role == STEP else None)
    row.label = light.agent_id or light.name
    row.status = "failed" if light.status == "failed" else "ok"
    text = _answer_text(messages) or contents.items[indexes[0]].data.decode(errors="replace")
    value = parsed(text) if text[:1] == "{" else None
    summary = first_text(parts["summary"].value) if "summary" in parts else _summary(text, light, value)
    _describe(row, [contents.items[index] for index in indexes], text, summary, structured=True)
    return [Draft(row, indexes)]


def _answer_text(messages: list[Message]) -> str:
    """The answer as a person reads it: the last text said, else the tool calls asked for."""
    said = [message for message in messages if message.role in ("assistant", "")]
    for message in reversed(said):
        if message.text:
            return message.text
    return "; ".join(f"{call.name}({call.arguments})" for message in said for call in message.tool_calls)


def tool_call_draft(
    tenant: Tenant,
    light: Light,
    parts: dict[str, Part],
    events: list[Part],
    contents: Contents,
    error: str,
    unwrap: Unwrap,
) -> Draft:
    row = ArtifactRow(
        light.trace_id, light.span_id, "tool_result", artifact_id=_artifact_id(tenant, light, "tool_result")
    )
    row.label, failed = light.tool_name, light.status == "failed"
    row.status = "failed" if failed else "ok"
    by_event = {part.meaning: part for part in events}
    by_meaning = by_event | parts
    if not by_meaning.keys() & {"arguments", "query"} and (asked := by_meaning.get("input")) is not None:
        call = part_of_call(asked.value, "tool_call", light.tool_call_id, light.tool_name)
        if call.get("arguments") is not None:
            by_meaning["arguments"] = Part("arguments", asked.field, call["arguments"])
    _arguments(row, by_meaning, unwrap, light.operation)
    light.arguments_sha256, light.has_input = row.arguments_sha256, row.arguments_sha256 != ""
    if "SKILL.md" in row.arguments and "skill_name" not in light.labels and (skill := _SKILL.search(row.arguments)):
        light.labels |= {"skill_name": skill[1], "skill_inferred_from": "arguments"}
    sent = [by_meaning.get("result"), by_event.get("result"), by_meaning.get("documents")]
    if light.operation == "retrieval":  # the documents before a text that the emitter made of them
        sent.reverse()
    found = [part for part in sent if part is not None and (part.value != "" or not (failed and error))]
    result = next((part for part in found if part.value != ""), found[0] if found else None)
    returned: Value = None
    if result is None and (answer := by_meaning.get("output")) is not None:
        said = part_of_call(answer.value, "tool_call_response", light.tool_call_id, light.tool_name)
        returned = said.get("response", said.get("result"))
        result = answer if returned is not None else None
    if result is not None:
        row.origin = "attribute" if parts.get(result.meaning) is result else "event"
        index = _content(contents, result, "tool_result")
    elif failed and error:
        row.origin, index = "attribute", contents.add("error", error.encode(), "text", "tool_result")
    else:
        light.has_output = False
        row.summary = _one_line(first_text(parts["summary"].value), SUMMARY) if "summary" in parts else ""
        row.search_text = "" if light.tool_class == "recall" else f"{row.label}\n{row.summary}".lower()
        return Draft(row, [])
    light.has_output = True
    content = contents.items[index]
    shown: Value = error
    if result is not None:
        sent_value = unflatten(result.value) if _is_family(result) else result.value
        shown = _unwrapped("result", sent_value if returned is None else returned, unwrap)
    value = parsed(shown)
    if isinstance(value, str):
        text = value
    else:
        text = content.data.decode(errors="replace") if result is None or shown is result.value else to_json(value)
    summary = first_text(parts["summary"].value) if "summary" in parts else _summary(text, light, value)
    _describe(row, [content], text, summary, structured=False)
    if light.tool_class == "recall":
        row.search_text = ""
    return Draft(row, [index])


Unwrap = Mapping[str, tuple[Callable[[Value], Value], ...]]


def _unwrapped(meaning: str, value: Value, unwrap: Unwrap) -> Value:
    for taken in unwrap.get(meaning, ()):
        value = taken(value)
    return value


def _arguments(row: ArtifactRow, parts: dict[str, Part], unwrap: Unwrap, operation: str = "") -> None:
    part = parts.get("arguments")
    if part is not None and not (operation == "retrieval" and "query" in parts):
        text = arguments_text(_unwrapped("arguments", part.value, unwrap))
    elif "query" in parts:
        text = to_json({"query": parts["query"].value})
    else:
        return
    row.arguments_sha256 = sameness(text)
    row.arguments = kept_arguments(text)


def kept_arguments(text: str) -> str:
    return text if len(text) <= ARGUMENTS_KEPT else text[: ARGUMENTS_KEPT - 1] + "…"


def arguments_text(value: Value) -> str:
    """Arguments as LED-05 wants them: compact JSON in the order sent."""
    if isinstance(value, str):
        inner = parsed(value) if value[:1] == '"' else None
        return compact(inner if isinstance(inner, str) and inner[:1] in "{[" else value)
    return to_json(value)


def sameness(text: str) -> str:
    """Equal where two texts are the same arguments (LED-07)."""
    return hashlib.sha256(sorted_keys(text).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _requested(calls: Iterable[ToolCall]) -> tuple[RequestedCall, ...]:
    return tuple(
        RequestedCall(call.id, call.name, sameness(arguments_text(call.arguments)) if call.arguments else "")
        for call in calls
    )


def _content(contents: Contents, part: Part, kind: str) -> int:
    index = contents.value(part.field, part.value, kind)
    if _is_family(part):
        contents.items[index].encoding = "pairs"
    return index


def _is_family(part: Part) -> bool:
    """Whether it is a flattened family; `events.N.*` is a whole event."""
    return part.field.endswith(".*") and not part.field.startswith("events.")


def _messages_of(part: Part) -> list[Message]:
    if part.field in PLAIN:
        return plain_answer(part.value)
    value = unflatten(part.value) if _is_family(part) else part.value
    return read_messages(value, "assistant" if part.meaning in _ANSWER else "user")


def _describe(row: ArtifactRow, contents: list[Content], text: str, summary: str, structured: bool) -> None:
    row.characters = _characters(contents)
    row.truncated, first_is_json = "", False
    for place, content in enumerate(contents):
        is_json = _is_json(content.data)
        row.truncated = row.truncated or _cut(content.data, structured, is_json)
        first_is_json = is_json if place == 0 else first_is_json
    row.content_type = _content_type(contents[0], first_is_json)
    row.summary = _one_line(summary, SUMMARY)
    row.search_text = f"{row.label}\n{row.summary}\n{text[:SEARCHED]}".lower()


def _summary(text: str, light: Light, value: Any = None) -> str:
    if light.status == "failed" and light.error:
        return light.error
    if isinstance(value, dict) and isinstance(value.get("summary"), str):
        return str(value["summary"])
    return text[: SUMMARY * 64].lstrip()[: SUMMARY * 8]


def _one_line(text: str, limit: int) -> str:
    start = text[: 2 * limit]
    if not (start.isprintable() and "  " not in start):  # white space other than single blanks is not printable
        start = " ".join(text.split())
    return start.strip()[:limit]


def _characters(contents: list[Content]) -> int:
    return sum(
        len(content.data) if content.data.isascii() else len(content.data.decode(errors="replace"))
        for content in contents
    )


def _content_type(content: Content, is_json: bool) -> str:
    if content.encoding in ("json", "pairs") or (content.encoding == "text" and is_json):
        return "application/json"
    return "text/plain; charset=utf-8" if content.encoding == "text" else "application/octet-stream"


def _is_json(data: bytes) -> bool:
    """Whether it is a whole JSON array or object."""
    if data[:1] not in (b"{", b"["):
        return False
    try:
        orjson.loads(data)
    except ValueError:
        return False
    return True


def _cut(data: bytes, structured: bool, is_json: bool) -> str:
    """'sender' where the sender cut the value: by its own mark, or JSON that ends in mid-sentence."""
    tail = data[-64:]
    if tail.endswith((b"[truncated]", b"...[truncated]")) or b"[TRUNCATED" in tail:
        return "sender"
    if structured and data[:1] in (b"{", b"[") and not is_json:
        return "sender"
    return ""


def _artifact_id(tenant: Tenant, light: Light, kind: str, call: str | None = None) -> str:
    number = call if call is not None else None if light.call_seq is None else str(light.call_seq)
    if light.run_id and light.step_id and light.pass_seq is not None and number is not None:
        return artifact_id(tenant, light.run_id, light.step_id, str(light.pass_seq), number, kind)
    return artifact_id(tenant, light.trace_id, light.span_id, kind)


def log_drafts(tenant: Tenant, light: LogLight, parts: list[Part], contents: Contents) -> list[Draft]:
    """Rows without knowledge of the span: its role decides on reading whether they count."""
    drafts: list[Draft] = []
    span = Light(light.trace_id, light.span_id, name=light.event_name, agent_id=light.agent_id)
    prompts = _inputs(parts)
    if prompts:
        row = _prompt_row(tenant, span)
        row.origin, row.exact = "log", False
        indexes = [contents.value(part.field, part.value, "llm_prompt") for part in prompts]
        _describe_prompt(row, span, [contents.items[index] for index in indexes], {})
        row.summary, row.label = light.request_model, light.event_name
        drafts.append(Draft(row, indexes))
        light.has_input = True
    answers = [part for part in parts if part.meaning == "output"]
    if answers:
        row = ArtifactRow(light.trace_id, light.span_id, "agent_output", origin="log", label=light.agent_id)
        row.artifact_id = artifact_id(tenant, light.trace_id, light.span_id, "agent_output")
        indexes = [contents.value(part.field, part.value, "agent_output") for part in answers]
        messages = [message for part in answers for message in _messages_of(part)]
        text = _answer_text(messages)
        _describe(row, [contents.items[index] for index in indexes], text, text, structured=True)
        light.requested = _requested(call for message in messages for call in message.tool_calls)
        light.has_output = True
        drafts.append(Draft(row, indexes))
    for part in parts:
        if part.meaning == "result":
            row = ArtifactRow(light.trace_id, light.span_id, "tool_result", origin="log", label="")
            row.artifact_id = artifact_id(tenant, light.trace_id, light.span_id, "tool_result")
            index = contents.value(part.field, part.value, "tool_result")
            _arguments(row, {part.meaning: part for part in parts}, {})
            text = first_text(part.value) or to_json(part.value)
            _describe(row, [contents.items[index]], text, _summary(text, span, parsed(part.value)), structured=False)
            light.has_output = True
            drafts.append(Draft(row, [index]))
    return drafts
