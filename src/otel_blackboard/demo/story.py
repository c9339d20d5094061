"""The story of a run: what the service knows about it, asked over REST and printed for a terminal of 100 columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from textwrap import wrap
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlencode

from otel_blackboard.demo.agent import UNREACHABLE, call_json

Json = dict[str, Any]
Write = Callable[[str], None]

WIDTH = 100
SHOWN_ARTIFACTS = 40
RECALL_QUERY = "when is the marina gate open"
UNKNOWN = "unknown"


def print_story(
    api: str, run_id: str, project: str, write: Write, otlp_endpoint: str = "http://127.0.0.1:4318"
) -> None:
    """Prints the story through `write`, a line a call. A part the service cannot give says why, the rest is printed.

    otlp_endpoint: the address of the OTLP/HTTP door that the reader's own agent is told to use.
    """
    story = _Story(api.rstrip("/"), run_id, project, write)
    story.tell()
    _print_further(story, otlp_endpoint)


class _Story:
    def __init__(self, api: str, run_id: str, project: str, write: Write) -> None:
        self.api = api
        self.run_url = f"{api}/api/v1/runs/{quote(run_id, safe='')}"
        self.project = project
        self.run_id = run_id
        self.write = write

    def ask(self, path: str, query: Json | None = None, body: Json | None = None) -> Json:
        """An answer about this run: GET, or POST of a body."""
        data = json.dumps(body).encode() if body is not None else None
        return call_json(f"{self.run_url}{path}?{urlencode({'project_id': self.project, **(query or {})})}", data)

    def tell(self) -> None:
        artifacts: list[Json] = []
        for section in (
            self.print_run,
            lambda: artifacts.extend(self.print_artifacts()),
            lambda: self.print_ledger(_reentered_agent(artifacts)),
            lambda: self.print_recall(_reentered_agent(artifacts)),
            self.print_paths,
            lambda: self.print_prompts(_passes(artifacts)),
        ):
            try:
                section()
            except UNREACHABLE as error:
                self.write(f"  not available: {error}")

    def heading(self, title: str, explanation: str = "") -> None:
        self.write("")
        self.write(f"{title} ".ljust(WIDTH, "-"))
        for line in wrap(explanation, WIDTH - 2):
            self.write(f"  {line}")
        if explanation:
            self.write("")

    def print_run(self) -> None:
        self.heading("Run")
        run = self.ask("")
        usage: Json = run.get("usage") or {}
        tokens = (
            f"{_number(usage.get('input_tokens'))} in ({_number(usage.get('cached_input_tokens'))} of them cached), "
            f"{_number(usage.get('output_tokens'))} out"
        )
        cost = f"{run['cost_usd']} USD" if run.get("cost_usd") is not None else UNKNOWN
        coverage = run.get("usage_coverage")
        if coverage is not None:
            cost += f"; usage known for {coverage:.0%} of the answered model calls"
        status = run.get("status") or UNKNOWN
        if run.get("duration_ms") is not None:
            status += f", {_number(run['duration_ms'])} ms"
        lines = {
            "name": run.get("name") or UNKNOWN,
            "id": run.get("run_id") or self.run_id,
            "status": status,
            "started": run.get("start_time") or UNKNOWN,
            "agents": ", ".join(filter(None, run.get("agents") or [])) or UNKNOWN,
            "spans": ", ".join(f"{count} {role}" for role, count in (run.get("counts") or {}).items()) or UNKNOWN,
            "tokens": tokens,
            "cost": cost,
            "conversation": run.get("conversation_id") or UNKNOWN,
        }
        for name, text in lines.items():
            self.write(_cut(f"  {name:<13} {text}", WIDTH))

    def print_artifacts(self) -> list[Json]:
        self.heading(
            "Artifacts",
            "Every intermediate result of the run, readable while it goes on: what each tool gave, what each pass "
            "said, the exact request of each model call. Rows hold a summary; the body is fetched on request.",
        )
        artifacts: list[Json] = self.ask("/artifacts", {"limit": 1000}).get("artifacts") or []
        if not artifacts:
            self.write("  none")
            return artifacts
        latest = _latest_attempts(artifacts)
        rows = []
        for artifact in artifacts[:SHOWN_ARTIFACTS]:
            marks = ["failed"] if artifact.get("status") == "failed" else []
            if (artifact.get("attempt") or 1) < latest[_pass_of(artifact)]:
                marks.append("earlier attempt")
            summary = " ".join(str(artifact.get("summary") or "").split())
            rows.append(
                (
                    artifact.get("step_id") or "",
                    "/".join(_number(artifact.get(key)) for key in ("pass_seq", "attempt", "call_seq")),
                    artifact.get("kind") or "",
                    artifact.get("label") or "",
                    f"~{_number(artifact.get('token_size'))}",
                    f"[{', '.join(marks)}] {summary}" if marks else summary,
                )
            )
        for line in _table(("step", "p/a/c", "kind", "label", "~tokens", "summary"), rows):
            self.write(f"  {line}")
        if len(artifacts) > SHOWN_ARTIFACTS:
            self.write(f"  … and {len(artifacts) - SHOWN_ARTIFACTS} more")
        self.write("")
        self.write("  p/a/c = pass, attempt of that pass, call inside it (0 = the pass as a whole)")
        return artifacts

    def print_ledger(self, agent: str) -> None:
        self.heading(
            f"Action ledger of {agent or 'all agents'}",
            "What an agent is told when it enters a step again, so that it does not repeat a call: in pass 2 the calls "
            "before it, and a next pass would start with these.",
        )
        ledger = self.ask("/ledger", {"agent_id": agent} if agent else {})
        text = str(ledger.get("text") or "")
        for line in text.splitlines() or ["none: no tool was called"]:
            self._write_wrapped(line)

    def print_recall(self, agent: str) -> None:
        self.heading(
            "Recall",
            "What an agent gets when it searches the run for the full text of an earlier result. Its token names this "
            "run, so it can never see another.",
        )
        self.write(f'  query: "{RECALL_QUERY}"')
        try:
            wanted = {"agent_id": agent, "capabilities": ["query_blackboard"]}
            token = str(self.ask("/tokens", body=wanted).get("token") or "")
            query = json.dumps({"query": RECALL_QUERY, "top_k": 3}).encode()
            results: list[Json] = call_json(f"{self.api}/api/v1/recall", query, token).get("results") or []
        except HTTPError as refused:
            self.write(f"  not available: {refused} (BLACKBOARD_RETRIEVAL=true switches recall on)")
            return
        if not results:
            self.write("  no result (BLACKBOARD_RETRIEVAL=true switches recall on)")
            return
        for rank, result in enumerate(results, 1):
            where = f"{result.get('step_id') or ''} pass {_number(result.get('pass_seq'))}"
            self.write(_cut(f"  {rank}. {result.get('label') or ''} ({where}, {result.get('artifact_id')})", WIDTH))
        content = str(results[0].get("content") or "")
        cut = " (cut by the service)" if results[0].get("truncated") else ""
        self.write(f"  content of the first, {len(content):,} characters{cut}:")
        for line in wrap(" ".join(content.split()), WIDTH - 6, max_lines=7, placeholder=" …"):
            self.write(f"    | {line}")

    def print_paths(self) -> None:
        self.heading("Tool paths", "The route each pass took.")
        paths: list[Json] = self.ask("/paths").get("paths") or []
        rows = [
            (
                path.get("step_id") or "",
                _number(path.get("pass_seq")),
                _number(path.get("attempt")),
                path.get("agent_id") or "",
                path.get("path") or "",
            )
            for path in paths
        ]
        for line in _table(("step", "pass", "attempt", "agent", "path"), rows) if rows else ["none"]:
            self.write(f"  {line}")

    def print_prompts(self, passes: Iterable[tuple[str, int]]) -> None:
        self.heading(
            "Prompts",
            "The request of every model call, taken before it was sent: a rejected call keeps its prompt. "
            "exact = byte for byte; reconstructed = made from the messages in the telemetry.",
        )
        passes = list(passes)
        for step_id, pass_seq in passes:
            query = {"step_id": step_id, "pass_seq": pass_seq}
            prompts: list[Json] = self.ask("/prompts", query).get("prompts") or []
            latest = max((prompt.get("attempt") or 1 for prompt in prompts), default=1)
            self.write(f"  {step_id} pass {pass_seq}")
            entries = ", ".join(_prompt(prompt, latest) for prompt in prompts)
            for line in wrap(entries or "none", WIDTH - 4):
                self.write(f"    {line}")
        if not passes:
            self.write("  no pass is known")

    def _write_wrapped(self, line: str) -> None:
        for part in wrap(line, WIDTH - 4, subsequent_indent="  ", break_on_hyphens=False) or [""]:
            self.write(f"  | {part}".rstrip())


def _print_further(story: _Story, otlp_endpoint: str) -> None:
    """Addresses. The long ones share a shell variable, so that each line can be copied as it is."""
    project = quote(story.project, safe="")
    story.heading("Look further")
    for line in (
        "# every route, with an example each",
        f"{story.api}/api/docs",
        "",
        "# this run as JSON",
        f"RUN='{story.run_url}'",
        *(
            f'curl -s "$RUN{path}?project_id={project}"'
            for path in ("", "/timeline", "/artifacts", "/prompts", "/paths")
        ),
        f'curl -s "$RUN/artifacts/<artifact_id>?project_id={project}"   # one artifact with its body',
        "",
        "# your own agent",
        f"export OTEL_EXPORTER_OTLP_ENDPOINT={otlp_endpoint}",
        "export OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf",
    ):
        story.write(f"  {line}".rstrip())


def _reentered_agent(artifacts: Sequence[Json]) -> str:
    """The agent that used tools in the latest pass; '' when there is none."""
    tools = [artifact for artifact in artifacts if artifact.get("kind") == "tool_result"]
    latest = max(tools, key=lambda artifact: artifact.get("pass_seq") or 0, default={})
    return str(latest.get("agent_id") or "")


def _passes(artifacts: Sequence[Json]) -> list[tuple[str, int]]:
    """(step_id, pass_seq) in the order of the listing, each once."""
    passes = ((artifact.get("step_id"), artifact.get("pass_seq")) for artifact in artifacts)
    return list(dict.fromkeys((str(step), int(seq)) for step, seq in passes if step and seq))


def _pass_of(artifact: Json) -> tuple[Any, Any, Any]:
    return artifact.get("step_id"), artifact.get("agent_id"), artifact.get("pass_seq")


def _latest_attempts(artifacts: Iterable[Json]) -> dict[tuple[Any, Any, Any], int]:
    latest: dict[tuple[Any, Any, Any], int] = {}
    for artifact in artifacts:
        key = _pass_of(artifact)
        latest[key] = max(latest.get(key, 1), artifact.get("attempt") or 1)
    return latest


def _prompt(prompt: Json, latest_attempt: int) -> str:
    marks = ["exact" if prompt.get("exact") else "reconstructed"]
    if prompt.get("status") == "failed":
        marks.append("rejected")
    if (prompt.get("attempt") or 1) < latest_attempt:
        marks.append("earlier attempt")
    return f"{prompt.get('label') or 'LLM call'} ({', '.join(marks)})"


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:,}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Left-aligned columns as wide as they need; the last takes what is left of the line."""
    indent, gap = 2, 2
    widths = [min(24, max(len(row[i]) for row in (headers, *rows))) for i in range(len(headers) - 1)]
    widths.append(max(16, WIDTH - indent - sum(widths) - gap * len(widths)))
    lines = (headers, ["-" * width for width in widths], *rows)
    return [
        (" " * gap).join(_cut(cell, width).ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
