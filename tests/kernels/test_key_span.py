"""Key span: the rows between two keys, by an oracle that counts them."""

from __future__ import annotations

import random

import pytest

from sluicegate.kernels.key_span import UNKNOWN, KeySpan

DRAW = random.Random(1)
KEYS = {
    "digits": [b"%06d" % at for at in range(0, 100_000, 7)],
    "prefixed": [b"user/%08d/name" % at for at in range(5_000)],
    "random": sorted(DRAW.randbytes(8) for _ in range(5_000)),
    "hex": sorted(DRAW.randbytes(8).hex().encode() for _ in range(5_000)),
}


def count(keys: list[bytes], begin: bytes, end: bytes | None) -> int:
    return sum(1 for key in keys if key >= begin and (end is None or key < end))


def scanned(keys: list[bytes]) -> KeySpan:
    span = KeySpan()
    for key in keys[::50]:
        span.write(key)
    for first in range(0, len(keys), len(keys) // 8):
        rows = keys[first : first + 90]
        span.scan(rows[0], rows[-1], [*rows[::11], rows[-1]], len(rows))
    return span


@pytest.mark.parametrize("name", KEYS)
def test_the_rows_of_a_range_are_estimated_within_a_factor_after_some_scans(name: str) -> None:
    keys = KEYS[name]
    span = scanned(keys)
    for begin, end in ((0, 1_000), (2_000, 2_500), (100, 4_900)):
        true = end - begin
        found = span.rows_between(keys[begin], keys[end])
        assert true / 4 <= found <= true * 4, (name, begin, end, found)


@pytest.mark.parametrize("name", ["digits", "prefixed"])
def test_what_is_evenly_spread_is_estimated_closely_from_writes_alone(name: str) -> None:
    keys, span = KEYS[name], KeySpan()
    for key in keys:
        span.write(key)
    assert span.rows_between(b"", None) == pytest.approx(len(keys), rel=0.35)
    middle = len(keys) // 2
    assert span.rows_between(keys[middle], None) == pytest.approx(middle, rel=0.5)


def test_a_range_of_one_row_is_one_row() -> None:
    keys = [b"%04d" % at for at in range(1_000)]
    span = scanned(keys)
    assert span.rows_between(b"0000", b"0001") == 1
    assert span.rows_between(b"0500", b"0501") == 1


def test_nothing_is_known_at_first_and_nothing_lies_outside() -> None:
    span = KeySpan()
    assert span.rows_between(b"a", b"b") == UNKNOWN
    span = scanned([b"%04d" % at for at in range(1_000)])
    assert span.rows_between(b"a", None) == 0
    assert span.rows_between(b"", b"!") == 0
    assert span.rows_between(b"0009", b"0003") == 0


def test_a_scan_that_found_nothing_tells_that_there_is_nothing() -> None:
    span = KeySpan()
    for at in (0, 9_999):
        span.write(b"%04d" % at)
    span.scan(b"0001", b"9998", [], 0)
    assert span.rows_between(b"2000", b"3000") == 0


def test_keys_that_were_written_again_are_counted_once() -> None:
    span = KeySpan()
    for at in range(20_000):
        span.write(b"%04d" % (at % 500))
    assert span.rows() == pytest.approx(500, rel=0.35)


def test_any_bytes_are_keys() -> None:
    draw, span = random.Random(3), KeySpan()
    for _ in range(2_000):
        keys = sorted(draw.randbytes(draw.randrange(40)) for _ in range(2))
        span.write(keys[0])
        span.scan(keys[0], draw.choice([keys[1], None]), keys, draw.randrange(9))
        assert span.rows_between(keys[0], keys[1]) >= UNKNOWN
