from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sluicegate.rules.web.keys import VALUE_CHARS_MAX, Key, key_reader, parse_key
from tests.rules.web.arrivals import PlainArrival


def place_of(name: str) -> int:
    return {"first": 0, "id": 1}[name]


def key(*texts: str) -> Key:
    return parse_key(texts, place_of)


def read(came: PlainArrival, *texts: str) -> str:
    return key_reader(key(*texts))(came)


def test_a_key_says_its_kind() -> None:
    came = PlainArrival("/users/7", "POST", user="ann", headers={"x-tenant": "acme"})
    assert read(came, "address") == "address:10.0.0.1"
    assert read(came, "user") == "user:ann"
    assert read(came, "header:X-Tenant") == "header:x-tenant:acme"
    assert read(came, "path") == "path:/users/7"
    assert read(came, "method") == "method:POST"
    assert read(came, "path.id") == "path.id:7"
    assert read(came, "everyone") == "everyone"
    assert read(came, "user", "path") == "user:ann|path:/users/7"


def test_what_an_arrival_lacks_makes_no_key() -> None:
    came = PlainArrival(address="")
    for texts in (["address"], ["user"], ["header:x-a"], ["path", "user"], ["user", "method"]):
        assert read(came, *texts) == ""
        assert key(*texts).may_miss
    for text in ("path", "method", "path.id", "everyone"):
        assert not key(text).may_miss


def test_a_doubled_slash_is_no_new_key() -> None:
    assert {read(PlainArrival(path), "path") for path in ("/a/b", "/a/b/", "//a/b", "a/b")} == {
        "path:/a/b"
    }
    assert read(PlainArrival("//users//7/"), "path.id") == "path.id:7"
    assert read(PlainArrival(""), "path") == "path:/"


def test_ipv6_goes_by_its_network() -> None:
    came = PlainArrival(address="2001:db8::1")
    assert read(came, "address") == "address:2001:db8::/64"
    assert read(came, "address/48") == "address/48:2001:db8::/48"


def test_what_looks_like_a_secret_is_not_written_out() -> None:
    for name in ("authorization", "x-api-key", "cookie", "x-auth-token", "client-secret"):
        made = read(PlainArrival(headers={name: "hunter2"}), f"header:{name}")
        assert made.startswith(f"header:{name}:")
        assert "hunter2" not in made
        assert made != read(PlainArrival(headers={name: "hunter3"}), f"header:{name}")
        assert read(PlainArrival(), f"header:{name}") == ""


def test_a_long_value_is_counted_by_a_digest_that_nobody_can_ask_for() -> None:
    long = "x" * (VALUE_CHARS_MAX + 1)
    made = read(PlainArrival(user=long), "user")
    assert made.startswith("user#:")
    assert len(made) < 50
    digest = made.removeprefix("user#:")
    assert read(PlainArrival(user=digest), "user") != made
    assert read(PlainArrival(user=f"#:{digest}"), "user") != made
    assert read(PlainArrival(user=long + "y"), "user") != made
    assert read(PlainArrival(user="x" * VALUE_CHARS_MAX), "user") == "user:" + "x" * VALUE_CHARS_MAX


def test_the_longest_key_is_one_that_a_limiter_takes() -> None:
    long = "|" * 100_000
    names = [f"header:{letter * 64}" for letter in "abcd"]
    came = PlainArrival(headers={name.removeprefix("header:"): long for name in names})
    assert len(read(came, *names)) <= 4_096
    fair = PlainArrival(
        headers={name.removeprefix("header:"): "é" * VALUE_CHARS_MAX for name in names}
    )
    assert len(read(fair, *names)) <= 4_096


# What could be mistaken for what divides values, and for how it is written within one.
texts = st.lists(
    st.sampled_from(["a", "|", "%", "%7C", "%25", "|header:x-t:"]), min_size=1, max_size=3
).map("".join)


@example("|", "a", "%7C", "a")
@given(texts, texts, texts, texts)
def test_no_two_pairs_of_values_make_the_same_key(a: str, b: str, c: str, d: str) -> None:
    one, other = PlainArrival(user=a, headers={"x-t": b}), PlainArrival(user=c, headers={"x-t": d})
    same = read(one, "user", "header:x-t") == read(other, "user", "header:x-t")
    assert same == ((a, b) == (c, d))
    # Nor can a value alone make the key of a pair, or of another value.
    assert read(PlainArrival(user=a), "user") != read(other, "user", "header:x-t")
    assert (read(PlainArrival(user=a), "user") == read(PlainArrival(user=b), "user")) == (a == b)


def test_lone_surrogates_are_counted_like_any_text() -> None:
    assert read(PlainArrival(user="\udcff" * 600), "user").startswith("user#:")


@pytest.mark.parametrize(
    ("parts", "remedy"),
    [
        ([], "from 1 to 4"),
        (["user", "path", "method", "address", "header:x"], "from 1 to 4"),
        (["user", "user"], "twice"),
        (["everyone", "user"], "stands alone"),
        (["ip"], "give address, user"),
        (["header:"], "give address, user"),
        (["header:a b"], "give address, user"),
        (["address/8"], "16 to 128"),
        (["address/129"], "16 to 128"),
        (["path."], "give address, user"),
    ],
)
def test_a_key_that_is_none_is_told_what_to_do(parts: list[str], remedy: str) -> None:
    with pytest.raises(ValueError, match=remedy):
        key(*parts)
