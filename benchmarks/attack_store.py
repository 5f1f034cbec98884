"""Attack the label store: kill the server while labelling, and cut the power; count the acknowledged labels that are missing.

    python benchmarks/attack_store.py [--kills 30] [--labels 1200] [--cuts 300] [--seed 0] [--work FOLDER]

The kills are SIGKILLs of a real `samekind serve`, while a client labels over HTTP. The power cuts are simulated (Linux with
cc): the writes of a labelling process are recorded, and after a cut only synced data is certain; the rest is torn into
sectors of 512 bytes. The exit code is 1 if a label is missing. As a control, the power cuts are also
simulated with all syncs ignored: labels must then be missing, which shows that the simulation finds them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # for the parts shared with the tests

from tests.server.conftest import fit_striped
from tests.server.kill_server import label_and_kill
from tests.server.power_cut import cut_power, label_plan, record_labelling

from bench_tables import show

RECORDED_LABELS = 300


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--labels", type=int, default=1200, help="acknowledged labels over all kills")
    parser.add_argument("--cuts", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, default=None, help="folder for runs; default: a temporary one")
    args = parser.parse_args()
    rows, missing = [], 0
    with tempfile.TemporaryDirectory(dir=args.work) as work:
        folder = Path(work)
        fit_striped(folder)
        began = time.monotonic()
        killed = label_and_kill(folder / "run", args.labels, args.kills, args.seed)
        missing += killed.missing
        cells = [f"{killed.kills} kills", str(killed.acknowledged), str(killed.missing)]
        rows.append([*cells, f"{time.monotonic() - began:.0f} s"])
        (folder / "power").mkdir()
        records = record_labelling(folder / "power", RECORDED_LABELS, args.seed)
        plan = label_plan(RECORDED_LABELS, args.seed)
        for ignore_syncs in (False, True):
            began = time.monotonic()
            cut = cut_power(records, folder / "power", args.cuts, plan, args.seed, ignore_syncs=ignore_syncs)
            name = f"{cut.cuts} power cuts" + (" without syncs (control)" if ignore_syncs else "")
            rows.append([name, str(cut.acknowledged), str(cut.missing), f"{time.monotonic() - began:.0f} s"])
            missing += 0 if ignore_syncs else cut.missing
    show(["attack", "acknowledged labels", "missing", "time"], rows)
    raise SystemExit(1 if missing else 0)


if __name__ == "__main__":
    main()
