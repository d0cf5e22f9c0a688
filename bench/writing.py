"""What the writer keeps and what gets lost, by kind of session: python bench/writing.py DATASET... [--model NAME] [--out FILE].

A DATASET is a LongMemEval file (its evidence sessions should be kept, but for those of single-session-assistant questions, in which the
user discloses nothing) or a list of whole sessions: ids that begin with ``sharegpt_`` or ``ultrachat_`` are tasks and should be dropped,
the others were simulated for a persona and should be kept. All is taught into one store, thrown away unless ``--store`` names it.

Measured, beside counts, tokens and seconds:

* ``supported``: share of stored components whose quote is in the session word for word, whose numbers and names the user said, and most
  of whose content words are the user's.
* ``details``: of the numbers, dates and names in the user's evidence turns, the share that stands in the text of a component of that
  session (a date also counts when a component's resolved day is the same); ``details_with_quotes`` also looks into the quotes.
* ``preferences``: of the content words that the gold answer to a question for a suggestion shares with the user's evidence turns, the share
  in the text of a component of those sessions.
* ``scenes``: refused, and with details (a number or name of the facts, where these have any), with time, with context (a place or thing
  around the user).
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dualtrace_local.config import Role, TeachSettings, read_models
from dualtrace_local.corpus import file_digest, read
from dualtrace_local.dates import find_events
from dualtrace_local.domains import prompts
from dualtrace_local.grounding import KNOWN_SHARE, VAGUE, Ground, names, numbers, stems
from dualtrace_local.masking import mask_session
from dualtrace_local.pipeline.parts import Listener, Parts, versions
from dualtrace_local.pipeline.teach import Teaching, fingerprint_parts, readable
from dualtrace_local.records import Component, Entry, Memory, Scope, Session, plain
from dualtrace_local.stats import wilson
from dualtrace_local.store import Store

TASKS = ("sharegpt_", "ultrachat_")
RESULT = Path(__file__).parent / "results" / "writing.json"


class Lines(Listener):
    """Prints what is said."""

    def say(self, line: str) -> None:
        """A line."""
        print(line, flush=True)


@dataclass
class Known:
    """A session of the data: its kind, its evidence turns by the user, and the stems of a gold answer that tells a preference."""

    session: Session
    kind: str
    evidence: set[int] = field(default_factory=set)
    preference: frozenset[str] = frozenset()


def known(datasets: Sequence[Path]) -> dict[str, Known]:
    """Session key -> what the data say of it."""
    found: dict[str, Known] = {}
    for entry in (e for path in datasets for e in read(path) if isinstance(e, Entry)):
        told_by_user = entry.gold is not None and entry.gold.kind != "single-session-assistant"
        for position, session in enumerate(map(mask_session, entry.sessions)):
            gold = entry.gold is not None and position in entry.gold.evidence
            task = session.external_id.startswith(TASKS)
            kind = ("evidence" if told_by_user else "assistant evidence") if gold else "task" if task else "simulated"
            each = found.setdefault(session.key, Known(session, kind))
            each.kind = kind if gold else each.kind
            if entry.gold is not None and told_by_user:
                each.evidence |= {t for s, t in entry.gold.evidence_turns if s == position and session.turns[t].role == "user"}
                if entry.gold.kind == "single-session-preference":
                    each.preference |= stems(entry.gold.answer)
    return found


# ----------------------------------------------------------------------------------------------------- measures


def supported(component: Component, session: Session) -> bool:
    """Whether the user's own words carry the component."""
    said = "\n".join(turn.text for turn in session.turns if turn.role == "user")
    words = stems(component.text)
    return (
        component.quote in session.turns[component.turn].text
        and not Ground(session.turns).invented(component.text)
        and bool(words)
        and len(words & stems(said)) / len(words) >= KNOWN_SHARE
    )


@dataclass(frozen=True)
class Details:
    """What an evidence turn holds: numbers in one spelling, names in small letters, spoken dates with their day."""

    numbers: frozenset[str]
    names: frozenset[str]
    dates: frozenset[tuple[str, str]]


def details(texts: Iterable[str], session: Session) -> Details:
    """The details of some texts said in a session. What is part of a spoken date counts as the date alone."""
    figures, named, dates = set[str](), set[str](), set[tuple[str, str]]()
    for text in texts:
        events = find_events(text, session.date)
        dates |= {(" ".join(e.spoken.lower().split()), e.day) for e in events}
        rest = text
        for event in events:
            rest = rest.replace(event.spoken, " ")
        figures |= numbers(rest) - VAGUE
        named |= names(rest)
    return Details(frozenset(figures), frozenset(named), frozenset(dates))


def reached(wanted: Details, components: Sequence[Component], session: Session, *, quotes: bool) -> dict[str, int]:
    """How many of each kind of detail are in the components."""
    texts = [c.text for c in components] + ([c.quote for c in components] if quotes else [])
    whole = " ".join(texts).lower()
    figures = frozenset().union(*(numbers(t) for t in texts))
    tokens = {n for t in texts for n in names(f"x {t}")}
    days = {e.day for c in components for e in c.events if e.day} | {e.day for t in texts for e in find_events(t, session.date) if e.day}
    return {
        "numbers": len(wanted.numbers & figures),
        "names": sum(n in tokens or n in whole for n in wanted.names),
        "dates": sum(spoken in whole or day in days for spoken, day in wanted.dates),
    }


