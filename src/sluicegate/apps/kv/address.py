"""Where: which dispatcher the verbs of `sluicegate kv` speak to, and who asks."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Final

from sluicegate.apps.kv.settings import LISTEN_DEFAULT
from sluicegate.command_line import service_client as asking

AT_DEFAULT: Final = f"http://{LISTEN_DEFAULT}"


def add_where(parser: ArgumentParser, grant: str) -> None:
    """The flags that say it; `grant` is what the token must have."""
    asking.add_where(parser, AT_DEFAULT, grant, "--at", "--url")


def where_of(arguments: Namespace) -> asking.Where:
    """What they say."""
    return asking.where_said(arguments.at, arguments, flag="--at", example=AT_DEFAULT)


def dispatcher_at(url: str) -> str:
    """What errors call a dispatcher."""
    return f"the dispatcher at {url}"
