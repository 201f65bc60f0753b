"""JAAS lines are read as Kafka reads them, and no error quotes what may be a password."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.config.jaas import JaasError, LoginModule, login_of, parse, text_of

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f'{PLAIN} required user_alice="secret-1" user_bob="b";', {"user_alice": "secret-1", "user_bob": "b"}),
        (f"{PLAIN} required username='a' password='it\"s';", {"username": "a", "password": 'it"s'}),
        (f"{PLAIN} REQUIRED\n  user_a=plain-word_1.$\n;", {"user_a": "plain-word_1.$"}),
        (f'{PLAIN} required user_a="with \\"quotes\\", \\\\ and \\t";', {"user_a": 'with "quotes", \\ and \t'}),
        (f'{PLAIN} required /* all */ user_a="x" // the last\n;', {"user_a": "x"}),
        (f'{PLAIN} optional user_a="";', {"user_a": ""}),
        (f'{PLAIN} optional user_a="\\9\\1018";', {"user_a": "9A8"}),  # 9 is no digit of base 8
        (f'{PLAIN} required user_a="a;b=c";', {"user_a": "a;b=c"}),
        (f"{PLAIN} required;", {}),
    ],
)
def test_an_entry_is_read(text: str, options: dict[str, str]) -> None:
    (module,) = parse(text)
    assert (module.name, module.options) == (PLAIN, options)


def test_several_entries_are_read() -> None:
    assert parse("a required; b.C sufficient x=y;") == [
        LoginModule("a", "REQUIRED", {}),
        LoginModule("b.C", "SUFFICIENT", {"x": "y"}),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Login module not specified"),
        ("   // nothing", "Login module not specified"),
        (PLAIN, "control flag not specified"),
        (f"{PLAIN} hunter2;", "Invalid login module control flag"),
        (f'{PLAIN} required user_a="hunter2"', "not terminated by semi-colon"),
        (f'{PLAIN} required user_a="hunter2;', "a quote without its end"),
        (f"{PLAIN} required user_a;", "key=value"),
        (f"{PLAIN} required user_a=;", "Value not specified for key 'user_a'"),
        (f"{PLAIN} required user_a=hunter2!;", "unexpected character"),
        (f'{PLAIN} required = "hunter2";', "key=value"),
    ],
)
def test_what_is_no_entry_is_refused_and_not_quoted(text: str, message: str) -> None:
    with pytest.raises(JaasError, match=message) as caught:
        parse(text)
    assert "hunter2" not in str(caught.value)


@given(st.text(), st.dictionaries(st.text(), st.text(), max_size=4))
def test_what_is_written_is_read_whatever_is_in_it(name: str, options: dict[str, str]) -> None:
    module = LoginModule(name, "REQUIRED", options)
    assert parse(text_of(module)) == [module]


def test_a_password_of_several_lines_stays_one_token() -> None:
    options = {"username": "a", "password": 'x\r\n"; other.Module required y="'}
    assert login_of(text_of(LoginModule(PLAIN, "REQUIRED", options))) == ("a", options["password"], False)


def test_a_login_by_a_delegation_token_is_told_apart_where_it_is_taken() -> None:
    line = f'{PLAIN} required username=id password=hunter2 tokenauth="True";'
    found = login_of(line, takes_tokens=True)
    assert found == ("id", "hunter2", True)
    assert "hunter2" not in f"{found}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{PLAIN} required username=a;", "a username and a password"),
        (f"{PLAIN} required username=a password=hunter2; b required;", "one login module"),
        (f'{PLAIN} required username=a password=hunter2 tokenauth="True";', "delegation tokens"),
    ],
)
def test_a_line_that_is_no_login_of_a_user_is_refused_and_not_quoted(text: str, message: str) -> None:
    with pytest.raises(JaasError, match=message) as caught:
        login_of(text)
    assert "hunter2" not in str(caught.value)


def test_an_entry_is_printed_without_its_passwords() -> None:
    assert "hunter2" not in f"{parse(f'{PLAIN} required password=hunter2;')}"
