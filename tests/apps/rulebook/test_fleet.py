"""Real limiters follow a real rulebook: by its folder, and by its server."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sluicegate.apps.limiter import command
from sluicegate.apps.limiter.app import LimiterApp
from sluicegate.apps.limiter.settings import LimiterSettings
from sluicegate.contracts.access import EVERY_GRANT, Identity
from sluicegate.contracts.errors import BadValue, Forbidden, SluicegateError, Unauthenticated
from sluicegate.policies.access import token_digest
from sluicegate.rules.remote.admin import RemoteRuleAdmin
from sluicegate.service.settings import read_settings
from tests.apps.limiter.process import LimiterProcess
from tests.apps.rulebook.stories import RULES, Book
from tests.engines.child import PATIENCE_S, Child, free_port, until

READS = '"read-rules"'
ANYBODY = Identity("", EVERY_GRANT)
ANN, BOB, EVE = (f"{name}-0123456789abcdef" for name in ("ann", "bob", "eve"))
FIVE = RULES.replace("limit: 100", "limit: 5")
TWO = RULES.replace("limit: 100", "limit: 2")


def following(book: Book, *more: str) -> list[str]:
    """The flags of a limiter that follows it."""
    return [
        "--rulebook", f"files:{book.folder}/blobs",
        "--rulebook-keys", f"{book.folder}/keys/signing.pub.pem",
        "--rulebook-folder", f"{book.folder}/nodes",
        "--rulebook-every-s", "0.1",
        "--rulebook-report-s", "0.3",
        "--shed", "off",
        *more,
    ]  # fmt: skip


def admitted(limiter: LimiterProcess, user: str, times: int = 8) -> int:
    return sum(limiter.check(user, "/play")["allowed"] for _ in range(times))


def test_a_limiter_runs_what_is_published_and_what_is_rolled_back_to(book: Book) -> None:
    book.init(FIVE)
    events = f"files:{book.folder}/events"
    with LimiterProcess(
        book.folder, *following(book, "--rulebook-events", events, "--node", "n1")
    ) as one:
        assert "version 1" in one.ready_line
        assert admitted(one, "ann") == 5
        proposal = book.propose(TWO)
        book.at("approve", proposal, "--override", "nothing captured yet")
        output = book.at("publish", proposal, "--wait", "1")
        assert "n1" in output
        assert admitted(one, "bob") == 2
        assert one.metric("sluicegate_rules_version") == 2
        assert one.metric("sluicegate_rules_lag_seconds") < PATIENCE_S
        book.at("rollback", "1", "--reason", "too few", "--wait", "1")
        assert admitted(one, "eve") == 5
        status, body = one.ask("/v1/rulebook")
        assert (status, body["version"], body["fleet"]["node"]) == (200, "3", "n1")


def test_a_limiter_starts_from_its_disk_when_everything_else_is_gone(book: Book) -> None:
    book.init(FIVE)
    with LimiterProcess(book.folder, *following(book, "--node", "n1")):
        pass
    (book.folder / "blobs").rename(book.folder / "gone")
    with LimiterProcess(book.folder, *following(book, "--node", "n1")) as again:
        assert admitted(again, "ann") == 5
    with LimiterProcess(book.folder, *following(book, "--node", "n2"), wait=False) as other:
        assert other.child.wait(60) == 1
        assert "unavailable" in other.log.read_text()


def test_a_key_that_is_not_trusted_is_not_followed(book: Book, tmp_path: Path) -> None:
    book.init(FIVE)
    other = Book(tmp_path / "other", book._capsys).init(TWO)
    flags = following(book, "--node", "n1")
    flags[3] = f"{other.folder}/keys/signing.pub.pem"
    with LimiterProcess(book.folder, *flags, wait=False) as one:
        assert one.child.wait(60) == 1
        assert "not trusted" in one.log.read_text()


def test_a_canary_is_for_a_share_of_the_callers_and_a_pin_for_one_node(book: Book) -> None:
    book.init(FIVE)
    with LimiterProcess(book.folder, *following(book, "--node", "n1")) as one:
        proposal = book.propose(TWO)
        book.at("approve", proposal, "--override", "nothing captured yet")
        book.at("canary", proposal, "--share", "50%")
        until(lambda: one.metric("sluicegate_rules_canary_version") == 2, "the canary")
        by_user = {f"user-{n}": admitted(one, f"user-{n}") for n in range(40)}
        assert {*by_user.values()} == {5, 2}
        assert 5 < [*by_user.values()].count(2) < 35
        book.at("canary", proposal, "--share", "0")
        until(lambda: one.metric("sluicegate_rules_canary_version") == 0, "its end")
        assert admitted(one, "somebody else") == 5
        second = book.publish(TWO)
        book.at("pin", "n1", 1, "--reason", "to compare")
        until(lambda: one.metric("sluicegate_rules_version") == 1, "the pin")
        book.at("pin", "n1", 0, "--reason", "compared")
        until(lambda: one.metric("sluicegate_rules_version") == second, "the end of it")


def test_what_was_captured_judges_the_next_change(book: Book) -> None:
    names = ", ".join(f"u{n}: CRITICAL" for n in range(10))
    rules = RULES.replace("names: {gateway: CRITICAL}", f"names: {{{names}}}")
    book.init(rules.replace("limit: 100", "limit: 1000"))
    flags = following(book, "--capture", f"{book.folder}/capture", "--node", "n1")
    with LimiterProcess(book.folder, *flags) as one:
        asks = [{"user_id": f"u{n % 10}", "resource_path": "/play", "priority": "CRITICAL"}
                for n in range(1_100)]  # fmt: skip
        for start in range(0, len(asks), 550):
            status, body = one.ask("/v1/check/batch", {"requests": asks[start : start + 550]})
            assert status == 200, body
    # Each of ten has asked 110 times; a limit of 100 refuses ten of each, a tenth is too much.
    few = book.json("propose", book.file(rules), "-m", "Far fewer", "--confirm")
    assert few["verdict"]["result"] == "failed", few["verdict"]
    assert few["state"] == "rejected"
    assert "100 of 1,100" in few["verdict"]["sentence"]
    page = book.folder.parent / "report.html"
    assert "gate      failed: the candidate newly" in book.at("show", few["id"], "--html", page)
    assert page.read_text().startswith("<!doctype html>")
    shown = book.at("show", few["id"])
    assert "basis     100 of 1,100 requests decide this" in shown
    assert "sure by" not in shown
    refused = book.refused("approve", few["id"], "--override", "all the same")
    assert "you proposed it, and the gate failed it" in refused
    some = book.json("propose", book.file(rules.replace("limit: 100", "limit: 106")), "-m", "Fewer")
    assert some["verdict"]["result"] == "passed", some["verdict"]
    book.at("approve", some["id"], "--publish")
    # Nothing of what was asked stands in the files of the capture.
    for file in (book.folder / "capture").rglob("*"):
        if file.is_file():
            assert b"u3" not in file.read_bytes()
            assert file.stat().st_mode & 0o077 == 0


# The server.


@contextmanager
def server(book: Book, *flags: str) -> Iterator[tuple[str, Child]]:
    """`sluicegate rules serve` as a user starts it."""
    port = free_port("127.0.0.1")
    log = book.folder.parent / f"rules-{port}.log"
    command = [
        sys.executable, "-m", "sluicegate.cli", "rules", "serve", "--rulebook", str(book.folder),
        "--listen", f"127.0.0.1:{port}", "--look-s", "0.2", *flags,
    ]  # fmt: skip
    child = Child("sluicegate rules serve", command, log)
    try:
        until(
            lambda: re.search("rules is ready", log.read_text()), "the rulebook", children=[child]
        )
        yield f"http://127.0.0.1:{port}", child
    finally:
        if child.exit_code is None:
            os.kill(child.pid, signal.SIGTERM)
        child.wait(60)
        child.stop()


def people(book: Book, more: str = "") -> str:
    """Who may do what, as the guide has it."""
    grants = {
        "ann": '"read-rules", "propose"',
        "bob": '"read-rules", "approve"',
        "eve": '"read-rules"',
    }
    text = "".join(
        f'[[callers]]\nname = "{name}"\ntoken_sha256 = "{token_digest(token)}"\n'
        f"grants = [{grants.get(name, READS)}]\n"
        for name, token in (("ann", ANN), ("bob", BOB), ("eve", EVE))
    )
    path = book.folder.parent / "people.toml"
    path.write_text(text + more)
    return str(path)


def test_a_server_lets_each_do_what_they_may_and_waits_for_nodes(book: Book) -> None:
    book.init(FIVE, alone=False)
    with (
        server(book, "--access", people(book)) as (url, _),
        LimiterProcess(book.folder, *following(book, "--node", "n1")) as one,
    ):
        ann, bob, eve = (RemoteRuleAdmin(url, token=token) for token in (ANN, BOB, EVE))
        proposal = ann.propose({"rules.yaml": TWO}, base="live", message="Fewer", by=ANYBODY)
        assert proposal["proposer"] == "ann"
        with pytest.raises(Forbidden, match="approve"):
            ann.approve(proposal["id"], override="mine", by=ANYBODY)
        with pytest.raises(Forbidden, match="propose"):
            eve.propose({"rules.yaml": TWO}, base="live", message="Fewer", by=ANYBODY)
        with pytest.raises(Unauthenticated):
            RemoteRuleAdmin(url).rules(by=ANYBODY)
        bob.approve(proposal["id"], override="nothing captured yet", by=ANYBODY)
        version = bob.publish(proposal["id"], by=ANYBODY)["version"]
        fleet = bob.wait(version, nodes=1, timeout_s=10, by=ANYBODY)
        assert fleet["reached"]
        assert admitted(one, "ann") == 2
        refused: list[Any] = [it for it in eve.audit(by=ANYBODY) if it["result"] == "refused"]
        assert {it["by"] for it in refused} == {"ann", "eve"}


def test_the_same_commands_ask_a_server(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    book.init(FIVE)
    with server(book, "--token", ANN) as (url, child):
        monkeypatch.setenv("SLUICEGATE_TOKEN", ANN)
        monkeypatch.setenv("SLUICEGATE_RULEBOOK", url)
        book.ok("propose", book.file(TWO), "-m", "Fewer")
        (one,) = book.json_by_server("list")
        assert one["state"] == "open"
        book.ok("approve", one["id"], "--override", "nothing captured yet", "--publish")
        assert book.json_by_server("status")["live"]["version"] == 2
        monkeypatch.setenv("SLUICEGATE_TOKEN", "wrong-0123456789abcdef")
        code, _, err = book.run("list")
        assert code == 1
        assert "token" in err
        os.kill(child.pid, signal.SIGTERM)
        assert child.wait(60) == 0


def test_a_server_lets_nobody_set_more_than_their_grants_allow(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    book.init(FIVE)  # own_approval is on
    with server(book, "--access", people(book)) as (url, _):
        monkeypatch.setenv("SLUICEGATE_RULEBOOK", url)
        words = ("set", "play.limit=2", "--reason", "INC-214")
        monkeypatch.setenv("SLUICEGATE_TOKEN", EVE)
        code, _, err = book.run(*words)
        assert (code, "'propose'" in err) == (1, True), err
        assert book.json_by_server("list") == []
        monkeypatch.setenv("SLUICEGATE_TOKEN", ANN)
        code, _, err = book.run(*words)
        assert (code, "'approve'" in err) == (1, True), err
        assert book.json_by_server("status")["live"]["version"] == 1
        for who in (EVE, ANN):
            monkeypatch.setenv("SLUICEGATE_TOKEN", who)
            code, _, err = book.run("forget", "n1", "--reason", "x")
            assert (code, "'approve'" in err) == (1, True), err


def test_a_server_widens_a_canary_by_itself_until_it_is_live(book: Book) -> None:
    book.init(FIVE)
    with (book.folder / "rulebook.toml").open("a") as file:
        file.write('canary_steps = "50%,100%"\ncanary_hold_s = 0.2\ncanary_samples_min = 5\n')
    names = ", ".join(f"u{n}: CRITICAL" for n in range(40))
    same = FIVE.replace("names: {gateway: CRITICAL}", f"names: {{{names}}}")
    book.publish(same)
    with (
        LimiterProcess(book.folder, *following(book, "--node", "n1")) as one,
        server(book, "--token", ANN) as (url, _),
    ):
        admin = RemoteRuleAdmin(url, token=ANN)
        proposal = admin.propose(
            {"rules.yaml": same.replace("limit: 5", "limit: 6")},
            base="live",
            message="+1",
            by=ANYBODY,
        )
        admin.approve(proposal["id"], override="nothing captured yet", by=ANYBODY)
        admin.canary(proposal["id"], share=5_000, kind="callers", by=ANYBODY)
        until(lambda: one.metric("sluicegate_rules_canary_version") == 3, "the canary")
        numbers = iter(range(10**6))

        def live() -> bool:
            user = f"u{next(numbers) % 40}"
            one.ask(
                "/v1/check", {"user_id": user, "resource_path": "/else", "priority": "CRITICAL"}
            )
            return bool(admin.status(by=ANYBODY)["live"]["version"] == 3)

        until(live, "version 3 live for all")
        history = admin.proposal(proposal["id"], by=ANYBODY)["history"]
        assert [it["by"] for it in history][-1] == "sluicegate"


def test_a_canary_that_refuses_critical_work_is_taken_back_by_itself(book: Book) -> None:
    names = ", ".join(f"u{n}: CRITICAL" for n in range(40))
    many = RULES.replace("names: {gateway: CRITICAL}", f"names: {{{names}}}")
    book.init(many)
    with (book.folder / "rulebook.toml").open("a") as file:
        file.write('canary_steps = "50%,100%"\ncanary_hold_s = 0.2\ncanary_samples_min = 20\n')
    with (
        LimiterProcess(book.folder, *following(book, "--node", "n1")) as one,
        server(book, "--token", ANN) as (url, _),
    ):
        admin = RemoteRuleAdmin(url, token=ANN)
        proposal = admin.propose(
            {"rules.yaml": many.replace("limit: 100", "limit: 1")},
            base="live",
            message="1",
            confirm=True,
            by=ANYBODY,
        )
        admin.approve(proposal["id"], override="nothing captured yet", by=ANYBODY)
        admin.canary(proposal["id"], share=5_000, kind="callers", by=ANYBODY)
        until(lambda: one.metric("sluicegate_rules_canary_version") == 2, "the canary")
        numbers = iter(range(10**6))

        def over() -> bool:
            user = f"u{next(numbers) // 6 % 40}"  # of six asks one may pass
            one.ask(
                "/v1/check", {"user_id": user, "resource_path": "/play", "priority": "CRITICAL"}
            )
            return bool(admin.proposal(proposal["id"], by=ANYBODY)["state"] == "rolled back")

        until(over, "it being taken back")
        until(lambda: one.metric("sluicegate_rules_canary_version") == 0, "its end")
        assert admin.status(by=ANYBODY)["live"]["version"] == 1
        entry = admin.proposal(proposal["id"], by=ANYBODY)["history"][-1]
        assert (entry["by"], "CRITICAL" in entry["why"]) == ("sluicegate", True)


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (["--rulebook", "files:nowhere/blobs"], 1, "there is no folder nowhere/blobs"),
        (["--rulebook", "book/blobs"], 2, "--rulebook: "),
        (["--rulebook-events", "carrier-pigeon:x"], 2, "--rulebook-events: "),
        (["--rulebook-report-s", "0"], 2, "--rulebook-report-s: "),
        (["--rulebook-keys", "none.pem"], 1, "the key none.pem"),
    ],
)
def test_a_limiter_is_told_what_is_wrong_with_where_it_is_to_look(
    book: Book, flags: list[str], code: int, message: str
) -> None:
    book.init(FIVE)
    settings = dict(zip(*[iter(following(book, "--node", "n1"))] * 2, strict=True))
    settings |= dict(zip(*[iter(flags)] * 2, strict=True))
    words = [word for pair in settings.items() for word in pair]
    parser = ArgumentParser()
    command.add_arguments(parser)
    with pytest.raises(SluicegateError) as refused:
        asyncio.run(loaded(parser.parse_args(words)))
    assert message in str(refused.value)
    assert isinstance(refused.value, BadValue) == (code == 2)


async def loaded(arguments: Namespace) -> None:
    app = LimiterApp(read_settings(LimiterSettings, arguments).settings)
    try:
        await app.start()
    finally:
        await app.end()
