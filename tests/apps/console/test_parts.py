"""The parts below the pages: history, live views, sessions; bounded each."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from sluicegate.apps.console.attempts import LoginAttempts
from sluicegate.apps.console.live import Live, PageView
from sluicegate.apps.console.pages import tables
from sluicegate.apps.console.pages.trouble import trouble
from sluicegate.apps.console.pages.why import AuditAnswer, why
from sluicegate.apps.console.picture import ClassFlow, FleetPicture, picture_of
from sluicegate.apps.console.readings import POINTS_MAX, TRENDS_MAX, FleetReadings
from sluicegate.apps.console.sessions import PERSON_SESSIONS_MAX, SESSIONS_MAX, Sessions
from sluicegate.contracts.access import Grant
from sluicegate.doors.binding import Address
from sluicegate.doors.connection import PeerInfo
from sluicegate.doors.http.message import HttpReply, HttpRequest
from sluicegate.doors.http.replies import ANSWER_TOO_SLOW, OUR_FAULT, TOO_MANY
from sluicegate.policies.access import Credential, KnownCallers, token_digest
from sluicegate.testing import HandClock
from tests.apps.console.states import START_US, dispatcher, looked

SECOND_US = 1_000_000
TOKEN = "a-long-enough-token"


def filled(seconds: int, readings_max: int = 10_000) -> FleetReadings:
    history = FleetReadings(readings_max)
    for at in range(seconds):
        flow = ClassFlow("CRITICAL", admitted=float(at))
        history.add(FleetPicture((at + 1) * SECOND_US, classes=(flow,)))
    return history


def test_a_curve_ends_now_and_begins_where_readings_do() -> None:
    curve = filled(10).curve(60, lambda one: one.admitted)
    assert len(curve) == 60
    assert curve[-10:] == [float(at) for at in range(10)]
    assert curve[:50] == [None] * 50


def test_points_that_share_a_place_are_averaged_or_the_worst_counts() -> None:
    history = filled(480)
    mean = history.curve(480, lambda one: one.admitted)
    worst = history.curve(480, lambda one: one.admitted, worst=True)
    assert len(mean) == POINTS_MAX
    assert (mean[-1], worst[-1]) == (478.5, 479.0)


def test_a_history_forgets_the_oldest() -> None:
    curve = filled(100, readings_max=10).curve(60, lambda one: one.admitted)
    assert [one for one in curve if one is not None] == [float(at) for at in range(90, 100)]


def test_a_view_is_rendered_once_a_round_for_all_and_not_at_all_for_nobody() -> None:
    rendered: list[PageView] = []
    parts = {"a": "1", "b": "1"}

    def render(view: PageView) -> Mapping[str, str]:
        rendered.append(view)
        return dict(parts)

    async def story() -> None:
        live = Live(render)
        view = PageView("overview", 300)
        live.notify()
        assert rendered == []
        browsers = [live.events(view) for _ in range(100)]
        for browser in browsers:
            assert event(await anext(browser)) == {"a": "1", "b": "1"}
        assert len(rendered) == 1
        parts["b"] = "2"
        nexts = [asyncio.ensure_future(anext(browser)) for browser in browsers[:99]]
        await asyncio.sleep(0)
        live.notify()
        for one in nexts:
            assert event(await one) == {"b": "2"}  # what has changed, no more
        assert len(rendered) == 2
        parts["a"] = "3"
        live.notify()
        # One that missed a round gets the whole.
        assert event(await anext(browsers[99])) == {"a": "3", "b": "2"}
        for browser in browsers:
            await browser.aclose()

    asyncio.run(story())


def event(data: bytes) -> dict[str, str]:
    assert data.startswith(b"data: ")
    assert data.endswith(b"\n\n")
    found: dict[str, str] = json.loads(data[6:])
    return found


def callers(*tokens: str) -> KnownCallers:
    grants = frozenset({Grant.AUDIT})
    return KnownCallers(
        [Credential(f"caller{at}", grants, token_digest(one)) for at, one in enumerate(tokens)]
    )


def cookie_of(set_cookie: bytes | None) -> bytes:
    assert set_cookie is not None
    return set_cookie.partition(b";")[0]


def test_a_session_is_a_token_for_a_while() -> None:
    sessions = Sessions(callers(TOKEN).by_token, 60, tls=False)
    assert sessions.begin("another-long-token", 0) is None
    cookie = cookie_of(sessions.begin(TOKEN, 0))
    assert TOKEN.encode() not in cookie
    found = sessions.find(cookie, 59 * SECOND_US)
    assert found is not None
    assert found.name == "caller0"
    assert sessions.find(cookie, 60 * SECOND_US) is None
    assert sessions.find(cookie, 0) is None  # it is forgotten, whatever the clock does


def test_a_cookie_is_for_our_pages_alone() -> None:
    plain = Sessions(callers(TOKEN).by_token, 60, tls=False).begin(TOKEN, 0) or b""
    secure = Sessions(callers(TOKEN).by_token, 60, tls=True).begin(TOKEN, 0) or b""
    for cookie in (plain, secure):
        assert b"; HttpOnly; SameSite=Strict" in cookie
    assert b"; Secure" not in plain
    assert secure.startswith(b"__Host-")
    assert secure.endswith(b"; Secure")


def test_a_token_that_is_withdrawn_ends_its_sessions() -> None:
    class Changing:
        anonymous = None
        inner = callers(TOKEN)

        def by_token(self, token: str) -> object:
            return self.inner.by_token(token)

    access = Changing()
    sessions = Sessions(access.by_token, 60, tls=False)
    cookie = cookie_of(sessions.begin(TOKEN, 0))
    access.inner = callers("the-only-token-now")
    assert sessions.find(cookie, 0) is None


def test_logging_out_ends_one_session() -> None:
    sessions = Sessions(callers(TOKEN).by_token, 60, tls=False)
    one, other = (cookie_of(sessions.begin(TOKEN, 0)) for _ in range(2))
    assert b"Max-Age=0" in sessions.end(one)
    assert sessions.find(one, 0) is None
    assert sessions.find(other, 0) is not None


def test_sessions_of_one_person_end_no_other_session() -> None:
    sessions: Sessions[str] = Sessions(lambda token: token, 60, tls=False)
    others = [cookie_of(sessions.begin(f"person {n}", 0)) for n in range(3)]
    first = cookie_of(sessions.begin("ann", 0))
    for _ in range(PERSON_SESSIONS_MAX):
        last = cookie_of(sessions.begin("ann", 0))
    assert sessions.find(first, 0) is None
    assert sessions.find(last, 0) == "ann"
    for _ in range(SESSIONS_MAX):
        sessions.begin("ann", 0)
    assert all(sessions.find(one, 0) for one in others)


def test_full_sessions_end_one_of_who_has_most() -> None:
    sessions: Sessions[str] = Sessions(lambda token: token, 60, tls=False)
    ann = [cookie_of(sessions.begin("ann", 0)) for _ in range(2)]
    others = [cookie_of(sessions.begin(f"person {n}", 0)) for n in range(SESSIONS_MAX - 2)]
    last = cookie_of(sessions.begin("eve", 0))
    assert [sessions.find(one, 0) for one in ann] == [None, "ann"]
    assert all(sessions.find(one, 0) for one in (*others, last))


def request_from(address: str) -> HttpRequest:
    peer = PeerInfo(address, 1, Address("127.0.0.1", 7050))
    return HttpRequest("POST", "/login", b"", [], peer)


def test_failed_logins_of_one_address_are_limited_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    attempts = LoginAttempts(HandClock())
    eve, ann = request_from("10.0.0.1"), request_from("10.0.0.2")
    caplog.set_level("INFO", "sluicegate.console")
    for _ in range(30):
        assert attempts.rejected(eve) == 0
        attempts.failed(eve, "token", "unknown\ntoken")
    assert attempts.rejected(eve) == 2
    assert attempts.rejected(ann) == 0
    attempts.succeeded(ann, "token", "ann")
    attempts.ended(ann, "ann")
    lines = [one.getMessage() for one in caplog.records]
    assert lines[29:] == [
        "login failed: by token, from 10.0.0.1: unknown\\ntoken",
        "login: 'ann' by token, from 10.0.0.2",
        "logout: 'ann', from 10.0.0.2",
    ]


def test_odd_cookies_belong_to_no_session() -> None:
    sessions = Sessions(callers(TOKEN).by_token, 60, tls=False)
    for odd in (b"", b"sluicegate", b"sluicegate=", b"\xff=\x00", b"a" * 10_000):
        assert sessions.find(odd, 0) is None


def test_callers_are_shown_with_their_quota_and_their_last_hour() -> None:
    def state(at_s: float, mru: int) -> dict[str, Any]:
        caller = {"caller": "ann", "mru": mru, "admitted": 0, "refused": 0, "quota_ru": 100}
        return dispatcher(at_s, callers=[caller, caller | {"caller": "bob", "quota_ru": 0}])

    readings, spent = FleetReadings(10), 0
    for minute, ru_a_second in enumerate((10, 50, 95)):
        before, spent = spent, spent + ru_a_second * 1_000
        at_s = 60.0 * minute
        node = looked(state(at_s, before), state(at_s + 1, spent))
        picture = picture_of([node], START_US + round(at_s * SECOND_US))
        readings.add(picture)
    assert [round(ru) for ru in readings.trend("ann")] == [10, 50, 95]
    page = tables.callers(picture, readings)["callers"]
    assert '<td class="number bad">95%</td>' in page  # next to nothing of it is left
    assert page.count('<td class="number">-</td>') == 2  # no quota, so no share of it
    assert page.count('class="spark"') == 2


def hour_of(*asked: tuple[float, float], quota_ru: int = 100) -> str:
    """The callers' page after minutes of so many units a second, spent and refused."""
    readings = FleetReadings(10)
    picture = FleetPicture(0)
    for minute, (ru, refused_ru) in enumerate(asked):
        one = {"caller": "a&b", "ru": ru, "refused_ru": refused_ru, "quota_ru": quota_ru}
        counts = {"admitted": 1.0, "refused": float(refused_ru > 0)}
        picture = FleetPicture(minute * 60 * SECOND_US, dispatchers={"callers": [one | counts]})
        readings.add(picture)
    return tables.callers(picture, readings, may_change=True)["callers"]


