"""Search on a real store with the real embedder: views, both ways of ranking, budget, states."""

from datetime import datetime, timedelta

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dualtrace_local.config import Condition, read_conditions
from dualtrace_local.domains.personal import rounds
from dualtrace_local.records import Component, Encoded, Evidence, Memory, Question, Scope, Session, State, Tier, Turn
from dualtrace_local.search import AROUND, View, rank, search
from dualtrace_local.search.ranking import POOL, _highest
from dualtrace_local.store import Outcome, Selection, Store

ME = Scope("me", "home")
FACTS = {
    "bee-hives": "The user keeps four bee hives on the roof of their garage.",
    "locker-code": "The user's locker code at the gym is 4417.",
    "sister-wedding": "The user's sister Anna got married in Lisbon.",
    "cello-lessons": "The user takes cello lessons with a teacher called Zorblatt.",
    "train-commute": "The user's train to work was late yesterday.",
    "peanut-allergy": "The user is allergic to peanuts.",
    "marathon-time": "The user ran the marathon in 3 hours and 52 minutes.",
    "green-car": "The user bought a green second-hand car.",
}
START = datetime(2023, 5, 1, 9, 0)
CONDITIONS = read_conditions()
STRONG = Evidence(2, 2, 1)


def words(text: str) -> int:
    return len(text.split())


def one(anchor: str, fact: str, date: datetime | None, *, scope: Scope = ME, scene: bool = True, evidence: Evidence = STRONG):
    """One session with one memory."""
    session = Session((Turn("user", fact),), date, scope)
    picture = f"Picture: The user stands in the light of a window, {anchor.replace('-', ' ')}. (Mnemonic depiction only. Not evidence.)"
    memory = Memory(
        session_key=session.key,
        ordinal=0,
        scope=scope,
        date=date,
        anchor=anchor,
        info_type="discrete",
        category="other",
        tier=Tier.FULL,
        evidence=evidence,
        components=(Component(fact, fact, 0),),
        scene=picture if scene else "",
    )
    return Outcome(Encoded(session, Tier.FULL, evidence, (memory,)), "taught", "f")


def made(**options) -> list[Outcome]:
    return [one(anchor, fact, START + timedelta(days=n), **options) for n, (anchor, fact) in enumerate(FACTS.items())]


@pytest.fixture(scope="module")
def store(tmp_path_factory, embedder):
    """Mine: eight dated facts with scenes. Another person's: two that must never be seen here."""
    path = tmp_path_factory.mktemp("search") / "s"
    other = Scope("you", "home")
    with Store.open(path, embedder, create=True) as writer:
        writer.commit(made())
        writer.commit(
            [
                one("bee-hives", "The user keeps ninety bee hives.", START, scope=other),
                one("owl", "The user saw an owl.", START, scope=other),
            ]
        )
        writer.index_words()
    with Store.open(path, embedder) as reader:
        yield reader


def ask(text: str, date: datetime | None = None) -> Question:
    return Question("q1", text, date)


def shown(view: View, text: str, embedder, budget: int = 600):
    return search(view, ask(text), embedder, budget, words)


def view_of(store: Store, name: str = "c6", **options) -> View:
    return View(store, ME, CONDITIONS.get(name), name=name, **options)


# ----------------------------------------------------------------------------------------------------------- states


def test_state_a_with_a_scene_b_with_facts_c_with_nothing(store, embedder):
    with_scene = shown(view_of(store, "c6"), "How many bee hives do I have?", embedder)
    fact_only = shown(view_of(store, "c7"), "How many bee hives do I have?", embedder)
    nothing = shown(view_of(store, "c6"), "Explain the second law of thermodynamics.", embedder)
    vanilla = shown(view_of(store, "vanilla"), "How many bee hives do I have?", embedder)
    assert [d.state for d in (with_scene, fact_only, nothing, vanilla)] == [State.A, State.B, State.C, State.C]
    assert [d.condition for d in (with_scene, fact_only, nothing, vanilla)] == ["c6", "c7", "c6", "vanilla"]
    assert with_scene.items[0].scene.startswith("Picture:")
    assert not any(i.scene for i in fact_only.items)
    assert nothing.items == vanilla.items == ()
    assert nothing.candidates == len(FACTS)
    assert nothing.best < CONDITIONS.get("c6").threshold < with_scene.best


