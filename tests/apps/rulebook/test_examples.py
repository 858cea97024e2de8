"""Every example under every `--help` works as it is written, given files of those names."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from argparse import ArgumentParser
from itertools import count
from pathlib import Path

import pytest

from sluicegate.apps.rulebook import command, examples
from sluicegate.apps.rulebook.verbs import VERBS
from sluicegate.contracts.rulebook import NodeReport
from sluicegate.rules.releases.documents import node_name, report_bytes
from sluicegate.stores.blob_stores import open_blobs
from tests.apps.rulebook.stories import RULES, Book

SHOWN_ID = "3f2a91"  # of the proposal that the examples speak of
SHOWN_COMMIT = "6f1c22"
MESH = (
    "domain: edge\ndescriptors: [{key: user, rate_limit: {unit: minute, requests_per_unit: 5}}]\n"
)
OLD = "version: 1\nlimits: {all: {key: user, limit: 5/s}}\n"
ACCESS = '{"start_time": "2026-01-01T00:00:00Z", "x-user-id": "ann", "path": "/play"}\n'
EMERGENCY = """\
version: 1
degrade: {recommendations: stressed}
callers:
  names: {gateway: CRITICAL}
  pins: [vip]
  quotas: {reports: {limit: 2, window: 1h}}
rules:
  - {rule_id: play, resource_path: /play, limit: 100, window: 1h}
  - {rule_id: export, resource_path: /export, limit: 7, window: 1h}
  - {rule_id: search, resource_path: /search, limit: 7, window: 1h}
"""
SHOP = """\
domain: shop
descriptors:
  - {key: tenant, value: acme, rate_limit: {unit: minute, requests_per_unit: 5}}
