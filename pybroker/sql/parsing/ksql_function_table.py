"""The functions of ksqlDB's that DuckDB or Spark have by another name, or as an expression: a function is one row.

Functions that are not here are DuckDB's, and sqlglot has Spark's names of those.  Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pybroker.sql.parsing.java_patterns import local_pattern, read_pattern, written_pattern


@dataclass(frozen=True, slots=True)
class Function:
    """In both expressions ``_0``, ``_1`` and so on are the arguments.  Without ``spark`` sqlglot translates DuckDB's.

    ``pattern`` makes DuckDB's pattern of the second argument, which is a text with one of Java's.
    """

    duckdb: str
    spark: str = ""
    is_aggregate: bool = False
    pattern: Callable[[str], str] | None = None


# By haversine, in km unless a fifth argument says miles.
_DISTANCE: Final = (
    "2 * {} * asin(sqrt(power(sin(radians(_2 - _0) / 2), 2) "
    "+ cos(radians(_0)) * cos(radians(_2)) * power(sin(radians(_3 - _1) / 2), 2)))"
)
# A time, or so many ms since 1970: ksqlDB's ROWTIME and BIGINT columns.
_TIME_OF_DUCKDB: Final = (
    "coalesce(make_timestamp_ms(TRY_CAST(CAST(_0 AS VARCHAR) AS BIGINT)), TRY_CAST(CAST(_0 AS VARCHAR) AS TIMESTAMP))"
)
_TIME_OF_SPARK: Final = (
    "coalesce(timestamp_millis(TRY_CAST(CAST(_0 AS STRING) AS BIGINT)), TRY_CAST(CAST(_0 AS STRING) AS TIMESTAMP))"
)
_TO_ZONE: Final = "({} AT TIME ZONE 'UTC') AT TIME ZONE _2"
# DuckDB reads a zone's offset, and not the letter that stands for none.
_READ: Final = "CAST(strptime(regexp_replace(_0, 'Z$', '+00'), _1) AS TIMESTAMP)"
_READ_IN_ZONE: Final = f"({_READ} AT TIME ZONE _2) AT TIME ZONE 'UTC'"
_SPARK_IN_ZONE: Final = "to_utc_timestamp(to_timestamp(_0, _1), _2)"
_DAY_0: Final = "DATE '1970-01-01'"


def _masked(text: str) -> str:
    found = f"regexp_replace({text}, '[^\\p{{Lu}}\\p{{Ll}}\\p{{Nd}}]', '-', 'g')"
    for kind, mark in (("Lu", "X"), ("Ll", "x"), ("Nd", "n")):
        found = f"regexp_replace({found}, '\\p{{{kind}}}', '{mark}', 'g')"
    return found


# Of a list the first one of each value, NULL among them, in their order.  The names of lambdas are no column's.
_FIRST_ONES: Final = "list_filter({0}, lambda __item, __at: list_position({0}, __item) = __at{1})"
# Where the second text begins in the first one: behind a place, or, of one below 0, ending so far before the end.
_PLACE_FITS: Final = "CASE WHEN _2 < 0 THEN __at + length(_1) <= length(_0) + _2 + 2 ELSE __at >= _2 END"
_IS_PLACE: Final = f"substr(_0, __at, length(_1)) = _1 AND {_PLACE_FITS}"
_PLACES: Final = f"list_filter(range(1, length(_0) + 1), lambda __at: {_IS_PLACE})"
_PLACES_OF_SPARK: Final = f"filter(sequence(1, greatest(length(_0), 1)), __at -> {_IS_PLACE})"
# ``list_extract`` is translated after these, for Spark too: a place that is not there ends no query then.
_FIRST: Final = "coalesce(list_extract({}, CASE WHEN _2 < 0 THEN -1 ELSE 1 END), 0)"
# What most ask for, without a look at each place of a long text.
_FIRST_BEHIND: Final = "CASE WHEN _2 > 0 AND _2 <= length(_0) THEN coalesce(nullif({}, 0) {}, 0) ELSE {} END"
_NTH: Final = (
    "coalesce(list_extract({}, CAST(CASE WHEN _3 < 1 THEN NULL WHEN _2 < 0 THEN 0 - _3 ELSE _3 END AS INT)), 0)"
)

# Parts of a text with a key and a value each, of which the last one of a key counts.
_SPLITS: Final = "_1 <> '' AND _2 <> '' AND _1 <> _2"
_PAIRS: Final = "list_filter(string_split(_0, _1), lambda __pair: contains(__pair, _2))"
_PAIRS_OF_SPARK: Final = "filter(split(_0, concat('\\\\Q', _1, '\\\\E')), __pair -> contains(__pair, _2))"
_PAIR_KEY: Final = "split_part(__pair, _2, 1)"

_LEFT, _RIGHT = "left(_0, _1)", "right(_0, _1)"
_WITHOUT_LEFT, _WITHOUT_RIGHT = "substr(_0, _1 + 1)", "left(_0, greatest(length(_0) - _1, 0))"

# By name and number of arguments.
FUNCTIONS: Final[dict[tuple[str, int], Function]] = {
    ("latest_by_offset", 1): Function(
        "arg_max(_0, row(_timestamp, _offset))", "max_by(_0, struct(_timestamp, _offset))", is_aggregate=True
    ),
    ("earliest_by_offset", 1): Function(
        "arg_min(_0, row(_timestamp, _offset))", "min_by(_0, struct(_timestamp, _offset))", is_aggregate=True
    ),
    ("collect_list", 1): Function("list(_0)", "collect_list(_0)", is_aggregate=True),
    ("collect_set", 1): Function("list(DISTINCT _0)", "collect_set(_0)", is_aggregate=True),
    ("count_distinct", 1): Function("count(DISTINCT _0)", "approx_count_distinct(_0)", is_aggregate=True),
    ("mean", 1): Function("avg(_0)", "avg(_0)", is_aggregate=True),
    ("correlation", 2): Function("corr(_0, _1)", is_aggregate=True),
    ("stddev_sample", 1): Function("stddev_samp(_0)", is_aggregate=True),
    ("topk", 2): Function("max(_0, _1)", "slice(sort_array(collect_list(_0), false), 1, _1)", is_aggregate=True),
    ("topkdistinct", 2): Function(
        "list_slice(list_reverse_sort(list(DISTINCT _0)), 1, _1)",
        "slice(sort_array(collect_set(_0), false), 1, _1)",
        is_aggregate=True,
    ),
    ("as_value", 1): Function("_0"),
    ("geo_distance", 4): Function(_DISTANCE.format(6371)),
    ("geo_distance", 5): Function(_DISTANCE.format("CASE WHEN lower(_4) LIKE 'mi%' THEN 3959 ELSE 6371 END")),
    # Texts and JSON in them.
    ("initcap", 1): Function(
        "array_to_string(list_transform(string_split(_0, ' '), "
        "lambda __word: upper(left(__word, 1)) || lower(substr(__word, 2))), ' ')",
        "initcap(_0)",
    ),
    ("instr", 2): Function("strpos(_0, _1)"),
    ("instr", 3): Function(
        _FIRST_BEHIND.format("strpos(substr(_0, _2), _1)", "+ _2 - 1", _FIRST.format(_PLACES)),
        _FIRST_BEHIND.format("locate(_1, _0, _2)", "", _FIRST.format(_PLACES_OF_SPARK)),
    ),
    ("instr", 4): Function(_NTH.format(_PLACES), _NTH.format(_PLACES_OF_SPARK)),
    ("mask", 1): Function(_masked("_0")),
    ("mask_left", 2): Function(f"{_masked(_LEFT)} || {_WITHOUT_LEFT}"),
    ("mask_right", 2): Function(f"{_WITHOUT_RIGHT} || {_masked(_RIGHT)}"),
    ("mask_keep_left", 2): Function(f"{_LEFT} || {_masked(_WITHOUT_LEFT)}"),
    ("mask_keep_right", 2): Function(f"{_masked(_WITHOUT_RIGHT)} || {_RIGHT}"),
    ("regexp_split_to_array", 2): Function("regexp_split_to_array(_0, _1)", "split(_0, _1)"),
    ("split_to_map", 3): Function(
        f"CASE WHEN {_SPLITS} THEN map_from_entries(list_transform(list_filter({_PAIRS}, lambda __pair, __at: "
        f"list_position(list_reverse(list_transform({_PAIRS}, lambda __pair: {_PAIR_KEY})), {_PAIR_KEY}) "
        f"= length({_PAIRS}) - __at + 1), lambda __pair: {{'k': {_PAIR_KEY}, 'v': split_part(__pair, _2, 2)}})) END",
        f"CASE WHEN {_SPLITS} THEN map_from_entries(transform("
        f"array_distinct(transform({_PAIRS_OF_SPARK}, __pair -> {_PAIR_KEY})), __key -> struct(__key AS k, split_part("
        f"list_extract(filter({_PAIRS_OF_SPARK}, __pair -> {_PAIR_KEY} = __key), -1), _2, 2) AS v))) END",
    ),
    ("extractjsonfield", 2): Function(
        "CASE WHEN json_valid(_0) THEN json_extract_string(_0, _1) END", "get_json_object(_0, _1)"
    ),
    ("json_array_contains", 2): Function(
        "coalesce(CASE WHEN json_valid(_0) THEN list_contains(CAST(from_json(_0, '[\"VARCHAR\"]') AS VARCHAR[]), "
        "CAST(_1 AS VARCHAR)) END, false)",
        "coalesce(array_contains(from_json(_0, 'array<string>'), CAST(_1 AS STRING)), false)",
    ),
    ("to_json_string", 1): Function("CAST(to_json(_0) AS VARCHAR)", "to_json(_0)"),
    # Lists and maps.
    ("array_distinct", 1): Function(_FIRST_ONES.format("_0", ""), "array_distinct(_0)"),
    ("array_except", 2): Function(
        f"CASE WHEN _1 IS NOT NULL THEN {_FIRST_ONES.format('_0', ' AND list_position(_1, __item) IS NULL')} END",
        "array_except(_0, _1)",
    ),
    ("array_intersect", 2): Function(
        f"CASE WHEN _1 IS NOT NULL THEN {_FIRST_ONES.format('_0', ' AND list_position(_1, __item) IS NOT NULL')} END",
        "array_intersect(_0, _1)",
    ),
    ("array_remove", 2): Function(
        "list_filter(_0, lambda __item: __item IS DISTINCT FROM _1)", "filter(_0, __item -> NOT __item <=> _1)"
    ),
    ("array_union", 2): Function(
        f"CASE WHEN _0 IS NOT NULL AND _1 IS NOT NULL THEN {_FIRST_ONES.format('list_concat(_0, _1)', '')} END",
        "array_union(_0, _1)",
    ),
    ("slice", 3): Function("list_slice(_0, _1, _2)"),
    ("as_map", 2): Function("map(_0, _1)"),
    ("map_union", 2): Function(
        "map_concat(_0, _1)",
        "coalesce(map_concat(map_filter(_0, (k, v) -> NOT array_contains(map_keys(_1), k)), _1), _0, _1)",
    ),
    # Times.  ``unix_timestamp`` and ``from_unixtime`` have seconds to Spark.
    ("unix_timestamp", 0): Function("epoch_ms(CAST(now() AS TIMESTAMP))", "unix_millis(current_timestamp())"),
    ("unix_timestamp", 1): Function("epoch_ms(CAST(_0 AS TIMESTAMP))", "unix_millis(CAST(_0 AS TIMESTAMP))"),
    ("unix_date", 0): Function(f"current_date - {_DAY_0}", "unix_date(current_date())"),
    ("unix_date", 1): Function(f"CAST(_0 AS DATE) - {_DAY_0}", "unix_date(CAST(_0 AS DATE))"),
    ("from_days", 1): Function(f"{_DAY_0} + CAST(_0 AS INTEGER)", "date_from_unix_date(_0)"),
    ("from_unixtime", 1): Function(_TIME_OF_DUCKDB, _TIME_OF_SPARK),
    ("convert_tz", 3): Function(
        "(_0 AT TIME ZONE _1) AT TIME ZONE _2", "from_utc_timestamp(to_utc_timestamp(_0, _1), _2)"
    ),
    ("timestamptostring", 2): Function(
        f"strftime({_TIME_OF_DUCKDB}, _1)", f"date_format({_TIME_OF_SPARK}, _1)", pattern=written_pattern
    ),
    ("timestamptostring", 3): Function(
        f"strftime({_TO_ZONE.format(_TIME_OF_DUCKDB)}, _1)",
        f"date_format(from_utc_timestamp({_TIME_OF_SPARK}, _2), _1)",
        pattern=local_pattern,
    ),
    ("format_timestamp", 2): Function(
        "strftime(CAST(_0 AS TIMESTAMP), _1)", "date_format(CAST(_0 AS TIMESTAMP), _1)", pattern=written_pattern
    ),
    ("format_timestamp", 3): Function(
        f"strftime({_TO_ZONE.format('CAST(_0 AS TIMESTAMP)')}, _1)",
        "date_format(from_utc_timestamp(CAST(_0 AS TIMESTAMP), _2), _1)",
        pattern=local_pattern,
    ),
    ("format_date", 2): Function(
        "strftime(CAST(_0 AS DATE), _1)", "date_format(CAST(_0 AS DATE), _1)", pattern=written_pattern
    ),
    ("parse_timestamp", 2): Function(_READ, "to_timestamp(_0, _1)", pattern=read_pattern),
    ("parse_timestamp", 3): Function(_READ_IN_ZONE, _SPARK_IN_ZONE, pattern=read_pattern),
    ("stringtotimestamp", 2): Function(f"epoch_ms({_READ})", "unix_millis(to_timestamp(_0, _1))", pattern=read_pattern),
    ("stringtotimestamp", 3): Function(
        f"epoch_ms({_READ_IN_ZONE})", f"unix_millis({_SPARK_IN_ZONE})", pattern=read_pattern
    ),
    ("parse_date", 2): Function(f"CAST({_READ} AS DATE)", "to_date(_0, _1)", pattern=read_pattern),
}

# What does the same as a function that is not there.
INSTEAD: Final = {
    "attr": "any_value(x)",
    "elt": "list_extract([x, y], n)",
    "encode": "from_base64(x), to_base64(x), hex(x) and unhex(x)",
    "entries": "map_entries(m)",
    "field": "list_position([x, y], z)",
    "format_time": "strftime(x, '%H:%M:%S')",
    "from_bytes": "decode(x), to_base64(x) or hex(x)",
    "is_json_string": "json_valid(x)",
    "json_concat": "json_merge_patch(x, y)",
    "json_records": 'from_json(x, \'{"field": "VARCHAR"}\')',
    "parse_time": "strptime(x, '%H:%M:%S')",
    "to_bytes": "encode(x), from_base64(x) or unhex(x)",
    "url_decode_param": "url_decode(x)",
    "url_encode_param": "url_encode(x)",
    **{
        f"url_extract_{part}": "regexp_extract(x, '^([a-z]+)://([^/:]+)', 2)"
        for part in ("fragment", "host", "parameter", "path", "port", "protocol", "query")
    },
}
