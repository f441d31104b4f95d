"""Read the folder of a run with msgpack, Parquet, JSON and TOML, with no other code of fedsim."""

from __future__ import annotations

import hashlib
import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack
import pyarrow.parquet as pq

TABLES = ("rounds", "clients", "evaluations", "dispatches", "messages")
NOT_ALWAYS = ("client_classes", "classes", "confusion")
"""Tables of classifications, and under ``evaluation.per_class``; they are not read."""

OF_EDGES = "edge_messages"
"""The table of a run with edges; of another it is read as one without rows."""

Row = dict[str, Any]


@dataclass
class RunFolder:
    """The contents of a run folder."""

    records: list[Row]  # of the trace, in order: kind, at_ns and fields
    hash: str  # of the trace
    tables: dict[str, list[Row]]  # those of every run
    summary: Row
    scenario: Row
    host: Row  # run.json
    log: list[Row]

    @classmethod
    def read(cls, folder: Path) -> RunFolder:
        """Read a folder."""
        return cls(
            *_read_trace((folder / "trace.msgpack").read_bytes()),
            {name: _rows(folder / f"{name}.parquet") for name in (*TABLES, OF_EDGES)},
            json.loads((folder / "summary.json").read_text("utf-8")),
            tomllib.loads((folder / "scenario.toml").read_text("utf-8")),
            json.loads((folder / "run.json").read_text("utf-8")),
            [json.loads(line) for line in (folder / "log.jsonl").read_text("utf-8").splitlines()],
        )


def _rows(file: Path) -> list[Row]:
    return pq.read_table(file).to_pylist() if file.exists() or file.stem != OF_EDGES else []


def _read_trace(content: bytes) -> tuple[list[Row], str]:
    """Return the records of a trace, and its hash, which is of all but the header."""
    unpacker = msgpack.Unpacker()
    unpacker.feed(content)
    if unpacker.unpack() != {"fedsim_trace": 1}:
        raise ValueError("no trace that this tool knows")
    digest = hashlib.blake2b(content[unpacker.tell() :], digest_size=16).hexdigest()
    kinds: list[Row] = []
    records = []
    for item in unpacker:
        if isinstance(item, dict):
            kinds.append(item)
        else:
            number, at_ns, *values = item
            fields = dict(zip(kinds[number]["fields"], values, strict=True))
            records.append({"kind": kinds[number]["kind"], "at_ns": at_ns, **fields})
    return records, digest
