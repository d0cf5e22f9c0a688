"""Spoken dates against the day of the talk. In the tables: what was said, and the days that must come out."""

import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import pytest

from dualtrace_local.dates import days_between, describe_distance, find_events
from dualtrace_local.records import EventDate


def day(text):
    return datetime.fromisoformat(text)


WEDNESDAY = day("2023-05-24T09:00")


def resolved(text, said_on=WEDNESDAY):
    """``spoken=day..end~`` for each date found; ``~`` for about, nothing after ``=`` when only the words are known."""
    return [f"{e.spoken}={e.day}{f'..{e.end}' if e.end else ''}{'~' if e.approximate else ''}" for e in find_events(text, said_on)]


@pytest.mark.parametrize(
    ("said_on", "text", "expected"),
    [
        ("2023-05-24", "I saw the doctor last Thursday.", ["last Thursday=2023-05-18"]),
        ("2023-05-30", "We met last Tuesday.", ["last Tuesday=2023-05-23"]),
        (
            "2023-05-29",
            "next Monday, in two weeks, the day before yesterday",
            ["next Monday=2023-06-05", "in two weeks=2023-06-12", "the day before yesterday=2023-05-27"],
        ),
        ("2024-03-31", "a month ago", ["a month ago=2024-02-29~"]),
        ("2023-01-01", "last Sunday", ["last Sunday=2022-12-25"]),
        ("2024-03-01", "yesterday", ["yesterday=2024-02-29"]),
        ("2023-12-31", "the day after tomorrow", ["the day after tomorrow=2024-01-02"]),
        ("2023-03-31", "one month ago", ["one month ago=2023-02-28~"]),
        ("2024-02-29", "a year ago", ["a year ago=2023-02-28~"]),
        ("2023-05-08T13:56", "I went to the meetup yesterday.", ["yesterday=2023-05-07"]),
        ("2023-05-28", "last weekend", ["last weekend=2023-05-20..2023-05-21~"]),
        ("2023-05-28", "next week", ["next week=2023-05-29..2023-06-04~"]),
        ("2023-01-15", "last month", ["last month=2022-12-01..2022-12-31~"]),
        ("2023-05-27", "last Friday", ["last Friday=2023-05-26~"]),
    ],
)
def test_counted_from_the_day_of_the_talk(said_on, text, expected):
    """DAT-01 and DAT-02: never the same day for "last", month ends, leap days, weeks from Monday."""
    assert resolved(text, day(said_on)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("this morning", ["this morning=2023-05-24"]),
        ("We eat out tonight", ["tonight=2023-05-24"]),
        ("yesterday evening and last night", ["yesterday evening=2023-05-23", "last night=2023-05-23"]),
        ("three days ago", ["three days ago=2023-05-21"]),
        ("two weeks ago", ["two weeks ago=2023-05-10"]),
        ("about two weeks ago", ["about two weeks ago=2023-05-10~"]),
        ("a couple of weeks ago", ["a couple of weeks ago=2023-05-10"]),
        ("half a year ago", ["half a year ago=2022-11-24~"]),
        ("a year and a half ago", ["a year and a half ago=2021-11-24~"]),
        ("two Sundays ago", ["two Sundays ago=2023-05-14"]),
        ("last week I ran", ["last week=2023-05-15..2023-05-21~"]),
        ("the week before last", ["the week before last=2023-05-08..2023-05-14~"]),
        ("earlier this week", ["earlier this week=2023-05-22..2023-05-24~"]),
        ("last weekend we hiked", ["last weekend=2023-05-20..2023-05-21~"]),
        ("next month", ["next month=2023-06-01..2023-06-30~"]),
        ("this year", ["this year=2023-01-01..2023-12-31~"]),
        ("over the past two weeks", ["over the past two weeks=2023-05-10..2023-05-24~"]),
        ("this Friday", ["this Friday=2023-05-26"]),
        ("next Sat", ["next Sat=2023-05-27~"]),
    ],
)
def test_relative_phrases(text, expected):
    assert resolved(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("May 2022", ["May 2022=2022-05-01..2022-05-31"]),
        ("in late May 2022", ["late May 2022=2022-05-21..2022-05-31~"]),
        ("in 2019 I moved, since 2020", ["in 2019=2019-01-01..2019-12-31", "since 2020=2020-01-01..2020-12-31"]),
        ("May 5th, 2021 and 6 May 2021", ["May 5th, 2021=2021-05-05", "6 May 2021=2021-05-06"]),
        ("2023-04-05 or 2023/4/6", ["2023-04-05=2023-04-05", "2023/4/6=2023-04-06"]),
        ("12/25/2022, 25/12/22, 5.3.2023", ["12/25/2022=2022-12-25", "25/12/22=2022-12-25", "5.3.2023=2023-03-05"]),
        ("March 5", ["March 5=2023-03-05"]),
        ("the 5th of March", ["the 5th of March=2023-03-05"]),
        ("Friday, March 5", ["March 5=2023-03-05"]),
        ("from April 15th to 22nd", ["April 15th to 22nd=2023-04-15..2023-04-22"]),
        ("I bought it on 3/10", ["3/10=2023-03-10"]),
        ("in March", ["in March=2023-03-01..2023-03-31"]),
        ("mid-February", ["mid-February=2023-02-11..2023-02-20~"]),
        ("on Valentine's Day", ["on Valentine's Day=2023-02-14"]),
        ("last Christmas we met", ["last Christmas=2022-12-25"]),
    ],
)
def test_calendar_dates(text, expected):
    """With a year as they are; without one the most recent."""
    assert resolved(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I moved in July", "2022-07-01..2022-07-31"),
        ("I'm going to Japan in July", "2023-07-01..2023-07-31"),
        ("My exam is on June 3", "2023-06-03"),
        ("I met her on June 3", "2022-06-03"),
        ("We will paint this weekend", "2023-05-27..2023-05-28~"),
        ("I went this Monday", "2023-05-22"),
    ],
)
def test_tense_tells_past_from_future(text, expected):
    assert resolved(text)[0].split("=")[1] == expected


