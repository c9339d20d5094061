"""What must come out of each recording, by family of dialects."""

from tests.expected import genai, microsoft, strands, traceloop, vendors
from tests.recordings import Expected

EXPECTED: dict[str, Expected] = {
    **genai.RECORDINGS,
    **microsoft.RECORDINGS,
    **strands.RECORDINGS,
    **traceloop.RECORDINGS,
    **vendors.RECORDINGS,
}