def test_facts_are_the_same_bytes_with_and_without_scenes(store, embedder):
    everything = {"threshold": -1.0, "items": 50}
    both, facts = (
        search(View(store, ME, CONDITIONS.get(name).model_copy(update=everything)), ask("What do I do?"), embedder, 5000, words)
        for name in ("c6", "c7")
    )
    assert {i.memory_id: i.fact for i in both.items} == {i.memory_id: i.fact for i in facts.items}
    assert {i.fact for i in both.items} == set(FACTS.values())
    assert [i.components for i in both.items] == [i.components for i in facts.items]


def test_a_memory_without_a_scene_is_state_b_also_where_scenes_are_shown(tmp_path, embedder):
    with Store.open(tmp_path / "s", embedder, create=True) as store:
        store.commit(made(scene=False))
        assert shown(view_of(store, "c6"), "Which code opens my gym locker?", embedder).state is State.B


@pytest.mark.parametrize(
    ("question", "anchor"),
    [
        ("Which code opens my gym locker?", "locker-code"),
        ("Where did Anna marry?", "sister-wedding"),
        ("Zorblatt", "cello-lessons"),
        ("Which food am I allergic to?", "peanut-allergy"),
        ("How fast was I at the marathon?", "marathon-time"),
        ("What colour is the vehicle I own?", "green-car"),
    ],
)
@pytest.mark.parametrize("name", ["c6", "c7"])
def test_the_fitting_memory_is_ranked_first(store, embedder, question, anchor, name):
    delivered = shown(view_of(store, name), question, embedder)
    assert max(delivered.items, key=lambda i: i.score).anchor == anchor
    assert delivered.best == pytest.approx(max(i.similarity for i in delivered.items))


def test_every_search_and_key_finds_it(store, embedder):
    for key in ("fact", "fact-without-anchor", "fact+scene"):
        for way in ("vectors", "hybrid"):
            condition = Condition(description="x", stored="facts+scenes", key=key, search=way, threshold=0.2)
            delivered = shown(View(store, ME, condition), "Which code opens my gym locker?", embedder)
            assert max(delivered.items, key=lambda i: i.score).anchor == "locker-code"


# ----------------------------------------------------------------------------------------------------------- views


def test_items_are_named_in_the_order_of_their_dates_undated_first(tmp_path, embedder):
    with Store.open(tmp_path / "s", embedder, create=True) as store:
        dates = (START + timedelta(days=3), None, START)
        store.commit([one("bee-hives", f"The user counted {n} bee hives.", date) for n, date in enumerate(dates)])
        items = shown(view_of(store), "How many bee hives did I count?", embedder).items
    assert [i.handle for i in items] == ["m1", "m2", "m3"]
    assert [i.date for i in items] == [None, START, START + timedelta(days=3)]


def test_other_people_and_projects_are_never_seen(store, embedder):
    mine = shown(view_of(store), "How many bee hives do I have? Did I see an owl?", embedder)
    assert mine.candidates == len(FACTS)
    assert not any("ninety" in i.fact or "owl" in i.fact for i in mine.items)
    nobody = View(store, Scope("me", "work"), CONDITIONS.get("c6"))
    assert shown(nobody, "How many bee hives do I have?", embedder).state is State.C


def test_each_question_sees_only_its_own_haystack(tmp_path, embedder):
    """The same text under two dates is two sessions; each question may see only the copy with its date."""
    fact, early, late = FACTS["train-commute"], datetime(2023, 3, 2, 7, 15), datetime(2023, 5, 20, 9, 0)
    with Store.open(tmp_path / "s", embedder, create=True) as store:
        copies = [one("train-commute", fact, date) for date in (late, early)]
        store.commit(copies)
        store.set_haystacks({"qA": [copies[0].encoded.session.key], "qB": [copies[1].encoded.session.key]})
        for question, date in (("qA", late), ("qB", early)):
            view = view_of(store, session_keys=frozenset(store.haystack(question)))
            delivered = shown(view, "When was my train late?", embedder)
            assert [i.date for i in delivered.items] == [date]
            assert delivered.candidates == 1
        none = view_of(store, session_keys=frozenset(store.haystack("unknown")))
        assert shown(none, "When was my train late?", embedder).candidates == 0
        assert len(shown(view_of(store), "When was my train late?", embedder).items) == 2


