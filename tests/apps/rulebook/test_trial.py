"""`sluicegate rules shadow`: traffic that was seen, and rules that were not in force."""

from __future__ import annotations

import json
from pathlib import Path

from tests.apps.rulebook.stories import RULES, Book

SECOND = 1_000_000


def traffic(path: Path, critical: int, *, users: int = 100) -> Path:
    """So many CRITICAL requests, one after the other, of users that all have a name."""
    rows = [
        json.dumps({"time": at, "user": f"gateway-{at % users}", "path": "/play",
                    "priority": "CRITICAL"})
        for at in range(critical)
    ]  # fmt: skip
    path.write_text("\n".join(rows) + "\n")
    return path


def rules(limit: int) -> str:
    names = ", ".join(f"gateway-{n}: CRITICAL" for n in range(100))
    return (
        f"version: 1\ncallers: {{names: {{{names}}}}}\n"
        f"rules: [{{rule_id: play, resource_path: /play, limit: {limit}, window: 30d,"
        f" algorithm: fixed_window}}]\n"
    )


def test_four_percent_pass_and_six_do_not(book: Book, tmp_path: Path) -> None:
    # 100 users of 100 requests each: a limit of 96 refuses four of each.
    log = traffic(tmp_path / "log.jsonl", 10_000)
    live = book.file(rules(100), "live.yaml")
    for limit, code in ((96, 0), (94, 1)):
        got, out, _ = book.run(
            "shadow", "--rules", live, "--rules", book.file(rules(limit), "new.yaml"),
            "--jsonl", log, "--html", tmp_path / "report.html",
        )  # fmt: skip
        assert got == code, out
        assert f"{(100 - limit) * 100:,} of 10,000" in out
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")


def test_too_little_traffic_is_not_judged_and_says_so(book: Book, tmp_path: Path) -> None:
    log = traffic(tmp_path / "log.jsonl", 999)
    live, new = book.file(rules(100), "live.yaml"), book.file(rules(99), "new.yaml")
    code, out, _ = book.run("shadow", "--rules", live, "--rules", new, "--jsonl", log)
    assert code == 3
    assert "999" in out


def test_without_traffic_it_is_said_where_it_comes_from(book: Book) -> None:
    live = book.file(RULES)
    code, _, err = book.run("shadow", "--rules", live, "--rules", live)
    assert code == 2
    assert "--capture" in err


def test_what_was_not_judged_is_json_too(book: Book, tmp_path: Path) -> None:
    live = book.file(RULES)
    code, out, _ = book.run(
        "shadow", "--rules", live, "--rules", live, "--capture", tmp_path / "none", "--json"
    )
    assert code == 3
    assert json.loads(out)["verdict"]["result"] == "not judged"
    code, out, _ = book.run(
        "shadow", "--rules", live, "--rules", live, "--capture", tmp_path / "none"
    )
    assert out == f"not judged: nothing has been captured in {tmp_path / 'none'} yet.\n"


def test_times_have_a_unit_and_some_rows_may_be_bad(book: Book, tmp_path: Path) -> None:
    live = book.file(rules(100))
    log = tmp_path / "log.csv"
    rows = [f"{at},gateway-{at % 100},/play,CRITICAL" for at in range(2_000)]
    log.write_text("\n".join(["time,user,path,priority", "nonsense,x,/play,", *rows]) + "\n")
    words = ["shadow", "--rules", live, "--rules", live, "--csv", log, "--unit", "ms"]
    code, _, err = book.run(*words)
    assert code == 2
    assert "line 2" in err
    code, out, _ = book.run(*words, "--bad-rows", 1, "--json")
    assert code == 0
    report = json.loads(out)
    assert report["verdict"]["result"] == "passed"
    assert report["capture"]["requests"] == 2_000
    assert report["capture"]["span_us"] == 1_999_000


def test_a_log_of_envoys_is_asked_of_rules_for_a_mesh(book: Book, tmp_path: Path) -> None:
    def mesh(limit: int) -> str:
        return (
            "domain: edge\ndescriptors:\n- key: user\n  rate_limit: "
            f"{{unit: day, requests_per_unit: {limit}}}\n  priority: CRITICAL\n"
        )

    log = tmp_path / "access.json"
    log.write_text(
        "\n".join(
            json.dumps({"start_time": f"2026-01-01T00:00:{at % 60:02}Z", "who": f"u{at % 10}"})
            for at in range(1_000)
        )
    )
    words = [
        "shadow", "--rules", book.file(mesh(100), "live.yaml"),
        "--rules", book.file(mesh(90), "new.yaml"), "--envoy-log", log, "--domain", "edge",
    ]  # fmt: skip
    code, out, err = book.run(*words, "--descriptor", "user=who")
    assert code == 1, out + err
    assert "100 of 1,000" in out
    assert "--descriptor" in book.run(*words)[2]
    assert "KEY=FIELD" in book.run(*words, "--descriptor", "user")[2]


def test_what_a_proposal_is_tried_on_is_its_rulebooks_business(book: Book, tmp_path: Path) -> None:
    book.init()
    proposal = book.propose(RULES.replace("100", "70"))
    assert "--csv" in book.refused("shadow", proposal, "--csv", tmp_path / "log.csv")
    live = book.file(RULES)
    code, _, err = book.run(
        "shadow", "--rules", live, "--rules", live, "--csv", live, "--map", "user=x"
    )
    assert code == 2
    assert "--map" in err
