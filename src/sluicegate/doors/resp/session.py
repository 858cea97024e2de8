"""Session: the state of a connection, what all of them share, and the commands that act on it.

A command is a row of a table: its name, how many words it takes, whether it may be sent before
AUTH, what runs it, a line about it, and where its keys are. A door is made with a table; the rows
about the connection itself (`connection_commands.CONNECTION`) are in every one. Plain values: no
bytes come or go here, and nothing is decided.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias, final

from sluicegate.contracts.access import Access, Identity
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import SluicegateError, Unauthenticated
from sluicegate.doors.connection_pace import is_over_quota
from sluicegate.doors.resp.errors import reply_to_error
from sluicegate.doors.resp.settings import RespSettings
from sluicegate.policies.quota.refusal_pace import RefusalPace

ANYBODY: Final = "default"  # the user of clients that know only a password


@final
class RespState:
    """What all connections of a door share: the service, its commands, and what is open.

    `service` is of the kind that the commands of `table` call; `table_state` is theirs.
    """

    __slots__ = (
        "access",
        "began_s",
        "clock",
        "commands",
        "connections",
        "now_s",
        "pace",
        "pending_bytes",
        "service",
        "sessions",
        "settings",
        "table",
        "table_state",
    )

    def __init__(
        self,
        service: Any,
        access: Access,
        settings: RespSettings,
        table: CommandTable,
        clock: Clock | None,
        pace: RefusalPace | None = None,
    ) -> None:
        self.service = service
        self.access = access
        self.settings = settings
        self.table = table
        self.clock = clock
        self.pace = pace  # of callers far over their quota; needs the clock
        self.table_state: Any = table.make_state(settings)
        self.sessions: dict[int, Session] = {}
        self.connections = 0  # ever made
        self.commands = 0  # ever run
        self.pending_bytes = 0  # of replies that are known, and wait for those before them
        self.began_s = 0.0  # the loop's time
        self.now_s = 0.0  # when a connection was last made or looked at


@final
class Transaction:
    """Commands between MULTI and EXEC, all of one partition; `aborted` if one was refused."""

    __slots__ = ("aborted", "commands", "partition", "size_bytes", "table")

    def __init__(self) -> None:
        self.commands: list[tuple[Command, list[bytes]]] = []
        self.size_bytes = 0
        self.table = ""
        self.partition = b""
        self.aborted = False


@final
class Session:
    """One connection: its identity, protocol, name, and the options of its calls."""

    __slots__ = (
        "arrived_us",
        "auth_failures",
        "began_s",
        "commands",
        "criticality",
        "ends",
        "id",
        "identity",
        "initial",
        "last",
        "library",
        "library_version",
        "name",
        "names",
        "peer",
        "protocol",
        "ready_us",
        "refused",
        "state",
        "strong",
        "timeout_us",
        "token",
        "traceparent",
        "transaction",
        "user",
        "watched",
    )

    def __init__(self, state: RespState, number: int, peer: str, names: Sequence[str] = ()) -> None:
        self.state = state
        self.id = number
        self.peer = peer
        self.names = names  # in its verified certificate
        self.initial = _initial_identity(state.access, names)  # what RESET goes back to
        self.identity = self.initial
        # What AUTH said, to ask again whose it is; "" before it. Never shown.
        self.user = ""
        self.token = ""
        self.protocol = 2
        self.name = ""
        self.library = ""
        self.library_version = ""
        self.last = ""  # the command that was run last
        self.commands = 0
        self.auth_failures = 0
        self.began_s = 0.0
        self.ends = False  # once all replies are out
        self.arrived_us = 0  # when what is run now was read; 0 where there is no clock
        self.refused = 0  # commands, for a quota that is spent, since its pace was looked at
        self.ready_us = 0  # and since when it waits for nobody before it on its connection
        # Of the commands that follow, where a table has rows to say it.
        self.timeout_us = 0  # from a command's arrival to its deadline; 0 is for ever
        self.criticality: Criticality | None = None
        self.strong = False
        self.traceparent = b""  # of the next command alone, where commands are traced
        # Where a table has transactions: what is queued, and what is watched until it is executed.
        self.transaction: Transaction | None = None
        self.watched: list[Any] = []

    def authenticate(self, user: str, token: str) -> bool:
        """Log in by a token of that user (`ANYBODY`: of anybody); whether it is one."""
        identity = _by_token(self.state.access, user, token)
        if identity is None:
            return False
        self.identity = identity
        self.user = user
        self.token = token
        return True

    def refuse(self, error: BaseException) -> bytes:
        """Return the reply to a command that failed with this; count what is over quota."""
        state = self.state
        pace, clock, identity = state.pace, state.clock, self.identity
        if pace is None or clock is None or identity is None or not is_over_quota(error):
            return reply_to_error(error)
        self.refused += 1
        return reply_to_error(error, pace.delay_us(identity.name, clock.now_us()))

    def log_out(self) -> None:
        """Return to the identity before any AUTH."""
        self.identity = self.initial
        self.user = self.token = ""

    def resolve(self) -> None:
        """Look the identity up again: a token or a name may be somebody else's now, or nobody's.

        After a void token there is no identity until the next AUTH, not the one before it.
        """
        access = self.state.access
        self.initial = _initial_identity(access, self.names)
        if self.token:
            self.identity = _by_token(access, self.user, self.token)
        else:
            self.identity = self.initial

    def clear_options(self) -> None:
        """Forget deadline, criticality and consistency of the calls that follow."""
        self.timeout_us = 0
        self.criticality = None
        self.strong = False
        self.traceparent = b""

    def end_transaction(self) -> None:
        """Forget what is queued and watched."""
        self.transaction = None
        self.watched = []


def _initial_identity(access: Access, names: Sequence[str]) -> Identity | None:
    """Return the identity of a certificate, or else the anonymous one."""
    found = access.by_certificate(names) if names else None
    return access.anonymous if found is None else found


def _by_token(access: Access, user: str, token: str) -> Identity | None:
    try:
        found = access.by_token(token)
    except SluicegateError:  # a signed token that is invalid
        return None
    return None if found is None or user not in (ANYBODY, found.name) else found


def identity_of(session: Session) -> Identity:
    """Return the caller of a command that needs one."""
    identity = session.identity
    if identity is None:
        raise Unauthenticated("send AUTH first")
    return identity


# One that comes later may be in pieces, which are put together when it leaves: a long value that
# many wait for is there once.
Reply: TypeAlias = "bytes | list[bytes]"
Run: TypeAlias = "Callable[[Session, list[bytes]], bytes | Awaitable[Reply]]"
# First key, last key (-1: the last word), and from one key to the next, as COMMAND tells it.
Keys: TypeAlias = "tuple[int, int, int]"

NO_KEYS: Final = (0, 0, 0)
ONE_KEY: Final = (1, 1, 1)
EACH_KEY: Final = (1, -1, 1)
PAIRS: Final = (1, -1, 2)

# What must be in order on one connection (`order`).
FREE: Final = 0  # nothing
READS: Final = 1  # its keys are read
WRITES: Final = 2  # its keys are written
SCANS: Final = 3  # anything may be read
LOADS: Final = 4  # anything may be written

_FLAGS: Final[dict[int, list[str]]] = {
    FREE: ["fast"],
    READS: ["readonly", "fast"],
    WRITES: ["write"],
    SCANS: ["readonly"],
    LOADS: ["write"],
}


@final
class Command:
    """One command. `most` 0 is any number of words; `plan` is how a transaction carries it out."""

    __slots__ = ("accesses", "keys", "least", "most", "name", "open", "plan", "run", "summary")

    def __init__(
        self,
        name: str,
        least: int,
        most: int,
        open_: bool,
        run: Run,
        summary: str,
        keys: Keys = NO_KEYS,
        accesses: int = FREE,
        plan: Callable[[Session, list[bytes]], Any] | None = None,
    ) -> None:
        self.name = name
        self.least = least
        self.most = most
        self.open = open_
        self.run = run
        self.summary = summary
        self.keys = keys
        self.accesses = accesses
        self.plan = plan

    def with_run(self, run: Run) -> Command:
        """The same command, run by something else."""
        return Command(
            self.name,
            self.least,
            self.most,
            self.open,
            run,
            self.summary,
            self.keys,
            self.accesses,
            self.plan,
        )

    def describe(self) -> list[object]:
        """Return the row of COMMAND INFO."""
        arity = self.least if self.least == self.most else -self.least
        first, last, step = self.keys
        flags = _FLAGS[self.accesses] if first or self.accesses != FREE else []
        return [self.name.lower(), arity, flags, first, last, step]


Enqueue: TypeAlias = "Callable[[Session, Command, list[bytes]], bytes | Awaitable[Reply]]"


@final
class CommandTable:
    """Commands by their names.

    `make_state` makes what the commands of one door keep among all connections. `normalize_key`
    returns the one spelling of a key, where there are several. `enqueue` takes the commands of a
    session with an open transaction, where the table has any.
    """

    __slots__ = (
        "by_name",
        "by_spelling",
        "enqueue",
        "make_state",
        "normalize_key",
        "ordered",
        "rows",
    )

    def __init__(
        self,
        rows: Sequence[Command],
        make_state: Callable[[RespSettings], Any],
        normalize_key: Callable[[bytes], bytes] = bytes,
        enqueue: Enqueue | None = None,
    ) -> None:
        self.rows = list(rows)
        self.make_state = make_state
        self.normalize_key = normalize_key
        self.enqueue = enqueue
        self.by_name: dict[bytes, Command] = {row.name.encode(): row for row in rows}
        # As most clients write it; any other case is found by a second look.
        self.by_spelling: dict[bytes, Command] = self.by_name | {
            name.lower(): row for name, row in self.by_name.items()
        }
        # Whether any of them must wait for those before it on its connection.
        self.ordered = any(row.accesses != FREE for row in rows)

    def with_rows(self, wrap: Callable[[Command], Command]) -> CommandTable:
        """The same table, each row as `wrap` returns it."""
        rows = [wrap(row) for row in self.rows]
        return CommandTable(rows, self.make_state, self.normalize_key, self.enqueue)

    def find(self, word: bytes) -> Command | None:
        """Return the command of that name, in any case."""
        row = self.by_spelling.get(word)
        return self.by_name.get(word.upper()) if row is None else row
