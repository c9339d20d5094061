"""Skills and evaluations of the conventions: what any emitter may say (dialects.md §29, §1.2)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.spans import Trace, derive


def test_a_skill_is_named_on_the_call_that_uses_it() -> None:
    trace = Trace()
    trace.tool(
        "skill", arguments='{"name":"pdf"}', gen_ai__skill__name="pdf", gen_ai__skill__version="2",
        gen_ai__skill__source__uri="file:///skills/pdf",
    )  # fmt: skip
    trace.agent("coder", gen_ai__skills=[{"name": "pdf", "compacted": True}])
    rows = {row.name: row for row in derive(trace.spans)[0]}
    assert rows["execute_tool skill"].labels == {
        "skill_name": "pdf", "skill_version": "2", "skill_source": "file:///skills/pdf",
    }  # fmt: skip
    assert rows["invoke_agent coder"].labels == {"skills": '[{"name":"pdf","compacted":true}]'}


@pytest.mark.parametrize(
    ("arguments", "skill"),
    [
        ('{"path":"/home/a/.claude/skills/make-slides/SKILL.md"}', "make-slides"),
        ({"command": "cat skills/pdf/SKILL.md | head"}, "pdf"),
        (r'{"path":"C:\\agent\\skills\\pdf\\SKILL.md"}', "pdf"),
        ('{"path":"/skills/SKILL.md"}', ""), ('{"path":"/skills/a/b/SKILL.md"}', ""), ('{"q":"skills"}', ""), (None, ""),
    ],
)  # fmt: skip
def test_who_reads_the_file_of_a_skill_uses_it_as_far_as_can_be_told(arguments: Any, skill: str) -> None:
    trace = Trace()
    trace.tool("read_file", arguments=arguments, result="text")
    (row,) = derive(trace.spans)[0]
    assert row.labels == ({"skill_name": skill, "skill_inferred_from": "arguments"} if skill else {})


def test_a_skill_that_is_named_is_not_inferred() -> None:
    trace = Trace()
    trace.tool("read_file", arguments='{"path":"skills/pdf/SKILL.md"}', gen_ai__skill__name="documents")
    assert derive(trace.spans)[0][0].labels == {"skill_name": "documents"}


def test_an_evaluation_is_a_label_of_the_span_that_it_judges() -> None:
    trace = Trace()
    chat = trace.chat(said="Sunny.")
    said = {"gen_ai__evaluation__explanation": "It rains."}
    trace.log(chat, "gen_ai.evaluation.result", 2, gen_ai__evaluation__name="truth", gen_ai__evaluation__score__value=0.1,
              gen_ai__evaluation__score__label="fail", **said)  # fmt: skip
    trace.log(
        chat, "gen_ai.evaluation.result", 1, gen_ai__evaluation__name="truth", gen_ai__evaluation__score__value=0.9
    )
    trace.log(
        chat, "gen_ai.evaluation.result", 3, gen_ai__evaluation__name="tone", gen_ai__evaluation__score__label="kind"
    )
    trace.log(chat, "gen_ai.evaluation.result", 3, gen_ai__evaluation__score__label="no name")
    for logs in (trace.logs, trace.logs[::-1], [*trace.logs, *trace.logs]):
        (row,) = derive(trace.spans, logs)[0]
        assert row.labels == {"evaluation.truth": "fail (0.1)", "evaluation.tone": "kind"}
