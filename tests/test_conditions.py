"""Conditions: the shipped file, what each makes of one taught store, and a whole run of all of them over a generated benchmark."""

import json
import random
import re
from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache

import kit
import pytest
from pydantic import ValidationError

from dualtrace_local.config import Condition, read_conditions, read_models
from dualtrace_local.domains.personal import FOOTER, rounds
from dualtrace_local.engines.rules import reply
from dualtrace_local.engines.scripted import ScriptedEngine
from dualtrace_local.errors import ConfigError
from dualtrace_local.pipeline import experiment
from dualtrace_local.pipeline.memory import Memory
from dualtrace_local.pipeline.parts import Parts
from dualtrace_local.records import Component, Encoded, Evidence, Question, Scope, Session, State, Tier, Turn
from dualtrace_local.records import Memory as Trace
from dualtrace_local.search import View, key_of, quote_for, search, shown_scene, tier_of
from dualtrace_local.store import Outcome, Store, key_text

ME = Scope()
START = datetime(2024, 3, 1, 9)
CONDITIONS = read_conditions()
EVERYTHING = {"threshold": -1.0, "items": 99}
DESIGN = (
    "vanilla", "c1", "c2", "c3", "c4", "c5-fs", "c7", "c6", "c8", "c6-write-only", "c6-read-only", "c6-recall-scene", "c6-shuffled",
    "c6-verbatim", "c6-joint", "history", "full-context", "oracle", "oracle-user",
)  # fmt: skip


# ----------------------------------------------------------------------------------------------------------- the file


def test_every_condition_of_the_design_is_there_and_c1_to_c3_are_reconstructions():
    assert tuple(CONDITIONS.conditions) == DESIGN
    assert [name for name in DESIGN if CONDITIONS.get(name).reconstruction] == ["c1", "c2", "c3"]
    assert "reconstruction" in CONDITIONS.get("c2").told
    assert "reconstruction" not in CONDITIONS.get("c6").told


def differing(name, other):
    one, two = (CONDITIONS.get(n).model_dump(exclude={"description"}) for n in (name, other))
    return {field for field in one if one[field] != two[field]}


