"""A rank of its own home: reads the units that lie there, and serves rank 0 over a sealed line."""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path

from privsyn.errors import PrivsynError
from privsyn.models.training.distributed.rank import Rank
from privsyn.models.training.distributed.rank_group import Group
from privsyn.models.training.distributed.ranks import serve


def main(rendezvous: str, rank: str, size: str, home: str, key: str) -> int:
    group = Group(Rank(int(rank), int(size), 0, 1), timedelta(seconds=120), Path(rendezvous))
    try:
        if key != "none":
            group.seal(bytes.fromhex(key))

        def records(request, shards):
            return {
                unit: [tuple(record) for record in records]
                for shard in shards
                for unit, records in json.loads(Path(home, f"{shard}.json").read_bytes()).items()
            }

        serve(group, records)
    except PrivsynError as error:
        print(error.message, flush=True)
        return 1
    finally:
        group.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
