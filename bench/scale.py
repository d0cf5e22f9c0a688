"""A whole experiment of the paper's size without a model: python bench/scale.py [--questions 100] [--sessions 4575] [--interruptions N].

A made-up benchmark goes through teach, every condition, judge and report with the rule-made model, so that what is measured is all but
the model: reading, masking, embedding, the store, search, statistics. Kept: seconds and model calls by stage, the size of the store,
the most memory. With interruptions the same is run once more, ended that many times at random moments, and must come out the same.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "tests"))  # made-up inputs lie there
import kit  # noqa: E402

from dualtrace_local.config import read_conditions, read_models  # noqa: E402
from dualtrace_local.pipeline import experiment  # noqa: E402
from dualtrace_local.pipeline.parts import Parts, versions  # noqa: E402
from dualtrace_local.store.durable import size_of  # noqa: E402

RESULT = HERE / "results" / "scale.json"


def interrupted(folder: Path, source: Path, names: list[str], protocol: str, times: int, seconds: float) -> dict[str, object]:
    """Run the experiment in children that end at random moments of ``seconds``, then to its end. How often, and how long it took."""
    moments, out, started = random.Random(42), folder / "interrupted", time.monotonic()  # noqa: S311 - moments to end at, no secret
    command = ("run", source, "--out", out, "--conditions", ",".join(names), "--protocol", protocol, "--model", "scripted")
    killed = 0
    for _ in range(times):
        running = kit.child(folder, *command)
        running.process.join(moments.uniform(0, 2 * seconds / times))
        if running.process.is_alive():
            (running.process.kill if moments.random() < 0.5 else running.process.terminate)()  # noqa: PLR2004
            killed += 1
        running.ended(seconds)
    code = kit.child(folder, *command).ended(3 * seconds)
    return {"interruptions": killed, "exit_code_of_the_last": code, "seconds": round(time.monotonic() - started, 1)}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    options.add_argument("--questions", type=int, default=100)
    options.add_argument("--sessions", type=int, default=4575)
    options.add_argument("--protocol", choices=("official", "pooled"), default="pooled")
    options.add_argument("--interruptions", type=int, default=0)
    options.add_argument("--out", type=Path, default=RESULT)
    chosen = options.parse_args()
    conditions = read_conditions()
    with tempfile.TemporaryDirectory() as place:
        source = kit.rows(Path(place) / "made-up.json", list(kit.made_up(chosen.questions, chosen.sessions)))
        started = time.monotonic()
        with Parts(read_models().with_roles(encode="scripted", read="scripted", judge="scripted")) as parts:
            plan = experiment.Plan(source, tuple(conditions.conditions), chosen.protocol)
            result = experiment.run(plan, Path(place) / "run", parts, conditions)
        calls: Counter[str] = Counter()
        for row in result.report.tokens:
            calls[f"{row.stage} {row.kind}"] += row.usage.calls
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
            "calls": dict(calls),
            "versions": versions(),
        }
        if chosen.interruptions:
            names = list(conditions.conditions)
            again = interrupted(Path(place), source, names, chosen.protocol, chosen.interruptions, found["seconds"])
            same = kit.outcome(Path(place) / "run") == kit.outcome(Path(place) / "interrupted")
            found["interrupted"] = again | {"same_stores_answers_and_verdicts": same}
    chosen.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
