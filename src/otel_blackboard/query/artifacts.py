"""The artifacts of a run: what each span and log record said, joined with what the tree and the numbers say.

A pure join: `blackboard` takes rows and gives artifacts, in any order of rows the same.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from otel_blackboard.processor.content import PLAIN
from otel_blackboard.processor.dialects import BY_FIELD
from otel_blackboard.processor.dialects.dialect import FLOW_RUN, PROVIDER_CALL, STEP, TOOL
from otel_blackboard.processor.dialects.genai import message_role
from otel_blackboard.processor.drafts import arguments_text, kept_arguments, sameness
from otel_blackboard.processor.flattened import lost, unflatten
from otel_blackboard.processor.identity import artifact_id
from otel_blackboard.processor.message_parts import read_part
from otel_blackboard.processor.messages import (
    Message,
    Request,
    plain_answer,
    read_messages,
    read_request,
    read_system,
    read_tools,
    shown,
)
from otel_blackboard.processor.numbers import Attempt, Numbered, Numbering, SpanKey, number, tool_path
from otel_blackboard.processor.values import parsed
from otel_blackboard.records import ArtifactRow, Body, RequestedCall, Resolved, Tenant

_ORIGINS = {"attribute": 0, "event": 1, "log": 2, "pointer": 3, "": 4}
_KIND_OF_ROLE = {
    TOOL: ("tool_result",),
    PROVIDER_CALL: ("llm_prompt", "agent_output"),
    STEP: ("agent_output",),
    FLOW_RUN: ("agent_output",),
}


@dataclass(slots=True)
class Artifact:
    """One artifact as it is read, with its place in the run."""

    artifact_id: str
    kind: str
    row: ArtifactRow
    """The row that gives content and label; of several records of one call, the best."""
    resolved: Resolved
    attempt: Attempt
    call_seq: int
    label: str
    bodies: tuple[Body, ...]
    log_roles: tuple[str, ...] = ()
    """For a prompt out of message events: the role of each body."""
    earlier_attempt: bool = False
    """A row of an attempt that a later one has taken the place of."""
    stands: bool = True
    """False for the output of a model call that is not the output of its pass."""
    text: str = ""
    """The body, where it is computed and not stored (a tool path)."""
    also: tuple[str, ...] = ()
    """Artifact ids of other records of the same call."""

    @property
    def whole(self) -> Body | None:
        """The one stored content that is the body; None where there is none, or the body is made on reading."""
        one = self.bodies[0] if len(self.bodies) == 1 else None
        return one if one is not None and self.row.exact and one.encoding != "pairs" else None

    @property
    def sort_key(self) -> tuple[Any, ...]:
        """ART-19: start of the pass, call_seq with 0 last, kind; then what makes the order total."""
        return (
            self.attempt.pass_start_ns, self.attempt.step_id, self.attempt.agent_id, self.attempt.pass_seq,
            self.call_seq == 0, self.call_seq, self.kind, self.attempt.attempt, self.resolved.start_ns,
            self.resolved.trace_id, self.resolved.span_id, self.artifact_id,
        )  # fmt: skip

    @property
    def place(self) -> tuple[Any, ...]:
        """What a retry writes to again."""
        a = self.attempt
        return (a.step_id, a.agent_id, a.pass_seq, self.call_seq, self.kind)

    @property
    def start_ns(self) -> int:
        return self.resolved.start_ns


@dataclass(slots=True)
class Blackboard:
    run_id: str
    numbering: Numbering
    artifacts: list[Artifact] = field(default_factory=list)
    """What a reader sees, in listing order."""
    replaced: list[Artifact] = field(default_factory=list)
    """Rows of earlier attempts that a retry has written over, and outputs that stand for no pass."""

    def find(self, identity: str) -> Artifact | None:
        for artifact in (*self.artifacts, *self.replaced):
            if artifact.artifact_id == identity or identity in artifact.also:
                return artifact
        return None


def blackboard(
    tenant: Tenant, run_id: str, resolved: Iterable[Resolved], rows: Iterable[ArtifactRow], paths: bool
) -> Blackboard:
    """Everything that is on a run's blackboard. `paths` lists a computed tool_path for each pass."""
    numbering = number(resolved)
    by_call: dict[tuple[str, str, str], list[tuple[ArtifactRow, Numbered]]] = defaultdict(list)
    for row in rows:
        numbered = numbering.spans.get((row.trace_id, row.span_id))
        if numbered is None or row.kind not in _KIND_OF_ROLE.get(numbered.row.role, ()):
            continue
        call = _call_of(numbered.row)
        by_call[(row.trace_id, call, row.kind)].append((row, numbered))
    board = Blackboard(run_id, numbering)
    found = [_merge(records) for records in by_call.values()]
    _label_prompts(found)
    if paths:
        found += _paths(tenant, run_id, numbering)
    standing = [artifact for artifact in found if artifact.stands]
    board.replaced = [artifact for artifact in found if not artifact.stands]
    best: dict[tuple[Any, ...], Artifact] = {}
    for artifact in sorted(standing, key=_recency):
        known = best.get(artifact.place)
        if known is not None:
            known.earlier_attempt = True
            board.replaced.append(known)
        best[artifact.place] = artifact
    board.artifacts = sorted(best.values(), key=lambda artifact: artifact.sort_key)
    for artifact in board.artifacts:
        artifact.earlier_attempt = artifact.attempt.superseded
    for artifact in board.replaced:
        artifact.earlier_attempt = artifact.attempt.superseded or artifact.earlier_attempt
    board.replaced.sort(key=lambda artifact: artifact.sort_key)
    return board


