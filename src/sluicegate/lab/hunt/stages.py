"""Stages: all of them by name, and a setup played and judged in one call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sluicegate.contracts.errors import BadValue
from sluicegate.lab.hunt.client import play_client
from sluicegate.lab.hunt.cluster import play_cluster
from sluicegate.lab.hunt.invariants import Broken, check
from sluicegate.lab.hunt.reads import play_reads
from sluicegate.lab.hunt.server import play_server
from sluicegate.lab.hunt.setup import Setup
from sluicegate.lab.hunt.stage import StagePlay, play
from sluicegate.lab.hunt.tale import Tale

TABLE: Final[Mapping[str, StagePlay]] = {
    "server": play_server,
    "reads": play_reads,
    "client": play_client,
    "cluster": play_cluster,
}


def tell(setup: Setup) -> Tale:
    """Play it."""
    stage = TABLE.get(setup.stage)
    if stage is None:
        raise BadValue("stage", setup.stage, f"give one of {', '.join(TABLE)}")
    return play(stage, setup)


def broken_by(setup: Setup) -> list[Broken]:
    """Play it, and say what broke."""
    return check(setup, tell(setup))
