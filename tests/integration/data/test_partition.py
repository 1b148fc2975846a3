"""A partition by processes that are killed, and what a large one takes of memory."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from privsyn.data.partition import load_shard, partition
from privsyn.data.records import Cell
from privsyn.errors import DataError
from tests import preloaded
from tests.unit.data.test_partition import CELLS, KEY, buckets, config, write


@pytest.mark.parametrize("columns", [{}, {"text": None, "columns": {"age": {"range": [0, 90]}}}])
def test_what_a_killed_attempt_left_is_never_taken_for_a_partition(tmp_path, columns):
    """Killed at the first record, while lines are sorted or appended, and at the end."""
    cfg = config(write(tmp_path / "a.jsonl").path, **columns)
    lines = (json.loads(line) for line in cfg.path.read_text().splitlines())
    aged = "".join(json.dumps(line | {"age": line["user"]}) + "\n" for line in lines)
    cfg.path.write_text(aged)
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "import privsyn.data.partition as module\n"
        f"sys.path.insert(0, {str(Path(__file__).parents[3])!r})\n"
        "from tests.unit.data.test_partition import CELLS, KEY, config\n"
        "step, before = sys.argv[3], getattr(module, sys.argv[3])\n"
        "def dying(*args, **more):\n"
        "    if step == '_write_shards': before(*args, **more)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "setattr(module, step, dying)\n"
        f"cfg = config(Path(sys.argv[1]), **{columns!r})\n"
        "module.partition(cfg, KEY, CELLS, Path(sys.argv[2]), 3, seed='s')\n"
    )
    partition(cfg, KEY, CELLS, tmp_path / "wanted", 3, seed="s")
    for step in ("_lines", "_bound", "_append", "_write_shards", "write_json_atomic", "_move"):
        out = tmp_path / step / "out"
        command = [preloaded.python(), "-c", script, str(cfg.path), str(out), step]
        assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
        (dead,) = out.parent.iterdir()
        assert stat.S_IMODE(dead.stat().st_mode) == 0o700
        with pytest.raises(DataError, match="not finished"):
            load_shard(out, 0, CELLS, 3)
        partition(cfg, KEY, CELLS, out, 3, seed="s")
        assert buckets(out, 3) == buckets(tmp_path / "wanted", 3)
        for shard in out.iterdir():
            assert shard.read_bytes() == (tmp_path / "wanted" / shard.name).read_bytes()
        assert sorted(out.parent.iterdir()) == sorted([dead, out])


MEASURED = """
import re, resource, sys
from pathlib import Path
from privsyn.config import DatasetConfig
from privsyn.data.partition import partition
from privsyn.data.records import Bucket, Cell, Private

cfg = DatasetConfig(name="d", path=sys.argv[1], unit="u", max_records_per_unit=2)
cells = [Cell(i, None, i) for i in range(100)]
partition(cfg, bytes(32), cells, Path(sys.argv[2]), 4, seed="s")
status = Path("/proc/self/status")
if status.exists():  # Linux counts what the parent held before exec into ru_maxrss
    print(int(re.search(r"VmHWM:\\s*(\\d+) kB", status.read_text())[1]) // 2**10)
else:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 2**20)
"""


WRITE_PARQUET = """
import sys
import pyarrow as pa
from pyarrow import parquet

lines = [line.rstrip() for line in open(sys.argv[1])]
table = pa.table({"u": pa.array(range(len(lines))), "text": pa.array(lines)})
options = {"compression": "none", "use_dictionary": False}
parquet.write_table(table, sys.argv[2], row_group_size=len(lines), **options)
"""


def run(script: str, *arguments: Path) -> str:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.slow
def test_texts_are_not_held_in_memory(tmp_path):
    path, out = tmp_path / "a.jsonl", tmp_path / "out"
    with path.open("w") as stream:
        for n in range(300_000):  # a tenth of them of one unit
            stream.write(f'{{"u": {n if n % 10 else 0}, "text": "{f"{n:07d} " * 25}"}}\n')
    assert path.stat().st_size > 60_000_000
    assert int(run(MEASURED, path, out)) < 130  # 101; 92 for a third of the records
    assert len(load_shard(out, 0, [Cell(i, None, i) for i in range(100)], 4)) == 25
    assert (out / "shard-00000.jsonl").stat().st_size > 15_000_000


@pytest.mark.slow
def test_one_large_parquet_row_group_is_not_held_in_memory(tmp_path):
    lines, path, out = tmp_path / "lines", tmp_path / "a.parquet", tmp_path / "out"
    with lines.open("w") as stream:
        stream.writelines(f"{f'{n:07d} ' * 1250}\n" for n in range(20_000))
    run(WRITE_PARQUET, lines, path)
    assert path.stat().st_size > 200_000_000
    assert int(run(MEASURED, path, out)) < 200
