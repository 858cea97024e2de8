"""The rulebook's routes: the life of a proposal by HTTP, and what is said when it cannot be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.doors.http.rules.settings import RulesHttpSettings
from tests.doors.http.rules.memory_admin import MemoryRuleAdmin, no_gate
from tests.doors.http.rules.serving import rules_of, running_rules_door, token_of, whole_text
from tests.doors.listening import run

PROPOSALS = "/v1/rules/proposals"


def judged(_: Mapping[str, str]) -> dict[str, Any]:
    return {"figures": 3, "examples": ["<b>ann</b>"]}


def test_a_change_goes_from_a_proposal_to_what_is_live_and_back() -> None:
    async def story() -> None:
        async with running_rules_door() as here:
            live = (await here.ask("GET", "/v1/rules")).json
            assert (live["version"], live["files"][0]["name"]) == (1, "shop.yaml")
            ask = {
                "base": live["commit"],
                "changes": {"shop.yaml": rules_of(20), "api/new.yaml": rules_of(1)},
                "message": "More for the shop",
                "reason": "The sale",
            }
            got = await here.ask("POST", PROPOSALS, ask, who="paul")
            assert got.status == 201
            one = f"{PROPOSALS}/{got.json['id']}"
            assert got.headers["location"] == one
            assert got.json["message"] == "More for the shop"
            assert (await here.ask("GET", one)).json == got.json
            diff = (await here.ask("GET", f"/v1/rules/diff?to={got.json['id']}")).json
            assert [file["name"] for file in diff["files"]] == ["api/new.yaml", "shop.yaml"]
            assert "+    limit: 20" in diff["files"][1]["lines"]
            got = await here.ask("POST", f"{one}/approve", {}, who="ada")
            assert (got.status, got.json["field"]) == (400, "proposal")
            got = await here.ask("POST", f"{one}/approve", {"override": "it is small"}, who="ada")
            assert (got.status, got.json["state"]) == (200, "approved")
            got = await here.ask("POST", f"{one}/canary", {"share": 100, "kind": "nodes"})
            assert got.json["state"] == "canary"
            status = (await here.ask("GET", "/v1/rules/status")).json
            assert (status["canary"]["share"], status["canary"]["by"]) == (100, "nodes")
            got = await here.ask("POST", f"{one}/canary", {"share": 10_000})
            assert (got.json["state"], got.json["version"]) == ("live", 2)
            for name in ("api/new.yaml", "api%2Fnew.yaml"):
                file = (await here.ask("GET", f"/v1/rules/files/{name}")).json
                assert file["text"] == rules_of(1)
            got = await here.ask("GET", "/v1/rules/files/api/new.yaml?at=1")
            assert (got.status, got.json["field"]) == (404, "name")
            got = await here.ask("POST", "/v1/rules/rollback", {"to": "1", "reason": "refused Ann"})
            assert (got.status, got.json["live"]["version"]) == (200, 3)
            assert (await here.ask("GET", one)).json["state"] == "rolled back"
            got = await here.ask(
                "POST", "/v1/rules/pins", {"node": "n-1", "version": 2, "reason": "look"}
            )
            assert got.json["orders"]["pins"] == {"n-1": 2}
            diff = (await here.ask("GET", "/v1/rules/diff?to=2")).json
            assert diff["before"] == (await here.ask("GET", "/v1/rules")).json["commit"]
            versions = (await here.ask("GET", "/v1/rules/versions?count=2")).json["versions"]
            assert [one["version"] for one in versions] == [3, 2]
            audit = (await here.ask("GET", "/v1/rules/audit")).json["audit"]
            assert [one["call"] for one in audit[:2]] == ["pin", "roll_back"]
            assert (audit[1]["by"], audit[1]["why"]) == ("bob", "refused Ann")

    run(story)


def test_a_proposal_is_rejected_judged_and_published_by_its_own_routes() -> None:
    async def story() -> None:
        async with running_rules_door(admin=MemoryRuleAdmin(judged)) as here:
            one = (await here.propose(rules_of(1)))["id"]
            got = await here.ask("POST", f"{PROPOSALS}/{one}/reject", {"reason": "no"}, who="ada")
            assert got.json["state"] == "rejected"
            assert got.json["history"][-1] == {"by": "ada", "what": "rejected", "why": "no"}
            got = await here.ask("POST", f"{PROPOSALS}/{one}/judge")
            assert (got.status, got.json["field"]) == (400, "proposal"), "it is there"
            two = (await here.propose(rules_of(2)))["id"]
            assert (await here.ask("POST", f"{PROPOSALS}/{two}/judge")).json["verdict"]
            await here.ask("POST", f"{PROPOSALS}/{two}/approve", who="ada")
            got = await here.ask("POST", f"{PROPOSALS}/{two}/publish", b"", who="ada")
            assert got.json["state"] == "live"
            rejected = (await here.ask("GET", f"{PROPOSALS}?state=rejected&count=5")).json
            assert [one["id"] for one in rejected["proposals"]] == [one]
            newest = (await here.ask("GET", f"{PROPOSALS}?count=1")).json["proposals"]
            assert [one["id"] for one in newest] == [two]

    run(story)


def test_rules_that_cannot_be_used_are_told_with_file_line_field_value_and_remedy() -> None:
    text = "rules:\n  - rule_id: a\n    limit: -3\n  - rule_id: b\n    limit: many\n"

    async def story() -> None:
        async with running_rules_door() as here:
            ask: dict[str, Any] = {
                "base": "live",
                "changes": {"shop.yaml": text},
                "message": "m",
            }
            got = await here.ask("POST", PROPOSALS, ask)
            assert (got.status, got.headers["content-type"]) == (422, "application/problem+json")
            assert got.json["more"] == 0
            assert got.json["problems"] == [
                {
                    "file": "shop.yaml",
                    "line": 3,
                    "field": "rules[0].limit",
                    "value": -3,
                    "remedy": "give a whole number from 0",
                },
                {
                    "file": "shop.yaml",
                    "line": 5,
                    "field": "rules[1].limit",
                    "value": "many",
                    "remedy": "give a whole number from 0",
                },
            ]
            assert "shop.yaml has 2 problems" in got.json["detail"]
            ask["changes"]["shop.yaml"] = "rules:\n" + "  - limit: no\n" * 60
            got = await here.ask("POST", PROPOSALS, ask)
            assert (len(got.json["problems"]), got.json["more"]) == (50, 10)
            ask["changes"]["shop.yaml"] = "rules: [\n"
            got = await here.ask("POST", PROPOSALS, ask)
            assert (got.status, len(got.json["problems"])) == (422, 1)

    run(story)


def test_who_was_faster_is_told_with_what_is_there_now() -> None:
    async def story() -> None:
        async with running_rules_door() as here:
            base = (await here.ask("GET", "/v1/rules")).json["commit"]
            one = await here.propose(rules_of(1))
            two = await here.propose(rules_of(2))
            for made in (one, two):
                path = f"{PROPOSALS}/{made['id']}"
                await here.ask("POST", f"{path}/approve", {"override": "why"}, who="ada")
            await here.ask("POST", f"{PROPOSALS}/{one['id']}/publish", who="ada")
            got = await here.ask("POST", f"{PROPOSALS}/{two['id']}/publish", who="ada")
            now = (await here.ask("GET", "/v1/rules")).json["commit"]
            assert (got.status, got.json["what"]) == (409, "what is live")
            assert got.json["seen"] == f"it is {now[:12]} now"
            ask = {"base": base, "changes": {"shop.yaml": rules_of(3)}, "message": "m"}
            got = await here.ask("POST", PROPOSALS, ask)
            assert (got.status, got.json["what"]) == (409, "shop.yaml")
            got = await here.ask("POST", PROPOSALS, {**ask, "base": now})
            assert got.status == 201

    run(story)


def test_an_etag_is_of_what_was_read_and_if_match_keeps_others_from_being_overrun() -> None:
    async def story() -> None:
        async with running_rules_door() as here:
            live = await here.ask("GET", "/v1/rules")
            tag = live.headers["etag"]
            assert (await here.ask("HEAD", "/v1/rules")).headers["etag"] == tag
            for tags in (tag, f'"x", W/{tag}', "*"):
                got = await here.ask("GET", "/v1/rules", if_none_match=tags)
                assert (got.status, got.headers["etag"]) == (304, tag)
            assert (await here.ask("GET", "/v1/rules", if_none_match='"x"')).status == 200
            ask = {"base": "live", "changes": {"shop.yaml": rules_of(3)}, "message": "m"}
            commit = f'"{live.json["commit"]}"'
            for wrong in ('"x"', f"W/{tag}", '"", "y"'):
                got = await here.ask("POST", PROPOSALS, ask, if_match=wrong)
                assert (got.status, got.headers["etag"]) == (412, tag)
                assert got.json["what"] == "what is live"
            for right in (tag, commit, f'"x", {tag}', "*"):
                assert (await here.ask("POST", PROPOSALS, ask, if_match=right)).status == 201
            one = f"{PROPOSALS}/{(await here.propose(rules_of(9)))['id']}"
            read = (await here.ask("GET", one)).headers["etag"]
            approve = {"override": "why"}
            got = await here.ask("POST", f"{one}/approve", approve, who="ada", if_match=read)
            assert got.status == 200
            got = await here.ask("POST", f"{one}/publish", who="ada", if_match=read)
            assert got.status == 412, "it was approved since"
            now = (await here.ask("GET", one)).headers["etag"]
            assert now != read
            got = await here.ask("POST", f"{one}/publish", who="ada", if_match=now)
            assert got.json["state"] == "live"
            back = {"to": "1", "reason": "r"}
            assert (await here.ask("POST", "/v1/rules/rollback", back, if_match=tag)).status == 412
            for odd in ("x", '"a', '"a" "b"', ", ".join(['"a"'] * 17)):
                got = await here.ask("POST", f"{one}/publish", if_match=odd)
                assert (got.status, got.json["field"]) == (400, "if-match")
            pin = {"node": "n", "version": 1, "reason": "r"}
            got = await here.ask("POST", "/v1/rules/pins", pin, if_match="*")
            assert (got.status, got.json["field"]) == (400, "if-match")

    run(story)


def test_what_is_not_there_is_404_and_what_cannot_be_asked_says_what_would_be_right() -> None:
    async def story() -> None:
        async with running_rules_door() as here:
            for path in ("", "/judge", "/approve", "/publish"):
                method = "POST" if path else "GET"
                got = await here.ask(method, f"{PROPOSALS}/p99{path}")
                assert (got.status, got.json["field"]) == (404, "proposal"), path
                assert got.json["remedy"] == "give the id of a proposal"
            for path in ("/{id}", "/{id}/judge"):
                method = "POST" if path.endswith("judge") else "GET"
                got = await here.ask(method, f"{PROPOSALS}{path}")
                assert (got.status, got.json["value"]) == (404, "{id}"), "a name like any other"
            got = await here.ask("GET", "/v1/rules/files/{+name}")
            assert (got.status, got.json["value"]) == (404, "{+name}")
            got = await here.ask("GET", "/v1/nothing")
            assert "GET /v1/rules/openapi.json tells" in got.json["detail"]
            for path in ("/v1/rules/nothing", f"{PROPOSALS}/a/b/c", "/v1/rules/files/"):
                assert (await here.ask("GET", path)).status == 404
            one = (await here.propose(rules_of(9)))["id"]
            got = await here.ask("DELETE", f"{PROPOSALS}/{one}")
            assert (got.status, got.headers["allow"]) == (405, "GET, HEAD, OPTIONS")
            got = await here.ask("GET", f"{PROPOSALS}/{one}/approve")
            assert (got.status, got.headers["allow"]) == (405, "OPTIONS, POST")
            for path, field in (
                ("/v1/rules?at=", "at"),
                ("/v1/rules?at=" + "9" * 101, "at"),
                ("/v1/rules?at=a%0Ab", "at"),
                ("/v1/rules?at=nothing", "revision"),
                ("/v1/rules?to=1", "query"),
                ("/v1/rules/status?at=1", "query"),
                ("/v1/rules/diff?from=1", "to"),
                (f"{PROPOSALS}?state=odd", "state"),
                (f"{PROPOSALS}?count=0", "count"),
                (f"{PROPOSALS}?count=1001", "count"),
                (f"{PROPOSALS}?count=1&count=1", "count"),
                ("/v1/rules/wait", "version"),
                ("/v1/rules/wait?version=0", "version"),
                ("/v1/rules/wait?version=1&nodes=0", "nodes"),
                ("/v1/rules/wait?version=1&timeout_s=1e3", "timeout_s"),
                (f"/v1/rules/report/{one}?form=html", "form"),
            ):
                got = await here.ask("GET", path)
                assert (got.status, got.json["field"]) == (400, field), path
                assert got.json["remedy"]

    run(story)


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("proposals", b"{", "body"),
        ("proposals", [], "body"),
        ("proposals", {}, "changes"),
        ("proposals", {"changes": {}}, "changes"),
        ("proposals", {"changes": {"a.yaml": 1}}, "changes[a.yaml]"),
        ("proposals", {"changes": {"a.yaml": "x" * 201}}, "changes[a.yaml]"),
        ("proposals", {"changes": {"a" * 33: None}}, "changes"),
        ("proposals", {"changes": {"": None}}, "changes"),
        ("proposals", {"changes": {"\ud800": None}}, "changes"),
        ("proposals", {"changes": {str(at): None for at in range(4)}}, "changes"),
        ("proposals", {"changes": {"a.yaml": None}}, "base"),
        (
            "proposals",
            {"changes": {"a.yaml": None}, "base": "live", "message": "m" * 41},
            "message",
        ),
        ("proposals", {"changes": {"a.yaml": None}, "base": "live", "reason": "r" * 41}, "reason"),
        ("proposals", {"changes": {"a.yaml": None}, "base": "live"}, "message"),
        ("proposals", {"changes": {"a.yaml": None}, "base": "live", "by": "eve"}, "by"),
        ("proposals/p1/approve", {"override": 1}, "override"),
        ("proposals/p1/reject", {"reason": ["x"]}, "reason"),
        ("proposals/p1/judge", {"more": 1}, "body"),
        ("proposals/p1/publish", [1], "body"),
        ("proposals/p1/canary", {"share": 10_001}, "share"),
        ("proposals/p1/canary", {"share": "1"}, "share"),
        ("proposals/p1/canary", {"share": True}, "share"),
        ("proposals/p1/canary", {"share": 1, "kind": ["users"]}, "kind"),
        ("rollback", {"reason": "r"}, "to"),
        ("rollback", {"to": "1", "reason": " "}, "reason"),
        ("pins", {"node": 3, "version": 1}, "node"),
        ("pins", {"node": "n", "version": -1}, "version"),
        ("pins", {"node": "n", "version": 99}, "version"),
    ],
)
def test_a_body_that_cannot_be_used_names_its_field(path: str, body: Any, field: str) -> None:
    async def story() -> None:
        bounds: dict[str, Any] = {
            "text_bytes_max": 200,
            "name_bytes_max": 32,
            "changes_max": 3,
            "message_bytes_max": 40,
            "reason_bytes_max": 40,
        }
        async with running_rules_door(**bounds) as here:
            got = await here.ask("POST", f"/v1/rules/{path}", body)
            assert (got.status, got.json["field"]) == (400, field)
            assert got.json["remedy"]
            assert len((await here.ask("GET", PROPOSALS)).json["proposals"]) == 0

    run(story)


def test_a_text_beyond_its_bound_is_told_which_setting_that_is() -> None:
    async def story() -> None:
        async with running_rules_door(reason_bytes_max=40) as here:
            body = {"to": "1", "reason": "é" * 20 + "x"}
            got = await here.ask("POST", "/v1/rules/rollback", body)
            assert got.status == 400
            assert got.json["remedy"] == "send at most 40 (rules.reason_bytes_max)"
            assert got.json["value"] == "41 bytes"

    run(story)


def test_a_report_is_told_as_json_text_or_a_page_that_runs_nothing() -> None:
    async def story() -> None:
        reports = {"html": lambda report: f"<p>{report['figures']}</p>", "text": str}
        async with running_rules_door(admin=MemoryRuleAdmin(judged), reports=reports) as here:
            one = (await here.propose(rules_of(9)))["id"]
            path = f"/v1/rules/report/{one}"
            got = await here.ask("GET", path)
            assert got.json == judged({})
            got = await here.ask("GET", f"{path}?form=html")
            assert (got.body, got.headers["content-type"]) == (
                b"<p>3</p>",
                "text/html; charset=utf-8",
            )
            policy = got.headers["content-security-policy"]
            assert policy.startswith("sandbox; default-src 'none'")
            assert "script" not in policy
            got = await here.ask("GET", f"{path}?form=text")
            assert got.headers["content-type"].startswith("text/plain")
            assert (await here.ask("GET", "/v1/rules/report/p9?form=html")).status == 404

    run(story)


def test_a_form_of_reports_that_there_is_not_is_refused() -> None:
    async def story() -> None:
        with pytest.raises(BadValue, match="reports"):
            async with running_rules_door(reports={"pdf": str}):
                pass

    run(story)


def test_an_answer_longer_than_the_bound_is_refused_and_the_bound_named() -> None:
    async def story() -> None:
        async with running_rules_door(answer_bytes_max=2_000) as here:
            one = (await here.propose(rules_of(9) + "# " + "x" * 2_000))["id"]
            got = await here.ask("GET", f"/v1/rules/files/shop.yaml?at={one}")
            assert (got.status, got.json["field"]) == (400, "answer")
            assert "rules.answer_bytes_max" in got.json["remedy"]

    run(story)


def test_a_repository_that_does_not_answer_is_503_and_no_answer_holds_a_token() -> None:
    async def story() -> None:
        async with running_rules_door() as here:
            here.admin.away = "it is locked"
            got = await here.ask("GET", "/v1/rules")
            assert (got.status, got.headers["retry-after"]) == (503, "1")
            assert (got.json["what"], got.json["seen"]) == ("the repository", "it is locked")
            assert token_of("bob") not in whole_text(got)
            assert (await here.ask("GET", "/healthz", who="")).status == 200
            here.well.ready = "the repository is locked"
            got = await here.ask("GET", "/readyz", who="")
            assert (got.status, got.json["reason"]) == (503, "the repository is locked")

    run(story)


@pytest.mark.parametrize(
    ("name", "value"),
    [("changes_max", 0), ("wait_s_max", True), ("keys_kept_s", 0), ("calls_max", 1_001)],
)
def test_a_setting_out_of_range_is_refused(name: str, value: Any) -> None:
    with pytest.raises(BadValue, match=f"rules.{name}"):
        RulesHttpSettings(**{name: value})


@pytest.mark.parametrize("gate", [no_gate, lambda _: {}])
def test_a_verdict_without_figures_has_no_report_and_says_why(gate: Any) -> None:
    async def story() -> None:
        async with running_rules_door(admin=MemoryRuleAdmin(gate), reports={"html": str}) as here:
            one = (await here.propose(rules_of(9)))["id"]
            for form in ("", "?form=html"):
                got = await here.ask("GET", f"/v1/rules/report/{one}{form}")
                assert got.status == 404
                sentence = (await here.ask("GET", f"{PROPOSALS}/{one}")).json["verdict"]["sentence"]
                assert got.json["remedy"] == f"there is no report: {sentence}"

    run(story)


def test_a_proposal_that_nobody_has_judged_has_no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = MemoryRuleAdmin(judged)
    monkeypatch.setattr(admin, "_judge", lambda _: None)

    async def story() -> None:
        async with running_rules_door(admin=admin) as here:
            one = (await here.propose(rules_of(9)))["id"]
            got = await here.ask("GET", f"/v1/rules/report/{one}")
            assert (got.status, "has not been judged" in got.json["remedy"]) == (404, True)

    run(story)
