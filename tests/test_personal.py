"""The personal domain: excerpts, rounds, requests, topics and the shape of scenes."""

import re
from datetime import datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualtrace_local.config import Budgets, GateWay, TeachSettings
from dualtrace_local.domains import personal, prompts
from dualtrace_local.domains.personal import FOOTER, MAX_GROUPS, Personal, Topic, info_type, rounds
from dualtrace_local.grounding import Ground
from dualtrace_local.records import Component, EventDate, Evidence, Session, Tier, Turn

SECRET = b"0123456789abcdef"
DAY = datetime(2022, 3, 10, 9, 30)


def words(text):
    return len(text.split())


def domain(count=words, *, gate=GateWay.FACTS_FIRST, excerpt=1800, **options):
    return Personal(SECRET, count, gate, Budgets(excerpt=excerpt), TeachSettings(**options))


def session(*turns, date=DAY, **options):
    return Session(tuple(Turn(*t) for t in turns), date, **options)


def component(text, quote="I do.", **options):
    return Component(text, quote, 0, **options)


# --------------------------------------------------------------------------------------------------------- excerpts


def test_roles_and_order_are_kept_inside_one_text():
    """Two user turns in a row, an assistant first, system and tool turns: nothing is merged, dropped or renamed."""
    talk = session(
        ("assistant", "Welcome back."), ("user", "Hi."), ("user", "I sold my bike."), ("system", "(reminder)"), ("tool", '{"ok":true}')
    )
    (excerpt,) = domain(assistant_chars=80).excerpts(talk)
    assert excerpt == 'assistant: Welcome back.\nuser: Hi.\nuser: I sold my bike.\nsystem: (reminder)\ntool: {"ok":true}'


def test_assistant_turns_are_cut_and_user_turns_are_whole():
    long = "word " * 100
    talk = session(("user", f"I own {long}boats."), ("assistant", f"Great {long}indeed."), ("assistant", "Short."), ("user", "  "))
    (none,) = domain(assistant_chars=0).excerpts(talk)
    assert none == f"user: I own {long}boats.\nassistant: Short."
    (some,) = domain(assistant_chars=80).excerpts(talk)
    lines = some.split("\n")
    assert lines[0] == f"user: I own {long}boats."
    assert lines[1].startswith("assistant: Great word")
    assert lines[1].endswith("…")
    assert len(lines[1]) <= len("assistant: ") + 80 + 2
    assert lines[2:] == ["assistant: Short."]


def test_a_session_without_user_words_has_nothing_to_read():
    assert domain().excerpts(session(("assistant", "A long lecture."), ("user", " \n"))) == ()