def _recency(artifact: Artifact) -> tuple[int, int, str, str]:
    row = artifact.resolved
    return (artifact.attempt.attempt, row.start_ns, row.span_id, row.trace_id)


def _call_of(row: Resolved) -> str:
    return row.call_span_id or row.span_id


def _merge(records: list[tuple[ArtifactRow, Numbered]]) -> Artifact:
    """All records of one artifact as one: exact before rebuilt, attribute before event before log, the call's own span
    first. Log records that each bring a piece are put together by time, then hash; what a rebuilt prompt lacks, another
    record brings."""
    call = _call_of(records[0][1].row)
    records.sort(
        key=lambda item: (
            not (item[0].exact and item[0].bodies), not item[0].bodies, not _has_messages(item[0]),
            _ORIGINS.get(item[0].origin, 9), item[0].span_id != call, item[0].span_id, item[0].time_ns, item[0].source,
        )
    )  # fmt: skip
    best, numbered = records[0]
    own = next((row for row, _ in records if row.source == "" and row.span_id == call), None)
    own = own or next((row for row, _ in records if row.source == ""), best)
    pieces = [best]
    if best.origin == "log":
        pieces = [row for row, _ in records if row.origin == "log" and row.span_id == best.span_id]
        whole = [row for row in pieces if any(body.field.startswith("gen_ai.") for body in row.bodies)]
        pieces = whole[:1] or sorted(pieces, key=lambda row: (row.time_ns, row.source))
    resolved = numbered.row
    kind = best.kind
    stands = kind != "agent_output" or any(each.row.stands for _, each in records)
    label = {
        "llm_prompt": "LLM call",
        "agent_output": numbered.attempt.agent_id or own.label or resolved.name,
        "tool_result": own.label or resolved.tool_name,
    }[kind]
    bodies = tuple(body for row in pieces for body in row.bodies)
    log_roles = tuple(message_role(row.label) for row in pieces for _ in row.bodies) if best.origin == "log" else ()
    if kind == "llm_prompt" and bodies and not best.exact and len(records) > 1:
        known = {_part_of_prompt(body) for body in bodies}
        for name in ("system", "tools"):
            if name not in known:
                others = (body for row, _ in records for body in row.bodies if _part_of_prompt(body) == name)
                bodies += tuple(others)[:1]
        log_roles += ("",) * (len(bodies) - len(log_roles)) if log_roles else ()
    said = _fullest([row for row, _ in records if row.arguments_sha256]) or best
    row = replace(
        best,
        characters=sum(piece.characters for piece in pieces),
        summary=own.summary or best.summary,  # a row of its own without content has one only if that was stated
        arguments=said.arguments,
        arguments_sha256=said.arguments_sha256,
    )
    return Artifact(
        artifact_id=own.artifact_id,
        kind=kind,
        row=row,
        resolved=resolved,
        attempt=numbered.attempt,
        call_seq=0 if kind == "agent_output" else numbered.call_seq,
        label=label,
        bodies=bodies,
        log_roles=log_roles,
        stands=stands,
        also=tuple(sorted({row.artifact_id for row, _ in records} - {own.artifact_id})),
    )


