"""Decision words: one entry of an audit in words that a person can act on."""

from __future__ import annotations

from typing import Any

from sluicegate.command_line.text import duration, limit_words
from sluicegate.contracts.reasons import REASONS
from sluicegate.policies.admission.utilization_gate import SIGNALS


def describe(entry: dict[str, Any], now_us: int) -> str:
    """One entry in words."""
    if "stage" in entry:
        return describe_refusal(entry, now_us)
    ago_s = max(now_us - entry["last_us"], 0) / 1e6
    times = f"{entry['times']:,} x " if entry["times"] > 1 else ""
    rule = f"by rule {entry['rule_id']!r}" if entry["rule_id"] else "by no rule"
    words = [f"{ago_s:,.1f} s ago  {times}{'allowed' if entry['allowed'] else 'REFUSED'} {rule}"]
    reason = REASONS.get(entry["reason"])
    if reason is not None:
        note = "it is only tried out; else: " if entry["shadow"] else ""
        words.append(f"{note}{reason.name}: {reason.sentence.rstrip('.')}")
    signal = entry["signal"]
    if signal in SIGNALS:
        words.append(f"{SIGNALS[signal]} ({signal}); --shed off would admit it")
    if entry["without_store"]:
        words.append("the store did not answer, and the rule's failure policy decided")
    if entry["overridden"]:
        words.append("enforcement is stopped for now (break-glass)")
    words.append(f"cost {entry['weight']:,}, {entry['priority']}")
    if entry["rule_id"]:  # without a rule there is nothing to have some left of
        words.append(f"{entry['remaining']:,} left")
    words.append(_when_again(entry["retry_after_us"]))
    return "; ".join(word for word in words if word)


def describe_refusal(entry: dict[str, Any], now_us: int) -> str:
    """One refusal of a dispatcher in words, with the numbers that it was decided on."""
    ago_s = max(now_us - entry["last_us"], 0) / 1e6
    times = f"{entry['times']:,} x " if entry["times"] > 1 else ""
    of = f"{entry['operation']} of {entry['table']}" if entry["table"] else entry["operation"]
    words = [f"{ago_s:,.1f} s ago  {times}REFUSED {of} by {entry['stage']}, {entry['priority']}"]
    reason = REASONS.get(entry["reason"])
    if reason is not None:
        words.append(f"{reason.name}: {reason.sentence.rstrip('.')}")
    price = entry["price_milli"] / 1e3
    at_price = "" if price == 1 else f" at price {price:,.3g}"
    words.append(f"cost {_units(entry['cost_mru'])} RU{at_price}")
    if entry["balance_mru"] is not None:
        left, quota = _units(entry["balance_mru"]), _units(entry["quota_mru"])
        words.append(f"{left} RU left here of {quota} an epoch")
    if entry["ratio"] is not None:
        words.append(f"latency ratio {entry['ratio']:.2f}")
    on = f" of shard {entry['shard']}" if entry["shard"] else ""
    words.append(f"limit{on} {limit_words(entry['limit'], entry['limit_origin'])}")
    words.append(f"queue delay {entry['queue_us'] / 1e3:,.4g} ms")
    if entry["stress"]:
        words.append(f"stressed: {', '.join(entry['stress'])}")
    words.append(_when_again(entry["retry_after_us"]))
    return "; ".join(word for word in words if word)


def _units(mru: int) -> str:
    """Request units: four digits of a small number, and all of a large one."""
    return f"{mru / 1e3:,.0f}" if abs(mru) >= 1e6 else f"{mru / 1e3:.4g}"


def _when_again(retry_after_us: int) -> str:
    if retry_after_us > 0:
        return f"may come again {duration(retry_after_us)} after that"
    return "asking again will not help" if retry_after_us < 0 else ""
