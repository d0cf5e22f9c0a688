"""Whether the evidence is found, before any model reads: python bench/retrieval.py DATASET... [--store DIR] [--out FILE].

A DATASET is a LoCoMo or LongMemEval file. One entry a round (in LoCoMo, where both speakers are users, a round is a turn); a question sees
its own sessions alone. For each way of finding: the share of questions with any, and with all, of their evidence rounds among those
shown, the tokens shown, and the milliseconds that finding took (the question's vector, made once, left out).

Vectors, full text and their reciprocal rank fusion show the first 5, 10 or 20 rounds; ``fusion + neighbours`` also the round before and
after each. The ways below it are this package's and show rounds in their order as long as they take, question by question, no more tokens
than ``fusion + neighbours`` took. Rows with facts and scenes need a store that a model has taught: ``--store``, of the same sessions.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dualtrace_local.config import Role, read_conditions, read_models
from dualtrace_local.corpus import file_digest, read
from dualtrace_local.domains.personal import rounds
from dualtrace_local.masking import mask_session
from dualtrace_local.pipeline.parts import Parts, versions
from dualtrace_local.records import Encoded, Entry, Evidence, Gold, Question, Scope, Session, Tier
from dualtrace_local.search import Place, Places, View, lift, places_of, rank
from dualtrace_local.stats import wilson
from dualtrace_local.store import Kind, Outcome, Store, terms

RESULT = Path(__file__).parent / "results" / "retrieval.json"
FIRST = (5, 10, 20)
REFERENCE = "fusion + neighbours"
EVERYTHING = "everything, times and tastes lifted"

Way = Callable[[Question, int], list[str]]
"""From a question and a number of hits to the ids of the rounds shown, best first."""


@dataclass(frozen=True)
class Asked:
    """A question with the ids of its evidence rounds, and the kind that is reported apart."""

    question: Question
    kind: str
    evidence: frozenset[str]


@dataclass(frozen=True)
class Haystack:
    """The sessions that some questions share."""

    sessions: tuple[Session, ...]
    asked: tuple[Asked, ...]


def haystacks(path: Path) -> Iterator[Haystack]:
    """The questions of a file that name evidence, by the sessions that they see. Adversarial and abstention questions name none."""
    shared: dict[tuple[str, ...], tuple[tuple[Session, ...], list[Asked]]] = {}
    for entry in read(path):
        if not isinstance(entry, Entry) or not entry.question or not entry.gold or entry.gold.abstention:
            continue
        sessions = tuple(mask_session(s) for s in entry.sessions)
        evidence = frozenset(_rounds_with(sessions, entry.gold))
        there = shared.setdefault(tuple(s.key for s in sessions), (sessions, []))
        if evidence:
            there[1].append(Asked(entry.question, entry.gold.kind, evidence))
    return (Haystack(sessions, tuple(asked)) for sessions, asked in shared.values() if asked)


def _rounds_with(sessions: Sequence[Session], gold: Gold) -> Iterator[str]:
    """Ids of the rounds that hold the evidence turns: a round's place is the number of rounds up to its turn."""
    for at, turn in gold.evidence_turns:
        session = sessions[at]
        whole, upto = rounds(session), rounds(Session(session.turns[: turn + 1], session.date, session.scope))
        if upto:
            yield whole[len(upto) - 1].id


class Ways:
    """All ways of finding rounds of one haystack."""

    def __init__(self, store: Store, sessions: Sequence[Session], parts: Parts) -> None:
        keys = frozenset(s.key for s in sessions)
        history = read_conditions().get("history")
        self.parts = parts
        self.fused = View(store, Scope(), history, keys)
        self.by_vector = View(store, Scope(), history.model_copy(update={"search": "vectors"}), keys)
        self.rounds = {r.id: r for r in self.fused.rounds}
        self.order = {r.id: n for n, r in enumerate(self.fused.rounds)}
        count = parts.count(Role.READ)
        self.tokens = {r.id: count(r.text) for r in self.fused.rounds}
        self.taught = bool(store.memories(Scope(), keys))
        views = {name: View(store, Scope(), read_conditions().get("c8"), keys) for name in ("rounds", "facts", "scenes")}
        alone = [Place(r) for r in self.fused.rounds]
        self.places = {"one scale": _places(store, views["rounds"], alone, ("round",), beside=())}
        self.places["+ beside"] = _places(store, views["rounds"], alone, ("round",))
        if self.taught:
            merged = places_of(views["facts"].rounds, views["facts"].memories.values(), views["facts"].said)
            self.places["+ facts"] = _places(store, views["facts"], merged, ("round", "fact"))
            self.places["+ scenes"] = _places(store, views["scenes"], merged, ("round", "fact+scene"))
        self.places[EVERYTHING] = self.places["+ scenes" if self.taught else "+ beside"]

    def vectors(self, question: Question, first: int) -> list[str]:
        """The closest rounds."""
        return [k.owner_id for k in rank(self.by_vector, question.text, self._about(question)).keys[:first]]

    def full_text(self, question: Question, first: int) -> list[str]:
        """The rounds with the highest BM25 score."""
        asked = list(dict.fromkeys(terms(question.text)))
        scores = self.fused.words.get_scores(asked) if asked else np.zeros(len(self.fused.keys.owner_ids))
        return [self.fused.keys.owner_ids[int(n)] for n in np.argsort(-scores, kind="stable")[:first] if scores[n] > 0]

    def fusion(self, question: Question, first: int) -> list[str]:
        """The first of both by reciprocal rank."""
        return [k.owner_id for k in rank(self.fused, question.text, self._about(question)).keys[:first]]

    def with_neighbours(self, question: Question, first: int) -> list[str]:
        """The same, each with the rounds beside it in its session."""
        by_place = list(self.order)
        shown = []
        for name in self.fusion(question, first):
            at = self.order[name]
            beside = [by_place[n] for n in (at, at - 1, at + 1) if 0 <= n < len(by_place)]
            shown += [n for n in beside if self.rounds[n].session_key == self.rounds[name].session_key]
        return list(dict.fromkeys(shown))

    def merged(self, name: str, question: Question, room: int) -> list[str]:
        """Rounds in the order of their places as long as they fit."""
        lifted = lift(self.places[name], question, self.parts.embedder) if name == EVERYTHING else None
        found = self.places[name].ranked(question.text, self._about(question), -1.0, lifted)
        shown: list[str] = []
        for at in found.order:
            source = self.places[name].places[at].round
            if source is None:
                continue
            if (room := room - self.tokens[source.id]) < 0:
                break
            shown.append(source.id)
        return shown

    def _about(self, question: Question) -> Any:
        return self.parts.embedder.encode([question.text])[0]


