"""Gate: the judge of a change of rules, by what it would have done to captured traffic.

    FAILED      a pinned caller is newly refused; or of all CRITICAL requests, refused ones
                included, more than `refused_max` are newly refused: admitted by the current rules
                and refused by the candidate
    NOT JUDGED  there is no capture, it cannot be read, or it has fewer than `samples_min` CRITICAL
                requests; or nothing failed, and something of the candidate could not be tried
    PASSED      everything else

The share is worked out of all CRITICAL requests, and of those that came after their limits had a
history, if these are enough; and both by the classes of the current rules and by the candidate's,
where these differ. The largest of them is judged, so nothing hides in a beginning without history
or behind another name. What is refused already is counted apart and fails nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, NamedTuple, TypeAlias, final

from sluicegate.command_line.text import clip
from sluicegate.contracts.errors import BadValue, SluicegateError
from sluicegate.contracts.rulebook import FAILED, NOT_JUDGED, PASSED, Files, GateFinding
from sluicegate.rules.mesh.rule import Semantics
from sluicegate.rules.mesh.settings import MeshSettings
from sluicegate.shadow.analysis import Analysis, Pinned, RefusalCounts, analyse
from sluicegate.shadow.confidence import confidence_of
from sluicegate.shadow.pair_run import Progress
from sluicegate.shadow.replay import WORKERS_MAX, replay
from sluicegate.shadow.replay_rules import ReplayRules
from sluicegate.shadow.report.report import report_of
from sluicegate.shadow.traffic import CapturedTraffic

# Gives the capture to judge by; None where there is none. What it raises stands in the verdict.
CaptureSource: TypeAlias = Callable[[], CapturedTraffic | None]

REFUSED_MAX_DEFAULT: Final = 0.05
SAMPLES_MIN_DEFAULT: Final = 1_000
_NAMES_SHOWN: Final = 3


@dataclass(frozen=True, kw_only=True)
class JudgeSettings:
    """How strict the gate is, and how the service is set whose rules these are.

    `refused_max` is the largest share of CRITICAL requests that may be newly refused,
    `samples_min` how many of them are needed. Nobody whose name is in `pinned` may be newly refused
    at all; the callers that a rule set pins itself are pinned besides. With `trials_enforced` what
    the candidate only tries out is judged as if it were enforced.
    """

    refused_max: float = REFUSED_MAX_DEFAULT
    samples_min: int = SAMPLES_MIN_DEFAULT
    pinned: Iterable[str] = ()
    trials_enforced: bool = False
    workers: int = 1
    mesh: MeshSettings = field(default_factory=lambda: MeshSettings(semantics=Semantics.SLUICEGATE))
    merge_domains: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.refused_max <= 1:
            raise BadValue("refused_max", self.refused_max, "give a share from 0 to 1, as 0.05")
        if self.samples_min < 1:
            raise BadValue("samples_min", self.samples_min, "give a whole number, at least 1")
        if not 1 <= self.workers <= WORKERS_MAX:
            raise BadValue("workers", self.workers, f"give a whole number from 1 to {WORKERS_MAX}")
        object.__setattr__(self, "pinned", tuple(sorted({*self.pinned})))


class Share(NamedTuple):
    """A share of CRITICAL requests that is newly refused, and of which of them."""

    newly: int
    requests: int
    already: int
    words: str

    @property
    def value(self) -> Fraction:
        """The share, exactly."""
        return Fraction(self.newly, self.requests) if self.requests else Fraction(0)


class _GateFinding(NamedTuple):
    """What the gate found, and the share it judged by."""

    result: str
    sentence: str
    share: Share


@final
class ShadowJudge:
    """Judges by a replay of what a capture source gives; a `contracts.rulebook.Judge`.

    `notes` are what its reader must know of the capture, in sentences, for the report.
    """

    def __init__(
        self,
        source: CaptureSource,
        settings: JudgeSettings | None = None,
        *,
        notes: Iterable[str] = (),
        doubts: Sequence[str] = (),
        progress: Progress | None = None,
    ) -> None:
        self._notes = tuple(notes)
        self._doubts = tuple(doubts)
        self._source = source
        self._settings = JudgeSettings() if settings is None else settings
        self._progress = progress

    def judge(self, current: Files, candidate: Files) -> GateFinding:
        """Replay the capture against both, and judge what the candidate would have changed."""
        settings = self._settings
        try:
            traffic = self._source()
        except SluicegateError as error:
            return verdict_not_judged(f"Not judged: the capture cannot be read: {error}")
        if traffic is None or not len(traffic):
            return verdict_not_judged(
                "Not judged: there is no captured traffic to try the rules on."
            )
        rules: dict[str, ReplayRules] = {}
        for name, files, trials in (
            ("current", current, False),
            ("candidate", candidate, settings.trials_enforced),
        ):
            try:
                rules[name] = ReplayRules(
                    files,
                    semantics=settings.mesh.semantics,
                    merge_domains=settings.merge_domains,
                    trials_enforced=trials,
                )
            except BadValue as error:
                if name == "current":
                    return verdict_not_judged(
                        f"Not judged: the current rules cannot be read: {error}"
                    )
                return GateFinding(
                    FAILED, f"The candidate's rules cannot be read: {error}", None, {}
                )
        analysis = analyse(
            replay(
                traffic,
                rules["current"],
                rules["candidate"],
                mesh=settings.mesh,
                workers=settings.workers,
                progress=self._progress,
            ),
            pinned=settings.pinned,
        )
        return verdict_of(analysis, settings, notes=self._notes, doubts=self._doubts)


def verdict_not_judged(sentence: str) -> GateFinding:
    """The verdict where nothing was replayed."""
    return GateFinding(NOT_JUDGED, sentence, None, {})


def verdict_of(
    analysis: Analysis,
    settings: JudgeSettings,
    *,
    notes: Iterable[str] = (),
    doubts: Sequence[str] = (),
) -> GateFinding:
    """The verdict on a replay, with its report."""
    found = judge_analysis(analysis, settings, doubts=doubts)
    share = found.share
    confidence = confidence_of(
        analysis, newly=share.newly, requests=share.requests, refused_max=settings.refused_max
    )
    report = report_of(
        analysis,
        confidence,
        result=found.result,
        sentence=found.sentence,
        refused_max=settings.refused_max,
        samples_min=settings.samples_min,
        trials_enforced=settings.trials_enforced,
        notes=notes,
    )
    return GateFinding(found.result, found.sentence, round(confidence.score, 6), report)


def judge_analysis(
    analysis: Analysis, settings: JudgeSettings, *, doubts: Sequence[str] = ()
) -> _GateFinding:
    """What the gate finds, in a sentence with the figures.

    `doubts` are rules that the capture could not try: with one, nothing passes.
    """
    share = max(_shares(analysis, settings.samples_min), key=lambda one: one.value)
    samples = analysis.critical.requests
    share_words = _describe_share(share, settings.refused_max)
    refused_pins = [pin for pin in analysis.pinned if pin.newly_refused]
    if refused_pins:
        return _GateFinding(FAILED, f"{_describe_pins(refused_pins)} {share_words}", share)
    if samples < settings.samples_min:
        why = (
            f"the capture has {samples:,} CRITICAL requests, and "
            f"{settings.samples_min:,} are needed"
        )
        sentence = f"Not judged: {'; '.join((why, *doubts))}. {share_words}"
        return _GateFinding(NOT_JUDGED, sentence, share)
    if share.value > Fraction(str(settings.refused_max)):
        return _GateFinding(FAILED, share_words, share)
    invalid = analysis.result.pair.invalid
    if invalid > settings.refused_max * (samples + invalid):
        doubts = [f"{invalid:,} captured requests could not be asked of these rules", *doubts]
    if doubts:
        return _GateFinding(NOT_JUDGED, f"Not judged: {'; '.join(doubts)}. {share_words}", share)
    return _GateFinding(PASSED, share_words, share)


def _shares(analysis: Analysis, samples_min: int) -> list[Share]:
    """The shares that count; the first is of all requests, by the classes now in force."""
    views: list[tuple[RefusalCounts, str]] = [(analysis.critical, "")]
    if analysis.reclassified and not analysis.by_candidate:
        views.append((analysis.critical_there, " by the candidate's classes"))
    shares: list[Share] = []
    for counts, words in views:
        shares.append(Share(counts.newly_refused, counts.requests, counts.refused_already, words))
        if counts.later != counts.requests and counts.later >= samples_min:
            after = f"{words} after the limits had a history"
            shares.append(
                Share(counts.later_newly_refused, counts.later, counts.later_refused_already, after)
            )
    return shares


def _describe_share(share: Share, refused_max: float) -> str:
    if not share.requests:
        return "The capture has no CRITICAL requests."
    return (
        f"The candidate newly refuses {share.newly:,} of {share.requests:,} CRITICAL requests"
        f"{share.words}, {_percent(share.value)} of them (at most {refused_max:.2%} may be); "
        f"{share.already:,} are refused already."
    )


def _describe_pins(refused_pins: list[Pinned]) -> str:
    names = ", ".join(
        f"'{clip(pin.name)}' ({pin.newly_refused:,})" for pin in refused_pins[:_NAMES_SHOWN]
    )
    more = len(refused_pins) - _NAMES_SHOWN
    others = f" and {more:,} more" if more > 0 else ""
    who = "a pinned caller" if len(refused_pins) == 1 else f"{len(refused_pins):,} pinned callers"
    return f"The candidate newly refuses {who}: {names}{others}."


def _percent(share: Fraction) -> str:
    """To a hundredth of a percent, or closer where rounding would change it."""
    return f"{float(share):.2%}" if (share * 10_000).denominator == 1 else f"{float(share):.4%}"
