"""CSV as columns of Spark: each value is a line, whose fields `pybroker.values.csv_values` reads."""

from pyspark.sql.types import StringType, StructField, StructType

from pybroker.pipeline.converters.arrow_decoding import decoder_of
from pybroker.pipeline.converters.decoding import Decoder
from pybroker.values.csv_values import LineReader


def csv_of(width: int, delimiter: str = ",") -> Decoder:
    """Lines of ``width`` fields, as structs of texts that are named by their places, from "0" on."""
    kind = StructType([StructField(str(place), StringType()) for place in range(width)])
    return decoder_of(LineReader(width, delimiter), kind)
