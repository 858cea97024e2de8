"""Settings of the image workers: how many, and the bounds on each job."""

from __future__ import annotations

from dataclasses import dataclass, field

from sluicegate.contracts.image import ImageLimits
from sluicegate.stores.urls import bounded, check_bounds, check_numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageWorkerSettings:
    """How many processes decode, and what a job may take before it is ended."""

    workers: int = bounded(2, 1, 256)
    queue_max: int = bounded(64, 0, 100_000)  # jobs that wait for a worker; more are refused
    job_us: int = bounded(20_000_000, 10_000, 600_000_000)  # see `job_time`
    starved_us_max: int = bounded(60_000_000, 0, 600_000_000)  # for want of a processor, besides
    start_us: int = bounded(30_000_000, 100_000, 600_000_000)
    close_us: int = bounded(5_000_000, 0, 600_000_000)  # for the jobs that run when it closes
    memory_bytes_max: int = bounded(1 << 30, 256 << 20, 1 << 40)  # address space of a worker
    jobs_max: int = bounded(1_000, 1, 1_000_000)  # after which a worker is replaced
    attempts_max: int = bounded(2, 1, 5)  # workers that may die of one job
    answer_bytes_max: int = bounded(128 << 20, 1 << 16, 1 << 31)
    read_paths: tuple[str, ...] = ()  # folders of originals that are given by path
    limits: ImageLimits = field(default_factory=ImageLimits)

    def __post_init__(self) -> None:
        check_bounds(self, "images")
        bounds = {
            "source_bytes_max": (1, 1 << 31),
            "source_side_max": (1, 1 << 24),
            "source_pixels_max": (1, 1 << 40),
            "source_pages_max": (1, 1 << 20),
            "source_side_min": (1, 1 << 24),
            "result_side_max": (1, 16_383),
            "result_pixels_max": (1, 1 << 28),
            "animation_pixels_max": (1, 1 << 28),
        }
        check_numbers(self.limits, bounds, "images")
