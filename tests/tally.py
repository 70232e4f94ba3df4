"""How much was thrown at the product: one file of counts, for whoever reports them.

`.cache/hostile.json` holds, for each kind, the last count of each test that ran. Writing it is no
part of any verdict.
"""

import fcntl
import json
from pathlib import Path

PATH = Path(__file__).parents[1] / ".cache" / "hostile.json"


def note(kind: str, *, test: str, count: int) -> None:
    """Keep `count` of `kind` under the name of the test; processes of one run take turns."""
    PATH.parent.mkdir(exist_ok=True)
    with PATH.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = json.loads(PATH.read_text()) if PATH.exists() else {}
        counts = {**known.get("counts", {})}
        counts[kind] = {**counts.get(kind, {}), test: count}
        totals = {name: sum(of.values()) for name, of in sorted(counts.items())}
        PATH.write_text(json.dumps({"totals": totals, "counts": counts}, indent=1, sort_keys=True))
