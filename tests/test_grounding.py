"""Grounding: what a sentence may rest on, what it may not add, the published score table, and the user's orders about memory."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualtrace_local.grounding import (
    LONGEST_QUOTE,
    REMEMBER,
    Ground,
    Refused,
    forbidden,
    hedged,
    in_first_person,
    leaning,
    names,
    numbers,
    score,
    sentences,
    session_evidence,
    statement_of,
    stems,
    without_guessed_gender,
)
from dualtrace_local.records import Component, Evidence, Turn


def user(*texts):
    return tuple(Turn("user", text) for text in texts)


def kept(written, *turns):
    """The component of ``written`` on these turns; fails the test when it is refused."""
    found = Ground(turns).component(written)
    assert isinstance(found, Component), found
    return found


def refusal(written, *turns):
    found = Ground(turns).component(written)
    assert isinstance(found, Refused), found
    return found.reason


# ------------------------------------------------------------------------------------------- numbers, names, stems


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("twelve eggs", {"12"}),
        ("12 eggs", {"12"}),
        ("1,200 steps", {"1200"}),
        ("at 6:45", {"6:45"}),
        ("at 06:45", {"6:45"}),
        ("at 7:00 am", {"7"}),
        ("a 5K in 25:50", {"5", "25:50"}),
        ("$5.50", {"5.5"}),
        ("3.0 litres", {"3"}),
        ("half of it", {"0.5"}),
        ("twenty-five guests", {"25"}),
        ("two hundred and seven guests", {"207"}),
        ("three thousand five hundred", {"3500"}),
        ("two dozen", {"24"}),
        ("two, three or four", {"2", "3", "4"}),
        ("chapters 1,2,5", {"1", "2", "5"}),
        ("my second and third try", {"2", "3"}),
        ("on 2019-08-05", {"2019", "8", "5"}),
        ("ten eleven", {"10", "11"}),
        ("٣ قطط", {"3"}),
        ("１２冊", {"12"}),
        ("no figures", set()),
        ("someone often weighed tension", set()),
    ],
)
def test_numbers_have_one_spelling(text, expected):
    assert numbers(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The user met Ines in Delft.", {"ines", "delft"}),
        ("Yesterday the user met Ines's sister.", {"ines"}),
        ("The user met Ines’ sister.", {"ines"}),
        ("The user said I'm glad, and I’ve seen it.", set()),
        ("It rained. Then it stopped.", set()),
        ("The user saw Dr Okafor and Mrs. Lindqvist.", {"dr", "okafor", "mrs", "lindqvist"}),
        ("The user lives in Saint-Malo.", {"saint-malo"}),
        ("The user fährt über Öland.", {"öland"}),
        ("The user has a PS5.", {"ps5"}),
        ("The user 犬を飼っています.", set()),
    ],
)
def test_names_are_capitalised_words_but_for_the_first(text, expected):
    assert names(text) == expected


def test_stems_leave_out_what_says_nothing():
    assert stems("I don't have any of my own, won't I?") == stems("")
    assert stems("two kayaks") == stems("2 kayak's")
    assert stems("O'Brien") == stems("brien")
    assert stems("naïve café") == stems("nai\u0308ve cafe\u0301")


def test_scripts_without_spaces_are_compared_by_pairs():
    assert stems("犬を飼っています") & stems("私は犬を飼って")


def test_sentences_are_verbatim_and_never_too_long():
    text = "I like tea. She said no and left.\nNew line。犬です。猫です。" + "x" * 2000 + " end of it"
    pieces = list(sentences(text))
    assert all(piece in text for piece in pieces)
    assert all(0 < len(piece) <= LONGEST_QUOTE for piece in pieces)
    assert {"I like tea.", "犬です。", "猫です。"} <= set(pieces)
    assert "".join("".join(pieces).split()) == "".join(text.split())


# -------------------------------------------------------------------------------------------------- what is kept


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("The user ran a race in 25:50.", "By the way, I ran my race in 25:50 last week."),
        ("The user owns 12 hens.", "I own twelve hens."),
        ("The user paid 1200 for a loom.", "I paid $1,200 for a loom."),
        ("The user met Sean O'Brien.", "I met Sean O’Brien yesterday."),
        ("The user met Anne-Marie Duval.", "I met Anne-Marie Duval yesterday."),
        ("The user has a PS5 and a B2B job.", "I have a PS5 and a B2B job."),
        ("The user's dog Rex is ill.", "My dog rex is ill."),
        ("The user swims on Tuesdays.", "I swim every Tuesday."),
        ("The user sings Italian opera.", "I sing old opera from Italy."),
        ("The user wohnt in Köln über einer Bäckerei.", "Ich wohne in Köln über einer Bäckerei."),
        ("The user met José.", "I met Jose\u0301."),
        ("The user は犬を飼っています.", "こんにちは。私は犬を飼っています。名前はポチです。"),
        ("The user عنده قطة اسمها لولو.", "عندي قطة اسمها لولو."),
    ],
)
def test_a_sentence_rests_on_the_users_words(written, said):
    component = kept(written, Turn("user", "Hello."), Turn("user", said))
    assert component.quote in said
    assert component.text == written
    assert component.turn == 1
    assert component.said_by == "user"


@pytest.mark.parametrize(
    ("written", "said", "reason"),
    [
        ("The user owns 13 hens.", "I own twelve hens.", "a number"),
        ("The user owns 20 hens.", "I own twenty-five hens.", "a number"),
        ("The user woke up at 6:45.", "I woke up at 7:00 and I had 6 or 45 things to do.", "a number"),
        ("The user paid 250 for a loom.", "I paid 200 and then 50 more for a loom.", "a number"),
        ("The user ran a marathon with Mark.", "I ran a marathon.", "a name"),
        ("The user went to Oslo.", "I went abroad.", "a name"),
        ("The user called Anna.", "I called about the annual fee.", "a name"),
        ("The user has a cat named لولو.", "عندي قطة اسمها ميمي.", "a name"),
        ("The user enjoys pottery and sailing.", "I went to a match with friends.", "no words of the user"),
        ("The user is.", "I am.", "no content"),
    ],
)
def test_what_the_user_did_not_say_is_refused_with_a_reason(written, said, reason):
    assert reason in refusal(written, *user(said))


def test_what_only_an_assistant_said_is_refused():
    turns = (Turn("user", "What could I do every morning?"), Turn("assistant", "Try quiet meditation every morning before breakfast."))
    assert "somebody else" in refusal("The user does quiet meditation every morning before breakfast.", *turns)
    assert "a name" in refusal("The user stays at Hotel Marl.", Turn("user", "Suggest a hotel."), Turn("assistant", "Try Hotel Marl."))
    assert "somebody else" in refusal("The user keeps bees.", Turn("system", "The user keeps bees."), Turn("user", "Hi there."))


def test_an_assistants_echo_does_not_take_the_words_from_the_user():
    turns = (Turn("user", "My parrot Rico is 7."), Turn("assistant", "Lovely that your parrot Rico is 7 years old!"))
    component = kept("The user's parrot Rico is 7 years old.", *turns)
    assert (component.quote, component.turn) == ("My parrot Rico is 7.", 0)


def test_a_number_draws_the_quote_to_where_it_was_said():
    turns = user("I collect stamps and old maps. My shed holds 40 of my old maps.")
    assert kept("The user has 40 old maps.", *turns).quote == "My shed holds 40 of my old maps."


def test_quotes_of_dictation_without_sentence_ends_stay_short():
    component = kept("The user's locker code is 4417.", *user("lorem ipsum " * 20_000 + "my locker code is 4417"))
    assert len(component.quote) <= LONGEST_QUOTE
    assert "4417" in component.quote


@pytest.mark.parametrize("quote", ["Maybe I will move.", "I'm not sure, 3 or 4.", "I think it was May.", "I'm considering a kayak."])
def test_hedges_are_heard(quote):
    assert hedged(quote)
    assert kept("The user will move or kayak in 3, 4 or in May.", *user("Maybe I will move or kayak in 3, 4 or in May.")).hedged
    assert not hedged("I moved in May.")


@given(st.lists(st.tuples(st.sampled_from(["user", "assistant", "tool"]), st.text(max_size=120)), max_size=6), st.text(max_size=120))
@settings(max_examples=80, deadline=None)
def test_nothing_crashes_and_no_kept_sentence_brings_a_number(turns, written):
    """Whatever was said and written, the numbers of a kept sentence are among the user's, and its quote is verbatim."""
    said = [Turn(role, text) for role, text in turns]
    found = Ground(said).component(written)
    if isinstance(found, Component):
        mine = frozenset().union(*(numbers(t.text) for t in said if t.role == "user"))
        assert numbers(written) - {"1", "0.5"} <= mine
        assert found.quote in said[found.turn].text
        assert said[found.turn].role == "user"
        assert 0 <= score(found).total <= 6