def lacking_arguments(board: Blackboard) -> dict[SpanKey, list[Artifact]]:
    """Tool results whose own span tells no arguments, or a bare value that names none (LangChain's `Paris`), by the model's
    answer that asked for them: its body has the arguments, which no row holds."""
    found: dict[SpanKey, list[Artifact]] = defaultdict(list)
    for artifact in (*board.artifacts, *board.replaced):
        resolved = artifact.resolved
        if artifact.kind == "tool_result" and resolved.requested_by and artifact.row.arguments[:1] not in ("{", "["):
            found[(resolved.trace_id, resolved.requested_by)].append(artifact)
    return found


def take_arguments(tools: Iterable[Artifact], bodies: Iterable[Body], contents: Iterable[bytes]) -> bool:
    """Gives tool results the arguments of the calls that this answer asks for; False where it asks for none."""
    asked = [call for message in _messages_in(bodies, contents) for call in message.tool_calls]
    for tool in tools:
        place = tool.resolved.requested_index
        if place < len(asked) and asked[place].arguments and asked[place].id in ("", tool.resolved.tool_call_id):
            text = arguments_text(asked[place].arguments)
            tool.row = replace(tool.row, arguments=kept_arguments(text), arguments_sha256=sameness(text))
    return bool(asked)


def _has_messages(row: ArtifactRow) -> bool:
    """Whether a prompt says more than instructions and tools; of other kinds every row is as good."""
    return row.kind != "llm_prompt" or any(_part_of_prompt(body) not in ("system", "tools") for body in row.bodies)


def _fullest(rows: Sequence[ArtifactRow]) -> ArtifactRow | None:
    """The first row with arguments, unless another says the same ones and more."""
    best = rows[0] if rows else None
    for row in rows[1:]:
        if best is not None and row.arguments_sha256 != best.arguments_sha256:
            one, other = parsed(best.arguments), parsed(row.arguments)
            if isinstance(one, dict) and isinstance(other, dict) and one.items() <= other.items():
                best = row
    return best


def _label_prompts(artifacts: Iterable[Artifact]) -> None:
    """PRM-08: the entries of each attempt in the order sent."""
    counts: Counter[int] = Counter()
    for artifact in sorted(artifacts, key=lambda artifact: artifact.sort_key):
        if artifact.kind == "llm_prompt":
            counts[id(artifact.attempt)] += 1
            artifact.label = f"LLM call {counts[id(artifact.attempt)]}"


def _paths(tenant: Tenant, run_id: str, numbering: Numbering) -> list[Artifact]:
    found = []
    for attempt in numbering.attempts:
        path = tool_path(attempt.calls)
        if not path:
            continue
        first = (attempt.spans or attempt.calls)[0]
        # The processor stamps all of a pass or nothing: a number of its own comes with run and step (ART-09).
        stamped = first.part and first.pass_seq is not None
        place = (run_id, attempt.step_id, str(attempt.pass_seq), "0") if stamped else (first.trace_id, first.span_id)
        identity = artifact_id(tenant, *place, "tool_path")
        row = ArtifactRow(first.trace_id, first.span_id, "tool_path", summary=path[:500], characters=len(path))
        row.content_type = "text/plain; charset=utf-8"
        found.append(Artifact(identity, "tool_path", row, first, attempt, 0, "Tool path", (), text=path))
    return found


# ---------------------------------------------------------------------------------------------------------------- json


