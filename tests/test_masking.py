"""What is masked, what is kept, and that masking changes nothing else. All secrets here are made up."""

import time
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualtrace_local.masking import MASK, mask, mask_session
from dualtrace_local.records import Session, Turn

SECRETS = [
    # A sentence in which « » stand around each secret.
    "my PIN is «4921»",
    "The pin's «4921», don't tell.",
    "PIN: «0042»",
    "the pin code for my debit card is «49 21».",
    "I forgot my PIN so I changed it to «4921».",
    "I have a new PIN, it's «8841».",
    "My PIN («4921») works again",
    "my pin is «four nine two one».",
    "«4921» is my PIN.",
    "The passcode for my phone is «224466».",
    "Your one-time code is «48291377»",
    "password: «hunter2»",
    "PASSWORD IS «HUNTER2»",
    "pwd = «letmein»",
    "wifi pw: «hunter2»",
    "Password:\n«hunter2»",
    "**Password:** «hunter2»",
    '{"user": "bob", "password": "«hunter2»"}',
    "DB_PASSWORD=«s3cr3t99»",
    "the wifi password is «Sunny42!»",
    "My password is «hunter2» please remember it.",
    "The password for my Netflix account is «bluefish».",
    "the password I use for my email is «Bella2011»",
    "I just reset my bank password to «bluefish».",
    "The wifi password is «correct horse battery staple».",
    'the password for the router is "«tiger lily»"',
    "Passwords are «hunter2» and «swordfish9».",
    "«hunter2» is my wifi password",
    "The password for my bank is on a note. It's «Bella2011».",
    "Mein Passwort lautet «Geheim123».",
    "Das WLAN-Passwort ist «Sonnenschein».",
    "Passwort: „«Sonne12»“",
    "Meine Geheimzahl ist «4711».",
    "Mi contraseña es «Gato2020».",
    "El PIN de mi tarjeta es «8832».",
    "Mon mot de passe est «Soleil77».",
    "Mon code PIN est «8832».",
    "my api key is «a8f5f167f44f4964e6c998dee827110c»",
    'API_KEY="«abcd1234efgh»"',
    "export OPENAI_API_KEY=«sk-abcdefghijklmnop1234»",
    "use «ghp_abcdefghijklmnopqrstuvwxyz0123456789» here",
    "use «AKIAIOSFODNN7EXAMPLE» here",
    "the bot has «xoxb-1234567890-abcdefghij»",
    "«eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc-DEF_123»",
    "Authorization: Bearer «abcdef1234567890abcd»",
    "postgres://bob:«pw123»@host/db",
    "https://example.org/feed?token=«abc123def456»",
    "-----BEGIN RSA PRIVATE KEY-----\n«MIIEabc+/=\nabcd=»\n-----END RSA PRIVATE KEY-----",
    "my backup codes: «1a2b3c4d», «5e6f7g8h»",
    "My seed phrase is «apple bird cat dog egg fish goat hat ice jam kite lamp»",
    "my card is «4111 1111 1111 1111», exp 12/27",
    "«378282246310005» is the amex",
    "my credit card number is «1234 5678 9012 3456».",
    "CVV «123»",
    "IBAN «DE89 3704 0044 0532 0130 00» and more",
    "«GB82WEST12345698765432»",
    "My SSN is «123-45-6789».",
    "my social security number is «123 45 6789»",
    "my passport number is «X1234567».",
    "my driver's license number is «D1234567»",
    "National Insurance number: «QQ 12 34 56 C»",
    "mi DNI es «12345678Z»",
]

