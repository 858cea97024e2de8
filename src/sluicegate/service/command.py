"""Command: what every command that serves does with its flags before anything heavy is imported."""

from __future__ import annotations

import base64
import logging
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from sluicegate.policies.access import token_digest
from sluicegate.service.common_settings import ServiceSettings
from sluicegate.service.file_modes import FileModes, GuardedFile
from sluicegate.service.settings import Effective, add_flags, read_settings

TOKEN_BYTES: Final = 32
LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"

S = TypeVar("S", bound=ServiceSettings)
_modes: Final = FileModes()


def add_service_flags(parser: ArgumentParser, settings: type[ServiceSettings]) -> None:
    """Add the flags of a service: one a setting, and those that print and end."""
    add_flags(parser, settings)
    parser.add_argument(
        "--new-token", action="store_true", help="make a token and its digest, print both, and exit"
    )


def settings_to_serve(
    settings: type[S], arguments: Namespace, environment: Mapping[str, str] | None = None
) -> S | None:
    """The settings in effect, with logging set up; None where the flags ask to print and end."""
    if arguments.new_token:
        _print_new_token()
        return None
    return begin(arguments, read_settings(settings, arguments, environment))


def reader_of(
    settings: type[S], arguments: Namespace, environment: Mapping[str, str] | None = None
) -> Callable[[], S]:
    """What reads the settings once more, as a reload does."""

    def read() -> S:
        effective = read_settings(settings, arguments, environment)
        _check_modes(effective)
        return effective.settings

    return read


def begin(arguments: Namespace, effective: Effective[S]) -> S | None:
    """Set up logging and return the settings; or print them, if that is asked, and return None."""
    if arguments.print_config:
        sys.stdout.write("\n".join([*effective.lines(), ""]))
        return None
    logging.basicConfig(level=effective.settings.log.upper(), format=LOG_FORMAT)
    _check_modes(effective)
    return effective.settings


def _check_modes(effective: Effective[S]) -> None:
    """Warn of a settings file that holds a secret and is open to other users."""
    _modes.check(GuardedFile("--config", path, True) for path in effective.secret_files())


def new_token() -> str:
    """Return a token that nobody can guess, and that no command takes for a flag."""
    while True:
        token = base64.urlsafe_b64encode(os.urandom(TOKEN_BYTES)).decode().rstrip("=")
        if not token.startswith("-"):
            return token


def _print_new_token() -> None:
    token = new_token()
    sys.stdout.write(
        f"the token, for the caller alone:  {token}\n"
        "and for the file of --access:\n\n"
        '[[callers]]\nname = "..."\n'
        f'token_sha256 = "{token_digest(token)}"\n'
        'grants = ["check"]\n'
    )