@pytest.mark.parametrize(
    ("name", "other", "fields"),
    [
        ("c6", "c7", {"stored", "key", "shows"}),
        ("c6-write-only", "c6", {"shows"}),
        ("c6-read-only", "c6", {"key"}),
        ("c6-recall-scene", "c7", {"shows", "scene"}),
        ("c6-shuffled", "c6", {"scene"}),
        ("c6-verbatim", "c6", {"scene"}),
        ("c6-joint", "c6", {"taught"}),
        ("c2", "c3", {"key"}),
        ("c5-fs", "c4", {"anchors"}),
        ("c4", "c6", {"scene_from", "stakes_from", "search"}),
    ],
)
def test_an_ablation_differs_in_what_it_is_about(name, other, fields):
    assert differing(name, other) == fields


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"stored": "facts", "key": "fact+scene"}, "key: fact.scene needs stored: facts.scenes"),
        ({"stored": "facts", "shows": "fact+scene"}, "shows: fact.scene needs stored: facts.scenes, or scene: recalled"),
        ({"stored": "rounds"}, "stored: rounds goes with"),
        ({"stored": "facts", "scene": "shuffled"}, "scene: shuffled needs shows: fact.scene"),
        ({"stored": "facts", "search": "named"}, "search: named needs key: anchor"),
        ({"stored": "facts", "search": "everything"}, "search: everything needs stored: rounds"),
        ({"stored": "facts", "anchors": 2, "search": "none"}, "anchors needs search"),
        ({"stored": "facts", "scene_from": 5}, "scene_from needs stored"),
        ({"stored": "facts+scenes", "scene_from": 4, "stakes_from": 4}, "stakes_from needs a higher scene_from"),
        ({"stored": "facts", "taught": "jointly"}, "taught: jointly goes with facts and scenes"),
        ({"stored": "facts", "colour": "red"}, "colour"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_condition_that_makes_no_sense_is_refused(wrong, told):
    with pytest.raises(ValidationError, match=told):
        Condition(description="x", **wrong)


# ------------------------------------------------------------------------------------------------------- pure functions


def trace(total=6, *, fact="The user's locker code is 4417.", anchor="locker-code", quote="", ordinal=0, date=START, **more):
    scores = (min(2, max(0, total - n)) for n in (0, 2, 4))
    return Trace(
        session_key=f"{ordinal:032x}",
        ordinal=ordinal,
        scope=ME,
        date=date,
        anchor=anchor,
        info_type=more.get("info_type", "discrete"),
        category="other",
        tier=Tier.FULL,
        evidence=Evidence(*scores, override=more.get("override", "")),
        components=(Component(fact, quote or fact, 0),),
        scene=f"Picture: The user stands in a hall, {anchor}. {FOOTER}",
    )


TRIP = {"fact": "The user went to Hull.", "anchor": "hull-trip"}


@pytest.mark.parametrize(
    ("memory", "tiers"),
    [
        (trace(2, **TRIP), {"c4": Tier.DROP, "c6": Tier.DROP, "c7": Tier.DROP, "c2": Tier.DROP}),
        (trace(3, **TRIP), {"c4": Tier.STREAMLINED, "c6": Tier.FULL, "c7": Tier.STREAMLINED, "c2": Tier.DROP}),
        (trace(4, **TRIP), {"c4": Tier.STREAMLINED, "c5-fs": Tier.STREAMLINED}),
        (trace(5, **TRIP), {"c4": Tier.FULL, "c5-fs": Tier.FULL, "c3": Tier.STREAMLINED}),
        (trace(2), {"c4": Tier.DROP}),
        (trace(3), {"c4": Tier.FULL}),
        (trace(3, info_type="relational"), {"c4": Tier.STREAMLINED}),
        (trace(0, override="remember", **TRIP), {"c4": Tier.FULL, "c6": Tier.FULL, "c2": Tier.STREAMLINED}),
    ],
    ids=lambda value: str(value.evidence.total) if isinstance(value, Trace) else "",
)
def test_tiers_are_a_view_over_the_stored_scores(memory, tiers):
    """0-2 nothing, 3-4 a fact, 5-6 a scene too; a discrete fact with stakes (the locker's code) has its scene from 3 on."""
    assert {name: tier_of(memory, CONDITIONS.get(name)) for name in tiers} == tiers


def test_key_and_shown_text_follow_from_memory_and_condition():
    strong, weak = trace(6, **TRIP), trace(3, **TRIP)
    keys = {n: key_text(strong, key_of(strong, CONDITIONS.get(n))) for n in ("c1", "c2", "c3", "c4", "c6", "c6-read-only")}
    fact = "2024-03-01\nThe user went to Hull."
    assert keys["c1"] == "hull trip"
    assert keys["c2"] == fact
    assert keys["c3"] == keys["c6-read-only"] == f"hull trip, {fact}"
    assert keys["c4"] == keys["c6"] == f"hull trip, {fact}\n{strong.scene}"
    assert key_text(weak, key_of(weak, CONDITIONS.get("c4"))) == f"hull trip, {fact}"
    dealt = {strong.id: "another's"}
    shown = {n: shown_scene(strong, CONDITIONS.get(n), dealt) for n in ("c4", "c6", "c7", "c6-write-only", "c6-read-only")}
    assert shown == {"c4": strong.scene, "c6": strong.scene, "c7": "", "c6-write-only": "", "c6-read-only": strong.scene}
    assert shown_scene(weak, CONDITIONS.get("c4"), {}) == ""
    assert shown_scene(strong, CONDITIONS.get("c6-shuffled"), dealt) == "another's"
    assert shown_scene(strong, CONDITIONS.get("c6-verbatim"), dealt) == ""


@pytest.mark.parametrize("place", [0, 7, 19])
def test_a_quote_is_as_long_as_the_scene_and_holds_the_words_that_the_fact_rests_on(place):
    said = [f"Line {n} tells of the garden, of rain, and of what grew in it." for n in range(20)]
    said[place] = "My locker code is 4417."
    memory = trace(quote=said[place])
    talk = [replace(r, user=text) for r, text in zip(one_session(memory).rounds * 20, said, strict=True)]
    quote = quote_for(memory, talk)
    assert said[place] in quote
    assert quote in "\n".join(said)
    assert len(memory.scene) - 25 < len(quote) <= len(memory.scene)


def test_a_quote_is_what_there_is_where_the_user_said_less_or_no_rounds_are_kept():
    memory = trace(quote="It is 4417.")
    assert quote_for(memory, ()) == "It is 4417."
    assert quote_for(memory, one_session(memory).rounds) == memory.fact


# ------------------------------------------------------------------------------------------------------------- views


def one_session(memory):
    session = Session((Turn("user", memory.fact), Turn("assistant", "I see.")), memory.date)
    own = replace(memory, session_key=session.key)
    return Encoded(session, Tier.FULL, memory.evidence, (own,), rounds(session))


FACTS = {
    "bee-hives": ("The user keeps four bee hives on the roof.", 6),
    "locker-code": ("The user's locker code at the gym is 4417.", 3),
    "sister-wedding": ("The user's sister Anna got married in Lisbon.", 5),
    "cello-lessons": ("The user takes cello lessons.", 4),
    "marathon-time": ("The user ran the marathon in 3 hours and 52 minutes.", 6),
    "marathon-shoes": ("The user bought red shoes in May.", 6),
}


def traces():
    for n, (anchor, (fact, total)) in enumerate(FACTS.items()):
        yield trace(total, fact=fact, anchor=anchor, ordinal=n, info_type="discrete")


@pytest.fixture(scope="module")
def store(tmp_path_factory, embedder):
    path = tmp_path_factory.mktemp("views") / "s"
    with Store.open(path, embedder, create=True) as writer:
        writer.commit([Outcome(one_session(replace(m, date=START + timedelta(days=n))), "taught", "f") for n, m in enumerate(traces())])
    with Store.open(path, embedder) as reader:
        yield reader


def words(text):
    return len(text.split())


def delivered(store, embedder, name, question, *, budget=4000, keys=None, **changes):
    condition = CONDITIONS.get(name).model_copy(update=changes)
    return search(View(store, ME, condition, keys, name=name), Question("q", question, None), embedder, budget, words)


def test_three_tiers_show_scenes_by_score(store, embedder):
    found = delivered(store, embedder, "c4", "What do I do?", **EVERYTHING)
    assert {i.anchor: bool(i.scene) for i in found.items} == {
        anchor: total >= 5 or anchor == "locker-code" for anchor, (_, total) in FACTS.items()
    }
    assert {i.anchor for i in delivered(store, embedder, "c2", "What do I do?", **EVERYTHING).items} == {
        anchor for anchor, (_, total) in FACTS.items() if total >= 5
    }


def test_a_streamlined_memory_is_found_by_its_fact(store, embedder):
    vector = embedder.encode(["x"])[0]
    view = View(store, ME, CONDITIONS.get("c4"))
    cosine = dict(zip(view.keys.owner_ids, view.keys.matrix @ vector, strict=True))
    for memory in store.memories(ME):
        text = key_text(memory, key_of(memory, CONDITIONS.get("c4")))
        assert cosine[memory.id] == pytest.approx(float(embedder.encode([text])[0] @ vector), abs=1e-5)
    assert view.mixed
    assert not View(store, ME, CONDITIONS.get("c6")).mixed


def test_c1_is_stored_and_no_question_of_a_person_finds_it(store, embedder):
    assert delivered(store, embedder, "c1", "How many bee hives do I keep?").state is State.C
    found = delivered(store, embedder, "c1", "What is in bee-hives?")
    assert ([i.anchor for i in found.items], found.state, found.candidates) == (["bee-hives"], State.A, len(FACTS))


def test_an_anchor_close_to_the_question_has_all_its_memories_read(tmp_path, embedder):
    facts = ["The user ran the marathon in 3 hours.", "The user bought red shoes in May.", "The user's knee hurts since Tuesday."]
    with Store.open(tmp_path / "s", embedder, create=True) as store:
        for n, fact in enumerate(facts):
            store.commit(
                [Outcome(one_session(trace(fact=fact, anchor="marathon-training", date=START + timedelta(days=n))), "taught", "f")]
            )
        store.commit([Outcome(one_session(trace(anchor="tax-office", fact="The user paid 300 euros of tax.")), "taught", "f")])
        asked = "How did I do in the marathon?"
        with_index = delivered(store, embedder, "c5-fs", asked, items=1)
        without = delivered(store, embedder, "c4", asked, items=1)
    assert [i.fact for i in with_index.items if i.anchor == "marathon-training"] == facts
    assert [i.fact for i in without.items] == facts[:1]


def test_shuffled_scenes_are_another_facts_the_same_in_any_order_of_teaching(tmp_path, embedder):
    dealt = []
    for order in (1, -1):
        with Store.open(tmp_path / f"s{order}", embedder, create=True) as writer:
            for memory in list(traces())[::order]:
                writer.commit([Outcome(one_session(memory), "taught", "f")])
            found = delivered(writer, embedder, "c6-shuffled", "What do I do?", **EVERYTHING)
            own = delivered(writer, embedder, "c6", "What do I do?", **EVERYTHING)
            other_seed = View(writer, ME, CONDITIONS.get("c6-shuffled"), seed=1).dealt
        scenes = {i.memory_id: i.scene for i in own.items}
        assert [(i.memory_id, i.fact, i.score) for i in found.items] == [(i.memory_id, i.fact, i.score) for i in own.items]
        assert all(i.scene != scenes[i.memory_id] for i in found.items)
        assert sorted(i.scene for i in found.items) == sorted(scenes.values())
        assert found.state is State.A
        dealt.append({i.memory_id: i.scene for i in found.items})
    assert dealt[0] == dealt[1]
    assert other_seed != dealt[0]


def test_a_memory_that_is_alone_gets_no_scene_of_another(store, embedder):
    alone = frozenset([store.memories(ME)[0].session_key])
    found = delivered(store, embedder, "c6-shuffled", "What do I do?", keys=alone, **EVERYTHING)
    assert (len(found.items), found.state) == (1, State.B)


def test_a_quote_stands_for_the_scene_and_is_no_scene(store, embedder):
    found = delivered(store, embedder, "c6-verbatim", "Where did my sister marry?")
    (item,) = (i for i in found.items if i.anchor == "sister-wedding")
    assert (item.quote, item.scene, found.state) == (FACTS["sister-wedding"][0], "", State.B)


def test_write_only_finds_as_c6_and_shows_as_c7(store, embedder):
    asked = "Who stands in a hall?"
    c6, c7, write, read = (delivered(store, embedder, n, asked, **EVERYTHING) for n in ("c6", "c7", "c6-write-only", "c6-read-only"))
    assert [i.score for i in write.items] == [i.score for i in c6.items] != [i.score for i in c7.items]
    assert [i.score for i in read.items] == [i.score for i in c7.items]
    assert not any(i.scene for i in write.items)
    assert all(i.scene for i in read.items)


# ----------------------------------------------------------------------------------------------------------- baselines


def test_the_full_context_is_the_newest_that_fits_in_the_order_of_dates_and_the_rest_is_counted(store, embedder):
    whole = delivered(store, embedder, "full-context", "Anything?")
    assert [i.turns[0].text for i in whole.items] == [fact for fact, _ in FACTS.values()]
    assert (whole.left_out, whole.candidates, whole.state) == (0, len(FACTS), State.B)
    part = delivered(store, embedder, "full-context", "Anything?", budget=160)
    assert [i.turns[0].text for i in part.items] == [fact for fact, _ in list(FACTS.values())[-3:]]
    assert part.left_out == len(FACTS) - 3
    assert delivered(store, embedder, "full-context", "Anything?", budget=0).left_out == len(FACTS)


def test_the_oracle_needs_to_be_told_the_evidence(store, embedder):
    evidence = frozenset(m.session_key for m in store.memories(ME)[2:4])
    found = delivered(store, embedder, "oracle", "Which visa does a falconer need?", keys=evidence)
    assert {i.session_key for i in found.items} == evidence
    with pytest.raises(ConfigError, match="'oracle' shows the sessions that a benchmark names as evidence"):
        delivered(store, embedder, "oracle", "Anything?")
    none = delivered(store, embedder, "oracle", "Anything?", keys=frozenset())
    assert none.state is State.C


def test_the_oracle_of_the_user_shows_no_word_of_the_assistant(store, embedder):
    evidence = frozenset(m.session_key for m in store.memories(ME)[2:4])
    both = delivered(store, embedder, "oracle", "Which visa does a falconer need?", keys=evidence).items
    users = delivered(store, embedder, "oracle-user", "Which visa does a falconer need?", keys=evidence).items
    assert {turn.role for item in both for turn in item.turns} == {"user", "assistant"}
    assert [[t for t in item.turns if t.role == "user"] for item in both] == [list(item.turns) for item in users]


# ------------------------------------------------------------------------------------------------------------ whole runs


class Ours(Parts):
    """The rule-made model in every role, in one engine where one is given, and the embedding model of all tests."""

    def __init__(self, engine=None, seed=0):
        models = read_models()
        super().__init__(models.with_roles(encode="scripted", read="scripted", judge="scripted"), seed=seed)
        self.given = engine

    @property
    def embedder(self):
        return loaded()

    def engine(self, role):
        return self.given or super().engine(role)


@cache
def loaded():
    return Parts(read_models().with_roles(encode="scripted", read="scripted", judge="scripted")).embedder


def run(source, out, names=DESIGN, *, protocol="official", seed=0):
    engine = ScriptedEngine(reply)
    with Ours(engine, seed) as parts:
        result = experiment.run(experiment.Plan(source, tuple(names), protocol), out, parts, CONDITIONS)
    return result, engine.requests


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory):
    return kit.rows(tmp_path_factory.mktemp("made") / "s.json", list(kit.made_up(10, 120)))


