"""JSON that was sent to us: a name that stands twice is told, however many names there are."""

from __future__ import annotations

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.wire.json_objects import VALUES_MAX, parse_json, parse_object


def test_the_first_name_that_stands_twice_is_told() -> None:
    with pytest.raises(BadValue, match="'b'"):
        parse_json(b'{"a": 1, "b": 2, "c": 3, "b": 4, "a": 5}')


def test_many_names_are_looked_at_once_each() -> None:
    # Two hundred thousand: looked for each among all, they would take hours.
    names = ",".join(f'"{number:x}":0' for number in range(200_000))
    with pytest.raises(BadValue, match="once in an object"):
        parse_json(f'{{{names},"last":0,"last":1}}'.encode(), values_max=None)


@pytest.mark.parametrize("text", [b"{", b"\xff", b"NaN", b"[" * 100_000, b'{"a": Infinity}'])
def test_what_is_not_json_names_what_it_was_to_be(text: bytes) -> None:
    with pytest.raises(BadValue, match="the plan"):
        parse_json(text, "the plan")


def test_an_object_is_wanted() -> None:
    assert parse_object('{"a": 1}') == {"a": 1}
    with pytest.raises(BadValue, match="send an object"):
        parse_object(b"[1]")


@pytest.mark.parametrize("value", ["{}", "[]", "1", '""', '"\\\\\\""', "null", '{"a":[]}'])
def test_what_has_too_many_values_is_refused_before_it_is_read(value: str) -> None:
    with pytest.raises(BadValue, match="values"):
        parse_json(f"[{','.join([value] * (VALUES_MAX + 1))}]")
    assert parse_json(f"[{','.join([value] * (VALUES_MAX // 4 - 1))}]")


@pytest.mark.parametrize("text", ["[{},", '\\"', "\\\\", "\\u007b", '\\\\\\",'])
def test_what_stands_in_a_string_is_one_value(text: str) -> None:
    long = text * VALUES_MAX
    assert len(str(parse_json(f'["{long}"]'))) > VALUES_MAX
