"""Bounded questions about flights in DuckDB's dialect, each of which DuckDB and Spark answer by the same rows.

Owns the table ``QUESTIONS``.  The topics are ``flights``, ``planes``, ``airlines`` and ``airports``, with the columns
of the files that they were made of.  A question has an order where it has LIMIT, and that order has no ties.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

# Of the record: no two flights have the same.
_PLACE: Final = "_partition, _offset"
_COLUMNS_MAX: Final = 6

_PROJECTIONS: Final = (
    "SELECT * FROM flights",
    "SELECT f.* FROM flights f",
    "SELECT * EXCLUDE (year, month, time_hour) FROM flights",
    "SELECT carrier, flight, origin, dest FROM flights",
    "SELECT _key, _partition, _offset, _timestamp FROM flights",
    "SELECT flight AS number, distance * 1.609 AS km, -dep_delay AS early FROM flights",
    "SELECT dep_delay + arr_delay AS delay, dep_delay - arr_delay AS caught_up, flight % 7 AS rest FROM flights",
    "SELECT 1 AS one, 'x' AS x, TRUE AS yes, CAST(NULL AS INTEGER) AS nothing FROM airlines",
    # `/` of whole numbers is a fraction to both, and `//` is a whole number.
    "SELECT distance / 100 AS hundreds, distance // 100 AS whole FROM flights",
    "SELECT *, _offset AS place FROM airlines",
)

_FILTERS: Final = (
    "origin = 'JFK'",
    "origin <> 'JFK' AND dest <> 'ATL'",
    "origin = 'EWR' OR carrier = 'UA'",
    "NOT (origin = 'JFK' OR dest = 'LAX')",
    "dep_delay > 60",
    "dep_delay IS NULL",
    "arr_delay IS NOT NULL AND arr_delay < -20",
    "dep_delay > arr_delay",
    "dep_delay IS DISTINCT FROM arr_delay",
    "distance BETWEEN 500 AND 1000",
    "distance NOT BETWEEN 200 AND 2500",
    "carrier IN ('UA', 'AA', 'HA')",
    "carrier NOT IN ('UA', 'AA', 'B6', 'EV', 'DL', 'MQ')",
    "dest LIKE 'B%'",
    "dest NOT LIKE '%A%' AND dest LIKE '_T_'",
    "tailnum ILIKE 'n1%q'",
    "regexp_matches(tailnum, '^N[0-9]{3}[A-Z]{2}$')",
    "length(tailnum) < 6",
    "coalesce(dep_delay, 0) = 0",
    "day = 1 AND (origin, carrier) IN (('JFK', 'B6'), ('EWR', 'UA'))",
    "starts_with(dest, 'S') AND contains(tailnum, '77')",
    "TRUE AND day = 2 AND hour >= 20",
)

_RANGES: Final = (
    "_partition = 0",
    "_partition = 7",
    "_partition IN (0, 1) AND _offset % 100 = 0",
    "_offset < 10",
    "_offset BETWEEN 5 AND 9",
    "_offset >= 1000000",
    "_partition = 1 AND _offset >= 100 AND _offset < 120",
    "_timestamp >= TIMESTAMP '2013-01-02 12:00:00'",
    "_timestamp < TIMESTAMP '2013-01-01 12:00:00'",
    "_timestamp BETWEEN TIMESTAMP '2013-01-02 10:00:00' AND TIMESTAMP '2013-01-02 11:00:00'",
    "_timestamp = TIMESTAMP '2013-01-01 10:15:00'",
    "_timestamp >= TIMESTAMP '2013-01-02 12:00:00' AND _partition = 1 AND carrier = 'DL'",
)

_AGGREGATES: Final = (
    "count(*)",
    "count(dep_delay)",
    "count(DISTINCT dest)",
    "count(*) FILTER (WHERE dep_delay > 15)",
    "sum(distance)",
    "sum(CASE WHEN dep_delay > 15 THEN 1 ELSE 0 END)",
    # `1.0` would be a decimal, whose quotient has six digits in Spark and is a DOUBLE in DuckDB.
    "sum(dep_delay * 1e0) / count(dep_delay)",
    "avg(arr_delay)",
    "min(dest)",
    "max(arr_delay) - min(arr_delay)",
    "stddev_samp(dep_delay)",
    "stddev_pop(dep_delay)",
    "var_samp(arr_delay)",
    "var_pop(arr_delay)",
    "corr(dep_delay, arr_delay)",
    "covar_samp(dep_delay, arr_delay)",
    "median(distance)",
    "bool_and(distance > 100)",
    "bool_or(distance > 4900)",
    "list_sort(list(DISTINCT origin))",
    "arg_max(distance, _offset * 2 + _partition)",
    # A value that is not there is none to choose.
    "arg_max(dep_delay, _offset * 2 + _partition)",
    "arg_min(arr_delay, dep_delay * 1000000 + _offset * 2 + _partition)",
)

_GROUPINGS: Final = (
    "origin",
    "carrier",
    "origin, carrier",
    "day, hour",
    "distance // 500",
    "dep_delay IS NULL",
    "date_trunc('day', _timestamp)",
    "CASE WHEN hour < 12 THEN 'morning' ELSE 'later' END",
)
_MEASURES: Final = "count(*) AS n, sum(distance) AS distance, avg(arr_delay) AS late, max(dep_delay) AS latest"

# Kinds of subtotals, and names of ksqlDB's.
_OTHER_GROUPINGS: Final = (
    "SELECT origin, carrier, count(*) AS n FROM flights GROUP BY ROLLUP (origin, carrier)",
    "SELECT origin, day, sum(distance) AS d FROM flights GROUP BY CUBE (origin, day)",
    "SELECT origin, day, count(*) AS n FROM flights GROUP BY GROUPING SETS ((origin), (day), ())",
    "SELECT origin, day, count(*) AS n FROM flights GROUP BY ALL",
    "SELECT day, count(*) AS n FROM flights GROUP BY 1",
    "SELECT carrier, latest_by_offset(flight) AS last, earliest_by_offset(flight) AS first "
    "FROM flights WHERE _partition = 0 GROUP BY carrier",
)

_CONDITIONS: Final = (
    "count(*) > 200",
    "avg(dep_delay) > 10",
    "min(distance) < 200 AND max(distance) > 2000",
    "count(DISTINCT origin) = 3",
)

# DuckDB has nulls last and Spark first where nothing is said; the translation says what DuckDB does.
_ORDERS: Final = (
    "dep_delay DESC, _partition, _offset LIMIT 20",
    "dep_delay, _partition, _offset LIMIT 20 OFFSET 10",
    "arr_delay DESC NULLS FIRST, _partition, _offset LIMIT 30",
    "arr_delay NULLS LAST, _partition DESC, _offset DESC LIMIT 30",
    "distance * 2 DESC, dest, _partition, _offset LIMIT 5",
    "_timestamp DESC, _partition, _offset LIMIT 7",
    "_partition, _offset LIMIT 0",
)

_CASES: Final = (
    "CASE WHEN dep_delay IS NULL THEN 'cancelled' WHEN dep_delay > 15 THEN 'late' ELSE 'on time' END",
    "CASE origin WHEN 'JFK' THEN 1 WHEN 'LGA' THEN 2 END",
    "if(arr_delay > dep_delay, 'lost', 'won')",
    "nullif(dep_delay, 0)",
    "coalesce(arr_delay, dep_delay, -1)",
    "greatest(dep_time, arr_time)",
    "least(dep_time, 600, arr_time)",
    "dep_delay BETWEEN -5 AND 5",
)

_TIMES: Final = (
    "CAST(_timestamp AS DATE)",
    "date_trunc('hour', _timestamp)",
    "date_trunc('month', _timestamp)",
    "extract(hour FROM _timestamp)",
    "minute(_timestamp)",
    "year(_timestamp) * 10000 + month(_timestamp) * 100 + day(_timestamp)",
    "dayofweek(_timestamp)",
    "isodow(_timestamp)",
    "weekday(_timestamp)",
    "extract(dow FROM _timestamp)",
    "extract(isodow FROM _timestamp)",
    "date_part('dow', _timestamp)",
    "dayname(_timestamp)",
    "monthname(_timestamp)",
    "dayofyear(_timestamp)",
    "quarter(_timestamp)",
    "week(_timestamp)",
    "last_day(_timestamp)",
    "strftime(_timestamp, '%Y-%m-%d %H:%M')",
    "_timestamp + INTERVAL 90 MINUTE",
    # A day less of a date is a timestamp to DuckDB, and a date to Spark.
    "CAST(CAST(_timestamp AS DATE) - INTERVAL 1 DAY AS DATE)",
    "date_diff('day', DATE '2012-12-25', CAST(_timestamp AS DATE))",
    "date_diff('minute', TIMESTAMP '2013-01-01 00:00:00', _timestamp)",
    "date_diff('day', TIMESTAMP '2012-12-25 18:30:00', _timestamp)",
    "date_diff('week', TIMESTAMP '2012-12-25 18:30:00', _timestamp)",
    "datepart('dow', _timestamp)",
    "second(_timestamp)",
    "epoch(_timestamp + INTERVAL 250 MILLISECOND)",
    "epoch_ms(_offset)",
    "timestamptostring(_timestamp, 'yyyy-MM-dd''T''HH:mm:ss.SSSX')",
    "format_timestamp(_timestamp, 'EEE d MMM yy', 'Asia/Tokyo')",
    "parse_timestamp(strftime(_timestamp, '%d.%m.%Y %H:%M'), 'dd.MM.yyyy HH:mm')",
    "unix_timestamp(convert_tz(_timestamp, 'UTC', 'America/Denver'))",
    "timestampsub(HOURS, 3, _timestamp)",
    "CAST(time_hour AS TIMESTAMP)",
)

_DISTINCTS: Final = (
    "SELECT DISTINCT origin FROM flights",
    "SELECT DISTINCT origin, dest FROM flights",
    "SELECT DISTINCT dep_delay > 0 AS is_late FROM flights",
    "SELECT count(*) AS n FROM (SELECT DISTINCT tailnum, day FROM flights)",
    "SELECT DISTINCT ON (carrier) carrier, flight FROM flights ORDER BY carrier, _partition, _offset",
)

_JOINS: Final = (
    "SELECT f.flight, a.name FROM flights f JOIN airlines a ON f.carrier = a.carrier",
    "SELECT flight, name FROM flights JOIN airlines USING (carrier) WHERE day = 1",
    "SELECT a.name, count(*) AS n FROM flights f JOIN airlines a USING (carrier) GROUP BY a.name",
    "SELECT f.flight, f.tailnum, p.model, p.seats FROM flights f LEFT JOIN planes p ON f.tailnum = p.tailnum",
    "SELECT f.tailnum FROM flights f LEFT JOIN planes p ON f.tailnum = p.tailnum WHERE p.tailnum IS NULL",
    "SELECT a.carrier, count(f.flight) AS n FROM flights f RIGHT JOIN airlines a ON f.carrier = a.carrier "
    "GROUP BY a.carrier",
    "SELECT f.dest, p.faa FROM (SELECT DISTINCT dest FROM flights) f FULL JOIN airports p ON f.dest = p.faa",
    "SELECT a.carrier, b.carrier AS other FROM airlines a CROSS JOIN airlines b WHERE a.carrier < b.carrier",
    "SELECT flight FROM flights SEMI JOIN planes USING (tailnum)",
    "SELECT flight FROM flights f ANTI JOIN planes p ON f.tailnum = p.tailnum",
    "SELECT a.flight, b.flight AS next FROM flights a JOIN flights b ON a.tailnum = b.tailnum AND a.day = b.day "
    "AND b.dep_time > a.arr_time",
    "SELECT n.name, p.manufacturer, t.name AS place, count(*) AS n FROM flights f JOIN airlines n USING (carrier) "
    "JOIN planes p ON f.tailnum = p.tailnum JOIN airports t ON f.dest = t.faa GROUP BY ALL",
)

_SUBQUERIES: Final = (
    "SELECT flight FROM flights WHERE carrier IN (SELECT carrier FROM airlines WHERE name LIKE 'A%')",
    "SELECT flight FROM flights WHERE dest NOT IN (SELECT faa FROM airports WHERE tz < -5)",
    "SELECT flight FROM flights WHERE distance > (SELECT avg(distance) FROM flights)",
    "SELECT name FROM airlines a WHERE EXISTS (SELECT 1 FROM flights f WHERE f.carrier = a.carrier AND f.hour = 5)",
    "SELECT name FROM airlines a WHERE NOT EXISTS (SELECT 1 FROM flights f WHERE f.carrier = a.carrier)",
    "SELECT avg(n) AS mean FROM (SELECT dest, count(*) AS n FROM flights GROUP BY dest)",
    "SELECT name, (SELECT max(distance) FROM flights f WHERE f.carrier = a.carrier) AS farthest FROM airlines a",
    "WITH busy AS (SELECT dest, count(*) AS n FROM flights GROUP BY dest) SELECT dest, n FROM busy WHERE n > 50",
    "WITH d AS (SELECT day, avg(dep_delay) AS late FROM flights GROUP BY day) "
    "SELECT a.day, b.late - a.late AS more FROM d a JOIN d b ON b.day = a.day + 1",
    "WITH a AS (SELECT * FROM flights WHERE day = 1), b AS (SELECT carrier, count(*) AS n FROM a GROUP BY carrier) "
    "SELECT max(n) AS most, min(n) AS fewest FROM b",
    "SELECT origin AS place FROM flights UNION SELECT dest FROM flights",
    "SELECT carrier FROM flights WHERE day = 1 UNION ALL SELECT carrier FROM airlines",
    "SELECT dest FROM flights INTERSECT SELECT faa FROM airports",
    "SELECT carrier FROM airlines EXCEPT SELECT carrier FROM flights",
)

_OF_A_CARRIER: Final = f"PARTITION BY carrier ORDER BY _timestamp, {_PLACE}"
_WINDOWS: Final = (
    f"row_number() OVER ({_OF_A_CARRIER})",
    f"lag(flight) OVER ({_OF_A_CARRIER})",
    f"lead(flight, 2, -1) OVER ({_OF_A_CARRIER})",
    f"sum(distance) OVER ({_OF_A_CARRIER})",
    f"avg(dep_delay) OVER ({_OF_A_CARRIER} ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)",
    f"first_value(dest) OVER ({_OF_A_CARRIER})",
    f"ntile(4) OVER ({_OF_A_CARRIER})",
    "rank() OVER (PARTITION BY origin ORDER BY distance DESC)",
    "dense_rank() OVER (PARTITION BY origin ORDER BY dep_delay)",
    "percent_rank() OVER (ORDER BY distance)",
    "count(*) OVER (PARTITION BY dest)",
    "dep_delay - avg(dep_delay) OVER (PARTITION BY origin)",
)
_OTHER_WINDOWS: Final = (
    f"SELECT carrier, flight, dest FROM flights QUALIFY row_number() OVER ({_OF_A_CARRIER}) <= 2",
    "SELECT day, sum(n) OVER (ORDER BY day) AS so_far FROM (SELECT day, count(*) AS n FROM flights GROUP BY day)",
)

_TEXTS: Final = (
    "upper(name)",
    "lower(name)",
    "length(name)",
    "reverse(name)",
    "substr(name, 3, 4)",
    "left(name, 5)",
    "right(name, 5)",
    "name || ' (' || carrier || ')'",
    "concat(carrier, ': ', name)",
    "concat_ws('-', carrier, name)",
    "replace(name, 'Air', 'Sky')",
    "trim('  ' || carrier || ' ')",
    "ltrim(name, 'AE')",
    "lpad(carrier, 5, '*')",
    "rpad(carrier, 5, '*')",
    "repeat(carrier, 3)",
    "strpos(name, 'Air')",
    "split_part(name, ' ', 2)",
    "string_split(name, ' ')",
    "regexp_replace(name, '[aeiou]', '.', 'g')",
    "regexp_extract(name, '([A-Z][a-z]+) Inc', 1)",
    "ascii(name)",
    "md5(name)",
    "TRY_CAST(carrier AS INTEGER)",
    "initcap(name)",
    "mask_keep_left(name, 3)",
    "carrier + ': ' + name",
    "split(name, ' ')[1]",
    "transform(split(name, ' '), word => ucase(word))",
    "regexp_extract('[A-Z]+', name)",
    "instr(name, 'i', -2, 2)",
    "instr(name, 'i', 4)",
    "array_distinct(split(name, 'i'))",
    "array_except(split(name, ' '), ['Inc.', NULL])",
    "array_intersect(split(name, ' '), ['Inc.', 'Air', NULL])",
    "array_union(split(name, ' '), ['Air', NULL])",
    "array_remove(split(name, ' '), 'Inc.')",
    "list_sort(list_distinct(['b', NULL, carrier]))",
    r"regexp_replace(name, '(a)(.)', '\2$\1')",
    "regexp_replace(name, 'A', '-', 'gi')",
    "regexp_extract_all('[A-Z]', name)",
    "split_to_map('a=1/b=2//c/=4/a=3=5/n=' || name, '/', '=')['a']",
    "split_to_map(name, ' ', '')",
    "array_concat(split(name, ' '), CAST(NULL AS VARCHAR[]))",
    "slice(split(name, ' '), 0, 1)",
    "map_union(MAP {'a': name}, CAST(NULL AS MAP(VARCHAR, VARCHAR)))['a']",
    "left(name, -2) || right(name, -2)",
    "substr(name, 0, 3)",
    r"replace(name, ' ', '\%') LIKE '%\%%'",
    r"name LIKE replace(name, ' ', '\')",
    "list_position(split(name, ' '), 'Inc.')",
)

_NUMBERS: Final = (
    # Digits behind the point are rounded as they are written by Spark, and as they are stored by DuckDB.
    "round(alt, -2)",
    "round(lat)",
    "floor(lon)",
    "ceil(lon)",
    "abs(lon)",
    "sign(tz)",
    "sqrt(abs(lat))",
    "power(lat, 2)",
    "ln(abs(lat) + 1)",
    "log10(abs(lat) + 1)",
    "log(abs(lat) + 1)",
    "exp(tz)",
    "sin(radians(lat))",
    "CAST(alt AS VARCHAR)",
    "CAST(lat AS DECIMAL(6, 1))",
    # Without floor a fraction is rounded to a whole number by DuckDB, and cut by Spark.
    "CAST(floor(lat) AS INTEGER)",
    # Of whole numbers both cut towards nought.
    "alt // -7",
    "alt % -7",
    "geo_distance(lat, lon, 40.64, -73.78)",
)


def _each(form: str, texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(form.format(text) for text in texts)


def _together(form: str, expressions: Sequence[str]) -> tuple[str, ...]:
    """Several expressions as columns of one question: each question costs both sides a scan."""
    parts = (expressions[at : at + _COLUMNS_MAX] for at in range(0, len(expressions), _COLUMNS_MAX))
    return tuple(form.format(", ".join(f"{each} AS c{at}" for at, each in enumerate(part))) for part in parts)


_GROUPS: Final = {
    "projection": _PROJECTIONS,
    "filter": _each(f"SELECT carrier, flight, {_PLACE} FROM flights WHERE {{}}", _FILTERS),
    "range": _each(f"SELECT carrier, flight, {_PLACE}, _timestamp FROM flights WHERE {{}}", _RANGES),
    "aggregate": _together("SELECT {} FROM flights", _AGGREGATES),
    "group": (*_each(f"SELECT {{0}} AS k, {_MEASURES} FROM flights GROUP BY {{0}}", _GROUPINGS), *_OTHER_GROUPINGS),
    "having": _each("SELECT carrier, count(*) AS n FROM flights GROUP BY carrier HAVING {}", _CONDITIONS),
    "order": _each("SELECT carrier, flight, dep_delay, arr_delay FROM flights ORDER BY {}", _ORDERS),
    "case": _together(f"SELECT {_PLACE}, {{}} FROM flights", _CASES),
    "time": _together(f"SELECT {_PLACE}, {{}} FROM flights WHERE _offset < 300", _TIMES),
    "distinct": _DISTINCTS,
    "join": _JOINS,
    "subquery": _SUBQUERIES,
    "window": (*_together(f"SELECT {_PLACE}, {{}} FROM flights", _WINDOWS), *_OTHER_WINDOWS),
    "text": _together("SELECT carrier, {} FROM airlines", _TEXTS),
    "number": _together("SELECT faa, {} FROM airports", _NUMBERS),
}

# Each by its group and its number there.
QUESTIONS: Final = {f"{group}-{number}": text for group, texts in _GROUPS.items() for number, text in enumerate(texts)}
