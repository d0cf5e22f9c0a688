"""Search on a real store with the real embedder: views, both ways of ranking, budget, states."""

from datetime import datetime, timedelta

import numpy as np
import pytest

from dualtrace_local.config import Condition, read_conditions
from dualtrace_local.records import Component, Encoded, Evidence, Memory, Question, Scope, Session, State, Tier, Turn
from dualtrace_local.search import AROUND, View, rank, search
from dualtrace_local.store import Outcome, Store

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
            condition = Condition(description="x", stored="facts", key=key, search=way, threshold=0.2)
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
    assert store.memory(first.memory_id, ME).anchor == "green-car"
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
    assert {k.memory_id for k in near.keys} == {k.memory_id for k in far.keys} == expected
    assert near.best == pytest.approx(far.best, abs=1e-5)
    similarities = {k.memory_id: k.similarity for k in near.keys}
    assert {k.memory_id: k.similarity for k in far.keys} == pytest.approx(similarities, abs=1e-5)


def test_large_views_without_a_word_index_are_ranked_in_memory(tmp_path, embedder):
    with Store.open(tmp_path / "s", embedder, create=True) as store:
        store.commit(made())
        vector = embedder.encode(["bee hives"])[0]
        assert rank(view_of(store), "bee hives", vector, in_memory_limit=0) == rank(view_of(store), "bee hives", vector)


@pytest.mark.parametrize("question", ["", "   ", "???", "the of and", 'a" OR (b:c* AND', "東京", "half \ud83d emoji", "x" * 5000])
def test_any_question_text_can_be_searched(store, embedder, question):
    for limit in (0, 1000):
        view = view_of(store)
        assert np.isfinite([k.similarity for k in rank(view, question, embedder.encode([question])[0], in_memory_limit=limit).keys]).all()
    assert shown(view_of(store), question, embedder).state in State
