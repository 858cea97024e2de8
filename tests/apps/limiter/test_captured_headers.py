"""The gate on traffic whose criticality comes from a header: captured, replayed and judged."""

from __future__ import annotations

import signal
from pathlib import Path

from sluicegate.contracts.rulebook import FAILED, NOT_JUDGED, GateFinding
from sluicegate.shadow.capture.key import read_key
from sluicegate.shadow.capture.reader import read_capture
from sluicegate.shadow.folder_judge import FolderJudge
from sluicegate.shadow.gate import JudgeSettings
from sluicegate.shadow.redaction import Vocabulary
from tests.apps.limiter.process import LimiterProcess, rules_file
from tests.engines.child import until

REQUESTS = 40
RULES = """\
version: 1
priorities:
  header: {header}
  names: {{checkout: CRITICAL, "pay-*": CRITICAL}}
rules:
  - {{rule_id: shop, resource_path: /shop, per: resource, limit: {limit}, window: 1h}}
"""


def rules_of(limit: int, header: str = "x-request-kind") -> str:
    return RULES.format(limit=limit, header=header)


def judge(folder: Path, before: str, after: str) -> GateFinding:
    judged = FolderJudge(str(folder), f"{folder}.key", JudgeSettings(samples_min=REQUESTS))
    return judged.judge({"rules.yaml": before.encode()}, {"rules.yaml": after.encode()})


def headers_in(folder: Path, *texts: str) -> list[dict[str, str]]:
    words = Vocabulary(texts, key=read_key(f"{folder}.key"))
    traffic = read_capture(str(folder), vocabulary=words).traffic
    return [dict(query.headers) for query in traffic.queries if hasattr(query, "headers")]


def send(limiter: LimiterProcess, headers: dict[str, str], count: int = REQUESTS) -> None:
    for number in range(count):
        assert limiter.check(f"user-{number}", "/shop", headers=headers)["allowed"]


def test_header_criticality_is_captured_and_judged(tmp_path: Path) -> None:
    folder, before = tmp_path / "capture", rules_of(1_000)
    flags = ("--rules", rules_file(tmp_path, before), "--capture", str(folder))
    with LimiterProcess(tmp_path, *flags) as limiter:
        send(limiter, {"x-request-kind": "checkout", "authorization": "Bearer 7"})
        assert limiter.end() == 0
    found = judge(folder, before, rules_of(1))
    assert found.result == FAILED
    assert f"newly refuses {REQUESTS - 1} of {REQUESTS} CRITICAL requests" in found.sentence
    assert headers_in(folder, "checkout")[0] == {"x-request-kind": "checkout"}


def test_criticality_by_glob_is_captured_and_judged(tmp_path: Path) -> None:
    folder, before = tmp_path / "capture", rules_of(1_000)
    flags = ("--rules", rules_file(tmp_path, before), "--capture", str(folder))
    with LimiterProcess(tmp_path, *flags) as limiter:
        for number in range(REQUESTS):
            send(limiter, {"x-request-kind": f"pay-{number}"}, count=1)
        send(limiter, {"x-request-kind": "a name of no rule"}, count=3)
        assert limiter.end() == 0
    found = judge(folder, before, rules_of(1))
    assert (found.result, f"{REQUESTS - 1} of {REQUESTS} CRITICAL" in found.sentence) == (
        FAILED,
        True,
    )
    narrower = before.replace('"pay-*"', '"pay-1*"')
    found = judge(folder, before, narrower)
    assert found.result == NOT_JUDGED
    assert "'pay-1*' of x-request-kind cannot match" in found.sentence


def test_captured_headers_follow_reload_of_rules(tmp_path: Path) -> None:
    folder, after = tmp_path / "capture", rules_of(1_000, "x-kind")
    flags = ("--rules", rules_file(tmp_path, rules_of(1_000)), "--capture", str(folder))
    with LimiterProcess(tmp_path, *flags) as limiter:
        version = limiter.ask("/v1/state")[1]["rulebook"]["version"]
        rules_file(tmp_path, after)
        limiter.signal(signal.SIGHUP)
        until(
            lambda: limiter.ask("/v1/state")[1]["rulebook"]["version"] != version,
            "the new rules to be live",
        )
        send(limiter, {"x-kind": "checkout"})
        assert limiter.end() == 0
    assert judge(folder, after, rules_of(1, "x-kind")).result == FAILED


def test_secret_header_of_rules_is_never_captured(tmp_path: Path) -> None:
    folder, before = tmp_path / "capture", rules_of(1_000, "x-auth-token")
    flags = ("--rules", rules_file(tmp_path, before), "--capture", str(folder))
    with LimiterProcess(tmp_path, *flags) as limiter:
        send(limiter, {"x-auth-token": "checkout"})
        assert limiter.end() == 0
    assert headers_in(folder, "checkout")[0] == {}
    found = judge(folder, before, rules_of(1, "x-auth-token"))
    assert found.result == NOT_JUDGED
    assert "the header x-auth-token carries a secret" in found.sentence
