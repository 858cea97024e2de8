"""Settings of the rulebook's door: all that limits a call, each bound by its name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from sluicegate.kernels.bounds import ranged
from sluicegate.policies.settings import check_ranges


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RulesHttpSettings:
    """What the routes allow. `hosts` are the Host values that are ours.

    Where none are given they are those of the listener, or any if other machines reach it.

    How long a whole body may be is said by `HttpSettings.body_bytes_max`, and how long an answer
    may take by its `answer_timeout_s`, which must be more than `wait_s_max`.
    """

    hosts: frozenset[str] | None = None
    metrics_open: bool = False
    version: str = "0.1.0"  # as the document tells it
    # Of one call.
    changes_max: int = ranged(1_000, 1, 100_000)
    name_bytes_max: int = ranged(255, 1, 4_096)
    text_bytes_max: int = ranged(1024 * 1024, 1, 2**30)  # of one file
    message_bytes_max: int = ranged(1_000, 1, 1_000_000)
    reason_bytes_max: int = ranged(10_000, 1, 1_000_000)
    revision_chars_max: int = ranged(100, 40, 1_000)  # of an id, or whatever else names a revision
    count_max: int = ranged(1_000, 1, 100_000)
    answer_bytes_max: int = ranged(4 * 1024 * 1024, 1_024, 2**30)
    # Of all calls together. They wait for files, so each takes a thread; beyond both, 503 at once.
    calls_max: int = ranged(8, 1, 1_000)
    calls_waiting_max: int = ranged(64, 0, 100_000)
    calls_of_caller_max: int = ranged(36, 1, 100_000)  # all who have no name are one caller
    # Of those that wait for nodes; they have threads of their own.
    waits_max: int = ranged(16, 1, 1_000)
    waits_of_caller_max: int = ranged(8, 1, 1_000)
    wait_s_max: float = ranged(20.0, 0.01, 3_600)  # one answer; who wants to wait longer asks again
    wait_look_s: float = ranged(2.0, 0.001, 60)  # how long a wait may outlive the door
    # Of calls that are remembered by their Idempotency-Key.
    keys_kept_s: int = ranged(3_600, 1, 7 * 86_400)
    keys_max: int = ranged(10_000, 1, 10_000_000)
    keys_of_caller_max: int = ranged(1_000, 1, 10_000_000)
    keys_bytes_max: int = ranged(64 * 1024 * 1024, 1_024, 2**40)  # of the answers

    def __post_init__(self) -> None:
        check_ranges("rules", self)
