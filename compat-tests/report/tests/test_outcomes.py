"""The collector of outcomes: every test once, with its client and parameter, whichever process ran it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conformance import outcomes, subjects
from harness import results

pytest_plugins = ["pytester"]

SUITE = """
    import os
    import pytest

    @pytest.fixture
    def client(request):
        return request.param

    @pytest.mark.parametrize(
        ("client", "codec"), [("franz-go", "gzip"), ("franz-go", "zstd"), ("kafkajs", "gzip")], indirect=["client"]
    )
    def test_batches_are_read(client, codec):
        assert (client, codec) != ("kafkajs", "gzip"), "kafkajs lost <a record>"

    @pytest.mark.parametrize("library", ["kafkajs", pytest.param("sarama", marks=pytest.mark.skip(reason="not built"))])
    def test_clients_go_on(library):
        pytest.skip("it has no such call")

    @pytest.fixture
    def breaks_at_the_end():
        yield
        raise RuntimeError("the end is not clean")

    def test_tool(breaks_at_the_end):
        pass

    @pytest.mark.parametrize("flag", [object()], ids=["odd"])
    def test_of_no_client(flag):
        pass
"""
NOT_SET = """
    import pytest

    @pytest.fixture
    def client(request):
        return request.param

    @pytest.mark.parametrize(("client", "partitioner"), [], indirect=["client"])
    def test_partitioner_is_its_own(client, partitioner):
        pass
"""
DIES = """
    import os

    def test_dies():
        os._exit(3)
"""


@pytest.fixture
def found(pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a suite with the plugin and returns what it left."""
    monkeypatch.setattr(results, "DIRECTORY", tmp_path / "results")
    monkeypatch.setattr(subjects, "all_facts", lambda: {"broker": {"make": "other"}, "clients": []})

    def run(source: str, *arguments: str, **options: Any) -> dict[str, Any]:
        pytester.makepyfile(test_some_with_clients=source)
        # A session that may run tests again leaves a thread behind that listens for its workers.
        plugins = ["-p", "conformance.outcomes", "-p", "no:randomly", "-p", "no:rerunfailures"]
        pytester.runpytest_inprocess(*plugins, *arguments, **options)
        content: dict[str, Any] = results.read(outcomes.PART)
        return content

    return run


def by_test(content: dict[str, Any]) -> dict[tuple[str, str | None, str], str]:
    return {
        (outcome["scenario"], outcome["client"], outcome["parameter"]): outcome["outcome"]
        for outcome in content["outcomes"]
    }


@pytest.mark.parametrize("processes", ["0", "1"])
def test_every_test_is_there_once_with_its_client_and_parameter(found: Any, processes: str) -> None:
    content = found(SUITE, "-n", processes)
    assert by_test(content) == {
        ("test_batches_are_read", "franz-go", "gzip"): "passed",
        ("test_batches_are_read", "franz-go", "zstd"): "passed",
        ("test_batches_are_read", "kafkajs", "gzip"): "failed",
        ("test_clients_go_on", "kafkajs", ""): "skipped",
        ("test_clients_go_on", "sarama", ""): "skipped",
        ("test_tool", None, ""): "failed",
        ("test_of_no_client", None, "odd"): "passed",
    }
    reasons = {outcome["scenario"] + (outcome["client"] or ""): outcome["reason"] for outcome in content["outcomes"]}
    assert "kafkajs lost <a record>" in reasons["test_batches_are_readkafkajs"]
    assert reasons["test_clients_go_onkafkajs"] == "it has no such call"
    assert reasons["test_clients_go_onsarama"] == "not built"
    assert "the end is not clean" in reasons["test_tool"]
    assert {outcome["module"] for outcome in content["outcomes"]} == {"test_some_with_clients"}
    assert content["exit_status"] == 1


def test_test_whose_process_dies_failed(found: Any) -> None:
    (outcome,) = found(DIES, "-n", "1", "--max-worker-restart", "0")["outcomes"]
    assert (outcome["scenario"], outcome["outcome"]) == ("test_dies", "failed")


def test_module_that_cannot_be_collected_failed(found: Any) -> None:
    (outcome,) = found("import nothing_of_that_name", "-n", "0")["outcomes"]
    assert (outcome["module"], outcome["outcome"]) == ("test_some_with_clients", "failed")
    assert "nothing_of_that_name" in outcome["reason"]


@pytest.mark.parametrize("processes", ["0", "1"])
def test_scenario_of_no_client_of_the_run_is_skipped_and_nothing_ran(found: Any, processes: str) -> None:
    content = found(NOT_SET, "-n", processes)
    assert by_test(content) == {("test_partitioner_is_its_own", None, ""): "skipped"}
    assert content["exit_status"] == pytest.ExitCode.NO_TESTS_COLLECTED


def test_client_that_could_not_be_built_failed(found: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(outcomes.BUILDS_FAILED, '{"rskafka": "no such crate"}')
    content = found(NOT_SET, "-n", "0")
    assert by_test(content)["test_client_is_built", "rskafka", ""] == "failed"
    assert content["outcomes"][0]["reason"] == "no such crate"
    assert content["exit_status"] == pytest.ExitCode.TESTS_FAILED


TEARS_DOWN = """
    import os
    import signal
    import pytest

    @pytest.fixture(scope="session")
    def broker():
        yield
        os.kill(os.getpid(), signal.SIGTERM)  # again, as timeout(1) does
        open({path!r}, "w").close()

    def test_ended(broker):
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("went on")

    def test_after_it():
        raise AssertionError("went on")
"""


def test_sigterm_tears_fixtures_down(found: Any, tmp_path: Path) -> None:
    done = tmp_path / "done"
    content = found(TEARS_DOWN.format(path=str(done)), "-n", "0", no_reraise_ctrlc=True)
    assert done.exists()
    assert content["exit_status"] == pytest.ExitCode.INTERRUPTED
    assert len(content["outcomes"]) < 2


def test_test_that_never_ended_did_not_pass() -> None:
    begun = outcomes.Outcome("module", "scenario")
    begun.add(pytest.TestReport("id", ("", 0, ""), {}, "passed", None, "setup"))
    assert begun.outcome not in ("passed", "skipped")
    begun.add(pytest.TestReport("id", ("", 0, ""), {}, "passed", None, "call"))
    assert begun.outcome == "passed"


def test_results_of_an_earlier_run_can_be_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "DIRECTORY", tmp_path / "results")
    assert results.read("mutants") is None
    results.write("mutants", [1])
    assert results.read("mutants") == [1]
    results.forget("mutants")
    assert results.read("mutants") is None
