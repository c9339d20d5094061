"""What must come out of each recording, by family of dialects."""

from tests.expected import genai, openinference
from tests.recordings import Expected

EXPECTED: dict[str, Expected] = {**genai.RECORDINGS, **openinference.RECORDINGS}
