"""`sluicegate images` as a whole: real processes, real sockets, real files."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from hashlib import sha256
from io import BytesIO
from pathlib import Path

import pytest
from openapi_spec_validator import validate
from PIL import Image

from sluicegate.apps.images.signatures import signed_path
from sluicegate.system import now_us
from tests.apps.images.origin_server import OriginServer, Page
from tests.apps.images.pictures import picture
from tests.apps.images.process import Answer, ImagesProcess, origin_in_thread, path, stores
from tests.engines.child import run_to_end, until
from tests.test_docs import readme_block

SPEC = "w=8,format=png"
COMMAND = (sys.executable, "-m", "tests.apps.images.serve")
KEY, OLD_KEY = "k" * 32, "o" * 32


@pytest.fixture(scope="module")
def origin() -> Iterator[OriginServer]:
    with origin_in_thread() as running:
        yield running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ImagesProcess]:
    folder = tmp_path_factory.mktemp("images")
    with ImagesProcess(folder, "--recheck-s", "0") as running:
        yield running


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return run_to_end([*COMMAND, *words])


def max_age(answer: Answer) -> int:
    found = re.search(r"max-age=(\d+)", answer.headers["cache-control"])
    assert found is not None
    return int(found[1])


def test_an_image_has_what_caches_and_browsers_need(
    server: ImagesProcess, origin: OriginServer
) -> None:
    date = "Mon, 01 Jan 2024 00:00:00 GMT"
    origin.pages["/a.png"] = Page(picture(1), headers={"Last-Modified": date})
    url = origin.url("/a.png")
    first = server.image(url)
    assert first.status == 200
    assert Image.open(BytesIO(first.body)).size == (16, 11)
    assert first.headers["content-type"] == "image/png"
    assert first.headers["last-modified"] == date
    assert first.headers["etag"] == f'"{sha256(first.body).hexdigest()[:32]}"'
    age, *stale = first.headers["cache-control"].split(", ")
    assert 3_500 <= int(age.removeprefix("max-age=")) <= 3_600
    assert stale == ["stale-while-revalidate=86400", "stale-if-error=86400"]
    again = server.image(url, if_none_match=first.headers["etag"])
    assert (again.status, again.body) == (304, b"")
    # What a cache sends that we cannot read keeps no image from it.
    for tags in ("unquoted", ", ".join(f'"{number}"' for number in range(17))):
        assert server.image(url, if_none_match=tags, if_modified_since=date).body == first.body
    head = server.get(path(url), method="HEAD")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == str(len(first.body))
    # Unencoded, as long as it has no query of its own.
    assert server.get(f"/img/w=16,format=png/{url}").body == first.body
    assert origin.asked["/a.png"] == 1
    in_readme = readme_block("html", "<img").partition(":7060")[2].partition('"')[0]
    shown = server.get(in_readme.replace("https://example.com/villa.jpg", url))
    assert Image.open(BytesIO(shown.body)).size == (48, 32)  # as it is: nothing grows


def test_a_part_of_an_image_is_served(server: ImagesProcess, origin: OriginServer) -> None:
    origin.pages["/part.png"] = Page(picture(2))
    url = origin.url("/part.png")
    whole = server.image(url)
    size = len(whole.body)
    for asked, begin, end in (
        ("bytes=0-9", 0, 10),
        ("bytes=10-", 10, size),
        ("bytes=-5", size - 5, size),
        (f"bytes=5-{size * 2}", 5, size),
    ):
        part = server.image(url, range=asked)
        assert (part.status, part.body) == (206, whole.body[begin:end])
        assert part.headers["content-range"] == f"bytes {begin}-{end - 1}/{size}"
    assert server.image(url, range=f"bytes={size}-").status == 416
    for ignored in ("bytes=5-2", "lines=1-2", "bytes=1-2,4-5"):
        assert server.image(url, range=ignored).body == whole.body
    assert server.image(url, range="bytes=0-1", if_range='"other"').body == whole.body
    assert server.image(url, range="bytes=0-1", if_range=whole.headers["etag"]).status == 206


def test_a_failure_says_what_it_is_and_for_how_long(
    server: ImagesProcess, origin: OriginServer
) -> None:
    origin.pages["/bad"] = Page(b"<html>")
    origin.pages["/down"] = Page(status=500)
    origin.pages["/inside"] = Page(status=302, headers={"Location": "http://169.254.169.254/x"})
    for name, status, kind in (
        ("/bad", 422, "wrong_type"),
        ("/none", 404, "not_found"),
        ("/down", 502, "origin_down"),
        ("/inside", 403, "forbidden"),
    ):
        found = server.image(origin.url(name))
        assert (found.status, json.loads(found.body)["kind"]) == (status, kind)
        passing = kind == "origin_down"
        assert ("retry-after" in found.headers) == passing
        assert ("max-age" in found.headers["cache-control"]) != passing
    for wrong in ("w=16/ftp%3A%2F%2Fa%2Fb", "nonsense/http%3A%2F%2Fa%2Fb", "w=16/7"):
        assert server.get(f"/img/{wrong}").status == 400


def test_a_change_that_one_caller_knows_of_is_seen_by_all(
    server: ImagesProcess, origin: OriginServer
) -> None:
    old, new = "Mon, 01 Jan 2024 00:00:00 GMT", "Tue, 02 Jan 2024 00:00:00 GMT"
    origin.pages["/new.png"] = Page(picture(300), headers={"Last-Modified": old})
    url = origin.url("/new.png")
    specs = ("w=12,format=png", "w=24,format=png")
    before = [server.image(url, spec).body for spec in specs]
    assert [server.image(url, spec).body for spec in specs] == before  # from memory
    origin.pages["/new.png"] = Page(picture(301), headers={"Last-Modified": new})
    server.image(url, specs[0], last_modified=new)
    after = [server.image(url, spec) for spec in specs]
    assert all(one.headers["last-modified"] == new for one in after)
    assert not {one.body for one in after} & set(before)


def test_an_upload_is_stored_once_and_has_an_id(server: ImagesProcess) -> None:
    answers = []
    for _ in range(2):
        found = server.get("/v1/images", method="POST", body=picture(77), content_type="image/png")
        assert found.status == 200
        answers.append(json.loads(found.body))
    assert answers[0]["id"] == answers[1]["id"] == sha256(picture(77)).hexdigest()
    assert [one["known"] for one in answers] == [False, True]
    assert server.get(f"/img/w=8,format=png/{answers[0]['id']}").status == 200
    assert server.get("/img/w=8,format=png/" + "0" * 64).status == 404
    assert server.get("/v1/images", method="POST", body=b"").status == 400


def test_a_prefetch_tells_its_progress(server: ImagesProcess, origin: OriginServer) -> None:
    images = []
    for number in range(20):
        origin.pages[f"/pre{number}"] = Page(picture(200 + number) if number != 7 else b"?")
        images.append({"url": origin.url(f"/pre{number}"), "spec": "w=8,format=png"})
    body = json.dumps({"images": images}).encode()
    found = server.get("/v1/prefetch", method="POST", body=body, content_type="application/json")
    lines = [json.loads(line) for line in found.body.splitlines()]
    assert [line["done"] for line in lines] == list(range(1, 21))
    failed = [line for line in lines if "failed" in line]
    assert [(line["url"], line["failed"]) for line in failed] == [
        (origin.url("/pre7"), "wrong_type")
    ]
    shown = [line["placeholder"] for line in lines if "failed" not in line]
    assert len(set(shown)) == 19
    assert all(one.startswith("data:image/webp;base64,") for one in shown)
    wrongs: list[object] = [{"images": []}, {"images": [{"url": "x"}]}, {"images": 1}, {}]
    for wrong in wrongs:
        sent = json.dumps(wrong).encode()
        answer = server.get(
            "/v1/prefetch", method="POST", body=sent, content_type="application/json"
        )
        assert answer.status == 400, wrong


def test_it_describes_itself(server: ImagesProcess, origin: OriginServer) -> None:
    validate(json.loads(server.get("/openapi.json").body))
    origin.pages["/g.png"] = Page(picture(9))
    server.image(origin.url("/g.png"))
    origin.pages["/auto.png"] = Page(picture(11))
    plain = server.image(origin.url("/auto.png"), "w=8")
    origin.pages["/half.png"] = Page(picture(10)[:-30])
    assert server.image(origin.url("/half.png")).status == 422
    page = server.get("/gallery")
    assert page.status == 200
    text = page.body.decode()
    assert "img-src data: 'self'" in text
    assert re.search(r'<text class="axis"[^>]*>[\d.]+ k?B</text>', text)
    assert " ago, and is being counted again" not in text  # it was counted for this answer
    assert path(origin.url("/g.png"), "").removeprefix("/img//") in text
    # Each variant can be looked at: what its link leads to is what was made.
    made = server.image(origin.url("/g.png"))
    link = f'<a href="{path(origin.url("/g.png"))}">w=16,format=png</a> {len(made.body)} B<'
    assert f"<summary>1 variant</summary><ul><li>{link}" in text
    assert made.status == 200
    # What was left to us is shown as it was made, whatever the browser accepts.
    (link,) = re.findall(r'href="([^"]*auto\.png)">w=8,format=auto<', text)
    assert server.get(link, accept="image/webp").body == plain.body
    # What cannot be made is named, and no picture of it is asked for.
    broken = path(origin.url("/half.png"), "").removeprefix("/img//")
    assert broken not in text
    assert re.search(r'class="none">corrupt</span><span>[^<]*half\.png</span><span>0 var', text)
    _, state = server.ask("/v1/state")
    assert state["pipeline"]["requests"] > 0
    assert state["origins"]


def test_stored_image_of_silent_origin_is_served_before_it_answers(
    tmp_path: Path, origin: OriginServer
) -> None:
    origin.pages["/silent.png"] = Page(picture(41))
    url = origin.url("/silent.png")
    with ImagesProcess(tmp_path, "--fresh-s", "0", "--recheck-s", "0") as server:
        first = server.image(url)
        gate = threading.Event()
        origin.pages["/silent.png"] = Page(picture(42), gate=gate)
        for _ in range(10):
            stale = server.image(url)
            assert (stale.status, stale.body) == (200, first.body)
            assert max_age(stale) == 0
            assert "stale-while-revalidate=86400" in stale.headers["cache-control"]
        assert origin.asked["/silent.png"] <= 2
        gate.set()
        until(lambda: server.image(url).body != first.body, "the new image")


def test_directives_of_origin_are_those_of_the_answer(tmp_path: Path, origin: OriginServer) -> None:
    stale = "stale-while-revalidate=86400, stale-if-error=86400"
    with ImagesProcess(tmp_path) as server:
        for number, (said, expected) in enumerate(
            (
                ("no-store", "no-store"),
                ("no-cache, private", "private, no-cache"),
                ("private, max-age=60", rf"private, max-age=(60|5\d), {stale}"),
                ("max-age=60, must-revalidate", r"max-age=(60|5\d), must-revalidate"),
                ("max-age=999999", rf"max-age=3600, {stale}"),
            )
        ):
            name = f"/said{number}.png"
            origin.pages[name] = Page(picture(50 + number), headers={"Cache-Control": said})
            found = server.image(origin.url(name)).headers["cache-control"]
            assert re.fullmatch(expected, found), (said, found)


def test_answer_is_kept_no_longer_than_its_signed_url(tmp_path: Path, origin: OriginServer) -> None:
    origin.pages["/ends.png"], origin.pages["/bad"] = Page(picture(43)), Page(b"<html>")
    with ImagesProcess(tmp_path, "--sign-key", KEY, "--fallback-s", "0") as server:
        ends_s = now_us() // 1_000_000 + 100
        for name in ("/ends.png", "/ends.png", "/bad", "/bad"):  # made, from memory; found, known
            target = signed_path(KEY, "w=16,format=png", origin.url(name), ends_s)
            found = server.get(target)
            assert found.status == (422 if name == "/bad" else 200)
            assert max_age(found) <= 100
            whole = sum(
                map(int, re.findall(r"(?:age|revalidate)=(\d+)", found.headers["cache-control"]))
            )
            assert whole <= 100
            unchanged = server.get(target, if_none_match=found.headers.get("etag", '"x"'))
            assert max_age(unchanged) <= 100
        never = server.get(signed_path(KEY, "w=16,format=png", origin.url("/ends.png")))
        assert max_age(never) > 100


def test_only_signed_urls_are_served_and_only_until_they_end(
    tmp_path: Path, origin: OriginServer
) -> None:
    origin.pages["/s.png"] = Page(picture(3))
    url = origin.url("/s.png")
    soon, past = now_us() // 1_000_000 + 600, now_us() // 1_000_000 - 1
    with ImagesProcess(tmp_path, "--sign-key", KEY, "--sign-key", OLD_KEY) as server:
        for key in (KEY, OLD_KEY):
            assert server.get(signed_path(key, "w=16,format=png", url)).status == 200
            assert server.get(signed_path(key, "w=16,format=png", url, soon)).status == 200
        refused = [
            path(url),
            signed_path("x" * 32, "w=16,format=png", url),
            signed_path(KEY, "w=16,format=png", url).replace("w=16", "w=4000"),
            signed_path(KEY, "w=16,format=png", url, past),
            signed_path(KEY, "w=16,format=png", url, past).replace(str(past), str(soon)),
            signed_path(KEY, "w=16,format=png", url, soon).replace(f"expires={soon}&", ""),
            signed_path(KEY, "w=16,format=png", url)[:-1],
        ]
        for one in refused:
            found = server.get(one)
            assert found.status == 403, one
        assert KEY not in server.log.read_text()


def test_sign_key_without_callers_closes_all_but_images(
    tmp_path: Path, origin: OriginServer
) -> None:
    origin.pages["/closed.png"] = Page(picture(31))
    url = origin.url("/closed.png")
    job = json.dumps({"images": [{"url": url, "spec": SPEC}]}).encode()
    asked: list[tuple[str, str, bytes | None, dict[str, str]]] = [
        ("POST", "/v1/prefetch", job, {"content_type": "application/json"}),
        ("POST", "/v1/images", picture(32), {"content_type": "image/png"}),
        ("GET", "/gallery", None, {}),
        ("GET", f"/v1/near?url={url}", None, {}),
        ("GET", "/v1/state", None, {}),
    ]
    with ImagesProcess(tmp_path, "--sign-key", KEY) as server:
        assert server.get(signed_path(KEY, SPEC, url)).status == 200
        for method, target, body, headers in asked:
            found = server.get(target, method=method, body=body, **headers)
            assert found.status == 403, target
            assert b"add --access FILE or --token TOKEN" in found.body
    # Controls: the same flags with --insecure, and with a token.
    with ImagesProcess(tmp_path, "--sign-key", KEY, "--insecure") as server:
        for method, target, body, headers in asked:
            assert server.get(target, method=method, body=body, **headers).status != 403, target
    with ImagesProcess(tmp_path, "--sign-key", KEY, "--token", "t" * 32) as server:
        for method, target, body, headers in asked:
            assert server.get(target, method=method, body=body, **headers).status == 401, target
            named = {**headers, "authorization": "Bearer " + "t" * 32}
            assert server.get(target, method=method, body=body, **named).status in {200, 404}


def test_duration_of_requests_is_counted_by_outcome(
    server: ImagesProcess, origin: OriginServer
) -> None:
    origin.pages["/timed.png"] = Page(picture(33))
    name = "sluicegate_images_request_seconds_count"
    outcomes = ("hit", "processed", "fallback", "error")

    def counts() -> list[float]:
        return [server.metric(name, outcome=one) for one in outcomes]

    before = counts()
    for _ in range(3):  # made, then twice from memory
        assert server.image(origin.url("/timed.png")).status == 200
    assert server.image(origin.url("/absent.png")).status == 404
    assert server.image(origin.url("/timed.png"), "w=9,format=png").status == 200
    assert [after - old for after, old in zip(counts(), before, strict=True)] == [2, 2, 0, 1]


def test_it_ends_in_order_and_comes_back_with_all_it_had(
    tmp_path: Path, origin: OriginServer
) -> None:
    origin.pages["/r.png"] = Page(picture(4))
    url = origin.url("/r.png")
    with ImagesProcess(tmp_path) as server:
        before = server.image(url)
        assert server.end() == 0
    with ImagesProcess(tmp_path) as server:
        assert server.image(url).body == before.body
        server.signal(signal.SIGKILL)
    assert origin.asked["/r.png"] == 1
    checked = command("gc", "--check", *stores(tmp_path))
    assert checked.returncode == 0, checked.stderr
    assert "0 errors" in checked.stdout
    (blob, *_) = [one for one in (tmp_path / "blobs").rglob("*") if len(one.stem) == 64]
    blob.write_bytes(b"damaged")
    checked = command("gc", "--check", *stores(tmp_path))
    assert checked.returncode == 1
    assert blob.name in checked.stderr


def test_the_verbs_work_on_the_stores(tmp_path: Path, origin: OriginServer) -> None:
    for number in range(6):
        origin.pages[f"/v{number}"] = Page(picture(number // 2) if number else b"?")
    catalogue = tmp_path / "catalogue.csv"
    rows = "".join(f"{number},{origin.url(f'/v{number}')}\n" for number in range(6))
    catalogue.write_text("id,url\n" + rows)
    failures = tmp_path / "failures.csv"
    flags = stores(tmp_path)
    for _ in range(2):
        done = command(
            "import",
            str(catalogue),
            "--spec",
            "w=8,format=png",
            "--failures",
            str(failures),
            *flags,
        )
        assert done.returncode == 1, done.stderr
        assert done.stdout == "6 images, 1 failed\n"
        assert b"wrong_type" in failures.read_bytes()
    assert all(origin.asked[f"/v{number}"] == 1 for number in range(6))
    fetch = [*COMMAND, "fetch", origin.url("/v1"), "w=8,format=png", *flags]
    fetched = subprocess.run(fetch, stdout=subprocess.PIPE, check=True).stdout
    assert Image.open(BytesIO(fetched)).size == (8, 5)
    page = tmp_path / "report.html"
    shown = command("report", "--html", str(page), *flags)
    assert "5 URLs have 3 distinct originals" in shown.stdout
    assert "they would be 2 more" in shown.stdout  # of five URLs with three originals
    (owner,) = (line for line in shown.stdout.splitlines() if " 127.0.0.1 " in line)
    assert owner.split()[-3:-2] == ["2"]
    assert "By owner" in page.read_text()
    assert command("gc", *flags).returncode == 0
    wrong = command("import", str(catalogue), "--spec", SPEC, "--url-column", "link", *flags)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "id, url" in wrong.stderr
    wrong = command("import", str(catalogue), "--spec", SPEC, "--at-once", "0", *flags)
    assert (wrong.returncode, wrong.stderr.strip()) == (
        2,
        "sluicegate: --at-once: 0 cannot be used; give 1 to 10,000",
    )
    missing = command("fetch", origin.url("/nothing"), "w=8,format=png", *flags)
    assert missing.returncode == 1
    assert missing.stderr.startswith("sluicegate: not_found")


def test_an_import_that_is_interrupted_ends_cleanly_and_goes_on(
    tmp_path: Path, origin: OriginServer
) -> None:
    origin.pages["/quick"] = Page(picture(61))
    origin.pages["/slow"] = Page(picture(62), head_after_s=30)
    catalogue = tmp_path / "catalogue.csv"
    catalogue.write_text(f"url\n{origin.url('/quick')}\n{origin.url('/slow')}\n")
    words = ["import", str(catalogue), "--spec", SPEC, "--origin-idle-s", "60", *stores(tmp_path)]
    running = subprocess.Popen([*COMMAND, *words], stderr=subprocess.PIPE)
    until(lambda: origin.asked["/slow"] == 1, "the import asks for both")
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert (running.returncode, said) == (130, b"")
    origin.pages["/slow"] = Page(picture(62))
    assert command(*words).stdout == "2 images, 0 failed\n"


def test_an_image_is_not_written_to_a_terminal() -> None:
    inner, outer = pty.openpty()
    try:
        fetch = [*COMMAND, "fetch", "http://127.0.0.1/a", SPEC]
        done = subprocess.run(fetch, stdout=outer, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(inner)
        os.close(outer)
    assert done.returncode == 2
    assert b"--out" in done.stderr


@pytest.mark.parametrize(("flag", "value"), [("--processes", "257"), ("--timeout-s", "3600")])
def test_what_a_part_cannot_have_is_refused_by_the_name_of_its_flag(
    tmp_path: Path, flag: str, value: str
) -> None:
    done = command("serve", "--listen", "127.0.0.1:0", flag, value, *stores(tmp_path))
    assert done.returncode == 2
    assert done.stderr.startswith(f"sluicegate: {flag}: '{value}' cannot be used; give ")


def test_stats_of_a_service_that_is_not_there_say_where_it_was_looked_for() -> None:
    shown = command("stats", "--at", "http://127.0.0.1:1")
    assert shown.returncode == 1
    assert "the image service at http://127.0.0.1:1 is unavailable" in shown.stderr


def test_stats_are_those_of_the_running_service(server: ImagesProcess) -> None:
    shown = command("stats", "--at", server.url)
    assert shown.returncode == 0, shown.stderr
    assert "not processed again" in shown.stdout
    assert json.loads(command("stats", "--at", server.url, "--json").stdout)["pipeline"]


def test_a_hot_image_is_the_same_answer_whether_its_head_was_made_before_or_not(
    server: ImagesProcess, origin: OriginServer
) -> None:
    origin.pages["/hot"] = Page(
        picture(77), headers={"Last-Modified": "Wed, 01 Nov 2023 10:00:00 GMT"}
    )
    url = origin.url("/hot")
    cold = server.image(url)
    hot = [server.image(url) for _ in range(3)]
    for one in hot:
        assert (one.status, one.body) == (cold.status, cold.body)
        assert {**one.headers, "date": "", "cache-control": ""} == {
            **cold.headers, "date": "", "cache-control": "",
        }  # fmt: skip
        assert max_age(one) <= max_age(cold)
    tag = cold.headers["etag"]
    assert server.get(path(url), if_none_match=tag).status == 304
    date = cold.headers["last-modified"]
    assert server.get(path(url), if_modified_since=date).status == 304
    # A tag says more than a date, and another date nothing (RFC 9110, 13.1.3).
    assert server.get(path(url), if_modified_since=date, if_none_match='"x"').status == 200
    later = "Thu, 02 Nov 2023 10:00:00 GMT"
    assert server.get(path(url), if_modified_since=later).status == 200
    part = server.get(path(url), range="bytes=1-3")
    assert (part.status, part.body) == (206, cold.body[1:4])
    head = server.get(path(url), method="HEAD")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == str(len(cold.body))


def test_uploads_hold_no_more_than_their_bound_together(tmp_path: Path) -> None:
    body = picture(1, width=600, height=400) + bytes(700_000)
    head = "POST /v1/images HTTP/1.1\r\nHost: {}\r\nContent-Type: image/png\r\n"
    bounds = ("--uploads-bytes-max", str(1 << 20), "--message-bytes-max", str(1 << 20))
    with ImagesProcess(tmp_path, *bounds) as server:

        def begin(sent: int) -> socket.socket:
            one = socket.create_connection(("127.0.0.1", server.port), timeout=60)
            where = head.format(f"127.0.0.1:{server.port}")
            one.sendall(f"{where}Content-Length: {len(body)}\r\n\r\n".encode() + body[:sent])
            return one

        def status(one: socket.socket) -> int:
            return int(one.recv(4_096).split()[1])

        with begin(len(body) - 1) as first:
            with begin(len(body) - 1) as second:
                assert status(second) == 503
            first.sendall(body[-1:])
            assert status(first) == 200
        # What it held is free again, for one that is given up and for another.
        begin(len(body) - 1).close()
        until(lambda: server.get("/v1/images", method="POST", body=body, content_type="image/png")
              .status == 200, "room")  # fmt: skip
