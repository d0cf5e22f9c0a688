"""How far a judge model agrees with given labels: python bench/judge.py LABELS.jsonl [--model NAME] [--split dev|held|all] [--no-probes].

The same measurement as ``dualtrace judge calibrate``, whose help says what a line of LABELS holds. Every answer goes to the model,
abstentions too, so that this measures the judge and not the rule. The result is kept in bench/results/judge.json, that of one half in
judge-dev.json or judge-held.json.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from dualtrace_local.config import read_models
from dualtrace_local.pipeline.calibrate import calibrate, read_labels
from dualtrace_local.pipeline.parts import Parts
from dualtrace_local.records import plain

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    """Judge, compare, keep the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("labels", type=Path)
    parser.add_argument("--model")
    parser.add_argument("--split", choices=["dev", "held", "all"], default="all")
    parser.add_argument("--no-probes", action="store_true")
    args = parser.parse_args()
    with Parts(read_models().with_roles(judge=args.model)) as parts:
        found = calibrate(read_labels(args.labels, args.split), parts, planted=not args.no_probes)
    whole = found.overall
    result = {
        "model": found.model["name"],
        "data": {found.labels: found.labels_sha256},
        "split": found.split,
        "n": whole.n,
        "unscored": whole.unscored,
        "agreement": whole.agreement.value,
        "wilson_95": [whole.agreement.low, whole.agreement.high],
        "kappa": whole.kappa,
        "judged_correct_labelled_wrong": whole.table.only_second,
        "judged_wrong_labelled_correct": whole.table.only_first,
        "kinds": plain(found.rows),
        "probes": plain(found.probes),
        "prompts": found.prompts,
        "versions": found.versions,
    }
    path = RESULTS / ("judge.json" if args.split == "all" else f"judge-{args.split}.json")
    text = json.dumps(result, indent=1)
    path.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
