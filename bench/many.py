"""What many small teaches cost: python bench/many.py [--sessions 5000].

The same invented sessions go into one store one at a time, opened anew every hundred, and into another all at once. Kept: bytes, files and
seconds of a search in both, and their ratios. Most of the key texts are alike, so that what is measured is the store and not the embedder.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "tests"))  # made-up inputs lie there
from test_store import outcome  # noqa: E402

from dualtrace_local import weights  # noqa: E402
from dualtrace_local.config import read_models  # noqa: E402
from dualtrace_local.embed import Embedder, load_embedder  # noqa: E402
from dualtrace_local.pipeline.parts import versions  # noqa: E402
from dualtrace_local.records import Scope  # noqa: E402
from dualtrace_local.store import Selection, Store  # noqa: E402
from dualtrace_local.store.durable import size_of  # noqa: E402

RESULT = HERE / "results" / "many.json"
NAME = "all-minilm-l6-v2"
EVERY = 100
"""Sessions after which the store is opened anew, as another command would."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    options.add_argument("--sessions", type=int, default=5000)
    options.add_argument("--out", type=Path, default=RESULT)
    chosen = options.parse_args()
    embedder = load_embedder(NAME, weights.ready(NAME, read_models().spec(NAME)), read_models().spec(NAME).dimension)
    made = [outcome(n % 300, Scope(f"u{n // 300}")) for n in range(chosen.sessions)]
    with tempfile.TemporaryDirectory() as place:
        many, one = Path(place) / "many", Path(place) / "one"
        started = time.monotonic()
        for start in range(0, len(made), EVERY):
            with Store.open(many, embedder, write=True, create=True) as store:
                for session in made[start : start + EVERY]:
                    store.commit([session])
        seconds = time.monotonic() - started
        with Store.open(one, embedder, create=True) as store:
            store.commit(made)
        found = {"sessions": chosen.sessions, "seconds_a_commit": round(seconds / chosen.sessions, 4)}
        found |= {"one_at_a_time": measured(many, embedder), "at_once": measured(one, embedder), "versions": versions()}
        found["ratios"] = {k: round(found["one_at_a_time"][k] / found["at_once"][k], 2) for k in ("megabytes", "search_ms")}
    chosen.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=2))


def measured(path: Path, embedder: Embedder) -> dict[str, float]:
    """Bytes, files, and the median milliseconds of reading all keys of one scope and of LanceDB's nearest fifty."""
    with Store.open(path, embedder, write=True) as store:
        about, times = Selection(Scope("u0")), []
        vector = embedder.encode(["What did I spend day 7 on?"])[0]
        for _ in range(20):
            started = time.monotonic()
            store.keys(about, "fact")
            store.nearest(about, "fact", vector, 50)
            times.append(1000 * (time.monotonic() - started))
    files = sum(f.is_file() for f in path.rglob("*"))
    return {"megabytes": round(size_of(path) / 1e6, 1), "files": files, "search_ms": round(statistics.median(times), 1)}


if __name__ == "__main__":
    main()
