"""Pages of what only some services have: rules, accounts, dead letters; and who chose the names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from sluicegate.apps.console.pages import rules, tables
from sluicegate.kernels.hash_ring import Rendezvous
from tests.apps.console.process import HOSTILE, ConsoleProcess
from tests.apps.console.states import account, looked, pictured, pubsub
from tests.apps.limiter.process import LimiterProcess, rules_file
from tests.apps.pubsub.cluster import PubSubCluster, token_of
from tests.engines.child import until

RULES = "version: 1\nrules:\n" + "".join(
    f'  - {{rule_id: rule-{n}, resource_path: "/<b>/{n}", limit: {n + 1}, window: 1m}}\n'
    for n in range(120)
)
MESH = """
domain: edge
descriptors:
  - key: path
    value: /api/*
    descriptors:
      - {key: user, rate_limit: {unit: minute, requests_per_unit: 5}}
"""
ODD = (HOSTILE, "\u202eevil", "a" * 10_000, "\ud800")


# A row of the page: of an account that is suppressed, by how much, since when, and by whom.
FACTOR = (
    r'<td class="name">ann</td>(?:<td class="number">[\d,.]+/s</td>){3}'
    r'<td class="number bad">(?P<factor>[\d.]+)</td><td class="number">[\d,]+ ms ago</td>'
    r'<td class="number">(?P<hour>[\d,]+)</td><td class="number">[\d,]+</td>'
    r'<td class="name">(?P<master>n\d)</td>'
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PubSubCluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with PubSubCluster(folder, 2, "--account-rate", "5", "--channel-rate", "0") as started:
        yield started


@pytest.fixture(scope="module")
def console(
    tmp_path_factory: pytest.TempPathFactory, cluster: PubSubCluster
) -> Iterator[ConsoleProcess]:
    folder = tmp_path_factory.mktemp("services")
    nodes = [flag for node in cluster.nodes.values() for flag in ("--services", node.url)]
    files = (rules_file(folder, RULES), rules_file(folder, MESH, "mesh.yaml"))
    flags = ("--rules", files[0], "--rules", files[1], "--dlq", f"files:{folder}/letters")
    with (
        LimiterProcess(folder, *flags) as limiter,
        ConsoleProcess(
            folder,
            *("--services", limiter.url, *nodes, "--services-token", token_of("ann")),
            *("--every-s", "0.2"),
        ) as console,
    ):
        limiter.check("ann", "/<b>/0")
        limiter.check("ann", "/<b>/0")
        yield console


def test_rules_are_found_by_letters_page_by_page_and_shown_with_counts(
    console: ConsoleProcess,
) -> None:
    page = console.page("/rules?q=rule-")
    assert "Of 121 rules" in page
    assert page.count('href="/rules?rule=') == 50
    follows = page.partition("after=")[2].partition('"')[0]
    assert console.page(f"/rules?q=rule-&after={follows}").count('href="/rules?rule=') == 50
    assert "No rule has these letters." in console.page("/rules?q=nothing")
    page = console.page("/rules?rule=rule-0")
    assert "1 in 60 s" in page
    assert page.count('<td class="number">1</td>') == 2  # allowed once, refused once
    assert "No limiter that answers has this rule" in console.page("/rules?rule=none")
    page = console.page("/rules?q=/api/")  # one of Envoy's format
    assert page.count('href="/rules?rule=') == 1
    assert '<td class="name">edge</td>' in page
    page = console.page("/rules?rule=edge%2Fpath%3D%252Fapi%252F*%2Fuser")
    assert "5 in 60 s" in page
    assert "sliding_window, per path, user" in page
    for path in ("/rules?q=<b>", "/rules?rule=rule-1"):
        assert "<b>/" not in console.page(quote(path, safe="/?=&"))
    assert console.ask("/rules?after=x")[0] == 400
    assert console.ask(f"/rules?q={'a' * 300}")[0] == 400


def test_accounts_and_dead_letters_are_shown_live(
    console: ConsoleProcess, cluster: PubSubCluster
) -> None:
    def suppressed() -> re.Match[str] | None:
        for node in cluster.nodes.values():
            for _ in range(10):
                node.publish("c", 1, token_of("ann"))
        return re.search(FACTOR, console.page("/accounts"))

    found = until(suppressed, "what the master of ann says of ann")
    assert 0 < float(found["factor"]) <= 1
    assert found["master"] == Rendezvous(dict.fromkeys(cluster.names, 1.0)).owner("ann")
    assert int(found["hour"].replace(",", "")) > 0
    assert "nodes heard" in console.page("/accounts")
    page = console.page("/dead-letters")
    assert "Every decision made without the store is kept." in page


@pytest.mark.parametrize("odd", ODD, ids=["script", "right-to-left", "10 kB", "half"])
def test_whatever_a_service_answers_is_shown_as_text(odd: str) -> None:
    rule = {
        "rule_id": odd, "resource_path": odd, "client_type": odd, "priority": odd, "per": odd,
        "limit": 1, "period_us": 1, "algorithm": odd,
    }  # fmt: skip
    answers = [(odd, {"rules": [rule], "next": None, "of": 1, "version": odd}, "")]
    picture = pictured(looked(None, pubsub(0.0, account(odd, 0.5, master=odd)), odd))
    shown = [
        rules.found("", answers, 1)["found"],
        *rules.detail(odd, answers, changes=True).values(),
        *tables.accounts(picture).values(),
    ]
    for html in shown:
        assert "<script" not in html
        assert "\u202e" not in html
        assert len(html) < 40_000
    broken = [("n", {"rules": [{"x": 1}]}, ""), ("n", None, "gone"), ("n", {"rules": 1}, "")]
    for one in broken:
        assert rules.found("", [one], 1)["found"].startswith('<p class="quiet">')
        rules.detail("x", [one], changes=False)
