"""The URLs of imgproxy and thumbor; signatures are of those projects' own tools."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.image_spec import parse_spec
from sluicegate.policies.images.imgproxy import is_imgproxy_signature, parse_imgproxy
from sluicegate.policies.images.thumbor import is_thumbor_signature, parse_thumbor

URL = "https://example.com/a.jpg"
PLAIN = f"plain/{URL}"


@pytest.mark.parametrize(
    ("options", "spec"),
    [
        ("rs:fill:300:400", "w=300,h=400,fit=cover,enlarge=no"),
        ("rs:fill:300:400:1", "w=300,h=400,fit=cover"),
        ("rs:fit:300:400", "w=300,h=400"),
        ("resize:fit:300:0:1", "w=300,enlarge=yes"),
        ("rs:force:300:400:t", "w=300,h=400,fit=fill"),
        ("rs::300", "w=300"),
        ("rs:fit:300:400:0:1", "w=300,h=400,fit=contain,enlarge=no"),
        ("s:300:400", "w=300,h=400"),
        ("w:300/h:400/rt:fill/el:1", "w=300,h=400,fit=cover"),
        ("rs:fill:30:40:1/g:sm", "w=30,h=40,fit=cover,crop=attention"),
        ("rs:fill:30:40:1/g:fp:0.25:1", "w=30,h=40,fit=cover,crop=250:1000"),
        ("rs:fill:30:40:1/gravity:nowe:0:0", "w=30,h=40,fit=cover,crop=0:0"),
        ("w:30/dpr:2/q:75", "w=60,q=75"),
        ("f:jpg/bg:255:0:16", "format=jpeg,bg=ff0010"),
        ("bg:FF0010/sm:0", "bg=ff0010,strip=no"),
        ("ar:1/scp:true/w:9", "w=9"),
        ("pr:card", "w=7,format=png"),
        ("pr:card/w:8", "w=8,format=png"),
    ],
)
def test_an_option_of_imgproxy_means_what_ours_says(options: str, spec: str) -> None:
    found = parse_imgproxy(f"/sig/{options}/{PLAIN}", {"card": "w=7,format=png"})
    assert found.spec == parse_spec(spec)
    assert (found.source, found.signature) == (URL, "sig")
    assert found.signed == f"/{options}/{PLAIN}"


@pytest.mark.parametrize(
    ("written", "source", "format_"),
    [
        (PLAIN, URL, "auto"),
        (f"{PLAIN}@webp", URL, "webp"),
        ("plain/http%3A%2F%2Fa%2Fb%3Fc%40d@png", "http://a/b?c@d", "png"),
        ("aHR0cHM6Ly9leGFtcGxlLmNvbS9hLmpwZw", URL, "auto"),
        ("aHR0cHM6Ly9leGFt/cGxlLmNvbS9hLmpwZw==.avif", URL, "avif"),
        ("", None, "auto"),
    ],
)
def test_the_source_of_imgproxy_is_plain_or_encoded(
    written: str, source: str | None, format_: str
) -> None:
    found = parse_imgproxy(f"/insecure/w:9/{written}")
    assert (found.source, found.spec.format, found.signature) == (source, format_, "")


def test_a_signature_of_imgproxy_is_that_of_its_documentation() -> None:
    key, salt = b"secret", b"hello"
    path = (
        "/oKfUtW34Dvo2BGQehJFR4Nr0_rIjOtdtzJ3QFsUcXH8/rs:fill:300:400:0/g:sm/"
        "aHR0cDovL2V4YW1w/bGUuY29tL2ltYWdl/cy9jdXJpb3NpdHku/anBn.png"
    )
    found = parse_imgproxy(path)
    assert found.source == "http://example.com/images/curiosity.jpg"
    assert is_imgproxy_signature(found, key, salt)
    assert not is_imgproxy_signature(found, key, salt + b"x")
    assert not is_imgproxy_signature(parse_imgproxy(path.replace(":400", ":401")), key, salt)
    assert not is_imgproxy_signature(parse_imgproxy("/unsafe/w:9/plain/a"), key, salt)


@pytest.mark.parametrize(
    ("parts", "spec"),
    [
        ("300x400", "w=300,h=400,fit=cover"),
        ("300x0", "w=300,fit=cover"),
        ("x400", "h=400,fit=cover"),
        ("fit-in/300x400", "w=300,h=400"),
        ("300x400/left/top", "w=300,h=400,fit=cover,crop=0:0"),
        ("300x400/right", "w=300,h=400,fit=cover,crop=1000:500"),
        ("300x400/center/bottom/smart", "w=300,h=400,fit=cover,crop=attention"),
        ("300x400/filters:quality(75):format(webp)", "w=300,h=400,fit=cover,q=75,format=webp"),
        ("fit-in/300x400/filters:fill(white)", "w=300,h=400,fit=contain,enlarge=no,bg=ffffff"),
        ("fit-in/9x9/filters:upscale():strip_exif()", "w=9,h=9,enlarge=yes"),
        (
            "9x9/filters:no_upscale():background_color(#0a0B0c)",
            "w=9,h=9,fit=cover,enlarge=no,bg=0a0b0c",
        ),
        ("filters:quality(9)", "q=9"),
    ],
)
def test_a_part_of_thumbor_means_what_ours_says(parts: str, spec: str) -> None:
    found = parse_thumbor(f"/unsafe/{parts}/{URL}")
    assert found.spec == parse_spec(spec)
    assert (found.source, found.signature, found.signed) == (URL, "", f"{parts}/{URL}")


def test_a_source_of_thumbor_may_be_alone_or_missing_and_is_unquoted() -> None:
    assert parse_thumbor("/unsafe/a%20b.jpg").source == "http://a b.jpg"
    assert parse_thumbor("/unsafe/9x9/").source is None


def test_a_signature_of_thumbor_is_that_of_its_library() -> None:
    path = (
        "/nyaHGJ038yGsQ2w5pcz4HwNyhGE=/300x200/smart/filters:quality(75)/"
        "my.server.com/some/path/to/image.jpg"
    )
    found = parse_thumbor(path)
    assert found.spec == parse_spec("w=300,h=200,fit=cover,crop=attention,q=75")
    assert is_thumbor_signature(found, b"my-security-key")
    assert not is_thumbor_signature(found, b"another key")
    assert not is_thumbor_signature(parse_thumbor(path.replace("300x", "301x")), b"my-security-key")


@pytest.mark.parametrize(
    ("path", "named", "value"),
    [
        ("/s/blur:5/plain/a", "imgproxy option", "blur"),
        ("/s/wm:0.5/plain/a", "imgproxy option", "wm"),
        ("/s/rs:fill-down:3:4/plain/a", "imgproxy resizing_type", "fill-down"),
        ("/s/g:sm:1:2:3:4:5/plain/a", "imgproxy gravity", "sm:1:2:3:4:5"),
        ("/s/g:obj:face/plain/a", "imgproxy gravity", "obj:face"),
        ("/s/g:fp:2:0/plain/a", "imgproxy gravity", "2"),
        ("/s/w:-1/plain/a", "imgproxy width", "-1"),
        ("/s/w:1:2/plain/a", "imgproxy width", "1:2"),
        ("/s/dpr:9/plain/a", "imgproxy dpr", "9"),
        ("/s/f:bmp/plain/a", "imgproxy format", "bmp"),
        ("/s/ar:0/plain/a", "imgproxy auto_rotate", "0"),
        ("/s/bg:red/plain/a", "imgproxy background", "red"),
        ("/s/rs:fill:3:4:0:1/plain/a", "imgproxy extend", "1"),
        ("/s/pr:none/plain/a", "spec.preset", "none"),
        ("/s/w:1/_w", "imgproxy source", "_w"),
        ("/s", "imgproxy path", "/s"),
    ],
)
def test_what_imgproxy_knows_and_we_do_not_is_named(path: str, named: str, value: str) -> None:
    with pytest.raises(BadValue) as bad:
        parse_imgproxy(path)
    assert (bad.value.field, bad.value.value) == (named, value)


@pytest.mark.parametrize(
    ("path", "named", "value"),
    [
        ("/unsafe/trim/9x9/a", "thumbor part", "trim"),
        ("/unsafe/trim:top-left:5/9x9/a", "thumbor part", "trim:top-left:5"),
        ("/unsafe/10x10:30x30/9x9/a", "thumbor part", "10x10:30x30"),
        ("/unsafe/adaptive-fit-in/9x9/a", "thumbor part", "adaptive-fit-in"),
        ("/unsafe/meta/9x9/a", "thumbor part", "meta"),
        ("/unsafe/-9x9/a", "thumbor size", "-9x9"),
        ("/unsafe/origx9/a", "thumbor size", "origx9"),
        ("/unsafe/9x20000/a", "thumbor size", "20000"),
        ("/unsafe/9x9/filters:blur(3)/a", "thumbor filter", "blur"),
        ("/unsafe/9x9/filters:watermark(http://a/b.png,0,0)/a", "thumbor filter", "watermark"),
        ("/unsafe/9x9/filters:fill(red)/a", "thumbor filter", "fill"),
        ("/unsafe/fit-in/9x9/filters:fill(red)/a", "thumbor filter colour", "red"),
        ("/unsafe/9x9/filters:format(heic)/a", "thumbor filter format", "heic"),
        ("/unsafe/9x9/filters:quality/a", "thumbor filters", "quality"),
        ("/unsafe", "thumbor path", "/unsafe"),
    ],
)
def test_what_thumbor_knows_and_we_do_not_is_named(path: str, named: str, value: str) -> None:
    with pytest.raises(BadValue) as bad:
        parse_thumbor(path)
    assert (bad.value.field, bad.value.value) == (named, value)


pieces = st.sampled_from(
    ["rs:fill:3", "w:", ":", "plain", "fit-in", "3x4", "x", "smart", "filters:", "quality(",
     ")", "@", ".", "%", "aHR0", "fp:0.1:0.2", "g:", "left", "é", "\0", "trim"]
)  # fmt: skip


@given(st.lists(st.one_of(pieces, st.text(max_size=5)), max_size=8))
def test_no_path_raises_anything_but_what_names_its_fault(parts: list[str]) -> None:
    for path in ("/" + "/".join(parts), "/s/" + "".join(parts)):
        for parse in (parse_imgproxy, parse_thumbor):
            with contextlib.suppress(BadValue):
                assert parse(path).spec.canonical()