"""
# A shared store that nobody has here, and files of which no test of this folder is about.
LIMITS = count(101)
NOT_RUN = ("s3://", "--tls-cert", "/srv/git")


def lines(text: str) -> list[list[str]]:
    """The commands of a page of examples, as words, without what is said beside them."""
    joined = re.sub(r"\s*\\\n\s+", " ", text)
    found = [line.strip() for line in joined.splitlines() if line.startswith("  sluicegate rules ")]
    assert found, text
    return [
        shlex.split(one)[2:]
        for line in found
        for one in re.split(r"\s{2,}[a-z-]", line, maxsplit=1)[0].split(" && ")
    ]


PAGES = {verb.name: verb.examples for verb in VERBS}
EACH = [(page, line) for page, text in PAGES.items() for line in lines(text)]


@pytest.fixture
def there(book: Book, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Book:
    """A rulebook called `book` with seven versions, and all files that examples name."""
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "rules/api.yaml": RULES, "live/api.yaml": RULES, "new/api.yaml": RULES, "api.yaml": RULES,
        "limits.yaml": OLD,
        "limits.toml": 'version = 1\nlimits.all = {key = "user", limit = "5/s"}\n',
        "mesh.yaml": MESH, "envoy/edge.yaml": MESH, "ratelimit/config/edge.yaml": MESH,
        "access.json": ACCESS, "log.csv": "time,user,path\n1,ann,/play\n",
    }.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    book.ok("init", "book", "--rules", "rules/", "--alone")
    for _ in range(6):
        publish(book)
    (tmp_path / "capture").mkdir()
    monkeypatch.setenv("SLUICEGATE_RULEBOOK", "book")
    return book


@pytest.mark.parametrize(("page", "words"), EACH, ids=[" ".join(line) for _, line in EACH])
def test_an_example_is_understood(page: str, words: list[str]) -> None:
    parser = ArgumentParser(exit_on_error=False)
    command.add_arguments(parser)
    assert parser.parse_args(words).verb == page


def test_the_examples_work_as_they_are_written(there: Book) -> None:
    for page, written in EACH:
        if any(one in " ".join(written) for one in NOT_RUN):
            continue
        words = prepared(there, page, written)
        code, out, err = there.run(*words)
        assert code in allowed(page, words), (words, out, err)
        assert "Traceback" not in err
        if "--json" in words:
            json.loads(out)
        if page == "canary" and "0" not in words:
            there.ok("canary", words[1], "--share", "0")


def prepared(book: Book, page: str, written: list[str]) -> list[str]:
    """The line as it is to be run: with what it speaks of in place, and nothing to wait for."""
    words = [*written]
    if page == "init":
        words[1] = f"{book.folder}-{len(' '.join(words))}"
    if page == "propose":
        (book.folder.parent / "rules" / "api.yaml").write_text(other_rules())
        book.file(other_rules(), "api.yaml")
    if page == "rollback":
        publish(book)
    if page == "set" and "play.limit=500" in words:
        for name, text in (("api.yaml", EMERGENCY), ("shop.yaml", SHOP)):
            proposal = book.propose(text, name=name)
            book.at("approve", proposal, "--override", "x", "--publish")
    if page == "forget":
        silent = NodeReport("edge-7", 1, 1, 0, 1, 1, 1, "", {})
        open_blobs(f"files:{book.folder}/blobs").put(node_name("edge-7"), report_bytes(silent))
    if "old.yaml" in words:
        old = other_rules().replace("play", "old")
        proposal = book.propose(f"version: 1\n{old[old.index('rules:') :]}", name="old.yaml")
        book.at("approve", proposal, "--override", "x", "--publish")
    if SHOWN_ID in words:
        words = with_id(book, page, words)
    commit = book.json("list", "--files")["commit"][:7]
    words = [commit if one == SHOWN_COMMIT else one for one in words]
    if "--timeout" in words:
        words[words.index("--timeout") + 1] = "0.1"
    elif "--wait" in words:
        words += ["--timeout", "0.1"]
    if page == "serve" and "--print-config" not in words:
        words += ["--print-config"]
    return words


def allowed(page: str, words: list[str]) -> tuple[int, ...]:
    if "--wait" in words:
        return (1,)  # no node is there
    if page == "shadow":
        return (3,)  # nothing was captured
    return (2,) if "--html" in words else (0,)  # nor are there figures


def other_rules() -> str:
    """Rules as they never were before."""
    return RULES.replace("limit: 100", f"limit: {next(LIMITS)}")


def publish(book: Book) -> None:
    proposal = book.propose(other_rules(), name="api.yaml")
    book.at("approve", proposal, "--override", "nothing captured yet", "--publish")


def with_id(book: Book, page: str, words: list[str]) -> list[str]:
    """The line with the id of a proposal that is as far as the verb takes it for."""
    proposal = book.propose(other_rules(), name="api.yaml")
    if page in ("publish", "canary"):
        book.at("approve", proposal, "--override", "nothing captured yet")
    if "0" in words:
        book.at("canary", proposal)
    if page == "approve" and "--override" not in words:
        words = [*words, "--override", "nothing captured yet"]
    return [proposal[:7] if one == SHOWN_ID else one for one in words]


def test_every_verb_has_examples_and_the_page_of_all_has_some() -> None:
    assert {verb.name for verb in VERBS} == {line[0] for _, line in EACH}
    assert len(lines(examples.EXAMPLES)) > 5


def test_the_readme_works_in_a_checkout(
    book: Book, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Path(__file__).parents[3]
    shutil.copytree(root / "deploy", tmp_path / "deploy")
    monkeypatch.chdir(tmp_path)
    shown = re.findall(r"^sluicegate rules (.*)$", (root / "README.md").read_text(), re.MULTILINE)
    begin, propose = [shlex.split(line) for line in shown]
    assert (begin[0], propose[0]) == ("init", "propose")
    book.ok(*begin)
    changed = next(tmp_path / word for word in propose if word.endswith(".yaml"))
    changed.write_text(changed.read_text().replace("limit: 10\n", "limit: 20\n"))
    book.ok(*propose)