@pytest.fixture(scope="module")
def everything(tmp_path_factory, benchmark):
    """One run of every condition, and the requests that it made."""
    out = tmp_path_factory.mktemp("all") / "run"
    return (out, *run(benchmark, out))


lines = kit.lines


def kinds(requests):
    return Counter(r.kind for r in requests)


def test_one_teach_serves_every_condition(tmp_path, benchmark, everything):
    """What c6 alone costs in writing is what all of them cost, but for c6-joint, which is taught apart."""
    _, alone = run(benchmark, tmp_path / "c6", ["c6"])
    _, _, requests = everything
    once, all_of_them = kinds(alone), kinds(requests)
    for kind in ("facts", "details", "scene"):
        assert all_of_them[kind] == once[kind], kind
    assert once["scene"] > 20
    assert all_of_them["anchor"] - once["anchor"] > 0
    _, apart = run(benchmark, tmp_path / "joint", ["c6-joint"])
    assert all_of_them["facts+scene"] == kinds(apart)["facts+scene"] == once["facts"]
    assert all_of_them["details+scene"] == kinds(apart)["details+scene"]
    assert all_of_them["anchor"] == once["anchor"] + kinds(apart)["anchor"] - once["anchor"]


def test_every_condition_answers_every_question(everything):
    out, result, _ = everything
    assert (result.failed, result.unscored) == (0, 0)
    overall = {row.condition: row for row in result.report.rows if row.kind == "overall"}
    assert {name: row.n for name, row in overall.items()} == dict.fromkeys(DESIGN, 10)
    states = {name: Counter(a["state"] for a in lines(out / "answers" / f"{name}.jsonl").values()) for name in DESIGN}
    assert states["vanilla"] == states["c1"] == {"C": 10}
    assert all(states[n]["A"] >= 8 and not states[n]["B"] for n in ("c6", "c6-read-only", "c6-shuffled", "c6-joint"))
    assert all(states[n]["B"] >= 8 and not states[n]["A"] for n in ("c7", "c6-write-only", "c6-recall-scene", "c6-verbatim", "history"))
    assert states["oracle"] == states["oracle-user"] == states["full-context"] == {"B": 10}
    assert overall["oracle"].correct >= overall["vanilla"].correct + 6


