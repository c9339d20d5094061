"""A dialect made up for a test, beside those that there are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from otel_blackboard.processor import precedence, reading
from otel_blackboard.processor.dialects import BY_FIELD, BY_ROLE, Dialect


@contextmanager
def speaking(*dialects: Dialect) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        by_role, by_field = (*BY_ROLE[:1], *dialects, *BY_ROLE[1:]), (*BY_FIELD, *dialects)
        patch.setattr(precedence, "BY_ROLE", by_role)
        for module in (precedence, reading):
            patch.setattr(module, "BY_FIELD", by_field)
        precedence._known_shape.cache_clear()
        yield
    precedence._known_shape.cache_clear()
