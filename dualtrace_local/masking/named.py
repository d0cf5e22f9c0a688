"""Secrets that are known by the word they stand behind: "my PIN is 4921", "password: hunter2"."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .shapes import Span


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
    r"(?:[ \t]{1,3}(?:for|to|of|on|at|in|from|that|which|i|we|für|zum|zur|zu|vom|von|para|de|del|pour|du|per)"
    r"(?:[ \t]{1,3}[\w’'@&-]{1,30}(?:\.\w{1,20})?){1,7}?)?"
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
_BESIDE = re.compile(rf"{_CLOSING}[ \t]{{1,3}}\(?")
_BRACKET = re.compile(rf"{_AIMED}\s?\(", re.IGNORECASE)
_CHANGING = re.compile(r"\b(?:chang|set|reset|updat|switch|geänder|cambi)\w{0,5}\s(?:[\w’'-]{1,20}\s){0,4}$", re.IGNORECASE)
_QUOTES = (('"', '"'), ("'", "'"), ("`", "`"), ("“", "”"), ("‘", "’"), ("„", "“"), ("«", "»"))
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


def behind(names: str, accept: Accept) -> Callable[[str], Iterator[Span]]:
    """A finder for values that ``accept`` takes behind one of ``names``, with the further ones of a list."""
    pattern = re.compile(names, re.IGNORECASE | re.VERBOSE)

    def find(text: str) -> Iterator[Span]:
        for match in pattern.finditer(text):
            places = _values(text, match.end(), match.start())
            span = next((s for s in (_accepted(v, accept) for v in places) if s), None)
            while span:
                yield span
                more = _ALSO.match(text, span.end)
                span = _accepted(_value(text, more.end(), "beside"), accept) if more else None

    return find


def _accepted(value: _Value, accept: Accept) -> Span | None:
    length = accept(value)
    return Span(value.start, value.start + length) if length else None


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
    r"[\w.]+\(|(?-i:[a-z_.]+)\[(?:\d+(?:\]|$)|[\"'])|\$[({]|\$env:|f[\"']|\+ |(?:ConvertTo|ConvertFrom|Get|Read|New)-\w"
    r"|\$\{?[A-Za-z_]+\}?;?$|\$_|[<{%\[(]|\*{3}|\.{3}|x{3,}$|https?:|\.?/|->|(?:your|my|the)[-_ ]|\w+\.\w+\.?\w*;?$",
    re.IGNORECASE,
)
_STRING_END = re.compile(r"[\"'][);,].*", re.DOTALL)
"""Where a string of a program ends inside of a word: ``wrong');exit``."""
_CLAUSE_END = re.compile(
    r"[\"'”’`*_)\]]{0,3}(?:\s*$|[.!?,;:)|]|\s{1,2}(?:[-–—(]|(?:and|but|so|for|on|in|please|if|by|btw|because|which|und|y|et)\b))",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W\d_][\w-]{2,40}")
_PHRASE = re.compile(r"[^\W\d_]{2,20}(?:[ -][^\W\d_]{2,20}){2,7}(?=\s*(?:$|[.!?,;]))")


_SHORTEST = 4


def password(value: _Value) -> int:
    """A token that looks like a secret anywhere, a plain word or phrase only where it stands as the value."""
    if value.quoted:
        words = value.text.split()
        plain = any(w.lower().strip(".,:;!?") in _ORDINARY for w in words)
        good = _strong(value.text) if len(words) == 1 else bool(words) and value.how != "beside"
        good = good or (not plain and value.how != "beside")
        return len(value.text) if good and not plain and not _CODE.match(value.text) else 0
    token = value.text.split(maxsplit=1)[0] if value.text.strip() and not value.text[0].isspace() else ""
    core = token.rstrip(".,;:?)]}\"'”’`*_|»")
    core = _STRING_END.sub("", core)
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
PIN = re.compile(rf"{_DIGITS}|[A-Z]{{1,2}}-?\d{{3,8}}\b|{_SPOKEN_DIGIT}(?:[\s,-]{{1,2}}{_SPOKEN_DIGIT}){{3,7}}\b", re.IGNORECASE)
CVV = re.compile(r"\d{3,4}\b(?![.,:/-]\d)")
LONG_NUMBER = re.compile(r"\d(?:[ -]?\d){7,18}\b")
IDENTITY = re.compile(r"(?:[A-Za-z]{1,6}|[A-Z]{1,2}[ -])?\d[\dA-Za-z]*(?:[ ./-]{1,2}\d[\dA-Za-z]*){0,6}(?:[ -]?[A-Z]\b)?")
_KEY = re.compile(r"[\w.~+/=@#$%^&*!-]{8,500}")
_SEED = re.compile(r"(?:\d{1,2}[.)]\s?)?[a-z]{3,8}(?:[\s,]{1,3}(?:\d{1,2}[.)]\s?)?[a-z]{3,8}){11,23}\b")


