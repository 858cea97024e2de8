"""The site: each page has its place, each link leads somewhere, the search finds what is there."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from sluicegate.contracts.reasons import REASONS
from tests.site.build import ROOT, page_paths, read_site, url_of, write_site
from tests.site.page import parse


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site") / "out"
    site = read_site(ROOT)
    assert site.errors == []
    write_site(site, ROOT, out)
    return out


def test_every_page_is_there_and_named_in_the_navigation_of_the_first(built: Path) -> None:
    first = (built / "index.html").read_text(encoding="utf-8")
    for path in page_paths(ROOT):
        assert (built / url_of(path)).is_file()
        assert f'href="{url_of(path)}"' in first
    assert (built / "pictures" / "console.png").is_file()


def test_every_link_of_every_page_leads_to_a_file_and_none_is_loaded_from_elsewhere(
    built: Path,
) -> None:
    links: dict[tuple[Path, str, str], Path] = {}  # of each folder once: most are the navigation's
    for page in built.rglob("*.html"):
        for name, to in re.findall(r'(href|src)="([^"#]+)', page.read_text(encoding="utf-8")):
            links[page.parent, name, to] = page
    for (folder, name, to), page in links.items():
        if to.startswith(("http:", "https:")):
            assert name == "href"  # for people; no picture, style or script
        else:
            assert (folder / to).is_file(), f"{page}: {to}"


def test_the_search_has_every_heading(built: Path) -> None:
    script = (built / "index.js").read_text(encoding="utf-8")
    index = json.loads(script.removeprefix("window.SEARCH = ").rstrip(";\n"))
    found = {url for url, *_ in index}
    assert "guides/up.html#the-services" in found
    assert "reference/python.html#Limiter" in found
    assert any("hot key" in text for *_, text in index)


def test_the_reference_is_what_the_code_says(built: Path) -> None:
    def page(name: str) -> str:
        return (built / "reference" / f"{name}.html").read_text(encoding="utf-8")

    python = page("python")
    for anchor in ("Limiter.take", "sluicegate.resilience.server.asgi.protect"):
        assert f'id="{anchor}"' in python
    assert "(self" not in python
    assert "ForwardRef" not in python
    settings = page("settings")
    assert "<code>--quota-ru RU</code>" in settings
    assert "SLUICEGATE_KV_LISTEN" in settings
    reasons = page("reasons")
    assert all(f"<code>{name}</code>" in reasons for name in REASONS)
    assert "GET /v1/tables/{table}/rows/{partition}/{sort}" in page("http-kv")
    assert "POST /v1/images" in page("http-images")
    assert "POST /v1/rules/proposals/{id}/approve" in page("http-rules")
    assert "rpc Check(RateLimitRequest) returns (RateLimitResponse);" in page("grpc")


def test_each_guide_opens_with_what_its_reader_can_do_after_it() -> None:
    pages = [*(ROOT / "docs" / "guides").glob("*.md"), *(ROOT / "docs" / "operations").glob("*.md")]
    openings = {page.name: page.read_text(encoding="utf-8").split("\n\n")[1] for page in pages}
    assert len(openings) > 50
    assert [name for name, words in openings.items() if "After this page you" not in words] == []


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("# A\n[b](gone.md)", "there is no file gone.md"),
        ("# A\n[b](#gone)", "there is no heading #gone in docs/a.md"),
        ("# A\n![b](gone.png)", "there is no file gone.png"),
        ("# A\n[b](../../outside.md)", "there is no file ../../outside.md"),
    ],
)
def test_a_link_to_nothing_is_an_error(tmp_path: Path, text: str, error: str) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text(text, encoding="utf-8")
    assert f"docs/a.md: {error}" in read_site(tmp_path).errors


def test_a_page_without_a_place_in_the_navigation_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    shutil.copyfile(ROOT / "README.md", tmp_path / "docs" / "new.md")
    assert any(one.startswith("docs/new.md: no section") for one in read_site(tmp_path).errors)


def test_anchors_are_those_of_forges() -> None:
    page = parse("# `kv top`: who, and what?\n## Same\n## Same\n<b>raw</b>", str)
    assert [part.anchor for part in page.parts[1:]] == ["kv-top-who-and-what", "same", "same-1"]
    assert "<b>" not in page.html
