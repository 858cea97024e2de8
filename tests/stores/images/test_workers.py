"""Real worker processes: killed, hung, over their memory, replaced, and gone at the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.contracts.image import ImageErrorKind, ImageFailure, ImageLimits
from sluicegate.contracts.image_spec import parse_spec
from sluicegate.stores.images import process as worker_process
from sluicegate.stores.images.job_time import CpuTimes, counted_us
from sluicegate.stores.images.messages import (
    WorkerMessage,
    decode_head,
    described,
    job_of,
    processed,
    read_described,
    read_processed,
)
from sluicegate.stores.images.settings import ImageWorkerSettings
from sluicegate.stores.images.vips import describe_image, process_image, set_up
from sluicegate.stores.images.workers import ImageWorkers, open_image_workers
from tests.stores.images import pictures
from tests.stores.images.held_file import HeldFile

SPEC = parse_spec("w=60,format=webp")
JPEG = pictures.jpeg()


@cache
def deep() -> bytes:
    """A picture that takes long to decode, and to encode."""
    return pictures.encode(Image.effect_noise((2_200, 2_200), 60), "GIF")


@asynccontextmanager
async def opened(**settings: Any) -> AsyncIterator[ImageWorkers]:
    settings = {"read_paths": ("/",), **settings}  # tests hold a worker by a file that it reads
    workers = await open_image_workers(ImageWorkerSettings(**settings))
    try:
        yield workers
    finally:
        pids = workers.pids
        await workers.close()
        assert workers.pids == []
        assert not any(is_there(pid) for pid in pids)


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), 60))


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # gone before, or while it is read
        return False


def kill(pid: int, sent: signal.Signals) -> None:
    """Kill it, and hold the loop until it is gone, or the next one could read what this one did."""
    os.kill(pid, sent)
    # Its threads may hold its files a moment longer than the first of them is there.
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        while is_there(pid) or len(os.listdir(f"/proc/{pid}/task")) > 1:
            os.sched_yield()


@contextmanager
def starved(pid: int, *, idle: bool = True) -> Iterator[Callable[[], None]]:
    """Pin a worker to one processor that eight busy processes share, until it is relieved.

    Linux shares a processor between sessions before it looks at policies, so each has its own.
    """
    processors = os.sched_getaffinity(0)
    processor = max(processors)

    def schedule(policy: int, among: set[int]) -> None:
        for folder in Path("/proc", str(pid), "task").glob("*"):
            with contextlib.suppress(OSError):  # it has ended, or may not get more priority again
                os.sched_setaffinity(int(folder.name), among)
                os.sched_setscheduler(int(folder.name), policy, os.sched_param(0))

    schedule(os.SCHED_IDLE if idle else os.SCHED_OTHER, {processor})
    spin = f"import os; os.sched_setaffinity(0, [{processor}]); os.write(1, b'1')\nwhile 1: 0"
    command = [sys.executable, "-c", spin]
    others = [
        subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) for _ in range(8)
    ]
    for other in others:  # wait until they compete: starting takes a while
        assert other.stdout is not None
        other.stdout.read(1)

    def relieve() -> None:
        for other in others:
            other.kill()
            other.wait()
            if other.stdout is not None:
                other.stdout.close()
        schedule(os.SCHED_OTHER, processors)

    try:
        yield relieve
    finally:
        relieve()


def test_a_worker_makes_what_the_library_makes_of_bytes_and_of_a_file(tmp_path: Path) -> None:
    set_up()
    path = tmp_path / "original"
    path.write_bytes(JPEG)

    async def story() -> None:
        async with opened() as workers:
            expected = process_image(JPEG, SPEC, ImageLimits())
            assert await workers.process(JPEG, SPEC) == expected
            assert await workers.process(path, SPEC) == expected
            assert await workers.describe(path) == describe_image(JPEG, ImageLimits())
            assert workers.engine.startswith("vips-")
            many = await asyncio.gather(*(workers.process(JPEG, SPEC) for _ in range(30)))
            assert set(many) == {expected}
            assert workers.replaced == 0

    run(story)


def test_originals_of_every_size_are_handed_over_whole_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is small goes through memory that both have, in which the last one is still."""
    set_up()
    large, small = pictures.jpeg(width=900, height=700), pictures.jpeg(width=40, height=30)
    expected = {data: process_image(data, SPEC, ImageLimits()) for data in (large, small)}

    async def story() -> None:
        for most in (len(small), len(large)):
            monkeypatch.setattr(worker_process, "_SHARED_BYTES_MAX", most)
            async with opened(workers=1) as workers:
                for data in (large, small, large, small[:60], small):
                    if data in expected:
                        assert await workers.process(data, SPEC) == expected[data]
                    else:
                        with pytest.raises(ImageFailure):
                            await workers.process(data, SPEC)

    run(story)