def token_size(artifact: Artifact, characters_per_token: int) -> int | None:
    """ART-06: approximate; None where no content was captured."""
    if not artifact.bodies and not artifact.text:
        return None
    return -(-artifact.row.characters // characters_per_token)


def describe(artifact: Artifact, tenant: Tenant, run_id: str, characters_per_token: int) -> dict[str, Any]:
    """One artifact as the API shows it, without its body. Times are left as nanoseconds for the caller to write."""
    resolved, attempt = artifact.resolved, artifact.attempt
    whole = artifact.whole
    text = artifact.text.encode() if artifact.text else None
    return {
        "artifact_id": artifact.artifact_id,
        "organization_id": tenant.organization_id,
        "project_id": tenant.project_id,
        "use_case_id": resolved.use_case_id or None,
        "run_id": run_id,
        "trace_id": resolved.trace_id,
        "span_id": resolved.span_id,
        "step_id": attempt.step_id,
        "step_name": resolved.step_name or None,
        "agent_id": attempt.agent_id,
        "pass_seq": attempt.pass_seq,
        "attempt": attempt.attempt,
        "call_seq": artifact.call_seq,
        "kind": artifact.kind,
        "label": artifact.label,
        "summary": _summary(artifact),
        "status": "failed" if resolved.status == "failed" else "ok",
        "token_size": token_size(artifact, characters_per_token),
        "body_bytes": whole.raw_length if whole else len(text) if text is not None else None,
        "body_sha256": whole.sha256 if whole else _sha256(text) if text is not None else None,
        "content_type": _content_type(artifact),
        "metadata": metadata(artifact),
        "created_at": resolved.start_ns,
        "updated_at": resolved.end_ns or resolved.start_ns,
    }


def _summary(artifact: Artifact) -> str:
    if artifact.kind == "llm_prompt":
        resolved = artifact.resolved
        return " ".join(resolved.error.split())[:500] if resolved.status == "failed" else resolved.model
    return artifact.row.summary


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _content_type(artifact: Artifact) -> str | None:
    if artifact.kind == "llm_prompt" and artifact.bodies:
        return "application/json"
    if artifact.bodies and artifact.whole is None:
        return "application/json"
    return artifact.row.content_type or None


_DEEPEST = 64


def _shallow(text: str, deepest: int = _DEEPEST) -> Any:
    """JSON text as what it says; as its text where it nests deeper than an answer can carry."""
    return text if _is_deeper(text, deepest) else parsed(text)


def _is_deeper(text: str, deepest: int) -> bool:
    return text.count("[") + text.count("{") > deepest and _depth(text) > deepest


def _depth(text: str) -> int:
    """An upper bound: brackets inside strings count too."""
    depth = deepest = 0
    for character in text:
        if character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}":
            depth -= 1
    return deepest


def metadata(artifact: Artifact) -> dict[str, Any]:
    row, resolved = artifact.row, artifact.resolved
    data: dict[str, Any] = {}
    if artifact.kind == "tool_result":
        data = {
            "tool_name": resolved.tool_name,
            "arguments": _shallow(row.arguments) if row.arguments else None,
            "tool_call_id": resolved.tool_call_id or None,
            "tool_class": resolved.tool_class or "system",
        }
        if row.arguments.endswith(("…", '[truncated]"')):
            data["arguments_truncated"] = True
    elif artifact.kind == "llm_prompt":
        data = {
            "exact": row.exact if artifact.bodies else None,
            "provider": resolved.provider or None,
            "model": resolved.model or None,
            "loop_iteration": resolved.loop_iteration,
            "output_retry": resolved.output_retry,
            "send_count": (resolved.retry_count or 0) + 1,
        }
        if artifact.bodies and not row.exact:
            data["mark"] = "reconstructed"
    if artifact.kind != "tool_path":
        data["content"] = "captured" if artifact.bodies else "elsewhere" if row.origin == "pointer" else "not captured"
    if resolved.error and resolved.status == "failed":
        data["error"] = resolved.error
    if row.truncated:
        data["truncated_by"] = row.truncated
    if artifact.earlier_attempt:
        data["earlier_attempt"] = True
    return data


# ---------------------------------------------------------------------------------------------------------------- body


def assemble(artifact: Artifact, contents: Sequence[bytes]) -> bytes:
    """The body of an artifact out of its stored contents: the one content as it is, else what has to be rebuilt."""
    if artifact.kind == "tool_path":
        return artifact.text.encode()
    if artifact.kind == "llm_prompt" and not artifact.row.exact:
        return rebuilt_prompt(artifact, contents)
    if artifact.whole is not None:
        return contents[0]
    if artifact.kind == "agent_output":
        with contextlib.suppress(orjson.JSONEncodeError):  # nested deeper than can be written
            return _messages(artifact, contents)
    if len(contents) == 1:
        return _written(lambda value: unflatten(value(contents[0])))
    return _written(lambda value: [value(content) for content in contents])


