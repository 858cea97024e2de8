"""Trial: try rules on traffic that was seen, before they are in force."""

from __future__ import annotations

import os
from argparse import Namespace
from typing import Any, Final

from sluicegate.apps.rulebook.location import the_rulebook
from sluicegate.apps.rulebook.output import show_proposal, verdict_words, write, write_json
from sluicegate.apps.rulebook.reports import Bar, write_page, write_report
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rulebook import FAILED, PASSED, Files, GateFinding, Judge
from sluicegate.rules.mesh.rule import Semantics
from sluicegate.rules.mesh.settings import MeshSettings
from sluicegate.rules.plain_values import read_bytes
from sluicegate.rules.service_rule_set import FILE_BYTES_MAX, find_files
from sluicegate.service.settings import whole
from sluicegate.shadow.folder_judge import FolderJudge
from sluicegate.shadow.gate import JudgeSettings, ShadowJudge
from sluicegate.shadow.imports.envoy import EnvoyFields, import_envoy, parse_fields
from sluicegate.shadow.imports.importer import collect
from sluicegate.shadow.imports.rows import BAD_ROWS_MAX, Rows
from sluicegate.shadow.imports.tables import import_csv, import_jsonl
from sluicegate.shadow.replay import WORKERS_MAX

_CODES: Final = {PASSED: 0, FAILED: 1}
_NOT_JUDGED: Final = 3
_SIDES: Final = 2
_OF_ENVOY: Final = ("map", "domain", "descriptor")


def run(arguments: Namespace) -> int:
    """Try a proposal, or two folders of rules."""
    if arguments.id:
        _alone(arguments)
        return _proposal(arguments)
    if len(arguments.rules) != _SIDES:
        remedy = "give it twice: the rules in force, and those to be tried; or the ID of a proposal"
        raise BadValue("--rules", arguments.rules, remedy)
    current, candidate = (_files(path) for path in arguments.rules)
    verdict = _judge(arguments).judge(current, candidate)
    _tell(arguments, verdict)
    return _CODES.get(verdict.result, _NOT_JUDGED)


def _alone(arguments: Namespace) -> None:
    """A proposal is tried by its rulebook: on the capture, and as strictly, as that is told."""
    for name in ("rules", "capture", "key", "envoy_log", "csv", "jsonl", *_OF_ENVOY):
        value = getattr(arguments, name)
        if value:
            remedy = "leave it out: a proposal is tried on the capture of its rulebook"
            raise BadValue(f"--{name.replace('_', '-')}", value, remedy)


def _proposal(arguments: Namespace) -> int:
    with the_rulebook(arguments) as (admin, by):
        one = admin.judge(arguments.id, by=by)
    verdict = one["verdict"] or {}
    report = verdict.get("report")
    if arguments.html and report:
        write_page(report, arguments.html)
    if arguments.json:
        write_json(one)
    else:
        if report:
            write_report(report, as_program=False)
        show_proposal(one)
    return _CODES.get(str(verdict.get("result")), _NOT_JUDGED)


def _tell(arguments: Namespace, verdict: GateFinding) -> None:
    if not verdict.report:
        if arguments.json:
            found = {"result": verdict.result, "sentence": verdict.sentence}
            write_json({"verdict": {**found, "confidence": verdict.confidence}})
        else:
            write(verdict_words(verdict.result, verdict.sentence))
        return
    if arguments.html:
        write_page(verdict.report, arguments.html)
    write_report(verdict.report, as_program=arguments.json)


def _judge(arguments: Namespace) -> Judge:
    settings = JudgeSettings(
        workers=int(whole(1, WORKERS_MAX)(arguments.workers, "--workers")),
        mesh=MeshSettings(semantics=Semantics(arguments.semantics)),
        merge_domains=arguments.merge_domains,
    )
    rows = _rows(arguments)
    if rows is not None:
        captured = collect(rows)
        return ShadowJudge(lambda: captured, settings, progress=Bar("tried"))
    if not arguments.capture:
        remedy = "give captured traffic: --capture DIR, or --envoy-log, --csv or --jsonl FILE"
        raise BadValue("--capture", "", remedy)
    key = arguments.key or f"{arguments.capture.rstrip('/')}.key"
    return FolderJudge(arguments.capture, key, settings, progress=Bar("tried"))


def _rows(arguments: Namespace) -> Rows | None:
    sources = [one for one in (arguments.envoy_log, arguments.csv, arguments.jsonl) if one]
    if len(sources) + bool(arguments.capture) > 1:
        raise BadValue("--capture", sources, "give traffic from one place")
    for name in _OF_ENVOY:
        value = getattr(arguments, name)
        if value and not arguments.envoy_log:
            raise BadValue(f"--{name}", value, "leave it out: it says how to read --envoy-log")
    more: Any = {
        "bad_rows_max": whole(0, BAD_ROWS_MAX)(arguments.bad_rows, "--bad-rows"),
        "progress": Bar("read"),
    }
    if arguments.envoy_log:
        return import_envoy(arguments.envoy_log, _envoy_fields(arguments), **more)
    if arguments.csv:
        return import_csv(arguments.csv, unit=arguments.unit, **more)
    return import_jsonl(arguments.jsonl, unit=arguments.unit, **more) if arguments.jsonl else None


def _envoy_fields(arguments: Namespace) -> EnvoyFields:
    """Which fields of the log say what; each as user=x-user-id."""
    fields: dict[str, Any] = {"unit": arguments.unit, "domain": arguments.domain}
    fields["descriptors"] = tuple(map(_descriptor, arguments.descriptor))
    if bool(arguments.domain) != bool(arguments.descriptor):
        missing = "--descriptor" if arguments.domain else "--domain"
        raise BadValue(missing, "", "give --domain and --descriptor together, or neither")
    fields.update(parse_fields(arguments.map, "--map"))
    return EnvoyFields(**fields)


def _descriptor(text: str) -> tuple[tuple[str, str], ...]:
    """One descriptor: pairs of a key and the field that has its value."""
    pairs = tuple(
        [(key, field) for key, _, field in [one.partition("=") for one in text.split(",")]]
    )
    if not all(key and field for key, field in pairs):
        raise BadValue("--descriptor", text, "write KEY=FIELD, or KEY=FIELD,KEY=FIELD")
    return pairs


def _files(path: str) -> Files:
    """The rules files of one side; an empty folder is a service without rules."""
    if os.path.isdir(path) and not os.listdir(path):
        return {}
    return {name: read_bytes(at, FILE_BYTES_MAX) for at, name in find_files([path])}
