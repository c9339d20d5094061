"""docs/dialects.md, out of the dialects themselves.

python -m tests.dialect_table > docs/dialects.md
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping

from otel_blackboard.processor import dialects
from otel_blackboard.processor.dialects import BY_FACT, BY_FIELD, BY_ROLE, Dialect
from otel_blackboard.processor.dialects.dialect import Source

HEAD = """\
# Dialects

What each tracing dialect means is a table of its own in `processor/dialects`, and this page is made of these tables. A span
may speak several dialects at once; each one that knows it, by a key or by its instrumentation scope, is asked. Its role comes
from the first that can tell, in this order: {by_role}. Every other fact comes from the first place that has it, in the order of
the table below{by_fact}. A key that ends in `.` or `.*` is a beginning; *in* a key means that the fact is taken out of its
structured value. Nothing that arrived is lost where no dialect knows it: it stands in the span's detail.
"""

GROUPS = {
    "usage": (
        "input_tokens",
        "output_tokens",
        "cached_input_tokens",
        "cache_write_tokens",
        "reasoning_tokens",
        "cost_usd",
    ),
    "models": ("provider", "request_model", "response_model"),
    "ids": ("run_id", "step_id", "response_id", "tool_call_id", "agent_instance"),
    "names": ("run_name", "step_name", "agent_id", "tool_name", "tool_class", "mode"),
    "sessions": ("conversation_id", "user_id", "use_case_id"),
    "order": ("pass_seq", "attempt", "call_seq", "loop_iteration", "output_retry", "retry_count"),
}
"""Facts of records.Light by what a reader looks for; the rest is `other`."""


def document() -> str:
    """The whole page."""
    head = HEAD.format(
        by_role=", ".join(f"`{each.name}`" for each in BY_ROLE),
        by_fact="".join(
            f" (`{fact}` first from {', '.join(f'`{each.name}`' for each in first)})" for fact, first in BY_FACT.items()
        ),
    )
    table = [
        "| dialect | known by | content | usage | sessions | also |",
        "| --- | --- | --- | --- | --- | --- |",
        *(_row(dialect) for dialect in BY_FIELD),
    ]
    return (
        "\n".join([_wrapped(head), *table, "", *(line for each in BY_FIELD for line in _section(each))]).rstrip() + "\n"
    )


def _row(dialect: Dialect) -> str:
    usage = [name for name in GROUPS["usage"] if name in dialect.facts]
    cells = [
        f"`{dialect.name}`",
        _marks(dialect),
        ", ".join(name for name in dialect.content if not name.endswith("_ref")) or "—",
        ", ".join(name.removesuffix("_tokens") for name in usage) or "—",
        ", ".join(name for name in GROUPS["sessions"] if name in dialect.facts) or "—",
        ", ".join(_also(dialect)) or "—",
    ]
    return f"| {' | '.join(cells)} |"


def _marks(dialect: Dialect) -> str:
    marks = [f"`{key}`" for key in dialect.keys]
    return ", ".join(marks + [f"scope `{name}`" for name in dialect.scopes])


def _also(dialect: Dialect) -> Iterator[str]:
    """What its functions do, beside its tables."""
    plain = {field: each.default for field, each in Dialect.__dataclass_fields__.items()}
    for field, said in (
        ("event", "content in span events"),
        ("log", "content in log records"),
        ("log_spans", "calls that only logs tell of"),
        ("join_key", "joins traces of one run"),
        ("satellite", "calls in traces of their own"),
    ):
        if getattr(dialect, field) is not plain[field]:
            yield said


def _section(dialect: Dialect) -> Iterator[str]:
    yield f"## {dialect.name}"
    if prose := _prose(dialect):
        yield prose
    yield ""
    yield f"Known by {_marks(dialect)}."
    if dialect.lacks:
        yield ""
        yield _wrapped(f"What its emitters do not send: {dialect.lacks}")
    yield ""
    yield "| what | where, the first that has it |"
    yield "| --- | --- |"
    grouped = {name for names in GROUPS.values() for name in names}
    for group, names in (*GROUPS.items(), ("other", tuple(name for name in dialect.facts if name not in grouped))):
        for name in names:
            if name in dialect.facts:
                yield f"| {group}: {name} | {_places(dialect.facts[name])} |"
    for meaning, places in dialect.content.items():
        yield f"| content: {meaning} | {_places(places)} |"
    for label, places in dialect.labels.items():
        yield f"| label: {label} | {_places(places)} |"
    yield ""


def _places(places: Iterable[str | Source]) -> str:
    shown = (f"in `{each.key}`" if isinstance(each, Source) and each.read else f"`{_key(each)}`" for each in places)
    return ", ".join(dict.fromkeys(shown))


def _key(place: str | Source) -> str:
    return place.key if isinstance(place, Source) else place


def _prose(dialect: Dialect) -> str:
    """What its module says of itself, without where that was read."""
    text = _modules().get(dialect.name, "")
    return re.sub(r"\s*\([^()]*dialects\.md[^()]*\)", "", text)


def _modules() -> Mapping[str, str]:
    found: dict[str, str] = {}
    for each in pkgutil.iter_modules(dialects.__path__):
        module = importlib.import_module(f"{dialects.__name__}.{each.name}")
        for value in vars(module).values():
            if isinstance(value, Dialect) and value in BY_FIELD:
                found.setdefault(value.name, inspect.cleandoc(module.__doc__ or ""))
    return found


def _wrapped(text: str) -> str:
    paragraphs = text.strip().split("\n\n")
    return "\n\n".join(
        each if each.startswith("#") else textwrap.fill(each, 130, break_long_words=False, break_on_hyphens=False)
        for each in paragraphs
    ) + ("\n" if text.endswith("\n") else "")


if __name__ == "__main__":
    print(document(), end="")
