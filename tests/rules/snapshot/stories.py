"""Stories: random rules files of both formats, and what is asked of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from hypothesis import strategies as st

from sluicegate.contracts.criticality import Criticality
from sluicegate.rules.problems import BadRules
from sluicegate.rules.service_rule_set import ServiceRuleSet

Files: TypeAlias = dict[str, bytes]

PATTERNS = (None, "/", "/a", "/a/b", "/a/{x}", "/{x}/b", "/a/*", "/*", "/ä/{x}/c", "/{x}/*")
PATHS = ("/", "/a", "/a/b", "/a/z", "/z/b", "/a/b/c", "/ä/1/c", "/q")
CLIENTS = (None, "TV", "ö")
CLASSES = (None, *[one.name for one in Criticality])


def dumped(value: object) -> bytes:
    return json.dumps(value).encode()


def without_none(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


RULE = st.fixed_dictionaries(
    {
        "resource_path": st.sampled_from(PATTERNS),
        "client_type": st.sampled_from(CLIENTS),
        "priority_bucket": st.sampled_from(CLASSES),
        "limit": st.sampled_from([1, 5, 100]),
        "window_seconds": st.sampled_from([1, 60]),
        "mode": st.sampled_from([None, None, "enforce", "shadow", "off"]),
        "per": st.sampled_from([None, "user", "resource", "user+resource"]),
        "burst_capacity": st.sampled_from([None, 1.2, 2]),
        "algorithm": st.sampled_from([None, "token_bucket", "fixed_window"]),
    }
).map(without_none)
DEFAULTS = st.fixed_dictionaries(
    {},
    optional={
        "burst_capacity": st.sampled_from([1, 1.5]),
        "mode": st.sampled_from(["shadow", "enforce"]),
        "failure": st.just("closed"),
    },
)
NATIVE = st.fixed_dictionaries(
    {"rules": st.lists(RULE, max_size=8), "by_name": st.booleans()},
    optional={
        "defaults": DEFAULTS,
        "priorities": st.just({"names": {"pay*": "CRITICAL"}, "default": "BULK"}),
        "callers": st.just({"names": {"ann": "CRITICAL"}, "quotas": {"bob": "5/second"}}),
        "client_type_header": st.just("x-kind"),
    },
)
NODE = st.fixed_dictionaries(
    {
        "key": st.sampled_from(["user", "path"]),
        "value": st.sampled_from(["", "a", "b*"]),
        "requests": st.integers(1, 9),
    }
)


def files_of(native: list[dict[str, Any]], nodes: list[dict[str, Any]]) -> Files:
    """Files of these rules, each with a name of its own."""
    files: Files = {}
    number = 0
    for place, file in enumerate(native):
        named: dict[str, Any] = {}
        for rule in file["rules"]:
            named[f"rule-{number}"] = rule
            number += 1
        rules = [{"rule_id": name, **rule} for name, rule in named.items()]
        head = {name: value for name, value in file.items() if name != "by_name"}
        content = {"version": 1, **head, "rules": named if file.get("by_name") else rules}
        files[f"n{place}.yaml"] = dumped(content)
    if nodes:
        seen: dict[tuple[str, str], dict[str, Any]] = {}
        for node in nodes:
            seen[node["key"], node["value"]] = {
                "key": node["key"],
                **({"value": node["value"]} if node["value"] else {}),
                "rate_limit": {"unit": "minute", "requests_per_unit": node["requests"]},
            }
        files["sub/mesh.yaml"] = dumped({"domain": "d", "descriptors": [*seen.values()]})
    return files


def written(folder: Path, files: Mapping[str, bytes]) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def outcome(work: Callable[[], Any], folder: Path | None = None) -> Any:
    """What comes of it: a value, or the words of what is wrong, without where the files are."""
    try:
        return work()
    except BadRules as error:
        words = str(error)
        return words.replace(f"{folder}/", "") if folder is not None else words


def contents_of(book: ServiceRuleSet) -> dict[str, Any]:
    """All that can be seen of a book."""
    resources = book.resources
    contents: dict[str, Any] = {}
    for path in PATHS:
        for client in ("", "TV", "ö", "PHONE"):
            for priority in Criticality:
                contents[f"{path} {client} {priority}"] = [
                    (rule.rule_id, rule.path, rule.client_type, rule.priority, of_kind(rule.kind))
                    for rule in resources.find(path, client, priority)
                ]
    priorities = resources.priorities
    asks = [[(key, value)] for key in ("user", "path", "other") for value in ("", "a", "bb", "c")]
    mesh = [rule and rule.rule_id for rule in (book.mesh.find("d", entries) for entries in asks)]
    return {
        "found": contents,
        "mesh": mesh,
        "domains": book.mesh.domains,
        "names": {
            f"rule-{number}": rule and (rule.path, of_kind(rule.kind))
            for number in range(24)
            for rule in [resources.rule(f"rule-{number}")]
        },
        "shared_limits": book.rules,
        "files": book.files,
        "count": (len(book), len(resources)),
        "header": priorities.client_type_header,
        "classes": [
            priorities.settle(caller, claim, {priorities.names.header: name})
            for caller in ("ann", "bob")
            for claim in (None, Criticality.CRITICAL)
            for name in ("pay-1", "other")
        ],
        "quotas": {name: of_kind(rule.kind) for name, rule in priorities.callers.quotas.items()},
    }


def of_kind(kind: Any) -> tuple[object, ...]:
    return (kind.shared_id, kind.limit, kind.per, kind.shadow, kind.units, kind.surcharge)


BOOKS = st.builds(files_of, st.lists(NATIVE, min_size=1, max_size=3), st.lists(NODE, max_size=3))
