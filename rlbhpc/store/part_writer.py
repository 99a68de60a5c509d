"""Write a part: under a temporary name, synced, read back, and only then renamed.

The encodings are plain enough for pyarrow, DuckDB, polars and ``datasets``. Byte-stream split
saves a sixth of the token ids and is used there; on float16 it saves nothing measurable, and
DuckDB cannot read it.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from rlbhpc.errors import TRY_AGAIN, UserError
from rlbhpc.store import files, parts, schema
from rlbhpc.store.listing import Content, Listing, TokenPolicy
from rlbhpc.study.keys import Cell

_PLAIN: Final = pa.schema(
    [(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type) for f in schema.ROWS]
)
# A page as large as its row group lets zstd see all texts of a problem at once.
_PAGE: Final = 64 << 20
# Samples per row group: one response out of 256 is read in a millisecond.
_GROUP_ROWS: Final = 256
_LABEL: Final = 40


def write(folder: Path, tables: Iterable[pa.Table], tokens: TokenPolicy) -> Path:
    """Write one part and give it its name.

    ``folder``: where the part belongs. ``tables``: rows in order, all columns; each table has those
    of one cell, sorted by sample. ``tokens``: the policy that the rows already follow. Gives the
    part. Whoever seals the same rows arrives at the same name and the same bytes.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with files.making(folder) as partial:
            first, content = _write(partial, tables, tokens)
            name = _name(partial, first, content)
            damage = parts.verify(partial, name=name)
            if damage:
                raise UserError(
                    f"{damage[0]}: what was read back is not what was written; check the file "
                    "system, then give the same command again",
                    TRY_AGAIN,
                )
            files.publish(partial, folder / name)
    except FileNotFoundError:
        raise  # a journal that was read for this went away: see snapshot.steady
    except OSError as error:
        raise files.explain(error, folder) from error
    return folder / name


def _write(path: Path, tables: Iterable[pa.Table], tokens: TokenPolicy) -> tuple[Cell, str]:
    listed, content = Listing(tokens), Content(tokens)
    with (
        files.Sink(path) as sink,
        pq.ParquetWriter(
            sink,
            _PLAIN,
            compression="zstd",
            compression_level=3,
            data_page_size=_PAGE,
            use_dictionary=["arm", "problem", "answer", "rule", "grader"],
            use_byte_stream_split=["token_ids.list.element", "logprob_sum", "entropy_sum"],
            write_statistics=["step", "problem", "sample"],
            write_page_checksum=True,
            store_schema=False,
        ) as writer,
    ):
        for table in tables:
            for start in range(0, table.num_rows, _GROUP_ROWS):
                group = table.slice(start, _GROUP_ROWS)
                listed.add(group)
                content.add(group)
                writer.write_table(group.cast(_PLAIN), row_group_size=group.num_rows)
        writer.add_key_value_metadata(listed.metadata())
    return listed.cells[0], content.hex()


def _name(path: Path, first: Cell, content: str) -> str:
    """Name of a finished file, by its content."""
    label = re.sub(r"[^A-Za-z0-9._-]+", "_", first.problem.partition("/")[2])[:_LABEL]
    crc = zlib.crc32(parts.footer(path))
    return f"{first.step:08d}-{label}-{content}.{crc:08x}{parts.ENDING}"
