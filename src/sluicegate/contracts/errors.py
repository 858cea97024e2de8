"""Errors: whose fault it is, and what to do next.

`BadValue` is the caller's fault, `Unavailable` that of a dependency, `Refused` is nobody's: it
carries a decision. What a caller may act on is one of these; anything else is a bug of ours.

This file is never compiled: a compiled exception has been freed while something still held it, and
none of these is on a hot path.
"""

from __future__ import annotations

from typing import Final

from sluicegate.contracts.decision import Decision

_SHOWN_CHARS_MAX: Final = 80


class SluicegateError(Exception):
    """Whatever Sluicegate raises on purpose."""


class BadValue(SluicegateError, ValueError):  # noqa: N818 - it names the thing, not the class
    """A value that cannot be used: the field, the value, and what would be right."""

    def __init__(self, field: str, value: object, remedy: str) -> None:
        shown = repr(value)
        if len(shown) > _SHOWN_CHARS_MAX:
            # A key of ten megabytes must not become a message of ten megabytes.
            shown = f"{shown[:_SHOWN_CHARS_MAX]}... ({len(shown):,} characters)"
        super().__init__(f"{field}: {shown} cannot be used; {remedy}")
        self.field = field
        self.value = value
        self.remedy = remedy

    def __reduce__(self) -> tuple[type[BadValue], tuple[str, object, str]]:
        return BadValue, (self.field, self.value, self.remedy)


class Unavailable(SluicegateError):  # noqa: N818 - likewise
    """A dependency does not answer: which one, and what was observed."""

    def __init__(self, what: str, detail: str) -> None:
        super().__init__(f"{what} is unavailable: {detail}")
        self.what = what
        self.detail = detail

    def __reduce__(self) -> tuple[type[Unavailable], tuple[str, str]]:
        return type(self), (self.what, self.detail)


class Unanswered(Unavailable):
    """A dependency that was sent a request and did not answer; it may have done the work."""


class OutcomeUnknown(Unavailable):
    """A change that may have been made, or made in part: read before you repeat it."""

    def __init__(self, what: str, detail: str) -> None:
        super().__init__(what, detail)
        self.args = (f"{what} may have made this change or not: {detail}",)


class HasWriter(Unavailable):
    """An event log that another process writes, and that has one writer at a time."""


class DataLoss(SluicegateError):  # noqa: N818 - it names the thing, not the class
    """Stored data that fails its check: its place, and the finding. Retrying cannot help."""

    def __init__(self, what: str, detail: str) -> None:
        super().__init__(f"{what} is damaged: {detail}")
        self.what = what
        self.detail = detail

    def __reduce__(self) -> tuple[type[DataLoss], tuple[str, str]]:
        return DataLoss, (self.what, self.detail)


class Refused(SluicegateError):  # noqa: N818 - likewise
    """A unit of work that may not enter; `decision` says why and when to come back.

    `detail` names the bound, its value and the fix, where the reason's sentence is not enough.
    """

    def __init__(self, decision: Decision, detail: str = "") -> None:
        reason = decision.reason
        super().__init__(detail or ("refused" if reason is None else reason.sentence))
        self.decision = decision
        self.detail = detail

    def __reduce__(self) -> tuple[type[Refused], tuple[Decision, str]]:
        return Refused, (self.decision, self.detail)


class NotAwaited(SluicegateError, TypeError):  # noqa: N818 - likewise
    """A coroutine in a condition, where its result is meant."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name}(...) is a coroutine, not its result; write `await {name}(...)`")
        self.name = name

    def __reduce__(self) -> tuple[type[NotAwaited], tuple[str]]:
        return NotAwaited, (self.name,)


class Unauthenticated(SluicegateError):  # noqa: N818 - likewise
    """The caller is not identified, and must be here."""

    def __init__(self, remedy: str, problem: str = "the caller is not known here") -> None:
        super().__init__(f"{problem}; {remedy}")
        self.remedy = remedy
        self.problem = problem

    def __reduce__(self) -> tuple[type[Unauthenticated], tuple[str, str]]:
        return Unauthenticated, (self.remedy, self.problem)


class Forbidden(SluicegateError):  # noqa: N818 - likewise
    """The caller is identified, and may not do this."""

    def __init__(self, who: str, grant: str) -> None:
        super().__init__(f"{who or 'nobody'} may not do this; it takes the grant {grant!r}")
        self.who = who
        self.grant = grant

    def __reduce__(self) -> tuple[type[Forbidden], tuple[str, str]]:
        return Forbidden, (self.who, self.grant)


class MissingPackage(SluicegateError):  # noqa: N818 - likewise
    """A package that an extra brings is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"the package {package} is missing; pip install '.[{extra}]' in the checkout"
        )
        self.package = package
        self.extra = extra

    def __reduce__(self) -> tuple[type[MissingPackage], tuple[str, str]]:
        return MissingPackage, (self.package, self.extra)


class Conflict(SluicegateError):  # noqa: N818 - likewise
    """Somebody else changed it first: what it is, and what is there now. Read it, and try again."""

    def __init__(self, what: str, detail: str) -> None:
        super().__init__(f"{what} was changed by somebody else: {detail}")
        self.what = what
        self.detail = detail

    def __reduce__(self) -> tuple[type[Conflict], tuple[str, str]]:
        return Conflict, (self.what, self.detail)
