"""`--sql`: the rows of a query, by DuckDB. The data are its view `data`; it may name further files.

The query is stored with a run and asked again by later commands: so it can only select. One thread keeps the rows in
one order.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from typing import Any

from pspo.core.errors import UserError
from pspo.data.readers.arrow_files import short_reason
from pspo.data.readers.number_columns import width_of
from pspo.data.readers.tables import Table, need_pyarrow

BATCH_ROWS = 1 << 15
VIEW = "data"
SETTINGS = {
    "threads": 1,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,  # nothing is downloaded
    "python_enable_replacements": False,  # names of this program's variables are no tables
}


def sql_table(query: str, data: Any) -> Table:
    """The table that a query gives; `data` is an Arrow table or dataset."""
    need_pyarrow("reading tables")

    def batches(names: list[str]) -> Iterator[Any]:
        with _result(query, data) as result:
            for batch in result.to_arrow_reader(BATCH_ROWS):
                yield batch.select(names)

    with _result(query, data) as result:
        reader = result.to_arrow_reader(BATCH_ROWS)
        schema, rows = reader.schema, sum(batch.num_rows for batch in reader)

    def width(name: str) -> int:
        return width_of(schema.field(name).type, lambda: (c for batch in batches([name]) for c in batch.column(name)))

    return Table(schema.names, rows, batches, width, kind=lambda name: schema.field(name).type)


@contextlib.contextmanager
def _result(query: str, data: Any) -> Iterator[Any]:
    """What a query gives, not yet computed."""
    try:
        import duckdb
    except ImportError:
        raise UserError("--sql needs DuckDB, which is not installed: pip install 'pspo[duckdb]'.") from None
    try:
        with duckdb.connect(config={**SETTINGS, "temp_directory": tempfile.gettempdir()}) as connection:
            connection.register(VIEW, data)
            connection.execute("SET lock_configuration = true")
            yield connection.sql(_only_select(duckdb, connection.extract_statements(query)))
    except duckdb.Error as error:
        raise UserError(f"the query cannot be run ({short_reason(error)}): correct it.") from None


def _only_select(duckdb: Any, statements: list[Any]) -> Any:
    if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
        raise UserError(f"the query has to be one select: write it as 'select ... from {VIEW} where ...'.")
    return statements[0]
