"""Rule admin: the operations of a rulebook, in one table that serves every way in.

Each method of `RuleAdmin` is a row. Its decorator names the HTTP method and path, the grant it
needs, what it returns and its verb on the command line; its annotations say how each argument is
sent; the first line of its docstring is its summary. `OPERATIONS` is the table. The HTTP door, its
OpenAPI document, the remote client and the command line are derived from it, so a new operation is
a row here, an implementation in `rules/publishing/admin.py`, and examples for its verb's help.

Calls block, since they lead to a repository and to files; results are what JSON can hold. They
raise `BadValue` for what cannot be done, `Forbidden` for what this identity may not do, `Conflict`
where somebody else was faster, and `Unavailable` where a part does not respond.

A revision is "live", the number of a release, or the id of a commit or of a proposal. An id may be
shortened to `ID_CHARS_MIN` characters where that is unambiguous.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Annotated, Any, Final, NamedTuple, TypeVar, cast, get_type_hints

from sluicegate.contracts.access import Grant, Identity
from sluicegate.contracts.rulebook import BY_CALLERS, BY_NODES, STATES

ID_CHARS_MIN: Final = 6
LIVE_REVISION: Final = "live"
VERSION_MAX: Final = 2**53 - 1  # what any reader of JSON can hold
NODES_MAX: Final = 1_000_000
SHARE_MAX: Final = 10_000
COUNT_DEFAULT: Final = 100

# Kinds of arguments: how a value is read, bounded and described.
REVISION: Final = "revision"
NAME: Final = "name"  # a text that must be given
TEXT: Final = "text"  # a text that may be empty
WHOLE: Final = "whole number"
SHARE: Final = "share"  # of 10,000
COUNT: Final = "count"
CHOICE: Final = "choice"
SECONDS: Final = "seconds"
FLAG: Final = "flag"  # true or false
CHANGES: Final = "changes"  # texts by file names; null deletes a file

# Places of arguments in a request.
PATH: Final = "path"
QUERY: Final = "query"
BODY: Final = "body"

# What must be as `If-Match` says before a change is made.
OF_LIVE: Final = "live"
OF_PROPOSAL: Final = "proposal"

REQUIRED: Final = inspect.Parameter.empty
NOBODY: Final = Identity("", ())

Answer = Mapping[str, Any]
_Method = TypeVar("_Method", bound=Callable[..., Any])


class Argument(NamedTuple):
    """How an argument is sent. `option` is a flag, or the name of a positional, of the verb."""

    kind: str
    sentence: str
    option: str = ""
    metavar: str = ""
    least: int = 0
    most: int = VERSION_MAX
    choices: tuple[str, ...] = ()
    bound: str = ""  # the setting of the door that bounds a text
    wire: str = ""  # its name in HTTP, if that is another
    default: object = REQUIRED  # where the caller sends nothing, if not the method's own default
    name: str = ""  # of the method's argument
    place: str = QUERY


class Operation(NamedTuple):
    """A row of the table. `result` is a schema of the OpenAPI document.

    `items` names the list in the response of an operation that returns one. `creates` returns a
    new thing with an address of its own, `delivers` changes what nodes run, and `waits` takes up to
    `timeout_s`.
    """

    name: str
    method: str
    path: str  # below /v1/rules
    grant: Grant
    summary: str
    arguments: tuple[Argument, ...]
    result: str
    items: str
    subject: tuple[str, ...]  # the arguments that the audit names
    condition: str
    creates: bool
    delivers: bool
    waits: bool
    verb: str

    @property
    def changes(self) -> bool:
        """Whether it changes something."""
        return self.method == "POST"

    def in_place(self, place: str) -> list[Argument]:
        """The arguments that are sent there."""
        return [argument for argument in self.arguments if argument.place == place]

    def subject_of(self, arguments: Mapping[str, Any]) -> str:
        """What a call is about, for the audit."""
        values = [arguments[name] for name in self.subject]
        return " ".join(
            ", ".join(value) if isinstance(value, Mapping) else str(value) for value in values
        )


OPERATIONS: Final[dict[str, Operation]] = {}


def _operation(
    route: str,
    grant: Grant = Grant.READ_RULES,
    *,
    result: str = "Done",
    items: str = "",
    subject: str = "",
    condition: str = "",
    creates: bool = False,
    delivers: bool = False,
    waits: bool = False,
    verb: str = "",
) -> Callable[[_Method], _Method]:
    """Enter a method in the table and pass its calls on to `call`; its own body never runs."""
    method, _, path = route.partition(" ")

    def enter(function: _Method) -> _Method:
        signature = inspect.signature(function)
        operation = OPERATIONS[function.__name__] = Operation(
            name=function.__name__,
            method=method,
            path=path,
            grant=grant,
            summary=(function.__doc__ or "").partition("\n")[0],
            arguments=tuple(_arguments(function, signature, method, path)),
            result=result,
            items=items,
            subject=tuple(subject.split()),
            condition=condition,
            creates=creates,
            delivers=delivers,
            waits=waits,
            verb=verb,
        )

        @wraps(function)
        def called(self: RuleAdmin, *values: Any, **named: Any) -> Any:
            bound = signature.bind(self, *values, **named)
            bound.apply_defaults()
            arguments = dict(bound.arguments)
            del arguments["self"]
            return self.call(operation, arguments, by=arguments.pop("by"))

        return cast("_Method", called)

    return enter


def _arguments(
    function: Callable[..., Any], signature: inspect.Signature, method: str, path: str
) -> list[Argument]:
    hints = get_type_hints(function, include_extras=True)
    found: list[Argument] = []
    for name, parameter in signature.parameters.items():
        if name in ("self", "by"):
            continue
        argument: Argument = hints[name].__metadata__[0]
        wire = argument.wire or name
        in_path = f"{{{wire}}}" in path or f"{{+{wire}}}" in path
        default = parameter.default if argument.default is REQUIRED else argument.default
        place = PATH if in_path else BODY if method == "POST" else QUERY
        found.append(argument._replace(name=name, wire=wire, default=default, place=place))
    return found


_AT: Final = Argument(
    REVISION, "live, the number of a release, or the id of a commit or a proposal."
)
_ID: Final = Argument(REVISION, "The proposal's id, or its beginning.", "ID")
_COUNT: Final = Argument(COUNT, "At most how many.", "--count", "N", least=1, wire="count")
_REASON: Final = Argument(
    TEXT, "Why; the audit keeps it.", "--reason", "WHY", bound="reason_bytes_max"
)
_FILES_NAME: Final = Argument(NAME, "The file.", bound="name_bytes_max")


class RuleAdmin:
    """What people and programs may do with a rulebook, wherever it is.

    `by` is who calls; a remote rulebook knows that from the token or the certificate.
    """

    __slots__ = ()

    def call(self, operation: Operation, arguments: Mapping[str, Any], *, by: Identity) -> Any:
        """Run one operation of the table; every method below leads here."""
        raise NotImplementedError

    # Read.

    @_operation("GET ", result="Rules", subject="at")
    def rules(self, at: Annotated[str, _AT] = LIVE_REVISION, *, by: Identity = NOBODY) -> Answer:
        """The rules at a revision.

        The commit, its release, and its files by name, format, rules and digest.
        """
        raise NotImplementedError

    @_operation("GET /files/{+name}", result="File", subject="name")
    def file(
        self,
        name: Annotated[str, _FILES_NAME],
        at: Annotated[str, _AT] = LIVE_REVISION,
        *,
        by: Identity = NOBODY,
    ) -> Answer:
        """One file, as text."""
        raise NotImplementedError

    @_operation("GET /diff", result="Diff", subject="before after", verb="diff")
    def diff(
        self,
        before: Annotated[
            str,
            Argument(REVISION, "The revision before.", "A", wire="from", default=LIVE_REVISION),
        ],
        after: Annotated[str, Argument(REVISION, "The revision after.", "B", wire="to")],
        *,
        by: Identity = NOBODY,
    ) -> Answer:
        """What changes between two revisions.

        Files by lines, and rules by their names.
        """
        raise NotImplementedError

    @_operation("GET /proposals", result="Proposals", items="proposals", subject="state")
    def proposals(
        self,
        state: Annotated[str, Argument(CHOICE, "Only these.", "--state", choices=STATES)] = "",
        *,
        count_max: Annotated[int, _COUNT] = COUNT_DEFAULT,
        by: Identity = NOBODY,
    ) -> Sequence[Answer]:
        """The latest proposals, newest first."""
        raise NotImplementedError

    @_operation("GET /proposals/{id}", result="Proposal", subject="id")
    def proposal(self, id: Annotated[str, _ID], *, by: Identity = NOBODY) -> Answer:  # noqa: A002
        """One proposal.

        Who, what, why, its state, its verdict, and its history.
        """
        raise NotImplementedError

    @_operation("GET /report/{id}", result="Report", subject="id")
    def report(self, id: Annotated[str, _ID], *, by: Identity = NOBODY) -> Answer:  # noqa: A002
        """The report behind a proposal's verdict, with all its numbers."""
        raise NotImplementedError

    @_operation("GET /versions", result="Versions", items="versions")
    def versions(
        self,
        *,
        count_max: Annotated[int, _COUNT] = COUNT_DEFAULT,
        before: Annotated[
            int, Argument(WHOLE, "Only releases before this one; 0: the latest.")
        ] = 0,
        by: Identity = NOBODY,
    ) -> Sequence[Answer]:
        """The latest releases, newest first."""
        raise NotImplementedError

    @_operation("GET /status", result="Status")
    def status(self, *, by: Identity = NOBODY) -> Answer:
        """What the fleet is to run, and what each node reports."""
        raise NotImplementedError

    @_operation("GET /wait", result="Waited", subject="version", waits=True)
    def wait(
        self,
        version: Annotated[int, Argument(WHOLE, "The number of the release.", least=1)],
        *,
        nodes: Annotated[
            int,
            Argument(WHOLE, "How many nodes must run it.", least=1, most=NODES_MAX, default=1),
        ],
        timeout_s: Annotated[float, Argument(SECONDS, "How long to wait at most.", default=None)],
        by: Identity = NOBODY,
    ) -> Answer:
        """Wait for nodes to run a release.

        The status; its field `reached` says whether that many nodes run it, or a later one.
        """
        raise NotImplementedError

    @_operation("GET /audit", result="Audit", items="audit", verb="audit")
    def audit(
        self, *, count_max: Annotated[int, _COUNT] = COUNT_DEFAULT, by: Identity = NOBODY
    ) -> Sequence[Answer]:
        """Who changed what, and who was refused.

        The latest calls that changed something or were refused, newest first.
        """
        raise NotImplementedError

    # Propose.

    @_operation(
        "POST /proposals",
        Grant.PROPOSE,
        result="Proposal",
        subject="changes",
        condition=OF_LIVE,
        creates=True,
    )
    def propose(
        self,
        changes: Annotated[
            Mapping[str, str | None],
            Argument(CHANGES, "The whole text of each file; null deletes it.", "PATH"),
        ],
        *,
        base: Annotated[
            str,
            Argument(
                REVISION, "The revision that the changes were made from.", "--base", "REVISION"
            ),
        ],
        message: Annotated[
            str,
            Argument(TEXT, "What it does, in a line.", "--message", bound="message_bytes_max"),
        ],
        reason: Annotated[str, _REASON] = "",
        confirm: Annotated[
            bool,
            Argument(FLAG, "Propose a limit that changes 10-fold or is removed.", "--confirm"),
        ] = False,
        by: Identity = NOBODY,
    ) -> Answer:
        """Propose changed files.

        They replace those at `base`. A `BadRules` says what is wrong with them, a `Conflict` that
        what they change has changed since. A `BadValue` of `confirm` names the rules whose limits
        change 10-fold or are removed. The gate judges the proposal at once where it has
        captured traffic.
        """
        raise NotImplementedError

    @_operation("POST /proposals/{id}/judge", Grant.PROPOSE, subject="id", condition=OF_PROPOSAL)
    def judge(self, id: Annotated[str, _ID], *, by: Identity = NOBODY) -> Answer:  # noqa: A002
        """Have the gate judge a proposal (again), on what has been captured by now."""
        raise NotImplementedError

    # Approve. Whoever may approve may not approve what they proposed, unless that is set.

    @_operation(
        "POST /proposals/{id}/approve",
        Grant.APPROVE,
        subject="id",
        condition=OF_PROPOSAL,
        verb="approve",
    )
    def approve(
        self,
        id: Annotated[str, _ID],  # noqa: A002
        *,
        override: Annotated[
            str,
            Argument(
                TEXT,
                "Why it may go live although the gate failed it, or could not judge it.",
                "--override",
                "WHY",
                bound="reason_bytes_max",
            ),
        ] = "",
        by: Identity = NOBODY,
    ) -> Answer:
        """Approve a proposal.

        One that the gate failed takes an override, by somebody other than whoever proposed it.
        """
        raise NotImplementedError

    @_operation(
        "POST /proposals/{id}/reject",
        Grant.APPROVE,
        subject="id",
        condition=OF_PROPOSAL,
        verb="reject",
    )
    def reject(
        self,
        id: Annotated[str, _ID],  # noqa: A002
        *,
        reason: Annotated[str, _REASON],
        by: Identity = NOBODY,
    ) -> Answer:
        """Turn a proposal down."""
        raise NotImplementedError

    @_operation(
        "POST /proposals/{id}/publish",
        Grant.APPROVE,
        subject="id",
        condition=OF_PROPOSAL,
        delivers=True,
        verb="publish",
    )
    def publish(self, id: Annotated[str, _ID], *, by: Identity = NOBODY) -> Answer:  # noqa: A002
        """Make an approved proposal live for everybody."""
        raise NotImplementedError

    @_operation(
        "POST /proposals/{id}/canary",
        Grant.APPROVE,
        subject="id share",
        condition=OF_PROPOSAL,
        delivers=True,
        verb="canary",
    )
    def canary(
        self,
        id: Annotated[str, _ID],  # noqa: A002
        *,
        share: Annotated[
            int,
            Argument(
                SHARE,
                "The share that runs it; the whole makes it live, 0 takes it back.",
                "--share",
                most=SHARE_MAX,
            ),
        ],
        kind: Annotated[
            str,
            Argument(
                CHOICE,
                "What it is a share of; callers, unless a canary is under way.",
                "--by",
                choices=(BY_CALLERS, BY_NODES),
                default=BY_CALLERS,
            ),
        ],
        by: Identity = NOBODY,
    ) -> Answer:
        """Run a proposal for a share of callers or nodes, or for a larger one."""
        raise NotImplementedError

    @_operation(
        "POST /rollback",
        Grant.APPROVE,
        subject="to",
        condition=OF_LIVE,
        delivers=True,
        verb="rollback",
    )
    def roll_back(
        self,
        to: Annotated[str, _AT._replace(option="REVISION")],
        *,
        reason: Annotated[str, _REASON],
        by: Identity = NOBODY,
    ) -> Answer:
        """Make earlier rules live again, as a new release."""
        raise NotImplementedError

    @_operation("POST /pins", Grant.APPROVE, subject="node version", delivers=True, verb="pin")
    def pin(
        self,
        node: Annotated[str, Argument(NAME, "The node.", "NODE", bound="name_bytes_max")],
        version: Annotated[int, Argument(WHOLE, "The release; 0 unpins the node.", "VERSION")],
        *,
        reason: Annotated[str, _REASON],
        by: Identity = NOBODY,
    ) -> Answer:
        """Have one node run a release, whatever is live."""
        raise NotImplementedError

    @_operation("POST /nodes/forget", Grant.APPROVE, subject="node", verb="forget")
    def forget(
        self,
        node: Annotated[str, Argument(NAME, "The node.", "NODE", bound="name_bytes_max")],
        *,
        reason: Annotated[str, _REASON],
        by: Identity = NOBODY,
    ) -> Answer:
        """Remove a node that is gone for good from the status."""
        raise NotImplementedError
