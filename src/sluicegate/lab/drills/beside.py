"""Beside: a load alone, then beside each of several populations of callers that never pause."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sluicegate.lab.drills.closed_loop import ClosedLoop, play_beside
from sluicegate.lab.drills.drill import LAYERS, DrillOutcome, DrillSetting, Panel, note_latency
from sluicegate.lab.drills.generator import play
from sluicegate.lab.drills.load import DrillLoad, LoadStream
from sluicegate.lab.drills.record import slice_of

BIN_US: Final = 500_000


def play_each(
    setting: DrillSetting,
    stream: LoadStream,
    warm_us: int,
    who: str,
    loops: Mapping[str, tuple[ClosedLoop, float]],
    served_min: float = 0.0,
) -> DrillOutcome:
    """Play the stream of `who` alone and beside each loop, where its p99 has a bar.

    It may be so many milliseconds above what it is alone; `served_min` is the share of its requests
    that must be served.
    """
    outcome = DrillOutcome()
    control = setting.policy != LAYERS
    load = DrillLoad(streams=(stream,), span_us=warm_us + setting.us(), seed=setting.seed)
    span = {"begin_us": warm_us, "end_us": warm_us + setting.us()}
    setting.progress(f"{who} alone")
    [alone] = play([load])
    alone_ms = note_latency(outcome, alone, span, "alone")
    curves = {"alone": slice_of(alone, **span).times_ms(BIN_US)}
    for what, (loop, more_ms) in loops.items():
        setting.progress(f"{who} beside {what}")
        beside, others = play_beside(load, loop)
        p99_ms = note_latency(outcome, beside, span, f"beside {what}")
        outcome.figures[f"beside {what}: others served a second"] = others.served_per_s
        outcome.figures[f"beside {what}: others refused a second"] = others.refused_per_s
        outcome.add_bar(
            f"{who}'s p99 beside {what}",
            p99_ms,
            at_most=alone_ms + more_ms,
            unit="ms",
            must_miss=control,
        )
        part = slice_of(beside, **span)
        if served_min and not control:
            outcome.add_bar(
                f"{who} served beside {what}", part.success, at_least=served_min, unit="%"
            )
        curves[f"beside {what}"] = part.times_ms(BIN_US)
    outcome.panels = [Panel(f"p99 of {who}", "ms", "s", curves, log_y=True)]
    return outcome