def test_memory_that_a_worker_has_too_is_not_cut_under_the_service() -> None:
    file = worker_process._open_shared()
    assert file is not None
    try:
        for size in (0, 1 << 30):
            with pytest.raises(PermissionError):
                os.ftruncate(file, size)
    finally:
        os.close(file)


def test_a_worker_that_is_gone_leaves_no_open_file() -> None:
    async def story() -> None:
        async with opened(workers=1, jobs_max=1) as workers:
            await workers.process(JPEG, SPEC)
            await wait_until(lambda: workers.replaced == 1 and len(workers.pids) == 1)
            before = len(os.listdir("/proc/self/fd"))
            for _ in range(3):
                replaced = workers.replaced
                await workers.process(JPEG, SPEC)
                await wait_until(
                    lambda: workers.replaced > replaced and len(workers.pids) == 1  # noqa: B023
                )
            assert len(os.listdir("/proc/self/fd")) == before

    run(story)


def test_a_failure_is_the_images_and_the_worker_goes_on() -> None:
    async def story() -> None:
        async with opened(workers=1) as workers:
            pids = workers.pids
            for data, kind in (
                (JPEG[:200], "corrupt"),
                (b"<svg/>", "wrong_type"),
                (pictures.header_alone(50_000, 50_000), "too_large"),
            ):
                with pytest.raises(ImageFailure) as failed:
                    await workers.process(data, SPEC)
                assert failed.value.kind == kind
                with pytest.raises(ImageFailure):
                    await workers.describe(data)
            assert await workers.process(JPEG, SPEC)
            assert workers.pids == pids

    run(story)


def test_a_file_that_cannot_be_read_says_nothing_about_the_image(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(workers=1) as workers:
            with pytest.raises(Unavailable, match="No such file"):
                await workers.process(tmp_path / "nothing", SPEC)

    run(story)


def test_a_worker_that_is_killed_loses_no_job(tmp_path: Path) -> None:
    held = HeldFile(tmp_path / "held")

    async def story() -> None:
        async with opened(workers=1) as workers:
            (pid,) = workers.pids
            job = asyncio.create_task(workers.process(held.path, SPEC))
            await held.taken()
            others = [asyncio.create_task(workers.process(JPEG, SPEC)) for _ in range(5)]
            kill(pid, signal.SIGKILL)
            held.let_go()
            await held.taken()  # by the second attempt
            held.give(JPEG)
            expected = await job
            assert await asyncio.gather(*others) == [expected] * 5
            assert workers.pids != [pid]

    run(story)


@pytest.mark.parametrize(
    ("sent", "kind"), [(signal.SIGSEGV, "corrupt"), (signal.SIGKILL, "no_memory")]
)
def test_a_job_of_which_two_workers_die_fails_and_no_other_does(
    sent: signal.Signals, kind: str, tmp_path: Path
) -> None:
    held = HeldFile(tmp_path / "held")

    async def story() -> None:
        async with opened(workers=1) as workers:
            job = asyncio.create_task(workers.process(held.path, SPEC))
            other = asyncio.create_task(workers.process(JPEG, SPEC))
            for _ in range(2):
                await held.taken()
                (pid,) = workers.pids
                kill(pid, sent)
                held.let_go()
            with pytest.raises(ImageFailure, match=sent.name) as failed:
                await job
            assert failed.value.kind == kind
            assert (await other).width == 60
            assert workers.stats().ended == 2

    run(story)


def test_a_job_over_its_time_is_ended_with_its_process_and_the_next_one_runs(
    tmp_path: Path,
) -> None:
    held = HeldFile(tmp_path / "held")

    async def story() -> None:
        async with opened(workers=1, job_us=300_000) as workers:
            (pid,) = workers.pids
            job = asyncio.create_task(workers.process(held.path, SPEC))
            await held.taken()
            with pytest.raises(ImageFailure, match="job_us") as failed:
                await job
            assert failed.value.kind is ImageErrorKind.TIMEOUT
            assert not is_there(pid)
            assert (await workers.process(JPEG, SPEC)).width == 60
            assert workers.stats().ended == 1
            held.let_go()

    run(story)


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="Linux says who waits")
@pytest.mark.parametrize("starved_us_max", [60_000_000, 0])
def test_job_without_processor_does_not_blame_image(starved_us_max: int) -> None:
    """Others have the only processor of the worker for twice as long as the job may take."""
    job_us, data = 400_000, deep()

    async def story() -> None:
        loop = asyncio.get_running_loop()
        settings = {"job_us": job_us, "starved_us_max": starved_us_max}
        async with opened(workers=1, **settings) as workers:
            with starved(workers.pids[0]) as relieve:
                begun_s = loop.time()
                job = asyncio.create_task(workers.process(data, SPEC))
                await asyncio.wait([job], timeout=2 * job_us / 1e6)
                assert loop.time() - begun_s > job_us / 1e6, "nobody kept it from its processor"
                relieve()
                if starved_us_max:
                    assert (await job).width == 60
                else:  # the control: there is such a bound, and it blames no image
                    with pytest.raises(Unavailable, match="no processor"):
                        await job

    run(story)


