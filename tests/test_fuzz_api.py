"""The query API under schemathesis: whatever is asked, no 500, and every answer as its own description says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
import schemathesis
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from otel_blackboard.config import Settings
from otel_blackboard.exporter.reader import Reader
from otel_blackboard.query.api import encode_cursor, make_api
from otel_blackboard.service import Stores
from tests.conftest import new_project
from tests.fuzzing import fuzz
from tests.test_api import RUN, story
from tests.test_hostile import SPANS, TRACE

CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]
HOSTILE = (
    "not UTF-8 in facts",
    "NaN and infinities",
    "surprising types",
    "huge counts",
    "absurd times",
    "contradictory stamps",
)


@pytest.fixture(scope="module")
def known(stores: Stores) -> Iterator[tuple[Any, dict[str, list[str]]]]:
    """The application over a store with data in it, and what of it there is to ask for, by parameter."""
    project = new_project(stores)
    project.store(*story())
    project.store([span for kind in HOSTILE for span in SPANS[kind]])
    api = project.api()
    runs = [RUN, f"run_{TRACE}"]
    moved = [f"run_{trace_id}" for trace_id in api.json(f"/runs/{RUN}")["trace_ids"]]
    found: dict[str, list[str]] = {
        "project_id": [project.tenant.project_id],
        "run_id": runs + moved,
        "span_id": [span["span_id"] for run in runs for span in api.json(f"/runs/{run}/timeline")["spans"]],
        "trace_id": [trace for run in runs for trace in api.json(f"/runs/{run}")["trace_ids"]],
        "artifact_id": [
            each["artifact_id"] for run in runs for each in api.json(f"/runs/{run}/artifacts")["artifacts"]
        ],
        "cursor": [
            *(
                api.json(path, limit=1)["next_cursor"]
                for path in ("/runs", f"/runs/{RUN}/timeline", f"/runs/{RUN}/artifacts")
            ),
            *(encode_cursor(*values) for values in (("a", "b"), ("a", "b", "c"), (2**63, "x"), (1.5, None), range(10))),
        ],
        "step_id": ["search", "write"],
        "agent_id": ["sailor", ""],
        "organization_id": ["default"],
        "q": ["harbour", "tide"],
        "kind": ["tool_result"],
        "from": ["2026-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999+23:59", "0001-01-01T00:00:00-23:59"],
        "to": ["2030-01-01T00:00:00Z"],
    }
    yield make_api(stores.reader, stores.settings, None, lambda: ""), found


_APP = make_api(cast(Reader, None), Settings(token_secret=SecretStr("s" * 32)), None, lambda: "")
OPERATIONS = [f"{method.upper()} {path}" for path, methods in _APP.openapi()["paths"].items() for method in methods]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_whatever_is_asked_the_answer_is_as_described(known: tuple[Any, dict[str, list[str]]], operation: str) -> None:
    app, there = known
    schema = schemathesis.openapi.from_asgi("/api/openapi.json", app)
    method, _, path = operation.partition(" ")
    asked = schema[path][method]
    cases = st.one_of(*(asked.as_strategy(generation_mode=mode) for mode in schemathesis.GenerationMode))

    offered = {
        (parameter["in"], parameter["name"]): there[parameter["name"]]
        for parameter in asked.definition.raw.get("parameters", ())
        if parameter["name"] in there
    }

    @given(cases, st.data())
    def check(case: schemathesis.Case, data: st.DataObject) -> None:
        # Mostly what is there, of what is needed: to random ids every answer is 404.
        for (place, name), values in offered.items():
            if data.draw(st.integers(0, 9)) < (9 if place == "path" or name == "project_id" else 3):
                (case.path_parameters if place == "path" else case.query)[name] = data.draw(st.sampled_from(values))
        response = case.call(allow_redirects=False)
        case.validate_response(response, checks=CHECKS)

    fuzz(0.2 / 2 / len(OPERATIONS), 12, check, shrink=False)
