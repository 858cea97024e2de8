"""Rules are changed from the console, by people in their own names, at a real rulebook."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from sluicegate.apps.console.changes import story_of
from sluicegate.apps.console.pages.changes import rule_history
from sluicegate.apps.console.pages.editor import RULE_FIELDS
from sluicegate.contracts.access import Identity
from sluicegate.contracts.rule_admin import Operation, RuleAdmin
from sluicegate.policies.access import token_digest
from sluicegate.rules.row_fields import FIELDS
from tests.apps.console.changing import (
    ANN,
    BOB,
    EVE,
    FIVE,
    TEN,
    Changing,
    Person,
    capture_traffic,
    new_rulebook,
    started_changing,
)
from tests.apps.console.process import HOSTILE, ConsoleProcess
from tests.apps.console.provider import console_at, log_in, provider
from tests.apps.limiter.process import LimiterProcess, rules_file
from tests.apps.rulebook.stories import Book
from tests.apps.rulebook.test_fleet import people, server
from tests.engines.child import until

CONSOLE = "console-0123456789abcdef"
EDIT = "/changes/edit?file=rules.yaml"


@pytest.fixture(scope="module")
def changing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Changing]:
    folder = tmp_path_factory.mktemp("changes")
    with started_changing(folder, "--glass", f"file:{folder}/glass.json") as started:
        yield started


@pytest.fixture
def changing_alone(tmp_path: Path) -> Iterator[Changing]:
    """One whose releases have known numbers."""
    with started_changing(tmp_path) as started:
        yield started


def base_in(page: str) -> str:
    return page.partition('name="base" value="')[2].partition('"')[0]


def proposed(person: Person, text: str, message: str) -> str:
    """Where the proposal of a text is shown."""
    fields = {"file": "rules.yaml", "text": text, "base": base_in(person.get(EDIT))}
    status, place, page = person.send("/changes/propose", {**fields, "message": message}, at=EDIT)
    assert status == 303, page[-2_000:]
    return place


def act(person: Person, place: str, what: str, **fields: str) -> tuple[int, str, str]:
    """Press a button of a proposal's page."""
    given = {"id": place.partition("id=")[2], "what": what, **fields}
    return person.send("/changes/act", given, at=place)


def test_a_proposed_quota_opens_the_editor_with_it_and_can_be_proposed(tmp_path: Path) -> None:
    rules = "version: 1\ncallers:\n  quotas:\n    shop: 100/s  # agreed\n"
    with started_changing(tmp_path, rules=rules) as started:
        ann = Person(started.console, ANN)
        place = "/changes/quota?caller=shop&ru=832"
        page = ann.get(place)
        assert "shop: 832/s  # agreed" in page
        assert 'value="Set the quota of shop to 832 RU a second"' in page
        text, fields = rules.replace("100/s", "832/s"), {"file": "rules.yaml"}
        sent = {**fields, "text": text, "base": base_in(page), "message": "More for shop"}
        assert ann.send("/changes/propose", sent, at=place)[0] == 303
        assert "new: 7/s" in ann.get("/changes/quota?caller=new&ru=7")
        for wrong in ("caller=shop&ru=0", "caller=shop&ru=x", "caller=shop"):
            assert ann.ask("GET", f"/changes/quota?{wrong}")[0] == 400