@given(st.integers(1, 999_999))
def test_figures_and_thousands_marks_agree(number):
    assert numbers(f"{number}") == numbers(f"{number:,}") == numbers(f"{number}.00") == {str(number)}


# ------------------------------------------------------------------------------------------------ the score table


def scores(quote, text="The user has something good."):
    evidence = score(Component(text, quote, 0))
    return evidence.relevance, evidence.specificity, evidence.explicitness


@pytest.mark.parametrize(
    ("row", "quote", "value"),
    [
        ("the user's own life", "I bought a canoe.", 2),
        ("the user's own life", "Our roof leaks.", 2),
        ("the user's own life", "She called me.", 2),
        ("the user's own life, in a question", "How do I fix my bike?", 2),
        ("only as asker", "Can you help me write a poem about rain?", 1),
        ("only as asker", "I need you to write a poem about rain.", 1),
        ("only as asker", "I'd like you to proofread my text.", 1),
        ("only as asker", "Could you please suggest some dishes to us?", 1),
        ("only as asker", "I'm looking for a summary of the play.", 1),
        ("only as asker", "How should I cook rice?", 1),
        ("no first person", "What is the capital of Norway?", 0),
        ("no first person", "Rain is wet, i.e. not dry.", 0),
        ("no first person", "The US economy grew.", 0),
    ],
)
def test_relevance_row_by_row(row, quote, value):
    assert scores(quote)[0] == value, row


