"""The paper's way to draw questions: so many of each of its kinds, and so many abstention questions, from one benchmark file.

Which questions the paper drew is not published, so a seed draws others of the same make-up. A question's place in the draw is a hash
of seed and id: the same on every machine, whatever the order of the file, and a larger sample holds the smaller one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dualtrace_local.corpus import read
from dualtrace_local.errors import DataError
from dualtrace_local.records import Entry, Gold, digest_of
from dualtrace_local.report import group_of, read_published

PER_KIND = 20
"""Questions of each kind, and abstention questions (the paper asks 100: 20 in each of four categories and 20 abstention)."""

SEED = 42
"""Seed of the draw when none is given; the paper names none for it."""


@dataclass(frozen=True)
class Sample:
    """What was drawn: ids in the order of the file, and how many of each of the dataset's own kinds are in each of the paper's."""

    seed: int
    ids: tuple[str, ...]
    kinds: dict[str, dict[str, int]]

    @property
    def digest(self) -> str:
        """Of the ids, whatever their order: what makes a run with this sample the run it is."""
        return digest_of(*sorted(self.ids))

    @property
    def told(self) -> str:
        """One line for a report."""
        counts = ", ".join(f"{sum(found.values())} {kind}" for kind, found in self.kinds.items())
        return f"paper, seed {self.seed}: {counts}; ids in sample.json, digest {self.digest[:16]}"

    def document(self, dataset: str, sha256: str) -> dict[str, Any]:
        """The content of sample.json."""
        file = {"dataset": dataset, "dataset_sha256": sha256}
        return {"sample": "paper", "seed": self.seed, "per_kind": PER_KIND, **file, "kinds": self.kinds, "ids": list(self.ids)}


def draw(path: Path, seed: int = SEED, limit: int | None = None) -> Sample:
    """Draw ``PER_KIND`` questions of each of the paper's kinds from ``path`` (its first ``limit`` records).

    The three single-session kinds of LongMemEval are one kind here, drawn from together: the paper does not tell them apart.

    Raises:
        DataError: the file cannot be read, or has too few questions of a kind.
    """
    golds = [e.gold for e in read(path, limit=limit) if isinstance(e, Entry) and e.question is not None and e.gold is not None]
    kinds = read_published().kinds
    found: dict[str, list[Gold]] = {kind: [] for kind in kinds}
    for gold in golds:
        if (kind := group_of(gold)) in found:
            found[kind].append(gold)
    if few := [f"{len(there)} {kind}" for kind, there in found.items() if len(there) < PER_KIND]:
        raise DataError(
            f"{path.name}: --sample paper needs {PER_KIND} questions of each kind and has only {', '.join(few)}; "
            "give a whole LongMemEval-S file, or leave --sample out to ask every question of this one"
        )
    drawn = {kind: sorted(there, key=lambda g: digest_of("sample", seed, g.question_id))[:PER_KIND] for kind, there in found.items()}
    ids = {gold.question_id for there in drawn.values() for gold in there}
    return Sample(
        seed,
        tuple(gold.question_id for gold in golds if gold.question_id in ids),
        {kind: dict(sorted(Counter(gold.kind for gold in there).items())) for kind, there in drawn.items()},
    )
