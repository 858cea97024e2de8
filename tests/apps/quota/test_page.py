"""The page: well-formed, within its bounds, nobody's words as markup, and nothing from outside."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate.apps.quota.chart import HEIGHT, WIDTH, quota_chart, short
from sluicegate.apps.quota.dates import date_of
from sluicegate.apps.quota.page import CALLERS_MAX, page_of
from sluicegate.apps.quota.series import Caller
from sluicegate.command_line.charts import LABEL_TALL
from sluicegate.kernels.quota_tuning import QuotaProposal
from tests.apps.quota.months import MONDAY

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
WORST = "<script>alert('x')</script>&\"</svg>"


def caller(
    hours: list[int | None] | None = None,
    *,
    name: str = "shop",
    now: int | None = 100,
    new: int | None = 130,
    named: bool = True,
    refused_ru: int = 0,
) -> Caller:
    hours = [100] * (30 * 24) if hours is None else hours
    reason = "The usual peak is 100 <on> Monday."
    proposal = QuotaProposal(new, reason, 130, 100, 1.0, 1.0, 30, "Monday 00:00", 30, 0)
    return Caller(name, hours, refused_ru, now, named, proposal)


def drawn(one: Caller, first_day: int = MONDAY) -> ET.Element:
    return ET.fromstring(quota_chart(one, first_day))


def texts(picture: ET.Element, kind: str) -> list[tuple[str, float]]:
    return [
        (one.text or "", float(one.attrib["y"]))
        for one in picture.iter("text")
        if kind in one.attrib["class"].split()
    ]


def numbers(picture: ET.Element) -> list[tuple[float, float]]:
    """Every point that something is drawn at."""
    points: list[tuple[float, float]] = []
    for one in picture.iter():
        get = one.attrib.get
        if "points" in one.attrib:
            pairs = [pair.split(",") for pair in one.attrib["points"].split()]
            points += [(float(x), float(y)) for x, y in pairs]
        if "x1" in one.attrib:
            points += [(float(get("x1", "")), float(get("y1", "")))]
            points += [(float(get("x2", "")), float(get("y2", "")))]
        elif "x" in one.attrib:
            x, y = float(get("x", "")), float(get("y", ""))
            points += [(x, y), (x + float(get("width", "0")), y + float(get("height", "0")))]
    return points


HOURS = st.lists(st.one_of(st.none(), st.integers(0, 1 << 53)), min_size=48, max_size=48)
QUOTAS = st.one_of(st.none(), st.integers(1, 1 << 40))


@settings(max_examples=100, deadline=None)
@given(HOURS, QUOTAS, QUOTAS, st.integers(0, 40_000))
def test_any_month_is_drawn_within_the_picture(
    hours: list[int | None], now: int | None, new: int | None, first_day: int
) -> None:
    picture = drawn(caller(hours, now=now, new=new), first_day)
    for x, y in numbers(picture):
        assert math.isfinite(x)
        assert math.isfinite(y)
        assert 0 <= x <= WIDTH
        assert 0 <= y <= HEIGHT
    assert 2 <= len(texts(picture, "end")) <= 6
    heights = sorted(y for _, y in texts(picture, "label"))
    assert all(above + LABEL_TALL <= below + 0.11 for above, below in pairwise(heights))


def test_the_curve_is_as_high_as_its_numbers() -> None:
    picture = drawn(caller([0, 65, 130, *[0] * 45], now=None))
    ticks = dict(texts(picture, "end"))
    assert list(ticks) == ["0", "50", "100", "150"]
    floor, top = ticks["0"] - 4, ticks["150"] - 4
    (use,) = (one for one in picture.iter("polyline"))
    ys = [float(point.split(",")[1]) for point in use.attrib["points"].split()]
    for at, value in enumerate((0, 65, 130)):
        assert ys[2 * at] == ys[2 * at + 1]  # an hour lasts an hour
        assert ys[2 * at] == pytest.approx(floor + (top - floor) * value / 150, abs=0.1)
    (line,) = (one for one in picture.iter("line") if one.attrib["class"] == "new")
    assert float(line.attrib["y1"]) == pytest.approx(ys[4], abs=0.1)


def test_mondays_have_their_dates_and_weekends_their_shade() -> None:
    picture = drawn(caller())
    dates = [text for text, _ in texts(picture, "axis") if not text.isdecimal()]
    assert dates == [str(date_of(MONDAY + 7 * week)) for week in range(5)]
    assert dates[0] == "7 Oct"  # 7 October 2024 was a Monday
    shades = [one for one in picture.iter("rect") if one.attrib["class"] == "weekend"]
    assert len(shades) == 8
    day = (WIDTH - 64 - 144) / 30
    assert float(shades[0].attrib["x"]) == pytest.approx(64 + 5 * day, abs=0.1)


def test_a_gap_is_shown_as_one_and_breaks_the_curve() -> None:
    hours: list[int | None] = [5] * 720
    hours[48:72] = [None] * 24
    picture = drawn(caller(hours))
    (gap,) = (one for one in picture.iter("rect") if one.attrib["class"] == "unknown")
    assert float(gap.attrib["width"]) == pytest.approx((WIDTH - 64 - 144) / 30, abs=0.1)
    assert len(list(picture.iter("polyline"))) == 2


def test_the_lines_say_which_they_are() -> None:
    assert [text for text, _ in texts(drawn(caller()), "label")] == ["proposed 130", "now 100"]
    assert [text for text, _ in texts(drawn(caller(new=None)), "label")] == ["now 100"]
    assert not texts(drawn(caller(now=None, new=None)), "label")


def test_numbers_stay_short() -> None:
    assert [short(one) for one in (0, 999, 1_000, 9_999_999, 10_000_000, 12_345_678)] == [
        "0", "999", "1,000", "9,999,999", "10M", "12.35M",
    ]  # fmt: skip
    assert short(40_287_816_514) == "40.29G"
    assert short(1 << 40) == "1.1T"


def test_nobodys_name_becomes_markup() -> None:
    page = page_of([caller(name=WORST)], first_day=MONDAY, days=30)
    assert "<script" not in page
    assert page.count('role="img"') == 1
    assert "&lt;script&gt;alert(" in page
    assert "&lt;on&gt;" in page
    for picture in re.findall(r'<svg[^>]*role="img".*?</svg>', page, re.DOTALL):
        assert WORST in (ET.fromstring(picture).attrib["aria-label"])


def test_nothing_comes_from_outside() -> None:
    page = page_of([caller()], first_day=MONDAY, days=30)
    for foreign in ("://", "src=", "url(", "@import", "<link", "javascript"):
        assert foreign not in page


def test_the_page_says_what_changes_and_why_those_first_that_change() -> None:
    several = [
        caller(name="a stays", new=None, refused_ru=1_234),
        caller(name="b"),
        caller(name="c default", now=70, named=False),
        caller(name="d new", now=None),
        caller(name="e more", now=10),
        caller(name="f less", now=1_000),
    ]
    page = page_of(several, first_day=MONDAY, days=30)
    rows = [
        re.sub(r"<[^>]*>", " ", row).split()
        for row in re.findall(r"<tr>(<td.*?)</tr>", page, re.DOTALL)
    ]
    assert rows == [
        ["b", "100", "130", "+30%", "0"],
        ["c", "default", "70", "(default)", "130", "+86%", "0"],
        ["d", "new", "-", "130", "0"],
        ["e", "more", "10", "130", "x13", "0"],
        ["f", "less", "1,000", "130", "-87%", "0"],
        ["a", "stays", "100", "stays", "1,234"],
    ]
    assert "7 Oct to 5 Nov 2024, in UTC. 6 callers, of which 5 would have another quota." in page
    assert page.count("The usual peak is 100") == 6
    assert "1,234 RU were refused." in page
    for at in range(6):
        assert f'href="#c{at}"' in page
        assert f'<section id="c{at}">' in page


def test_a_page_has_a_bound() -> None:
    many = [caller([1] * 24, name=f"c{at:04}") for at in range(CALLERS_MAX + 2)]
    page = page_of(many, first_day=MONDAY, days=1)
    assert page.count('role="img"') == CALLERS_MAX
    assert "2 more callers not shown." in page
    assert f"{CALLERS_MAX + 2} callers" in page


@given(st.integers(0, 100_000))
def test_a_day_has_the_date_of_the_calendar(day: int) -> None:
    date = EPOCH + timedelta(days=day)
    assert date_of(day) == (date.year, date.month, date.day)
    assert str(date_of(day)) == f"{date.day} {date:%b}"
