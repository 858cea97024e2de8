from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate import BadValue
from sluicegate.limits.glass.break_glass import ALL, OPENINGS_MAX, RATES_MAX, Opening
from sluicegate.limits.glass.page import (
    BREAK,
    END,
    MEND,
    PAGE_BYTES_MAX,
    AuditEntry,
    UnreadableLine,
    add_opening,
    history,
    read_line,
    read_page,
    remove_openings,
    write_line,
    write_page,
)
from sluicegate.wire.timestamps import utc_text

S = 1_000_000
NOW_US = 1_700_000_000 * S
DAY_US = 86_400 * S
ANN = Opening("a1", "login", ALL, NOW_US + 60 * S, NOW_US, "ann", "the rule is wrong")
BOB = Opening("b2", ALL, "tenant:ü", NOW_US + 90 * S, NOW_US, "bob", "their launch")


def changed(*path_and_value: Any) -> bytes:
    """Ann's page with one thing in it changed."""
    *path, value = path_and_value
    page = json.loads(write_page([ANN]))
    place = page
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return json.dumps(page).encode()


def test_a_page_is_read_as_it_was_written() -> None:
    assert read_page(write_page([ANN, BOB]), DAY_US) == (ANN, BOB)
    assert read_page(write_page([]), DAY_US) == ()
    assert read_page(b"", DAY_US) == ()


@pytest.mark.parametrize(
    "text",
    [
        b"OK",
        b"\xff\xfe",
        b"[" * 100_000,
        b"1" * 10_000,
        b"null",
        b"[]",
        b"{}",
        b" " * (PAGE_BYTES_MAX + 1),
        changed("format", "another"),
        changed("version", 2),
        changed("version", True),
        changed("openings", None),
        changed("openings", {}),
        changed("openings", ["*"]),
        changed("openings", [ANN._asdict()] * 2),
        changed("openings", [ANN._replace(id=f"n{n}")._asdict() for n in range(OPENINGS_MAX + 1)]),
        changed("openings", 0, {**ANN._asdict(), "opened_at_us": True, "until_us": 2 * S}),
        changed("openings", 0, "id", 7),
        changed("openings", 0, "rule", None),
        changed("openings", 0, "key", ["*"]),
        changed("openings", 0, "until_us", str(ANN.until_us)),
        changed("openings", 0, "until_us", float(ANN.until_us)),
        changed("openings", 0, "until_us", 1 << 60),
        changed("openings", 0, "until_us", NOW_US + DAY_US + 1),
        changed("openings", 0, "opened_at_us", -1),
        changed("openings", 0, "opened_at_us", True),
        changed("openings", 0, "by", ""),
        changed("openings", 0, "why", "a\nb"),
        changed("openings", 0, "more", 1),
        write_page([ANN, BOB])[:-1],
    ],
    ids=range(30),
)
def test_a_page_that_is_not_wholly_ours_is_not_believed_in_any_part(text: bytes) -> None:
    with pytest.raises(BadValue):
        read_page(text, DAY_US)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_page_or_an_error_that_says_what_is_wrong(text: bytes) -> None:
    message = ""
    try:
        read = read_page(text, DAY_US)
    except BadValue as error:
        read, message = (), str(error)
    assert read == ()
    assert len(message) < 1_000


@given(st.integers(0, 400), st.binary(min_size=1, max_size=3))
def test_a_damaged_page_never_has_an_opening_that_was_not_written(at: int, junk: bytes) -> None:
    text = write_page([ANN, BOB])
    try:
        read = read_page(text[:at] + junk + text[at + len(junk) :], DAY_US)
    except BadValue:
        return
    assert len(read) <= 2
    for one in read:
        assert one.until_us - one.opened_at_us <= DAY_US


def test_the_bound_on_the_length_of_an_opening_can_be_set() -> None:
    with pytest.raises(BadValue, match=r"from 1 to 59 seconds"):
        read_page(write_page([ANN]), 59 * S)


def test_a_new_opening_takes_the_place_of_those_that_have_ended() -> None:
    assert add_opening([ANN, BOB], ANN._replace(id="c3"), NOW_US + 60 * S) == (
        BOB,
        ANN._replace(id="c3"),
    )


def test_no_more_than_the_bound_stand_open_at_once() -> None:
    full = [ANN._replace(id=f"n{n}") for n in range(OPENINGS_MAX)]
    with pytest.raises(BadValue, match=f"{OPENINGS_MAX} may be open"):
        add_opening(full, BOB, NOW_US)
    assert add_opening(full, BOB, NOW_US + 60 * S) == (BOB,)


def test_overrides_leave_room_for_an_emergency() -> None:
    plan = BOB._replace(rate="5/hour")
    plans = [plan._replace(id=f"n{n}", key=f"tenant:{n}") for n in range(RATES_MAX)]
    with pytest.raises(BadValue, match=f"{RATES_MAX} overrides are in force"):
        add_opening(plans, plan, NOW_US)
    openings = tuple(plans)
    for number in range(OPENINGS_MAX - RATES_MAX):
        openings = add_opening(openings, ANN._replace(id=f"a{number}"), NOW_US)
    assert read_page(write_page(openings), DAY_US) == openings
    assert add_opening(plans, plans[7]._replace(id="again"), NOW_US)[-1].id == "again"
    large = [one._replace(key=f"{n}" * 1_000) for n, one in enumerate(plans, 1_000)]
    room = PAGE_BYTES_MAX * RATES_MAX // OPENINGS_MAX // len(write_page(large[:1]))
    with pytest.raises(BadValue, match="no room"):
        add_opening(large[: room + 10], plan, NOW_US)
    assert len(add_opening(large[: room + 10], ANN, NOW_US)) == room + 11