def test_a_change_is_edited_approved_by_another_tried_widened_and_taken_back(
    changing_alone: Changing,
) -> None:
    changing = changing_alone
    ann, bob = Person(changing.console, ANN), Person(changing.console, BOB)
    place = proposed(ann, FIVE.replace("limit: 5", "limit: 7"), f"Seven {HOSTILE}")
    page = ann.get(place)
    assert "not judged" in page
    assert "limit: 7" in page
    assert HOSTILE not in page
    status, _, page = act(ann, place, "approve", override="mine")
    assert status == 403
    assert "ann may not do this; it takes the grant" in page
    assert act(bob, place, "approve", override="nothing captured yet")[0] == 303
    assert act(bob, place, "canary", share="500")[0] == 303
    page = bob.get(place)
    assert "is on trial for 5% of callers" in page
    assert "5%" not in page.partition("<select")[2].partition("</select")[0].replace("25%", "")
    assert act(bob, place, "canary", share="0")[0] == 303
    assert "rolled back" in bob.get(place)
    second = proposed(ann, FIVE.replace("limit: 5", "limit: 8"), "Eight")
    assert act(bob, second, "approve", override="still nothing captured")[0] == 303
    assert act(bob, second, "publish")[0] == 303
    history = bob.get("/changes/history")
    assert "Eight" in history
    assert "Roll back to 1" in history
    story = bob.get("/changes/rule?rule=play").partition("<main>")[2]
    assert "changed" in story
    assert "Eight" in story
    assert "Releases 1 to 3 have not changed it." in bob.get("/changes/rule?rule=other")
    assert "Releases 1 to 2" in bob.get("/changes/rule?rule=play&before=3")
    assert bob.ask("GET", "/changes/rule?rule=play&before=-1")[0] == 400
    fields = {"to": "1", "reason": "too many"}
    assert bob.send("/changes/rollback", fields, at="/changes/history")[0] == 303
    history = bob.get("/changes/history")
    assert "too many" in history
    assert "ann" in history
    assert "was refused approve" in history


class ManyReleases(RuleAdmin):
    """A rulebook of 45 releases, every tenth of which changed the rule."""

    def __init__(self) -> None:
        self.compared = 0

    def call(self, operation: Operation, arguments: Mapping[str, Any], *, by: Identity) -> Any:
        if operation.name == "diff":
            self.compared += 1
            tenth = int(arguments["after"]) % 10 == 0
            return {"rules": {"changed": ["play"] if tenth else []}}
        before = arguments["before"] or 46
        found = range(before - 1, 0, -1)[: arguments["count_max"]]
        return [{"version": at, "before": f"{at - 1}", "commit": f"{at}"} for at in found]


def test_the_story_of_a_rule_goes_back_page_by_page_and_forth_again() -> None:
    admin = ManyReleases()
    latest = story_of(admin, "play", 0)
    assert [one["version"] for _, one in latest.found] == [40, 30]
    assert (latest.older, latest.newer, admin.compared) == (26, 0, 20)
    middle = story_of(admin, "play", latest.older)
    assert [one["version"] for _, one in middle.found] == [20, 10]
    assert (middle.compared[0], middle.compared[-1], middle.newer) == (25, 6, 46)
    assert story_of(admin, "play", middle.newer).compared == latest.compared
    oldest = story_of(admin, "play", middle.older)
    assert (oldest.compared, oldest.older) == ([5, 4, 3, 2, 1], 0)
    assert story_of(admin, "play", oldest.newer).compared == middle.compared
    nothing = story_of(admin, "play", 1)
    assert (nothing.compared, nothing.older, nothing.newer) == ([], 0, 0)
    shown = rule_history(middle._replace(name=HOSTILE), 0)
    assert 'before=6">Older releases' in shown["releases"]
    assert 'before=46">Newer releases' in shown["releases"]
    assert "<script" not in "".join(shown.values())


CONSOLES = f"""
[[callers]]
name = "console"
token_sha256 = "{token_digest(CONSOLE)}"
grants = ["speak-for"]
[[callers]]
name = "ann@shop.example"
login = true
grants = ["read-rules", "propose"]
[[callers]]
name = "joe@shop.example"
login = true
grants = ["read-rules", "approve"]
"""


def test_who_logs_in_at_a_provider_changes_rules_by_their_own_name_and_grants(
    tmp_path: Path,
) -> None:
    names = [f"{name}@shop.example" for name in ("ann", "joe", "kim")]
    claims = [{"sub": name, "email": name, "groups": ["ops"]} for name in names]
    book = Book(tmp_path / "book", cast("Any", None))
    new_rulebook(book, FIVE)
    with (
        provider(tmp_path, claims) as issuer,
        server(book, "--access", people(book, CONSOLES)) as (url, _),
        console_at(tmp_path, issuer, "--rulebook", url, "--rulebook-token", CONSOLE) as console,
    ):
        ann, joe, kim = (Person(console, cookies=log_in(console, one).cookies()) for one in names)
        place = proposed(ann, FIVE.replace("limit: 5", "limit: 7"), "Seven")
        assert "as ann@shop.example" in ann.get(place)
        status, _, page = act(ann, place, "approve", override="mine")
        assert status == 403
        assert "ann@shop.example may not do this; it takes the grant" in page
        assert act(joe, place, "approve", override="nothing captured yet")[0] == 303
        assert act(joe, place, "publish")[0] == 303
        page = joe.get("/changes/history")
        assert "ann@shop.example" in page
        assert "joe@shop.example" in page
        # Whom the rulebook does not know is told so, and may still show a token of it.
        status, _, page = kim.ask("GET", "/changes")
        assert status == 400
        assert "must have a caller of this name with login = true" in page
        kim.post("/changes/sign-in", {"token": BOB, "next": "/changes"})
        assert "kim" not in kim.get(place).partition("<main")[2]