_NAMES = {"system": "system", "input": "messages", "tools": "tools"}
_PARTS_OF_PROMPT: dict[str, str] = {}
for _dialect in BY_FIELD:
    for _meaning, _name in _NAMES.items():
        for _source in _dialect.content.get(_meaning, ()):
            if isinstance(_source, str):
                _PARTS_OF_PROMPT[_source] = _name
            else:
                _PARTS_OF_PROMPT[f"{_source.key}#{_meaning}"] = _name
                _PARTS_OF_PROMPT.setdefault(_source.key, _name)  # a reader that only says whether the value counts


def _part_of_prompt(body: Body) -> str:
    """system, tools or messages; '' = one message of its own."""
    field = body.field.split(".", 2)[-1] if body.field.startswith("events.") else body.field
    return _PARTS_OF_PROMPT.get(field, "")


def rebuilt_prompt(artifact: Artifact, contents: Sequence[bytes]) -> bytes:
    """A request made from message attributes or events (PRM-10), never exact: `{model, system?, messages, tools?}`, the
    messages in the conventions' form whatever the dialect (processor/messages.py), `lost_messages` where the sender dropped
    some."""
    texts = [content.decode(errors="replace") for content in contents]
    try:
        return orjson.dumps(_prompt(artifact, texts))
    except orjson.JSONEncodeError:
        return orjson.dumps(_prompt(artifact, texts, _DEEPEST_WRITTEN))


def _prompt(artifact: Artifact, texts: Sequence[str], deepest: int | None = None) -> dict[str, Any]:
    said, around = Request([], [], []), Request([], [], [])
    missing = 0
    roles = artifact.log_roles or ("",) * len(texts)
    for body, text, role in zip(artifact.bodies, texts, roles, strict=True):
        name = _part_of_prompt(body) or "messages"
        value = text if body.encoding == "text" else parsed(text)
        if deepest is not None and _is_deeper(text, deepest):
            said.messages.append(Message(role or ("user" if name == "messages" else name), read_part(text)))
        elif name == "system":
            said.system.extend(read_system(value))
        elif name == "tools":
            said.tools.extend(read_tools(unflatten(value) if body.encoding == "pairs" else value))
        else:
            missing += lost(value) if body.encoding == "pairs" else 0
            request = read_request(unflatten(value) if body.encoding == "pairs" else value, role or "user")
            said.messages.extend(request.messages)
            around.system.extend(request.system)
            around.tools.extend(request.tools)
    prompt: dict[str, Any] = {"model": artifact.resolved.model or None}
    if system := said.system or around.system:
        prompt["system"] = system
    prompt["messages"] = [shown(message) for message in said.messages]
    if tools := said.tools or around.tools:
        prompt["tools"] = tools
    return prompt | ({"lost_messages": missing} if missing else {})


def _messages(artifact: Artifact, contents: Sequence[bytes]) -> bytes:
    """Messages that no single value says: a flattened family, several events."""
    return orjson.dumps([shown(message) for message in _messages_in(artifact.bodies, contents)])


def _messages_in(bodies: Iterable[Body], contents: Iterable[bytes]) -> list[Message]:
    messages: list[Message] = []
    for body, content in zip(bodies, contents, strict=True):
        text = content.decode(errors="replace")
        if body.field in PLAIN:
            messages += plain_answer(text)
            continue
        value = parsed(text)
        messages += read_messages(unflatten(value) if body.encoding == "pairs" else value, "assistant")
    return messages


_DEEPEST_WRITTEN = 200
"""Levels of one value in a body: orjson reads 1,024 and writes 254, and some stand around the value."""


def _written(build: Callable[[Callable[[bytes], Any]], Any]) -> bytes:
    """What `build` makes of contents, as JSON. A value that is nested deeper than can be written stands as its text."""
    try:
        return orjson.dumps(build(lambda content: parsed(content.decode(errors="replace"))))
    except orjson.JSONEncodeError:
        return orjson.dumps(build(lambda content: _shallow(content.decode(errors="replace"), _DEEPEST_WRITTEN)))


def requested_calls(resolved: Resolved) -> list[dict[str, Any]]:
    return [_call(call) for call in resolved.requested]


def _call(call: RequestedCall) -> dict[str, Any]:
    return {"id": call.id or None, "name": call.name}
