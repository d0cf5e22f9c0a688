"""What code works out of dates, ages and counts, and how a reader is given it; time windows lift and never hide."""

import json
from datetime import date, datetime

import pytest
from kit_talks import ME, START, talk, words

from dualtrace_local.config import read_conditions
from dualtrace_local.dates.windows import Window, beside, distance, windows
from dualtrace_local.engines import Job
from dualtrace_local.engines.scripted import ScriptedEngine
from dualtrace_local.grounding.worked import Line, different, total, worked_out
from dualtrace_local.recall import Reader, recall
from dualtrace_local.records import Component, Delivered, Item, Question, State, Turn
from dualtrace_local.search import View, search
from dualtrace_local.store import Store

C8 = read_conditions().get("c8")
TODAY = datetime(2024, 5, 15, 12)


def line(name, text, day=None, *events):
    return Line(name, text, date.fromisoformat(day) if day else None, tuple((w, date.fromisoformat(d)) for w, d in events))


# ------------------------------------------------------------------------------------------------------------- dates


def test_windows_are_ranges_and_widened_as_people_round():
    assert windows("What did I buy last March?", TODAY) == (Window(date(2024, 3, 1), date(2024, 3, 31)),)
    assert windows("What did I read two weeks ago?", TODAY) == (Window(date(2024, 4, 28), date(2024, 5, 4)),)
    assert windows("Where was I last winter?", TODAY) == (Window(date(2023, 12, 1), date(2024, 2, 29)),)
    assert windows("What is my dog's name?", TODAY) == windows("What did I do last winter?", None) == ()


def test_a_time_told_by_an_event():
    told = beside("What did I buy the week before my trip to Oslo?")
    assert (told.event, told.window(date(2024, 5, 10))) == ("my trip to Oslo", Window(date(2024, 5, 3), date(2024, 5, 10)))
    assert beside("What did I buy?") is None


@pytest.mark.parametrize(
    ("first", "last", "told"),
    [
        ("2024-03-01", "2024-05-15", "75 days (10 weeks 5 days; 2 months 14 days)"),
        ("2024-05-15", "2024-03-01", "75 days (10 weeks 5 days; 2 months 14 days)"),
        ("2024-01-31", "2024-02-29", "29 days (4 weeks 1 day; 1 month)"),
        ("2024-05-15", "2024-05-15", "0 days"),
    ],
)
def test_distances_in_all_units(first, last, told):
    assert distance(date.fromisoformat(first), date.fromisoformat(last)) == told


# ------------------------------------------------------------------------------------------------------- worked out


def test_distances_and_order_of_the_lines_that_bear_on_the_question():
    lines = [
        line("m1", "The user planted beans.", "2024-05-01"),
        line("m2", "The user picked the beans.", "2024-05-15", ("today", "2024-05-14")),
        line("m3", "The user's cat is Miso.", "2024-05-02"),
    ]
    made = worked_out("How many days passed between planting and picking the beans?", TODAY, lines)
    assert made[0] == "in order of time: m1 (said: 2024-05-01), m2 (today: 2024-05-14)"
    assert made[1] == "m1 (said: 2024-05-01) to m2 (today: 2024-05-14): 13 days (1 week 6 days)"
    assert not any("m3" in fact for fact in made)
    assert worked_out("What colour are the beans?", TODAY, lines) == ()


def test_ages_and_their_differences():
    lines = [line("m1", "The user is 32 and works 40 hours."), line("m2", "The user's grandmother had her 75th birthday.")]
    assert worked_out("How much older is my grandmother than me?", None, lines) == (
        "ages told: 75 (m2), 32 (m1)", "75 (m2) is 43 years older than 32 (m1)")  # fmt: skip


def test_the_same_told_twice_counts_once_and_what_happened_twice_counts_twice():
    first, again = line("m1", "The user bought a red kayak in Hull."), line("m2", "The user bought a red kayak from a shop in Hull.")
    later = line("m3", "The user bought a red kayak in Hull.", None, ("in May", "2024-05-01"))
    dated = line("m4", "The user bought a red kayak in Hull.", None, ("in June", "2024-06-01"))
    assert different([first, again]) == (first,)
    assert different([later, dated]) == (later, dated)


def test_sums_need_one_amount_of_one_unit_from_each_line():
    lines = [line("m1", "The user bought a kayak for 40 euros."), line("m2", "The user bought a loom for €1,250.50.")]
    assert total(lines) == (1290.5, "euro")
    assert total([*lines, line("m3", "The user rowed 9 miles.")]) is None
    assert total(lines[:1]) is None


# ------------------------------------------------------------------------------------------------------- the reader