def number(pattern: re.Pattern[str], digits: int) -> Accept:
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


def key(value: _Value) -> int:
    """A token of at least eight characters with letters and digits."""
    match = _KEY.match(value.text)
    if match is None or _CODE.match(value.text) or value.how == "set":
        return 0
    token = match.group().rstrip(".!")
    return len(token) if re.search(r"\d", token) and re.search(r"[^\W\d]", token) and not _COUNTED.match(value.text) else 0


def seed(value: _Value) -> int:
    """Twelve to twenty-four plain words."""
    match = _SEED.match(value.text)
    return match.end() if match else 0


def before_name(text: str) -> Iterator[Span]:
    """The other way round: "hunter2 is my password"."""
    for match in _REVERSED.finditer(text):
        secret = match["secret"]
        if (_strong(secret) or secret.isdigit()) and not _CODE.match(secret):
            yield Span(*match.span("secret"))


_REVERSED = re.compile(
    r"""(?<!\S)["'“`]?(?P<secret>[^\s"'”`]{4,64})["'”`]?\s{1,3}(?:is|was)\s{1,3}(?:my|the|our|his|her|their|your)\s{1,3}
    (?:[\w'’-]{1,20}\s{1,3}){0,3}?(?:password|passcode|passphrase|pin)\b(?!-|\ [bn]oard)""",
    re.VERBOSE | re.IGNORECASE,
)
PASSWORDS = r"""(?:pass(?:word|code|phrase|wd|wort)|(?<![^\W_])(?:pwd?|psw|pass(?=\s?[:=])|pass\ (?:code|phrase|word)|kennwort|wachtwoord
    |contraseña|senha|mots?\ de\ passe|parola\ d'ordine|login\ code|wi-?fi\ (?:code|key)))(?:s|es)?(?![\w-])"""
PINS = r"""(?<![\w-])(?:pins?(?:[ -]?(?:code|number|nummer|no\.?))?|geheimzahl|c[oó]digo\ pin|code\ (?:pin|secret|confidentiel)
    |otp|(?:one-?time|2fa|mfa|two-factor|verification|authenticator)(?:\ (?:pass)?code|\ password)s?)(?![\w-])"""
KEYS = r"""(?:api|access|secret|auth(?:entication|orization)?|client|private|refresh|bearer|session|encryption|github|aws)
    [\ _-]?(?:access[\ _-]?)?(?:keys?|tokens?|secrets?|key[\ _-]?id)(?![\w-])|(?<![^\W_])(?:secret|token)(?![\w-])
    |(?<![^\W_])(?:backup|recovery)[\ _-](?:codes?|keys?)(?![\w-])"""
CARDS = r"""(?<!library\ )(?<!gift\ )(?<!loyalty\ )(?<!member\ )(?<!membership\ )(?<!rewards\ )(?<!insurance\ )
    \b(?:(?:credit|debit|bank|payment)\ ?card|visa|mastercard|amex|card|kredit-?karten?|n[uú]mero\ de\ (?:la\ )?tarjeta
    |num[eé]ro\ de\ (?:la\ )?carte)(?:\ ?(?:numbers?|no\.?|\#|nummer))?(?!\w)"""
CVVS = r"""(?<![^\W_])(?:cvv2?|cvc2?|csc|card\ (?:security|verification)\ (?:code|value)
    |security\ code(?=\ (?:on|of|for)\ (?:the|my)\ (?:back|(?:\w{4,10}\ )?card)))(?:\ (?:code|number))?(?!\w)"""
IDENTITIES = r"""(?<![^\W_])(?:ssn|social\ security(?:\ (?:number|no\.?|\#))?|social\ insurance\ number|national\ insurance(?:\ number)?
    |(?:passport|visa|driver['’]?s?['’]?\ licen[cs]e|driving\ licen[cs]e|(?:national\ |government\ )?id(?:entity|entification)?(?:\ card)?
      |tax(?:payer)?(?:\ id(?:entification)?)?|medicare|nhs|alien\ registration|green\ card
      |(?:bank|checking|savings|current)\ account|routing)\ ?(?:number|no\.|\#)
    |passport|tax\ id|ni\ number|nino|itin|(?-i:TIN|CPF|DNI|NIE|NIF|BSN)|aadhaar(?:\ number)?|pan\ number|codice\ fiscale
    |num[eé]ro\ de\ s[eé]curit[eé]\ sociale|personalausweisnummer|reisepassnummer|ausweisnummer|steuer-?id(?:entifikationsnummer)?
    |sozialversicherungsnummer|kontonummer)(?![\w-])"""
SEEDS = r"\b(?:seed|recovery|mnemonic|backup|secret)\ (?:phrase|words)(?!\w)"
