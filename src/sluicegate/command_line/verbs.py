"""Verbs: how a command adds one of its own, so that all of them describe themselves alike."""

from __future__ import annotations

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from typing import Any


def add_verb(verbs: Any, name: str, purpose: str, examples: str) -> ArgumentParser:
    """Add a verb to the subparsers of a command, and return its parser."""
    parser: ArgumentParser = verbs.add_parser(
        name,
        help=purpose,
        description=f"{purpose[0].upper()}{purpose[1:]}.",
        epilog=examples,
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    return parser
