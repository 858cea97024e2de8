"""Fields: everything that a rulebook can be told, in one table.

A row is a name in `rulebook.toml`, a flag of `sluicegate rules serve` and a variable (see
`sluicegate/service/settings.py`). Paths in the file count from the folder of the rulebook.
"""

from __future__ import annotations

from typing import Final

from sluicegate.contracts.errors import BadValue
from sluicegate.service.common_settings import AROUND, WHO_MAY, address, share
from sluicegate.service.settings import Field, one_of, seconds, text, whole, yes_or_no

LISTEN_DEFAULT: Final = "127.0.0.1:7075"
PARTS: Final = 10_000


def steps(said: str, where: str) -> tuple[int, ...]:
    """The shares of a canary, one after the other, as parts of 10,000."""
    found = tuple(round(share(one.strip(), where) * PARTS) for one in said.split(","))
    rising = [*found] == sorted({*found})
    if not found or not rising or not found[0] or found[-1] != PARTS:
        raise BadValue(where, said, "give rising shares that end with 100%, as 1%,5%,25%,100%")
    return found


FIELDS: Final = (
    Field("repository", text, "rules.git", "the git repository, bare or a clone's", "DIR"),
    Field("branch", text, "main", "the branch that people push to", "NAME"),
    Field(
        "remote",
        text,
        "",
        "where the branch is kept as well, and pushed to: a URL or a path of git's",
        "URL",
        secret=True,
    ),
    Field("remote_every_s", seconds(0.1, 86_400), "10", "between looks at that", "SECONDS"),
    Field("blobs", text, "files:blobs", "where nodes find the rules: files:DIR, s3://...", "URL"),
    Field(
        "events",
        text,
        "files:events",
        "where changes are announced: files:DIR, kafka://HOST/TOPIC, or nothing for none",
        "URL",
    ),
    Field("signing_key", text, "keys/signing.pem", "the private key, PEM, mode 600", "FILE"),
    Field(
        "trusted_keys",
        text,
        "keys/signing.pub.pem",
        "public keys of earlier editions, PEM",
        "FILE",
        several=True,
    ),
    Field("capture", text, "capture", "captured traffic that changes are tried on", "DIR"),
    Field("capture_key", text, "capture.key", "the key of its redaction", "FILE"),
    Field(
        "critical_refused_max",
        share,
        "5%",
        "a change that newly refuses more of the CRITICAL traffic is turned down",
        "SHARE",
    ),
    Field(
        "critical_samples_min",
        whole(1, 1_000_000_000),
        "1000",
        "with fewer CRITICAL requests a change is not judged",
        "N",
    ),
    Field(
        "own_approval",
        yes_or_no,
        "off",
        "let people approve what they proposed themselves",
        "on|off",
    ),
    Field("approvals_min", whole(1, 100), "1", "people who must approve", "N"),
    Field("canary_steps", steps, "1%,5%,25%,100%", "the shares of a canary", "SHARES"),
    Field(
        "canary_hold_s",
        seconds(0.1, 86_400),
        "300",
        "how long each step is watched at least",
        "SECONDS",
    ),
    Field(
        "canary_samples_min",
        whole(1, 1_000_000_000),
        "1000",
        "CRITICAL decisions that each step must have seen",
        "N",
    ),
    Field(
        "semantics",
        one_of("sluicegate", "envoy"),
        "sluicegate",
        "how rules of Envoy's format count; as the nodes have it",
        "sluicegate|envoy",
    ),
    Field(
        "merge_domains", yes_or_no, "off", "let several of Envoy's files be of one domain", "on|off"
    ),
    Field("deltas", whole(0, 100), "2", "earlier editions that a delta leads on from", "N"),
    Field(
        "listen",
        address,
        LISTEN_DEFAULT,
        "where `serve` listens",
        "HOST:PORT",
        several=True,
    ),
    *WHO_MAY,
    Field("look_s", seconds(0.05, 3_600), "1", "between looks for pushes and canaries", "SECONDS"),
    *AROUND,
)