def test_the_reconstructions_are_marked_in_the_report(everything):
    out, result, _ = everything
    report = (out / "report" / "report.md").read_text()
    for name in ("c1", "c2", "c3"):
        assert "reconstruction" in result.report.header.settings[f"condition {name}"]
        assert CONDITIONS.get(name).told in report


def test_a_scene_made_at_recall_is_kept_with_the_answer_and_counted_apart(everything):
    out, result, requests = everything
    found = lines(out / "answers" / "c6-recall-scene.jsonl")
    made = [a for a in found.values() if a["state"] == "B"]
    assert all(a["scene"].startswith("Picture: The user") and a["scene"].endswith(FOOTER) for a in made)
    assert kinds(requests)["recall-scene"] == len(made)
    assert {t.kind for t in result.report.tokens} >= {"recall-scene", "read"}


def test_evidence_reaches_search_as_a_filter_and_no_prompt(tmp_path, everything, benchmark):
    out, _, requests = everything
    golds = lines(out / "gold.jsonl")
    for question, answer in lines(out / "answers" / "oracle.jsonl").items():
        assert set(answer["delivered_sessions"]) == set(golds[question]["evidence_keys"])
    keys = {key for gold in golds.values() for key in gold["evidence_keys"]}
    for request in requests:
        prompt = request.system + request.user
        assert "answer_" not in prompt
        assert "evidence_keys" not in prompt
        assert not any(key in prompt for key in keys)
    rewritten = json.loads(benchmark.read_text())
    for row in rewritten:
        row["answer"] = "GOLDSENTINEL"
    _, asked = run(kit.rows(tmp_path / "gold.json", rewritten), tmp_path / "run", ["oracle", "full-context"])
    assert not any("GOLDSENTINEL" in r.system + r.user for r in asked if r.kind != "judge")


