"""What references have found is in no text that is shown: not whole, and of a URL not in parts."""

from __future__ import annotations

import logging

import pytest

from pybroker.connectors.declared.config_keys import Key, KeyType
from pybroker.connectors.declared.plugin_kinds import kind_named
from pybroker.connectors.declared.secret_texts import hidden as shown
from pybroker.connectors.state.hidden_values import HiddenValues
from pybroker.connectors.state.worker_settings import Found

URL = "https://ann:wonder7land@h:8443/items?page=1&token=hun%20ter&x=y"


def hidden(**found: str) -> HiddenValues:
    kind = kind_named("HttpSource")
    assert kind is not None
    values = HiddenValues()
    values.add([Found(key.replace("_", "."), f"${{file:/s:{key}}}", value) for key, value in found.items()], kind.keys)
    return values


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"{URL} answers 500", "${file:/s:url} answers 500"),
        (f"{URL}&after=7 answers 500", "${file:/s:url}&after=7 answers 500"),
        ("no control characters in '/items?page=1&token=hun%20ter&x=y'", "in '/items?${file:/s:url}'"),
        ("token hun ter, or hun%20ter", "token ${file:/s:url}, or ${file:/s:url}"),
        ("login wonder7land", "login ${file:/s:url}"),
        ("page 1 of x=y", "page 1 of x=y"),
    ],
)
def test_a_url_is_replaced_whole_and_in_its_secret_parts(text: str, told: str) -> None:
    assert hidden(url=URL).told(text).endswith(told)


def test_a_value_is_replaced_without_the_newline_that_its_file_ends_with() -> None:
    """A setting is used without the blanks around it."""
    assert hidden(http_authorization="Bearer wonder7land\n").told("'Bearer wonder7land'") == (
        "'${file:/s:http_authorization}'"
    )


def test_the_longest_value_is_replaced_first() -> None:
    values = hidden(url="http://host/abcdefgh", topic="abcdefgh")
    assert values.told("http://host/abcdefgh, abcdefgh") == "${file:/s:url}, ${file:/s:topic}"


def test_a_short_value_is_replaced_as_a_word_alone() -> None:
    assert hidden(http_authorization="ab").told("ab, tab, ab1") == "${file:/s:http_authorization}, tab, ab1"


def test_numbers_and_choices_are_no_secrets() -> None:
    assert hidden(tasks_max="1", errors_tolerance="all", poll_interval_ms="").told("1 of all") == "1 of all"


def test_lines_of_the_log_and_tracebacks_have_no_value(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("any.other.logger")
    values = hidden(url=URL)
    caplog.handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    with values.kept_from_log():
        log.warning("%s: %s answers %d", "a", URL, 500)
        try:
            raise ValueError(f"unknown url: {URL}")
        except ValueError:
            log.exception("GET")
    assert "hun" not in caplog.text
    assert "WARNING a: ${file:/s:url} answers 500" in caplog.text
    assert "ValueError: unknown url: ${file:/s:url}" in caplog.text
    log.warning("%s", URL)
    assert "hun" in caplog.text


@pytest.mark.parametrize(
    ("url", "is_shown"),
    [
        ("https://wonder7land@h/items", False),
        ("https://ann:wonder7land@h", False),
        ("https://ann:wonder?7land@h", False),
        ("https://${env:U}:wonder7land@h", False),
        ("https://ann:${env:P}@h", True),
        ("https://${env:T}@h", True),
        ("https://h/items?token=x", False),
        ("https://h/items?by=a@b", True),
        ("https://h/~a@b", True),
        ("https://h#a@b", True),
    ],
)
def test_a_url_with_a_user_is_not_quoted(url: str, is_shown: bool) -> None:
    (told,) = Key("url", KeyType.STRING, "", check=lambda _: "it is none").errors(url)
    assert told == f"Invalid value {url if is_shown else '[hidden]'} for configuration url: it is none"
    assert shown("other.url", url) == (url if is_shown else "[hidden]")


PRIVATE_KEY = "-----BEGIN PRIVATE KEY-----\nhunter2"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("value.converter.basic.auth.user.info", "u:hunter2"),
        ("consumer.override.ssl.keystore.key", "hunter2"),
        ("azblob.account.key", "hunter2"),
        ("some.api.key", "hunter2"),
        ("some.apikey", "hunter2"),
        ("aws.access.key", "hunter2"),
        ("gcs.credentials.json", "hunter2"),
        ("connection.pwd", "hunter2"),
        ("mail.pass", "hunter2"),
        ("key.passphrase", "hunter2"),
        ("http.headers.authorization", "hunter2"),
        ("transforms.mask.secret", "hunter2"),
        ("certificates", PRIVATE_KEY),
        ("certificates", PRIVATE_KEY.replace("PRIVATE", "ENCRYPTED PRIVATE")),
        ("other.url", "https://h/x?api_key=hunter2"),
        ("other.url", "https://h/x?page=1&api%5Fkey=hunter2"),
        ("other.url", "https://h/x?key=hunter2"),
        ("other.url", "https://h/x?X-Amz-Signature=hunter2"),
        ("other.urls", "https://a,https://u:hunter2@h"),
    ],
)
def test_key_that_is_not_known_here_is_a_secret_by_its_name_or_its_value(name: str, text: str) -> None:
    assert shown(name, text) == "[hidden]"
    assert shown(name, "${file:/p:k}") == "${file:/p:k}"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("value.converter.basic.auth.credentials.source", "USER_INFO"),
        ("message.key.columns", "a:b"),
        ("ssl.keystore.location", "/k.pem"),
        ("transforms.maskTokens.type", "org.example.Mask"),
        ("ssl.truststore.certificates", "-----BEGIN CERTIFICATE-----"),
        ("compass", "north"),
        ("other.url", "https://h/x?sort_key=a&page=1"),
        ("other.url", "https://h/x?api_key=${file:/p:k}&page=1"),
        ("other.url", "mongodb://ann:${file:/p:k}@h"),
    ],
)
def test_what_is_no_secret_is_shown(name: str, text: str) -> None:
    assert shown(name, text) == text


def test_key_of_a_url_that_a_reference_has_found_is_replaced() -> None:
    assert hidden(url="https://h/x?key=wonder7land").told("no such key: wonder7land") == "no such key: ${file:/s:url}"
