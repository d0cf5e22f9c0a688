"""Secrets that are known by their shape alone: published token formats, private keys, cards, IBANs, social security numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Span:
    """Where a secret stands: from ``start`` up to ``end``."""

    start: int
    end: int


_SHAPES = re.compile(
    r"""
    -----BEGIN\ [A-Z ]{0,30}PRIVATE\ KEY(?:\ BLOCK)?-----\s*(?P<pem>(?:[A-Za-z0-9+/=:,\s]|-(?!-)){1,20000}[A-Za-z0-9+/=])
  | \b[a-z][a-z0-9+.-]{1,20}://[^\s/:@]{0,100}:(?P<url>[^\s/@]{1,})@
  | [?&](?:api_?key|key|token|access_token|auth|password|pwd|secret|sig)=(?P<query>[^\s&\#"'<>]{6,})
  | \bauthorization["']?\s{0,3}[:=]\s{0,3}["']?(?:bearer|basic|token)\s{1,3}(?P<header>[\w.~+/=-]{6,})
  | \bbearer\s{1,3}(?P<bearer>(?=[\w.~+/=-]*\d)[\w.~+/=-]{16,})
  | (?<![\w-])(?P<shape>(?-i:
      eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?         # JSON web token (RFC 7519)
    | sk-[\w-]{16,} | [rsp]k_(?:live|test)_\w{10,}          # model services; payments
    | gh[pousr]_\w{20,} | github_pat_\w{20,} | glpat-[\w-]{16,}
    | (?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}
    | xox[a-z]-[\w-]{10,} | xapp-[\w-]{10,}
    | AIza[\w-]{30,} | ya29\.[\w-]{20,} | GOCSPX-[\w-]{20,}
    | hf_\w{20,} | npm_\w{30,} | pypi-[\w-]{20,} | dop_v1_[0-9a-f]{64} | shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}
    | SG\.[\w-]{16,}\.[\w-]{16,} | AGE-SECRET-KEY-1[A-Z0-9]{50,} | \d{8,10}:AA[\w-]{32,}
    ))
    """,
    re.VERBOSE | re.IGNORECASE,
)
_CARD = re.compile(r"(?<![\w+.,-])\d(?:[ -]?\d){13,18}(?![\w-]?\d)")
_CARD_GROUPS = re.compile(r"\d{14,19}|\d{4}([ -])\d{4}\1\d{4}\1\d{4}(?:\1\d{1,3})?|\d{4}([ -])\d{6}\2\d{4,5}")
_CARD_ISSUERS = re.compile(r"4(?:.{15}|.{18})|(?:5[1-5]|2[2-7]|35).{14}|3[47].{13}|3[068].{12}|6(?:.{15}|.{18})")
_SSN = re.compile(r"(?<![\w-])(?!000|666|9)\d{3}-(?!00)\d{2}-(?!0000)\d{4}(?![\w-])")
_IBAN = re.compile(r"(?<![^\W_])[A-Za-z]{2}\d{2}(?: ?[A-Za-z0-9]){11,30}")
_IBAN_COUNTRIES = """
    AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI16 BR29 CH21 CR21 CY28 CZ24 DE22 DK18 DO28 EE20 EG29 ES24 FI18 FO18 FR27
    GB22 GE22 GI23 GL18 GR27 GT28 HR21 HU28 IE22 IL23 IS26 IT27 JO30 KW30 KZ20 LB28 LI21 LT20 LU20 LV21 MC27 MD24 ME22 MK19
    MT31 MU30 NL18 NO15 PK24 PL28 PS29 PT25 QA29 RO24 RS22 SA24 SE24 SI19 SK24 SM27 TL23 TN24 TR26 UA29 XK20
"""
_IBAN_LENGTHS = {code[:2]: int(code[2:]) for code in _IBAN_COUNTRIES.split()}
"""Length of an IBAN by country (SWIFT IBAN registry)."""
_WANTED_BACK = re.compile(
    r"(?:track|order|book|confirm|referen|reserv|ticket|isbn|imei|serial|model|part|phone|locker|gate|flight)\w*\W.{0,20}$",
    re.IGNORECASE,
)


def shapes(text: str) -> Iterator[Span]:
    """Tokens and keys by their prefix, private keys, passwords in addresses and headers."""
    for match in _SHAPES.finditer(text):
        # A placeholder of a template is no secret: https://user:${PASSWORD}@host
        if match.lastgroup and match[match.lastgroup][0] not in "{$<%[":
            yield Span(*match.span(match.lastgroup))


def cards(text: str) -> Iterator[Span]:
    """Payment cards: issuer, length, grouping and check digit are right."""
    for match in _CARD.finditer(text):
        digits = re.sub(r"\D", "", match.group())
        wanted = match.group() == digits and _WANTED_BACK.search(text, max(0, match.start() - 40), match.start())
        if not wanted and _CARD_GROUPS.fullmatch(match.group()) and _CARD_ISSUERS.fullmatch(digits) and _luhn(digits):
            yield Span(*match.span())


def _luhn(digits: str) -> bool:
    doubled = (int(d) * (1 + n % 2) for n, d in enumerate(reversed(digits)))
    return sum(d // 10 + d % 10 for d in doubled) % 10 == 0


def social_security(text: str) -> Iterator[Span]:
    """US social security numbers in their written form."""
    for match in _SSN.finditer(text):
        if not _WANTED_BACK.search(text, max(0, match.start() - 40), match.start()):
            yield Span(*match.span())


def ibans(text: str) -> Iterator[Span]:
    """International bank account numbers with a right check number."""
    for match in _IBAN.finditer(text):
        length = _IBAN_LENGTHS.get(match.group()[:2].upper(), 0)
        number, end = "", match.start()
        while len(number) < length and end < match.end():
            number += text[end].strip()
            end += 1
        turned = number[4:] + number[:4]
        if length and len(number) == length and int("".join(str(int(c, 36)) for c in turned)) % 97 == 1:
            yield Span(match.start(), end)
