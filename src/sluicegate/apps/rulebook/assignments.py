"""Assignments: `sluicegate rules set RULE.FIELD=VALUE`: propose, approve and publish in one step.

Each step is the operation of that name, with its own grant and its own entry in the audit; nothing
is done here that its caller could not do by three commands. Where a step is refused, what was
proposed stays, and the command that a second person would use is printed.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Final

from sluicegate.apps.rulebook import output
from sluicegate.apps.rulebook.confirmation import confirmed
from sluicegate.apps.rulebook.location import the_rulebook
from sluicegate.apps.rulebook.messages import reword
from sluicegate.apps.rulebook.operations import report_delivery, wait, waiting_of
from sluicegate.contracts.access import Identity
from sluicegate.contracts.errors import BadValue, Forbidden, SluicegateError
from sluicegate.contracts.rule_admin import Answer, RuleAdmin
from sluicegate.contracts.rulebook import APPROVED, FAILED, PASSED
from sluicegate.rules.field_edit import find_field, set_field

_TITLE_CHARS_MAX: Final = 160


def run(arguments: Namespace) -> int:
    """Set fields of live rules; 0 if they are live, 1 if a second person must go on."""
    waiting = waiting_of(arguments)
    assigned = _parse(arguments.assignments)
    if not arguments.reason.strip():
        raise BadValue("--reason", arguments.reason, "say why; the audit keeps it")
    with the_rulebook(arguments) as (admin, by):
        live = admin.rules(by=by)["commit"]
        changes, words = _changes(admin, by, live, assigned)
        proposal = confirmed(
            arguments,
            lambda confirm: admin.propose(
                changes,
                base=live,
                message=f"Set {'; '.join(words)}"[:_TITLE_CHARS_MAX],
                reason=arguments.reason,
                confirm=confirm,
                by=by,
            ),
        )
        try:
            proposal = _approve(admin, by, proposal, arguments.reason)
            result = admin.publish(proposal["id"], by=by)
        except (BadValue, Forbidden) as error:
            return _stopped(arguments, admin.proposal(proposal["id"], by=by), error)
        if not arguments.json:
            output.write(*words)
        if waiting.nodes:
            return wait(arguments, admin, by, result["version"], waiting)
        output.show(arguments, result, output.show_proposal)
        return report_delivery(result)


def _parse(texts: Sequence[str]) -> dict[str, str]:
    """Values by RULE.FIELD."""
    assigned: dict[str, str] = {}
    for text in texts:
        # The id of a rule in Envoy's format may hold an '='; the last one is ours.
        target, sign, value = text.rpartition("=")
        if not (sign and "." in target):
            raise BadValue("RULE.FIELD=VALUE", text, "write it as play.limit=500")
        if target in assigned:
            raise BadValue("RULE.FIELD=VALUE", text, "it is set twice; give it once")
        assigned[target] = value
    return assigned


def _changes(
    admin: RuleAdmin, by: Identity, live: str, assigned: Mapping[str, str]
) -> tuple[dict[str, str | None], list[str]]:
    """The files that change, whole, and what changes, in words."""
    files = [one["name"] for one in admin.rules(live, by=by)["files"] if one["format"]]
    texts = {name: str(admin.file(name, live, by=by)["text"]) for name in files}
    as_live = dict(texts)
    words: list[str] = []
    for target, value in assigned.items():
        place = find_field(texts, target)
        texts[place.file] = set_field(texts[place.file], place, value)
        before = "not set" if place.before is None else f"{place.before}"
        words.append(f"{target}: {before} -> {value}")
    changed: dict[str, str | None] = {
        name: text for name, text in texts.items() if text != as_live[name]
    }
    if not changed:
        asked = " ".join(f"{target}={value}" for target, value in assigned.items())
        raise BadValue("RULE.FIELD=VALUE", asked, "live has that already; give another value")
    return changed, words


def _approve(admin: RuleAdmin, by: Identity, proposal: Answer, reason: str) -> Answer:
    """Approve it; where the gate has nothing to judge by, for the reason of the change."""
    if (proposal["verdict"] or {}).get("result") == FAILED:
        sentence = proposal["verdict"]["sentence"]
        raise BadValue("proposal", proposal["id"], f"the gate failed it: {sentence}")
    approved: Answer = admin.approve(proposal["id"], override=reason, by=by)
    if approved["state"] != APPROVED:
        raise BadValue("proposal", proposal["id"], "it takes more people to approve it")
    return approved


def _stopped(arguments: Namespace, proposal: Answer, error: SluicegateError) -> int:
    """Show what is proposed, why it is not live, and how a second person goes on."""
    output.show(arguments, proposal, output.show_proposal)
    passed = (proposal["verdict"] or {}).get("result") == PASSED
    override = "" if passed else ' --override "WHY"'
    sys.stderr.write(
        f"sluicegate: it is proposed, and not live: {reword(error)}\n"
        f"sluicegate: a second person goes on with: "
        f"sluicegate rules approve {output.short(proposal['id'])} --publish{override}\n"
    )
    return 1
