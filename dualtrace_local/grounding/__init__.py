"""Which of the user's words a written sentence rests on, what it may not add, and the evidence scores that follow from those words.

A model may phrase, but it may not invent: every number and every name of a written sentence must be among the user's own words, and
enough of its content words must stand together in one of the user's sentences, which becomes its quote. The three evidence scores
(paper section 3.2) are then worked out from the quotes by the table of ``score``; they never come from a small model's opinion.
"""

from .evidence import (
    DO_NOT_REMEMBER,
    REMEMBER,
    TOP,
    addresses_somebody,
    at_stake,
    details_of,
    forbidden,
    hedged,
    in_first_person,
    leaning,
    score,
    session_evidence,
    statement_of,
    without_guessed_gender,
    without_repetitions,
)
from .ground import KNOWN_SHARE, Ground, Refused, Said, unmistakable
from .orders import orders_a_model
from .words import LONGEST_QUOTE, NUMBER_WORDS, STOP_WORDS, VAGUE, figures_and_names, measures, names, numbers, sentences, stems

__all__ = [
    "DO_NOT_REMEMBER",
    "KNOWN_SHARE",
    "LONGEST_QUOTE",
    "NUMBER_WORDS",
    "REMEMBER",
    "STOP_WORDS",
    "TOP",
    "VAGUE",
    "Ground",
    "Refused",
    "Said",
    "addresses_somebody",
    "at_stake",
    "details_of",
    "figures_and_names",
    "forbidden",
    "hedged",
    "in_first_person",
    "leaning",
    "measures",
    "names",
    "numbers",
    "orders_a_model",
    "score",
    "sentences",
    "session_evidence",
    "statement_of",
    "stems",
    "unmistakable",
    "without_guessed_gender",
    "without_repetitions",
]
