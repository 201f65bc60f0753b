"""The tour's queries, as functions from topics: they run on any Kafka, and in the test driver without one.

Owns what is asked of the streams; where answers go is the chapters'.

Time: a departure belongs to the hour of its scheduled departure.  `ALLOWED_LATENESS` is what the longest delay of the
year (22 hours) needs, and what partitions drift apart: Spark reads the same share of each per micro-batch.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from examples.tour.topics import AIRPORTS, DEAD_LETTERS, DEPARTURES, ENRICHED, PLANES, WEATHER
from examples.tour.unusual import watch
from pybroker.pipeline.converters.decoding import dead_letters, decode, readable
from pybroker.pipeline.converters.json_values import json_of
from pybroker.pipeline.streams.jobs import Outputs, Topics
from pybroker.pipeline.streams.tables import latest

ALLOWED_LATENESS = "7 days"
NEW_YORK = "America/New_York"

DEPARTURE = """
scheduled timestamp not null, reported timestamp, carrier string, flight int, plane string, origin string,
destination string, departure_delay_minutes int, arrival_delay_minutes int
"""
OBSERVATION = """
observed timestamp not null, origin string, temperature_f double, wind_mph double, precipitation_in double,
visibility_miles double
"""
PLANE = "manufacturer string, model string, built int, seats int"
AIRPORT = "name string, latitude double, longitude double"

ENRICHED_COLUMNS = (
    "scheduled",
    "carrier",
    "flight",
    "plane",
    "origin",
    "destination",
    "departure_delay_minutes",
    "arrival_delay_minutes",
    "destination_name",
    "manufacturer",
    "model",
    "built",
    "seats",
    "temperature_f",
    "wind_mph",
    "precipitation_in",
    "visibility_miles",
)
ENRICHED_FLIGHT = """
scheduled timestamp, carrier string, flight int, plane string, origin string, destination string,
departure_delay_minutes int, arrival_delay_minutes int, destination_name string, manufacturer string, model string,
built int, seats int, temperature_f double, wind_mph double, precipitation_in double, visibility_miles double
"""


def departures(topics: Topics) -> DataFrame:
    """What could be read of the topic of departures.

    The end markers stay: a filter that drops them would be moved below the watermark, and they would move it no more.
    """
    return readable(decode(topics.stream(DEPARTURES), json_of(DEPARTURE))).select("value.*")


def enrich(topics: Topics) -> Outputs:
    """Each departure with its plane, its destination and the weather of its hour; and what could not be read."""
    records = topics.stream(DEPARTURES)
    return {ENRICHED: as_records(enriched(topics)), DEAD_LETTERS: dead_letters(decode(records, json_of(DEPARTURE)))}


def enriched(topics: Topics) -> DataFrame:
    """The columns `ENRICHED_COLUMNS`; a flight without a known plane, destination or weather has nulls there.

    Planes and airports are tables as they are when a micro-batch begins.  Of weather and departures, two streams, each
    waits for the other as long as `ALLOWED_LATENESS` allows.
    """
    # Spark adds a filter of observations without an origin or an hour, below the watermark: `topics.end_of_weather`.
    # The hour is a key, not a range: by airports alone the state would have three keys, read through for each row.
    weather = readable(decode(topics.stream(WEATHER), json_of(OBSERVATION))).select("value.*")
    weather = _by_hour(weather, "observed").drop("observed")
    flights = _by_hour(departures(topics), "scheduled").join(weather, ["origin", "hour"], "left_outer")
    planes = _table(topics, PLANES, PLANE).withColumnRenamed("key", "plane")
    airports = _table(topics, AIRPORTS, AIRPORT).withColumnRenamed("key", "destination")
    airports = airports.withColumnRenamed("name", "destination_name")
    with_tables = flights.join(F.broadcast(planes), "plane", "left_outer")
    return with_tables.join(F.broadcast(airports), "destination", "left_outer").select(*ENRICHED_COLUMNS)


def _by_hour(rows: DataFrame, time: str) -> DataFrame:
    """Rows with their ``hour`` as event time.  (Spark wants one such column in a row: the time itself is none.)"""
    return rows.withColumn("hour", F.date_trunc("hour", time)).withWatermark("hour", ALLOWED_LATENESS)


def _table(topics: Topics, topic: str, schema: str) -> DataFrame:
    found = readable(decode(latest(topics.batch(topic)), json_of(schema)))
    return found.select("key", "value.*")


def as_records(flights: DataFrame) -> DataFrame:
    """Enriched flights as JSON, keyed by plane."""
    key = F.coalesce("plane", F.concat("carrier", F.col("flight").cast("string")))
    return flights.select(key.alias("key"), F.to_json(F.struct(*flights.columns)).alias("value"))


def enriched_flights(topics: Topics) -> DataFrame:
    """What the topic of enriched flights holds, as columns."""
    return readable(decode(topics.stream(ENRICHED), json_of(ENRICHED_FLIGHT))).select("value.*")


def hours(topics: Topics) -> DataFrame:
    """Delays per airport and hour of scheduled departure, once the hour is closed, and whether it was unusual.

    ``came_late`` are the flights that were reported when their hour had already ended.
    """
    delay = F.col("departure_delay_minutes")
    hour = F.window("scheduled", "1 hour")
    counted = (
        departures(topics)
        .withWatermark("scheduled", ALLOWED_LATENESS)
        .groupBy("origin", hour.alias("hour"))
        .agg(
            F.count(F.lit(1)).alias("flights"),
            F.count(delay).alias("departed"),
            F.coalesce(F.sum(delay), F.lit(0)).alias("delay_sum_minutes"),
            F.count_if(F.col("reported") >= F.date_trunc("hour", "scheduled") + F.expr("interval 1 hour")).alias(
                "came_late"
            ),
        )
    )
    by_clock = F.hour(F.from_utc_timestamp("hour.start", NEW_YORK)).alias("clock_hour")
    return watch(counted.select("origin", by_clock, F.col("hour.start").alias("hour_start"), *COUNTED))


COUNTED = ("flights", "departed", "delay_sum_minutes", "came_late")


def by_weather(flights: DataFrame) -> DataFrame:
    """Delays per airport and kind of weather so far, of enriched flights; for output mode ``update``."""
    delay = F.col("departure_delay_minutes")
    return flights.groupBy("origin", kind_of_weather().alias("weather")).agg(
        F.count(F.lit(1)).alias("flights"),
        F.count(delay).alias("departed"),
        F.coalesce(F.sum(delay), F.lit(0)).alias("delay_sum_minutes"),
    )


def kind_of_weather() -> Column:
    """One word for the weather of a flight's hour; the first that fits."""
    return (
        F.when(F.col("visibility_miles").isNull(), "unknown")
        .when(F.col("visibility_miles") < 3, "fog or snow")
        .when(F.col("precipitation_in") > 0, "rain")
        .when(F.col("wind_mph") >= 20, "wind")
        .otherwise("fair")
    )