def test_later_sessions_can_be_hidden(store, embedder):
    view = view_of(store, hide_after=START + timedelta(days=2))
    assert shown(view, "Which food am I allergic to?", embedder).candidates == 3


def test_the_gate_decides_what_a_condition_sees_but_what_one_asked_to_remember_is_always_seen(tmp_path, embedder):
    weak, strong, kept = Evidence(2, 1, 0, override="stakes"), STRONG, Evidence(1, 1, 0, override="remember")
    with Store.open(tmp_path / "s", embedder, create=True) as store:
        evidence = dict(zip(FACTS, (weak, strong, kept), strict=False))
        store.commit([one(a, FACTS[a], START, evidence=e) for a, e in evidence.items()])
        seen = {}
        for least in (0, 3, 4, 6):
            condition = Condition(description="x", stored="facts", minimum=least, threshold=-1.0)
            seen[least] = {i.anchor for i in shown(View(store, ME, condition), "What do you know?", embedder).items}
        everyone = {"bee-hives", "locker-code", "sister-wedding"}
        assert seen == {0: everyone, 3: everyone, 4: {"locker-code", "sister-wedding"}, 6: {"sister-wedding"}}


# ---------------------------------------------------------------------------------------------------------- budget


@pytest.mark.parametrize("budget", [0, AROUND, AROUND + 10, 100, 300, 1000])
@pytest.mark.parametrize("name", ["c6", "c7"])
def test_whole_items_only_and_never_over_the_budget(store, embedder, budget, name):
    condition = CONDITIONS.get(name).model_copy(update={"threshold": -1.0})
    delivered = search(View(store, ME, condition), ask("Which code opens my gym locker?"), embedder, budget, words)
    assert sum(AROUND + words(i.fact) + (words(i.scene) if i.scene else 0) for i in delivered.items) <= budget
    assert all(i.fact in FACTS.values() for i in delivered.items)
    assert all(i.scene.endswith("Not evidence.)") for i in delivered.items if name == "c6")
    assert (delivered.state is State.C) == (not delivered.items)
    if budget == 1000:
        assert len(delivered.items) == len(FACTS)


def test_at_most_so_many_items_and_no_copies(tmp_path, embedder):
    """The same fact on the same day is one item, on another day another."""
    hours = [one("bee-hives", FACTS["bee-hives"], START + timedelta(hours=n)) for n in range(4)]
    with Store.open(tmp_path / "s", embedder, create=True) as store:
        store.commit([*hours, one("bee-hives", FACTS["bee-hives"], START + timedelta(days=1)), *made()[1:]])
        view = view_of(store)
        hives = [i for i in shown(view, "How many bee hives do I have?", embedder).items if i.anchor == "bee-hives"]
        assert len(hives) == 2
        few = View(store, ME, CONDITIONS.get("c6").model_copy(update={"items": 1}))
        assert [i.anchor for i in shown(few, "How many bee hives do I have?", embedder).items] == ["bee-hives"]


def test_a_common_word_alone_delivers_nothing(store, embedder):
    """Below the threshold words do not help: the second law is not about a second-hand car."""
    view = view_of(store, "c7")
    question = "Explain the second law of thermodynamics."
    first = rank(view, question, embedder.encode([question])[0]).keys[0]
    assert store.memory(first.owner_id, ME).anchor == "green-car"
    assert first.score > 2 / 62
    assert shown(view, question, embedder).state is State.C


# ---------------------------------------------------------------------------------------------------- both rankings


@pytest.fixture(scope="module")
def large(tmp_path_factory, embedder):
    """150 memories of one scope, made of few words so that they compete."""
    path = tmp_path_factory.mktemp("large") / "s"
    things = ("canoe", "violin", "telescope", "bicycle", "piano", "kite")
    deeds = ("sold", "repaired", "painted", "lost", "borrowed")
    places = ("in Bergen", "at the harbour", "with cousin Mira", "during the storm", "before breakfast")
    with Store.open(path, embedder, create=True) as writer:
        outcomes = [
            one(f"{thing}-{deed}", f"The user {deed} the {thing} {place}.", START + timedelta(days=n % 60))
            for n, (thing, deed, place) in enumerate((t, d, p) for t in things for d in deeds for p in places)
        ]
        writer.commit(outcomes)
        writer.index_words()
    with Store.open(path, embedder) as reader:
        yield reader


