"""`sluicegate rules serve` as people run it: certificates, signals, two at once, metrics."""

from __future__ import annotations

import os
import re
import signal
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import trustme
import yaml

from sluicegate.contracts.errors import BadValue
from sluicegate.policies.access import token_digest
from sluicegate.rules.remote.admin import RemoteRuleAdmin
from tests.apps.limiter.process import LimiterProcess
from tests.apps.rulebook.stories import RULES, Book
from tests.apps.rulebook.test_fleet import ANN, ANYBODY, FIVE, following, server
from tests.engines.child import until

DEPLOY = Path(__file__).parents[3] / "deploy" / "limiter"
PEOPLE = f"""\
[[callers]]
name = "ann"
token_sha256 = "{token_digest(ANN)}"
grants = ["read-rules", "propose"]
[[callers]]
name = "bob"
certificate = "bob.example.org"
grants = ["read-rules", "approve"]
"""


def test_a_token_and_a_certificate_come_to_one_server_and_people_change_on_sighup(
    book: Book, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book.init(FIVE)
    monkeypatch.chdir(tmp_path)  # what is typed counts from here
    authority = trustme.CA()
    authority.cert_pem.write_to_path("ca.pem")
    for name in ("127.0.0.1", "bob.example.org"):
        issued = authority.issue_cert(name)
        issued.private_key_and_cert_chain_pem.write_to_path(f"{name}.pem")
    Path("people.toml").write_text(PEOPLE)
    flags = [
        "--access", "people.toml", "--tls-cert", "127.0.0.1.pem", "--tls-key", "127.0.0.1.pem",
        "--tls-client-ca", "ca.pem", "--tls-client-optional",
    ]  # fmt: skip
    with server(book, *flags) as (url, child):
        monkeypatch.setenv("SLUICEGATE_RULEBOOK", url.replace("http:", "https:"))
        bob = ["--ca", "ca.pem", "--cert", "bob.example.org.pem", "--cert-key",
               "bob.example.org.pem"]  # fmt: skip
        ann = ["--ca", "ca.pem"]
        assert "--ca FILE" in book.run("list")[2]
        assert "SLUICEGATE_TOKEN" in book.run("list", *ann)[2]
        monkeypatch.setenv("SLUICEGATE_TOKEN", ANN)
        proposal = book.json_by_server(
            "propose", book.file(RULES), "-m", "More", "--confirm", *ann
        )["id"]
        code, _, err = book.run("approve", proposal, "--override", "x", *ann)
        assert (code, "'approve'" in err) == (1, True)
        monkeypatch.delenv("SLUICEGATE_TOKEN")
        approval = book.json_by_server("approve", proposal, "--override", "nothing captured", *bob)
        assert approval["approvals"] == ["bob"]
        Path("people.toml").write_text(PEOPLE.replace('"read-rules", "approve"', '"read-rules"'))
        os.kill(child.pid, signal.SIGHUP)
        until(lambda: book.run("publish", proposal, *bob)[0] == 1, "that bob may not")
        Path("people.toml").write_text("no toml at all")
        os.kill(child.pid, signal.SIGHUP)
        until(lambda: "not reloaded" in child.tail(), "that it is told")
        assert book.json_by_server("list", *bob)[0]["state"] == "approved"


def test_with_a_client_authority_alone_a_certificate_must_come(
    book: Book, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book.init(FIVE)
    monkeypatch.chdir(tmp_path)
    authority = trustme.CA()
    authority.cert_pem.write_to_path("ca.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path("server.pem")
    Path("people.toml").write_text(PEOPLE)
    flags = ["--access", "people.toml", "--tls-cert", "server.pem", "--tls-key", "server.pem",
             "--tls-client-ca", "ca.pem"]  # fmt: skip
    with server(book, *flags) as (url, _):
        monkeypatch.setenv("SLUICEGATE_TOKEN", ANN)
        secure = url.replace("http:", "https:")
        code, _, err = book.run("list", "--rulebook", secure, "--ca", "ca.pem")
        assert (code, "--cert-key" in err) == (1, True), err
        assert "https://" in book.run("list", "--rulebook", url)[2]
        half = ["--ca", "ca.pem", "--cert", "server.pem"]
        assert "--cert-key: ''" in book.run("list", "--rulebook", secure, *half)[2]


def test_a_server_of_nobody_is_read_and_not_changed_and_says_so(book: Book) -> None:
    book.init(FIVE)
    with server(book) as (url, child):
        assert "now nobody may" in child.log.read_text()
        assert RemoteRuleAdmin(url).status(by=ANYBODY)["live"]["version"] == 1
        code, _, err = book.run("propose", book.file(RULES), "-m", "More", "--rulebook", url)
        assert (code, "SLUICEGATE_TOKEN" in err) == (1, True)
        os.kill(child.pid, signal.SIGINT)
        assert child.wait(60) == 0
        assert "Traceback" not in child.tail()


def test_leaving_server_is_not_ready_and_still_answers(book: Book) -> None:
    book.init(FIVE)
    with server(book, "--leave-s", "3600") as (url, child):
        assert readiness(url) == 200
        os.kill(child.pid, signal.SIGTERM)
        until(lambda: readiness(url) == 503, "that it is not ready", 10, children=[child])
        assert RemoteRuleAdmin(url).status(by=ANYBODY)["live"]["version"] == 1
        os.kill(child.pid, signal.SIGTERM)
        assert child.wait(60) == 0


def readiness(url: str) -> int:
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_two_servers_and_a_command_beside_them_lose_nothing(book: Book) -> None:
    book.init(FIVE)
    with server(book, "--token", ANN) as (one, _), server(book, "--token", ANN) as (other, _):
        admins = [RemoteRuleAdmin(url, token=ANN) for url in (one, other)]
        proposals = []
        for number in range(4):
            rule = f"rule_id: r{number}, resource_path: /{number}, limit: 5, window: 1h"
            text = f"version: 1\nrules: [{{{rule}}}]\n"
            proposal = admins[number % 2].propose(
                {f"{number}.yaml": text}, base="live", message="One more", by=ANYBODY
            )
            proposals.append(proposal["id"])
        for number, one_id in enumerate(proposals):
            admins[(number + 1) % 2].approve(one_id, override="x", by=ANYBODY)
        book.at("publish", proposals[0])
        versions = [admins[n % 2].publish(proposals[n], by=ANYBODY)["version"] for n in (1, 2, 3)]
        assert versions == [3, 4, 5]
        with pytest.raises(BadValue, match=r"it is (live|replaced)"):
            admins[0].publish(proposals[3], by=ANYBODY)
        names = {file["name"] for file in book.json("list", "--files")["files"]}
        assert names == {"rules.yaml", *[f"{n}.yaml" for n in range(4)]}


def test_a_server_that_is_killed_in_a_canary_goes_on_with_it(book: Book) -> None:
    book.init(FIVE)
    with (book.folder / "rulebook.toml").open("a") as file:
        file.write('canary_steps = "50%,100%"\ncanary_hold_s = 0.2\ncanary_samples_min = 5\n')
    names = ", ".join(f"u{n}: CRITICAL" for n in range(40))
    same = FIVE.replace("names: {gateway: CRITICAL}", f"names: {{{names}}}")
    book.publish(same)
    proposal = book.propose(same.replace("limit: 5", "limit: 6"))
    book.at("approve", proposal, "--override", "nothing captured yet")
    with LimiterProcess(book.folder, *following(book, "--node", "n1")) as one:
        with server(book, "--token", ANN) as (url, child):
            RemoteRuleAdmin(url, token=ANN).canary(
                proposal, share=5_000, kind="callers", by=ANYBODY
            )
            child.kill()
        until(lambda: one.metric("sluicegate_rules_canary_version") == 3, "the canary")
        with server(book, "--token", ANN) as (url, _):
            admin = RemoteRuleAdmin(url, token=ANN)
            numbers = iter(range(10**6))

            def live() -> bool:
                one.check(f"u{next(numbers) % 40}", "/else", priority="CRITICAL")
                return bool(admin.status(by=ANYBODY)["live"]["version"] == 3)

            until(live, "version 3 live for all")
    assert one.log.read_text().count("Traceback") == 0


def test_dashboard_and_alerts_ask_only_for_metrics_that_there_are(book: Book) -> None:
    queries = "".join(
        (DEPLOY / name).read_text() for name in ("grafana-rulebook.json", "rulebook-alerts.yml")
    )
    names = set(re.findall(r"\bsluicegate_[a-z_]+\b", queries))
    assert len(names) > 10
    book.init(FIVE)
    flags = following(book, "--node", "n1", "--capture", f"{book.folder}/capture")
    with server(book) as (url, _), LimiterProcess(book.folder, *flags) as one:
        with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
            page = answer.read().decode()
        page += str(one.ask("/metrics")[1])
    there = set(re.findall(r"^(sluicegate_[a-z_]+)", page, re.MULTILINE))
    assert names - there == set()
    (group,) = yaml.safe_load((DEPLOY / "rulebook-alerts.yml").read_text())["groups"]
    assert all(rule["annotations"]["what_to_do"] for rule in group["rules"])
