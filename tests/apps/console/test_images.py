"""The page of images: ratios of the three maps, work, failures by kind, what is stored."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from sluicegate.apps.console.pages.images import images
from sluicegate.apps.console.sentence import Urgency, sentence_of
from tests.apps.console.process import HOSTILE, ConsoleProcess
from tests.apps.console.states import SECOND_US, START_US, looked, pictured
from tests.apps.images.origin_server import Page
from tests.apps.images.pictures import picture
from tests.apps.images.process import ImagesProcess, origin_in_thread
from tests.engines.child import until


def service(at_s: float = 0.0, **counts: int) -> dict[str, Any]:
    """A service's state; `counts` are of its pipeline, its queue, its workers."""
    names = (
        "requests", "fresh", "downloads", "uploads", "duplicates", "variant_hits", "processed",
        "process_us", "saved_bytes", "saved_us",
    )  # fmt: skip
    pipeline: dict[str, Any] = {name: counts.get(name, 0) for name in names}
    pipeline["failed"] = {"not_found": counts.get("not_found", 0), "timeout": 0}
    queue = ("inflight", "places", "queued", "refused")
    return {
        "app": "images",
        "at_us": START_US + round(at_s * SECOND_US),
        "pipeline": pipeline,
        "queue": {name: counts.get(name, 0) for name in queue},
        "workers": {"alive": counts.get("alive", 2), "workers": 2, "replaced": 0},
        "storage": dict.fromkeys(("downloaded_bytes", "written_bytes", "damaged"), 0),
        "hot": {"hits": counts.get("hits", 0), "bytes": 0},
        "origins": {},
    }


def test_each_map_says_what_is_found_now_and_since_the_start() -> None:
    before = service(requests=100, fresh=10, variant_hits=10, processed=90)
    after = service(2.0, requests=120, fresh=28, variant_hits=25, processed=95, process_us=50_000)
    (one,) = pictured(looked(before, after)).images
    url, content, variant = one.maps
    assert (url.asked, url.ratio, url.ratio_ever) == (10, 0.9, 28 / 120)
    assert (content.asked, content.ratio, content.ratio_ever) == (0, None, None)
    assert (variant.asked, variant.ratio, variant.ratio_ever) == (10, 0.75, 25 / 120)
    assert one.process_us == 10_000
    assert one.failures == ()


def test_a_failure_is_shown_with_its_kind_and_one_that_never_was_is_not() -> None:
    after = service(1.0, not_found=3)
    (one,) = pictured(looked(service(), after)).images
    assert [(each.kind, each.rate, each.ever) for each in one.failures] == [("not_found", 3.0, 3)]
    page = images(pictured(looked(service(), after)))["failures"]
    assert "not found" in page
    assert "timeout" not in page


@pytest.mark.parametrize(
    ("counts", "urgency"),
    [
        ({"alive": 0, "queued": 3}, Urgency.ALARM),
        ({"alive": 0}, Urgency.CALM),  # one is being replaced, and nobody waits for it
        ({"queued": 3}, Urgency.CALM),
    ],
)
def test_no_worker_is_an_alarm_where_work_waits(counts: dict[str, int], urgency: Urgency) -> None:
    sentence = sentence_of(pictured(looked(None, service(**counts))))
    assert sentence.urgency is urgency
    assert (sentence.page == "images") is (urgency is Urgency.ALARM)


def test_images_alone_are_somebody_who_asks() -> None:
    shown = pictured(looked(service(), service(1.0, hits=20, requests=3)))
    assert sentence_of(shown).words == "All is calm: images are asked for at 23/s."


def test_a_service_of_images_is_a_node_with_what_it_answers_and_refuses() -> None:
    shown = pictured(looked(service(), service(2.0, hits=40, requests=10, refused=4)))
    assert [(node.admitted, node.refused) for node in shown.nodes] == [(23.0, 2.0)]


def test_an_origin_that_fails_is_named_as_text() -> None:
    state = service(1.0)
    state["origins"] = {HOSTILE: "open", "well:80": "closed"}
    shown = pictured(looked(None, state, HOSTILE))
    assert sentence_of(shown).words.startswith(f"The origin {HOSTILE} fails")
    page = "".join(images(shown).values())
    assert "<script" not in page
    assert "well:80" not in page


def test_a_service_of_another_version_spoils_no_other() -> None:
    old = service()
    del old["workers"]
    shown = pictured(looked(None, old, "http://old:1"), looked(None, service(), "http://new:1"))
    assert [one.node for one in shown.images] == ["http://new:1"]
    assert [node.url for node in shown.silent] == ["http://old:1"]


def test_a_real_service_is_shown_as_it_works(tmp_path: Path) -> None:
    with (
        origin_in_thread() as origin,
        ImagesProcess(tmp_path) as service,
        ConsoleProcess(tmp_path, "--services", service.url, "--every-s", "0.2") as console,
    ):
        for name in ("/a.png", "/same.png"):
            origin.pages[name] = Page(picture(1))
            assert service.image(origin.url(name)).status == 200
        assert service.image(origin.url("/none.png")).status == 404
        assert service.metric("sluicegate_images_failures_total", kind="not_found") == 1
        found = re.compile(r">not found</td><td[^>]*>[^<]*</td><td[^>]*>1<")
        until(lambda: found.search(console.page("/images")), "the failure is on the page")
        page = console.page("/images")
        (content,) = [row for row in page.split("<tr>") if "<td>content</td>" in row]
        assert ">50.00%<" in content
        assert ">1 of 1<" in page