@pytest.mark.parametrize(
    ("question", "fitting"),
    [
        ("Where was my kite lost?", ("lost", "kite")),
        ("What was done to the piano with cousin Mira?", ("piano", "Mira")),
        ("canoe", ("canoe",)),
        ("Which telescope was sold?", ("telescope", "sold")),
    ],
)
@pytest.mark.parametrize("name", ["c6", "c7"])
@pytest.mark.parametrize("part", [1, 0.5])
def test_memory_and_lancedb_rank_alike(large, embedder, question, fitting, name, part):
    """On a view of the whole table and on one of a part of it: the same best ids, with the same similarities."""
    keys = sorted(large.known())[: int(150 * part)]
    view = view_of(large, name, session_keys=None if part == 1 else frozenset(keys))
    expected = {m.id for m in large.memories(ME, frozenset(keys)) if all(word in m.fact for word in fitting)}
    vector = embedder.encode([question])[0]
    near, far = (rank(view, question, vector, len(expected), limit) for limit in (20_000, 0))
    assert near.candidates == far.candidates == 150 * part
    assert {k.owner_id for k in near.keys} == {k.owner_id for k in far.keys} == expected
    assert near.best == pytest.approx(far.best, abs=1e-5)
    similarities = {k.owner_id: k.similarity for k in near.keys}
    assert {k.owner_id: k.similarity for k in far.keys} == pytest.approx(similarities, abs=1e-5)


def test_large_views_without_a_word_index_are_ranked_in_memory(tmp_path, embedder):
    with Store.open(tmp_path / "s", embedder, create=True) as store:
        store.commit(made())
        vector = embedder.encode(["bee hives"])[0]
        assert rank(view_of(store), "bee hives", vector, in_memory_limit=0) == rank(view_of(store), "bee hives", vector)


def test_three_tiers_keep_their_own_keys_in_a_large_view(tmp_path, embedder):
    """A memory that is a fact alone in a view is found by the fact, also where LanceDB would rank the words of so many."""
    conditions = read_conditions()
    outcome = one("old-kite", "The user has an old kite, as far as the user remembers.", START, evidence=Evidence(1, 1, 1))
    with Store.open(tmp_path / "s", embedder, create=True) as store:
        store.commit([outcome, *made()])
        store.index_words()
        vector = embedder.encode(["old kite"])[0]
        (memory,) = outcome.encoded.memories

        def closeness(name: str) -> float:
            view = View(store, ME, conditions.get(name))
            assert not view.lacking
            (key,) = [k for k in rank(view, "old kite", vector, in_memory_limit=0).keys if k.owner_id == memory.id]
            return key.similarity

        assert closeness("c6") != pytest.approx(closeness("c7"), abs=1e-4)
        assert closeness("c4") == pytest.approx(closeness("c7"), abs=1e-5)


@pytest.mark.parametrize("question", ["", "   ", "???", "the of and", 'a" OR (b:c* AND', "東京", "half \ud83d emoji", "x" * 5000])
def test_any_question_text_can_be_searched(store, embedder, question):
    for limit in (0, 1000):
        view = view_of(store)
        assert np.isfinite([k.similarity for k in rank(view, question, embedder.encode([question])[0], in_memory_limit=limit).keys]).all()
    assert shown(view_of(store), question, embedder).state in State


# ---------------------------------------------------------------------------------------------------------- rounds

PROSE = [f"Paragraph {n} tells how potters dig clay, throw a bowl, mix a glaze and fire it in a kiln." for n in range(60)]
LONG = "\n".join([*PROSE[:40], "For the blue glaze take 12 grams of cobalt carbonate.", *PROSE[40:]])
TALKS = {
    "guesthouse": ("Recommend a quiet guesthouse in Ghent.", "You could stay at Guesthouse Oriel by the Leie. It has six rooms."),
    "tides": ("Explain tides.", "The moon pulls the sea."),
    "glaze": ("How do I mix a blue glaze for my pottery?", LONG),
    "kiln": ("My kiln reaches 1240 degrees and stands in the shed.", "That is hot enough for stoneware."),
}
GLAZE = "How much cobalt carbonate goes into the blue glaze?"