def test_many_turns_become_parts_within_the_budget():
    talk = session(*(("user", f"I own boat number {i} and it is called boat.") for i in range(100)))
    parts = domain(excerpt=200).excerpts(talk)
    assert len(parts) > 2
    assert all(words(p) <= 200 for p in parts)
    assert "\n".join(parts).split("\n") == [f"user: {t.text}" for t in talk.turns]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("lorem " * 33_334 + "My locker code is 4417.", words),
        ("lorem " * 33_334 + "My locker code is 4417.", lambda text: len(text) // 4 + 1),
        ("x" * 200_000 + " My locker code is 4417.", lambda text: len(text) // 4 + 1),
        ("犬" * 200_000 + "My locker code is 4417.", len),
        ("a b " * 30_000 + "f" * 80_000 + " My locker code is 4417.", lambda text: len(text) // 2 + 1),
        ("line\n" * 40_000 + "My locker code is 4417.", lambda text: len(text) // 3 + 1),
    ],
)
def test_one_turn_of_200_000_characters_is_cut_into_parts(text, count):
    """However the tokens lie, every part is within the budget, says whose words it holds, and the end is in one of them."""
    talk = session(("user", text), ("assistant", "Noted."), ("user", "I own a kayak."))
    parts = domain(count, assistant_chars=80).excerpts(talk)
    assert all(count(p) <= 1800 for p in parts)
    assert all(p.startswith("user: ") for p in parts)
    assert any("My locker code is 4417." in p for p in parts)
    assert parts[-1].endswith("assistant: Noted.\nuser: I own a kayak.")
    assert sum(len(p) for p in parts) >= len(text)
    assert parts == domain(count, assistant_chars=80).excerpts(talk)


def test_a_sentence_on_a_cut_is_whole_in_one_part():
    sentences = [f"My card number {i} has the word w{i}w on it." for i in range(2000)]
    parts = domain(lambda t: len(t) // 4 + 1).excerpts(session(("user", " ".join(sentences))))
    assert len(parts) > 5
    assert all(any(s in p for p in parts) for s in sentences)


@given(st.text(max_size=3000), st.integers(200, 400), st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_no_text_is_lost_and_no_part_is_too_long(text, budget, density):
    def count(shown):
        return len(shown) // density + 1

    parts = domain(count, excerpt=budget).excerpts(session(("user", text)))
    assert all(count(p) <= budget for p in parts)
    joined = "".join("".join(p.removeprefix("user: ").split()) for p in parts)
    assert set("".join(text.split())) <= set(joined)
    assert bool(parts) == bool(text.strip())


# ----------------------------------------------------------------------------------------------------------- rounds


def test_rounds_are_user_turns_with_what_follows():
    talk = session(
        ("assistant", "Welcome back."),
        ("user", "Hi."),
        ("user", "I sold my bike."),
        ("assistant", "Well done."),
        ("tool", "price: 90"),
        ("user", "   "),
        ("assistant", ""),
        ("user", "Bye."),
    )
    made = rounds(talk)
    assert [(r.user, r.assistant) for r in made] == [
        ("", "Welcome back."),
        ("Hi.", ""),
        ("I sold my bike.", "Well done.\ntool: price: 90"),
        ("Bye.", ""),
    ]
    assert [r.ordinal for r in made] == [0, 1, 2, 3]
    assert len({r.id for r in made}) == 4
    assert {(r.session_key, r.date) for r in made} == {(talk.key, DAY)}
    assert made[2].text == "I sold my bike.\nWell done.\ntool: price: 90"


def test_blank_sessions_have_no_rounds():
    assert rounds(session()) == ()
    assert rounds(session(("user", " \n\t"), ("assistant", ""))) == ()


# --------------------------------------------------------------------------------------------------------- requests


def test_requests_about_one_session_share_all_but_the_task():
    made = domain(gate=GateWay.SCORED)
    talk = session(("user", "I sold my bike."))
    topic = Topic((component("The user sold their bike."),), "vehicle", "discrete", "bike-sale")
    asked = [made.facts(talk, "E"), made.scores(talk, "E"), made.grouped_facts(talk, "E"), made.whole_scene(talk, "E", topic)]
    assert len({r.system for r in asked}) == 1
    start = prompts.fill("session", date="2022-03-10 (Thursday)", session=prompts.fence("E", SECRET, talk.key))
    assert all(r.user.startswith(start) for r in asked)
    assert len({r.user for r in asked}) == 4
    assert {r.kind for r in asked} == {"facts", "gate", "scene"}


def test_no_request_holds_where_a_session_comes_from():
    talk = session(("user", "I sold my bike."), external_id="ext-77", source="file.json", record=3)
    topic = Topic((component("The user sold their bike."),), "vehicle", "discrete")
    made = domain()
    for request in (made.facts(talk, made.excerpts(talk)[0]), made.anchor(topic), made.scene(topic)):
        assert not re.search(r"ext-77|file\.json|has_answer|answer_", request.system + request.user)


def test_an_undated_session_has_no_date_in_its_prompt():
    request = domain().facts(session(("user", "I fixed the gate."), date=None), "user: I fixed the gate.")
    assert "not known" in request.user
    assert not re.search(r"\b(?:19|20)\d\d\b", request.system + request.user)


def test_longer_excerpts_may_have_more_facts_within_bounds():
    made = domain()
    talk = session(("user", "x"))
    most = [made.facts(talk, "w " * n).output.model_json_schema()["properties"]["facts"]["maxItems"] for n in (1, 300, 400, 5000)]
    assert most == sorted(most)
    assert most[0] == 5
    assert most[-1] == 10


def test_very_many_facts_do_not_make_a_prompt_too_long():
    topic = Topic(tuple(component(f"The user owns boat number {i} of many.") for i in range(500)), "sport", "compositional")
    made = domain(excerpt=200)
    for request in (made.anchor(topic), made.scene(topic)):
        assert words(request.user) < 250
        assert "boat number 0" in request.user
    one = Topic((component("The user asked to remember: " + "word " * 5000),), "sport", "discrete")
    assert words(made.scene(one).user) < 250


def test_the_fingerprint_names_every_prompt_that_is_used():
    assert set(domain().prompt_names) == {"system", "session", "facts", "details", "anchor_system", "anchor", "scene_system", "scene"}
    assert {"gate", "facts_grouped", "scene_whole"} < set(domain(gate=GateWay.SCORED).prompt_names)
    assert set(domain().prompt_names) | set(domain(gate=GateWay.SCORED).prompt_names) <= set(prompts.names())


# ----------------------------------------------------------------------------------------------------------- gating


@pytest.mark.parametrize(
    ("evidence", "tier"),
    [
        (Evidence(), Tier.DROP),
        (Evidence(1, 0, 1), Tier.DROP),
        (Evidence(1, 1, 1), Tier.FULL),
        (Evidence(2, 2, 2), Tier.FULL),
        (Evidence(override="remember"), Tier.FULL),
        (Evidence(2, 2, 2, override="forget"), Tier.DROP),
        (Evidence(1, 0, 1, override="stakes"), Tier.DROP),
        (Evidence(1, 1, 1, override="stakes"), Tier.FULL),
    ],
)
def test_the_gate_drops_up_to_two_but_for_what_the_user_orders(evidence, tier):
    assert domain().tier(evidence) is tier


@pytest.mark.parametrize(
    ("said", "quote"),
    [
        ("Hello. Remember that my locker code is 4417.", "Remember that my locker code is 4417."),
        ("My locker code is 4417. Please remember this.", "My locker code is 4417."),
        ("My locker code is 4417, please remember that.", "My locker code is 4417, please remember that."),
        ("lorem ipsum " * 9000 + ". Remember that my locker code is 4417", "Remember that my locker code is 4417"),
    ],
)
def test_what_is_to_be_remembered_is_the_sentence_that_says_it(said, quote):
    (found,) = domain().asked_to_remember(Ground([Turn("assistant", "Remember that my code is 1."), Turn("user", said)]))
    assert found.quote == quote
    assert found.turn == 1
    assert "4417" in found.text
    assert len(found.text) < 200


# ----------------------------------------------------------------------------------------------------------- topics


def test_topics_are_told_apart_and_stay_few(embedder):
    facts = [
        "The user adopted a cat named Miso.",
        "The user's cat Miso is 3 years old.",
        "The user is training for a marathon.",
        "The user ran 18 miles last Sunday.",
    ]
    topics = domain().topics([component(f) for f in facts], embedder.encode)
    groups = [[c.text for c in t.components] for t in topics]
    assert sorted(text for group in groups for text in group) == sorted(facts)
    assert groups[0][:2] == facts[:2]
    assert facts[2] in groups[1]
    assert topics[0].category == "pets"


def test_a_short_session_has_at_most_four_topics(embedder):
    things = [
        "a sailing boat",
        "a vegan cookbook",
        "chess lessons",
        "a new dentist",
        "tax papers",
        "a drum kit",
        "an old barn",
        "bee hives",
    ]
    topics = domain().topics([component(f"The user has {t}.") for t in things], embedder.encode)
    assert 1 < len(topics) <= MAX_GROUPS
    assert sum(len(t.components) for t in topics) == len(things)


def test_equal_and_single_statements_group_without_trouble():
    def flat(texts):
        return np.full((len(texts), 3), 3**-0.5, dtype=np.float32)

    assert domain().topics((), flat) == ()
    assert len(domain().topics([component("The user sails.")], flat)) == 1
    assert len(domain().topics([component("The user is a vet."), component("The user has a vet.")], flat)) == 1


def test_information_types():
    assert info_type([component("The user's sister Ines is a vet.")]) == "relational"
    assert info_type([component("The user sails."), component("The user skis.")]) == "compositional"
    assert info_type([component("The user's gate code is 4417.")]) == "discrete"


# ----------------------------------------------------------------------------------------------------------- scenes


DATED = component("The user ran 12 km yesterday.", events=(EventDate("yesterday", "2022-03-09"), EventDate("on Friday")))


def test_a_picture_holds_details_and_time_and_ends_with_the_note():
    made = domain()
    topic = Topic((DATED, component("The user likes tea."), component("The user met Ines.")), "sport", "relational")
    scene = made.picture("The user stands at a window.", topic, session(("user", "x")))
    assert scene.startswith("Picture: The user stands at a window.")
    assert scene.endswith(FOOTER)
    assert all(part in scene for part in ("12 km", "Ines", "yesterday = 2022-03-09", "on Friday", "Thursday, 10 March 2022"))


def test_a_picture_of_an_undated_session_names_no_date():
    scene = domain().picture("The user waits.", Topic((component("The user likes tea."),), "food", "discrete"), session(date=None))
    assert "likes tea" in scene
    assert not re.search(r"\d", scene)


def test_a_whole_scene_gets_the_day_where_it_has_no_time():
    made, talk = domain(gate=GateWay.SCORED), session(("user", "x"))
    assert made.whole_picture("Picture: 3 hens sit there.", talk) == f"Picture: 3 hens sit there. Told on Thursday, 10 March 2022. {FOOTER}"
    told = "Picture: on 10 March 2022 the hens sit there."
    assert made.whole_picture(told, talk) == f"{told} {FOOTER}"
    assert made.whole_picture("Picture: hens.", session(date=None)) == f"Picture: hens. {FOOTER}"


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("The user stands at a pier and holds a map.", ""),
        ("The user stands with Ines beside 12 signs.", ""),
        ("Picture: The user stands there on Thursday, 10 March 2022.", ""),
        ("Picture: The user ran on 2022-03-09, the day before.", ""),
        ("The user stands beside 13 signs.", "a number"),
        ("The user stands on a pier in Lisbon.", "a name"),
        ("The user stands there on a Sunday.", "a name"),
        ("The user stands there in 2023.", "a number"),
    ],
)
def test_a_scene_may_not_add_a_number_date_name_or_place(text, refused):
    talk = session(("user", "I met Ines. I ran 12 km yesterday."), ("assistant", "Lisbon has 13 hills."))
    topic = Topic((DATED, component("The user met Ines.")), "sport", "relational")
    assert domain().scene_refusal(text, topic, talk, Ground(talk.turns)) == refused


def test_output_types_refuse_what_is_not_whole():
    facts = personal.facts_type(5)
    assert facts.model_validate_json('{"facts":["The user paid 5.50 for tea."]}').facts
    for broken in ('{"facts":["The user owns a ka"]}', '{"facts":["Ada owns a kayak."]}', '{"facts":[],"more":1}', '{"facts": [\n \n'):
        with pytest.raises(ValueError, match="validation error"):
            facts.model_validate_json(broken)


def test_grouping_twice_gives_the_same(embedder):
    facts = [component(f"The user has {t}.") for t in ("a boat", "a book", "a drum", "a dentist", "a dog", "a barn")]
    assert domain().topics(facts, embedder.encode) == domain().topics(facts, embedder.encode)