def test_rate_replaces_that_of_the_same_rule_and_key_alone() -> None:
    plan = BOB._replace(rate="5/hour")
    others = [
        BOB._replace(id="s"),
        plan._replace(id="r", rule="login"),
        plan._replace(id="k", key="x"),
    ]
    again = plan._replace(id="c3", rate="6/hour")
    assert add_opening([plan, *others], again, NOW_US) == (*others, again)


def test_opening_without_room_on_the_page_is_invalid() -> None:
    large = [ANN._replace(id=f"n{n}", key="ü" * 4_000) for n in range(140)]
    rows = PAGE_BYTES_MAX // len(write_page(large[:1]))
    with pytest.raises(BadValue, match="no room"):
        add_opening(large[:139], large[139], NOW_US)
    assert len(add_opening(large[: rows - 1], BOB, NOW_US)) == rows


def test_one_is_mended_by_its_id_and_all_without_one() -> None:
    assert remove_openings([ANN, BOB], "a1", NOW_US) == ((BOB,), (ANN,))
    assert remove_openings([ANN, BOB], None, NOW_US) == ((), (ANN, BOB))
    assert remove_openings([], None, NOW_US) == ((), ())


def test_what_has_ended_is_not_mended_any_more() -> None:
    with pytest.raises(BadValue, match="open is b2"):
        remove_openings([ANN, BOB], "a1", NOW_US + 60 * S)
    assert remove_openings([ANN, BOB], None, NOW_US + 60 * S) == ((), (BOB,))
    with pytest.raises(BadValue, match="open is nothing"):
        remove_openings([], "a1", NOW_US)


def test_text_that_no_page_can_hold_is_refused() -> None:
    with pytest.raises(BadValue, match="UTF-8"):
        write_page([ANN._replace(key="\udc80")])


# The audit.


def test_a_line_is_read_as_it_was_written() -> None:
    for entry in (
        AuditEntry(NOW_US, BREAK, "ann", "the rule is wrong", ANN),
        AuditEntry(NOW_US, MEND, "bob", "", BOB),
        AuditEntry(NOW_US, MEND, "bob", "", None),
    ):
        line = write_line(entry)
        assert b"\n" not in line
        assert read_line(line) == entry


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b"\xff\x1b[2J",
        write_line(AuditEntry(NOW_US, "end", "ann", "", ANN)),
        write_line(AuditEntry(NOW_US, BREAK, "ann", "", None)),
        write_line(AuditEntry(NOW_US, BREAK, "", "x", ANN)),
        write_line(AuditEntry(NOW_US, BREAK, "ann", "\x1b[2J", ANN)),
        write_line(AuditEntry(NOW_US, BREAK, "ann", "x", ANN._replace(by="\x1b"))),
        write_line(AuditEntry(-1, BREAK, "ann", "x", ANN)),
        write_line(AuditEntry(NOW_US, BREAK, "ann", "x", ANN)).replace(
            b'"version":1', b'"version":2'
        ),
        write_line(AuditEntry(NOW_US, BREAK, "ann", "x", ANN))[:-5],
    ],
    ids=range(11),
)
def test_a_line_that_is_none_of_ours_is_shown_as_unreadable_and_harmless(line: bytes) -> None:
    entry = read_line(line)
    assert isinstance(entry, UnreadableLine)
    assert entry.text.isprintable()
    assert entry.text.isascii()


def test_the_history_puts_natural_ends_where_they_belong() -> None:
    broke_ann = AuditEntry(NOW_US, BREAK, "ann", "x", ANN)
    broke_bob = AuditEntry(NOW_US + S, BREAK, "bob", "x", BOB)
    mended_bob = AuditEntry(NOW_US + 70 * S, MEND, "ann", "", BOB)
    ended_ann = AuditEntry(NOW_US + 60 * S, END, "", "its time was over", ANN)
    written: list[AuditEntry | UnreadableLine] = [broke_ann, broke_bob, mended_bob]
    assert history(written, NOW_US + 100 * S) == [broke_ann, broke_bob, ended_ann, mended_bob]
    assert history([broke_ann], NOW_US + 60 * S) == [broke_ann, ended_ann]
    assert history([broke_ann], NOW_US + 60 * S - 1) == [broke_ann]
    assert history([UnreadableLine("x"), mended_bob], NOW_US) == [UnreadableLine("x"), mended_bob]


@given(st.integers(0, 4_000_000_000))
def test_an_instant_reads_as_the_calendar_has_it(second: int) -> None:
    value = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    assert utc_text(second * S + 999_999) == value


@pytest.mark.parametrize(
    ("second", "value"),
    [
        (951_782_400, "2000-02-29 00:00:00 UTC"),
        (951_868_799, "2000-02-29 23:59:59 UTC"),
        (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        (1_735_689_599, "2024-12-31 23:59:59 UTC"),
        (0, "1970-01-01 00:00:00 UTC"),
    ],
)
def test_leap_days_and_years_ends_too(second: int, value: str) -> None:
    assert utc_text(second * S) == value
