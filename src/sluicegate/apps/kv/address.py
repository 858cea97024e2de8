"""Address: which dispatcher the verbs of `sluicegate kv` call, and with which token."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Final

from sluicegate.apps.kv.settings import LISTEN_DEFAULT
from sluicegate.command_line import service_client

AT_DEFAULT: Final = f"http://{LISTEN_DEFAULT}"


def add_address_flags(parser: ArgumentParser, grant: str) -> None:
    """Add the flags of an address; `grant` is what the token must have."""
    service_client.add_address_flags(parser, AT_DEFAULT, grant, "--at", "--url")


def address_of(arguments: Namespace) -> service_client.ServiceAddress:
    """What they say."""
    return service_client.address_from(arguments.at, arguments, flag="--at", example=AT_DEFAULT)


def dispatcher_at(url: str) -> str:
    """What errors call a dispatcher."""
    return f"the dispatcher at {url}"