@pytest.mark.parametrize(
    ("row", "text", "value"),
    [
        ("a number", "The user has 3 hens.", 2),
        ("a number in words", "The user has three hens.", 2),
        ("a date", "The user was born in May.", 2),
        ("a name", "The user knows Ines.", 2),
        ("an event", "The user moved.", 1),
        ("three content words", "The user enjoys slow quiet mornings.", 1),
        ("one as a pronoun is no number", "The user wants one.", 0),
        ("neither", "The user likes tea.", 0),
    ],
)
def test_specificity_row_by_row(row, text, value):
    assert scores("I do.", text)[1] == value, row


@pytest.mark.parametrize(
    ("row", "quote", "value"),
    [
        ("main clause", "I bought a canoe.", 2),
        ("main clause after another", "It rained, but I went out.", 2),
        ("main clause", "My sister is a vet.", 2),
        ("in passing", "Any ideas for the birthday of my aunt.", 1),
        ("in a question", "What suits me, as I bought a canoe?", 1),
        ("only as asker", "Can you help me write a poem?", 0),
        ("no first person", "What is the capital of Norway?", 0),
    ],
)
def test_explicitness_row_by_row(row, quote, value):
    assert scores(quote)[2] == value, row


def test_asking_alone_never_passes_the_gate():
    figures = "The user needs a table of 12 rows for Ines by May 6th."
    assert scores("Can you give me a table of 12 rows for Ines by May 6th?", figures) == (1, 1, 0)
    assert scores("I've noticed that some museums use robots.", "The user noticed that some museums use robots.") == (1, 1, 0)


@pytest.mark.parametrize(
    ("written", "said", "why"),
    [
        ("The user is 30 years old and walks before work.", "I walk for 30 minutes before work.", "a unit"),
        ("The user is a 30-year-old who walks before work.", "I go for a 30-minute walk before work.", "a unit"),
        ("The user runs for 12 weeks.", "I run 12 hours a week.", "a unit"),
        ("The user is 27 years old.", "We moved on 27 April.", "a unit"),
        ("The user is 27 years old.", "We moved on April 27th.", "a unit"),
    ],
)
def test_a_number_bound_to_another_unit_is_refused(written, said, why):
    assert why in refusal(written, *user(said))


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("The user has a daughter who is 9 years old.", "My daughter, who is 9, plays chess."),
        ("The user walks for 30 minutes before work.", "I go for a 30-min walk before work."),
        ("The user has lived here for nine months.", "I've lived here for 9 months now."),
    ],
)
def test_a_number_with_its_own_unit_is_kept(written, said):
    assert kept(written, *user(said)).text == written


def test_a_sentence_of_mostly_other_words_is_refused():
    said = "I'm considering applying for a green card but the process scares me."
    added = "The user is considering a green card, a long process by which citizens become permanent residents."
    assert "other words" in refusal(added, *user(said))


@pytest.mark.parametrize(
    ("written", "said", "right"),
    [
        (
            "The user got his goats vaccinated and he was relieved.",
            "I got my goats vaccinated.",
            "The user got their goats vaccinated and they were relieved.",
        ),
        ("The user thinks she's late.", "I'm late.", "The user thinks they're late."),
        ("The user told her mother that she is ill.", "I told my mother that she is ill.", "The user told her mother that she is ill."),
    ],
)
def test_a_gender_is_not_guessed(written, said, right):
    assert without_guessed_gender(written, said) == right


