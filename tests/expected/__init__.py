"""What must come out of each recording, by family of dialects."""

from tests.expected import clients, genai, microsoft, openinference, strands, traceloop, vendors
from tests.recordings import Expected

EXPECTED: dict[str, Expected] = {
    **clients.RECORDINGS,
    **genai.RECORDINGS,
    **microsoft.RECORDINGS,
    **openinference.RECORDINGS,
    **strands.RECORDINGS,
    **traceloop.RECORDINGS,
    **vendors.RECORDINGS,
}
