"""What is refused is told in flags and verbs, once, with what to do."""

from __future__ import annotations

import pickle

import pytest

from sluicegate.apps.rulebook.messages import RewordedError, explain_unreachable, reword
from sluicegate.apps.rulebook.output import (
    print_failures,
    print_unreached,
    verdict_words,
    without_result,
)
from sluicegate.command_line.text import harmless
from sluicegate.contracts.errors import (
    BadValue,
    Conflict,
    Forbidden,
    SluicegateError,
    Unauthenticated,
    Unavailable,
)

NAMED = "put a token into SLUICEGATE_TOKEN, or give --cert and --cert-key"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            BadValue("proposal", "p4152ca5232d", "it is open; only what is approved goes live"),
            "proposal p4152ca5232d: it is open; only what is approved goes live",
        ),
        (
            BadValue("proposal", "zzz", "give an id as `proposals` lists them"),
            "proposal zzz: give an id as `sluicegate rules list` shows them",
        ),
        (
            BadValue(
                "proposal", "p1", "no gate has judged it (Not judged: nothing seen.); "
                "approve it with an override that says why",
            ),
            "proposal p1: no gate has judged it (nothing seen.); approve it with --override WHY",
        ),
        (
            BadValue("commit", "4152ca5232dc25ec89d35f379c37e7e133d97633", "it is live already"),
            "commit 4152ca5232dc: it is live already",
        ),
        (
            BadValue("to", "version 3", "these rules are live already"),
            "version 3: these rules are live already",
        ),
        (
            BadValue("old.yaml", None, "there is no such file to take out"),
            "old.yaml: there is no such file to take out",
        ),
        (
            BadValue("ca", "x.pem", "give PEM certificates"),
            "--ca: 'x.pem' cannot be used; give PEM certificates",
        ),
        (BadValue("message", "", "say something"), "--message: '' cannot be used; say something"),
        (
            BadValue("version", 7, "give the number of a release, as `versions` lists them"),
            (
                "version: 7 cannot be used; give the number of a release, "
                "as `sluicegate rules list --releases` shows them"
            ),
        ),
        (
            Conflict("what is live", "a canary of version 2 is under way; finish it first"),
            "a canary of version 2 is under way; finish it first",
        ),
        (
            Unauthenticated("send Authorization: Bearer and a token"),
            f"the caller is not known here; {NAMED}",
        ),
        (
            Forbidden("anonymous", "propose"),
            f"this takes the grant 'propose'; {NAMED}",
        ),
    ],
)  # fmt: skip
def test_a_refusal_is_told_as_whoever_types_would_say_it(
    error: SluicegateError, message: str
) -> None:
    assert str(reword(error)) == message


@pytest.mark.parametrize(
    "error",
    [
        BadValue("--share", "110%", "give a share"),
        Forbidden("ann", "approve"),
        Unauthenticated("this token is nobody's"),
        Unavailable("the repository", "the disk is full"),
        Conflict("the file a.yaml", "it has changed"),
    ],
)
def test_what_is_well_said_stays_as_it_is(error: SluicegateError) -> None:
    assert reword(error) is error


def test_other_words_do_not_change_whose_fault_it_is() -> None:
    error = reword(BadValue("proposal", "p1", "it is open"))
    assert isinstance(error, BadValue)
    assert isinstance(error, RewordedError)
    assert (error.field, error.value, error.remedy) == ("proposal", "p1", "it is open")
    assert pickle.loads(pickle.dumps(error)).remedy == "it is open"


def test_a_value_of_any_length_stays_a_line() -> None:
    assert len(str(reword(BadValue("proposal", "p" * 10_000, "give an id")))) < 120


@pytest.mark.parametrize(
    ("detail", "secure", "certified", "message"),
    [
        ("... self-signed certificate in certificate chain", True, False, "--ca FILE"),
        ("Remote end closed connection without response", True, False, "--cert and --cert-key"),
        ("Remote end closed connection without response", False, False, "https://"),
    ],
)
def test_a_server_that_hangs_up_is_told_with_what_may_be_missing(
    detail: str, secure: bool, certified: bool, message: str
) -> None:
    error = explain_unreachable(Unavailable("it", detail), secure=secure, certified=certified)
    assert message in str(error)


def test_what_cannot_be_guessed_is_not() -> None:
    for detail, certified in (("Connection refused", False), ("closed connection", True)):
        error = Unavailable("it", detail)
        assert explain_unreachable(error, secure=True, certified=certified) is error


def test_words_of_others_do_nothing_to_a_terminal() -> None:
    assert harmless("Größe\tund 日本\n") == "Größe\tund 日本\n"
    assert harmless("a\x1b[2Jb\rc\x9bd\u202ee") == "a�[2Jb�c�d�e"


def test_how_many_nodes_are_there_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [
        {"version": 3, "stale": False},
        {"version": 4, "stale": False},
        {"version": 2, "stale": False},
        {"version": 3, "stale": True},
        {"stale": True},
    ]
    print_unreached({"nodes": nodes}, 3, nodes=20, timeout_s=0.5)
    assert capsys.readouterr().err == ("sluicegate: after 0.5 s release 3 runs on 2 of 20 nodes\n")


def test_a_trouble_is_told_once_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    failures = {"publishing": "publishing (a ref) is unavailable", "branch": "a push was refused"}
    print_failures({"troubles": failures})
    assert capsys.readouterr().err == (
        "sluicegate: publishing (a ref) is unavailable; the decision stands, and sluicegate rules "
        "status delivers it\nsluicegate: branch: a push was refused\n"
    )
    print_failures({"troubles": {}})
    print_failures({})
    assert capsys.readouterr().err == ""


def test_a_verdict_says_its_result_once() -> None:
    assert verdict_words("not judged", "Not judged: the capture has 3.") == (
        "not judged: the capture has 3."
    )
    assert verdict_words("not judged", "Nothing has been captured.") == (
        "not judged: nothing has been captured."
    )
    assert (
        verdict_words("passed", "The candidate is as good.") == "passed: the candidate is as good."
    )
    assert verdict_words("failed", "CRITICAL work suffers.") == "failed: CRITICAL work suffers."
    assert without_result("they asked") == "they asked"