def _places(store: Store, view: View, places: Sequence[Place], kinds: Iterable[Kind], **options: Any) -> Places:
    return Places(places, [store.keys(view.selection, kind) for kind in kinds], **options)


@dataclass
class Tally:
    """Sums of one way at one number of hits."""

    n: int = 0
    any: int = 0
    all: int = 0
    tokens: int = 0
    seconds: float = 0.0

    def add(self, shown: Sequence[str], asked: Asked, tokens: int, seconds: float) -> None:
        """Count one question."""
        self.n += 1
        self.any += bool(asked.evidence & set(shown))
        self.all += asked.evidence <= set(shown)
        self.tokens += tokens
        self.seconds += seconds

    def told(self) -> dict[str, Any]:
        """As it is kept."""
        return {"any": of(self.any, self.n), "all": of(self.all, self.n)} | {
            "tokens": round(self.tokens / self.n),
            "milliseconds": round(1000 * self.seconds / self.n, 2),
        }


def of(hit: int, n: int) -> dict[str, Any]:
    """A share with its interval."""
    found = wilson(hit, n)
    return {"hit": hit, "n": n, "wilson_95": [found.low, found.high]}


Tallies = dict[tuple[str, int], Tally]


def measure(haystack: Haystack, ways: Ways, tallies: Tallies) -> None:
    """Ask all questions of a haystack in every way."""
    plain: dict[str, Way] = {"vectors": ways.vectors, "full text": ways.full_text, "fusion": ways.fusion, REFERENCE: ways.with_neighbours}
    for asked in haystack.asked:
        ways.fusion(asked.question, 1)  # the question's vector, and what a view reads once
        for first in FIRST:
            room = 0
            for name, way in plain.items():
                started = time.perf_counter()
                shown = way(asked.question, first)
                seconds = time.perf_counter() - started
                room = sum(ways.tokens[r] for r in shown)  # the last one is the reference
                tallies.setdefault((name, first), Tally()).add(shown, asked, room, seconds)
            for name in ways.places:
                started = time.perf_counter()
                shown = ways.merged(name, asked.question, room)
                seconds = time.perf_counter() - started
                tallies.setdefault((name, first), Tally()).add(shown, asked, sum(ways.tokens[r] for r in shown), seconds)


def rounds_alone(folder: Path, found: Sequence[Haystack], parts: Parts) -> None:
    """A store of the rounds alone, for which no model has to write."""
    outcomes = {
        s.key: Outcome(Encoded(s, Tier.DROP, Evidence(), (), rounds(s)), "dropped", "rounds alone") for h in found for s in h.sessions
    }
    with Store.open(folder, parts.embedder, create=True) as store:
        store.commit(list(outcomes.values()))


def main(arguments: Sequence[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    options.add_argument("datasets", nargs="+", type=Path)
    options.add_argument("--store", type=Path, help="a store in which the same sessions are taught")
    options.add_argument("--model", help="the model whose tokens are counted")
    options.add_argument("--out", type=Path, default=RESULT)
    chosen = options.parse_args(arguments)
    result: dict[str, Any] = {"versions": versions(), "first": FIRST, "data": {}}
    with Parts(read_models().with_roles(read=chosen.model)) as parts, tempfile.TemporaryDirectory() as place:
        result |= {"embedder": parts.name(Role.EMBED), "tokens_of": parts.name(Role.READ)}
        for number, path in enumerate(chosen.datasets):
            found, tallies = list(haystacks(path)), Tallies()
            folder = chosen.store or Path(place) / str(number)
            if not chosen.store:
                rounds_alone(folder, found, parts)
            with Store.open(folder, parts.embedder, write=True) as store:
                for haystack in found:
                    measure(haystack, Ways(store, haystack.sessions, parts), tallies)
            rows = [{"way": way, "first": first, **tally.told()} for (way, first), tally in tallies.items()]
            result["data"][path.name] = {"digest": file_digest(path)[:16], "rows": rows}
            for row in rows:
                print(
                    path.name, row["first"], row["way"], *(f"{k} {row[k]['hit'] / row[k]['n']:.3f}" for k in ("any", "all")), row["tokens"]
                )
    chosen.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if not chosen.store:
        print("no --store: rows with facts and scenes are left out")


if __name__ == "__main__":
    main()