def scene_counts(memories: Sequence[Memory]) -> dict[str, Any]:
    """Scenes by what is in them."""
    with_scene = [m for m in memories if m.scene]
    carry = [m for m in with_scene if _figures_and_names(m.fact)]
    return {
        "memories": len(memories),
        "with_scene": len(with_scene),
        "refused": dict(Counter(m.scene_refused for m in memories if m.scene_refused)),
        "with_details": [sum(bool(_figures_and_names(m.fact) & _figures_and_names(m.scene)) for m in carry), len(carry)],
        "with_time": [sum(bool(find_events(m.scene, m.date)) for m in with_scene), len(with_scene)],
        "with_context": [sum(len(stems(m.scene) - stems(m.fact)) >= CONTEXT for m in with_scene), len(with_scene)],
    }


def _figures_and_names(text: str) -> frozenset[str]:
    return (numbers(text) - VAGUE) | names(text)


CONTEXT = 3
"""Content words of a scene that are not of its facts, from which it shows something around them."""


def share(hit: int, n: int) -> dict[str, Any]:
    """A share with its interval."""
    found = wilson(hit, n)
    return {"hit": hit, "n": n, "share": hit / n if n else None, "wilson_95": [found.low, found.high]}


def measure(sessions: dict[str, Known], store: Store) -> dict[str, Any]:
    """All numbers of a taught store."""
    ledger = [row for row in store.sessions() if row.key in sessions]
    memories = [m for m in store.memories(Scope()) if m.session_key in sessions]
    of = {row.key: [c for m in memories if m.session_key == row.key for c in m.components] for row in ledger}
    kinds = {}
    for kind in sorted({k.kind for k in sessions.values()}):
        rows = [row for row in ledger if sessions[row.key].kind == kind]
        written = sum(len(of[row.key]) for row in rows)
        kinds[kind] = share(sum(row.status == "taught" for row in rows), len(rows)) | {"components_a_session": written / max(1, len(rows))}
    wanted, found, quoted = Counter[str](), Counter[str](), Counter[str]()
    meant = told = 0
    for key, each in sessions.items():
        if each.evidence and key in of:
            held = details((each.session.turns[t].text for t in sorted(each.evidence)), each.session)
            wanted.update({name: len(getattr(held, name)) for name in ("numbers", "names", "dates")})
            found.update(reached(held, of[key], each.session, quotes=False))
            quoted.update(reached(held, of[key], each.session, quotes=True))
            words = each.preference & stems(" ".join(each.session.turns[t].text for t in each.evidence))
            meant += len(words)
            told += len(words & stems(" ".join(c.text for c in of[key])))
    all_components = [(c, sessions[key].session) for key, mine in of.items() for c in mine]
    good = sum(supported(c, s) for c, s in all_components)
    refused = Counter(reason for row in ledger for reason in row.dropped_sentences)
    return {
        "kinds": kinds,
        "components": len(all_components),
        "supported": share(good, len(all_components)),
        "written_and_kept": share(len(all_components), len(all_components) + refused.total()),
        "sentences_refused": dict(refused.most_common()),
        "details": share(found.total(), wanted.total()) | {name: share(found[name], n) for name, n in wanted.items()},
        "details_with_quotes": share(quoted.total(), wanted.total()),
        "preferences": share(told, meant),
        "scenes": scene_counts(memories),
        "totals_of_evidence": dict(sorted(Counter(row.evidence.total for row in ledger if row.status != "empty").items())),
    }


def main() -> None:
    """Teach the data sets, measure, keep the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", type=Path, nargs="+", metavar="DATASET")
    parser.add_argument("--model")
    parser.add_argument("--assistant-chars", type=int, default=TeachSettings().assistant_chars)
    parser.add_argument("--limit", type=int, help="only the first records of each file")
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--store", type=Path, help="keep the store here; what it holds already is measured, not taught again")
    args = parser.parse_args()
    models = read_models().with_roles(encode=args.model)
    settings = TeachSettings(assistant_chars=args.assistant_chars)
    sessions = known(args.datasets)
    with (
        Parts(models, Lines()) as parts,
        tempfile.TemporaryDirectory() as folder,
        Store.open(args.store or Path(folder) / "store", parts.embedder, write=True, create=True) as store,
    ):
        totals = Teaching(store, parts, settings, scope=Scope()).run(readable(args.datasets, args.limit))
        written = measure(sessions, store)
        fingerprint = fingerprint_parts(parts, settings)
    n = max(1, totals.taught + totals.dropped)
    result = {
        "model": models.roles[Role.ENCODE],
        "gate": models.spec(models.roles[Role.ENCODE]).gate.value,
        "assistant_chars": args.assistant_chars,
        "data": {p.name: file_digest(p) for p in args.datasets},
        "limit": args.limit,
        "development": True,
        "failed": totals.failed,
        **written,
        "tokens_a_session": {k: v / n for k, v in plain(totals.spent).items()},
        "tokens_by_request": plain(totals.usage),
        "seconds": totals.seconds,
        "prompts": {name: prompts.digest(name) for name in fingerprint["prompts"]},
        "versions": versions(),
    }
    args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
