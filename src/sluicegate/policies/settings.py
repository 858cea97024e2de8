"""Settings: the checks that the settings of all policies share.

A wrong setting is refused where it is made, by its field with the policy's name in front, with the
value, and with what would be right.
"""

from __future__ import annotations

from sluicegate.contracts.errors import BadValue


def within(field: str, value: int, least: int, most: int) -> None:
    """Refuse a value that is not from `least` to `most`."""
    if not least <= value <= most:
        raise BadValue(field, value, f"give a number from {least:,} to {most:,}")


def wrong_setting(policy: str, error: ValueError) -> BadValue:
    """A kernel's complaint about a setting, with the path of the field in front."""
    field, _, remedy = str(error).partition(" must be ")
    return BadValue(f"{policy}.{field}", remedy.rpartition("not ")[2], f"it must be {remedy}")
