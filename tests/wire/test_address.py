"""Addresses as people paste them (case A16)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.errors import PlanError
from pinchpoint.wire.address import Address, read_address


@pytest.mark.parametrize(
    "text",
    [
        "http://h/a/b",
        "http://h/a/b/",
        "http://h/a/b/v1",
        "http://h/a/b/v1/",
        "h/a/b",
        "h:80/a/b/v1",
        "HTTP://H/a/b",
        " http://h//a//b// ",
        "http://h/a/b/v1/chat/completions",
        "http://h/a/b/v1/chat/completions/",
        "http://h/a/b/v1/completions",
        "http://h/a/b/v1/models",
    ],
)
def test_every_spelling_leads_to_one_path(text):
    address = read_address(text)
    assert address == Address("http", "h", 80, "/a/b")
    assert address.path("chat") == "/a/b/v1/chat/completions"
    assert address.path("completions") == "/a/b/v1/completions"
    assert address.path("models") == "/a/b/v1/models"
    assert address.url == "http://h/a/b/v1"


@pytest.mark.parametrize(
    "text", ["http://h:8000", "h:8000", "http://h:8000/", "h:8000/v1", "http://h:8000/v1/"]
)
def test_without_a_prefix(text):
    address = read_address(text)
    assert (address.host, address.port, address.netloc) == ("h", 8000, "h:8000")
    assert address.path("chat") == "/v1/chat/completions"


@pytest.mark.parametrize("target", ["metrics", "tokenize", "health", "version"])
def test_the_engines_own_pages_stand_beside_v1(target):
    assert read_address("http://h/a/v1").path(target) == f"/a/{target}"


@pytest.mark.parametrize(
    ("text", "host", "port", "netloc"),
    [
        ("h", "h", 80, "h"),
        ("https://h", "h", 443, "h"),
        ("https://h:80", "h", 80, "h:80"),
        ("http://10.0.0.7:30000", "10.0.0.7", 30000, "10.0.0.7:30000"),
        ("http://[::1]:8000/v1", "::1", 8000, "[::1]:8000"),
        ("[FE80::0:1]", "fe80::1", 80, "[fe80::1]"),
        ("::1", "::1", 80, "[::1]"),
        ("node_1.cluster-a.local:1", "node_1.cluster-a.local", 1, "node_1.cluster-a.local:1"),
        ("http://bücher.example", "xn--bcher-kva.example", 80, "xn--bcher-kva.example"),
    ],
)
def test_hosts(text, host, port, netloc):
    address = read_address(text)
    assert (address.host, address.port, address.netloc) == (host, port, netloc)


def test_another_version_stays_and_a_full_address_is_taken_at_its_word():
    assert read_address("http://h/api/v3").path("chat") == "/api/v3/chat/completions"
    assert read_address("http://h/v3/completions").path("chat") == "/v3/chat/completions"
    assert read_address("http://h/x/chat/completions").path("chat") == "/x/chat/completions"
    assert read_address("http://h/x/chat/completions").path("metrics") == "/x/metrics"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no address"),
        ("http://", "no address"),
        ("ftp://h", "no address"),
        ("grpc://h:50051", "no address"),
        ("http://user:s3cret@h/v1", "--api-key"),
        ("s3cret@h", "--api-key"),
        ("http://u:s3cret/x@h:80/v1", "--api-key"),
        ("http://u:s3cret@x@h/v1", "--api-key"),
        ("http:/u:s3cret@h/v1", "one slash"),
        ("https:/h", "one slash"),
        ("http://h/v1?key=s3cret", "query"),
        ("http://h/v1#x", "fragment"),
        ("http://h:port", "no port"),
        ("http://h:0", "no port"),
        ("http://h:65536", "no port"),
        ("http://h:٣", "no port"),
        ("http://[::1", "IPv6"),
        ("http://[::1]x", "no port"),
        ("http://[h]:80", "IPv6"),
        ("http://h:1:2", "IPv6"),
        ("http:///v1", "no host"),
        ("http://h h/v1", "no host"),
        ("http://h/a b", "white space"),
        ("http://h/a\r\nX: y", "white space"),
    ],
)
def test_what_is_refused_says_why_and_keeps_secrets(text, says):
    with pytest.raises(PlanError) as refused:
        read_address(text)
    assert says in str(refused.value)
    assert "s3cret" not in str(refused.value)


@given(
    st.one_of(
        st.text(max_size=30),
        st.from_regex(r"(https?://)?[a-z\[\]:.@]{0,8}(:\d{0,6})?(/[a-z0-9%?#]{0,4}){0,3}", fullmatch=True),
    )
)
def test_any_text_is_an_address_or_a_plan_error(text):
    try:
        address = read_address(text)
    except PlanError:
        return
    assert read_address(address.url) == address or not address.version
    assert address.path("chat").isascii()
    assert " " not in address.path("chat")
