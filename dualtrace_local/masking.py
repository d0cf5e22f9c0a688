"""Credentials out, before anything is hashed, stored, embedded, logged or shown to a model.

Masked: passwords, PINs and one-time codes behind their naming words; keys and tokens, by their published shapes or behind naming
words; private keys; payment cards (Luhn, ISO/IEC 7812-1); IBANs (mod 97, ISO 13616); identity numbers. Kept: what people want
back, such as lockers, gates, bookings, confirmations, plates, flights, phones, dates, addresses. Only the secret itself is
replaced, and masking twice changes nothing. Every pattern looks a bounded distance ahead, so time grows linearly with the text.

Limits: a password without a naming word is not found, and a plain word is taken for one only where it stands as a value
("password: swordfish", not "my password is wrong").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from .records import Session

MASK = "[masked]"


def mask(text: str) -> str:
    """``text`` with each secret replaced by ``[masked]``."""
    return _masked(text).text


def masked_count(text: str) -> int:
    """How many secrets ``mask`` replaces in ``text``."""
    return _masked(text).count


def mask_session(session: Session) -> Session:
    """``session`` with every turn masked; the same object when there was nothing to mask."""
    turns = tuple(replace(t, text=mask(t.text)) for t in session.turns)
    return session if turns == session.turns else replace(session, turns=turns)


@dataclass(frozen=True)
class _Masked:
    text: str
    count: int = 0


@dataclass(frozen=True)
class _Span:
    start: int
    end: int


@dataclass(frozen=True)
class _Rule:
    """``find`` yields the secrets of a text; it is asked only when one of ``hints`` (lower case) is in the text."""

    hints: tuple[str, ...]
    find: Callable[[str], Iterator[_Span]]


def _masked(text: str) -> _Masked:
    """Repeated until nothing is found, since a mask can bring another secret next to its naming word."""
    done = _Masked(text)
    while spans := _secrets(done.text):
        pieces, at = [], 0
        for span in spans:
            pieces += [done.text[at : span.start], MASK]
            at = span.end
        done = _Masked("".join([*pieces, done.text[at:]]), done.count + len(spans))
    return done


def _secrets(text: str) -> list[_Span]:
    low = text.lower()
    found = [span for rule in _RULES if any(hint in low for hint in rule.hints) for span in rule.find(text)]
    spans: list[_Span] = []
    for span in sorted(found, key=lambda s: (s.start, s.end)):
        if MASK in text[span.start : span.end]:
            continue
        if spans and span.start < spans[-1].end:
            spans[-1] = _Span(spans[-1].start, max(span.end, spans[-1].end))
        else:
            spans.append(span)
    return spans


# ------------------------------------------------------------------------------------------------------ known shapes

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


def _shapes(text: str) -> Iterator[_Span]:
    for match in _SHAPES.finditer(text):
        if match.lastgroup:
            yield _Span(*match.span(match.lastgroup))


def _cards(text: str) -> Iterator[_Span]:
    for match in _CARD.finditer(text):
        digits = re.sub(r"\D", "", match.group())
        wanted = match.group() == digits and _WANTED_BACK.search(text, max(0, match.start() - 40), match.start())
        if not wanted and _CARD_GROUPS.fullmatch(match.group()) and _CARD_ISSUERS.fullmatch(digits) and _luhn(digits):
            yield _Span(*match.span())


def _luhn(digits: str) -> bool:
    doubled = (int(d) * (1 + n % 2) for n, d in enumerate(reversed(digits)))
    return sum(d // 10 + d % 10 for d in doubled) % 10 == 0


def _social_security(text: str) -> Iterator[_Span]:
    for match in _SSN.finditer(text):
        if not _WANTED_BACK.search(text, max(0, match.start() - 40), match.start()):
            yield _Span(*match.span())


def _ibans(text: str) -> Iterator[_Span]:
    for match in _IBAN.finditer(text):
        length = _IBAN_LENGTHS.get(match.group()[:2].upper(), 0)
        number, end = "", match.start()
        while len(number) < length and end < match.end():
            number += text[end].strip()
            end += 1
        turned = number[4:] + number[:4]
        if length and len(number) == length and int("".join(str(int(c, 36)) for c in turned)) % 97 == 1:
            yield _Span(match.start(), end)


# ---------------------------------------------------------------------------------------------- values behind a name


@dataclass(frozen=True)
class _Value:
    """What stands behind a naming word. ``how``: ``said`` (is), ``marked`` (: or =), ``set`` (changed to), ``beside``."""

    text: str
    start: int
    how: str
    quoted: bool = False
    after: str = ""


Accept = Callable[[_Value], int]
"""How many characters of a value are secret; 0 when it is none."""

_LOOK = 200
"""How far behind a naming word its value may begin, in characters."""
_CLOSING = r"[\"'”’`*_)]{0,4}"
_AIMED = (
    r"(?:\s{1,3}(?:for|to|of|on|at|in|from|that|which|i|we|für|zum|zur|zu|vom|von|para|de|del|pour|du|per)"
    r"(?:\s{1,3}[\w’'@.&-]{1,30}){1,7}?)?"
)
_BE = r"(?:\s{1,3}(?:is|was|are|be|will\sbe|has\sbeen|used\sto\sbe|ist|war|lautet|heißt|sind|es|era|son|est|était|è|é|c[’']est)|[’']s)"
_SAID = re.compile(
    rf"{_CLOSING}{_AIMED}{_CLOSING}{_BE}(?:\s{{1,3}}(?:now|still|just|currently|jetzt|ahora))?"
    rf"(?:\s{{1,3}}(?:set|changed|reset)\sto)?(?:\s{{0,3}}(?P<colon>:)\s{{0,3}}|\s{{1,3}})",
    re.IGNORECASE,
)
_MARKED = re.compile(rf"{_CLOSING}{_AIMED}{_CLOSING}[ \t]{{0,3}}(?::=|=>|[:=→|]|(?<=\s)[-–—](?=\s))\*{{0,2}}\s{{0,3}}", re.IGNORECASE)
_SET = re.compile(r"\s{1,3}(?:to|as|of|auf|a|en)\s{1,3}", re.IGNORECASE)
_CHANGED_IT = re.compile(r"[^.!?\n]{0,60}?\b(?:chang|set|reset|updat)\w{0,4}\s(?:it|them)(?:\sback)?\s(?:to|as)\s{1,3}", re.IGNORECASE)
_NEXT = re.compile(r"[^.!?\n]{0,40}?[.!,;]?\s{1,3}(?:it|that)(?:[’']s|\sis|\swas)\s{1,3}", re.IGNORECASE)
_BESIDE = re.compile(rf"{_CLOSING}\s{{1,3}}\(?")
_BRACKET = re.compile(rf"{_AIMED}\s?\(", re.IGNORECASE)
_CHANGING = re.compile(r"\b(?:chang|set|reset|updat|switch|geänder|cambi)\w{0,5}\s(?:[\w’'-]{1,20}\s){0,4}$", re.IGNORECASE)
_QUOTES = ('""', "''", "``", "“”", "‘’", "„“", "«»")
_QUOTED = re.compile("|".join(rf"{a}\s?([^{b}\n]{{1,80}}?)\s?{b}" for a, b in _QUOTES) + r"|\*\*([^*\n]{1,80})\*\*")
_ALSO = re.compile(r"(?:,|\s{1,2}and|\s{1,2}or|\s{1,2}und|,\s?and)\s{1,2}(?=\S{0,40}\d)", re.IGNORECASE)


_PLACES = (
    ("marked", _MARKED),
    ("said", _SAID),
    ("said", _CHANGED_IT),
    ("set", _SET),
    ("beside", _BESIDE),
    ("beside", _BRACKET),
    ("beside", _NEXT),
)


def _values(text: str, name_end: int, name_start: int) -> Iterator[_Value]:
    """The places behind a naming word where its value can stand, the likeliest first."""
    stop = name_end + _LOOK
    for how, pattern in _PLACES:
        match = pattern.match(text, name_end, stop)
        if match is None:
            continue
        if how == "set" and _CHANGING.search(text, max(0, name_start - 60), name_start):
            yield _value(text, match.end(), "said")
        else:
            yield _value(text, match.end(), "beside" if "\n" in match.group() and how == "said" else how)


def _value(text: str, start: int, how: str) -> _Value:
    if quote := _QUOTED.match(text, start):
        inner = quote.lastindex or 0
        return _Value(quote.group(inner), quote.start(inner), how, quoted=True)
    return _Value(text[start : start + 300].split("\n", 1)[0], start, how)


def _named(names: str, accept: Accept) -> Callable[[str], Iterator[_Span]]:
    """A finder for values that ``accept`` takes behind one of ``names``, with the further ones of a list."""
    pattern = re.compile(names, re.IGNORECASE | re.VERBOSE)

    def find(text: str) -> Iterator[_Span]:
        for match in pattern.finditer(text):
            places = _values(text, match.end(), match.start())
            span = next((s for s in (_accepted(v, accept) for v in places) if s), None)
            while span:
                yield span
                more = _ALSO.match(text, span.end)
                span = _accepted(_value(text, more.end(), "beside"), accept) if more else None

    return find


def _accepted(value: _Value, accept: Accept) -> _Span | None:
    length = accept(value)
    return _Span(value.start, value.start + length) if length else None


_ORDINARY_WORDS = """
    2fa a abgelaufen about accepted access account active again all already also always an and any anything are argon2 as asked
    at available awful b back bad base64 based bcrypt be because been before bei being best big bool both broken but by can case
    changed char choose code compromised confirm confirmation correct correcta could create crucial current das dass default den
    der die different do does done down easy ein eine either el empty encrypted ensure enter error essential even every
    everything expired falsch false field fine for forgotten found from function geheim generally getpass given gone good great
    had hard has hashed have he her here hers hidden hint his how i if important in incorrect incorrecta incorrecte input int
    invalid is it its just kept key known la last leaked length less let's letters like literally long longer los lost ma make
    managed manager mandatory md5 mfa mi mine missing mon more muy my need needed never new nicht nil no nobody none not nothing
    now null number of off ok okay old on once one only optional or other oublié our out over own para pass passwd password
    passwords perfect please policy private private-key protected public que really recommended required requirements reset
    richtig right rules safe same saved scrypt secret secure segura select sensitive sent set sha1 sha256 sha512 she short
    should shown sicher simple so some something somewhere son soon still stolen stored str strength string strong stronger
    strongest stuff su such sure taken temporary terrible text than that the their them then there they this those to today
    tomorrow ton too tricky trop true tu two type un una undefined under undisclosed unique unknown unsafe up use used user
    username using utf-8 utf8 valid value varchar very visible vital was way we weak weaker weg well were what when where which
    while who why will with working would wpa2 wpa3 written wrong yes yesterday yet you your yours
