"""`sluicegate quota tune` as people type it: shown, written, proposed to a rulebook, taken up."""

from __future__ import annotations

import re
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from sluicegate import cli
from sluicegate.apps.quota import command
from sluicegate.apps.quota.dates import date_of
from sluicegate.contracts.checks import CheckRequest
from sluicegate.contracts.criticality import Criticality
from sluicegate.rules.quota_edit import with_quotas
from sluicegate.shadow.capture.recorder import Capture
from sluicegate.shadow.capture.settings import CaptureSettings
from sluicegate.shadow.traffic import ALL
from sluicegate.system import now_us
from sluicegate.telemetry.usage_files import DAY_MINUTES, MINUTE_US
from sluicegate.testing import HandClock
from tests.apps.kv.process import KvProcess, access_file, token_of
from tests.apps.kv.test_whole import write_often
from tests.apps.quota.months import DAYS, Curve, folders, write_month
from tests.apps.rulebook.stories import Book
from tests.apps.rulebook.test_fleet import ANN, server

RULES = """\
version: 1
callers:
  names: {shop: CRITICAL}   # who matters
  quotas:
    shop: 100/s       # since spring
    steady: 130/s
rules: []
"""
TUNED = RULES.replace("shop: 100/s  ", "shop: 650/s  ").replace(
    "steady: 130/s\n", 'steady: 130/s\n    "night owl": 1300/s\n'
)

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def book(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Book:
    return Book(tmp_path / "book", capsys)


@pytest.fixture(scope="module")
def usage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A month of usage up to yesterday."""
    folder = tmp_path_factory.mktemp("usage")
    curves: dict[str, Curve] = {
        "shop": lambda day, hour: 500,
        "steady": lambda day, hour: 100,
        "night owl": lambda day, hour: 1_000 if hour == 2 else 0,
    }
    today = now_us() // MINUTE_US // DAY_MINUTES
    write_month(folder, curves, first_day=today - DAYS)
    return folder


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with rules, where one types."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "callers.yaml").write_text(RULES)
    return tmp_path


@pytest.fixture
def run(there: Path, usage: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def one(*words: str) -> tuple[int, str, str]:
        of = [word for folder in folders(usage) for word in ("--usage", folder)]
        capsys.readouterr()
        code = cli.main(["quota", "tune", *of, *words])
        streams = capsys.readouterr()
        return code, streams.out, streams.err

    return one


def test_it_says_for_each_caller_what_would_change_and_why(there: Path, run: Run) -> None:
    code, out, err = run("--rules", "rules/callers.yaml")
    assert (code, err) == (0, "")
    lines = {" ".join(line.split()) for line in out.splitlines()}
    assert any(line.startswith("shop 100 -> 650 The usual peak is 500 ") for line in lines)
    assert any(line.startswith("night owl - -> 1,300 The usual peak is 1000 ") for line in lines)
    assert any(line.startswith("steady 130 -> stays ") for line in lines)
    assert "the curves are in quotas.html" in lines
    assert (there / "rules" / "callers.yaml").read_text() == RULES


def test_written_the_file_is_another_and_keeps_its_mode(there: Path, run: Run) -> None:
    file = there / "rules" / "callers.yaml"
    file.chmod(0o640)
    link = there / "link.yaml"
    link.symlink_to(file)
    code, out, _ = run("--rules", "link.yaml", "--write", "--out", "curves.html")
    assert code == 0
    assert "link.yaml is changed: 2 quotas" in out
    assert link.is_symlink()
    assert file.read_text() == TUNED
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert [one.name for one in file.parent.iterdir()] == ["callers.yaml"]
    # What is right stays as it is.
    code, out, _ = run("--rules", "link.yaml", "--write")
    assert (code, out.splitlines()[-1]) == (0, "no quota would change")
    assert file.read_text() == TUNED


def test_the_page_is_of_whole_days_up_to_yesterday(there: Path, run: Run) -> None:
    assert run("--days", "14")[0] == 0
    today = now_us() // MINUTE_US // DAY_MINUTES
    page = (there / "quotas.html").read_text()
    assert f"{date_of(today - 14)} to {date_of(today - 1)} " in page
    assert page.count('role="img"') == 3


def test_what_somebody_changes_meanwhile_is_not_overwritten(
    there: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = there / "rules" / "callers.yaml"

    def slow(text: str, quotas: dict[str, int], source: str) -> str:
        file.write_text("# by somebody else\n")
        return with_quotas(text, quotas, source)

    monkeypatch.setattr(command, "with_quotas", slow)
    code, _, err = run("--rules", "rules/callers.yaml", "--write")
    assert (code, "tune anew" in err) == (1, True)
    assert file.read_text() == "# by somebody else\n"
    assert [one.name for one in file.parent.iterdir()] == ["callers.yaml"]


def test_without_rules_everybody_has_the_default(run: Run) -> None:
    _, out, _ = run("--default", "1250")
    assert re.search(r"^night owl +1,250 -> stays", out, re.MULTILINE)
    assert re.search(r"^shop +1,250 -> 650", out, re.MULTILINE)


def test_it_is_proposed_approved_published_and_live(there: Path, run: Run, book: Book) -> None:
    book.ok("init", "book", "--rules", "rules/", "--alone")
    code, out, err = run(
        "--rules", "rules/callers.yaml", "--file", "book", "--reason", "monthly", "--as", "ann"
    )
    assert (code, err) == (0, "")
    assert "Tune 2 quotas by 30 days of usage" in out
    assert "monthly" in out
    assert "not judged: nothing has been captured" in out
    (one,) = book.json("list")
    assert (one["state"], one["proposer"], one["id"] in out) == ("open", "ann", True)
    diff = book.at("diff", one["id"])
    assert "-    shop: 100/s       # since spring" in diff
    assert "+    shop: 650/s       # since spring" in diff
    assert book.at("show", "callers.yaml") == RULES
    book.at("approve", one["id"], "--override", "nothing captured yet", "--publish")
    assert book.at("show", "callers.yaml") == TUNED
    # The file here is an old one by now; what is live can be tuned without it.
    code, _, err = run("--rules", "rules/callers.yaml", "--file", "book")
    assert code == 1
    assert "leave out --rules" in err
    code, out, _ = run("--file", "book", "--under", "callers.yaml")
    assert (code, out.splitlines()[-1]) == (0, "no quota would change")


def capture(folder: Path) -> None:
    """A thousand CRITICAL requests of the shop a second, for a second and a half."""
    at = now_us()
    log = Capture(CaptureSettings(folder=str(folder), share=ALL), clock=HandClock(at))
    for number in range(1_500):
        ask = CheckRequest("shop", "/play", priority=Criticality.CRITICAL)
        log.note_check(ask, at + number * 1_000, False)
    log.close()


def test_where_traffic_was_captured_the_proposal_has_its_trial(
    there: Path, run: Run, book: Book
) -> None:
    book.ok("init", "book", "--rules", "rules/", "--alone")
    capture(there / "book" / "capture")
    code, out, err = run("--file", "book", "--under", "callers.yaml", "--out", "month.html")
    assert (code, err) == (0, "")
    assert "gate      passed" in out
    assert "of 1,500 CRITICAL" in out
    assert "the report on captured traffic is in month-shadow.html" in out
    assert (there / "month-shadow.html").read_text().startswith("<!doctype html>")
    (one,) = book.json("list")
    book.at("approve", one["id"], "--publish")  # judged: no word why is needed
    assert book.at("show", "callers.yaml") == TUNED


def test_a_quota_that_would_have_refused_what_was_captured_is_rejected(
    there: Path, run: Run, book: Book
) -> None:
    (there / "rules" / "callers.yaml").write_text(RULES.replace("100/s", "100000/s"))
    book.ok("init", "book", "--rules", "rules/", "--alone")
    capture(there / "book" / "capture")
    words = ("--rules", "rules/callers.yaml", "--file", "book", "--write")
    code, _, err = run(*words)
    assert (code, "from 100000/second to 650/second; add --confirm" in err) == (1, True)
    code, out, err = run(*words, "--confirm")
    assert (code, err) == (1, "")
    assert "gate      failed" in out
    assert "is left as it was" in out
    assert [one["state"] for one in book.json("list")] == ["rejected"]
    assert "100000/s" in (there / "rules" / "callers.yaml").read_text()


def test_a_server_takes_proposals_too(
    there: Path, run: Run, book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    book.ok("init", "book", "--rules", "rules/", "--alone")
    with server(book, "--token", ANN) as (url, _):
        monkeypatch.setenv("SLUICEGATE_TOKEN", ANN)
        code, out, err = run("--file", url, "--under", "callers.yaml")
        assert (code, err) == (0, "")
        assert "Tune 2 quotas" in out
        monkeypatch.setenv("SLUICEGATE_TOKEN", "another-0123456789abcdef")
        code, _, err = run("--file", url, "--under", "callers.yaml")
        assert code == 1
        assert len(err.splitlines()) == 1
    (one,) = book.json("list")
    book.at("approve", one["id"], "--override", "nothing captured yet", "--publish")
    assert book.at("show", "callers.yaml") == TUNED


def test_a_running_dispatcher_takes_up_what_is_written(there: Path, run: Run) -> None:
    file = there / "rules" / "callers.yaml"
    file.write_text(RULES.replace("100/s", "10/s"))
    access = access_file(there, {"shop": 'tables = { "*" = ["read", "write"] }'})
    flags = ["--engine", "memory:", "--access", access, "--rules", str(file)]
    with KvProcess(there, *flags) as kv:
        shop = kv.redis(token_of("shop"))
        with pytest.raises(redis.exceptions.ResponseError, match="LIMITED"):
            write_often(shop, 20)
        assert run("--rules", "rules/callers.yaml", "--write")[0] == 0
        assert "shop: 650/s" in file.read_text()
        for _ in range(100):
            try:
                write_often(shop, 20)
                break
            except redis.exceptions.ResponseError:
                threading.Event().wait(0.1)
        else:
            pytest.fail("the quota is still the old one")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--days", "6"], 2, "--days"),
        (["--days", "x"], 2, "--days"),
        (["--headroom", "-1"], 2, "--headroom"),
        (["--floor", "0"], 2, "--floor"),
        (["--floor", "10", "--cap", "9"], 2, "--cap"),
        (["--days", "10", "--days-min", "11"], 2, "--days-min"),
        (["--default", "0"], 2, "--default"),
        (["--write"], 2, "--rules"),
        (["--rules", "nothing.yaml"], 1, "nothing.yaml"),
        (["--rules", "rules"], 2, "rules"),
        (["--file", "book"], 2, "--under"),
        (["--file", "book", "--under", "../x.yaml"], 2, "--under"),
        (["--file", "book", "--under", "callers.yaml"], 1, "sluicegate rules init"),
        (["--out", "nowhere/quotas.html"], 1, "nowhere/quotas.html"),
        (["--nonsense"], 2, "--nonsense"),
        (["--usage", "nowhere"], 2, "nowhere"),
    ],
)
def test_what_is_wrong_is_told_in_a_line(
    there: Path, run: Run, capsys: pytest.CaptureFixture[str], words: list[str], code: int,
    message: str,
) -> None:  # fmt: skip
    try:
        status, _, err = run(*words)
    except SystemExit as end:
        status, err = int(str(end.code)), capsys.readouterr().err
    assert status == code, err
    assert len(err.splitlines()) == 1
    assert message in err


def test_a_folder_without_usage_is_told(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (there / "empty").mkdir()
    assert cli.main(["quota", "tune", "--usage", "empty"]) == 1
    assert "nothing was used on the 30 whole days before today" in capsys.readouterr().err
    assert not (there / "quotas.html").exists()


def test_what_cannot_be_edited_is_not_written(there: Path, run: Run) -> None:
    file = there / "rules" / "callers.yaml"
    text = "version: 1\ncallers:\n  quotas: {shop: 100/s}\n"
    file.write_text(text)
    code, _, err = run("--rules", "rules/callers.yaml", "--write")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "write quotas a line each" in err
    assert file.read_text() == text


@pytest.mark.parametrize("words", [["quota", "--help"], ["quota", "tune", "--help"]])
def test_help_has_examples(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(words)
    assert end.value.code == 0
    out = capsys.readouterr().out
    assert "sluicegate quota tune --usage" in out
    assert all(len(line) <= 100 for line in out.splitlines())
