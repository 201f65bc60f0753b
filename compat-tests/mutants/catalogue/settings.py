"""Describing and changing settings."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant

_ALTER = "pybroker.config.alter"
_DESCRIBE = "pybroker.config.describe"

MUTANTS = (
    Mutant(
        "append-replaces",
        "APPEND replaces the list.",
        (
            Edit(
                _ALTER,
                "        elements += [operand for operand in dict.fromkeys(operands) if operand not in elements]",
                "        elements = operands",
            ),
        ),
        ("test_topics.py::test_settings_are_changed_one_by_one",),
    ),
    Mutant(
        "subtract-empties",
        "SUBTRACT leaves what was to be taken away, and takes the rest.",
        (
            Edit(
                _ALTER,
                "elements = [element for element in elements if element not in operands]",
                "elements = [element for element in elements if element in operands]",
            ),
        ),
        ("test_topics.py::test_settings_are_changed_one_by_one",),
    ),
    Mutant(
        "set-resets-the-rest",
        "A change of one setting resets the others.",
        (
            Edit(
                _ALTER,
                "    return ConfigChange(TOPIC, alteration.resource_name, updates, alteration.replace)",
                "    return ConfigChange(TOPIC, alteration.resource_name, updates, True)",
            ),
        ),
        ("test_topics.py::test_settings_are_changed_one_by_one",),
    ),
    Mutant(
        "legacy-change-keeps-the-rest",
        "AlterConfigs leaves the settings that it does not name as they were.",
        (
            Edit(
                _ALTER,
                "    return ConfigChange(TOPIC, alteration.resource_name, updates, alteration.replace)",
                "    return ConfigChange(TOPIC, alteration.resource_name, updates, False)",
            ),
        ),
        ("test_topics.py::test_the_legacy_change_resets_what_it_does_not_name",),
    ),
    Mutant(
        "append-to-a-number",
        "APPEND to a setting that is no list sets it.",
        (
            Edit(
                _ALTER,
                "    if operation.kind == SET:\n        return operation.value",
                "    is_list = setting is None or setting.type == LIST\n"
                "    if operation.kind == SET or (operation.kind != DELETE and not is_list):\n"
                "        return operation.value",
            ),
        ),
        ("test_topics.py::test_a_change_is_made_whole_or_not_at_all",),
    ),
    Mutant(
        "everything-is-a-default",
        "DescribeConfigs says of every setting that it is a default, and tools reset what was set.",
        (
            Edit(
                _DESCRIBE,
                "    source = synonyms[0].source if synonyms else DEFAULT_CONFIG",
                "    source = DEFAULT_CONFIG",
            ),
        ),
        ("test_topics.py::test_every_setting_is_described_with_where_it_comes_from",),
    ),
    Mutant(
        "no-setting-is-read-only",
        "Settings that need a restart look as if they could be changed.",
        (
            Edit(
                _DESCRIBE,
                "    return setting is None or setting.name != name or setting.mode == FIXED",
                "    return setting is None or setting.name != name",
            ),
        ),
        ("test_topics.py::test_settings_of_the_broker_that_need_a_restart_are_read_only",),
    ),
    Mutant(
        "changed-settings-wait-for-a-restart",
        "A changed setting of a topic is stored and shown, but does not hold.",
        (
            Edit(
                "pybroker.replication.replica_manager",
                "            if resource_type == TOPIC:\n                self._reconfigure(name)",
                "            if resource_type != TOPIC:\n                self._reconfigure(name)",
            ),
        ),
        ("test_topics.py::test_a_changed_setting_holds_for_the_next_request",),
    ),
)
