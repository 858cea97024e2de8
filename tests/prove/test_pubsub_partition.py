"""A cluster whose network falls apart for ten seconds: real nodes in network namespaces.

Needs the right to make them (root), and is skipped where that is missing.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.apps.pubsub.namespaces import CUT_S, OVER_S, WHOLE_S, L
from tests.prove.seeds import seeds

ISOLATED = ("unshare", "--net", "--pid", "--fork", "--mount-proc", "--kill-child")
SETTLED_S = 4.0


def may_isolate() -> bool:
    """Whether this machine lets us make namespaces and links."""
    words = [*ISOLATED, "ip", "link", "add", "type", "veth"]
    try:
        return subprocess.run(words, capture_output=True, timeout=20, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


@pytest.mark.prove
@pytest.mark.parametrize("seed", seeds(full=3, part=1))
def test_the_sides_of_a_divided_network_admit_the_limit_together(tmp_path: Path, seed: int) -> None:
    if not may_isolate():
        pytest.skip("network namespaces need rights that are missing here")
    words = [*ISOLATED, sys.executable, "-m", "tests.apps.pubsub.namespaces", str(tmp_path)]
    out = subprocess.run(words, capture_output=True, timeout=300, check=False)
    assert out.returncode == 0, out.stderr.decode()[-4_000:]
    found: dict[str, list[float]] = json.loads(out.stdout)

    def rate(begin_s: float, end_s: float) -> float:
        """What was admitted, in limits."""
        return sum(begin_s <= at < end_s for at in found["admitted"]) / L / (end_s - begin_s)

    spans = [rate(at / 10, at / 10 + 2) for at in range(60, int(OVER_S * 10) - 20)]
    assert 0.9 <= rate(CUT_S - 3, CUT_S) <= 1.1
    assert 0.6 <= rate(CUT_S + SETTLED_S, WHOLE_S) <= 1.1
    assert 0.9 <= rate(WHOLE_S + SETTLED_S, OVER_S) <= 1.1
    assert max(spans) <= 1.5
    assert len(found["failed"]) < 0.05 * len(found["refused"])
