"""The draw of the paper's make-up: 20 a kind and 20 abstentions, the same on every machine, part of the run's identity."""

import json

import pytest
from kit import document, dualtrace, row, rows

from dualtrace_local.corpus.known import release_of
from dualtrace_local.errors import DataError
from dualtrace_local.pipeline.sample import draw
from dualtrace_local.store import Store

KINDS = {
    "single-session-user": 14,
    "single-session-assistant": 9,
    "single-session-preference": 3,
    "multi-session": 24,
    "knowledge-update": 22,
    "temporal-reasoning": 21,
}
"""Questions with an answer of each kind in the invented file; 23 more have none."""


def questions(kinds=None, abstentions=23):
    """Each with a session of its own, dated before the question; of every fifth, after it."""
    made = [(kind, n, "") for kind, many in (kinds or KINDS).items() for n in range(many)]
    made += [("multi-session", n, "_abs") for n in range(abstentions)]
    for place, (kind, n, end) in enumerate(made):
        day = "2024/07/02 (Tue) 09:00" if place % 5 == 0 else "2024/03/02 (Sat) 09:00"
        told = (f"answer_{kind}-{n}{end}", day, [f"My parrot number {place} is called Kiko{place}.", "Nice."])
        yield row(f"{kind}-{n}{end}", f"What is parrot {place} called?", f"Kiko{place}", [told], kind=kind, evidence=[told[0]])


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return rows(tmp_path_factory.mktemp("draw") / "lme.json", list(questions()))


def test_twenty_of_each_kind_and_twenty_abstentions(dataset):
    """The three single-session kinds are drawn from together; what was drawn of each is said."""
    found = draw(dataset, 7)

    assert len(found.ids) == len(set(found.ids)) == 100
    assert {kind: sum(counts.values()) for kind, counts in found.kinds.items()} == dict.fromkeys(found.kinds, 20)
    assert set(found.kinds) == {"single-session", "multi-session", "knowledge-update", "temporal", "abstention"}
    assert set(found.kinds["single-session"]) == {k for k in KINDS if k.startswith("single")}
    assert sum(name.endswith("_abs") for name in found.ids) == 20
    assert "20 abstention" in found.told


def test_the_draw_depends_on_seed_and_ids_alone(dataset, tmp_path):
    """Another order of the file draws the same questions, another seed others."""
    turned = rows(tmp_path / "turned.json", list(reversed(list(questions()))))

    assert set(draw(turned, 7).ids) == set(draw(dataset, 7).ids)
    assert draw(turned, 7).digest == draw(dataset, 7).digest
    assert draw(dataset, 8).digest != draw(dataset, 7).digest


def test_a_file_with_too_few_says_so(tmp_path):
    """Every kind that is short is named with its number; nothing is made."""
    few = rows(tmp_path / "few.json", list(questions({"multi-session": 20, "knowledge-update": 3}, abstentions=19)))
    with pytest.raises(DataError, match="has only 0 single-session, 3 knowledge-update, 0 temporal, 19 abstention"):
        draw(few)

    result = dualtrace("run", few, "--out", tmp_path / "run", "--sample", "paper")
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_a_seed_without_a_draw_is_wrong_use(dataset, tmp_path):
    assert dualtrace("run", dataset, "--out", tmp_path / "run", "--sample-seed", 3).exit_code == 2


def test_a_sampled_run_teaches_and_asks_what_was_drawn(dataset, tmp_path):
    """The ids lie in the folder, the store holds their sessions alone, the report names the draw, and another draw is another run."""
    options = ("--sample", "paper", "--protocol", "pooled", "--conditions", "vanilla")
    first = dualtrace("run", dataset, "--out", tmp_path / "run", *options, "--sample-seed", 7, "--json")
    assert first.exit_code in (0, 3), first.stderr
    found = draw(dataset, 7)

    sample = json.loads((tmp_path / "run" / "sample.json").read_text(encoding="utf-8"))
    assert (sample["sample"], sample["seed"], sample["ids"], sample["kinds"]) == ("paper", 7, list(found.ids), found.kinds)
    assert document(first)["teach"]["read"] == 100
    overall = next(r for r in document(first)["rows"] if r["kind"] == "overall")
    assert overall["n"] == 100
    with Store.open(tmp_path / "run" / "store", None) as store:
        assert {r.external_id for r in store.sessions()} == set(found.ids)

    page = (tmp_path / "run" / "report" / "report.md").read_text(encoding="utf-8")
    dated_after = sum(place % 5 == 0 for place, asked in enumerate(questions()) if asked["question_id"] in found.ids)
    counted = ", ".join(f"{found.kinds['single-session'][k]} {k}" for k in KINDS if k.startswith("single"))
    assert found.told == (
        "paper, seed 7: 20 single-session, 20 multi-session, 20 knowledge-update, 20 temporal, 20 abstention; "
        f"ids in sample.json, digest {found.digest[:16]}"
    )
    for line in (
        f"| sample | {found.told} |",
        "| release of the data | not known (no released file has this digest) |",
        f"| single-session kinds counted | {counted} |",
        f"| evidence dated after the question | {dated_after} of 100 questions |",
    ):
        assert line in page

    again = dualtrace("run", dataset, "--out", tmp_path / "run", *options, "--sample-seed", 7)
    assert again.exit_code == first.exit_code
    for other in (("--sample-seed", 8), ()):
        refused = dualtrace("run", dataset, "--out", tmp_path / "run", *options, *other)
        assert refused.exit_code == 1
        assert "sample" in refused.stderr
    whole = dualtrace("run", dataset, "--out", tmp_path / "run", "--protocol", "pooled", "--conditions", "vanilla")
    assert whole.exit_code == 1


def test_a_file_of_no_known_digest_is_of_no_known_release(dataset):
    assert release_of(dataset) == ""