def test_a_job_that_computes_too_long_is_ended_although_others_want_the_processor_too() -> None:
    async def story() -> None:
        async with opened(workers=1, job_us=100_000) as workers:
            with starved(workers.pids[0], idle=False):
                with pytest.raises(ImageFailure) as failed:
                    await workers.process(deep(), parse_spec("w=3000,enlarge=yes,format=avif"))
                assert failed.value.kind is ImageErrorKind.TIMEOUT

    run(story)


def test_what_counts_of_a_jobs_time_is_not_what_it_waited_nor_what_nobody_saw() -> None:
    none, second = CpuTimes(0, 0), 1_000_000
    assert counted_us(second, none, none, second) == second  # it sleeps
    assert counted_us(second, none, CpuTimes(second, 0), second) == second  # it computes
    assert counted_us(second, none, CpuTimes(100_000, 900_000), second) == 100_000
    assert counted_us(second, none, CpuTimes(100_000, 0, ready=True), second) == 100_000
    # Two threads that take turns wait all the time, and compute all the time.
    assert counted_us(second, none, CpuTimes(second, second, ready=True), second) == second
    assert counted_us(9 * second, none, none, second) == second  # this process slept itself
    assert counted_us(second, CpuTimes(5, 5), none, second) == second  # a thread has ended


def test_a_job_over_its_memory_fails_and_the_next_one_runs() -> None:
    large = pictures.encode(Image.new("L", (6_000, 6_000)), "GIF")  # its loader shrinks nothing

    async def story() -> None:
        async with opened(workers=1, memory_bytes_max=256 << 20) as workers:
            with pytest.raises(ImageFailure) as failed:
                await workers.process(large, SPEC)
            assert failed.value.kind is ImageErrorKind.NO_MEMORY
            assert (await workers.process(JPEG, SPEC)).width == 60
        # Control: it is the memory, and nothing else about this job.
        async with opened(workers=1) as workers:
            assert (await workers.process(large, SPEC)).width == 60

    run(story)


def test_the_line_has_its_bound_and_whoever_leaves_it_makes_room(tmp_path: Path) -> None:
    held = HeldFile(tmp_path / "held")

    async def story() -> None:
        async with opened(workers=1, queue_max=1) as workers:
            job = asyncio.create_task(workers.process(held.path, SPEC))
            await held.taken()
            leaver = asyncio.create_task(workers.process(JPEG, SPEC))
            await wait_until(lambda: workers.waiting == 1)
            with pytest.raises(Unavailable, match="queue_max"):
                await workers.process(JPEG, SPEC)
            leaver.cancel()
            await asyncio.wait([leaver])
            assert workers.waiting == 0
            next_one = asyncio.create_task(workers.process(JPEG, SPEC))
            await wait_until(lambda: workers.waiting == 1)
            held.give(JPEG)
            assert await job == await next_one

    run(story)


