"""How far a judge model agrees with given labels: python bench/judge.py LABELS.jsonl [--model NAME].

A line of LABELS holds question_id, question_type, question, answer, hypothesis and label (true or false). Every answer goes to the model,
abstentions too, so that this measures the judge and not the rule. The result is kept in bench/results/judge.json.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path

from dualtrace_local.config import Role, read_models
from dualtrace_local.corpus import file_digest
from dualtrace_local.domains import prompts
from dualtrace_local.engines.driver import Job
from dualtrace_local.judge import PROMPTS, judge
from dualtrace_local.pipeline.parts import Parts, versions
from dualtrace_local.records import Answer, Done, Gold, State
from dualtrace_local.stats import agree, kappa, wilson

RESULT = Path(__file__).parent / "results" / "judge.json"


def main() -> None:
    """Judge, compare, keep the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("labels", type=Path)
    parser.add_argument("--model")
    args = parser.parse_args()
    rows = [json.loads(line) for line in args.labels.read_text(encoding="utf-8").split("\n") if line.strip()]
    models = read_models().with_roles(judge=args.model)
    with Parts(models) as parts:
        jobs = []
        for i, row in enumerate(rows):
            answer = Answer(row["question_id"], row["question"], "", State.B, row["hypothesis"], abstained=False)
            gold = Gold(row["question_id"], row["answer"], row["question_type"], row["question_id"].endswith("_abs"))
            jobs.append(Job(str(i), partial(judge, answer, gold, parts.name(Role.JUDGE), b"bench")))
        results = {r.key: r for r in parts.engine(Role.JUDGE).run(jobs, window=parts.spec(Role.JUDGE).window)}
    verdicts = [r.value.correct if isinstance(r := results[str(i)], Done) else None for i in range(len(rows))]
    pairs = [(v, row["label"]) for v, row in zip(verdicts, rows, strict=True) if v is not None]
    table = agree([v for v, _ in pairs], [label for _, label in pairs])
    same = table.both + table.neither
    result = {
        "model": models.roles[Role.JUDGE],
        "data": {args.labels.name: file_digest(args.labels)},
        "n": len(rows),
        "unscored": len(rows) - len(pairs),
        "agreement": same / len(pairs),
        "wilson_95": [wilson(same, len(pairs)).low, wilson(same, len(pairs)).high],
        "kappa": kappa(table),
        "judged_correct_labelled_wrong": table.only_first,
        "judged_wrong_labelled_correct": table.only_second,
        "prompts": {name: prompts.digest(name) for name in PROMPTS},
        "versions": versions(),
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
