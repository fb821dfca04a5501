import pytest

from hub.client.address import check_link, check_token, parse_address
from hub.client.errors import BadInput, Unreachable


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("http://127.0.0.1:8000/ada/notes/", "http://127.0.0.1:8000/ada/notes"),
        ("https://Hub.Example.org/ada/notes", "https://hub.example.org/ada/notes"),
        ("http://[::1]:8000/ada/notes", "http://[::1]:8000/ada/notes"),
    ],
)
def test_address_is_kept_in_one_spelling(given: str, kept: str) -> None:
    assert parse_address(given).url == kept


@pytest.mark.parametrize(
    "given",
    [
        "ada/notes",
        "ftp://hub/ada/notes",
        "http:///ada/notes",
        "http://hub",
        "http://hub/ada",
        "http://hub/ada/notes/more",
        "http://hub/ada//notes",
        "http://hub/../notes",
        "http://hub/ada/notes?x=1",
        "http://hub/ada/notes#x",
        "http://hub:notaport/ada/notes",
        "http://hub/ada/no tes",
        "http://hub/ada/n\u00f6tes",
    ],
)
def test_unusable_address_is_refused_with_an_example(given: str) -> None:
    with pytest.raises(BadInput, match="OWNER/REPOSITORY"):
        parse_address(given)


def test_password_in_the_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(BadInput, match="PACKHOUSE_TOKEN") as caught:
        parse_address("https://ada:hunter2@hub/ada/notes")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("host", ["hub.example.org", "10.0.0.7", "localhost.example.org", "127.0.0.1.example.org"])
def test_token_is_not_sent_over_plain_http(host: str) -> None:
    with pytest.raises(BadInput, match="plain http") as caught:
        check_token(parse_address(f"http://{host}/ada/notes"), "tok-secret-123")
    assert "tok-secret-123" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "https://hub/ada/notes",
        "http://localhost/ada/notes",
        "http://127.8.9.1/ada/notes",
        "http://[::1]/ada/notes",
        "http://hub.localhost/ada/notes",
    ],
)
def test_token_is_sent_over_https_and_on_this_machine(url: str) -> None:
    assert check_token(parse_address(url), "tok") == "tok"


def test_public_repository_needs_no_token_over_plain_http() -> None:
    assert check_token(parse_address("http://hub/ada/notes"), "") is None


@pytest.mark.parametrize("token", ["two words", "line\nbreak", "schl\u00fcssel"])
def test_token_that_is_no_header_value_is_refused_and_not_repeated(token: str) -> None:
    with pytest.raises(BadInput, match="PACKHOUSE_TOKEN") as caught:
        check_token(parse_address("https://hub/ada/notes"), token)
    assert token not in str(caught.value)


def test_link_from_https_to_plain_http_is_refused_without_its_signature() -> None:
    with pytest.raises(Unreachable, match="S3_PUBLIC_ENDPOINT_URL") as caught:
        check_link(parse_address("https://hub/ada/notes"), "http://s3.example.org/b/k?X-Amz-Signature=abc")
    assert "abc" not in str(caught.value)


@pytest.mark.parametrize(
    "link",
    [
        "file:///etc/passwd",
        "//host/x",
        "http://u:p@host/x",
        "http://[bad/x",
        "",
        "http://host/a b",
        "http://h\u00f6st/x",
        "http://host:99999/",
    ],
)
def test_link_that_is_no_http_url_is_refused(link: str) -> None:
    with pytest.raises(Unreachable, match="link"):
        check_link(parse_address("http://127.0.0.1/ada/notes"), link)
