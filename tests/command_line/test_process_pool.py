from __future__ import annotations

import os
import signal

import pytest

from sluicegate.command_line.process_pool import process_pool
from tests.engines.child import until


def pid() -> int:
    return os.getpid()


def is_there(child: int) -> bool:
    try:
        os.kill(child, 0)
    except ProcessLookupError:
        return False
    return True


def ignores_ctrl_c() -> bool:
    return signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_children_work_and_are_gone_afterwards() -> None:
    with process_pool(1) as pool:
        child = pool.submit(pid).result()
        assert child != os.getpid()
        assert pool.submit(ignores_ctrl_c).result()
    until(lambda: not is_there(child), "its end")


def test_children_do_not_outlive_an_error() -> None:
    children: list[int] = []

    def story() -> None:
        with process_pool(1) as pool:
            children.append(pool.submit(pid).result())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        story()
    until(lambda: not is_there(children[0]), "its end")