def item(number, fact, day, *, said=""):
    turns = (Turn("user", said or fact), Turn("assistant", "I see."))
    return Item(f"m{number}", f"{number:032x}", f"{number + 9:032x}", day, "thing", fact, components=(Component(fact, fact, 0),),
                turns=turns, round_id=f"{number + 99:032x}", similarity=0.9, score=1.0)  # fmt: skip


def read(text, items, answer, *used):
    reply = {"read": json.dumps({"notes": "The lines were read with care.", "used": used, "answer": answer})}
    delivered = Delivered("q", "c8", State.B, tuple(items), merged=True)
    reader = Reader(b"0123456789abcdef", words)
    with ScriptedEngine(reply) as engine:
        (result,) = engine.run([Job("q", lambda: recall(Question("q", text, TODAY), delivered, reader))], window=1)
    return result.value, engine.requests[0]


KAYAKS = [item(n, f"The user bought a {thing}.", datetime(2024, 5, n)) for n, thing in enumerate(("red kayak", "blue canoe", "dinghy"), 1)]


def test_worked_out_facts_are_shown_and_bear_an_answer():
    items = [item(1, "The user planted beans.", datetime(2024, 5, 1)), item(2, "The user picked beans.", datetime(2024, 5, 14))]
    answer, request = read("How many days passed between planting and picking beans?", items, "13 days passed.", "m1", "m2")
    assert "m2 (said: 2024-05-14): 13 days (1 week 6 days)" in request.user
    assert (answer.text, answer.abstained, "13 days" in answer.worked) == ("13 days passed.", False, True)


def test_the_reader_sees_who_said_what_and_the_days_in_the_users_words():
    _, request = read(
        "Where did I go?", [item(1, "The user went to Hull.", datetime(2024, 5, 14), said="I went to Hull yesterday.")], "Hull.", "m1"
    )
    assert '"dates": {"yesterday": "2024-05-13"}' in request.user
    assert '"user": "I went to Hull yesterday.", "assistant": "I see."' in request.user


def test_a_count_is_made_from_the_marked_lines():
    wrong, _ = read("How many boats did I buy?", KAYAKS, "You bought two boats.", "m1", "m2", "m3")
    none, _ = read("How many boats did I buy?", KAYAKS, "You bought several boats.", "m1", "m2", "m3")
    one, _ = read("How many boats did I buy?", KAYAKS, "You bought two boats.", "m1")
    assert (wrong.text, wrong.counted) == ("You bought 3 boats.", "3")
    assert none.text == "3. You bought several boats."
    assert (one.text, one.counted) == ("You bought two boats.", "")


def test_a_sum_is_made_from_the_marked_lines():
    items = [
        item(n, f"The user bought a {thing}.", datetime(2024, 5, n))
        for n, thing in enumerate(("kayak for 40 euros", "loom for 25 euros"), 1)
    ]
    answer, _ = read("How much did I spend in total?", items, "You spent 60 euros in total.", "m1", "m2")
    assert (answer.text, answer.counted) == ("You spent 65 euros in total.", "65")


# ------------------------------------------------------------------------------------------------------------ search


@pytest.fixture(scope="module")
def store(tmp_path_factory, embedder):
    path = tmp_path_factory.mktemp("worked") / "s"
    said = {
        0: "I baked a rye loaf for the street party.",
        45: "I baked a walnut loaf for the choir.",
        90: "I baked a barley loaf for my uncle.",
        44: "My trip to Oslo was wonderful.",
        20: "I cook a lot; I love smoky aubergine and avoid dairy.",
        21: "I cook at work, where we serve burgers.",
    }
    with Store.open(path, embedder, create=True) as writer:
        writer.commit([talk(day, text, "I see.") for day, text in said.items()])
    with Store.open(path, embedder) as reader:
        yield reader


def best(store, text, embedder, day=TODAY, tokens=5000):
    items = search(View(store, ME, C8, name="c8"), Question("q", text, day), embedder, tokens, words).items
    return [i.turns[0].text for i in sorted(items, key=lambda i: -i.score)]


def test_a_window_lifts_what_lies_in_it_and_hides_nothing(store, embedder):
    plain, march, april = (best(store, f"Which loaf did I bake{when}?", embedder) for when in ("", " on March 1", " in April"))
    assert "rye" in march[0]
    assert "walnut" in april[0]
    assert set(plain) == set(march) == set(april)


def test_a_time_told_by_an_event_is_found_by_that_event(store, embedder):
    assert START.day == 1
    assert "walnut" in next(t for t in best(store, "Which loaf did I bake the day after my trip to Oslo?", embedder) if "loaf" in t)


def test_tastes_come_first_where_advice_is_asked_for(store, embedder):
    assert "aubergine" in best(store, "Can you suggest something that I could cook?", embedder)[0]
