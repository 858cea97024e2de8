"""Plain: the same numbers as lines of text, for logs, pipes and terminals that cannot draw.

ASCII alone, one line a second; and the summary that is printed at the end, whatever was shown
before.
"""

from __future__ import annotations

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

    def __enter__(self) -> PlainLines:
        self._out.write(self._opening)
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, seen: Snapshot, keys: dict[str, int], load: str) -> None:
        """Print one line."""
        words = line(seen, sum(keys.values()))
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


def line(seen: Snapshot, keys: int) -> str:
    """Everything at a glance."""
    asked = seen.admitted + seen.refused
    rules = "  ".join(
        f"{rule.name} {share_text(rule.refused, rule.admitted + rule.refused)}"
        for rule in seen.rules[:RULES_SHOWN_MAX]
    )
    text = (
        f"{seen.uptime_us / 1e6:4.0f} s  {seen.per_s:5.0f}/s  admitted {seen.admitted}"
        f"  refused {seen.refused} ({share_text(seen.refused, asked)}: {rules})"
        f"  decision p99 {_latency(seen.decision.p99_us)}  keys {keys}"
    )
    if seen.bad_requests:
        text += f"  bad requests {seen.bad_requests}"
    if seen.faults:
        text += f"  FAULTS {seen.faults}"
    return text


def summary(gate: NamedLimits) -> str:
    """What was done, rule by rule."""
    seen = gate.snapshot()
    asked = seen.admitted + seen.refused
    share = share_text(seen.refused, asked)
    lines = [
        f"sluicegate up: {asked:,} decisions in {seen.uptime_us / 1e6:.1f} s",
        f"  {seen.admitted:,} admitted, {seen.refused:,} refused ({share})",
    ]
    for rule in seen.rules:
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
