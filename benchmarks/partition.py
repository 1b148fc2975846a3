"""Partitioning of a private file: records a CPU second and peak memory, as the file grows.

    python benchmarks/partition.py [100000 1000000 ...] [--shards 8] [--buckets 1000] [--profile]
        [--folder FOLDER] [--parquet]

Each file holds so many records of 200 bytes, of half as many units, in two labels; a unit keeps at
most 2. Every size runs in a process of its own, on one core where it may choose. The file and the
partition are deleted afterwards: they take about 0.8 kB of disk a record.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from privsyn.data.partition import load_shard, partition
from privsyn.data.records import Cell
from privsyn.data.row_counts import RowCounts
from privsyn.data.settings import DatasetConfig

LABELS = ("a", "b")
KEY = bytes(range(32))
RECORD_BYTES = 200
CHUNK = 100_000


def lines(start: int, count: int, units: int) -> list[dict[str, str]]:
    """Records of 200 bytes as a JSON line; public words, nobody's."""
    rng = np.random.default_rng(start)
    owners = rng.integers(0, units, count).tolist()
    labels = rng.integers(0, 2, count).tolist()
    texts = rng.integers(ord("a"), ord("z") + 1, (count, RECORD_BYTES), np.uint8)
    texts[:, ::7] = ord(" ")
    rows = []
    for owner, label, text in zip(owners, labels, texts, strict=True):
        row = {"user": f"unit-{owner:010d}", "label": LABELS[label], "text": ""}
        room = RECORD_BYTES - len(json.dumps(row)) - 1
        rows.append(row | {"text": "x" + text.tobytes()[: room - 1].decode("ascii")})
    return rows


def write(path: Path, count: int) -> None:
    """A file of so many records, JSON Lines or Parquet by its name."""
    chunks = (lines(at, min(CHUNK, count - at), count // 2) for at in range(0, count, CHUNK))
    if path.suffix == ".jsonl":
        with path.open("w") as stream:
            for rows in chunks:
                stream.writelines(json.dumps(row) + "\n" for row in rows)
        return
    import pyarrow as pa
    from pyarrow import parquet

    schema = pa.schema([(name, pa.string()) for name in ("user", "label", "text")])
    with parquet.ParquetWriter(path, schema) as writer:
        for rows in chunks:
            writer.write_table(pa.Table.from_pylist(rows, schema))


def peak() -> float:
    """Most memory this process held so far, in MB. VmHWM: ru_maxrss begins with the parent's."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(re.search(r"VmHWM:\s*(\d+) kB", status.read_text())[1]) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def measure(path: Path, arguments: argparse.Namespace) -> dict[str, float]:
    """Seconds of both passes and of loading one shard, and peaks of memory, in this process."""
    cells = Cell.grid(LABELS, arguments.buckets)
    config = DatasetConfig(
        name="d", path=path, unit="user", label="label", labels=LABELS, max_records_per_unit=2
    )
    out, row_counts = path.with_suffix(".buckets"), RowCounts()
    before = peak()
    began, cpu = time.perf_counter(), time.process_time()
    partition(config, KEY, cells, out, arguments.shards, seed="s", row_counts=row_counts)
    seconds, cpu, partitioned = time.perf_counter() - began, time.process_time() - cpu, peak()
    began = time.process_time()
    row_counts.report(LABELS, 2)
    counted = time.process_time() - began
    files, size = len(list(out.iterdir())), max(file.stat().st_size for file in out.iterdir())
    after = peak()
    began = time.process_time()
    load_shard(out, 0, cells, arguments.shards)
    return {
        "seconds": seconds,
        "cpu_seconds": cpu,
        "count_seconds": counted,
        "load_seconds": time.process_time() - began,
        "files": files,
        "start_mb": before,
        "peak_mb": partitioned,
        "count_peak_mb": after,
        "load_peak_mb": peak(),
        "shard_mb": size / 2**20,
    }


def run(count: int, arguments: argparse.Namespace) -> None:
    """Make a file, measure it in a fresh process, print a line."""
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        path = Path(folder, "records.parquet" if arguments.parquet else "records.jsonl")
        write(path, count)
        command = [sys.executable, __file__, "--measure", str(path)]
        command += ["--shards", str(arguments.shards), "--buckets", str(arguments.buckets)]
        if arguments.profile:
            command.append("--profile")
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        if arguments.profile:
            print(done.stdout)
            return
        found = json.loads(done.stdout)
    print(
        f"{count:>11,} records  {count / found['cpu_seconds']:>9,.0f} records a CPU second  "
        f"{found['cpu_seconds']:8.1f} s ({found['seconds']:.1f} on the clock)  "
        f"peak {found['peak_mb']:6.0f} MB "
        f"({found['start_mb']:.0f} at the start)  counts {found['count_seconds']:.1f} s, "
        f"peak {found['count_peak_mb']:.0f} MB  {found['files']} files  "
        f"loading a shard of {found['shard_mb']:.0f} MB: {found['load_seconds']:.1f} s, "
        f"peak {found['load_peak_mb']:.0f} MB",
        flush=True,
    )


def main() -> None:
    """Measure every size that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("counts", nargs="*", type=int, default=[100_000, 1_000_000])
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--buckets", type=int, default=1000, help="a label")
    parser.add_argument("--folder", type=Path, default=None, help="of the files while it measures")
    parser.add_argument("--parquet", action="store_true")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    if arguments.measure is None:
        for count in arguments.counts:
            run(count, arguments)
    elif arguments.profile:
        import cProfile
        import pstats

        with cProfile.Profile() as profile:
            measure(arguments.measure, arguments)
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)
    else:
        print(json.dumps(measure(arguments.measure, arguments)))


if __name__ == "__main__":
    main()
