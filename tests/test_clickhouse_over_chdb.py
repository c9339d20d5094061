"""The front over chDB is good enough for what the service asks of a ClickHouse server through clickhouse-connect."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import clickhouse_connect
import pytest
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import DatabaseError, OperationalError

from tests.servers.clickhouse_over_chdb import clickhouse_over_chdb

TABLE = """
CREATE TABLE spans (
    organization LowCardinality(String),
    id String,
    version UInt256,
    frames Array(Tuple(object String, offset UInt64, length UInt64)),
    cost Nullable(Decimal(38, 18)),
    tokens Nullable(UInt64),
    start DateTime64(9, 'UTC'),
    raw_start UInt64
) ENGINE = ReplacingMergeTree(version) ORDER BY (organization, id)
"""
COLUMNS = ["organization", "id", "version", "frames", "cost", "tokens", "start", "raw_start"]
START = 1_790_000_000_123_456_789


@pytest.fixture(scope="module")
def dsn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with clickhouse_over_chdb(tmp_path_factory.mktemp("clickhouse")) as dsn:
        yield dsn


@pytest.fixture
def database(dsn: str, request: pytest.FixtureRequest) -> Iterator[str]:
    name = "".join(c if c.isalnum() else "_" for c in request.node.name)
    client = clickhouse_connect.get_client(dsn=dsn)
    client.command(f"CREATE DATABASE {name} ENGINE = Atomic")
    yield name
    client.command(f"DROP DATABASE {name}")
    client.close()


@pytest.fixture
def client(dsn: str, database: str) -> Iterator[Client]:
    client = clickhouse_connect.get_client(dsn=dsn, database=database)
    client.command(TABLE)
    yield client
    client.close()


def row(id: str, version: int = 1, **values: Any) -> list[Any]:
    start = datetime.fromtimestamp(START // 10**9, UTC)
    frames = [("a/b.pack", 0, 10), ("a/c.pack", 2**40, 7)]
    default = {"frames": frames, "cost": Decimal("0.000000000000000001"), "tokens": 12, "start": start}
    merged = {"organization": "acme", "id": id, "version": version, **default, "raw_start": START, **values}
    return [merged[name] for name in COLUMNS]


def insert(client: Client, *rows: list[Any], **arguments: Any) -> Any:
    columns = [list(column) for column in zip(*rows, strict=True)]
    return client.insert("spans", columns, column_names=COLUMNS, column_oriented=True, **arguments)


@pytest.mark.parametrize("compress", ["lz4", "zstd", "gzip", False])
def test_rows_come_back_as_they_were_inserted_in_every_compression(
    dsn: str, database: str, compress: str | bool
) -> None:
    client = clickhouse_connect.get_client(dsn=dsn, database=database, compress=compress)
    client.command(TABLE)
    large = [row(f"id-{n:05}", version=2**255 + n) for n in range(3000)]
    empty = row("empty", frames=[], cost=None, tokens=None)
    summary = insert(client, *large, empty)
    assert summary.written_rows == 3001
    result = client.query("SELECT * FROM spans ORDER BY id", tz_mode="aware")
    assert result.column_names == tuple(COLUMNS)
    named = ("object", "offset", "length")  # a named tuple is read as a dict
    expected = [[*r[:3], [dict(zip(named, frame, strict=True)) for frame in r[3]], *r[4:]] for r in [empty, *large]]
    assert [list(got) for got in result.result_rows] == expected
    client.close()


def test_nanoseconds_are_kept(client: Client) -> None:
    insert(client, row("a"))
    client.command("ALTER TABLE spans UPDATE start = fromUnixTimestamp64Nano(raw_start, 'UTC') WHERE 1")
    assert client.query("SELECT toUnixTimestamp64Nano(start), raw_start FROM spans").result_rows == [(START, START)]


def test_final_shows_the_highest_version_whatever_came_last(client: Client) -> None:
    insert(client, row("a", version=2**200, tokens=2))
    insert(client, row("a", version=3, tokens=1))
    assert client.query("SELECT tokens FROM spans FINAL").result_rows == [(2,)]
    assert client.query("SELECT count() FROM spans").result_rows == [(2,)]


@pytest.mark.parametrize(
    "value", ["plain", "it's", 'a "quote"', "back\\slash", "tab\tand\nline", "{id:String}", "é 漢 🎉", ""]
)
def test_parameters_are_values_and_never_sql(client: Client, value: str) -> None:
    insert(client, row(value), row("other"))
    query = "SELECT id FROM spans WHERE id = {id:String} AND organization IN {organizations:Array(String)}"
    found = client.query(query, parameters={"id": value, "organizations": ["acme", value]})
    assert found.result_rows == [(value,)]
    found = client.query("SELECT id FROM spans WHERE id IN {ids:Array(String)}", parameters={"ids": [value]})
    assert found.result_rows == [(value,)]


def test_large_parameters_come_as_a_form(client: Client, dsn: str, database: str) -> None:
    form = clickhouse_connect.get_client(dsn=dsn, database=database, form_encode_query_params=True)
    insert(client, row("id-7"))
    sql, ids = "SELECT id FROM spans WHERE id IN {ids:Array(String)}", [f"id-{n}" for n in range(10_000)]
    assert form.query(sql, parameters={"ids": ids}).result_rows == [("id-7",)]
    with pytest.raises(DatabaseError, match="Field value too long"):
        form.query(sql, parameters={"ids": ids * 2})
    form.close()


def test_an_empty_result_has_its_columns(client: Client) -> None:
    assert client.query("SELECT id FROM spans WHERE 0").result_rows == []
    assert client.query("SELECT id, version FROM spans LIMIT 0").column_names == ("id", "version")


def test_commands_tell_results_from_statements(client: Client) -> None:
    assert client.command("SELECT 5") == 5
    assert client.command("SELECT id FROM spans") == ""
    assert not isinstance(client.command("OPTIMIZE TABLE spans FINAL"), str)


def test_raw_queries_and_raw_inserts_take_any_format(client: Client) -> None:
    client.raw_insert("spans", ["id", "raw_start"], b'{"id": "json", "raw_start": 5}\n', fmt="JSONEachRow")
    client.command("INSERT INTO spans (id, raw_start) VALUES ('values', 6)")
    assert (
        client.raw_query("SELECT id, raw_start FROM spans ORDER BY raw_start", fmt="CSV") == b'"json",5\n"values",6\n'
    )


def test_a_database_that_is_named_in_the_request_is_used(client: Client, dsn: str) -> None:
    other = clickhouse_connect.get_client(dsn=dsn)
    with pytest.raises(DatabaseError):
        other.query("SELECT count() FROM spans")
    assert client.query("SELECT count() FROM spans").result_rows == [(0,)]
    with pytest.raises(DatabaseError) as caught:
        clickhouse_connect.get_client(dsn=dsn, database="nowhere").query("SELECT 1")
    assert caught.value.code == 81
    other.close()


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("SELECT nothing FROM spans", 47),
        ("SELECT * FROM nowhere", 60),
        ("SELEC 1", 62),
        ("SELECT throwIf(1)", 395),
        ("SELECT {missing:String}", 456),
        ("SELECT sleep(3) SETTINGS max_execution_time = 1", 159),
    ],
)
def test_errors_carry_the_code(client: Client, query: str, code: int) -> None:
    with pytest.raises(DatabaseError) as caught:
        client.query(query)
    assert caught.value.code == code
    assert f"Code: {code}." in str(caught.value)
    assert client.query("SELECT 1").result_rows == [(1,)]


def test_a_block_that_cannot_be_read_inserts_nothing(client: Client) -> None:
    with pytest.raises(DatabaseError):
        client.raw_insert("spans", ["id"], b"no native block", fmt="Native")
    assert client.query("SELECT count() FROM spans").result_rows == [(0,)]


def test_settings_hold_for_their_request_only(client: Client) -> None:
    query = "SELECT getSetting('max_result_rows')"
    assert client.query(query, settings={"max_result_rows": 7}).result_rows == [(7,)]
    assert client.query(query).result_rows == [(0,)]
    with pytest.raises(DatabaseError) as caught:
        client.query("SELECT number FROM numbers(100)", settings={"max_result_rows": 7})
    assert caught.value.code == 396


def test_a_read_only_client_cannot_write(client: Client, dsn: str, database: str) -> None:
    reader = clickhouse_connect.get_client(dsn=dsn, database=database, settings={"readonly": 1})
    assert reader.query("SELECT count() FROM spans").result_rows == [(0,)]
    with pytest.raises(DatabaseError) as caught:
        reader.command("TRUNCATE TABLE spans")
    assert caught.value.code == 164
    insert(client, row("a"))
    reader.close()


def test_without_sessions_nothing_stays_behind(dsn: str, database: str) -> None:
    client = clickhouse_connect.get_client(dsn=dsn, database=database, autogenerate_session_id=False)
    client.command("SET max_result_rows = 3")
    for _ in range(3):
        assert client.query("SELECT getSetting('max_result_rows')").result_rows == [(0,)]
    client.close()


@pytest.mark.parametrize("sessions", [True, False])
def test_four_clients_write_and_read_at_once(dsn: str, client: Client, database: str, sessions: bool) -> None:
    barrier = threading.Barrier(4)

    def work(number: int) -> int:
        mine = clickhouse_connect.get_client(dsn=dsn, database=database, autogenerate_session_id=sessions)
        barrier.wait()
        for block in range(10):
            insert(mine, *[row(f"{number}-{block}-{n}") for n in range(50)])
            query = "SELECT count() FROM spans FINAL WHERE startsWith(id, {prefix:String})"
            assert mine.query(query, parameters={"prefix": f"{number}-"}).result_rows == [((block + 1) * 50,)]
        mine.close()
        return number

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(work, range(4))) == [0, 1, 2, 3]
    assert client.query("SELECT count() FROM spans").result_rows == [(2000,)]


@pytest.mark.parametrize("encoding", ["lz4", "zstd", "gzip", "deflate"])
def test_answers_are_compressed_as_asked(dsn: str, encoding: str) -> None:
    address = dsn.replace("clickhouse://default:@", "http://")
    query = f"{address}/?enable_http_compression=1&query=SELECT%20number%20FROM%20numbers(10000)"
    request = urllib.request.Request(query, headers={"Accept-Encoding": f"snappy, {encoding}"})
    with urllib.request.urlopen(request) as response:
        assert response.headers["Content-Encoding"] == encoding
        assert len(response.read()) < 45_000


def test_a_get_cannot_write(dsn: str) -> None:
    address = dsn.replace("clickhouse://default:@", "http://")
    with urllib.request.urlopen(f"{address}/?query=SELECT%201") as response:
        assert response.read() == b"1\n"
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{address}/?query=CREATE%20DATABASE%20x")
    assert caught.value.headers["X-ClickHouse-Exception-Code"] == "164"


def test_data_outlive_the_process_and_an_outage_is_an_operational_error(tmp_path: Path) -> None:
    with clickhouse_over_chdb(tmp_path, password="p@ss/word") as dsn:
        port = int(dsn.rpartition(":")[2])
        client = clickhouse_connect.get_client(dsn=dsn)
        client.command("CREATE DATABASE d ENGINE = Atomic")
        client.command("CREATE TABLE d.t (n UInt8) ENGINE = MergeTree ORDER BY n")
        client.insert("d.t", [[1], [2]], column_names=["n"])
        with pytest.raises(DatabaseError) as refused:
            clickhouse_connect.get_client(dsn=f"clickhouse://default:wrong@127.0.0.1:{port}")
        assert refused.value.code == 516
    with pytest.raises(OperationalError):
        client.query("SELECT 1")
    with clickhouse_over_chdb(tmp_path, port=port, password="p@ss/word"):
        assert client.query("SELECT sum(n) FROM d.t").result_rows == [(3,)]
    client.close()