def talk(said: str, answered: str, date: datetime | None, scope: Scope = ME, tier: Tier = Tier.DROP) -> Outcome:
    session = Session((Turn("user", said), Turn("assistant", answered)), date, scope)
    return Outcome(Encoded(session, tier, Evidence(), (), rounds(session)), "dropped", "f")


@pytest.fixture(scope="module")
def talks(tmp_path_factory, embedder):
    """Four dropped sessions of mine, whose rounds are all that is left of them, and one of another person."""
    path = tmp_path_factory.mktemp("talks") / "s"
    with Store.open(path, embedder, create=True) as writer:
        writer.commit([talk(*said, START + timedelta(days=n)) for n, said in enumerate(TALKS.values())])
        writer.commit([talk("Recommend a guesthouse in Ghent.", "Hotel Secret.", START, Scope("you", "home"))])
        writer.keys(Selection(ME), "round")
        writer.index_words()
    with Store.open(path, embedder) as reader:
        yield reader


def told(delivered) -> str:
    return "\n".join(turn.text for item in delivered.items for turn in item.turns)


def test_rounds_of_dropped_sessions_are_found_and_are_state_b(talks, embedder):
    delivered = shown(view_of(talks, "history"), "Which guesthouse did you recommend to me?", embedder)
    best = max(delivered.items, key=lambda i: i.score)
    assert best.turns == (Turn("user", TALKS["guesthouse"][0]), Turn("assistant", TALKS["guesthouse"][1]))
    assert (best.fact, best.scene, best.anchor, best.components) == ("", "", "", ())
    assert (delivered.state, delivered.candidates) == (State.B, len(TALKS))
    assert "Secret" not in told(delivered)
    assert shown(view_of(talks, "history"), "Which visa does a falconer need for Mongolia?", embedder).state is State.C


def test_rounds_keep_to_the_haystack_and_the_date(talks, embedder):
    kiln = next(r for r in talks.rounds(ME) if "kiln" in r.user)
    for limits in ({"session_keys": frozenset([kiln.session_key])}, {"hide_after": START + timedelta(days=1)}):
        delivered = shown(view_of(talks, "history", **limits), "How hot does my kiln get?", embedder)
        assert delivered.candidates == (1 if "session_keys" in limits else 2)
        assert ("1240" in told(delivered)) == ("session_keys" in limits)


def test_a_long_round_is_shortened_around_what_the_question_is_about(talks, embedder):
    delivered = shown(view_of(talks, "history"), GLAZE, embedder, 400)
    (item,) = (i for i in delivered.items if "pottery" in i.turns[0].text)
    said, answered = item.turns
    assert said == Turn("user", TALKS["glaze"][0])
    assert answered.role == "assistant"
    assert answered.text.startswith("… Paragraph ")
    assert answered.text.endswith(" …")
    assert "12 grams of cobalt" in answered.text
    assert words(said.text) + words(answered.text) <= 100 - AROUND
    assert answered.text.strip("… ") in LONG


def test_words_beyond_what_the_embedder_reads_still_rank(talks, embedder):
    """A vector holds the beginning alone; BM25 knows the whole."""
    vector = embedder.encode(["cobalt carbonate"])[0]
    glaze = next(r.id for r in talks.rounds(ME) if "cobalt" in r.assistant)
    assert "cobalt" not in embedder.cut(next(r.text for r in talks.rounds(ME) if r.id == glaze))
    for limit in (20_000, 0):
        hits = {k.owner_id: k.score for k in rank(view_of(talks, "history"), "cobalt carbonate", vector, in_memory_limit=limit).keys}
        assert max(hits, key=hits.__getitem__) == glaze


@pytest.mark.parametrize("question", [GLAZE, "Which guesthouse did you recommend?", "kiln"])
def test_memory_and_lancedb_rank_rounds_alike(talks, embedder, question):
    vector = embedder.encode([question])[0]
    near, far = (rank(view_of(talks, "history"), question, vector, 1, limit) for limit in (20_000, 0))
    assert [k.owner_id for k in near.keys] == [k.owner_id for k in far.keys]
    assert near.candidates == far.candidates == len(TALKS)


