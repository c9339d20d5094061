"""Microsoft's frameworks."""

from tests.recordings import PARIS, Expected

RECORDINGS = {
    # The agent twice, the workflow's definition (which has no role), the workflow.
    "agent-framework-1.23": Expected(tools=[PARIS] * 3),
    "semantic-kernel-1.45": Expected(tools=[("P-get_weather", *PARIS[1:])], runs=1),
}
