"""How long a whole experiment of the paper's size takes without a model: python bench/scale.py [--questions 100] [--sessions 4575].

A made-up benchmark goes through teach, every condition, judge and report with the rule-made model, so that what is measured is all but
the model: reading, masking, embedding, the store, search, statistics. Kept: seconds by stage, the size of the store, the most memory.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "tests"))  # made-up inputs lie there
import kit  # noqa: E402

from dualtrace_local.config import read_conditions, read_models  # noqa: E402
from dualtrace_local.pipeline import experiment  # noqa: E402
from dualtrace_local.pipeline.parts import Parts, versions  # noqa: E402
from dualtrace_local.store.durable import size_of  # noqa: E402

RESULT = HERE / "results" / "scale.json"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    options.add_argument("--questions", type=int, default=100)
    options.add_argument("--sessions", type=int, default=4575)
    options.add_argument("--protocol", choices=("official", "pooled"), default="pooled")
    options.add_argument("--out", type=Path, default=RESULT)
    chosen = options.parse_args()
    conditions = read_conditions()
    with tempfile.TemporaryDirectory() as place:
        source = kit.rows(Path(place) / "made-up.json", list(kit.made_up(chosen.questions, chosen.sessions)))
        started = time.monotonic()
        with Parts(read_models().with_roles(encode="scripted", read="scripted", judge="scripted")) as parts:
            plan = experiment.Plan(source, tuple(conditions.conditions), chosen.protocol)
            result = experiment.run(plan, Path(place) / "run", parts, conditions)
        found = {
            "questions": chosen.questions,
            "sessions": chosen.sessions,
            "protocol": chosen.protocol,
            "conditions": list(conditions.conditions),
            "seconds": round(time.monotonic() - started, 1),
            "seconds_by_stage": result.report.header.seconds,
            "memories": result.teach.memories,
            "failed": result.failed,
            "unscored": result.unscored,
            "store_mb": round(size_of(Path(place) / "run" / "store") / 1e6, 1),
            "most_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
            "versions": versions(),
        }
    chosen.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
