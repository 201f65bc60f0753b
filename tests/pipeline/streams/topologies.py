"""The eight topologies of compat-tests' Topologies.java, as jobs.  Topics begin with a prefix."""

from datetime import timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pybroker.pipeline.streams.foreign_key_join import join_foreign_key
from pybroker.pipeline.streams.jobs import Output, Outputs, Topics
from pybroker.pipeline.streams.stream_table_join import join_stream_table
from pybroker.pipeline.streams.table_join import join_tables

TOP = 2
HISTORY = timedelta(days=1)


def texts(topics: Topics, topic: str) -> DataFrame:
    """A topic whose keys and values are text."""
    return topics.stream(topic).select(
        F.col("key").cast("string").alias("key"), F.col("value").cast("string").alias("value"), "timestamp", "offset"
    )


def millis(at: str) -> Column:
    """A time as text, ms since 1970."""
    return F.unix_millis(at).cast("string")


def by_minute(records: DataFrame, *keys: str) -> DataFrame:
    """Counts per minute, told when the minute and half another one are over."""
    timed = records.withWatermark("timestamp", "30 seconds")
    return timed.groupBy(F.window("timestamp", "1 minute").alias("minute"), *keys).count()


def as_records(key: Column, value: Column | None = None) -> list[Column]:
    """Columns of a record, whose value is a count where no other is given."""
    return [key.alias("key"), (F.col("count") if value is None else value).cast("string").alias("value")]


def one_topology(prefix: str, name: str, topics: Topics) -> Outputs:
    """The one whose output topic is called so."""
    output = f"{prefix}{name}"
    return {output: _all_topologies(prefix, topics)[output]}


def _all_topologies(prefix: str, topics: Topics) -> Outputs:
    return {
        f"{prefix}word-counts": Output(word_counts(texts(topics, f"{prefix}lines")), "update"),
        f"{prefix}views-by-region": views_by_region(texts(topics, f"{prefix}views"), texts(topics, f"{prefix}users")),
        f"{prefix}anomalies": anomalies(texts(topics, f"{prefix}clicks")),
        f"{prefix}top-articles": top_articles(texts(topics, f"{prefix}articles")),
        f"{prefix}sessions": sessions(texts(topics, f"{prefix}visits")),
        f"{prefix}orders-named": orders_named(texts(topics, f"{prefix}orders"), texts(topics, f"{prefix}customers")),
        f"{prefix}sales-priced": sales_priced(texts(topics, f"{prefix}sales"), texts(topics, f"{prefix}prices")),
        f"{prefix}people-in-cities": people_in_cities(
            texts(topics, f"{prefix}people"), texts(topics, f"{prefix}cities")
        ),
    }


def word_counts(lines: DataFrame) -> DataFrame:
    """How often each word came."""
    words = lines.select(F.explode(F.split(F.lower("value"), r"\W+")).alias("word")).where("word != ''")
    return words.groupBy("word").count().select(*as_records(F.col("word")))


def views_by_region(views: DataFrame, users: DataFrame) -> DataFrame:
    """Views per minute and the region where the user was."""
    counts = by_minute(join_stream_table(views, users, into="region"), "region")
    return counts.select(*as_records(F.concat("region", F.lit("@"), millis("minute.start"))))


def anomalies(clicks: DataFrame) -> DataFrame:
    """Who clicked three times in a minute."""
    counts = by_minute(clicks, "key").where("count >= 3")
    return counts.select(*as_records(F.concat("key", F.lit("@"), millis("minute.start"))))


def top_articles(articles: DataFrame) -> DataFrame:
    """Of each industry and minute, the articles that were read most."""
    read = articles.select("timestamp", F.col("value").alias("industry"), F.col("key").alias("article"))
    counts = by_minute(read, "industry", "article")
    ranked = F.sort_array(F.collect_list(F.struct((-F.col("count")).alias("rank"), "article", "count")))
    top = counts.groupBy("minute", "industry").agg(F.slice(ranked, 1, TOP).alias("top"))
    shown = F.transform("top", lambda one: F.concat(one["article"], F.lit("="), one["count"].cast("string")))
    key = F.concat("industry", F.lit("@"), millis("minute.start"))
    return top.select(*as_records(key, F.array_join(shown, ",")))


def sessions(visits: DataFrame) -> DataFrame:
    """Visits of a user with no more than five minutes between two of them; Spark's sessions end a gap later."""
    timed = visits.withWatermark("timestamp", "30 seconds")
    counts = timed.groupBy(F.session_window("timestamp", "5 minutes").alias("session"), "key").count()
    end = (F.unix_millis("session.end") - 300_000).cast("string")
    return counts.select(*as_records(F.concat("key", F.lit("@"), millis("session.start"), F.lit("-"), end)))


def orders_named(orders: DataFrame, customers: DataFrame) -> DataFrame:
    """Each order with the name of its customer, where there is one."""
    found = join_foreign_key(orders, customers, "split(value, '/')[0]", how="left")
    named = F.concat("value.left", F.lit("="), F.coalesce("value.right", F.lit("?")))
    return found.select("key", named.alias("value"))


def sales_priced(sales: DataFrame, prices: DataFrame) -> DataFrame:
    """Each sale with the price of its time."""
    found = join_stream_table(sales, prices, into="price", history=HISTORY)
    return found.select(F.col("value").alias("key"), F.col("price").alias("value"))


def people_in_cities(people: DataFrame, cities: DataFrame) -> DataFrame:
    """Where somebody is who has a name; a tombstone when that is no longer known."""
    found = join_tables(people, cities)
    return found.select("key", F.concat("value.left", F.lit(" in "), "value.right").alias("value"))
