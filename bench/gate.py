"""How many sessions the gate keeps, by kind of session: python bench/gate.py ORACLE.json FILLER.json [--model NAME].

ORACLE is a LongMemEval oracle file: its evidence sessions should be kept (those of single-session-assistant questions are left out, since
the user discloses nothing in them). FILLER is a list of whole filler sessions: ids that begin with ``sharegpt_`` or ``ultrachat_`` are
tasks and should be dropped, the others were simulated for a persona and should be kept. The result is kept in bench/results/gate.json.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from pathlib import Path

from dualtrace_local.config import TeachSettings, read_models
from dualtrace_local.corpus import file_digest, read
from dualtrace_local.masking import mask_session
from dualtrace_local.pipeline.parts import Listener, Parts, versions
from dualtrace_local.pipeline.teach import Teaching, readable
from dualtrace_local.records import Entry, Scope
from dualtrace_local.stats import wilson
from dualtrace_local.store import Store

TASKS = ("sharegpt_", "ultrachat_")
RESULT = Path(__file__).parent / "results" / "gate.json"


class Lines(Listener):
    """Prints what is said."""

    def say(self, line: str) -> None:
        """A line."""
        print(line, flush=True)


def kinds(oracle: Path, filler: Path) -> dict[str, str]:
    """Session key -> kind."""
    found: dict[str, str] = {}
    for source, evidence in ((oracle, True), (filler, False)):
        for entry in read(source):
            if not isinstance(entry, Entry) or (entry.gold and entry.gold.kind == "single-session-assistant"):
                continue
            for session in entry.sessions:
                kind = "task" if session.external_id.startswith(TASKS) else "simulated"
                found[mask_session(session).key] = "evidence" if evidence else kind
    return found


def main() -> None:
    """Teach both files into a store that is thrown away, count, keep the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("oracle", type=Path)
    parser.add_argument("filler", type=Path)
    parser.add_argument("--model")
    parser.add_argument("--assistant-chars", type=int, default=0)
    args = parser.parse_args()
    models = read_models().with_roles(encode=args.model)
    kind_of = kinds(args.oracle, args.filler)
    settings = TeachSettings(assistant_chars=args.assistant_chars)
    with (
        Parts(models, Lines()) as parts,
        tempfile.TemporaryDirectory() as folder,
        Store.open(Path(folder) / "store", parts.embedder, write=True, create=True) as store,
    ):
        totals = Teaching(store, parts, settings, scope=Scope()).run(readable([args.oracle, args.filler]))
        ledger = store.sessions()
        memories = store.memories(Scope())
    kept, n = Counter[str](), Counter[str]()
    for row in ledger:
        if row.key in kind_of:
            n[kind_of[row.key]] += 1
            kept[kind_of[row.key]] += row.status == "taught"
    spent = totals.spent
    result = {
        "model": models.roles,
        "assistant_chars": args.assistant_chars,
        "data": {p.name: file_digest(p) for p in (args.oracle, args.filler)},
        "development": True,
        "kinds": {k: {"kept": kept[k], "n": n[k], "wilson_95": [wilson(kept[k], n[k]).low, wilson(kept[k], n[k]).high]} for k in sorted(n)},
        "failed": totals.failed,
        "memories": len(memories),
        "with_scene": sum(bool(m.scene) for m in memories),
        "components": sum(len(m.components) for m in memories),
        "scenes_refused": dict(Counter(m.scene_refused for m in memories if m.scene_refused)),
        "tokens_a_session": {
            "prompt": spent.prompt_tokens / len(ledger),
            "cached": spent.cached_tokens / len(ledger),
            "completion": spent.completion_tokens / len(ledger),
        },
        "seconds": totals.seconds,
        "versions": versions(),
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