def test_a_quota_is_proposed_that_would_have_done_for_what_was_asked_in_the_last_hour() -> None:
    page = hour_of((90, 0), (100, 540), (60, 0))
    assert '<a href="/changes/quota?caller=a%26b&amp;ru=832">832</a>' in page
    assert "up to 640 a second, 6.4 times its quota, and 68% was refused" in page
    assert "with 30% headroom that makes 832." in page


@pytest.mark.parametrize("asked", [[(130.0, 0.0)], [(1.0, 0.0)] * 60, [(50.0, 50.0)]])
def test_nothing_is_proposed_where_the_quota_is_enough(asked: list[tuple[float, float]]) -> None:
    """Not less either; and what was refused for another reason is no reason for more."""
    assert "/changes/quota" not in hour_of(*asked)


def test_what_was_asked_before_the_last_hour_is_no_reason_and_nor_is_no_quota() -> None:
    assert "/changes/quota" not in hour_of((100, 800), *[(10.0, 0.0)] * 60)
    assert "/changes/quota" in hour_of((100, 800), *[(10.0, 0.0)] * 59)
    assert "/changes/quota" not in hour_of((100, 800), quota_ru=0)


@pytest.mark.parametrize(
    ("allowed", "said"),
    [
        ([False, False], "Remembered about ann: 2 refused (shed 2)."),  # as dispatchers remember
        ([False, True], "Remembered about ann: 1 refused (shed 1), 1 admitted."),
        ([True], "Remembered about ann: none refused, 1 admitted."),
    ],
)
def test_what_is_remembered_is_summed_up_and_what_is_not_is_no_zero(
    allowed: list[bool], said: str
) -> None:
    decisions = [
        {"allowed": one, "reason": "" if one else "shed", "last_us": START_US} for one in allowed
    ]
    assert said in why("ann", [AuditAnswer("http://a", decisions)], START_US)["summary"]


def test_the_hours_of_callers_that_are_gone_are_forgotten() -> None:
    readings = FleetReadings(10)
    for minute in range(3):
        names = [f"{minute}-{n}" for n in range(TRENDS_MAX)]
        dispatchers = {"callers": [{"caller": name, "ru": 1.0} for name in names]}
        readings.add(FleetPicture(minute * 60 * SECOND_US, dispatchers=dispatchers))
    assert readings.trend("0-0") == []
    assert readings.trend("2-0") == [1.0]


@pytest.mark.parametrize("reply", [OUR_FAULT, ANSWER_TOO_SLOW, TOO_MANY], ids=["500", "504", "503"])
def test_what_failed_here_is_a_page_that_says_what_to_do(reply: HttpReply) -> None:
    page = trouble(json.loads(reply.body), "/nodes", who="ann")
    assert "ry again" in page
    assert "Log out ann" in page
