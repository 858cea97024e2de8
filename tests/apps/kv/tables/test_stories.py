"""Random stories of three dispatchers, each as far behind as may be, on one engine.

The model is a dictionary with a history: what each place held, and what an upload put there. While
an upload is on its way, a place that it has may show what it was before or what came of it; a write
that was acknowledged after the upload was first seen anywhere may never be hidden again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate.apps.kv.tables.catalogue_copies import CATALOGUE_PLACE, CATALOGUE_SPACE
from sluicegate.apps.kv.tables.catalogue_state import parse_catalogue
from sluicegate.apps.kv.tables.settings import TableSettings
from sluicegate.contracts.engine import KeyRange
from sluicegate.contracts.errors import Unavailable
from sluicegate.contracts.key_values import Write, WriteCondition, tag_of
from sluicegate.testing import HandClock
from sluicegate.wire.row_stream import StreamRow
from tests.apps.kv.tables.dispatchers import Crashing, Node, memory
from tests.apps.kv.tables.test_uploads import commit, loaded

SETTINGS = TableSettings(
    stale_us=6, write_timeout_us=1, fold_rows=2, fold_at_once=2, commit_wait_us=1, lease_us=1
)
SORTS = [b"%d" % at for at in range(6)]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["put", "delete", "remove", "swap", "check", "keep", "keep", "pass", "pass", "look"]
        ),
        st.integers(0, 2),
        st.sampled_from(SORTS),
    ),
    max_size=80,
)


@given(STEPS, st.booleans(), st.sampled_from(["merge", "replace"]), st.sets(st.sampled_from(SORTS)))
@settings(max_examples=80)
def test_nothing_acknowledged_is_lost_and_nothing_is_half_visible(
    steps: list[tuple[str, int, bytes]], later: bool, mode: str, uploaded: set[bytes]
) -> None:
    first, second, third = asyncio.run(story(steps, later, mode, uploaded))
    assert first == second == third


async def story(
    steps: list[tuple[str, int, bytes]], later: bool, mode: str, uploaded: set[bytes]
) -> list[dict[bytes, bytes]]:
    """Check what is visible at each step; return what each dispatcher shows in the end."""
    engine, clock = Crashing(memory(), later=later), HandClock()
    nodes = [Node(engine, clock, SETTINGS, holder=str(at)) for at in range(3)]
    model: dict[bytes, bytes] = {b"1": b"old", b"5": b"old"}
    for sort, value in model.items():
        await nodes[0].tables.write("t", [Write(b"p", sort, value)], clock.now_us())
    part = [StreamRow(b"p", sort, b"up" + sort) for sort in sorted(uploaded)]
    upload = {row.sort: row.value for row in part}
    await loaded(nodes[0], mode, [part])
    with suppress(Unavailable):  # it is sealing; the stories move it on
        await commit(nodes[0], [part])

    # `model` is what those see who do not see the upload; `over` what those do who do.
    touched: dict[bytes, bytes | None] = {}  # by writes that the upload cannot hide
    is_visible = False
    for count, (what, at, sort) in enumerate(steps):
        node = nodes[at]
        value = b"%d" % count
        before = await visible(node)
        (book,) = engine.inner.read(CATALOGUE_SPACE, [CATALOGUE_PLACE])  # type: ignore[misc]
        is_visible = is_visible or parse_catalogue(book).tables["t"].phase != "sealing"
        if what in ("put", "delete", "remove"):
            new = value if what == "put" else None
            if what == "remove":
                removed = await node.tables.remove("t", [(b"p", sort)], clock.now_us())
                assert removed == (sort in before)
            else:
                await node.tables.write("t", [Write(b"p", sort, new)], clock.now_us())
            after = await visible(node)
            assert after.get(sort) == new  # its own write, at once
            assert {**before, sort: None} == {**after, sort: None}
            if what != "remove" or sort in before:
                note(model, touched, sort, new, is_visible)
        elif what == "swap":
            there = before.get(sort)
            condition = (
                WriteCondition(absent=True) if there is None else WriteCondition(tag=tag_of(there))
            )
            result = await node.tables.write_if(
                "t", Write(b"p", sort, value), condition, clock.now_us()
            )
            assert result.done
            assert (await visible(node)).get(sort) == value
            note(model, touched, sort, value, is_visible)
        elif what == "check":
            check(before, model, upload, touched, mode, is_visible)
        elif what == "keep":
            await node.keeper.step()
        elif what == "look":
            await node.catalogue.refresh()
        else:
            clock.advance(us=5)
    await nodes[1].until_normal("t")
    final = await visible(nodes[1])
    check(final, model, upload, touched, mode, is_visible=True, whole=True)
    for node in nodes:
        await node.catalogue.refresh()
    return [await visible(node) for node in nodes]


def note(
    model: dict[bytes, bytes],
    touched: dict[bytes, bytes | None],
    sort: bytes,
    value: bytes | None,
    is_visible: bool,
) -> None:
    if value is None:
        model.pop(sort, None)
    else:
        model[sort] = value
    if is_visible:
        touched[sort] = value


def check(
    values: dict[bytes, bytes],
    model: dict[bytes, bytes],
    upload: dict[bytes, bytes],
    touched: dict[bytes, bytes | None],
    mode: str,
    is_visible: bool,
    whole: bool = False,
) -> None:
    """Whoever looks sees all of the upload or none, and every write since it could be seen."""
    for sort, value in touched.items():
        assert values.get(sort) == value
    untouched = [sort for sort in SORTS if sort not in touched]
    without = {sort: model.get(sort) for sort in untouched}
    now = {sort: values.get(sort) for sort in untouched}
    if not whole and now == without:
        return
    assert is_visible
    for sort, value in now.items():
        if value is not None and value == model.get(sort) and value != b"old":
            continue  # a live write while it was sealing: before the upload, or after it
        base = model.get(sort) if mode == "merge" else None
        if sort not in upload and mode == "replace" and value is None:
            continue
        deleted_meanwhile = value is None and sort not in model
        assert value == upload.get(sort, base) or deleted_meanwhile


async def visible(node: Node) -> dict[bytes, bytes]:
    now_us = node.clock.now_us()
    page = await node.tables.scan("t", b"p", KeyRange(), now_us)
    values = {row.sort: row.value for row in page.rows}
    each = node.tables.read("t", [(b"p", sort) for sort in SORTS], now_us)
    rows = await each if isinstance(each, Awaitable) else each
    assert {row.sort: row.value for row in rows if row is not None} == values
    return values
