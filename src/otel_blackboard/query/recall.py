"""Recall (RCL): full text over the artifacts of one run. The run comes from the caller's token and from nothing else."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from otel_blackboard.exporter.reader import Hit

_WORD = re.compile(r"[0-9a-z\u0080-\U0010ffff]+")
MOST_WORDS = 32
_K, _B = 1.2, 0.75
"""BM25's usual constants. The engine has no ranking of its own (components.md), and a run is small enough for this one."""


def words_of(query: str) -> list[str]:
    """The distinct words of a query, split as the engine's text index splits: at every ASCII character that is no letter
    and no digit."""
    return list(dict.fromkeys(_WORD.findall(query.lower())))[:MOST_WORDS]


def clamp_top_k(value: Any) -> int:
    """RCL-03: into 1 … 10; what is no number counts as 5."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return 5
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return 5
    return 5 if value != value else int(min(10, max(1, value)))  # NaN alone is not itself


def rank(hits: Sequence[Hit], searched: int) -> list[tuple[float, Hit]]:
    """(score, hit), best first. Whole words count more than parts of words, label and summary more than the body."""
    if not hits:
        return []
    average = sum(hit.length for hit in hits) / len(hits) or 1
    containing = [sum(1 for hit in hits if hit.inside[place]) for place in range(len(hits[0].inside))]
    scored = []
    for hit in hits:
        score = 0.0
        for place, count in enumerate(containing):
            if not count:
                continue
            rarity = math.log(1 + (max(searched, len(hits)) - count + 0.5) / (count + 0.5))
            often = hit.whole[place] + 0.3 * max(0, hit.inside[place] - hit.whole[place])
            weight = often * (_K + 1) / (often + _K * (1 - _B + _B * hit.length / average))
            score += rarity * (weight + (0.5 if hit.in_heading[place] else 0))
        scored.append((score, hit))
    return sorted(scored, key=lambda item: -item[0])
