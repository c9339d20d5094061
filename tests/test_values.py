"""Values keep what they say on every way through JSON; arguments are shown compact without being changed."""

from __future__ import annotations

import json
import math
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_blackboard.processor.drafts import arguments_text
from otel_blackboard.processor.values import (
    compact,
    content_bytes,
    parsed,
    plain,
    restore,
    sorted_keys,
    to_json,
    truth,
    whole_number,
)
from otel_blackboard.records import InvalidText

# ----------------------------------------------------------------------------------------------------- JSON as sent


NUMBERS = (
    "0",
    "-0",
    "1.0",
    "1.50",
    "1e5",
    "1E+2",
    "-2.5e-3",
    "12345678901234567890123",
    "1e400",
    "0.1000000000000000055",
)
SPACE = st.text(alphabet=" \t\r\n", max_size=2)
TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)


def _string_texts(text: str) -> list[str]:
    return [json.dumps(text, ensure_ascii=True), json.dumps(text, ensure_ascii=False)]


Tokens = list[str]
"""A JSON text as its tokens: what compact() must keep."""

_strings = TEXTS.flatmap(lambda text: st.sampled_from(_string_texts(text))).map(lambda text: [text])
_scalars = st.one_of(
    st.sampled_from(NUMBERS).map(lambda n: [n]), st.sampled_from(["true", "false", "null"]).map(lambda n: [n]), _strings
)


def _join(items: list[Tokens], opened: str, closed: str) -> Tokens:
    tokens = [opened]
    for place, item in enumerate(items):
        tokens += [",", *item] if place else item
    return [*tokens, closed]


_trees = st.recursive(
    _scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda items: _join(items, "[", "]")),
        st.lists(st.tuples(_strings, inner).map(lambda pair: [*pair[0], ":", *pair[1]]), max_size=4).map(
            lambda items: _join(items, "{", "}")
        ),
    ),
    max_leaves=12,
)


@given(_trees, st.data())
def test_compact_keeps_values_order_and_number_texts_and_drops_white_space(tokens: Tokens, data: st.DataObject) -> None:
    spaced = "".join(data.draw(SPACE) + token for token in tokens) + data.draw(SPACE)
    shown = compact(spaced)
    # Token by token: numbers as sent, strings saying the same, nothing between them, keys (repeated ones too) in order.
    expected = "".join(
        json.dumps(json.loads(token), ensure_ascii=False) if token[0] == '"' else token for token in tokens
    )
    assert shown == expected
    assert json.loads(shown) == json.loads(spaced)
    assert compact(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "", "hello", "{'a': 1}", "{\"a\": 1", "NaN", "[Infinity]", '{"a":NaN}', "01", '"tab\tinside"', "a\nb", "\u2028",
        "é", '{"a":1} trailing', "[" * 100_000, "None", "\x00",
    ],
)  # fmt: skip
def test_what_is_no_json_becomes_one_json_string(text: str) -> None:
    assert json.loads(compact(text)) == text


def test_a_number_of_any_length_is_json() -> None:
    digits = "9" * 5000
    assert compact(f'{{"n": {digits}}}') == f'{{"n":{digits}}}'
    assert sorted_keys(f'{{"n": {digits}}}') == sorted_keys(f'{{"n":{digits}}}')


def test_lone_surrogates_stay_escaped() -> None:
    shown = compact('{"a": "\\ud800", "b": "\\ud83d\\ude00"}')
    assert shown == '{"a":"\\ud800","b":"😀"}'
    shown.encode()


def test_arguments_are_shown_as_sent() -> None:
    assert arguments_text('{ "port" : "Brest", "day" : 2 }') == '{"port":"Brest","day":2}'
    assert arguments_text({"z": [1, 2.50], "a": "é b"}) == '{"z":[1,2.5],"a":"é b"}'
    assert arguments_text("no json") == '"no json"'
    assert arguments_text([]) == "[]"


@given(_trees)
def test_sameness_ignores_key_order_and_white_space(tokens: Tokens) -> None:
    text = "".join(tokens)
    assert sorted_keys(" ".join(tokens)) == sorted_keys(text)


def test_sameness_sees_every_difference_in_value() -> None:
    assert sorted_keys('{"a":1,"b":{"d":1,"c":2}}') == sorted_keys('{"b":{"c":2,"d":1},"a":1}')
    different = ['{"a":1}', '{"a":"1"}', '{"a":true}', '{"a":null}', '{"a":[1]}', "{}", "[]", '""', "no json"]
    assert len({sorted_keys(text) for text in different}) == len(different)


# ------------------------------------------------------------------------------------------------------------ tagging

KEYS = st.one_of(
    st.sampled_from(["$bytes", "$$bytes", "$$$bytes", "$double", "$$double", "$invalid", "$content", "$$content", "$", "$x",
                     "$duplicates", "bytes", ""]),
    TEXTS,
)  # fmt: skip
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), TEXTS, st.binary(max_size=8),
        st.sampled_from([InvalidText(b"\xff\xfe"), InvalidText(b""), math.nan, math.inf, -math.inf, -0.0]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=12,
)  # fmt: skip


def _same(one: Any, other: Any) -> bool:
    """Equal in value and type, keys in the same order, NaN equal to itself, -0.0 not equal to 0.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        both = math.isnan(one) and math.isnan(other)
        return both or (one == other and math.copysign(1, one) == math.copysign(1, other))
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(_same(one[key], other[key]) for key in one)
    return bool(one == other)


@given(VALUES)
def test_tagging_loses_nothing(value: Any) -> None:
    assert _same(restore(plain(value)), value)
    assert _same(restore(orjson.loads(to_json(value))), value)


@given(st.dictionaries(KEYS, VALUES, max_size=4))
def test_attributes_as_json_lose_nothing(attributes: dict[str, Any]) -> None:
    assert _same(restore(orjson.loads(to_json(attributes))), attributes)


@given(TEXTS, st.binary(max_size=20))
def test_content_leaves_as_the_bytes_received(text: str, data: bytes) -> None:
    assert content_bytes(text) == (text.encode(), "text")
    assert content_bytes(data) == (data, "bytes")
    assert content_bytes(InvalidText(data)) == (data, "not-text")


# ------------------------------------------------------------------------------------------------------------- counts


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (0, 0), (12, 12), ("12", 12), (12.0, 12), ("12.0", 12), ("1e3", 1000), (2**40, 2**40),
        (True, None), (-1, None), ("-1", None), (1.5, None), ("1.5", None), (2**40 + 1, None), (1e300, None), ("", None),
        ("nan", None), (math.nan, None), (math.inf, None), ("²", None), ("9" * 5000, None), ("twelve", None), (None, None),
        (b"12", None), ([12], None), ({"n": 12}, None),
    ],
)  # fmt: skip
def test_a_count_is_a_whole_number_or_unknown(value: Any, number: int | None) -> None:
    found = whole_number(value)
    assert found == number
    assert found is None or type(found) is int


@given(VALUES)
def test_no_value_upsets_the_readers_of_values(value: Any) -> None:
    number = whole_number(value)
    assert number is None or 0 <= number <= 2**40
    assert truth(value) in (True, False)
    parsed(value)


def test_json_text_inside_json_text_is_unwrapped_once() -> None:
    assert parsed('{"a":1}') == {"a": 1}
    assert parsed(json.dumps('{"a":1}')) == {"a": 1}
    assert parsed("plain") == "plain"
    assert parsed('{"a":') == '{"a":'
    assert parsed("12") == "12"
