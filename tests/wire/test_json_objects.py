"""JSON that was sent to us: a name that stands twice is told, however many names there are."""

from __future__ import annotations

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.wire.json_objects import parsed


def test_the_first_name_that_stands_twice_is_told() -> None:
    with pytest.raises(BadValue, match="'b'"):
        parsed(b'{"a": 1, "b": 2, "c": 3, "b": 4, "a": 5}')


def test_many_names_are_looked_at_once_each() -> None:
    # Two hundred thousand: looked for each among all, they would take hours.
    names = ",".join(f'"{number:x}":0' for number in range(200_000))
    with pytest.raises(BadValue, match="once in an object"):
        parsed(f'{{{names},"last":0,"last":1}}'.encode())
