"""The schema is made by numbered statements; a start that is killed between any two of them is finished by the next one."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from clickhouse_connect.driver.client import Client

from otel_blackboard.exporter import clickhouse
from otel_blackboard.exporter.clickhouse import connect, migrate, migrations
from otel_blackboard.exporter.tables import TABLES
from otel_blackboard.service import Stores

_numbers = itertools.count()


class Killed(Exception):
    pass


class Dying:
    """A client that is gone after so many statements and inserts. Stands for a process that is killed there: what was done
    by then is done in the store, and nothing else of it is anywhere."""

    def __init__(self, client: Client, statements: int) -> None:
        self._client, self._left = client, statements

    def __getattr__(self, name: str) -> Any:
        act = getattr(self._client, name)
        if name not in ("command", "insert"):
            return act

        def counted(*args: Any, **more: Any) -> Any:
            if self._left == 0:
                raise Killed
            self._left -= 1
            return act(*args, **more)

        return counted


def new_database(stores: Stores) -> Client:
    name = f"migrated_{next(_numbers)}"
    stores.exporter._clients["read"].command(f"DROP DATABASE IF EXISTS {name}")
    stores.exporter._clients["read"].command(f"CREATE DATABASE {name} ENGINE = Atomic")
    return connect(stores.settings, database=name)


def schema(client: Client) -> dict[str, tuple[str, ...]]:
    sql = (
        "SELECT name, partition_key, sorting_key, "
        "(SELECT groupArray((name, type)) FROM system.columns WHERE database = currentDatabase() AND table = t.name), "
        "(SELECT groupArray((name, expr, type)) FROM system.data_skipping_indices "
        "WHERE database = currentDatabase() AND table = t.name) "
        "FROM system.tables AS t WHERE database = currentDatabase()"
    )
    return {row[0]: tuple(map(str, row[1:])) for row in client.query(sql).result_rows}


def test_a_schema_cut_short_between_any_two_statements_is_finished_by_the_next_start(stores: Stores) -> None:
    whole = new_database(stores)
    migrate(whole)
    expected = schema(whole)
    assert set(TABLES) <= set(expected)
    for statements in itertools.count():
        client = new_database(stores)
        try:
            migrate(Dying(client, statements))  # type: ignore[arg-type]
        except Killed:
            migrate(client)
            assert schema(client) == expected, f"after {statements} statements"
            applied = client.query("SELECT number FROM migrations ORDER BY number").result_rows
            assert [row[0] for row in applied] == [number for number, _, _ in migrations()]
            client.close()
        else:
            break
    assert statements > len(TABLES)


@pytest.mark.parametrize("number", [number for number, _, _ in migrations()][1:])
def test_a_migration_cut_short_between_any_two_statements_loses_no_row(
    stores: Stores, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = migrations()
    before = [each for each in every if each[0] < number]
    for statements in itertools.count():
        client = new_database(stores)
        monkeypatch.setattr(clickhouse, "migrations", lambda: before)
        migrate(client)
        tables = [name for name in TABLES if name in schema(client)]
        for name in tables:
            client.command(f"INSERT INTO {name} (organization_id, project_id) VALUES ('o', 'p')")
        monkeypatch.setattr(clickhouse, "migrations", lambda: every)
        try:
            migrate(Dying(client, statements))  # type: ignore[arg-type]
        except Killed:
            migrate(client)
            counts = [
                int(str(client.command(f"SELECT count() FROM (SELECT DISTINCT * FROM {name})"))) for name in tables
            ]
            assert counts == [1] * len(tables), f"after {statements} statements"
            client.close()
        else:
            break


def test_what_is_written_into_a_table_that_is_being_replaced_is_taken_along(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an insert of another worker that had begun before the tables changed places."""
    every = migrations()
    for statements in itertools.count():
        client = new_database(stores)
        monkeypatch.setattr(clickhouse, "migrations", lambda: every[:1])
        migrate(client)
        monkeypatch.setattr(clickhouse, "migrations", lambda: every)
        try:
            migrate(Dying(client, statements))  # type: ignore[arg-type]
        except Killed:
            replaced = "artifacts_by_day" in schema(client)
            if replaced:
                client.command("INSERT INTO artifacts_by_day (organization_id, project_id) VALUES ('o', 'late')")
            migrate(client)
            found = client.query("SELECT DISTINCT project_id FROM artifacts").result_rows
            assert list(found) == ([("late",)] if replaced else []), f"after {statements} statements"
            client.close()
        else:
            break
