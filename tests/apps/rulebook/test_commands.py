"""The command line on a folder: the life of a change, told and refused."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import stat
import subprocess
from pathlib import Path

import pytest

from sluicegate.rules.repository.repository import Repository
from tests.apps.rulebook.stories import RULES, Book

LESS = RULES.replace("limit: 100", "limit: 50")


def test_a_new_rulebook_has_a_version_keys_and_words_on_how_to_go_on(book: Book) -> None:
    output = book.ok("init", book.folder, "--rules", book.file(RULES))
    assert "version 1" in output
    assert f"--rulebook files:{book.folder}/blobs" in output
    modes = {
        name: stat.S_IMODE((book.folder / name).stat().st_mode)
        for name in ("keys", "keys/signing.pem", "capture.key", "blobs")
    }
    assert modes == {
        "keys": 0o700, "keys/signing.pem": 0o600, "capture.key": 0o600, "blobs": 0o700,
    }  # fmt: skip
    (one,) = book.json("list", "--versions")
    assert (one["version"], one["live"]) == (1, True)
    assert "play" in book.at("show", "rules.yaml")
    assert "there is a rulebook in it already" in book.run("init", book.folder)[2]


def test_a_rulebook_may_begin_without_rules(book: Book) -> None:
    book.ok("init", book.folder)
    (file,) = book.json("list", "--files")["files"]
    assert (file["name"], file["rules"]) == ("limits.yaml", 0)


def test_bad_rules_make_no_rulebook(book: Book) -> None:
    code, _, err = book.run("init", book.folder, "--rules", book.file("version: 1\nrules: [7]\n"))
    assert code == 2
    assert "rules[0]" in err
    assert not book.folder.exists()


def test_a_change_is_proposed_approved_published_and_taken_back(book: Book) -> None:
    book.init()
    proposal = book.propose(LESS, "--reason", "they asked")
    assert "-  - {rule_id: play, resource_path: /play, limit: 100" in book.at("diff", proposal)
    assert "changed: play" in book.at("diff", proposal)
    assert "no gate has judged it" in book.refused("approve", proposal)
    book.at("approve", proposal, "--override", "nothing captured yet")
    assert book.json("publish", proposal)["version"] == 2
    assert "limit: 50" in book.at("show", "rules.yaml")
    assert "limit: 100" in book.at("show", "rules.yaml", "--at", "1")
    assert book.json("rollback", "1", "--reason", "too few")["live"]["version"] == 3
    assert "limit: 100" in book.at("show", "rules.yaml")
    assert [one["version"] for one in book.json("list", "--versions")] == [3, 2, 1]
    audit = [one["call"] for one in book.json("audit")]
    assert audit[:2] == ["roll_back", "publish"]
    assert "they asked" in book.at("show", proposal)


def test_without_alone_nobody_approves_their_own(book: Book) -> None:
    book.init(alone=False)
    proposal = book.propose(LESS, "--as", "ann")
    output = book.refused("approve", proposal, "--override", "x", "--as", "ann")
    assert "you proposed it" in output
    book.at("approve", proposal, "--override", "nothing captured yet", "--as", "bob")
    assert book.json("show", proposal)["approvals"] == ["bob"]


def test_two_changes_of_one_file_are_a_conflict_that_names_it(book: Book) -> None:
    book.init()
    first = book.json("list", "--files")["commit"]
    book.publish(LESS)
    output = book.refused(
        "propose", book.file(RULES.replace("100", "70")), "-m", "also", "--base", first
    )
    assert "rules.yaml" in output
    assert "changed" in output


def test_a_folder_becomes_files_and_a_file_can_be_taken_out(book: Book, tmp_path: Path) -> None:
    book.init()
    more = tmp_path / "more" / "deep"
    more.mkdir(parents=True)
    (more / "mesh.yaml").write_text("domain: edge\ndescriptors: [{key: user}]\n")
    addition = book.json("propose", more.parent, "--under", "teams/a", "-m", "More")
    diff = book.json("diff", addition["id"])
    assert [(one["name"], one["change"]) for one in diff["files"]] == [
        ("teams/a/deep/mesh.yaml", "added")
    ]
    removal = book.json(
        "propose", more.parent, "--remove", "rules.yaml", "-m", "In its place", "--confirm"
    )
    assert "play" in book.json("diff", removal["id"])["rules"]["removed"]
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
    (one,) = book.json("list", "--state", "open")
    assert one["proposer"] == "git:Eve <eve@example.org>"
    assert one["message"] == "Half of it"
    # What is live has not moved; only the publisher moves it.
    assert book.json("status")["live"]["version"] == 1
    book.at("approve", one["id"], "--override", "seen", "--publish")
    git("-C", str(clone), "pull")
    assert book.json("status")["live"]["version"] == 2


def test_lint_tells_every_problem_with_its_line(book: Book) -> None:
    file = book.file("version: 1\nrules:\n  - {rule_id: a, limit: 0, window: 1s}\n")
    code, out, _ = book.run("lint", file)
    assert code == 1
    assert "line 3" in out
    code, out, _ = book.run("lint", file, "--json")
    (problem,) = json.loads(out)["problems"]
    assert (code, problem["line"], problem["field"]) == (1, 3, "rules[0].limit")
    assert "these files can be used" in book.ok("lint", book.file(RULES))


def test_envoys_rules_are_taken_over_as_a_proposal(book: Book) -> None:
    book.init()
    file = book.file(
        "domain: edge\n"
        "descriptors: [{key: user, rate_limit: {unit: minute, requests_per_unit: 5}}]\n",
        "edge.yaml",
    )
    dry = book.at("import-envoy", file, "--dry-run")
    assert "1 rule of the domain edge" in dry
    assert book.json("list") == []
    proposal = book.json("import-envoy", file)
    assert book.json("diff", proposal["id"])["files"][0]["name"] == "envoy/edge.yaml"
    assert "no rules file of Envoy's" in book.refused("import-envoy", book.file(RULES))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["show", "nothing"], "nothing"),
        (["propose", "-m", "x"], "give files or folders"),
        (["publish", "000000", "--wait", "-1"], "--wait"),
        (["canary", "000000", "--share", "110%"], "--share"),
        (["pin", "n1", "x", "--reason", "y"], "VERSION"),
        (["status", "--wait", "2"], "--release"),
    ],
)
def test_what_was_asked_wrongly_is_told(book: Book, words: list[str], message: str) -> None:
    book.init()
    code, _, err = book.run(*words, "--rulebook", book.folder)
    assert code == 2
    assert message in err
    assert "Traceback" not in err


def test_a_folder_without_a_rulebook_is_told_how_to_make_one(book: Book) -> None:
    output = book.refused("list")
    assert "sluicegate rules init" in output


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('canary_steps = "5%,1%"', "canary_steps"),
        ("approvals_min = 0", "approvals_min"),
        ('nonsense = "x"', "nonsense"),
    ],
)
def test_a_wrong_setting_is_told_with_its_file(book: Book, line: str, message: str) -> None:
    book.init()
    with (book.folder / "rulebook.toml").open("a") as file:
        file.write(line + "\n")
    output = book.refused("list")
    assert message in output
    assert "rulebook.toml" in output


def test_nothing_is_said_twice_of_a_change_that_was_not_judged(book: Book) -> None:
    book.init()
    proposal = book.propose(LESS)
    for output in (book.at("show", proposal), book.at("audit"), book.refused("approve", proposal)):
        assert "nothing has been captured" in output.lower()
        assert "Not judged" not in output
    assert f"proposal {proposal}: it is open" in book.refused("publish", proposal)
    assert "a rulebook is in" in book.ok("init", f"{book.folder}-2", "--rules", book.file(RULES))


def test_every_answer_is_json_where_that_is_asked_for(book: Book) -> None:
    book.init()
    proposal = book.propose(LESS)
    for words in (
        ["show", proposal], ["show", "rules.yaml"], ["diff", proposal], ["list"],
        ["list", "--files"], ["list", "--versions"], ["status"], ["audit"], ["shadow", proposal],
        ["approve", proposal, "--override", "x"], ["canary", proposal],
        ["canary", proposal, "--share", "0"],
        ["pin", "n1", 1, "--reason", "x"], ["pin", "n1", 0, "--reason", "x"],
        ["import-envoy", book.file("domain: d\n", "d.yaml"), "--dry-run"],
    ):  # fmt: skip
        code, out, _ = book.run(*words, "--rulebook", book.folder, "--json")
        assert code == (3 if words[0] == "shadow" else 0), words
        json.loads(out)
    second = book.propose(RULES.replace("100", "70"))
    book.at("approve", second, "--override", "x")
    for words in (["publish", second], ["rollback", "1", "--reason", "x"]):
        code, out, err = book.run(
            *words, "--wait", 1, "--timeout", 0.1, "--rulebook", book.folder, "--json"
        )
        assert (code, json.loads(out)["reached"]) == (1, False)
        assert "runs on 0 of 1 node\n" in err
    assert json.loads(book.run("reject", book.propose(LESS), "--reason", "x", "--json",
                               "--rulebook", book.folder)[1])["state"] == "rejected"  # fmt: skip


def test_what_a_store_could_not_take_is_told_and_handed_on_later(book: Book) -> None:
    book.init()
    proposal = book.propose(LESS)
    book.at("approve", proposal, "--override", "x")
    blobs = book.folder / "blobs"
    blobs.rename(book.folder / "away")
    blobs.write_text("in its place")
    code, out, err = book.run("publish", proposal, "--rulebook", book.folder)
    assert code == 1
    assert "live as version 2" in out
    assert err.startswith("sluicegate: publishing: the blob store")
    assert "sluicegate:" not in out
    blobs.unlink()
    (book.folder / "away").rename(blobs)
    code, out, err = book.run("status", "--rulebook", book.folder)
    assert (code, err) == (0, "")
    assert (blobs / "editions" / "2.json").exists()


@pytest.mark.parametrize("made", ["keys", "repository", "settings"])
def test_init_goes_on_where_it_was_interrupted(book: Book, made: str) -> None:
    book.ok("init", book.folder, "--rules", book.file(RULES))
    half = book.folder.parent / "half"
    shutil.copytree(book.folder / "keys", half / "keys")
    key = (half / "keys" / "signing.pem").read_bytes()
    if made != "keys":
        Repository.create(half / "rules.git", files={"rules.yaml": RULES.encode()}).close()
    if made == "settings":
        shutil.copy(book.folder / "rulebook.toml", half)
    output = book.ok("init", half, "--rules", book.file(LESS))
    assert "version 1, 1 file of rules" in output
    assert (half / "keys" / "signing.pem").read_bytes() == key
    assert "limit: 50" in book.ok("show", "rules.yaml", "--rulebook", half)
    assert "already" in book.run("init", half)[2]


def test_a_repository_that_is_there_becomes_a_rulebook(book: Book, tmp_path: Path) -> None:
    theirs = tmp_path / "limits.git"
    files = {"team/a.yaml": RULES.encode(), "README.md": b"ours"}
    Repository.create(theirs, branch="trunk", files=files).close()
    words = ["init", book.folder, "--repository", theirs, "--branch", "trunk", "--alone"]
    output = book.ok(*words)
    assert f"git clone {theirs}" in output
    assert "play" in book.at("show", "team/a.yaml")
    proposal = book.propose(LESS, "--under", "team", name="a.yaml")
    book.at("approve", proposal, "--override", "x", "--publish")
    assert not (book.folder / "rules.git").exists()
    code, _, err = book.run("init", f"{book.folder}-2", "--repository", tmp_path / "none")
    assert (code, "there is no git repository" in err) == (2, True)
    Repository.create(tmp_path / "other.git", branch="trunk", files=files).close()
    code, _, err = book.run("init", f"{book.folder}-3", "--repository", tmp_path / "other.git")
    assert (code, "--rules: give files; there is nothing on refs/heads/main" in err) == (2, True)
    assert not Path(f"{book.folder}-2").exists()


def test_init_takes_another_store_and_tells_nodes_of_it(book: Book, tmp_path: Path) -> None:
    output = book.ok("init", book.folder, "--blobs", f"files:{tmp_path}/more blobs", "--events", "")
    assert f"--rulebook 'files:{tmp_path}/more blobs'" in output
    assert (tmp_path / "more blobs" / "editions" / "1.json").exists()
    assert not (book.folder / "events" / "segments").exists()
    book.ok("init", tmp_path / "branched", "--branch", "trunk")
    head = (tmp_path / "branched" / "rules.git" / "HEAD").read_text()
    assert head == "ref: refs/heads/trunk\n"
    assert json.loads(book.ok("list", "--files", "--rulebook", tmp_path / "branched", "--json"))
    (tmp_path / "file").write_text("")
    code, _, err = book.run("init", tmp_path / "file")
    assert code == 2
    assert "is no folder" in err


def test_a_folder_can_be_moved_and_typed_paths_count_from_where_they_are_typed(
    book: Book, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book.init()
    book.folder = book.folder.rename(tmp_path / "elsewhere")
    assert book.publish(LESS) == 2
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SLUICEGATE_RULES_CAPTURE", "seen")
    config = book.at("serve", "--print-config", "--access", "people.toml", "--events", "files:e")
    lines = dict(line.split(" = ", 1) for line in config.splitlines() if " = " in line)
    assert lines["access"].startswith(f'"{tmp_path}/people.toml"')
    assert lines["capture"].startswith(f'"{tmp_path}/seen"')
    assert lines["events"].startswith(f'"files:{tmp_path}/e"')
    assert lines["blobs"].startswith('"files:blobs"')


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--tls-client-ca", "ca.pem"], "--tls-cert"),
        (["--tls-client-ca", "ca.pem", "--tls-cert", "c", "--tls-key", "k"], "--access"),
        (["--tls-cert", "c"], "--tls-key"),
        (["--config", "x"], "rulebook.toml"),
        (["--listen", "0.0.0.0:0"], "--insecure"),
        (["--node-gone-s", "20"], "--node-gone-s: '20' cannot be used; give 0 for never, or 60"),
        (
            ["--rollout-valid-s", "3"],
            "--rollout-valid-s: '3' cannot be used; give 0 for never, or 4",
        ),
    ],
)
def test_a_server_is_told_what_is_missing(book: Book, flags: list[str], message: str) -> None:
    book.init()
    before = signal.getsignal(signal.SIGINT)
    code, _, err = book.run("serve", "--rulebook", book.folder, *flags)
    assert code == 2
    assert message in err
    assert signal.getsignal(signal.SIGINT) is before  # Ctrl-C is ours again


@pytest.mark.parametrize("place", ["ftp://rules.example.org", "http:/rules", "https://"])
def test_a_place_that_is_none_is_told_what_a_place_is(book: Book, place: str) -> None:
    code, _, err = book.run("list", "--rulebook", place)
    assert code == 2
    assert "--rulebook" in err
    assert ("unix:PATH" in err) == (place == "ftp://rules.example.org")


def test_a_canary_stays_of_what_it_is_and_its_share_is_said_plainly(book: Book) -> None:
    book.init()
    proposal = book.propose(LESS)
    book.at("approve", proposal, "--override", "x")
    for share, message in (
        ("1", "1% or 100%"),
        ("0.00001", "0.01%"),
        ("-1", "--share"),
        ("x", "5%"),
    ):
        assert message in book.refused("canary", proposal, f"--share={share}")
    book.at("canary", proposal, "--by", "nodes", "--share", "1%")
    assert book.json("canary", proposal, "--share", "0.5")["state"] == "canary"
    canary = book.json("status")["canary"]
    assert (canary["share"], canary["by"]) == (5_000, "nodes")
    assert "this canary is by nodes" in book.refused("canary", proposal, "--by", "callers")
    other = book.propose(RULES.replace("100", "70"))
    book.at("approve", other, "--override", "x")
    output = book.refused("publish", other)
    assert output.startswith("sluicegate: a canary of version 2")
    assert "somebody else" not in output
    book.at("canary", proposal, "--share", "0")
    assert book.json("status")["canary"] is None
    assert book.json("canary", other, "--share", "100%")["state"] == "live"


def test_names_of_any_alphabet_are_names(book: Book) -> None:
    book.init()
    name = "größe-日本.yaml"
    text = "version: 1\nrules:\n  - {rule_id: big, resource_path: /größe, limit: 5, window: 1h}\n"
    proposal = book.propose(text, "--as", "Éva Ünal", "--reason", "weil es so ist", name=name)
    assert book.json("show", proposal)["proposer"] == "Éva Ünal"
    assert f"+++ b/{name}" in book.at("diff", proposal)
    book.at("approve", proposal, "--override", "ça va", "--publish")
    assert "/größe" in book.at("show", name)


def test_the_status_names_each_number_so_that_none_is_taken_for_another(book: Book) -> None:
    book.init()
    book.publish(RULES.replace("100", "90"))
    book.at("pin", "n1", "1", "--reason", "to compare")
    commit = book.json("status")["live"]["commit"]
    status = book.at("status")
    assert status.startswith(f"release 2 (revision {commit[:10]}) is live")
    assert "rollout 3 says so to the nodes" in status
    assert "n1 is pinned to release 1" in status
    assert "version" not in status
    assert "release  now" in book.at("list", "--releases").splitlines()[0]


def test_a_field_is_set_in_one_step_by_who_may(book: Book) -> None:
    book.init()
    said = book.at("set", "play.limit=500", "--reason", "INC-214: playback starves")
    assert "play.limit: 100 -> 500" in said
    status = book.json("status")
    assert status["live"]["version"] == 2
    assert "limit: 500" in book.at("show", "rules.yaml")
    audit = book.json("audit")
    reasons = {one["call"]: one["why"] for one in audit if "INC-214" in one["why"]}
    assert reasons.keys() == {"publish", "approve", "propose"}


def test_a_field_that_is_set_by_one_who_may_not_approve_it_waits_for_a_second(book: Book) -> None:
    book.init(alone=False)
    code, out, err = book.run(
        "set", "play.limit=500", "--reason", "INC-214", "--as", "ann", "--rulebook", book.folder
    )
    assert code == 1
    assert "you proposed it; have somebody else approve it" in err
    assert "state     open" in out
    [proposal] = book.json("list")
    assert book.json("status")["live"]["version"] == 1
    words = shlex.split(err.partition("goes on with: ")[2])[2:]
    assert words == ["approve", proposal["id"][:10], "--publish", "--override", "WHY"]
    book.at(*words, "--as", "bob")
    assert book.json("status")["live"]["version"] == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["play.limit=500"], "--reason"),
        (["play.limit", "--reason", "x"], "play.limit=500"),
        (["play=500", "--reason", "x"], "play.limit=500"),
        (["none.limit=500", "--reason", "x"], "the id of a rule that is live"),
        (["play.limit=much", "--reason", "x"], "give a whole number"),
        (["play.limit=100", "--reason", "x"], "'play.limit=100' cannot be used; live has that"),
        (["play.limit=", "--reason", "x"], "play.limit: give a value in one line"),
        (["pley.limit=500", "--reason", "x"], "did you mean 'play'?"),
        (["play.limit=1", "play.limit=2", "--reason", "x"], "set twice"),
    ],
)
def test_what_cannot_be_set_changes_and_proposes_nothing(
    book: Book, words: list[str], message: str
) -> None:
    book.init()
    assert message in book.refused("set", *words)
    assert book.json("list") == []
