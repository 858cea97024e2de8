"""Match rules read in the plainest way, to compare a compiled rule set with; and random ones."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.rules.web.arrivals import PlainArrival


class PlainReading:
    """Match rules of a document, read in the plainest way: every rule, every part, in order.

    `*` is one segment of a path, as in the old format.
    """

    def __init__(self, document: dict[str, Any]) -> None:
        self.or_key = document.get("defaults", {}).get("or_key")
        rules = document["rules" if "rules" in document else "limits"]
        self.rules = (
            rules
            if isinstance(rules, list)
            else [{"rule_id": name, **rule} for name, rule in rules.items()]
        )

    def claims(self, came: PlainArrival) -> list[tuple[str, str, int]]:
        """The rules that have a say, with their keys and costs."""
        fitting = [
            rule
            for rule in self.rules
            if rule.get("mode") != "off" and _fits(rule.get("match", {}), came)
        ]
        if any(rule.get("exempt") for rule in fitting):
            return []
        found = []
        for rule in fitting:
            key = _key(rule["key"], rule, came)
            if not key and _listed(rule["key"]) != ["address"]:  # nothing stands for an address
                spare = self.or_key or "address"
                key = "" if spare == "skip" else _key(spare, rule, came)
            if key:
                found.append((rule.get("rule_id") or rule["name"], key, rule.get("cost", 1)))
                if rule.get("stop") and rule.get("mode") != "shadow":
                    break
        return found


def _segments(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _path_fits(pattern: str, path: str) -> bool:
    want, have = _segments(pattern), _segments(path)
    if want[-1:] == ["**"]:
        want.pop()
        have = have[: len(want)]
    return len(want) == len(have) and all(
        one == "*" or one[0] == "{" or one == other for one, other in zip(want, have, strict=True)
    )


def _value_fits(want: Any, value: str) -> bool:
    if isinstance(want, bool):
        return want == bool(value)
    return bool(value) and any(
        value.startswith(one[:-1]) if one.endswith("*") else value == one for one in _listed(want)
    )


def _fits(match: dict[str, Any], came: PlainArrival) -> bool:
    if "path" in match and not any(_path_fits(one, came.path) for one in _listed(match["path"])):
        return False
    if "method" in match and came.method not in [one.upper() for one in _listed(match["method"])]:
        return False
    if "address" in match and not came.address().startswith("10."):
        return False
    if "user" in match and not _value_fits(match["user"], came.user()):
        return False
    headers = match.get("header", {})
    return all(_value_fits(want, came.header(name)) for name, want in headers.items())


def _key(key: Any, rule: dict[str, Any], came: PlainArrival) -> str:
    values = []
    for part in _listed(key):
        if part == "everyone":
            return "everyone"
        if part.startswith("path."):
            pattern = _segments(_listed(rule["match"]["path"])[0])
            value = _segments(came.path)[pattern.index(f"{{{part[5:]}}}")]
        else:
            value = {
                "user": came.user(),
                "address": came.address(),
                "path": "/" + "/".join(_segments(came.path)),
                "header:h1": came.header("h1"),
            }[part]
        if not value:
            return ""
        values.append(f"{part}:{value}")
    return "|".join(values)


values = st.sampled_from(["a", "b", "c", ""])
wanted = st.sampled_from([True, False, "a", "b", ["a", "b"], "a*", ["b", "a*"]])


def rules_with(paths: list[str | list[str]]) -> st.SearchStrategy[dict[str, Any]]:
    """Match rules whose paths are of these."""
    match = st.fixed_dictionaries(
        {},
        optional={
            "path": st.sampled_from(paths),
            "method": st.sampled_from(["GET", ["get", "POST"]]),
            "header": st.dictionaries(st.sampled_from(["h1", "h2"]), wanted, min_size=1),
            "user": wanted,
            "address": st.just("10.0.0.0/8"),
        },
    )
    limited = st.fixed_dictionaries(
        {
            "key": st.sampled_from(["user", "address", "path", "everyone", ["user", "header:h1"]]),
            "limit": st.sampled_from(["5/s", "2/minute; 9/hour", ["3/s"]]),
        },
        optional={
            "match": match,
            "stop": st.booleans(),
            "mode": st.sampled_from(["enforce", "shadow", "off"]),
            "cost": st.integers(1, 3),
            "failure": st.sampled_from(["open", "closed"]),
        },
    )
    exempt = match.filter(bool).map(lambda one: {"match": one, "exempt": True})
    return st.one_of(limited, limited, limited, exempt)


arrivals = st.builds(
    lambda path, method, address, user, h1, h2: PlainArrival(
        path, method, address=address, user=user, headers={"h1": h1, "h2": h2}
    ),
    st.sampled_from(["/", "/a", "/b", "/a/b", "/c/b", "//a/", "/a/b/c", "/a/{any}"]),
    st.sampled_from(["GET", "POST", "PUT"]),
    st.sampled_from(["10.0.0.1", "192.0.2.1", ""]),
    values,
    values,
    values,
)
