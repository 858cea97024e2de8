"""`sluicegate images` with the small processor of the tests, in a process of its own."""

from __future__ import annotations

import sys

from sluicegate.apps.images import processors
from sluicegate.apps.images.settings import ImagesSettings
from sluicegate.cli import main
from tests.apps.images.pictures import PillowProcessor


def open_processor(_settings: ImagesSettings) -> PillowProcessor:
    return PillowProcessor()


if __name__ == "__main__":
    processors.open_processor = open_processor  # type: ignore[assignment]
    sys.exit(main(["images", *sys.argv[1:]]))