def test_a_condition_is_added_to_a_run_without_teaching_again(tmp_path, benchmark):
    run(benchmark, tmp_path / "run", ["c6"])
    _, requests = run(benchmark, tmp_path / "run", ["c4", "c6-shuffled"])
    assert set(kinds(requests)) == {"read", "judge"}


def test_both_traces_of_a_joint_memory_come_from_one_completion(everything):
    out, result, _ = everything
    with Store.open(out / "store-joint", None) as joint, Store.open(out / "store", None) as apart:
        together, alone = joint.memories(ME), apart.memories(ME)
    assert {m.id for m in together} == {m.id for m in alone}
    assert all(m.scene.startswith("Picture: The user sits at a wooden table") for m in together)
    counted = result.report.joint
    assert (counted.memories, counted.read) == (len(together), counted.taught + counted.dropped + counted.empty)
    assert {t.kind for t in result.report.tokens if t.stage == "teach jointly"} == {"facts+scene", "anchor"}
    assert f"{len(together)} memories" in re.search("Taught jointly for c6-joint: .*", (out / "report" / "report.md").read_text())[0]


def test_pooled_sees_all_haystacks_under_every_condition(tmp_path, benchmark):
    result, _ = run(benchmark, tmp_path / "run", ("c1", "c5-fs", "c6-shuffled", "full-context", "oracle"), protocol="pooled")
    assert (result.failed, result.unscored) == (0, 0)
    with Store.open(tmp_path / "run" / "store", None) as store:
        there = len(store.rounds(ME))
    for answer in lines(tmp_path / "run" / "answers" / "full-context.jsonl").values():
        assert answer["left_out"] + len(answer["delivered"]) == there


