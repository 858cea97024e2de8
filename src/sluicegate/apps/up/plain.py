"""Plain: the same numbers as lines of text, for logs, pipes and terminals that cannot draw.

ASCII alone, one line a second; and the summary that is printed at the end, whatever was shown
before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TextIO, final

from sluicegate.apps.up.charts import latency_text, share_text
from sluicegate.apps.up.counts import Snapshot
from sluicegate.apps.up.named_limits import NamedLimits
from sluicegate.apps.up.settings import Settings, rule_words

GAP_S: Final = 1.0
RULES_SHOWN_MAX: Final = 8


@final
class PlainLines:
    """A line a second."""

    gap_s = GAP_S

    def __init__(self, out: TextIO, url: str, settings: Settings) -> None:
        self._out = out
        self._opening = opening(url, settings)
        self._services: Sequence[str] = ()

    def __enter__(self) -> PlainLines:
        self._out.write(self._opening)
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(
        self, snapshot: Snapshot, keys: dict[str, int], load: str, services: Sequence[str]
    ) -> None:
        """Print one line, and those about the services where they have changed."""
        if services != self._services:
            self._services = services
            self._out.writelines(f"  {one}\n" for one in services)
        words = line(snapshot, sum(keys.values()))
        if "ended" in load:
            words += f"  {load}"
        self._out.write(words + "\n")
        self._out.flush()


def opening(url: str, settings: Settings) -> str:
    """Where it listens, how to try it, and by which rules it decides."""
    open_to_all = "  --insecure: anyone who reaches this address may ask\n" * settings.insecure
    rules = "; ".join(rule_words(settings.rules))
    return (
        f"sluicegate up: listening on {url}\n{open_to_all}"
        f"  try it: curl -i '{url}/v1/check?rule={settings.rules[0].name}&key=you'\n"
        f"  rules: {rules}\n"
    )


def line(snapshot: Snapshot, keys: int) -> str:
    """Everything at a glance."""
    total = snapshot.admitted + snapshot.refused
    rules = "  ".join(
        f"{rule.name} {share_text(rule.refused, rule.admitted + rule.refused)}"
        for rule in snapshot.rules[:RULES_SHOWN_MAX]
    )
    text = (
        f"{snapshot.uptime_us / 1e6:4.0f} s  {snapshot.per_s:5.0f}/s  admitted {snapshot.admitted}"
        f"  refused {snapshot.refused} ({share_text(snapshot.refused, total)}: {rules})"
        f"  decision p99 {_latency(snapshot.decision.p99_us)}  keys {keys}"
    )
    if snapshot.bad_requests:
        text += f"  bad requests {snapshot.bad_requests}"
    if snapshot.faults:
        text += f"  FAULTS {snapshot.faults}"
    return text


def summary(gate: NamedLimits) -> str:
    """What was done, rule by rule."""
    snapshot = gate.snapshot()
    total = snapshot.admitted + snapshot.refused
    share = share_text(snapshot.refused, total)
    lines = [
        f"sluicegate up: {total:,} decisions in {snapshot.uptime_us / 1e6:.1f} s",
        f"  {snapshot.admitted:,} admitted, {snapshot.refused:,} refused ({share})",
    ]
    for rule in snapshot.rules:
        if rule.admitted + rule.refused == 0:
            continue
        reasons = "".join(f"  {name} {count:,}" for name, count in sorted(rule.reasons.items()))
        lines.append(
            f"  {rule.name:<12} {gate.rules[rule.name].rate:<18} "
            f"{rule.admitted:>9,} admitted {rule.refused:>9,} refused{reasons}"
        )
    return "\n".join(lines) + "\n"


def _latency(latency_us: float | None) -> str:
    return latency_text(latency_us).replace("\N{MICRO SIGN}", "u")
