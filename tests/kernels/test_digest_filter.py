"""Digest filter: it never forgets, errs as seldom as it says, and each time on others."""

from __future__ import annotations

from hashlib import sha256

import pytest

from sluicegate.kernels.digest_filter import DigestFilter


def digests(begin: int, end: int) -> list[bytes]:
    return [sha256(b"%d" % number).digest() for number in range(begin, end)]


@pytest.mark.parametrize("bits", [2.5, 5, 10, 16])
def test_what_was_put_in_is_always_there_and_mistakes_are_as_rare_as_it_says(bits: float) -> None:
    count = 4_000
    found = DigestFilter(int(count * bits / 8), b"salt")
    for digest in digests(0, count):
        found.add(digest)
    assert all(digest in found for digest in digests(0, count))
    mistakes = sum(digest in found for digest in digests(count, 3 * count)) / (2 * count)
    assert mistakes == pytest.approx(found.mistaken, rel=0.25, abs=0.002)


def test_another_salt_is_mistaken_about_others() -> None:
    kept = set(digests(4_000, 8_000))
    for salt in (b"one", b"two", b"three"):
        found = DigestFilter(2_500, salt)  # 5 bits for each
        for digest in digests(0, 4_000):
            found.add(digest)
        kept = {digest for digest in kept if digest in found}
    assert len(kept) < 4_000 * 0.1**3 * 4


def test_it_says_what_it_surely_had_not() -> None:
    found = DigestFilter(1_000, b"")
    assert found.add(b"a" * 32)
    assert not found.add(b"a" * 32)
    assert b"b" * 32 not in found


def test_its_bytes_are_bounded() -> None:
    with pytest.raises(ValueError, match="bytes_max"):
        DigestFilter(4, b"")
