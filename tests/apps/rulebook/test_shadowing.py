"""`headgate rules shadow`: traffic that was seen, and rules that were not in force."""

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
