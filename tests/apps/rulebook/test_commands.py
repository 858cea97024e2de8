"""The command line on a folder: the life of a change, told and refused."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from tests.apps.rulebook.stories import RULES, Book

LESS = RULES.replace("limit: 100", "limit: 50")


def test_a_new_rulebook_has_a_version_keys_and_words_on_how_to_go_on(book: Book) -> None:
    said = book.ok("init", book.folder, "--rules", book.file(RULES))
    assert "version 1" in said
    assert f"--rulebook files:{book.folder}/blobs" in said
    modes = {
        name: stat.S_IMODE((book.folder / name).stat().st_mode)
        for name in ("keys", "keys/signing.pem", "capture.key", "blobs")
    }
    assert modes == {
        "keys": 0o700, "keys/signing.pem": 0o600, "capture.key": 0o600, "blobs": 0o700,
    }  # fmt: skip
    (one,) = book.told("list", "--versions")
    assert (one["version"], one["live"]) == (1, True)
    assert "play" in book.at("show", "rules.yaml")
    assert "there is a rulebook in it already" in book.run("init", book.folder)[2]


def test_a_rulebook_may_begin_without_rules(book: Book) -> None:
    book.ok("init", book.folder)
    (file,) = book.told("list", "--files")["files"]
    assert (file["name"], file["rules"]) == ("limits.yaml", 0)


def test_bad_rules_make_no_rulebook(book: Book) -> None:
    code, _, err = book.run("init", book.folder, "--rules", book.file("version: 1\nrules: [7]\n"))
    assert code == 2
    assert "rules[0]" in err
    assert not book.folder.exists()


def test_a_change_is_proposed_approved_published_and_taken_back(book: Book) -> None:
    book.init()
    known = book.propose(LESS, "--reason", "they asked")
    assert "-  - {rule_id: play, resource_path: /play, limit: 100" in book.at("diff", known)
    assert "changed: play" in book.at("diff", known)
    assert "no gate has judged it" in book.refused("approve", known)
    book.at("approve", known, "--override", "nothing captured yet")
    assert book.told("publish", known)["version"] == 2
    assert "limit: 50" in book.at("show", "rules.yaml")
    assert "limit: 100" in book.at("show", "rules.yaml", "--at", "1")
    assert book.told("rollback", "1", "--reason", "too few")["live"]["version"] == 3
    assert "limit: 100" in book.at("show", "rules.yaml")
    assert [one["version"] for one in book.told("list", "--versions")] == [3, 2, 1]
    audit = [one["call"] for one in book.told("audit")]
    assert audit[:2] == ["roll_back", "publish"]
    assert "they asked" in book.at("show", known)


def test_without_alone_nobody_approves_their_own(book: Book) -> None:
    book.init(alone=False)
    known = book.propose(LESS, "--as", "ann")
    said = book.refused("approve", known, "--override", "x", "--as", "ann")
    assert "you proposed it" in said
    book.at("approve", known, "--override", "nothing captured yet", "--as", "bob")
    assert book.told("show", known)["approvals"] == ["bob"]


def test_two_changes_of_one_file_are_a_conflict_that_names_it(book: Book) -> None:
    book.init()
    first = book.told("list", "--files")["commit"]
    book.publish(LESS)
    said = book.refused(
        "propose", book.file(RULES.replace("100", "70")), "-m", "also", "--base", first
    )
    assert "rules.yaml" in said
    assert "changed" in said


def test_a_folder_becomes_files_and_a_file_can_be_taken_out(book: Book, tmp_path: Path) -> None:
    book.init()
    more = tmp_path / "more" / "deep"
    more.mkdir(parents=True)
    (more / "mesh.yaml").write_text("domain: edge\ndescriptors: [{key: user}]\n")
    said = book.told("propose", more.parent, "--under", "teams/a", "-m", "More")
    found = book.told("diff", said["id"])
    assert [(one["name"], one["change"]) for one in found["files"]] == [
        ("teams/a/deep/mesh.yaml", "added")
    ]
    gone = book.told("propose", more.parent, "--remove", "rules.yaml", "-m", "In its place")
    assert "play" in book.told("diff", gone["id"])["rules"]["removed"]
    assert "give a file" in book.refused("propose", "--remove", "rules.yaml", "-m", "Nothing left")


def test_a_push_is_a_proposal_of_its_author(book: Book, tmp_path: Path) -> None:
    if shutil.which("git") is None:
        pytest.skip("git is missing; apt-get install git")
    book.init()
    clone = tmp_path / "clone"

    def git(*words: str) -> None:
        who = {"GIT_AUTHOR_NAME": "Eve", "GIT_AUTHOR_EMAIL": "eve@example.org",
               "GIT_COMMITTER_NAME": "Eve", "GIT_COMMITTER_EMAIL": "eve@example.org"}  # fmt: skip
        subprocess.run(["git", *words], check=True, env={**os.environ, **who}, capture_output=True)

    git("clone", str(book.folder / "rules.git"), str(clone))
    (clone / "rules.yaml").write_text(LESS)
    git("-C", str(clone), "commit", "-am", "Half of it")
    git("-C", str(clone), "push")
    (one,) = book.told("list", "--state", "open")
    assert one["proposer"] == "git:Eve <eve@example.org>"
    assert one["message"] == "Half of it"
    # What is live has not moved; only the publisher moves it.
    assert book.told("status")["live"]["version"] == 1
    book.at("approve", one["id"], "--override", "seen", "--publish")
    git("-C", str(clone), "pull")
    assert book.told("status")["live"]["version"] == 2


def test_lint_tells_every_problem_with_its_line(book: Book) -> None:
    file = book.file("version: 1\nrules:\n  - {rule_id: a, limit: 0, window: 1s}\n")
    code, out, _ = book.run("lint", file)
    assert code == 1
    assert "line 3" in out
    code, out, _ = book.run("lint", file, "--json")
    (problem,) = json.loads(out)["problems"]
    assert (code, problem["line"], problem["field"]) == (1, 3, "rules[0].limit")
    assert "they can be used" in book.ok("lint", book.file(RULES))


def test_envoys_rules_are_taken_over_as_a_proposal(book: Book) -> None:
    book.init()
    file = book.file(
        "domain: edge\n"
        "descriptors: [{key: user, rate_limit: {unit: minute, requests_per_unit: 5}}]\n",
        "edge.yaml",
    )
    dry = book.at("import-envoy", file, "--dry-run")
    assert "1 rule of the domains edge" in dry
    assert book.told("list") == []
    said = book.told("import-envoy", file)
    assert book.told("diff", said["id"])["files"][0]["name"] == "envoy/edge.yaml"
    assert "no rules file of Envoy's" in book.refused("import-envoy", book.file(RULES))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["show", "nothing"], "nothing"),
        (["propose", "-m", "x"], "give files or folders"),
        (["publish", "000000", "--wait", "-1"], "--wait"),
        (["canary", "000000", "--share", "110%"], "--share"),
        (["pin", "n1", "x", "--reason", "y"], "VERSION"),
        (["status", "--wait", "2"], "--version"),
    ],
)
def test_what_was_asked_wrongly_is_told(book: Book, words: list[str], told: str) -> None:
    book.init()
    code, _, err = book.run(*words, "--rulebook", book.folder)
    assert code == 2
    assert told in err
    assert "Traceback" not in err


def test_a_folder_without_a_rulebook_is_told_how_to_make_one(book: Book) -> None:
    said = book.refused("list")
    assert "headgate rules init" in said


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('canary_steps = "5%,1%"', "canary_steps"),
        ("approvals_min = 0", "approvals_min"),
        ('nonsense = "x"', "nonsense"),
    ],
)
def test_a_wrong_setting_is_told_with_its_file(book: Book, line: str, told: str) -> None:
    book.init()
    with (book.folder / "rulebook.toml").open("a") as file:
        file.write(line + "\n")
    said = book.refused("list")
    assert told in said
    assert "rulebook.toml" in said
