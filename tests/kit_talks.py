"""Sessions with rounds and memories as a model would have written them, for tests of search."""

from datetime import datetime, timedelta

from dualtrace_local.dates import find_events
from dualtrace_local.records import Component, Encoded, Evidence, Memory, Round, Scope, Session, Tier, Turn
from dualtrace_local.store import Outcome

ME = Scope()
START = datetime(2024, 3, 1, 9)
STRONG = Evidence(2, 2, 2)


def words(text):
    return len(text.split())


def talk(day, *said, facts=()):
    """One session: what user and assistant said in turn, and the memories that rest on the user's words, given as (quote, fact)."""
    turns = tuple(Turn(("user", "assistant")[n % 2], text) for n, text in enumerate(said))
    session = Session(turns, START + timedelta(days=day), ME)
    memories = tuple(
        Memory(
            session_key=session.key,
            ordinal=n,
            scope=ME,
            date=session.date,
            anchor=f"thing-{day}-{n}",
            info_type="discrete",
            category="other",
            tier=Tier.FULL,
            evidence=STRONG,
            components=(Component(fact, quote, 2 * n, events=find_events(quote, session.date)),),
            scene="Picture: The user stands at a window. (Mnemonic depiction only. Not evidence.)",
        )
        for n, (quote, fact) in enumerate(facts)
    )
    rounds = tuple(
        Round(session.key, n, ME, session.date, said[2 * n], "".join(said[2 * n + 1 : 2 * n + 2])) for n in range((len(said) + 1) // 2)
    )
    return Outcome(Encoded(session, Tier.FULL if memories else Tier.DROP, STRONG, memories, rounds), "taught", "f")
