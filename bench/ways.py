"""How the two gate ways score the same sessions: python bench/ways.py DATASET... [--model NAME] [--out FILE].

Each way teaches the data into a store that is thrown away: ``scored`` (the model gives the paper's three scores) and ``facts-first`` (code
works the scores out from what the user said). Kept: how totals 0 to 6 are distributed by kind of session, which sessions each way
keeps, and how far they agree (share of sessions with the same decision, Cohen's kappa, share with the same total).
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from writing import Known, Lines, known, share

from dualtrace_local.config import GateWay, Models, Role, TeachSettings, read_models
from dualtrace_local.corpus import file_digest
from dualtrace_local.pipeline.parts import Parts, versions
from dualtrace_local.pipeline.teach import Teaching, readable
from dualtrace_local.records import Scope, plain
from dualtrace_local.stats import agree, kappa
from dualtrace_local.store import LedgerRow, Store

RESULT = Path(__file__).parent / "results" / "ways.json"


def with_way(models: Models, way: GateWay) -> Models:
    """The models with the encode model's gate set."""
    name = models.roles[Role.ENCODE]
    return models.model_copy(update={"models": {**models.models, name: models.spec(name).model_copy(update={"gate": way})}})


def taught(models: Models, datasets: Sequence[Path], limit: int | None) -> tuple[dict[str, LedgerRow], dict[str, Any]]:
    """The ledger after teaching, by session key, and what it took."""
    with (
        Parts(models, Lines()) as parts,
        tempfile.TemporaryDirectory() as folder,
        Store.open(Path(folder) / "store", parts.embedder, write=True, create=True) as store,
    ):
        totals = Teaching(store, parts, TeachSettings(), scope=Scope()).run(readable(datasets, limit))
        rows = {row.key: row for row in store.sessions() if row.status != "empty"}
    spent = {"failed": totals.failed, "seconds": totals.seconds, "tokens": plain(totals.spent)}
    return rows, spent


def way_result(rows: dict[str, LedgerRow], sessions: dict[str, Known]) -> dict[str, Any]:
    """Distribution of totals and sessions kept, by kind."""
    found = {}
    for kind in sorted({sessions[key].kind for key in rows}):
        mine = [row for key, row in rows.items() if sessions[key].kind == kind]
        totals = Counter(row.evidence.total for row in mine)
        found[kind] = share(sum(row.status == "taught" for row in mine), len(mine)) | {"totals": {n: totals[n] for n in range(7)}}
    return found


def main() -> None:
    """Teach both ways, compare, keep the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", type=Path, nargs="+", metavar="DATASET")
    parser.add_argument("--model")
    parser.add_argument("--limit", type=int, help="only the first records of each file")
    parser.add_argument("--out", type=Path, default=RESULT)
    args = parser.parse_args()
    models = read_models().with_roles(encode=args.model)
    sessions = known(args.datasets)
    ledgers, result = {}, {}
    for way in GateWay:
        ledgers[way], spent = taught(with_way(models, way), args.datasets, args.limit)
        result[way.value] = {"kinds": way_result(ledgers[way], sessions)} | spent
    scored, first = ledgers[GateWay.SCORED], ledgers[GateWay.FACTS_FIRST]
    both = sorted(scored.keys() & first.keys())
    kept = [(scored[k].status == "taught", first[k].status == "taught") for k in both]
    result["agreement"] = {
        "sessions": len(both),
        "same_decision": share(sum(a == b for a, b in kept), len(both)),
        "kappa": kappa(agree([a for a, _ in kept], [b for _, b in kept])),
        "same_total": share(sum(scored[k].evidence.total == first[k].evidence.total for k in both), len(both)),
        "kept_by": {"both": sum(a and b for a, b in kept), "scored alone": sum(a and not b for a, b in kept),
                    "facts-first alone": sum(b and not a for a, b in kept), "neither": sum(not a and not b for a, b in kept)},
    }  # fmt: skip
    result |= {
        "model": models.roles[Role.ENCODE],
        "data": {p.name: file_digest(p) for p in args.datasets},
        "limit": args.limit,
        "development": True,
        "versions": versions(),
    }
    args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
