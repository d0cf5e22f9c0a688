"""Condition c8: memories and verbatim rounds as one ranking, read together."""

import json

import kit
import numpy as np
import pytest
from kit_talks import ME, talk, words

from dualtrace_local.config import Role, read_conditions, read_models
from dualtrace_local.corpus import read
from dualtrace_local.domains.personal import rounds
from dualtrace_local.pipeline.parts import Parts
from dualtrace_local.pipeline.recalling import budget, view_parts
from dualtrace_local.records import Encoded, Evidence, Question, Round, State, Tier
from dualtrace_local.sample import sample_path
from dualtrace_local.search import BESIDE, Places, View, places_of, search
from dualtrace_local.store import Keys, Outcome, Store

C8 = read_conditions().get("c8")


TALKS = [
    talk(0, "I keep four bee hives on my garage.", "Lovely.", "It took me a whole year.", "Patience pays off.",
         facts=[("I keep four bee hives on my garage.", "The user keeps four bee hives on the roof of their garage.")]),
    talk(1, "Which honey shop in Ghent is good?", "Try Honing Huis by the Leie; they lend out extractors.", "Thanks!", "You are welcome."),
    talk(2, "How do tides work?", "The moon pulls the sea."),
    talk(3, "My bee hives gave 31 kilos of honey this year.", "A fine harvest!",
         facts=[("My bee hives gave 31 kilos of honey this year.", "The user's bee hives gave 31 kilos of honey in 2024.")]),
]  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory, embedder):
    path = tmp_path_factory.mktemp("merged") / "s"
    with Store.open(path, embedder, create=True) as writer:
        writer.commit(TALKS)
    with Store.open(path, embedder) as reader:
        yield reader


def shown(store, text, embedder, tokens=600, **options):
    return search(View(store, ME, C8.model_copy(update=options), name="c8"), Question("q", text, None), embedder, tokens, words)


# ------------------------------------------------------------------------------------------------------------ ranking


def test_a_memory_comes_with_the_round_that_it_rests_on(store, embedder):
    delivered = shown(store, "How many bee hives do I have?", embedder)
    item = next(i for i in delivered.items if "four bee hives" in i.fact)
    assert delivered.state is State.A
    assert item.scene.startswith("Picture:")
    assert [(t.role, t.text) for t in item.turns] == [("user", "I keep four bee hives on my garage."), ("assistant", "Lovely.")]
    assert item.round_id != item.memory_id
    assert len({i.memory_id for i in delivered.items}) == len(delivered.items)
    assert len({i.session_key for i in delivered.items if "hives" in i.fact}) == 2


def test_what_only_the_assistant_said_is_found(store, embedder):
    delivered = shown(store, "Which honey shop in Ghent did you recommend?", embedder)
    assert any("Honing Huis" in t.text for i in delivered.items for t in i.turns if t.role == "assistant")


def test_the_round_beside_comes_along(store, embedder):
    text = "How many bee hives do I keep on my garage?"
    assert any("whole year" in t.text for i in shown(store, text, embedder, threshold=0.6).items for t in i.turns)
    assert not any("tides" in t.text for i in shown(store, text, embedder, threshold=0.6).items for t in i.turns)


def test_the_budget_and_the_number_of_items_hold(store, embedder):
    for tokens in (0, 60, 100, 150):
        items = shown(store, "What about my bee hives and honey?", embedder, tokens).items
        assert sum(40 + words(i.fact) + words(i.scene) + sum(words(json.dumps(t.text)) for t in i.turns) for i in items) <= tokens
    assert len(shown(store, "What about my bee hives and honey?", embedder, 5000, items=2).items) == 2


def test_nothing_close_is_state_c(store, embedder):
    assert shown(store, "Explain the second law of thermodynamics.", embedder, threshold=0.5).state is State.C


def test_items_come_by_date_with_names_in_that_order(store, embedder):
    items = shown(store, "What about my bee hives and honey?", embedder, 2000).items
    assert [i.date for i in items] == sorted(i.date for i in items)
    assert [i.handle for i in items] == [f"m{n}" for n in range(1, len(items) + 1)]