def test_a_bad_rule_is_refused_with_its_field_value_and_remedy(changing: Changing) -> None:
    ann = Person(changing.console, ANN)
    bad = FIVE.replace("limit: 5", "limit: none").replace("window:", "windw:")
    fields = {"file": "rules.yaml", "text": bad, "base": base_in(ann.get(EDIT))}
    status, _, found = ann.send("/changes/check", fields, at=EDIT)
    assert status == 200
    for words in ("3 problems", "rules[0].limit", "none", "give a whole number", "did you mean"):
        assert words in found, found
    assert 'data-line="6"' in found
    status, _, page = ann.send("/changes/propose", {**fields, "message": "x"}, at=EDIT)
    assert status == 422
    assert "rules[0].limit" in page
    assert "limit: none" in page  # the text is still there
    good = FIVE.replace("limit: 5", "limit: 6")
    _, _, found = ann.send("/changes/check", {**fields, "text": good}, at=EDIT)
    assert "can be used: 1 rule changed" in found
    _, _, found = ann.send("/changes/check", {**fields, "text": "x" * 300_000}, at=EDIT)
    assert "checked when you propose" in found


def test_of_two_who_change_at_once_the_second_learns_what_changed(changing: Changing) -> None:
    ann, bob = Person(changing.console, ANN), Person(changing.console, BOB)
    base = base_in(ann.get(EDIT))
    first = proposed(ann, FIVE.replace("limit: 5", "limit: 11"), "Eleven")
    assert act(bob, first, "approve", override="nothing captured yet")[0] == 303
    assert act(bob, first, "publish")[0] == 303
    text = FIVE.replace("limit: 5", "limit: 12")
    fields = {"file": "rules.yaml", "text": text, "base": base, "message": "Twelve"}
    status, _, page = ann.send("/changes/propose", fields, at=EDIT)
    assert status == 409
    assert "Your text is still here" in page
    assert "limit: 11" in page
    assert "limit: 12" in page
    assert base_in(page) not in ("", base)


def test_nobody_changes_anything_without_a_token_a_role_or_the_pages_mark(
    changing: Changing,
) -> None:
    nobody = Person(changing.console)
    assert nobody.ask("GET", "/changes")[:2] == (303, "/changes/sign-in?next=%2Fchanges")
    status, _, page = nobody.post("/changes/sign-in", {"token": "x" * 32})
    assert status == 403
    assert "send the token of a caller that the service knows" in page
    ann, eve = Person(changing.console, ANN), Person(changing.console, EVE)
    base = base_in(eve.get(EDIT))
    fields = {"file": "rules.yaml", "text": "x: 1", "base": base, "message": "x"}
    status, _, page = eve.send("/changes/propose", fields, at=EDIT)
    assert status == 403
    assert "propose" in page
    for path in ("propose", "act", "rollback", "check", "sign-out"):
        status, _, page = ann.post(f"/changes/{path}", {**fields, "form_mark": "0" * 64})
        assert status == 400, path
        assert "of an earlier session" in page
    foreign = {"Origin": "https://evil.example"}
    assert ann.post("/changes/sign-in", {"token": ANN}, **foreign)[0] == 403
    # A mark of one browser is none of another's.
    mark = ann.get("/changes").partition('name="form_mark" value="')[2][:64]
    assert eve.post("/changes/sign-out", {"form_mark": mark})[0] == 400
    assert ann.send("/changes/sign-out", {}, at="/changes")[:2] == (303, "/changes")
    assert ann.ask("GET", "/changes")[0] == 303


