"""Credentials out, before anything is hashed, stored, embedded, logged or shown to a model.

Masked: passwords, PINs and one-time codes behind their naming words; keys and tokens, by their published shapes or behind naming
words; private keys; payment cards (Luhn, ISO/IEC 7812-1); IBANs (mod 97, ISO 13616); identity numbers. Kept: what people want
back, such as lockers, gates, bookings, confirmations, plates, flights, phones, dates, addresses. Only the secret itself is
replaced, and masking twice changes nothing. Every pattern looks a bounded distance ahead, so time grows linearly with the text.

Limits: a password without a naming word is not found, and a plain word is taken for one only where it stands as a value
("password: swordfish", not "my password is wrong").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from dualtrace_local.records import Session

from . import named
from .shapes import Span, cards, ibans, shapes, social_security

__all__ = ["MASK", "found", "mask", "mask_session", "mask_value"]

MASK = "[masked]"


def mask(text: str) -> str:
    """``text`` with each secret replaced by ``[masked]``."""
    while spans := _secrets(text):  # again, since a mask can bring another secret next to its naming word
        pieces, at = [], 0
        for span in spans:
            pieces += [text[at : span.start], MASK]
            at = span.end
        text = "".join([*pieces, text[at:]])
    return text


def mask_session(session: Session) -> Session:
    """``session`` with every turn masked, speakers and the session's own name too; the same object when there was nothing to mask."""
    turns = tuple(replace(t, text=mask(t.text), role=_name(t.role), name=_name(t.name)) for t in session.turns)
    external_id = mask(session.external_id)
    same = turns == session.turns and external_id == session.external_id
    return session if same else replace(session, turns=turns, external_id=external_id)


@lru_cache(maxsize=256)
def _name(text: str) -> str:
    return mask(text)


def mask_value(value: Any) -> Any:
    """A JSON value with all text in it masked."""
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, list):
        return [mask_value(v) for v in value]
    return {mask(k): mask_value(v) for k, v in value.items()} if isinstance(value, dict) else value


@dataclass(frozen=True)
class _Rule:
    """``find`` yields the secrets of a text; it is asked only when one of ``hints`` (lower case) is in the text."""

    name: str
    hints: tuple[str, ...]
    find: Callable[[str], Iterator[Span]]


def found(text: str) -> Iterator[tuple[str, Span]]:
    """What each rule takes for a secret in ``text``: the rule's name and where. Several rules may find the same."""
    low = text.lower()
    return ((rule.name, span) for rule in _RULES if any(hint in low for hint in rule.hints) for span in rule.find(text))


def _secrets(text: str) -> list[Span]:
    spans: list[Span] = []
    for span in sorted((span for _, span in found(text)), key=lambda s: (s.start, s.end)):
        if MASK in text[span.start : span.end]:
            continue
        if spans and span.start < spans[-1].end:
            spans[-1] = Span(spans[-1].start, max(span.end, spans[-1].end))
        else:
            spans.append(span)
    return spans


def _hints(words: str) -> tuple[str, ...]:
    return tuple(word.replace("·", " ") for word in words.split())


_SHAPE_HINTS = """private·key :// = bearer authoriz eyj sk- k_live k_test ghp_ gho_ ghu_ ghs_ ghr_ github_pat glpat akia asia abia acca xox
    xapp aiza ya29 gocspx hf_ npm_ pypi- dop_v1 shp sg. age-secret :aa"""
_WORD_HINTS = "pass pw psw kennwort wachtwoord contraseña senha parola login·code fi·code fi·key"
_NUMBER_HINTS = """ssn soci insurance ni·number nino itin tin cpf dni nie nif bsn aadhaar codice curit numer number no. # nummer
    ausweis steuer passport tax"""

_RULES = (
    _Rule("token or key by its shape", _hints(_SHAPE_HINTS), shapes),
    _Rule("card by its check digit", _hints("0 1 2 3 4 5 6 7 8 9"), cards),
    _Rule("social security number", _hints("- "), social_security),
    _Rule("IBAN", _hints("0 1 2 3 4 5 6 7 8 9"), ibans),
    _Rule("password", _hints(_WORD_HINTS), named.behind(named.PASSWORDS, named.password)),
    _Rule("PIN or one-time code", _hints("pin geheimzahl code otp password"), named.behind(named.PINS, named.number(named.PIN, 4))),
    _Rule("named key or token", _hints("key token secret code"), named.behind(named.KEYS, named.key)),
    _Rule("named card", _hints("card visa amex karte tarjeta carte"), named.behind(named.CARDS, named.number(named.LONG_NUMBER, 12))),
    _Rule("card security code", _hints("cvv cvc csc card· security·code"), named.behind(named.CVVS, named.number(named.CVV, 3))),
    _Rule("identity number", _hints(_NUMBER_HINTS), named.behind(named.IDENTITIES, named.number(named.IDENTITY, 5))),
    _Rule("seed phrase", _hints("phrase words"), named.behind(named.SEEDS, named.seed)),
    _Rule("password before its name", _hints("·is· ·was·"), named.before_name),
)
"""The published table of what is masked: words of which a text must hold one (a dot is a space), and what finds the secrets."""
