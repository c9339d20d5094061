"""What is wrong with a store, in one line for logs: where and which kind of fault, the same each time.

Never the text of an error as it is: ClickHouse quotes data and statements in its own, urllib3 the URL with the parameters of
the query, and the key of a body names who sent it.
"""

from __future__ import annotations

from clickhouse_connect.driver.exceptions import ClickHouseError

from otel_blackboard.config import Settings
from otel_blackboard.exporter.bodies import BodyStoreError
from otel_blackboard.exporter.clickhouse import StoreError, in_words, where


def fault(settings: Settings, error: BaseException) -> str:
    """One line about an error of a store."""
    if isinstance(error, BodyStoreError):
        return error.fault
    if isinstance(error, StoreError):
        return str(error)
    if isinstance(error, ClickHouseError):
        return f"{where(settings)}: {in_words(error)}"
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return type(error).__name__