def test_an_emergency_is_stopped_and_ends_on_the_record(changing: Changing, tmp_path: Path) -> None:
    person = Person(changing.console)
    at = "/emergency"
    assert "Every limit is enforced." in person.get(at)
    fields = {"rule": "play", "minutes": "5", "by": "ann", "why": HOSTILE}
    rules = rules_file(tmp_path, FIVE)
    glass = f"file:{changing.book.folder.parent}/glass.json"
    with LimiterProcess(tmp_path, "--rules", rules, "--shed", "off", "--glass", glass) as limiter:

        def refused() -> bool:
            return not limiter.check("ann", "/play")["allowed"]

        until(refused, "the limit is spent")
        assert person.send("/emergency/break", fields, at=at)[0] == 303
        until(lambda: not refused(), "the limiter has heard of it")
    page = person.get(at)
    assert "Limits are not enforced everywhere." in page
    assert HOSTILE not in page
    # Whatever page somebody looks at, and whatever else is wrong.
    until(
        lambda: "rule &#x27;play&#x27; for every key, by ann" in person.get("/callers"), "it said"
    )
    assert "127.0.0.1:9 does not answer" in person.get("/callers").partition("<h1>")[2]
    for wrong, words in (
        ({"rule": ""}, "name a rule or a key"),
        ({"minutes": "0"}, "minutes"),
        ({"by": ""}, "glass.by"),
        ({"why": ""}, "glass.why"),
    ):
        status, _, page = person.send("/emergency/break", {**fields, **wrong}, at=at)
        assert status == 400
        assert words in page
    opening = page.partition('name="id" value="')[2].partition('"')[0]
    assert person.send("/emergency/mend", {"id": opening, "by": "bob"}, at=at)[0] == 303
    page = person.get(at)
    assert "Every limit is enforced." in page
    assert "bob: mend rule" in page
    assert person.post("/emergency/break", fields)[0] == 400


def test_a_console_that_may_only_read_has_no_way_to_change(tmp_path: Path) -> None:
    with started_changing(tmp_path, "--read-only") as (console, _):
        ann = Person(console, ANN)
        page = ann.get("/changes")
        assert "/changes/edit" not in page
        assert ann.ask("GET", EDIT)[0] == 404
        assert ann.post("/changes/propose", {})[0] == 404
        assert "Roll back to" not in ann.get("/changes/history")


def test_without_a_rulebook_there_is_nothing_to_change(tmp_path: Path) -> None:
    with ConsoleProcess(tmp_path, "--services", "http://127.0.0.1:9") as console:
        assert 'href="/changes"' not in console.page("/nodes")
        for path in ("/changes", "/emergency"):
            assert console.ask(path)[0] == 404


def test_the_help_names_every_field_that_a_rule_may_have() -> None:
    assert {name for name, _, _ in RULE_FIELDS} == {*FIELDS}


def test_a_change_is_tried_on_captured_traffic_before_anybody_approves_it(tmp_path: Path) -> None:
    many = TEN.replace("limit: 5", "limit: 1000")
    with started_changing(tmp_path, rules=many) as (console, book):
        capture_traffic(book)
        ann = Person(console, ANN)
        # Each of ten has asked 110 times; a limit of 100 refuses ten of each.
        text = TEN.replace("limit: 5", "limit: 100")
        fields = {"file": "rules.yaml", "text": text, "base": base_in(ann.get(EDIT))}
        fields["message"] = "Far fewer"
        status, _, page = ann.send("/changes/propose", fields, at=EDIT)
        assert status == 422
        assert "changes from 1000/hour to 100/hour" in page
        assert '<input type="checkbox" name="confirm" value="yes" required>' in page
        fields["confirm"] = "yes"
        status, place, _ = ann.send("/changes/propose", fields, at=EDIT)
        assert status == 303
        page = ann.get(place)
        assert "On captured traffic: failed." in page
        assert "100 of 1,100" in page
        rows = page.partition("newly refused</th>")[2]
        critical = rows.partition("CRITICAL</td>")[2].partition("</tr>")[0]
        assert "1,100" in critical
        assert ">100<" in critical
        assert "9.09%" in critical
        report = ann.get("/changes/report?" + place.partition("?")[2])
        assert "<svg" in report
        assert "Who is newly refused" in report
        assert f'href="{place}"' in report
        status, _, page = act(ann, place, "approve", override="mine")
        assert status in (400, 403)
        assert 'role="alert"' in page
