"""Spaces: kept apart, dropped whole, and used again."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

from sluicegate.contracts.engine import Change
from sluicegate.testing.engines.trial import EngineChecks, EngineTrial


class SpaceChecks(EngineChecks):
    """Stories of `drop`, and of names."""

    def test_spaces_of_names_alike_are_kept_apart(self) -> None:
        async def story(trial: EngineTrial) -> None:
            names = ("t", "t/", "t/1", "t-1", "t_1", "t.1", "0", "x" * 100)
            for name in names:
                await trial.write((b"p", b"s", name.encode()), name=name)
            for name in names:
                assert await trial.read((b"p", b"s"), name=name) == [name.encode()]
                assert len(await trial.walk(name=name)) == 1

        self.tell(story)

    def test_a_dropped_space_is_empty_and_the_others_are_not(self) -> None:
        async def story(trial: EngineTrial) -> None:
            for name in ("t", "other"):
                await trial.write(*((b"p%d" % n, b"%d" % n, b"v") for n in range(50)), name=name)
            await trial.drop()
            await trial.compare()
            assert await trial.walk() == []
            assert await trial.read((b"p1", b"1")) == [None]
            assert not (await trial.scan(b"p1")).rows
            assert len(await trial.walk(name="other")) == 50

        self.tell(story)

    def test_a_space_that_was_never_written_can_be_dropped_and_one_dropped_again(self) -> None:
        async def story(trial: EngineTrial) -> None:
            await trial.drop()
            await trial.write((b"p", b"", b"v"))
            await trial.drop()
            await trial.drop()
            assert await trial.walk() == []

        self.tell(story)

    def test_a_dropped_space_begins_anew(self) -> None:
        async def story(trial: EngineTrial) -> None:
            for turn in range(3):
                rows = [(b"p", b"%d-%d" % (turn, n), b"%d" % turn) for n in range(20)]
                await trial.write(*rows, (b"p", b"same", b"%d" % turn))
                assert len(await trial.walk()) == 21
                await trial.compare()
                await trial.drop()
                assert await trial.read((b"p", b"same")) == [None]
            assert await trial.swap(b"p", b"same", b"first", None)
            await trial.compare()

        self.tell(story)

    def test_a_large_space_is_dropped_at_once_for_whoever_reads(self) -> None:
        async def story(trial: EngineTrial) -> None:
            await trial.load([(b"p%d" % (n % 50), b"%06d" % n, b"v" * 50) for n in range(5_000)])
            await trial.drop()
            assert await trial.walk() == []
            await trial.write((b"p1", b"new", b"v"))
            await trial.compare()

        self.tell(story)

    def test_a_shard_is_told_for_any_partition_and_always_the_same(self) -> None:
        async def story(trial: EngineTrial) -> None:
            space = trial.space()
            await trial.change([Change(space, b"p", b"", b"v")])
            for partition in (b"p", b"\xff", b"q" * 240):
                shard = trial.engine.shard_of(space, partition)
                assert isinstance(shard, str)
                assert shard == trial.engine.shard_of(space, partition)

        self.tell(story)
