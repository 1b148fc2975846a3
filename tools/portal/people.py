"""The patients: who they are, what they have, and how they write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from random import Random

from tools.portal import lexicon as lex
from tools.portal import names
from tools.portal.lexicon import Condition, Drug, Test

FIRST_DAY = date(2024, 1, 8)

_MISSPELLINGS = (
    ("prescription", "perscription"), ("receive", "recieve"),
    ("definitely", "definately"), ("tomorrow", "tommorow"), ("insurance", "insurence"),
    ("separate", "seperate"), ("until", "untill"), ("weird", "wierd"),
    ("dizzy", "dizy"), ("breathing", "breatheing"), ("schedule", "shedule"), ("which", "wich"),
    ("really", "realy"), ("because", "becuase"), ("statement", "statment"), 
    ("authorization", "autorization"), ("their", "thier"), ("sense", "sence"), ("refill", "refil"),
    ("received", "recieved"), ("swollen", "swolen"), ("stomach", "stomache"), ("doctor", "docter"),
    ("headache", "headake"), ("appointment", "apointment"), ("surgery", "surgary"),
    ("terrible", "terible"), ("available", "availible"), ("minutes", "minuets"), ("should",
    "shoud"),
    
    ("medicine", "medecine"), ("believe", "beleive"), 
)  # fmt: skip

_SHORT_FORMS = (
    ("appointment", "appt"), ("prescription", "rx"), ("please", "pls"), ("because", "bc"),
    ("tomorrow", "tmrw"), ("message", "msg"), ("with", "w/"), ("and", "&"), ("you", "u"),
    ("thanks", "thx"), ("minutes", "min"), ("about", "abt"), ("insurance", "ins"), ("before", "b4"),
    ("weeks", "wks"), ("pharmacy", "pharm"), ("your", "ur"), ("Monday", "Mon"), ("Friday", "Fri"),
    ("Tuesday", "Tues"), ("Thursday", "Thurs"), ("number", "#"), ("doctor", "dr"),
)  # fmt: skip


@dataclass(frozen=True)
class Style:
    """How somebody writes, the same in every message.

    Attributes:
        register: One of ``registers.REGISTERS``.
        typo_rate: Slips per word.
        misspells: Words always written wrong, with what is written instead.
        shortens: Words always abbreviated, with the short form.
        lowercase: Whether capitals are left out.
        apostrophes: Whether apostrophes are typed.
        spells_out: Whether contractions are avoided.
        run_on: Share of full stops replaced by a comma.
        dots: Share of full stops replaced by an ellipsis.
        exclaims: Share of full stops replaced by an exclamation mark.
        shouts: Whether a word in capitals turns up.
        date_format: Index of the way to write a date.
        dose_gap: What stands between a dose and its unit.
        title: How a doctor is addressed.
    """

    register: str
    typo_rate: float
    misspells: tuple[tuple[str, str], ...]
    shortens: tuple[tuple[str, str], ...]
    lowercase: bool
    apostrophes: bool
    spells_out: bool
    run_on: float
    dots: float
    exclaims: float
    shouts: bool
    date_format: int
    dose_gap: str
    title: str


@dataclass(frozen=True)
class Patient:
    """A made-up patient, and the person who writes for them if there is one.

    Attributes:
        relation: The patient as the writer calls them ("son"), or empty: the patient writes.
        writer: First name of the writer.
        role: What the writer is to the patient ("mom"), or empty.
    """

    id: str
    first: str
    last: str
    sex: str
    born: date
    age: int
    phone: str
    mrn: str
    email: str
    doctor: str
    clinic: str
    pharmacies: tuple[str, str]
    insurer: str
    member: str
    town: str
    lab: str
    specialist: str
    conditions: tuple[Condition, ...]
    drugs: tuple[tuple[Drug, str], ...]
    tests: tuple[Test, ...]
    relation: str
    writer: str
    role: str
    pastime: str
    style: Style

    @property
    def is_child(self) -> bool:
        """Whether the patient is too young to write."""
        return self.age < 16


def invent_patients(n: int, rng: Random) -> list[Patient]:
    """Draw patients with distinct names, phone numbers and record numbers.

    Phone numbers are from the range 555-0100 to 555-0199, which is never assigned.
    """
    phones = rng.sample(range(78_800), n)
    records = rng.sample(range(104_000, 999_000), n)
    taken: set[tuple[str, str]] = set()
    return [
        _invent(f"P{i + 1:05d}", phone, f"MRN-{record}", taken, rng)
        for i, (phone, record) in enumerate(zip(phones, records, strict=True))
    ]


def _invent(id_: str, line: int, mrn: str, taken: set[tuple[str, str]], rng: Random) -> Patient:
    sex = rng.choice("ffm" if rng.random() < 0.5 else "fm")
    age = _age(rng)
    child = age < 16
    pool = {"f": names.GIRLS, "m": names.BOYS} if child else {"f": names.WOMEN, "m": names.MEN}
    first, last = _unused_name(pool[sex], taken, rng)
    relation, writer, role = _writer(sex, age, first, rng)
    conditions = _conditions(sex, age, rng)
    drugs = tuple(
        (drug, rng.choice(drug.doses))
        for condition in conditions
        for drug in rng.sample(condition.drugs, min(2, len(condition.drugs)))
    )
    return Patient(
        id=id_,
        first=first,
        last=last,
        sex=sex,
        born=date(FIRST_DAY.year - age - 1, 1, 1) + timedelta(days=rng.randrange(366)),
        age=age,
        phone=_phone(line, rng),
        mrn=mrn,
        email=_email(writer, last, rng),
        doctor=rng.choice(names.DOCTORS),
        clinic=rng.choice(names.CLINICS),
        pharmacies=_two(names.PHARMACIES, rng),
        insurer=rng.choice(names.INSURERS),
        member=f"{rng.choice('QTVWXZ')}{rng.randrange(10**7, 10**8)}",
        town=rng.choice(names.TOWNS),
        lab=rng.choice(names.LABS),
        specialist=rng.choice(names.DOCTORS),
        conditions=conditions,
        drugs=drugs,
        tests=_tests(conditions, child),
        relation=relation,
        writer=writer,
        role=role,
        pastime=_pastime(sex, age, bool(relation), rng),
        style=_style(age, bool(relation), rng),
    )


def _age(rng: Random) -> int:
    share = rng.random()
    if share < 0.15:
        return rng.randint(1, 14)
    if share < 0.62:
        return rng.randint(18, 58)
    return rng.randint(55, 91)


def _unused_name(pool: Sequence[str], taken: set[tuple[str, str]], rng: Random) -> tuple[str, str]:
    name = rng.choice(pool), rng.choice(names.SURNAMES)
    for _ in range(50):
        if name not in taken:
            break
        name = rng.choice(pool), rng.choice(names.SURNAMES)
    taken.add(name)
    return name


def _writer(sex: str, age: int, first: str, rng: Random) -> tuple[str, str, str]:
    """Relation, writer's first name, and the writer's role."""
    writer_sex = rng.choice("fffm")
    writer = rng.choice(names.WOMEN if writer_sex == "f" else names.MEN)
    if age < 16:
        if age > 3 and rng.random() < 0.1:
            kind = {"f": "granddaughter", "m": "grandson"}[sex]
            return kind, writer, {"f": "grandmother", "m": "grandpa"}[writer_sex]
        kind = {"f": "daughter", "m": "son"}[sex]
        return kind, writer, {"f": "mom", "m": "dad"}[writer_sex]
    if age > 70 and rng.random() < 0.3:
        kind = {"f": "mother", "m": "father"}[sex]
        return kind, writer, {"f": "daughter", "m": "son"}[writer_sex]
    if age > 30 and rng.random() < 0.05:
        if sex == "f":
            return "wife", rng.choice(names.MEN), "husband"
        return "husband", rng.choice(names.WOMEN), "wife"
    return "", first, ""


def _conditions(sex: str, age: int, rng: Random) -> tuple[Condition, ...]:
    fitting = [
        condition
        for condition in lex.CONDITIONS
        if condition.ages[0] <= age <= condition.ages[1] and condition.sex in ("", sex)
    ]
    return tuple(rng.sample(fitting, min(len(fitting), rng.choice((1, 2, 2, 3)))))


def _tests(conditions: Sequence[Condition], child: bool) -> tuple[Test, ...]:
    """The tests of the conditions, and the common ones everybody has."""
    own = [test for condition in conditions for test in condition.tests]
    common = (lex.LEAD, lex.FERRITIN, lex.CBC) if child else (lex.VITAMIN_D, lex.CBC, lex.LIPIDS)
    return tuple(dict.fromkeys((*own, *common)))


def _two(pool: Sequence[str], rng: Random) -> tuple[str, str]:
    one, other = rng.sample(pool, 2)
    return one, other


def _phone(line: int, rng: Random) -> str:
    area, last = 201 + line // 100, f"01{line % 100:02d}"
    return rng.choice((f"({area}) 555-{last}", f"{area}-555-{last}", f"{area}.555.{last}"))


def _email(writer: str, last: str, rng: Random) -> str:
    last = last.lower().replace("-", "")
    user = rng.choice((f"{writer}.{last}", f"{writer[0]}{last}", f"{last}{rng.randrange(10, 99)}"))
    return f"{user.lower()}@{rng.choice(('example.com', 'example.org', 'mail.example.net'))}"


def _pastime(sex: str, age: int, proxy: bool, rng: Random) -> str:
    if age < 66 or proxy:
        return rng.choice(names.JOBS)
    fitting = [line for line in names.RETIRED if sex == "f" or "husband" not in line]
    return rng.choice(fitting)


def _style(age: int, proxy: bool, rng: Random) -> Style:
    old = age >= 68 and not proxy
    registers = ["plain"] * 4 + ["terse"] * (1 if old else 4) + ["chatty"] * 2 + ["worried"] * 2
    register = rng.choice([*registers, "formal", "formal", *(["elderly"] * 7 if old else [])])
    sloppy = register in ("terse", "chatty", "plain", "worried") and rng.random() < 0.4
    return Style(
        register=register,
        typo_rate=rng.choice((0.0, 0.0, 0.01, 0.02, 0.03)) * (0.2 if register == "formal" else 1),
        misspells=()
        if register == "formal"
        else tuple(rng.sample(_MISSPELLINGS, rng.randint(0, 9))),
        shortens=tuple(rng.sample(_SHORT_FORMS, rng.randint(3, 12)))
        if register == "terse" or (sloppy and rng.random() < 0.3)
        else (),
        lowercase=sloppy and rng.random() < 0.5,
        apostrophes=not (sloppy and rng.random() < 0.6),
        spells_out=register == "formal" or (register == "elderly" and rng.random() < 0.5),
        run_on=rng.choice((0.1, 0.25)) if sloppy else 0.0,
        dots=rng.choice((0.0, 0.15, 0.3)) if register in ("elderly", "worried", "chatty") else 0.0,
        exclaims={"chatty": 0.25, "worried": 0.08}.get(register, 0.0),
        shouts=register in ("elderly", "worried") and rng.random() < 0.3,
        date_format=rng.randrange(6),
        dose_gap=rng.choice((" ", " ", "")),
        title=rng.choice(("Dr. ", "Dr. ", "Dr ", "Doctor ")),
    )