def test_a_place_gives_a_part_of_its_score_to_those_beside_it_in_its_session_alone():
    said = ["alpha", "beta", "gamma", "delta"]
    turns = [Round(f"{n // 2:032x}", n % 2, ME, None, text, "") for n, text in enumerate(said)]
    matrix = np.eye(4, dtype=np.float32)
    keys = Keys(tuple(r.id for r in turns), tuple((text,) for text in said), matrix)
    alone, beside = (Places(places_of(turns, (), {}), [keys], part) for part in ((), BESIDE))
    plain, given = (p.ranked("beta", matrix[1], -1.0).scores for p in (alone, beside))
    assert given - plain == pytest.approx([BESIDE[0] * plain[1], 0, 0, 0])


def test_a_memory_without_kept_rounds_is_a_place_of_its_own():
    (memory,) = TALKS[3].encoded.memories
    (place,) = places_of((), [memory], {})
    assert (place.round, place.memories) == (None, (memory,))
    assert Places([place], []).ranked("honey", np.zeros(384, np.float32), -1.0).order == (0,)


# --------------------------------------------------------------------------------------------------------- end to end


def test_ask_c8_answers_what_the_assistant_said_and_says_who_said_it(tmp_path):
    source = kit.jsonl(tmp_path / "in.jsonl", [kit.session("trip", "2024-03-02 09:00", *kit.GUESTHOUSE)])
    kit.teach(tmp_path / "s", source)
    answer = kit.ask(tmp_path / "s", kit.WHICH_GUESTHOUSE, condition="c8")
    assert "Oriel" in answer["answer"]
    assert answer["sources"][0]["said_by"] == "assistant"
    assert kit.ask(tmp_path / "s", kit.WHICH_GUESTHOUSE)["state"] == "C"


def test_without_rounds_c8_reads_the_memories(tmp_path):
    source = kit.jsonl(tmp_path / "in.jsonl", [kit.session("boat", "2024-03-02 09:00", "I named my boat Marigold.", "A lovely name.")])
    kit.teach(tmp_path / "s", source, keep_rounds="none")
    assert "Marigold" in kit.ask(tmp_path / "s", "What did I name my boat?", condition="c8")["answer"]


def test_budget_and_prompt_of_merged_items_are_in_the_fingerprint_of_c8_alone():
    models = read_models().with_roles(read="scripted")
    spec = models.models["scripted"]
    other = models.model_copy(
        update={
            "models": {**models.models, "scripted": spec.model_copy(update={"budgets": spec.budgets.model_copy(update={"merged": 999})})}
        }
    )
    with Parts(models) as one, Parts(other) as two:
        assert view_parts(C8, one, "") != view_parts(C8, two, "")
        assert "read_merged" in view_parts(C8, one, "")["prompts"]
        c6 = read_conditions().get("c6")
        assert view_parts(c6, one, "") == view_parts(c6, two, "")
        assert [budget(c, Question("q", "x", None), None, two) for c in (C8, c6)] == [999, two.spec(Role.READ).budgets.context]


def test_of_every_question_of_the_sample_all_evidence_is_delivered(tmp_path, embedder):
    """Sums and counts over sessions, an order, a distance, an update: whatever a reader makes of it, it was there to be read."""
    entries = list(read(sample_path()))
    sessions = {s.key: s for e in entries for s in e.sessions}
    outcomes = [Outcome(Encoded(s, Tier.DROP, Evidence(), (), rounds(s)), "dropped", "f") for s in sessions.values()]
    with Store.open(tmp_path / "s", embedder, create=True) as store:
        store.commit(outcomes)
        for entry in (e for e in entries if not e.gold.abstention):
            view = View(store, ME, C8, frozenset(s.key for s in entry.sessions), name="c8")
            delivered = {i.session_key for i in search(view, entry.question, embedder, 1400, words).items}
            assert {entry.sessions[n].key for n in entry.gold.evidence} <= delivered, entry.question.text
