"""Settings of the mesh's half of the service, each with the bound or the habit it names."""

from __future__ import annotations

from typing import Final, final

from sluicegate.contracts.criticality import DEFAULT_CRITICALITY, Criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.rules.mesh.rule import Semantics
from sluicegate.rules.mesh.rule_stats import NEAR_RATIO_DEFAULT, STATS_MAX_DEFAULT

HEADER_NAMES: Final = ("RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset")
DESCRIPTORS_MAX_DEFAULT: Final = 64
OVERRIDES_MAX_DEFAULT: Final = 1_000


@final
class MeshSettings:
    """How requests are decided and responses written.

    `semantics`: see `Semantics`. `global_shadow`: everything is counted and reported, nothing
    refused. `header_names`: limit, remaining and reset, set on responses; None sets none.
    `metadata`: return the request, and the metadata of rules that let it pass. `near_ratio`: above
    this share of a limit, requests are near it. `priority`: of rules that name none.

    Of Envoy's semantics only: `local_cache_max` counters that are over are remembered and not
    looked up again in their window, 0 is none; with `stop_when_over`, where one descriptor is over
    the others are not counted.

    `descriptors_max` in a request, `overrides_max` different limits that descriptors bring along,
    and `tallies_max` keys of statistics are the bounds.
    """

    __slots__ = (
        "descriptors_max",
        "global_shadow",
        "header_names",
        "local_cache_max",
        "metadata",
        "near_ratio",
        "overrides_max",
        "priority",
        "semantics",
        "stop_when_over",
        "tallies_max",
    )

    def __init__(
        self,
        *,
        semantics: Semantics = Semantics.SLUICEGATE,
        global_shadow: bool = False,
        header_names: tuple[str, str, str] | None = None,
        metadata: bool = False,
        priority: Criticality = DEFAULT_CRITICALITY,
        near_ratio: float = NEAR_RATIO_DEFAULT,
        local_cache_max: int = 0,
        stop_when_over: bool = False,
        descriptors_max: int = DESCRIPTORS_MAX_DEFAULT,
        overrides_max: int = OVERRIDES_MAX_DEFAULT,
        tallies_max: int = STATS_MAX_DEFAULT,
    ) -> None:
        if not 0 < near_ratio <= 1:
            raise BadValue("near_ratio", near_ratio, "give a share above 0 and up to 1")
        for name, value, least in (
            ("local_cache_max", local_cache_max, 0),
            ("descriptors_max", descriptors_max, 1),
            ("overrides_max", overrides_max, 0),
            ("tallies_max", tallies_max, 0),
        ):
            if value < least:
                raise BadValue(name, value, f"give a whole number, at least {least}")
        self.semantics: Final = semantics
        self.global_shadow: Final = global_shadow
        self.header_names: Final = header_names
        self.metadata: Final = metadata
        self.priority: Final = priority
        self.near_ratio: Final = near_ratio
        self.local_cache_max: Final = local_cache_max
        self.stop_when_over: Final = stop_when_over
        self.descriptors_max: Final = descriptors_max
        self.overrides_max: Final = overrides_max
        self.tallies_max: Final = tallies_max