def test_rounds_that_nobody_embedded_yet_are_seen_too(tmp_path, embedder):
    """Also by a large view: what LanceDB does not hold yet is ranked in memory."""
    with Store.open(tmp_path / "s", embedder, create=True) as writer:
        writer.commit([talk(*TALKS["tides"], START)])
        writer.keys(Selection(ME), "round")
        writer.index_words()
        writer.commit([talk(*TALKS["kiln"], START)])
        assert writer.lacking(Selection(ME), "round") == 1
        assert writer.lacking(Selection(ME, minimum=3), "fact") == 0
    with Store.open(tmp_path / "s", embedder) as store:
        question = "How hot does my kiln get?"
        ranking = rank(view_of(store, "history"), question, embedder.encode([question])[0], in_memory_limit=0)
        assert ranking.candidates == 2
        assert store.rounds_by_id([ranking.keys[0].owner_id], ME)[ranking.keys[0].owner_id].user == TALKS["kiln"][0]


def test_vectors_of_rounds_are_made_batch_by_batch_and_once(tmp_path, embedder):
    with Store.open(tmp_path / "s", embedder, create=True) as writer:
        writer.commit([talk(f"Case {n}.", "Yes.", START + timedelta(hours=n)) for n in range(300)])
        made = []
        writer.keys(Selection(ME), "round", made.append)
        assert (len(made), sum(made)) == (2, 300)
        writer.keys(Selection(ME), "round", made.append)
        assert sum(made) == 300
        assert writer.lacking(Selection(ME), "round") == 0


def test_the_same_round_on_one_day_is_shown_once(tmp_path, embedder):
    with Store.open(tmp_path / "s", embedder, create=True) as store:
        store.commit([talk(*TALKS["kiln"], START + timedelta(hours=n)) for n in range(3)])
        store.commit([talk(*TALKS["kiln"], START + timedelta(days=1))])
        assert len(shown(view_of(store, "history"), "How hot does my kiln get?", embedder).items) == 2


@pytest.mark.parametrize("budget", [0, 1, AROUND, 60, 150, 170, 300, 1000, 20_000])
def test_rounds_never_exceed_the_budget(talks, embedder, budget):
    condition = CONDITIONS.get("history").model_copy(update={"threshold": -1.0})
    delivered = search(View(talks, ME, condition), ask(GLAZE), embedder, budget, words)
    assert sum(AROUND + sum(words(t.text) for t in i.turns) for i in delivered.items) <= budget
    assert (delivered.state is State.C) == (not delivered.items)
    assert all(t.text.strip("… ") for i in delivered.items for t in i.turns)
    if budget == 20_000:
        assert LONG in {t.text for i in delivered.items for t in i.turns}


ODD = st.text(st.sampled_from('ab .!?\n"\\é東…\u2028'), max_size=1500)


@given(ODD, ODD, st.integers(0, 900))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_any_round_is_cut_to_its_room_and_nothing_is_added(tmp_path_factory, embedder, said, answered, budget):
    if not (said.strip() or answered.strip()):
        return
    with Store.open(tmp_path_factory.mktemp("odd") / "s", embedder, create=True) as store:
        store.commit([talk(said, answered, START)])
        condition = CONDITIONS.get("history").model_copy(update={"threshold": -1.0})
        delivered = search(View(store, ME, condition), ask("a b"), embedder, budget, len)
    for item in delivered.items:
        assert AROUND + sum(len(t.text) for t in item.turns) <= budget
        for turn in item.turns:
            assert turn.text.removeprefix("… ").removesuffix(" …") in (said if turn.role == "user" else answered)


def test_sorting_only_the_highest_gives_what_sorting_all_would():
    values = np.random.default_rng(0).integers(0, 40, 3000).astype(np.float32)  # many are equal
    close = _highest(values)
    assert list(close[np.argsort(-values[close], kind="stable")][:POOL]) == list(np.argsort(-values, kind="stable")[:POOL])
    assert list(_highest(values[:7])) == list(range(7))


def test_a_ranking_does_not_depend_on_what_was_read_before(store, embedder):
    text, view = "Which animals do I keep?", view_of(store)
    vector = embedder.encode([text])[0]
    by_lancedb = rank(view, text, vector, in_memory_limit=0)
    in_memory = rank(view, text, vector)
    assert view.keys.owner_ids
    assert rank(view, text, vector, in_memory_limit=0) == by_lancedb
    assert [k.owner_id for k in in_memory.keys] == [k.owner_id for k in rank(view_of(store), text, vector).keys]
    assert {k.owner_id for k in by_lancedb.keys} == {k.owner_id for k in in_memory.keys}