@pytest.mark.parametrize(
    "text",
    [
        "in July",
        "on Friday",
        "by Saturday night",
        "a few days ago",
        "the other day",
        "last summer",
        "this Monday",
        "30 February 2022",
        "I was born on March 5",
        "I finished the book in two weeks",
        "The race is coming up on May 6",
        "a week from tomorrow",
        "next weekend",
    ],
)
def test_when_unsure_only_the_words_are_kept(text):
    """Words without a day beat a wrong day."""
    (event,) = find_events(text, WEDNESDAY)

    assert (event.day, event.end) == ("", "")
    assert event.spoken in text


@pytest.mark.parametrize(
    "text",
    [
        "I may go. May I? They march 5 miles and the march was long.",
        "Just a second, the sun is out and I sat down with April and June.",
        "1/2 cup of sugar, 3/10 stars, 24/7, and/or",
        "2019 was nice and I read 2000 words",
        "I get up at 6:45 am, every Friday and on Mondays",
        "the last week of the course, the last Friday of the month",
        "for nine months, in 20 minutes, two-day trip",
        "today's world, Christmas tree, Sunday brunch",
        "I have 10 may-be plans, and in may be more",
        "It costs $5.30, version 2.0.1, call 555-1234",
        "",
    ],
)
def test_what_is_no_date(text):
    assert resolved(text) == []


def test_an_undated_talk_resolves_only_dates_with_a_year():
    text = "yesterday, May 5, in March, last week, two days ago, May 5, 2021 and since 2019"

    events = {e.spoken: e.day for e in find_events(text, None)}

    assert {spoken: day for spoken, day in events.items() if day} == {"May 5, 2021": "2021-05-05", "since 2019": "2019-01-01"}
    assert {"yesterday", "last week", "two days ago"} <= set(events)


def test_words_are_kept_as_spoken_and_once():
    events = find_events("We met Last  Thursday, yes, last Thursday.", WEDNESDAY)

    assert events == (EventDate("Last Thursday", "2023-05-18"),)


PRINT = """
import time
from datetime import datetime
from dualtrace_local.dates import find_events
if hasattr(time, "tzset"): time.tzset()
said = "yesterday, two weeks ago, March 5th, last month, in 2 days, tonight, 5 May 2021"
print(find_events(said, datetime.fromisoformat("2023-05-24T00:10")))
"""


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "America/Los_Angeles"])
@pytest.mark.parametrize("locale", ["C", "de_DE.UTF-8"])
def test_machine_zone_and_locale_do_not_matter(zone, locale):
    """DAT-01: the same in a process with another zone and locale as here."""
    environment = {"TZ": zone, "LC_ALL": locale, "LANG": locale, "PYTHONUTF8": "1"}

    done = subprocess.run(
        [sys.executable, "-c", PRINT], capture_output=True, text=True, check=True, env=environment, cwd=Path(__file__).parent.parent
    )

    said = "yesterday, two weeks ago, March 5th, last month, in 2 days, tonight, 5 May 2021"
    assert done.stdout.strip() == str(find_events(said, day("2023-05-24T00:10")))


def test_a_normal_sentence_takes_milliseconds():
    text = "I saw the doctor last Thursday and on March 5 we went home, two weeks ago, to eat with friends."
    find_events(text, WEDNESDAY)
    start = time.process_time()

    for _ in range(50):
        find_events(text, WEDNESDAY)

    assert (time.process_time() - start) / 50 < 0.005


@pytest.mark.parametrize("unit", ["a", " ", "in ", "last ", "1 ", "1/", "May ", "the day ", "two "])
def test_time_grows_with_the_length_alone(unit):
    start = time.process_time()

    find_events(unit * (200_000 // len(unit)), WEDNESDAY)

    assert time.process_time() - start < 10


@pytest.mark.parametrize(
    ("earlier", "text"),
    [
        ("2023-05-24T23:00", "the day of the question"),
        ("2023-05-23", "1 day before the question"),
        ("2023-05-20", "4 days before the question"),
        ("2023-05-17", "7 days before the question, 1 week"),
        ("2023-05-12", "12 days before the question, about 2 weeks"),
        ("2023-04-10", "44 days before the question, about 6 weeks or about 1 month"),
        ("2022-11-24", "181 days before the question, about 6 months"),
        ("2021-05-24", "730 days before the question, about 2 years"),
        ("2023-05-27", "3 days after the question"),
    ],
)
def test_distances_in_the_units_people_use(earlier, text):
    assert describe_distance(day(earlier), WEDNESDAY) == text


def test_distances_of_unknown_dates_are_empty():
    assert describe_distance(None, WEDNESDAY) == describe_distance(WEDNESDAY, None) == ""


def test_days_between_counts_calendar_days():
    """Not 24 hours: late evening to early morning is a day."""
    assert days_between(day("2023-05-23T23:50"), day("2023-05-24T00:10")) == 1
    assert days_between(day("2023-05-24"), day("2023-05-20")) == -4
