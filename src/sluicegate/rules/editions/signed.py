"""Signed: editions and orders together with the bytes that prove who gave them.

Whoever keeps or passes on an edition or orders keeps the signed bytes, so that everybody can verify
them again: a node at its next start, or another node.
"""

from __future__ import annotations

from typing import NamedTuple

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rulebook import Edition, Orders
from sluicegate.rules.editions.documents import (
    edition_bytes,
    orders_bytes,
    read_edition,
    read_orders,
)
from sluicegate.rules.editions.signing import EDITION, ORDERS, Signer, Verifier


class SignedEdition(NamedTuple):
    """An edition, and the envelope it came in."""

    edition: Edition
    signed: bytes


class SignedOrders(NamedTuple):
    """Orders, and the envelope they came in."""

    orders: Orders
    signed: bytes


def sign_edition(edition: Edition, signer: Signer) -> SignedEdition:
    """Sign an edition; `BadValue` names what it may not be."""
    return SignedEdition(edition, signer.sign(EDITION, edition_bytes(edition)))


def sign_orders(orders: Orders, signer: Signer) -> SignedOrders:
    """Sign orders; `BadValue` names what they may not be."""
    return SignedOrders(orders, signer.sign(ORDERS, orders_bytes(orders)))


def open_edition(signed: bytes, verifier: Verifier, *, version: int | None = None) -> SignedEdition:
    """Verify a signed edition; where a version was asked for, it must be that one."""
    edition = read_edition(verifier.open(EDITION, signed))
    if version is not None and edition.version != version:
        remedy = f"it was asked for as edition {version}; put each under its own version"
        raise BadValue("edition.version", edition.version, remedy)
    return SignedEdition(edition, signed)


def open_orders(signed: bytes, verifier: Verifier, *, number: int | None = None) -> SignedOrders:
    """Verify signed orders; where a number was asked for, they must have that one."""
    orders = read_orders(verifier.open(ORDERS, signed))
    if number is not None and orders.number != number:
        remedy = f"they were asked for as orders {number}; put each under its own number"
        raise BadValue("orders.number", orders.number, remedy)
    return SignedOrders(orders, signed)