def test_daily_commands_refuse_what_only_a_run_can_do(tmp_path):
    source = kit.jsonl(tmp_path / "chats.jsonl", kit.small_sessions(3))
    with Memory(tmp_path / "store", Ours(), ME) as memory:
        memory.teach(source)
        for name in ("c6-joint", "oracle", "oracle-user"):
            with pytest.raises(ConfigError, match="use it in `dualtrace run`"):
                memory.search("What did I buy?", condition=name)
        for name in DESIGN:
            if name not in ("c6-joint", "oracle", "oracle-user"):
                assert memory.ask("Which kayak did I buy?", condition=name).condition == name


# ------------------------------------------------------------------------------------------------------- interruptions


def test_a_run_that_is_killed_at_random_moments_ends_as_an_unbroken_one(tmp_path, benchmark, everything):
    moments = random.Random(11)  # noqa: S311 - moments to kill at, no secret
    command = ("run", benchmark, "--out", tmp_path / "run", "--conditions", ",".join(DESIGN), "--model", "scripted")
    killed = 0
    for _ in range(KILLS):
        running = kit.child(tmp_path, *command)
        running.process.join(moments.uniform(2, 8))
        if running.process.is_alive():
            (running.process.kill if moments.random() < 0.5 else running.process.terminate)()
            killed += 1
        running.ended()
    final = kit.child(tmp_path, *command)
    assert final.ended(300) == 0, final.stderr.read_text()
    assert killed
    assert kit.outcome(tmp_path / "run") == kit.outcome(everything[0])