def test_a_statement_that_slips_into_the_first_person_is_known():
    assert in_first_person("The user uses the oat milk I have at home.")
    assert not in_first_person("The user likes the 'I have a dream' style of speech.")
    assert not in_first_person("The user uses oat milk.")


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("The user got a canoe.", "Which paddles would suit the canoe I got last spring?"),
        ("The user has a daughter who is 9.", "What are good books for my daughter, who is 9?"),
        ("The user ran 10 km.", "Any stretches for after runs like my 10 km yesterday?"),
    ],
)
def test_a_disclosure_in_passing_passes_the_gate(written, said):
    assert score(kept(written, *user(said))).total >= 3


def test_a_session_has_the_maximum_in_each_dimension():
    turns = user("I moved.", "What about my 12 hens?")
    each = [Evidence(2, 0, 2, ("I moved.",)), Evidence(1, 2, 1, ("What about my 12 hens?",)), Evidence(0, 0, 0, ("I moved.",))]
    assert session_evidence(each, turns) == Evidence(2, 2, 2, ("I moved.", "What about my 12 hens?"))
    assert session_evidence((), turns) == Evidence()


# -------------------------------------------------------------------------------------------- orders about memory


@pytest.mark.parametrize(
    "text",
    [
        "Remember that my locker code is 4417.",
        "Please remember my sister's birthday is in May.",
        "Thanks! Also, please keep in mind that I don't eat nuts.",
        "Don't forget that the spare key is under the pot.",
        "My dentist is Dr Okafor, please remember that.",
        "Can you please remember that I take the early train?",
        "I want you to remember this.",
        "Make a note that my blood type is rare.",
        "Remember: my passport runs out in June.",
    ],
)
def test_an_order_to_remember_is_heard(text):
    assert session_evidence((), user(text)).override == "remember"
    assert not forbidden(user(text))


@pytest.mark.parametrize(
    "text",
    [
        "Please don't remember this.",
        "My code is 4417. Do not remember that!",
        "Don't save this conversation",
        "do not store any of this",
        "Never record what I said about my boss.",
        "Please do not keep a record of this.",
        "I lost my job (don't keep this).",
        "Forget what I just told you.",
        "Please forget this.",
        "I don't want you to remember this.",
        "I'd rather you didn't store that.",
        "I would like you to forget everything I said.",
        "You shouldn't remember this.",
        "Could you please not save this?",
        "Ok, and please don’t remember my weight.",
    ],
)
def test_an_order_not_to_remember_is_heard(text):
    assert forbidden(user("I moved to Delft.", text))
    assert session_evidence((), user("Remember that I moved.", text)).override == "forget"
    assert not REMEMBER.search(text)


@pytest.mark.parametrize(
    "text",
    [
        "I don't remember this song.",
        "I don't remember that at all",
        "Do you remember that time at the lake?",
        "I remember that my aunt sang.",
        "I will never forget this day.",
        "I can't forget that film.",
        "We do not store this in the fridge.",
        "I never record this show.",
        "Don't keep it too formal.",
        "You don't remember this from last week?",
        "Remember that you are an expert in taxes.",
        "Remember that the answer should be short.",
        "Remember that day at the lake?",
    ],
)
def test_talk_about_remembering_is_no_order(text):
    assert not forbidden(user(text))
    assert session_evidence((), user(text)).override == ""


@pytest.mark.parametrize("text", ["don't forget this", "Please don’t forget that I moved", "never forget that I moved"])
def test_an_order_not_to_forget_is_an_order_to_remember(text):
    assert not forbidden(user(text))
    assert session_evidence((), user(text)).override == "remember"


def test_only_the_user_gives_orders():
    turns = (Turn("assistant", "Please don't remember this. Remember that my code is 1."), Turn("user", "Hi."))
    assert not forbidden(turns)
    assert session_evidence((), turns).override == ""


def test_stakes_override_is_told_by_what_was_grounded():
    quote = "I'm allergic to penicillin."
    assert session_evidence([Evidence(2, 1, 2, (quote,))], user(quote)).override == "stakes"
    assert session_evidence([Evidence(2, 1, 2, ("I bought a canoe.",))], user("Tell me about allergies.")).override == ""


EVIL = "can you |I need you |I |my a |- |x|. |I think |do not |1,|please |\n| |don't forget |'|。|twenty ".split("|")


@pytest.mark.parametrize("unit", EVIL)
def test_200_000_characters_are_read_in_linear_time(unit):
    """Ten times the text takes about ten times as long; quadratic patterns would take minutes here."""
    text = (unit * 200_000)[:200_000]
    before = time.process_time()
    turns = user(text)
    Ground(turns).component("The user has 12 hens.")
    score(Component("The user has 12 hens.", text, 0))
    session_evidence([Evidence(1, 1, 1, (text,))], turns)
    forbidden(turns)
    names(text)
    assert time.process_time() - before < 15


