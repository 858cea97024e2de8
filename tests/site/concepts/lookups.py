"""Pictures of look-ups: which of several rules answers, where more than one would fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sluicegate.kernels.glob_index import GlobIndex
from sluicegate.kernels.path_index import PathIndex
from sluicegate.kernels.rule_index import RuleIndex
from tests.site.concepts.panel import Axis, Drawing, Sheet

Find = Callable[[Sequence[int], int], int | None]


def rule_index() -> Drawing:
    """Descriptors, and the rule that answers each."""
    rules: list[list[tuple[str, str | None]]] = [
        [("tenant", "acme"), ("path", "/search")],
        [("tenant", "acme"), ("path", "/api/*")],
        [("tenant", None), ("path", "/search")],
        [("tenant", None), ("path", None)],
    ]
    asked = [
        [("tenant", tenant), ("path", path)]
        for tenant, path in (
            ("acme", "/search"), ("acme", "/api/feed"), ("acme", "/about"),
            ("bolt", "/search"), ("bolt", "/about"),
        )
    ]  # fmt: skip

    def find(among: Sequence[int], at: int) -> int | None:
        return RuleIndex([(rules[rule], rule) for rule in among]).find(asked[at])

    sheet, answers = _grid(
        "Rule index: which rule answers",
        ["acme, /search", "acme, /api/*", "any, /search", "any, any"],
        [" ".join(value for _, value in each) for each in asked],
        find,
    )
    lost = [" ".join(value for _, value in asked[at]) for at in answers.nothing]
    return sheet.drawing(
        "Filled: the rule that answers; faint: rules that would, if they were alone. "
        f"{answers.several} of {len(asked)} descriptors fit more than one of {len(rules)} rules, "
        f"and the most exact one answers. Nothing answers {', '.join(lost)}, though a "
        "rule for any tenant would fit: acme has a place of its own, and there is no going back."
    )


def path_index() -> Drawing:
    """Paths, and the rule that each falls under."""
    rules = ["/users/me/*", "/users/me", "/users/{id}", "/users/{id}/x", "/users/*"]
    asked = ["/users/me", "/users/me/x", "/users/42", "/users/42/x", "/users/42/y", "/users"]

    def find(among: Sequence[int], at: int) -> int | None:
        return PathIndex([(rules[rule], rule) for rule in among]).find(asked[at])

    sheet, answers = _grid("Path index: which rule a path falls under", rules, asked, find)
    longest = rules[answers.of[asked.index("/users/42/y")]]
    whole = rules[answers.of[asked.index("/users/me/x")]]
    return sheet.drawing(
        "Filled: the rule that answers; faint: rules that would, if they were alone. "
        f"{answers.several} of {len(asked)} paths fit more than one. /users/me/x falls "
        f"under `{whole}`, which fits the whole path, and not under a prefix; /users/42/y, which "
        f"no template fits, under `{longest}`."
    )


def glob_index() -> Drawing:
    """Values, and the first pattern that matches each."""
    rules = ["tenant-7-*", "*.example", "tenant-*", "*-7-*", "*"]
    asked = ["tenant-7-a", "tenant-8-a", "bolt-7-a", "a.example", "tenant-7.example", "bolt"]

    def find(among: Sequence[int], at: int) -> int | None:
        place = GlobIndex([rules[rule] for rule in among]).find(asked[at])
        return None if place < 0 else among[place]

    sheet, answers = _grid("Glob index: which pattern matches first", rules, asked, find)
    both = rules[answers.of[asked.index("tenant-7.example")]]
    return sheet.drawing(
        "Filled: the pattern that answers; faint: those that match too, and stand later in the "
        f"file. {answers.several} of {len(asked)} values match more than one; tenant-7.example "
        f"goes to `{both}`, which stands before `tenant-*`."
    )


class _Answers:
    """Of each value the rule, how many fit several, and which nothing answers though one fits."""

    def __init__(self) -> None:
        self.of: dict[int, int] = {}
        self.several = 0
        self.nothing: list[int] = []


def _grid(
    title: str, rules: Sequence[str], values: Sequence[str], find: Find
) -> tuple[Sheet, _Answers]:
    """A row for each value, a column for each rule; `find` asks an index of some of the rules."""
    sheet = Sheet(title, 26.0 * len(values))
    panel = sheet.panel(
        "which fits, of the rules below",
        Axis(len(rules), "", 0, [(at + 0.5, rule) for at, rule in enumerate(rules)]),
        Axis(len(values), "", 0, []),
    )
    answers = _Answers()
    everything = range(len(rules))
    for at, value in enumerate(values):
        low = len(values) - 1 - at
        found = find(everything, at)
        fits = [rule for rule in everything if find([rule], at) is not None]
        answers.several += len(fits) > 1
        if found is not None:
            answers.of[at] = found
        elif fits:
            answers.nothing.append(at)
        for rule in everything:
            kind = "a" if rule == found else "stays" if rule in fits else ""
            if kind:
                panel.bar(kind, rule + 0.03, rule + 0.97, low + 0.88, low + 0.12)
        panel.label(low + 0.5, value)
    return sheet, answers