"""
_ORDINARY = frozenset(_ORDINARY_WORDS.split())
"""Words that stand behind "password is" or "password:" without being one."""
_GRAMMAR = re.compile(r"(?:.{2,}(?:ing|ed|able|ible|ful|ive|ous|ly|ent|ant|less))", re.IGNORECASE)
_COUNTED = re.compile(
    r"\d+(?:\.\d+)?\+?[ -]?(?:to \d+ |or more |plus )?"
    r"(?:char|bit|digit|letter|word|symbol|number|step|day|week|month|year|hour|minute|second|time|attempt|factor|%|st\b|nd\b|rd\b|th\b)",
    re.IGNORECASE,
)
_CODE = re.compile(
    r"[\w.]+\(|\$\{?[A-Za-z_]+\}?;?$|\$_|[<{%\[(]|\*{3}|\.{3}|x{3,}$|https?:|\.?/|->|(?:your|my|the)[-_ ]|\w+\.\w+\.?\w*;?$",
    re.IGNORECASE,
)
_CLAUSE_END = re.compile(
    r"[\"'”’`*_)\]]{0,3}(?:\s*$|[.!?,;:)|]|\s{1,2}(?:[-–—(]|(?:and|but|so|for|on|in|please|if|by|btw|because|which|und|y|et)\b))",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W\d_][\w-]{2,40}")
_PHRASE = re.compile(r"[^\W\d_]{2,20}(?:[ -][^\W\d_]{2,20}){2,7}(?=\s*(?:$|[.!?,;]))")


_SHORTEST = 4


def _password(value: _Value) -> int:
    """A token that looks like a secret anywhere, a plain word or phrase only where it stands as the value."""
    if value.quoted:
        words = value.text.split()
        plain = any(w.lower().strip(".,:;!?") in _ORDINARY for w in words)
        good = _strong(value.text) if len(words) == 1 else bool(words) and value.how != "beside"
        good = good or (not plain and value.how != "beside")
        return len(value.text) if good and not plain and not _CODE.match(value.text) else 0
    token = value.text.split(maxsplit=1)[0] if value.text.strip() and not value.text[0].isspace() else ""
    core = token.rstrip(".,;:?)]}\"'”’`*_|»")
    if len(core) < _SHORTEST or _CODE.match(core) or _COUNTED.match(value.text) or core.lower().rstrip("!") in _ORDINARY:
        return _phrase(value)
    if _strong(core):
        return len(core) if value.how != "beside" or re.search(r"\d", core) else 0
    if core.isdigit():
        sure = value.how in ("said", "marked") or _CLAUSE_END.match(value.text, len(core))
        return len(core) if sure else 0
    core = core.rstrip("!")
    if value.how not in ("said", "marked") or not _WORD.fullmatch(core) or (value.how == "said" and _GRAMMAR.fullmatch(core)):
        return 0
    return len(core) if _CLAUSE_END.match(value.text, len(core)) else _phrase(value)


def _phrase(value: _Value) -> int:
    """Three to eight plain words that fill the clause (a passphrase); one ordinary word among them is let through."""
    match = _PHRASE.match(value.text) if value.how in ("said", "marked") else None
    if match is None or sum(w.lower() in _ORDINARY or bool(_GRAMMAR.fullmatch(w)) for w in re.split("[ -]", match.group())) > 1:
        return 0
    return match.end() if value.text[:1].islower() else 0


def _strong(token: str) -> bool:
    """Letters and digits mixed, a symbol inside, or a capital inside a word."""
    letter, digit = re.search(r"[^\W\d_]", token), re.search(r"\d", token)
    return bool((letter or re.search(r"[@#$%^&*!?~]", token)) and digit) or bool(re.search(r"\w[@#$%^&*!?+=~]\w|[a-z][A-Z]", token))


_DIGITS = r"(?:\d{4,10}|\d{2,4}[ -]\d{2,4}|\d(?:[ -]\d){3,7})(?![\w]|[.,:/-]\d)"
_SPOKEN_DIGIT = r"(?:zero|oh|one|two|three|four|five|six|seven|eight|nine|null|eins|zwei|drei|vier|fünf|sechs|sieben|acht|neun)"
_PIN = re.compile(rf"{_DIGITS}|[A-Z]{{1,2}}-?\d{{3,8}}\b|{_SPOKEN_DIGIT}(?:[\s,-]{{1,2}}{_SPOKEN_DIGIT}){{3,7}}\b", re.IGNORECASE)
_CVV = re.compile(r"\d{3,4}\b(?![.,:/-]\d)")
_LONG_NUMBER = re.compile(r"\d(?:[ -]?\d){7,18}\b")
_IDENTITY = re.compile(r"(?:[A-Za-z]{1,6}|[A-Z]{1,2}[ -])?\d[\dA-Za-z]*(?:[ ./-]{1,2}\d[\dA-Za-z]*){0,6}(?:[ -]?[A-Z]\b)?")
_KEY = re.compile(r"[\w.~+/=@#$%^&*!-]{8,500}")
_SEED = re.compile(r"(?:\d{1,2}[.)]\s?)?[a-z]{3,8}(?:[\s,]{1,3}(?:\d{1,2}[.)]\s?)?[a-z]{3,8}){11,23}\b")


def _number(pattern: re.Pattern[str], digits: int) -> Accept:
    """Accepts what ``pattern`` matches when it holds at least ``digits`` digits (or none, when spelled) and counts nothing."""

    def accept(value: _Value) -> int:
        match = pattern.match(value.text)
        if match is None or _COUNTED.match(value.text):
            return 0
        if value.how in ("beside", "set") and not value.quoted and not _CLAUSE_END.match(value.text, match.end()):
            return 0
        held = sum(c.isdigit() for c in match.group())
        return match.end() if held >= digits or held == 0 else 0

    return accept


def _key(value: _Value) -> int:
    match = _KEY.match(value.text)
    if match is None or _CODE.match(value.text) or value.how == "set":
        return 0
    token = match.group().rstrip(".!")
    return len(token) if re.search(r"\d", token) and re.search(r"[^\W\d]", token) and not _COUNTED.match(value.text) else 0


def _seed(value: _Value) -> int:
    match = _SEED.match(value.text)
    return match.end() if match else 0


def _reversed(text: str) -> Iterator[_Span]:
    for match in _REVERSED.finditer(text):
        secret = match["secret"]
        if (_strong(secret) or secret.isdigit()) and not _CODE.match(secret):
            yield _Span(*match.span("secret"))


_REVERSED = re.compile(
    r"""(?<!\S)["'“`]?(?P<secret>[^\s"'”`]{4,64})["'”`]?\s{1,3}(?:is|was)\s{1,3}(?:my|the|our|his|her|their|your)\s{1,3}
    (?:[\w'’-]{1,20}\s{1,3}){0,3}?(?:password|passcode|passphrase|pin)\b(?!-|\ [bn]oard)""",
    re.VERBOSE | re.IGNORECASE,
)
_PASSWORDS = r"""(?:pass(?:word|code|phrase|wd|wort)|(?<![^\W_])(?:pwd?|psw|pass(?=\s?[:=])|pass\ (?:code|phrase|word)|kennwort|wachtwoord
    |contraseña|senha|mots?\ de\ passe|parola\ d'ordine|login\ code|wi-?fi\ (?:code|key)))(?:s|es)?(?![\w-])"""
_PINS = r"""(?<![\w-])(?:pins?(?:[ -]?(?:code|number|nummer|no\.?))?|geheimzahl|c[oó]digo\ pin|code\ (?:pin|secret|confidentiel)
    |otp|(?:one-?time|2fa|mfa|two-factor|verification|authenticator)(?:\ (?:pass)?code|\ password)s?)(?![\w-])"""
_KEYS = r"""(?:api|access|secret|auth(?:entication|orization)?|client|private|refresh|bearer|session|encryption|github|aws)
    [\ _-]?(?:access[\ _-]?)?(?:keys?|tokens?|secrets?|key[\ _-]?id)(?![\w-])|(?<![^\W_])(?:secret|token)(?![\w-])
    |(?<![^\W_])(?:backup|recovery)[\ _-](?:codes?|keys?)(?![\w-])"""
_CARDS = r"""(?<!library\ )(?<!gift\ )(?<!loyalty\ )(?<!member\ )(?<!membership\ )(?<!rewards\ )(?<!insurance\ )
    \b(?:(?:credit|debit|bank|payment)\ ?card|visa|mastercard|amex|card|kredit-?karten?|n[uú]mero\ de\ (?:la\ )?tarjeta
    |num[eé]ro\ de\ (?:la\ )?carte)(?:\ ?(?:numbers?|no\.?|\#|nummer))?(?!\w)"""
_CVVS = r"""(?<![^\W_])(?:cvv2?|cvc2?|csc|card\ (?:security|verification)\ (?:code|value)
    |security\ code(?=\ (?:on|of|for)\ (?:the|my)\ (?:back|(?:\w{4,10}\ )?card)))(?:\ (?:code|number))?(?!\w)"""
_IDENTITIES = r"""(?<![^\W_])(?:ssn|social\ security(?:\ (?:number|no\.?|\#))?|social\ insurance\ number|national\ insurance(?:\ number)?
    |(?:passport|visa|driver['’]?s?['’]?\ licen[cs]e|driving\ licen[cs]e|(?:national\ |government\ )?id(?:entity|entification)?(?:\ card)?
      |tax(?:payer)?(?:\ id(?:entification)?)?|medicare|nhs|alien\ registration|green\ card
      |(?:bank|checking|savings|current)\ account|routing)\ ?(?:number|no\.|\#)
    |passport|tax\ id|ni\ number|nino|itin|(?-i:TIN|CPF|DNI|NIE|NIF|BSN)|aadhaar(?:\ number)?|pan\ number|codice\ fiscale
    |num[eé]ro\ de\ s[eé]curit[eé]\ sociale|personalausweisnummer|reisepassnummer|ausweisnummer|steuer-?id(?:entifikationsnummer)?
    |sozialversicherungsnummer|kontonummer)(?![\w-])"""
_SEEDS = r"\b(?:seed|recovery|mnemonic|backup|secret)\ (?:phrase|words)(?!\w)"


def _hints(words: str) -> tuple[str, ...]:
    return tuple(word.replace("·", " ") for word in words.split())


_SHAPE_HINTS = """private·key :// = bearer authoriz eyj sk- k_live k_test ghp_ gho_ ghu_ ghs_ ghr_ github_pat glpat akia asia abia acca xox
    xapp aiza ya29 gocspx hf_ npm_ pypi- dop_v1 shp sg. age-secret :aa"""
_NUMBER_HINTS = """ssn soci insurance ni·number nino itin tin cpf dni nie nif bsn aadhaar codice curit numer number no. # nummer ausweis steuer
    passport tax"""

_RULES = (
    _Rule(_hints(_SHAPE_HINTS), _shapes),
    _Rule(_hints("0 1 2 3 4 5 6 7 8 9"), _cards),
    _Rule(_hints("- "), _social_security),
    _Rule(_hints("0 1 2 3 4 5 6 7 8 9"), _ibans),
    _Rule(_hints("pass pw psw kennwort wachtwoord contraseña senha parola login·code fi·code fi·key"), _named(_PASSWORDS, _password)),
    _Rule(_hints("pin geheimzahl code otp password"), _named(_PINS, _number(_PIN, 4))),
    _Rule(_hints("key token secret code"), _named(_KEYS, _key)),
    _Rule(_hints("card visa amex karte tarjeta carte"), _named(_CARDS, _number(_LONG_NUMBER, 12))),
    _Rule(_hints("cvv cvc csc card· security·code"), _named(_CVVS, _number(_CVV, 3))),
    _Rule(_hints(_NUMBER_HINTS), _named(_IDENTITIES, _number(_IDENTITY, 5))),
    _Rule(_hints("phrase words"), _named(_SEEDS, _seed)),
    _Rule(_hints("·is· ·was·"), _reversed),
)
"""The published table of what is masked: words of which a text must hold one (a dot is a space), and what finds the secrets."""