KEPT = [
    "$adminPassword = ConvertTo-SecureString $env:ADMIN_PASSWORD",
    "$adminPassword = '${{ parameters.adminPassword }}'",
    'password = "$(lookup)"',
    "const password = parts[1];",
    "PWD=' + fields['password'])",
    "alert('Your name or password is incorrect');document.location='home'",
    "my locker code is 4417",
    "the gate code is 4921, then 2468#",
    "the alarm code is 9911",
    "the access code for the building is 4921B777",
    "booking reference ABC123, confirmation number 1234567890123456",
    "order number 4111111111111111",
    "tracking 9400111899223197428490",
    "my licence plate is AB12 CDE, flight LH 1234, seat 14C, room 4921",
    "call me at 555-123-4567 or +1 415 555 2671",
    "My address is 123 Main Street, 94110-1234",
    "born 1990-05-12, moved on 5/12/2023 at 18:45",
    "card ending in 4421",
    "my library card number is 21234001234567",
    "My member ID is 12345678",
    "ISBN 978-3-16-148410-0",
    "I pinned it on the pin board with a pin for 4500 yen",
    "pin 13 on the board and a bowling pin",
    "I use a password manager like 1Password",
    "I forgot my password",
    "my password is wrong",
    "my password is too weak, so I will change it",
    "My password was stolen on 5/12",
    "my password is going to expire",
    "The password for my account is no longer working.",
    "The password must be at least 8 characters, password is 12 characters long",
    "set a new password to protect my account",
    "Passwords: Use a strong password",
    'password = input("x")',
    "if password == user.password:",
    "https://user:${PASSWORD}@host/db",
    "the secret is butter, the key is to practice 10 times",
    "The token limit is 2048 tokens",
    "My passport is valid until 2031-05-12",
    "Log in with your email and password to open the app.\n\n1. Orders: view and sort orders.",
]


def parts(marked):
    """The sentence itself, and how it must look masked."""
    plain, hidden, inside = "", "", False
    for piece in marked.replace("»", "«").split("«"):
        plain += piece
        hidden += MASK if inside else piece
        inside = not inside
    return plain, hidden


@pytest.mark.parametrize("marked", SECRETS)
def test_secrets_are_masked_and_nothing_else(marked):
    plain, hidden = parts(marked)

    assert mask(plain) == hidden


@pytest.mark.parametrize("text", KEPT)
def test_what_people_want_back_is_kept(text):
    assert mask(text) == text


@pytest.mark.parametrize("marked", SECRETS)
def test_masking_twice_changes_nothing(marked):
    once = mask(parts(marked)[0])

    assert mask(once) == once


WORDS = [
    "password",
    "PIN",
    "is",
    "my",
    "4921",
    "hunter2",
    ":",
    "it's",
    "token",
    MASK,
    "and",
    "=",
    '"',
    "\n",
    "for",
    "card",
    "4111111111111111",
]


@given(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join))
def test_masking_any_words_twice_changes_nothing(text):
    once = mask(text)

    assert mask(once) == once


def test_surroundings_do_not_matter():
    """In the middle of long text, and several at once."""
    filler = "We walked along the river and talked about kites. " * 20
    text = f"{filler}My PIN is 4921. {filler}password: hunter2\n{filler}"

    assert mask(text) == text.replace("4921", MASK).replace("hunter2", MASK)


def test_a_session_is_masked_in_every_role():
    when = datetime.fromisoformat("2023-06-12T19:05")
    session = Session(
        (Turn("user", "my PIN is 4921"), Turn("assistant", "So your PIN is 4921."), Turn("tool", "ok")), when, external_id="s1"
    )

    masked = mask_session(session)

    assert [t.text for t in masked.turns] == ["my PIN is [masked]", "So your PIN is [masked].", "ok"]
    assert (masked.date, masked.external_id) == (when, "s1")
    assert masked.key != session.key
    assert mask_session(masked) is masked


@pytest.mark.parametrize(
    "unit",
    [
        *("a", "1 ", " ", "password ", "password: ", "password for a ", "pin ", "api key ", "a is my ", "sk-", "eyJ-", "http://a:"),
        *("DE89", "bearer ", "-----BEGIN PRIVATE KEY-----", 'password: "', "The quick brown fox sat by the key. "),
    ],
)
def test_time_grows_with_the_length_alone(unit):
    """200,000 characters of the worst kind take seconds at most; a pattern that looks back over all of it takes minutes."""
    text = unit * (200_000 // len(unit))
    start = time.process_time()

    mask(text)

    assert time.process_time() - start < 10
