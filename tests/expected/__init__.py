"""What must come out of each recording, by family of dialects."""

from tests.expected import genai
from tests.recordings import Expected

EXPECTED: dict[str, Expected] = {**genai.RECORDINGS}
