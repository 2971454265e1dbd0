"""Features that Spark reads: Parquet under a path or a URL of any store."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from features_party.tables.join import refuse_taken
from label_dp.columnar.frames import PANDAS_INDEX
from label_dp.columnar.tables import MAX_ID_BYTES, require_columns
from label_dp.errors import InvalidFile, InvalidTable, Unavailable
from label_dp.spark.cluster import Cluster

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

OWN = "label_dp_"  # prefix of our own columns beside the features
KINDS = re.compile(r"string|(varchar|char)\(\d+\)|tinyint|smallint|int|bigint|decimal\(20,0\)")
RULE = f"an id must be between 1 and {MAX_ID_BYTES} bytes long"
TWICE = "this id is in more than one row"


@dataclass(frozen=True)
class SparkFeatures:
    """Features on Spark. `columns` are all except pandas' index, in file order, with the names of Spark's types."""

    url: str
    id_column: str
    columns: dict[str, str]
    rows: int

    @classmethod
    def open(cls, cluster: Cluster, url: str, id_column: str) -> SparkFeatures:
        """Read the columns and the number of rows. Raises InvalidFile (unreadable), InvalidTable (columns, no rows) and
        Unavailable."""
        try:
            schema = cluster.ask(lambda spark: spark.read.parquet(url).schema)
        except Unavailable:
            raise InvalidFile(f"'{url}' cannot be read by Spark as Parquet; its logs say why.") from None
        columns = {
            field.name: field.dataType.simpleString()
            for field in schema
            if field.name == id_column or not PANDAS_INDEX.fullmatch(field.name)
        }
        require_columns(list(columns), [id_column], url)
        refuse_taken(list(columns))
        own = next((name for name in columns if name.startswith(OWN)), None)
        if own is not None:
            raise InvalidTable(f"The feature table has a column '{own}', a name that the join itself uses; rename it.")
        if not KINDS.fullmatch(columns[id_column]):
            raise InvalidTable(
                f"The id column '{id_column}' must hold text or whole numbers; it holds {columns[id_column]}."
            )
        n = cluster.collect(lambda spark: spark.read.parquet(url).selectExpr("count(*) as n"))[0]["n"]
        if not n:
            raise InvalidTable(f"'{url}' has no rows.")
        return cls(url, id_column, columns, int(n))

    def frame(self, spark: SparkSession, without: tuple[str, ...], *more: Any) -> DataFrame:
        """Read the columns except `without`, and `more`."""
        from pyspark.sql.functions import col

        selection = [col(f"`{name}`") for name in self.columns if name not in without]
        return spark.read.parquet(self.url).select(*selection, *more)

    @property
    def spelt(self) -> Column:
        """Id in canonical spelling."""
        from pyspark.sql.functions import col

        return col(f"`{self.id_column}`").cast("string")

    def refuse(self, cluster: Cluster, repeated: bool) -> InvalidFile:
        """Return the error for rows whose ids break a rule, with the place of one of them."""
        wrong = "count(*) over (partition by id) > 1"
        if not repeated:
            wrong = f"id is null or octet_length(id) not between 1 and {MAX_ID_BYTES}"

        def places(spark: SparkSession) -> DataFrame:
            from pyspark.sql.functions import col

            where = col("_metadata.file_name").alias("file"), col("_metadata.row_index").alias("row")
            rows = spark.read.parquet(self.url).select(self.spelt.alias("id"), *where)
            found = rows.selectExpr("file", "row", f"{wrong} as wrong").where("wrong")
            first = "min(struct(file, row))"
            return found.selectExpr("count(*) as n", f"{first}.file as file", f"{first}.row as row")

        found = cluster.collect(places)[0]
        rows = "One row is" if found["n"] == 1 else f"{found['n']:,} rows are"
        where = f"row {found['row'] + 1} of '{found['file']}', field '{self.id_column}': {TWICE if repeated else RULE}"
        return InvalidFile(f"{rows} refused, for instance {where}. Nothing was written.")
