"""Settings of `sluicegate limiter`: each a flag, a variable and a name in its settings file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

from sluicegate.contracts.errors import BadValue
from sluicegate.limits.rule import Failure
from sluicegate.service.common_settings import LISTEN, RampsSettings, RulesSettings
from sluicegate.service.settings import SHARE, Setting, one_of, whole

LISTEN_DEFAULT: Final = "127.0.0.1:7070"


@dataclass(frozen=True, kw_only=True)
class LimiterSettings(RulesSettings, RampsSettings):
    """The limiter."""

    VARIABLES: ClassVar[str] = "SLUICEGATE_LIMITER_"

    listen: Annotated[tuple[str, ...], LISTEN] = (LISTEN_DEFAULT,)
    store: Annotated[
        str,
        Setting(
            "where counts are kept: memory:, redis://..., redis+cluster://...",
            metavar="URL",
            secret=True,
        ),
    ] = "memory:"
    failure: Annotated[
        str,
        Setting(
            "what rules that name no failure policy decide when the store does not answer",
            one_of(*(member.value for member in Failure)),
        ),
    ] = "open"
    keys_max: Annotated[
        int, Setting("keys tracked in memory for each limit", whole(1, 1_000_000_000))
    ] = 1_000_000
    shed: Annotated[
        bool, Setting("shed BULK, then BEST_EFFORT, then DEGRADED as the service fills up")
    ] = True
    shed_machine: Annotated[
        bool,
        Setting("shed by the machine's CPU too, whichever program causes it"),
    ] = False
    shed_pressure: Annotated[
        bool,
        Setting("shed when tasks of the machine wait for its disks or memory (PSI), likewise"),
    ] = False
    dlq: Annotated[
        str,
        Setting(
            "dead letters: where decisions made without the store are written, files:DIR or "
            "kafka://HOST/TOPIC",
            metavar="URL",
        ),
    ] = ""
    audit_refusals: Annotated[
        int, Setting("refusals kept for `sluicegate why`", whole(1, 10_000_000), expert=True)
    ] = 32_768
    rls_semantics: Annotated[
        str,
        Setting(
            "how Envoy's rules count: all or nothing in sliding windows, or as Envoy's own service",
            one_of("sluicegate", "envoy"),
        ),
    ] = "sluicegate"
    rls_headers: Annotated[
        bool, Setting("add RateLimit-Limit, -Remaining, -Reset to Envoy's answers")
    ] = False
    rls_mark: Annotated[
        bool,
        Setting(
            "add x-sluicegate-answered to requests, so that Envoy knows when nobody answered",
            expert=True,
        ),
    ] = True
    rls_metadata: Annotated[
        bool, Setting("add dynamic metadata to Envoy's answers", expert=True)
    ] = False
    rls_shadow: Annotated[bool, Setting("answer Envoy OK whatever the rules say, and count")] = (
        False
    )
    rls_local_cache: Annotated[
        int,
        Setting(
            "with Envoy's semantics: counters over their limit that are remembered and not asked "
            "again",
            whole(0, 10_000_000),
        ),
    ] = 0
    rls_stop_when_over: Annotated[
        bool,
        Setting(
            "with Envoy's semantics: where one descriptor is over, do not count the others",
            expert=True,
        ),
    ] = False
    rls_merge_domains: Annotated[
        bool, Setting("let several of Envoy's files stand for one domain", expert=True)
    ] = False
    rls_near_share: Annotated[
        float,
        Setting("above this share of a limit, hits are counted as near it", SHARE, expert=True),
    ] = 0.8
    capture: Annotated[
        str,
        Setting(
            "keep requests, redacted, in this folder, so that rule changes can be tried on them",
            metavar="DIR",
        ),
    ] = ""
    capture_share: Annotated[
        float,
        Setting(
            "the share of callers whose requests are kept, all or none of each", SHARE, expert=True
        ),
    ] = 1.0
    capture_bytes_max: Annotated[
        int,
        Setting("bytes of captures that are kept", whole(1 << 20, 1 << 50, "BYTES"), expert=True),
    ] = 1 << 30

    @property
    def shared(self) -> bool:
        """Whether the store is one that several processes share."""
        return self.store != "memory:"

    def check(self) -> None:
        """Raise for settings that do not go together."""
        if self.workers > 1 and not self.shared:
            remedy = "processes cannot share memory: give --store redis://..., or --workers 1"
            raise BadValue("--workers", self.workers, remedy)
        if not self.rls_near_share:
            raise BadValue("--rls-near-share", self.rls_near_share, "give a share above 0")
        super().check()
