"""Who may do what with a rulebook over HTTP, and which pages may not."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme

from sluicegate.contracts.access import EVERY_GRANT, Grant, Identity
from sluicegate.doors.binding import Address
from sluicegate.doors.http.site import hosts_of
from sluicegate.doors.tls import Tls, TlsFiles
from sluicegate.policies.access import Credential, KnownCallers, OpenAccess, token_digest
from tests.doors.http.rules.serving import (
    READS,
    access,
    rules_of,
    running_rules_door,
    token_of,
    whole_text,
)
from tests.doors.http.serving import Answer, answer, request
from tests.doors.listening import Caller, run

PROPOSE = {"base": "live", "changes": {"shop.yaml": rules_of(3)}, "message": "m"}
CHANGES: tuple[tuple[str, Any, Grant], ...] = (
    ("/v1/rules/proposals", PROPOSE, Grant.PROPOSE),
    ("/v1/rules/proposals/p1/judge", {}, Grant.PROPOSE),
    ("/v1/rules/proposals/p1/approve", {"override": "o"}, Grant.APPROVE),
    ("/v1/rules/proposals/p1/reject", {"reason": "r"}, Grant.APPROVE),
    ("/v1/rules/proposals/p1/publish", {}, Grant.APPROVE),
    ("/v1/rules/proposals/p1/canary", {"share": 1}, Grant.APPROVE),
    ("/v1/rules/rollback", {"to": "1", "reason": "r"}, Grant.APPROVE),
    ("/v1/rules/pins", {"node": "n", "version": 1, "reason": "r"}, Grant.APPROVE),
    ("/v1/rules/nodes/forget", {"node": "n", "reason": "r"}, Grant.APPROVE),
)
READ = (
    "/v1/rules",
    "/v1/rules/files/shop.yaml",
    "/v1/rules/diff?to=live",
    "/v1/rules/proposals",
    "/v1/rules/versions",
    "/v1/rules/status",
    "/v1/rules/wait?version=1&timeout_s=0",
    "/v1/rules/audit",
)


def test_nobody_is_asked_for_a_name_and_a_wrong_token_is_nobodys() -> None:
    async def story() -> None:
        async with running_rules_door() as here:
            for path in (*READ, "/metrics"):
                got = await here.ask("GET", path, who="")
                assert (got.status, got.headers["www-authenticate"][:6]) == (401, "Bearer")
            for path, body, _ in CHANGES:
                assert (await here.ask("POST", path, body, who="")).status == 401
            wrong = "Bearer wrong-wrong-wrong-wrong"
            got = await here.ask("GET", "/v1/rules", authorization=wrong)
            assert got.status == 401
            assert "wrong-wrong" not in whole_text(got)
            assert here.admin.calls == 0
            for path in ("/healthz", "/readyz", "/v1/rules/openapi.json"):
                assert (await here.ask("GET", path, who="")).status == 200

    run(story)


def test_a_grant_that_lacks_is_named_and_the_refusal_of_a_known_caller_is_noted() -> None:
    async def story() -> None:
        async with running_rules_door() as here:
            for path, body, grant in CHANGES:
                who = "rita" if grant is Grant.APPROVE else "ada"
                got = await here.ask("POST", path, body, who=who)
                assert (got.status, got.json["grant"], got.json["who"]) == (403, grant.value, who)
            for path in READ:
                got = await here.ask("GET", path, who="chuck")
                assert (got.status, got.json["grant"]) == (403, "read-rules")
            got = await here.ask("GET", "/metrics", who="paul")
            assert (got.status, got.json["grant"]) == (403, "audit")
            assert (await here.ask("GET", "/metrics", who="bob")).body.startswith(b"# TYPE up")
            noted = (await here.ask("GET", "/v1/rules/audit", who="rita")).json["audit"]
            assert len(noted) == len(CHANGES) + len(READ)
            assert {one["by"] for one in noted} == {"rita", "ada", "chuck"}

    run(story)


@pytest.mark.parametrize("grants", [READS, EVERY_GRANT])
def test_nobody_may_read_where_the_access_says_so_and_never_change_anything(
    grants: frozenset[Grant],
) -> None:
    async def story() -> None:
        async with running_rules_door(doorkeeper=access(anonymous=grants)) as here:
            for path in READ:
                assert (await here.ask("GET", path, who="")).status == 200
            calls = here.admin.calls
            for path, body, _ in CHANGES:
                got = await here.ask("POST", path, body, who="")
                assert (got.status, "changes take a name" in got.json["detail"]) == (401, True)
            assert here.admin.calls == calls
            assert (await here.ask("POST", "/v1/rules/proposals", PROPOSE)).status == 201

    run(story)


def with_console(*, anonymous: frozenset[Grant] = frozenset()) -> KnownCallers:
    """A console that may do nothing itself, a service, and people who have no token."""
    return KnownCallers(
        [
            Credential("console", frozenset({Grant.SPEAK_FOR}), token_digest(token_of("console"))),
            Credential("gateway", EVERY_GRANT - {Grant.SPEAK_FOR}, token_digest(token_of("gate"))),
            Credential("zoë@shop.example", READS | {Grant.PROPOSE}, login=True),
            Credential("ben@shop.example", READS, login=True),
        ],
        anonymous=anonymous,
    )


def test_a_console_asks_in_the_name_of_who_has_logged_in_there_and_may_do_what_they_may() -> None:
    async def story() -> None:
        async with running_rules_door(doorkeeper=with_console()) as here:

            async def propose(name: str, who: str = "console") -> Answer:
                path = "/v1/rules/proposals"
                return await here.ask("POST", path, PROPOSE, who=who, x_sluicegate_for=name)

            got = await propose("zo%C3%AB@shop.example")
            assert (got.status, got.json["proposer"]) == (201, "zoë@shop.example")
            got = await propose("ben@shop.example")
            assert (got.status, got.json["who"]) == (403, "ben@shop.example")
            for name in ("gateway", "console", "eve@shop.example", "%00"):
                got = await propose(name)
                assert (got.status, got.json["field"]) == (400, "x-sluicegate-for"), name
            assert (await here.ask("GET", "/v1/rules", who="console")).status == 403

    run(story)


@pytest.mark.parametrize("who", ["gate", ""])
def test_who_may_not_speak_for_others_cannot_though_they_may_do_everything_else(who: str) -> None:
    async def story() -> None:
        everybody = EVERY_GRANT if who == "" else frozenset[Grant]()
        async with running_rules_door(doorkeeper=with_console(anonymous=everybody)) as here:
            for method, path in (("GET", "/v1/rules"), ("POST", "/v1/rules/proposals")):
                body = PROPOSE if method == "POST" else None
                name = "zo%C3%AB@shop.example"
                got = await here.ask(method, path, body, who=who, x_sluicegate_for=name)
                assert (got.status, got.json["grant"]) == (403, "speak-for")
            assert here.admin.calls == 0

    run(story)


def test_who_may_not_look_is_told_what_is_wrong_all_the_same() -> None:
    async def story() -> None:
        blind = Credential("ida", frozenset({Grant.APPROVE}), token_digest(token_of("ida")))
        both = KnownCallers([blind, Credential("bob", EVERY_GRANT, token_digest(token_of("bob")))])
        async with running_rules_door(doorkeeper=both) as here:
            one = (await here.propose(rules_of(7), who="bob"))["id"]
            got = await here.ask("POST", f"/v1/rules/proposals/{one}/publish", who="ida")
            assert (got.status, got.json["field"]) == (400, "proposal")
            match = {"if_match": "*"}
            got = await here.ask("POST", f"/v1/rules/proposals/{one}/publish", who="ida", **match)
            assert (got.status, got.json["grant"]) == (403, "read-rules")

    run(story)


def test_nobody_without_the_grant_is_refused_before_the_desk_hears_of_it() -> None:
    async def story() -> None:
        nobody = access(anonymous=frozenset({Grant.CHECK}))
        async with running_rules_door(doorkeeper=nobody) as here:
            for path in READ:
                assert (await here.ask("GET", path, who="")).status == 403
            assert here.admin.calls == 0

    run(story)


class Forgetful:
    """Makes anew who nobody is, each time."""

    @property
    def anonymous(self) -> Identity:
        return Identity("anonymous", EVERY_GRANT)

    def by_token(self, token: str) -> Identity | None:
        return None

    def by_certificate(self, names: object) -> Identity | None:
        return None


@pytest.mark.parametrize("doorkeeper", [OpenAccess(), Forgetful()])
def test_where_everybody_may_do_everything_changes_still_take_a_name(doorkeeper: Any) -> None:
    async def story() -> None:
        async with running_rules_door(doorkeeper=doorkeeper) as here:
            assert (await here.ask("GET", "/v1/rules", who="")).status == 200
            for path, body, _ in CHANGES:
                assert (await here.ask("POST", path, body, who="")).status == 401
            got = await here.ask("POST", "/v1/rules/proposals", PROPOSE, who="bob")
            assert got.status == 401
            assert here.admin.calls == 1

    run(story)


def test_no_page_of_another_site_can_drive_it_through_a_browser() -> None:
    async def story() -> None:
        async with running_rules_door(doorkeeper=access(anonymous=READS)) as here:
            foreign: tuple[dict[str, str], ...] = (
                {"origin": "https://evil.example"},
                {"origin": "null"},
                {"sec_fetch_site": "cross-site"},
                {"sec_fetch_site": "same-site"},
                {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"},
            )
            for path, body, _ in CHANGES:
                for headers in foreign:
                    assert (await here.ask("POST", path, body, **headers)).status == 403
                for kind in ("text/plain", "", "application/x-www-form-urlencoded"):
                    got = await here.ask("POST", path, body, content_type=kind)
                    assert got.status == 415
            for path in (*READ, "/metrics"):
                for headers in foreign[:4]:
                    assert (await here.ask("GET", path, **headers)).status == 403
            assert here.admin.calls == 0
            link = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"}
            assert (await here.ask("GET", "/v1/rules/status", **link)).status == 200
            assert (await here.ask("GET", "/metrics", **link)).status == 403
            own = {"origin": f"http://{here.host}", "sec_fetch_site": "same-origin"}
            got = await here.ask("POST", "/v1/rules/proposals", PROPOSE, **own)
            assert got.status == 201
            got = await here.ask("OPTIONS", "/v1/rules/proposals", origin="https://evil.example")
            assert not any(name.startswith("access-control") for name in got.headers)

    run(story)


def test_only_our_own_names_are_answered_to() -> None:
    async def story() -> None:
        hosts = hosts_of([Address("127.0.0.1", 8_080)], secret=True)
        async with running_rules_door(hosts=hosts) as here:
            for host in ("evil.example", "127.0.0.1:1", "127.0.0.1:8080.evil.example"):
                assert (await here.ask("GET", "/v1/rules", host=host)).status == 421
                got = await here.ask("POST", "/v1/rules/proposals", PROPOSE, host=host)
                assert got.status == 421
            assert here.admin.calls == 0
            assert (await here.ask("GET", "/v1/rules", host="localhost:8080")).status == 200
            assert (await here.ask("GET", "/healthz", host="evil.example")).status == 200

    run(story)


def test_a_listener_of_this_machine_goes_by_its_own_names_without_a_setting() -> None:
    async def story() -> None:
        async with running_rules_door(doorkeeper=access(anonymous=READS)) as here:
            for host in ("evil.example", f"evil.example:{here.port}", "127.0.0.1"):
                assert (await here.ask("GET", "/v1/rules", host=host, who="")).status == 421
            for host in (here.host, f"localhost:{here.port}"):
                assert (await here.ask("GET", "/v1/rules", host=host, who="")).status == 200
        async with running_rules_door(doorkeeper=access(), address="0.0.0.0:0") as here:
            assert (await here.ask("GET", "/v1/rules", host="rules.example")).status == 200

    run(story)


def test_a_certificate_is_as_good_as_a_token(tmp_path: Path) -> None:
    async def story() -> None:
        ca = trustme.CA()
        cert, key, clients = (tmp_path / name for name in ("a.crt", "a.key", "ca.crt"))
        issued = ca.issue_cert("127.0.0.1")
        issued.cert_chain_pems[0].write_to_path(str(cert))
        issued.private_key_pem.write_to_path(str(key))
        ca.cert_pem.write_to_path(str(clients))
        files = TlsFiles(str(cert), str(key), str(clients), client_required=False)
        nobody = access(anonymous=READS)
        async with running_rules_door(tls=Tls(files), doorkeeper=nobody) as here:

            async def ask(name: str, data: bytes) -> Any:
                context = ssl.create_default_context()
                ca.configure_trust(context)
                if name:
                    ca.issue_cert(name).configure_cert(context)
                reader, writer = await asyncio.open_connection("127.0.0.1", here.port, ssl=context)
                writer.write(data)
                caller = Caller(reader, writer)
                reply = await answer(caller)
                await caller.leave()
                return reply

            post = request("POST", "/v1/rules/proposals", here.host, PROPOSE)
            assert (await ask("paul.example", post)).status == 201
            assert (await ask("ada.example", post)).json["grant"] == "propose"
            assert (await ask("eve.example", post)).status == 401
            assert (await ask("", post)).status == 401
            assert (await ask("", request("GET", "/v1/rules", here.host))).status == 200
            page = {"origin": "https://evil.example"}
            evil = request("POST", "/v1/rules/proposals", here.host, PROPOSE, **page)
            assert (await ask("paul.example", evil)).status == 403, "a browser sends it by itself"

    run(story)


def test_a_token_is_in_no_log_and_no_answer(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with running_rules_door() as here:
            here.admin.versions = None  # type: ignore[assignment,method-assign]
            got = await here.ask("GET", "/v1/rules/versions")
            assert got.status == 500
            assert token_of("bob") not in whole_text(got)
            assert here.door.faults == 1

    with caplog.at_level("DEBUG"):
        run(story)
    assert token_of("bob") not in caplog.text