def test_a_caller_that_leaves_gives_its_place_back_when_the_job_ends(tmp_path: Path) -> None:
    held = HeldFile(tmp_path / "held")

    async def story() -> None:
        async with opened(workers=1) as workers:
            pids = workers.pids
            job = asyncio.create_task(workers.process(held.path, SPEC))
            await held.taken()
            job.cancel()
            await asyncio.wait([job])
            next_one = asyncio.create_task(workers.process(JPEG, SPEC))
            held.give(JPEG[:100])  # and its failure is nobody's
            assert (await next_one).width == 60
            assert workers.pids == pids

    run(story)


def test_a_waiting_caller_that_leaves_as_its_turn_comes_passes_the_turn_on(tmp_path: Path) -> None:
    held = HeldFile(tmp_path / "held")

    async def story() -> None:
        async with opened(workers=1) as workers:
            job = asyncio.create_task(workers.process(held.path, SPEC))
            await held.taken()
            leaver = asyncio.create_task(workers.process(JPEG, SPEC))
            stayer = asyncio.create_task(workers.process(JPEG, SPEC))
            await wait_until(lambda: workers.waiting == 2)
            held.give(JPEG)
            await wait_until(lambda: workers.waiting < 2)
            leaver.cancel()
            await asyncio.wait([leaver])
            assert (await stayer) == (await job)

    run(story)


def test_a_worker_is_replaced_after_so_many_jobs() -> None:
    async def story() -> None:
        async with opened(workers=1, jobs_max=3) as workers:
            (pid,) = workers.pids
            for _ in range(7):
                await workers.process(JPEG, SPEC)
            await wait_until(lambda: workers.replaced == 2)
            assert not is_there(pid)
            assert workers.stats().ended == 0

    run(story)


def test_closing_waits_for_what_runs_and_refuses_what_waits(tmp_path: Path) -> None:
    held = HeldFile(tmp_path / "held")

    async def story() -> None:
        async with opened(workers=1) as workers:
            job = asyncio.create_task(workers.process(held.path, SPEC))
            await held.taken()
            waiter = asyncio.create_task(workers.process(JPEG, SPEC))
            await wait_until(lambda: workers.waiting == 1)
            closing = asyncio.create_task(workers.close())
            with pytest.raises(Unavailable, match="closed"):
                await waiter
            held.give(JPEG)
            assert (await job).width == 60
            await closing
            with pytest.raises(Unavailable, match="closed"):
                await workers.process(JPEG, SPEC)

    run(story)


def test_closing_ends_a_job_that_does_not_end(tmp_path: Path) -> None:
    held = HeldFile(tmp_path / "held")

    async def story() -> None:
        async with opened(workers=1, close_us=10_000) as workers:
            job = asyncio.create_task(workers.process(held.path, SPEC))
            await held.taken()
            pids = workers.pids
            await workers.close()
            with pytest.raises(Unavailable, match="closed"):
                await job
            assert not any(is_there(pid) for pid in pids)
            held.let_go()

    run(story)


