"""Measures the service against its budgets: `python -m bench --help`. Here: how figures are shown.

CPU time is counted beside wall time everywhere, because wall time on a shared machine says more about the neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

Cell = str | float | None
"""A number that is None is unknown and shown as –."""


class Table(NamedTuple):
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    def text(self) -> str:
        lines = [[*map(shown, row)] for row in (self.columns, *self.rows)]
        padded = []
        for i, cells in enumerate(zip(*lines, strict=True)):
            width, number = max(map(len, cells)), any(isinstance(row[i], float | int) for row in self.rows)
            padded.append([cell.rjust(width) if number else cell.ljust(width) for cell in cells])
        body = [f"  {'  '.join(line)}".rstrip() for line in zip(*padded, strict=True)]
        return "\n".join([f"\n{self.title}", *body])

    def markdown(self) -> str:
        lines = [self.columns, ["---"] * len(self.columns), *self.rows]
        return "\n".join([f"\n**{self.title}**\n", *("| " + " | ".join(map(shown, line)) + " |" for line in lines)])


def shown(value: Cell) -> str:
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def percentile(values: Sequence[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]
