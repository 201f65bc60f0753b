"""Kafka's config providers: what references find, what they must not find, and what ends the start."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from random import Random
from time import process_time

import pytest

from pybroker.config import named_files
from pybroker.config.broker import BrokerConfig
from pybroker.config.listener_settings import ListenerSettings
from pybroker.config.providers import references, resolve
from pybroker.config.resources import BROKER, AlterConfigOp
from pybroker.config.schema import ConfigError
from pybroker_protocol.errors import ErrorCode
from tests.config.config_support import Configs

PACKAGE = "org.apache.kafka.common.config.provider."
DECLARED = {
    "config.providers": "env, file,dir",
    "config.providers.env.class": f"{PACKAGE}EnvVarConfigProvider",
    "config.providers.file.class": f"{PACKAGE}FileConfigProvider",
    "config.providers.dir.class": f"{PACKAGE}DirectoryConfigProvider",
}
JAAS = "listener.name.sasl.plain.sasl.jaas.config"


def resolved(text: str, name: str = "broker.rack", **params: str) -> str:
    declared = {
        f"config.providers.{key.replace('__', '.param.').replace('_', '.')}": text for key, text in params.items()
    }
    return resolve({**DECLARED, **declared, name: text})[name]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"A": "one", "B": "${env:A}", "EMPTY": "", "QUOTED": 'x"; y'}.items():
        monkeypatch.setenv(f"CASE_{name}", value)
    monkeypatch.delenv("CASE_MISSING", raising=False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${env:CASE_A}", "one"),
        ("x${env:CASE_A}-${env:CASE_A}y", "xone-oney"),
        ("${env:CASE_EMPTY}", ""),
        ("${env:CASE_B}", "${env:A}"),  # what is put in is not looked through again
        ("${env::CASE_A}", "one"),  # an empty path
        ("${env:CASE_MISSING}", "${env:CASE_MISSING}"),
        ("${other:CASE_A}${env:CASE_A}", "${other:CASE_A}one"),
        ("${CASE_A}", "${CASE_A}"),
        ("${a${env:CASE_A}", "${a${env:CASE_A}"),  # the provider is called "a${env", as in Kafka's pattern
        ("$${env:CASE_A}", "$one"),
        ("${env:CASE_A", "${env:CASE_A"),
    ],
)
def test_a_reference_is_what_it_names_and_what_finds_nothing_stays(text: str, expected: str) -> None:
    assert resolved(text) == expected


def test_a_file_gives_its_properties(tmp_path: Path) -> None:
    file = tmp_path / "s.properties"
    file.write_text("pw = p\\u00e4ss\na.b:c=nested\n")
    assert resolved(f"${{file:{file}:pw}}") == "päss"
    assert resolved(f"${{file:{file}:none}}") == f"${{file:{file}:none}}"
    assert resolved("${file:pw}") == "${file:pw}"  # no path


def test_a_directory_gives_its_files(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("line\n")
    (tmp_path / "sub").mkdir()
    os.mkfifo(tmp_path / "fifo")
    assert resolved(f"${{dir:{tmp_path}:key}}") == "line\n"
    for key in ("sub", "fifo", "../key", "..", "", "missing", f"{tmp_path}/key"):
        assert resolved(f"${{dir:{tmp_path}:{key}}}") == f"${{dir:{tmp_path}:{key}}}"


@pytest.mark.parametrize("kind", ["file", "dir"])
def test_what_lies_outside_of_the_allowed_paths_is_not_found(tmp_path: Path, kind: str) -> None:
    inside, outside = tmp_path / "in", tmp_path / "in-side"
    for each in (inside, outside):
        each.mkdir()
        (each / "f").write_text("f=found\n")

    def look(path: str) -> bool:
        text = f"${{{kind}:{path}:f}}"
        found = resolved(text, **{f"{kind}__allowed_paths": f"{inside}/"})
        assert found in (text, "found", "f=found\n")
        return found != text

    name = "/f" if kind == "file" else ""
    assert look(f"{inside}{name}")
    assert not look(f"{outside}{name}")
    assert not look(f"{inside}/../in-side{name}")
    assert not look(f"in-side{name}")


@pytest.mark.parametrize("kind", ["file", "dir"])
def test_no_way_up_from_a_link_leaves_the_allowed_paths(tmp_path: Path, kind: str) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    for each in (inside, outside, outside / "deep"):
        each.mkdir()
    (outside / "f").write_text("f=found\n")
    (inside / "f").write_text("f=own\n")
    (inside / "link").symlink_to(outside / "deep")
    path = f"{inside}/link/.." + ("/f" if kind == "file" else "")
    found = resolved(f"${{{kind}:{path}:f}}", **{f"{kind}__allowed_paths": str(inside)})
    assert found in ("own", "f=own\n")


@pytest.mark.parametrize("text", ["${ env:CASE_A}", "${env :CASE_A}", "${${env:CASE_A}}", "x${y${env:CASE_A}"])
def test_what_only_looks_like_a_reference_is_no_secret(text: str) -> None:
    with pytest.raises(ConfigError, match="must not be the secret"):
        resolved(text, "ssl.key.password")


def test_a_password_that_looks_like_a_reference_is_not_told() -> None:
    with pytest.raises(ConfigError) as refusal:
        resolved("a${b:hunter2}", "ssl.key.password")
    assert "hunter2" not in str(refusal.value)


def test_a_variable_that_is_not_on_the_list_is_not_found() -> None:
    assert resolved("${env:CASE_A}", env__allowlist_pattern="CASE_.*") == "one"
    assert resolved("${env:CASE_A}", env__allowlist_pattern="CASE_") == "${env:CASE_A}"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"config.providers": "v", "config.providers.v.class": "com.Vault"}, "providers.v.class: pybroker loads no"),
        ({"config.providers": "env,x"}, "config.providers names x, but config.providers.x.class is not set"),
        ({"config.providers.env.param.allowlist.patern": "x"}, "there is no such parameter, but allowlist.pattern"),
        ({"config.providers.env.param.allowlist.pattern": "("}, "it is no regular expression"),
        ({"config.providers.file.param.allowed.paths": "relative"}, "Path relative is not absolute"),
        ({"config.providers.dir.param.allowed.paths": "/no/where"}, "Path /no/where does not exist"),
        ({"broker.rack": "${env:path:CASE_A}"}, "broker.rack: Path is not supported for EnvVarConfigProvider"),
        ({"broker.rack": "${file:/no/where:key}"}, "broker.rack: /no/where cannot be read"),
        ({"broker.rack": "${file:/dev/zero:key}"}, "broker.rack: /dev/zero is no regular file"),
        ({JAAS: 'x user_a="${env:CASE_MISSING}";'}, f"{JAAS}: ${{env:CASE_MISSING}} finds nothing"),
        ({"delegation.token.secret.key": "${vault:p:k}"}, "names a provider that config.providers does not"),
    ],
)  # fmt: skip
def test_what_cannot_be_had_ends_the_start_and_names_its_setting(settings: Mapping[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.load(settings=[*DECLARED.items(), *settings.items()])
    assert message in str(caught.value)


def test_no_text_of_a_reference_becomes_a_secret_where_no_provider_is_named() -> None:
    with pytest.raises(ConfigError, match="its text must not be the secret"):
        BrokerConfig.load(settings=[("delegation.token.secret.key", "${env:CASE_A}")])


def test_a_binary_file_is_no_value_and_no_bytes_of_it_are_told(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"hunter2\xff\0")
    for text in (f"${{dir:{tmp_path}:key}}", f"${{file:{tmp_path}/key:hunter2}}"):
        with pytest.raises(ConfigError) as caught:
            resolved(text)
        assert "is not UTF-8" in str(caught.value)
        assert "\\xff" not in str(caught.value)


def test_a_reference_that_stays_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    resolved("${env:CASE_MISSING}")
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == "broker.rack: ${env:CASE_MISSING} finds nothing: it stays as it is"


def test_values_count_everywhere_and_secrets_are_told_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    settings = {
        **DECLARED,
        "listeners": "SASL://127.0.0.1:0",
        "listener.security.protocol.map": "SASL:SASL_PLAINTEXT",
        "broker.rack": "${env:CASE_A}",
        JAAS: 'x required user_a="${env:CASE_A}";',
    }
    with caplog.at_level(logging.DEBUG):
        config = BrokerConfig.load(settings=list(settings.items()))
    assert ListenerSettings(config, "SASL").get("sasl.jaas.config", "PLAIN") == 'x required user_a="one";'
    assert config["broker.rack"] == "one"
    assert not [record for record in caplog.records if "one" in record.getMessage()]
    configs = Configs(config.static)
    assert configs.entry(BROKER, "1", JAAS).value is None
    assert configs.entry(BROKER, "1", "broker.rack").value == "one"


@pytest.mark.parametrize("name", ["log.retention.ms", JAAS, "listener.name.x.ssl.keystore.password", "my.plugin"])
def test_who_may_alter_settings_has_no_way_to_the_brokers_environment(name: str) -> None:
    configs = Configs({**DECLARED})
    outcome = configs.alter(BROKER, "1", AlterConfigOp(name, "${env:CASE_A}"))
    assert outcome.error_code == ErrorCode.INVALID_REQUEST
    assert "references to config providers" in (outcome.error_message or "")
    assert configs.overrides(BROKER, "1") == {}


def test_a_secret_of_an_older_version_that_was_never_resolved_is_none() -> None:
    config = BrokerConfig({})
    config.apply_dynamic({}, {JAAS: 'x user_a="${env:CASE_A}";'})
    with pytest.raises(ConfigError, match="references to config providers"):
        ListenerSettings(config, "sasl").get("sasl.jaas.config", "PLAIN")


def test_any_text_is_looked_through_in_linear_time_and_comes_back_whole() -> None:
    random = Random(7)
    for _ in range(2_000):
        text = "".join(random.choice("${}:ab") for _ in range(random.randrange(20)))
        found = list(references(text))
        assert all(text[each.start : each.end].startswith("${") for each in found)
        assert resolve({"broker.rack": text})["broker.rack"] == text
    begun = process_time()
    for hostile in ("${" * 100_000, "${" + ":" * 100_000, "${a:b" * 50_000, "${a:" * 50_000 + "}"):
        list(references(hostile))
    assert process_time() - begun < 5, "a second reading of each beginning takes minutes"


def test_a_huge_variable_is_a_value_and_a_huge_file_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CASE_A", "x" * 100_000)
    assert len(resolved("${env:CASE_A}")) == 100_000
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(named_files.NAMED_FILE_BYTES_MAX + 1)
    with pytest.raises(ConfigError, match="more than"):
        resolved(f"${{file:{tmp_path}/huge:key}}")
