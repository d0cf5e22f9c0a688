"""One statement of the owner's, kept because the owner says so."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

from dualtrace_local.config import Role, TeachSettings
from dualtrace_local.domains.personal import Personal
from dualtrace_local.encode import encode
from dualtrace_local.engines.driver import Job
from dualtrace_local.errors import DataError, EngineError
from dualtrace_local.grounding import REMEMBER, forbidden, sentences, stems
from dualtrace_local.masking import MASK, mask
from dualtrace_local.records import Failure, Memory, Scope, Session, Tier, Turn, digest_of
from dualtrace_local.store import Outcome, Store

from .parts import Parts
from .teach import fingerprint_parts

LONGEST = 2000
"""Characters of one statement. Longer texts are conversations or documents, and the gate should choose from them."""


@dataclass(frozen=True)
class Remembered:
    """What became of a statement.

    ``status``: ``taught``; ``dropped`` when no sentence of it could be kept, only its round; ``unchanged`` when it was there already,
    from the same minute; ``refused`` when its own words ask not to be remembered (nothing is stored, not even its round);
    ``forgotten`` when it was removed by order and must not come back.
    ``session`` is what is stored, ``masked`` how many credentials were taken out of it.
    """

    status: str
    session: Session
    masked: int
    memories: tuple[Memory, ...] = ()

    @property
    def tier(self) -> Tier:
        """The tier of what is stored."""
        return self.memories[0].tier if self.memories else Tier.DROP


def remember(text: str, date: datetime, path: Path, parts: Parts, scope: Scope) -> Remembered:
    """Teach ``text`` as a session of one user turn that the owner ordered to be remembered.

    Raises DataError for a text without anything to remember, EngineError when the model wrote nothing whole; nothing is stored then.
    """
    said = mask(text.strip())
    _check(text.strip(), said)
    session = Session((Turn("user", said),), date, scope, f"remembered-{date:%Y-%m-%d-%H%M}", "remember", 1)
    masked = said.count(MASK) - text.count(MASK)
    if forbidden(session.turns):
        return Remembered("refused", session, masked)
    if not path.exists():
        parts.engine(Role.ENCODE)  # a model that cannot start leaves no empty store behind
    with Store.open(path, parts.embedder, write=True, create=True, say=parts.listener.say) as store:
        status = "unchanged" if session.key in store.known() else "forgotten" if session.key in store.forgotten() else "taught"
        if status == "taught":
            outcome = _written(session, store, parts)
            store.commit([outcome])
            status = outcome.status
        memories = store.memories(scope, frozenset((session.key,)))
    return Remembered(status, session, masked, tuple(memories))


def _check(text: str, said: str) -> None:
    """Refuse what nothing can be made of, before a store is made or a model started."""
    if len(text) > LONGEST:
        raise DataError(
            f"a statement has at most {LONGEST:,} characters, this one has {len(text):,}; teach longer texts as sessions: `dualtrace teach`"
        )
    try:
        text.encode()
    except UnicodeEncodeError as problem:
        raise DataError(f"the statement is not valid Unicode at character {problem.start + 1}; write it again") from problem
    if not stems(text):
        raise DataError("nothing to remember: the statement holds no words; write what is to be kept, or `-` to read it from stdin")
    if not stems(said.replace(MASK, " ")):
        raise DataError("nothing to remember: all of the statement is a credential, and credentials are never stored")
    told = [s for s in sentences(said) if stems(s)]
    if all(s.endswith("?") for s in told) and not REMEMBER.search(said):
        raise DataError("nothing to remember: the statement only asks; `dualtrace ask` answers, write what is to be kept as a statement")


def _written(session: Session, store: Store, parts: Parts) -> Outcome:
    """The session as teaching writes it. Raises EngineError when the model's output never became whole."""
    spec, settings = parts.spec(Role.ENCODE), TeachSettings(seed=parts.seed)
    domain = Personal(store.secret, parts.count(Role.ENCODE), spec.gate, spec.budgets, settings, ordered=True)
    job = Job(session.key, partial(encode, session, domain, parts.embedder.encode))
    (result,) = parts.engine(Role.ENCODE).run([job], window=1)
    if isinstance(result, Failure):
        raise EngineError(f"{parts.name(Role.ENCODE)} wrote nothing whole ({result.reason}); nothing is stored, give the command again")
    status = "dropped" if result.value.tier is Tier.DROP else "taught"
    return Outcome(result.value, status, digest_of(fingerprint_parts(parts, settings)))
