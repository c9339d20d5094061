"""What must come out of each recording, by family of dialects."""

from tests.expected import clients, genai
from tests.recordings import Expected

EXPECTED: dict[str, Expected] = {**clients.RECORDINGS, **genai.RECORDINGS}
