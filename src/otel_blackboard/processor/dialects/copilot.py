"""GitHub Copilot's command line (dialects.md §28; names only, not captured): the GenAI conventions and `github.copilot.*`.

Its cost counts premium requests, not dollars: it is a label, never the price of a call.
"""

from __future__ import annotations

from otel_blackboard.processor.dialects.dialect import Dialect

DIALECT = Dialect(
    name="copilot",
    lacks=("Cost in dollars: it counts premium requests, which are a label. Read from its documentation."),
    keys=("github.copilot.",),
    scopes=("github.copilot",),
    facts={"user_id": ("enduser.pseudo.id",)},
    labels={
        "premium_requests": ("github.copilot.cost",),
        "premium_requests_total": ("github.copilot.total_premium_requests",),
        "git_repository": ("github.copilot.git.repository",),
    },
)