def test_a_title_does_not_end_a_sentence():
    said = "I see Dr. Varga on 7 June. Then I rest."
    assert [s.text for s in Ground(user(said)).said] == ["I see Dr. Varga on 7 June.", "Then I rest."]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("I own 12 grey hens.", "I own 12 grey hens."),
        ("Oh, and by the way, I own 12 grey hens!", "I own 12 grey hens!"),
        ("I own 12 grey hens, do you know a feed that is good for them?", "I own 12 grey hens."),
        ("I own 12 grey hens and I was wondering if you could tell me what they eat.", "I own 12 grey hens."),
        ("I live in Delft now with my hens; any tips on markets there?", "I live in Delft now with my hens."),
        ("Can you tell me what 12 grey hens eat?", "Can you tell me what 12 grey hens eat?"),
        ("Nowhere do I keep hens.", "Nowhere do I keep hens."),
    ],
)
def test_a_statement_is_what_is_told_without_the_request(said, told):
    assert statement_of(said) == told


@given(st.text(max_size=200))
@settings(max_examples=200, deadline=None)
def test_a_statement_is_made_of_the_sentence_it_comes_from(text):
    """Nothing is added but a full stop; the first letter may become a capital."""
    made = statement_of(text)
    assert made.lower().rstrip(".") in text.lower() or made == text


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("The user is excited to see how it turns out.", False),
        ("The user likes that idea.", False),
        ("The user has done it for 3 weeks now.", True),
        ("The user likes the way it smells in the bakery of their brother in the morning.", True),
    ],
)
def test_a_statement_that_only_points_is_no_memory(text, kept):
    said = user(
        "I'm excited to see how it turns out. I like that idea. I've done it for 3 weeks now. "
        "I like the way it smells in the bakery of my brother in the morning."
    )
    assert isinstance(Ground(said).component(text), Component) is kept


def test_being_made_to_think_is_no_hedge():
    assert hedged("I'm thinking of selling the boat.")
    assert not hedged("I went to the boat yard today, and it got me thinking about the summer.")


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("The user is Whiskers, a new cat with an ear infection.", False),
        ("The user is Italian and has a new cat.", True),
        ("The user is named Ines and has a new cat.", True),
    ],
)
def test_a_pet_is_not_taken_for_the_user(text, kept):
    said = user("My name is Ines, I'm Italian and I have a new cat. Whiskers, my new cat, had an ear infection.")
    assert isinstance(Ground(said).component(text), Component) is kept


# ---------------------------------------------------------------------------------------------- what the user leans to


@pytest.mark.parametrize(
    "told",
    [
        "I really love slow trains and window seats.",
        "I don't like crowded beaches.",
        "I've always hated cilantro.",
        "I'm a big fan of rye bread.",
        "I can't stand loud restaurants.",
        "I'm allergic to shellfish.",
        "We own a small red kayak.",
        "I've been practising the cello every evening.",
        "I have recently been growing chillies on the balcony.",
        "My favorite season is autumn.",
        "I'd pack light, with just my new power bank and a book.",
        "As an aspiring watchmaker, I'm looking for a good loupe.",
        "I avoid motorways.",
        "I'm not keen on podcasts.",
    ],
)
def test_a_sentence_that_tells_a_leaning(told):
    assert leaning(told)


@pytest.mark.parametrize(
    "told",
    [
        "I like the idea of a picnic.",
        "I love that suggestion!",
        "I'd like to know how glue works.",
        "I like your second draft.",
        "I've been wondering whether glue dries in the cold.",
        "I've been thinking about it.",
        "I need a title for the essay.",
        "I want you to act as a pirate.",
        "Write a poem about a man who likes trains.",
        "I love it.",
    ],
)
def test_a_sentence_about_the_answer_or_the_task_tells_no_leaning(told):
    assert not leaning(told)


def test_leanings_that_nothing_tells_are_looked_at_again_few_and_after_details():
    turns = user("I love rye bread. I avoid motorways. I hate cilantro. I'm a fan of slow trains. My hen Greta laid 212 eggs.")
    ground = Ground(turns)
    missed = [s.text for s in ground.untold((), None)]
    assert missed == ["My hen Greta laid 212 eggs.", "I love rye bread.", "I avoid motorways.", "I hate cilantro."]
    told = kept("The user loves rye bread.", *turns)
    assert "I love rye bread." not in [s.text for s in ground.untold([told], None)], "a sentence that a component quotes is told"
