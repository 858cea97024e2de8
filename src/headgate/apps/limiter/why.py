"""`headgate why USER`: asks a running limiter why a user was refused.

It reads `/v1/audit` of the service, which keeps a bounded number of recent decisions, and tells
each in a line a person can act on. Nothing is decided or counted here.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import ssl
import sys
from argparse import ArgumentParser, Namespace
from typing import Any, Final
from urllib.parse import quote, urlsplit

from headgate.contracts.errors import BadValue, HeadgateError, Unavailable
from headgate.contracts.reasons import REASONS
from headgate.system import now_us

AT_DEFAULT: Final = "http://127.0.0.1:7070"
TOKEN_VARIABLE: Final = "HEADGATE_TOKEN"
TIMEOUT_S: Final = 5.0
ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
_SINCE: Final = re.compile(r"[0-9]{1,9}(ms|s|m|h|d)")

EXAMPLES: Final = f"""\
examples:
  headgate why ann                          the last decisions about ann
  headgate why ann --since 10m              of the last ten minutes
  headgate why ann --json | jq .            for programs
  {TOKEN_VARIABLE}=... headgate why ann --at https://limiter.internal:7070 --ca ca.pem
"""


def add_arguments(parser: ArgumentParser) -> None:
    """The flags."""
    parser.add_argument(
        "user", metavar="USER", help="the user_id (for Envoy: a descriptor's value)"
    )
    parser.add_argument("--since", default="1h", metavar="SPAN", help="30s, 10m, 1h (default 1h)")
    parser.add_argument("--count", default=50, type=int, metavar="N", help="at most (default 50)")
    parser.add_argument("--at", default=AT_DEFAULT, metavar="URL", help=f"(default {AT_DEFAULT})")
    parser.add_argument("--ca", default="", metavar="FILE", help="authorities to trust, PEM")
    parser.add_argument(
        "--token", default="", help=f"with the grant audit; better in {TOKEN_VARIABLE}"
    )
    parser.add_argument("--json", action="store_true", help="what the service says, as JSON")


def run(arguments: Namespace) -> int:
    """Ask, and tell."""
    if not _SINCE.fullmatch(arguments.since):
        raise BadValue("--since", arguments.since, "write a number and ms, s, m, h or d, as 10m")
    if not 1 <= arguments.count <= 10_000:
        raise BadValue("--count", arguments.count, "give a number from 1 to 10,000")
    path = f"/v1/audit?user={quote(arguments.user, safe='')}&since={arguments.since}"
    said = ask(arguments.at, f"{path}&count={arguments.count}", arguments.ca, arguments.token)
    if arguments.json:
        json.dump(said, sys.stdout, indent=2)
        sys.stdout.write("\n")
        return 0
    entries: list[dict[str, Any]] = said["decisions"]
    if not entries:
        sys.stdout.write(
            f"nothing is kept about {arguments.user!r} of the last {arguments.since}: it did not "
            "ask, or newer decisions took its place (audit_refusals, audit_admissions)\n"
        )
    at_us = now_us()
    for entry in entries:
        sys.stdout.write(told(entry, at_us) + "\n")
    return 0


def told(entry: dict[str, Any], now_us: int) -> str:
    """One entry in words."""
    ago_s = max(now_us - entry["last_us"], 0) / 1e6
    times = f"{entry['times']:,} x " if entry["times"] > 1 else ""
    rule = f"by rule {entry['rule_id']!r}" if entry["rule_id"] else "by no rule"
    words = [f"{ago_s:,.1f} s ago  {times}{'allowed' if entry['allowed'] else 'REFUSED'} {rule}"]
    reason = REASONS.get(entry["reason"])
    if reason is not None:
        tried = "it is only tried out; else: " if entry["shadow"] else ""
        words.append(f"{tried}{reason.name}: {reason.sentence}")
    if entry["degraded"]:
        words.append("the store did not answer, and the rule's failure policy decided")
    if entry["overridden"]:
        words.append("enforcement is stopped for now (break-glass)")
    words.append(f"weight {entry['weight']:,}, {entry['priority']}")
    if entry["rule_id"]:  # without a rule there is nothing to have some left of
        words.append(f"{entry['remaining']:,} left")
    if entry["retry_after_us"] > 0:
        words.append(f"may come again {entry['retry_after_us'] / 1e6:,.3g} s after that")
    elif entry["retry_after_us"] < 0:
        words.append("asking again will not help")
    return "; ".join(words)


def ask(at: str, path: str, ca: str, token: str) -> Any:
    """What the service answers to a GET, read as JSON."""
    where = urlsplit(at)
    if where.scheme not in {"http", "https"} or not where.hostname:
        raise BadValue("--at", at, f"write it as {AT_DEFAULT}")
    connection = _connection(where.scheme, where.hostname, where.port, ca)
    token = token or os.environ.get(TOKEN_VARIABLE, "")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        body = answer.read(ANSWER_BYTES_MAX)
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(f"the limiter at {at}", str(error) or type(error).__name__) from None
    finally:
        connection.close()
    if answer.status in {401, 403}:
        raise HeadgateError(
            f"the limiter at {at} answers {answer.status}: this takes a token with the grant audit;"
            f" give it in {TOKEN_VARIABLE}"
        )
    try:
        said = json.loads(body)
    except ValueError:
        said = None
    if answer.status != 200 or said is None:
        seen = said.get("detail", answer.reason) if isinstance(said, dict) else answer.reason
        raise HeadgateError(f"the limiter at {at} answers {answer.status}: {seen}")
    return said


def _connection(
    scheme: str, host: str, port: int | None, ca: str
) -> http.client.HTTPConnection | http.client.HTTPSConnection:
    if scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    try:
        context = ssl.create_default_context(cafile=ca or None)
    except (OSError, ssl.SSLError) as error:
        raise BadValue("--ca", ca, f"it cannot be read: {error}") from None
    return http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=context)
