"""A cache folder is whole or it is fetched again, and two processes do not fetch at the same time.

One small jar stands for them all; that the servers' own jars come is shown by their tests.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.engines import maven
from tests.engines.maven import FetchError, Jars
from tests.engines.need import JAVA_APT, Java, Program, engine

pytestmark = pytest.mark.engine

SMALL = Jars("small", "1.7.36", ("org.slf4j:slf4j-api:1.7.36",))
FETCH_SMALL = "from tests.engines.test_maven import SMALL; SMALL.fetch(print)"


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    engine("maven", [Program("mvn", JAVA_APT), Java(8)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(maven.HOME, str(tmp_path_factory.mktemp("engines")))
        engine("maven", [SMALL])
        yield


@pytest.fixture
def messages() -> list[str]:
    return []


def test_a_whole_folder_is_not_fetched_again(messages: list[str]) -> None:
    SMALL.fetch(messages.append)
    assert messages == [f"small 1.7.36: here already, {SMALL.folder}"]
    assert SMALL.jar("slf4j-api").name == "slf4j-api-1.7.36.jar"


def test_what_was_lost_or_left_half_is_fetched_again(messages: list[str]) -> None:
    jar = SMALL.jar("slf4j-api")
    size = jar.stat().st_size
    jar.write_bytes(b"half")
    SMALL.fetch(messages.append)
    assert jar.stat().st_size == size
    assert len(messages) == 2


def test_two_processes_fetch_once_between_them(messages: list[str]) -> None:
    (SMALL.folder / "complete.json").unlink()
    command = [sys.executable, "-c", FETCH_SMALL]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    output = "".join(process.communicate(timeout=120)[0] for process in both)
    assert [process.returncode for process in both] == [0, 0]
    assert output.count("fetching org.slf4j:slf4j-api:1.7.36") == 1
    SMALL.fetch(messages.append)
    assert "here already" in messages[0]


def test_what_maven_cannot_find_is_told_in_one_line() -> None:
    none = Jars("none", "0", ("org.slf4j:slf4j-api:0.0.0-none",))
    with pytest.raises(FetchError) as failure:
        none.fetch()
    assert "mvn could not bring none 0: " in str(failure.value)
    assert "\n" not in str(failure.value)
    assert "slf4j-api:jar:0.0.0-none" in str(failure.value)
