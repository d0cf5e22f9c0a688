"""How long a search over many memories takes beside a plain numpy scan of the same vectors: python bench/speed.py [--memories 100000].

The store is made up and thrown away, unless ``--store`` names it. Its vectors are random unit vectors that follow from the text, so that no
embedding model has to read a hundred thousand texts; everything else is what `ask` does, where LanceDB ranks the words of so many. The
first search of a process is kept apart. Beside it: the same ranking in memory, as smaller views are ranked, once the keys are read. Scan,
search and ranking are timed in turn, in one process; the medians are kept.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dualtrace_local.config import read_conditions
from dualtrace_local.embed import Embedder
from dualtrace_local.pipeline.parts import versions
from dualtrace_local.records import Component, Encoded, Evidence, Memory, Question, Scope, Session, Tier, Turn, digest_of
from dualtrace_local.search import View, rank, search
from dualtrace_local.store import Outcome, Store

RESULT = Path(__file__).parent / "results" / "speed.json"
BATCH = 5000
WORDS = "kayak violin greenhouse typewriter telescope loom sidecar accordion beehive canoe kiln anvil lantern compass barrel quilt".split()


class RandomVectors(Embedder):
    """Unit vectors that follow from the text and mean nothing."""

    digest = "0" * 32

    def __init__(self) -> None:
        super().__init__("random vectors", Path(), 384)

    def cut(self, text: str) -> str:
        """All of it."""
        return text

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One vector a text, shape [len(texts), 384]."""
        rows = [np.random.default_rng(int(digest_of(t, length=15), 16)).standard_normal(384, dtype=np.float32) for t in texts]
        return np.stack([row / np.linalg.norm(row) for row in rows]) if rows else np.zeros((0, 384), np.float32)


def outcomes(count: int) -> Iterator[Outcome]:
    """Sessions with one memory each."""
    strong = Evidence(2, 2, 2)
    for n in range(count):
        fact = f"The user bought {WORDS[n % 16]} {n} beside the {WORDS[n // 16 % 16]} and the {WORDS[n // 256 % 16]}."
        session = Session((Turn("user", fact),), datetime(2020, 1, 1) + timedelta(minutes=n))
        anchor, parts = f"{WORDS[n % 16]}-{n // 100}", (Component(fact, fact, 0),)
        memory = Memory(session.key, 0, Scope(), session.date, anchor, "discrete", "other", Tier.FULL, strong, parts)
        yield Outcome(Encoded(session, Tier.FULL, strong, (memory,)), "taught", "speed")


def built(folder: Path, count: int, embedder: Embedder) -> None:
    """A store of ``count`` memories."""
    made = outcomes(count)
    with Store.open(folder, embedder, create=True) as store:
        for start in range(0, count, BATCH):
            store.commit([next(made) for _ in range(min(BATCH, count - start))])
            print(start + BATCH, flush=True)
        store.index_words()


def scanned(matrix: NDArray[np.float32], vector: NDArray[np.float32]) -> object:
    """The plain scan: all cosines, the ten best."""
    return np.argsort(-(matrix @ vector))[:10]


def timed(work: Callable[[], object]) -> float:
    """Milliseconds."""
    started = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - started)


def main(arguments: Sequence[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    options.add_argument("--memories", type=int, default=100_000)
    options.add_argument("--searches", type=int, default=15)
    options.add_argument("--store", type=Path)
    options.add_argument("--out", type=Path, default=RESULT)
    chosen = options.parse_args(arguments)
    embedder = RandomVectors()
    with tempfile.TemporaryDirectory() as place:
        folder = chosen.store or Path(place) / "s"
        if not folder.exists():
            built(folder, chosen.memories, embedder)
        with Store.open(folder, embedder) as store:
            view = View(store, Scope(), read_conditions().get("c6"))
            matrix = store.keys(view.selection, "fact").matrix
            asked = [Question(f"q{n}", f"Where did I buy {WORDS[n % 16]} {7 * n}?", None) for n in range(chosen.searches + 1)]
            vectors = embedder.encode([q.text for q in asked])
            first = timed(partial(search, view, asked[0], embedder, 800, len))
            reading = timed(lambda: view.keys)
            in_memory = partial(rank, view, in_memory_limit=len(matrix))
            in_memory(asked[0].text, vectors[0])
            scan, found, ranked = [], [], []
            for question, vector in zip(asked[1:], vectors[1:], strict=True):
                scan.append(timed(partial(scanned, matrix, vector)))
                found.append(timed(partial(search, view, question, embedder, 800, len)))
                ranked.append(timed(partial(in_memory, question.text, vector)))
    result = {
        "memories": len(matrix),
        "scan_ms": round(statistics.median(scan), 1),
        "search_ms": round(statistics.median(found), 1),
        "times_the_scan": round(statistics.median(found) / statistics.median(scan), 2),
        "first_search_ms": round(first, 1),
        "in_memory_ms": round(statistics.median(ranked), 1),
        "reading_keys_ms": round(reading, 1),
        "versions": versions(),
    }
    chosen.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
