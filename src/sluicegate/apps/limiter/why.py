"""`sluicegate why USER`: ask a running limiter or dispatcher why a user was refused.

It reads `/v1/audit` of the service, which keeps a bounded number of recent decisions, and prints
each in a line that a person can act on. Nothing is decided or counted here.
"""

from __future__ import annotations

import json
import os
import re
import sys
from argparse import ArgumentParser, Namespace
from typing import Any, Final
from urllib.parse import quote

from sluicegate.apps.limiter.settings import LISTEN_DEFAULT
from sluicegate.command_line.service_client import (
    TOKEN_VARIABLE,
    add_address_flags,
    address_from,
    ask,
)
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.reasons import REASONS
from sluicegate.policies.utilization_gate import SIGNALS
from sluicegate.system import now_us

AT_DEFAULT: Final = f"http://{LISTEN_DEFAULT}"
TIMEOUT_S: Final = 5.0
_AGE: Final = re.compile(r"[0-9]{1,9}(ms|s|m|h|d)")

EXAMPLES: Final = f"""\
examples:
  sluicegate why ann                          the last decisions about ann
  sluicegate why ann --since 10m              of the last ten minutes
  sluicegate why shop --at http://127.0.0.1:7080   what a dispatcher refused
  sluicegate why ann --json | jq .            for programs
  {TOKEN_VARIABLE}=... sluicegate why ann --at https://limiter.internal:7070 --ca ca.pem
"""


def add_arguments(parser: ArgumentParser) -> None:
    """The flags."""
    parser.add_argument(
        "user",
        metavar="USER",
        help="the user_id (for Envoy: a descriptor's value), of `sluicegate kv` the caller",
    )
    parser.add_argument("--since", default="1h", metavar="SPAN", help="30s, 10m, 1h (default 1h)")
    parser.add_argument("--count", default=50, type=int, metavar="N", help="at most (default 50)")
    add_address_flags(parser, AT_DEFAULT, "with the grant audit", "--at")
    parser.add_argument("--json", action="store_true", help="what the service says, as JSON")


def run(arguments: Namespace) -> int:
    """Ask, and tell."""
    if not _AGE.fullmatch(arguments.since):
        raise BadValue("--since", arguments.since, "write a number and ms, s, m, h or d, as 10m")
    if not 1 <= arguments.count <= 10_000:
        raise BadValue("--count", arguments.count, "give a number from 1 to 10,000")
    user = quote(os.fsencode(arguments.user), safe="")
    path = f"/v1/audit?user={user}&since={arguments.since}"
    address = address_from(arguments.at, arguments, flag="--at", example=AT_DEFAULT)
    what = f"the service at {address.url}"
    path = f"{path}&count={arguments.count}"
    body = ask(address, what, path, timeout_s=TIMEOUT_S, grant="audit")
    if arguments.json:
        json.dump(body, sys.stdout, indent=2)
        sys.stdout.write("\n")
        return 0
    entries: list[dict[str, Any]] = body["decisions"]
    if not entries:
        sys.stdout.write(
            f"nothing is kept about {arguments.user!r} of the last {arguments.since}: it did not "
            "ask, or newer decisions took its place (audit_refusals; audit_admissions of a limiter)"
            "\n"
        )
    at_us = now_us()
    for entry in entries:
        sys.stdout.write(describe(entry, at_us) + "\n")
    return 0


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
        words.append(f"{note}{reason.name}: {reason.sentence}")
    signal = entry["signal"]
    if signal in SIGNALS:
        words.append(f"{SIGNALS[signal]} ({signal}); --shed off would admit it")
    if entry["without_store"]:
        words.append("the store did not answer, and the rule's failure policy decided")
    if entry["overridden"]:
        words.append("enforcement is stopped for now (break-glass)")
    words.append(f"weight {entry['weight']:,}, {entry['priority']}")
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
        words.append(f"{reason.name}: {reason.sentence}")
    price = entry["price_milli"] / 1e3
    words.append(f"cost {entry['cost_mru'] / 1e3:,.4g} RU at price {price:,.3g}")
    if entry["balance_mru"] is not None:
        left, quota = entry["balance_mru"] / 1e3, entry["quota_mru"] / 1e3
        words.append(f"{left:,.4g} RU left here of {quota:,.4g} an epoch")
    if entry["ratio"] is not None:
        on = f" on shard {entry['shard']}" if entry["shard"] else ""
        words.append(f"latency ratio {entry['ratio']:.2f}{on}")
    words.append(f"queue delay {entry['queue_us'] / 1e3:,.4g} ms")
    if entry["stress"]:
        words.append(f"stressed: {', '.join(entry['stress'])}")
    words.append(_when_again(entry["retry_after_us"]))
    return "; ".join(word for word in words if word)


def _when_again(retry_after_us: int) -> str:
    if retry_after_us > 0:
        return f"may come again {retry_after_us / 1e6:,.3g} s after that"
    return "asking again will not help" if retry_after_us < 0 else ""
