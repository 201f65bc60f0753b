"""Describing and changing settings."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant

MUTANTS = (
    Mutant(
        "append-replaces",
        "APPEND replaces the list.",
        (
            Edit(
                "_new_value",
                "elements += [operand for operand in dict.fromkeys(operands) if operand not in elements]",
                "elements = operands",
            ),
        ),
        ("test_topics.py::test_settings_are_changed_one_by_one",),
    ),
    Mutant(
        "subtract-empties",
        "SUBTRACT leaves what was to be taken away, and takes the rest.",
        (Edit("_new_value", "element not in operands", "element in operands"),),
        ("test_topics.py::test_settings_are_changed_one_by_one",),
    ),
    Mutant(
        "set-resets-the-rest",
        "A change of one setting resets the others.",
        (Edit("change_topic", "alteration.replace", "True"),),
        ("test_topics.py::test_settings_are_changed_one_by_one",),
    ),
    Mutant(
        "legacy-change-keeps-the-rest",
        "AlterConfigs leaves the settings that it does not name as they were.",
        (Edit("change_topic", "alteration.replace", "False"),),
        ("test_topics.py::test_the_legacy_change_resets_what_it_does_not_name",),
    ),
    Mutant(
        "append-to-a-number",
        "APPEND to a setting that is no list sets it.",
        (
            Edit(
                "_new_value",
                """
                if operation.kind == SET:
                    return operation.value
                """,
                """
                is_list = setting is None or setting.type == LIST
                if operation.kind == SET or (operation.kind != DELETE and not is_list):
                    return operation.value
                """,
            ),
        ),
        ("test_topics.py::test_a_change_is_made_whole_or_not_at_all",),
    ),
    Mutant(
        "everything-is-a-default",
        "DescribeConfigs says of every setting that it is a default, and tools reset what was set.",
        (Edit("describe._entry", "synonyms[0].source if synonyms else DEFAULT_CONFIG", "DEFAULT_CONFIG"),),
        ("test_topics.py::test_every_setting_is_described_with_where_it_comes_from",),
    ),
    Mutant(
        "no-setting-is-read-only",
        "Settings that need a restart look as if they could be changed.",
        (
            Edit(
                "_is_read_only",
                "setting is None or setting.name != name or setting.mode == FIXED",
                "setting is None or setting.name != name",
            ),
        ),
        ("test_topics.py::test_settings_of_the_broker_that_need_a_restart_are_read_only",),
    ),
    Mutant(
        "changed-settings-wait-for-a-restart",
        "A changed setting of a topic is stored and shown, but does not hold.",
        (Edit("ReplicaManager.on_image", "resource_type == TOPIC", "resource_type != TOPIC"),),
        ("test_topics.py::test_a_changed_setting_holds_for_the_next_request",),
    ),
)