KILLS = 4
"""Interruptions of the run above."""


# --------------------------------------------------------------------------------------------------------- command line


def test_conditions_are_listed_and_shown():
    listed = kit.document(kit.dualtrace("conditions", "list", "--json"))["conditions"]
    assert [c["name"] for c in listed] == list(DESIGN)
    text = kit.dualtrace("conditions", "list").stdout
    assert sum("reconstruction" in line for line in text.splitlines()) == 3
    shown = kit.dualtrace("conditions", "show", "c3").stdout
    assert "reconstruction: the paper leaves parts open" in shown
    assert kit.document(kit.dualtrace("conditions", "show", "c4", "--json"))["stakes_from"] == 3
    wrong = kit.dualtrace("conditions", "show", "c99")
    assert (wrong.exit_code, wrong.stdout) == (2, "")
    assert "no condition named 'c99'" in wrong.stderr


def test_a_shown_entry_works_in_a_file_of_ones_own(tmp_path):
    shown = kit.dualtrace("conditions", "show", "c5-fs").stdout
    entry = shown[shown.index("c5-fs:\n", shown.index("as an entry")) :]
    own = tmp_path / "own.yaml"
    own.write_text("conditions:\n" + "".join(f"  {line}\n" for line in entry.splitlines()))
    assert read_conditions(own).get("c5-fs") == CONDITIONS.get("c5-fs")
    assert kit.document(kit.dualtrace("conditions", "list", "--conditions-file", own, "--json"))["conditions"][0]["name"] == "c5-fs"
    own.write_text("conditions:\n  x:\n    description: y\n    stored: facts\n    shows: fact+scene\n")
    wrong = kit.dualtrace("conditions", "list", "--conditions-file", own)
    assert wrong.exit_code == 2
    assert "own.yaml: conditions.x: " in wrong.stderr
