"""`python -m tests.site.terminal FILE [RECORDING]`: `sluicegate top` beside `up`, as SVG.

It starts both, waits until the demo has been through its scenes (a minute and a half, on a machine
that has nothing else to do) and draws a picture of each. A RECORDING is what `sluicegate top
--plain` has printed; with one nothing is started.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from sluicegate.command_line.charts import Picture
from tests.site.svg_file import STYLE, svg_file

COMMAND: Final = (sys.executable, "-m", "sluicegate.cli")
# The scenes of the demo that are shown, by what the first line says.
SCENES: Final = (
    re.compile(r"CALM: All is calm: [1-9]\d+/s admitted, [1-9]"),
    re.compile(r"DEFENDING: nightly asks for more than its quota"),
    re.compile(r"DEFENDING: The backend is slow"),
)
SETTLED: Final = 6  # seconds into a scene, of which each shows one picture
TITLE: Final = "sluicegate top, in three scenes of sluicegate up"
COLUMN: Final = 7.85  # a letter of the face that most screens have
LINE_TALL: Final = 18
EDGE: Final = 20
SHOWN_S: Final = 5
TERMINAL_STYLE: Final = (
    STYLE
    + f"""\
text {{ font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }}
g.frame {{ animation: frame {SHOWN_S * len(SCENES)}s step-end infinite; visibility: hidden; }}
@keyframes frame {{ 0% {{ visibility: visible; }}
  {100 / len(SCENES):.2f}% {{ visibility: hidden; }} }}
"""
    + "".join(
        f"g.frame.at{at} {{ animation-delay: {SHOWN_S * at}s; }}\n" for at in range(len(SCENES))
    )
    + "@media (prefers-reduced-motion: reduce) { g.frame { animation: none; }\n"
    "  g.frame.at1 { visibility: visible; } }\n"
)


def scenes_of(printed: Iterable[str]) -> list[list[str]]:
    """Of each scene one picture, once it has settled; until there is one of each."""
    found: list[list[str]] = []
    into = 0
    lines: list[str] = []
    for line in printed:
        if re.match(r"[A-Z]+: ", line):
            if lines and SCENES[len(found)].match(lines[0]):
                into += 1
                if into == SETTLED:
                    found.append(_trimmed(lines))
                    into = 0
                    if len(found) == len(SCENES):
                        return found
            lines = []
        lines.append(line.rstrip())
    raise ValueError(f"only {len(found)} of {len(SCENES)} scenes were there")


def draw(frames: Sequence[Sequence[str]]) -> str:
    """Return the file: the pictures one after the other, or the second for who wants no motion."""
    columns = max(len(line) for frame in frames for line in frame)
    tall = max(map(len, frames)) + 2
    picture = Picture(TITLE, int(2 * EDGE + COLUMN * columns), 2 * EDGE + LINE_TALL * tall)
    picture.text("quiet", EDGE, EDGE + 12, "$ sluicegate top")
    for at, frame in enumerate(frames):
        picture.begin(f"frame at{at}", frame[0], [])
        for number, line in enumerate(frame):
            y = EDGE + 12 + LINE_TALL * (number + 2)
            kind = "name " + ("c" if line.startswith("CALM") else "b") if number == 0 else "row"
            # Cells are placed one by one: in letters of another width they still stand in columns.
            for cell in re.finditer(r"\S+(?: \S+)*", line):
                picture.text(kind, EDGE + COLUMN * cell.start(), y, cell[0])
        picture.end()
    words = " ".join(frame[0].partition(": ")[2] for frame in frames)
    return svg_file(picture.render(), f"What it says in each: {words}", TERMINAL_STYLE)


def record() -> list[list[str]]:
    """Start both, and wait for the scenes."""
    up = subprocess.Popen((*COMMAND, "up"), stdout=subprocess.PIPE, text=True)
    with up:
        assert up.stdout is not None
        try:
            next(line for line in up.stdout if re.search(r"open http:\S+", line))
            top = subprocess.Popen((*COMMAND, "top", "--plain"), stdout=subprocess.PIPE, text=True)
            with top:
                assert top.stdout is not None
                try:
                    return scenes_of(top.stdout)
                finally:
                    top.terminate()
        finally:
            up.terminate()
            up.communicate()


def _trimmed(lines: list[str]) -> list[str]:
    end = max(at for at, line in enumerate(lines) if line)
    return lines[: end + 1]


if __name__ == "__main__":
    given = Path(sys.argv[2]).read_text(encoding="utf-8").splitlines() if sys.argv[2:] else None
    pictures = record() if given is None else scenes_of(given)
    Path(sys.argv[1]).write_text(draw(pictures), encoding="utf-8")