SERVICE = """
import asyncio, sys
from pathlib import Path
from sluicegate.contracts.image_spec import parse_spec
from sluicegate.stores.images.settings import ImageWorkerSettings
from sluicegate.stores.images.workers import open_image_workers

async def main():
    settings = ImageWorkerSettings(workers=2, close_us=100_000, read_paths=("/",))
    workers = await open_image_workers(settings)
    print(*workers.pids, flush=True)
    try:
        await workers.process(Path(sys.argv[1]), parse_spec("w=60"))
    finally:
        await workers.close()

asyncio.run(main())
"""


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_no_process_stays_when_the_service_ends(sent: signal.Signals, tmp_path: Path) -> None:
    held = HeldFile(tmp_path / "held")

    async def story() -> None:
        command = [sys.executable, "-c", textwrap.dedent(SERVICE), str(held.path)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as service:
            assert service.stdout is not None
            pids = [int(pid) for pid in service.stdout.readline().split()]
            assert len(pids) == 2
            assert all(is_there(pid) for pid in pids)
            await held.taken()  # one is idle, one is at work on what does not end
            service.send_signal(sent)
            await wait_until(lambda: not any(is_there(pid) for pid in pids))
            held.let_go()
            service.wait()

    run(story)


def test_a_decoder_is_told_no_secret_of_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICEGATE_TOKEN", "a secret")

    async def story() -> None:
        async with opened(workers=1) as workers:
            (pid,) = workers.pids
            environment = Path(f"/proc/{pid}/environ").read_bytes()
            assert b"VIPS_CONCURRENCY=1\0" in environment
            assert b"a secret" not in environment

    run(story)


IMPOSTOR = """
import os, struct, sys
sys.path.insert(0, sys.path[0])
def say(head, body=b""):
    os.write(1, struct.pack(">II", len(head), len(body)) + head + body)
say(b'{"engine":"impostor"}')
while os.read(0, 1 << 20):
    %s
"""


@pytest.mark.parametrize(
    "answer",
    [
        'say(b"no json")',
        'say(b"[]")',
        'say(b"{}")',
        'say(b"[" * 4_000)',
        'say(b"{\\"kind\\":\\"none\\"}")',
        'say(b"{\\"data_bytes\\":9,\\"media_type\\":\\"image/png\\",\\"width\\":1,\\"height\\":1}")',
        'say(b"{\\"data_bytes\\":0,\\"media_type\\":\\"text/html\\",\\"width\\":1,\\"height\\":1}")',
        'os.write(1, struct.pack(">II", 2, 1 << 31))',
        'os.write(1, struct.pack(">II", 1 << 31, 2))',
        "sys.exit(3)",
    ],
)
def test_a_worker_that_talks_nonsense_is_ended(
    answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "impostor.py").write_text(IMPOSTOR % answer, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(worker_process, "MODULE", "impostor")

    async def story() -> None:
        async with opened(workers=1) as workers:
            (pid,) = workers.pids
            # The good picture could not be made either, so this one is not to blame.
            with pytest.raises(Unavailable, match="a good picture either"):
                await workers.process(JPEG, SPEC)
            assert not is_there(pid)

    run(story)


def test_who_has_no_memory_left_is_asked_again_as_a_process_that_has_done_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = 'say(b"{\\"kind\\":\\"no_memory\\",\\"detail\\":\\"%d\\"}" % os.getpid())'
    (tmp_path / "impostor.py").write_text(IMPOSTOR.replace("%s", answer), encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(worker_process, "MODULE", "impostor")

    async def story() -> None:
        async with opened(workers=1) as workers:
            judges = []
            for _ in range(2):
                with pytest.raises(ImageFailure, match="no_memory") as failed:
                    await workers.process(JPEG, SPEC)
                judges.append(int(failed.value.detail))
                assert workers.pids == judges[-1:]
            assert judges[0] != judges[1]

    run(story)


def test_a_worker_that_does_not_start_is_said_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_process, "MODULE", "nothing_of_this_name")

    async def story() -> None:
        with pytest.raises(Unavailable, match="nothing_of_this_name"):
            await open_image_workers()

    run(story)


def test_what_is_written_is_read_again() -> None:
    set_up()
    made = process_image(JPEG, SPEC, ImageLimits())
    info = describe_image(JPEG, ImageLimits())
    assert read_processed(processed(made)) == made
    assert read_described(described(info)) == info
    assert job_of(Path("/x"), SPEC) == WorkerMessage({"spec": "w=60,format=webp", "path": "/x"})
    with pytest.raises(ValueError, match="object"):
        decode_head(b"[]")


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"workers": 0}, "images.workers"),
        ({"memory_bytes_max": 1}, "images.memory_bytes_max"),
        ({"limits": ImageLimits(result_side_max=20_000)}, "images.result_side_max"),
    ],
)
def test_a_setting_out_of_its_bounds_is_named(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(BadValue, match=field):
        ImageWorkerSettings(**settings)


async def wait_until(true: Callable[[], bool]) -> None:
    while not true():
        await asyncio.sleep(0.005)
