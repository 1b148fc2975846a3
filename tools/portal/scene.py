"""The facts of one message, and the threads of messages that share them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, timedelta
from random import Random

from tools.portal import lexicon, phrases, registers
from tools.portal.people import Patient
from tools.portal.templates import Label, Scenario, expand


@dataclass
class Thread:
    """What a patient has been writing about.

    Attributes:
        facts: Values that stay the same from message to message: the drug, the amount, the date.
        sent: Dates of the messages so far.
    """

    label: Label
    scenario: Scenario
    facts: dict[str, str] = field(default_factory=dict)
    sent: list[date] = field(default_factory=list)


class MessageScene:
    """Facts and phrases of one message, as the templates ask for them."""

    def __init__(self, patient: Patient, thread: Thread, today: date, rng: Random) -> None:
        self.patient = patient
        self.facts = dict(thread.facts)
        self.today = today
        self.rng = rng
        self._sent = thread.sent[-1] if thread.sent else today
        self._scenario = thread.scenario
        self._introduced = False
        self._doctor_named = False

    @property
    def third_person(self) -> bool:
        """Whether somebody writes for the patient."""
        return bool(self.patient.relation)

    def pick(self, n: int) -> int:
        """A whole number from 0 to n - 1."""
        return self.rng.randrange(n)

    def rule(self, name: str) -> str:
        """A template of a shared rule: the register's own most of the time, else the common one."""
        timed = self._timed(name)
        if timed:
            return timed
        own = registers.VOICED.get(self.patient.style.register, {}).get(name)
        common = phrases.BASE[name]
        return self.rng.choice(own if own and self.rng.random() < 0.7 else common)

    def _timed(self, name: str) -> str:
        """A day or an hour seen from today, or nothing if the rule is no such thing."""
        rng, today = self.rng, self.today
        match name:
            case "weekday":
                days = [today + timedelta(n) for n in range(1, 7)]
                working = [day for day in days if day.weekday() < 5]
                return f"{rng.choice(working if rng.random() < 0.85 else days):%A}"
            case "month":
                return f"{today + timedelta(rng.choice((-150, -110, -75, 40, 70))):%B}"
            case "hello":
                return rng.choice(("morning", "morning", "afternoon", "evening"))
            case "clock":
                hour, minute = rng.randint(1, 12), rng.choice((0, 10, 15, 20, 30, 40, 45))
                return rng.choice(
                    (
                        f"{hour}:{minute:02d}",
                        f"{hour}:{minute:02d}",
                        f"half past {hour}",
                    )
                )
            case "past":
                return self._past(today - timedelta(rng.randint(1, 20)))
            case "pastday":
                return self._past_day(today - timedelta(rng.randint(1, 14)))
            case "future":
                return f"on {self._future_day()}"
            case "futureday":
                return self._future_day()
            case "since":
                return self._since(rng.randint(2, 15))
        return ""

    def _past(self, day: date) -> str:
        """When, as an adverb."""
        days = (self.today - day).days
        if days == 1:
            return self.rng.choice(("yesterday", "last night"))
        if days < 7:
            return self.rng.choice((f"on {day:%A}", f"{_count(days)} days ago", f"last {day:%A}"))
        weeks = ("a week ago", "about a week ago", "two weeks ago", "almost three weeks ago")
        return self.rng.choice(
            (
                f"on {self._written(day)}",
                f"back on {self._written(day)}",
                f"on the {_ordinal(day.day)}",
                weeks[min(3, (days - 4) // 5)],
            )
        )

    def _past_day(self, day: date) -> str:
        days = (self.today - day).days
        if days == 1:
            return "yesterday"
        if days < 7:
            return self.rng.choice((f"{day:%A}", f"last {day:%A}"))
        return self.rng.choice((self._written(day), f"the {_ordinal(day.day)}"))

    def _future_day(self) -> str:
        day = _workday(self.today + timedelta(self.rng.randint(4, 30)))
        if (day - self.today).days < 9:
            return self.rng.choice((f"{day:%A}", f"{day:%A} the {_ordinal(day.day)}"))
        return self.rng.choice((self._written(day), f"{day:%A} the {_ordinal(day.day)}"))

    def _since(self, days: int) -> str:
        return self.rng.choice(
            (
                f"since {self._past_day(self.today - timedelta(days))}",
                f"since {self._past_day(self.today - timedelta(days))}",
                f"for {days} days now",
                f"for {_count(days)} days",
                "for about a week" if 5 <= days <= 9 else f"going on {days} days",
            )
        )

    def _written(self, day: date) -> str:
        """A date the way this writer puts it."""
        month = f"{day:%B}"
        return (
            f"{month} {day.day}",
            f"{day.month}/{day.day}",
            f"{month[:3]} {day.day}" if len(month) > 4 else f"{month} {day.day}",
            f"{month} {_ordinal(day.day)}",
            f"the {_ordinal(day.day)} of {month}",
            f"{day.month}/{day.day}/{day:%y}",
        )[self.patient.style.date_format]

    def slot(self, name: str) -> str:
        """The value of a fact; drawn once, then the same in all messages of the thread."""
        if name in _MENTIONS:
            return self._mention(name)
        if name == "doc":
            return self._doctor()
        if name == "sent":
            return self._past(self._sent).removeprefix("on ")
        if name == "topic":
            return expand(self.rng.choice(self._scenario.lines["topic"]), self)
        fixed = self._fixed(name)
        if fixed is not None:
            return fixed
        if name not in self.facts:
            self._draw(name)
        return self.facts[name]

    def _doctor(self) -> str:
        """By name; once named, often just the doctor."""
        if self._doctor_named and self.rng.random() < 0.6:
            return "the doctor"
        self._doctor_named = True
        return self.patient.style.title + self.patient.doctor

    def _mention(self, name: str) -> str:
        """The patient as subject, owner or object; by name at the first mention."""
        patient = self.patient
        if not patient.relation:
            return _MENTIONS[name][0]
        if self._introduced or name == "self":
            return _MENTIONS[name][1 if patient.sex == "m" else 2]
        self._introduced = True
        options = [f"my {patient.relation} {patient.first}", f"my {patient.relation}"]
        if patient.is_child:
            options += [patient.first, f"my {patient.age} year old"]
        mention = self.rng.choice(options) + ("'s" if name == "my" else "")
        return mention[0].upper() + mention[1:] if name == "He" else mention

    def _fixed(self, name: str) -> str | None:
        patient, style = self.patient, self.patient.style
        match name:
            case "docname":
                return style.title + patient.doctor
            case "spec":
                return style.title + patient.specialist
            case "writer":
                return patient.writer
            case "fullwriter":
                full = f"{patient.writer} {patient.last}"
                return f"{full} ({patient.first}'s {patient.role})" if patient.relation else full
            case "name":
                return f"{patient.first} {patient.last}"
            case "dob":
                return f"{patient.born.month}/{patient.born.day}/{patient.born.year}"
            case "pharm":
                return patient.pharmacies[0]
            case "pharm2":
                return patient.pharmacies[1]
            case "school":
                return "daycare" if patient.age < 5 else "school"
            case "age":
                return str(patient.age)
            case "job" | "hobby":
                return patient.pastime
            case "phone" | "mrn" | "email" | "clinic" | "insurer" | "member" | "town" | "lab":
                return str(getattr(patient, name))
        return None

    def _draw(self, name: str) -> None:
        """Draw a fact together with those it must agree with."""
        rng, patient, facts = self.rng, self.patient, self.facts
        if name in ("drug", "dose", "units", "drug2", "cond", "condadj", "field"):
            condition = rng.choice(patient.conditions)
            facts["cond"], facts["field"] = condition.name, condition.field
            facts["condadj"] = condition.adjective or condition.name
            own = [pair for pair in patient.drugs if pair[0] in condition.drugs]
            drug, dose = rng.choice(own)
            others = [d.name for c in patient.conditions for d in c.drugs if d != drug]
            facts["drug"], facts["units"] = drug.name, drug.units
            facts["dose"] = dose.replace(" ", patient.style.dose_gap)
            facts["drug2"] = rng.choice(others or ["aspirin", "vitamin D"])
        elif name in ("test", "value", "value2", "best", "worst", "range", "test2"):
            test, test2 = rng.sample(patient.tests, 2)
            facts["test"], facts["range"], facts["test2"] = test.name, test.normal, test2.name
            one, other = rng.sample(range(len(test.values)), 2)
            facts["value"], facts["value2"] = test.values[one], test.values[other]
            low, high = test.values[min(one, other)], test.values[max(one, other)]
            facts["best"], facts["worst"] = (low, high) if test.high_is_bad else (high, low)
        elif name in ("scan", "finding"):
            scan = rng.choice(
                [t for t in lexicon.SCANS if t is not lexicon.MAMMO or patient.sex == "f"]
            )
            facts["scan"], facts["finding"] = scan.name, rng.choice(scan.values)
        elif name == "date":
            facts["date"] = self._written(_workday(self.today - timedelta(rng.randint(5, 44))))
        elif name == "apptday":
            day = _workday(self.today + timedelta(rng.randint(15, 47)))
            facts["apptday"] = rng.choice((self._written(day), f"{day:%A}, {self._written(day)}"))
        elif name == "appttime":
            minute = rng.choice(("00", "15", "20", "30", "40", "45"))
            facts[name] = f"{rng.choice((8, 9, 10, 11, 1, 2, 3, 4))}:{minute}"
        elif name == "amount":
            facts[name] = f"{rng.randint(31, 640)}" + rng.choice(
                ("", "", ".40", ".15", ".78", ".09")
            )
        elif name == "amount2":
            facts[name] = str(rng.choice((25, 30, 35, 40, 45, 50, 60, 75, 80, 90, 110, 125, 150)))
        elif name == "claim":
            facts[name] = f"CLM-{rng.randint(200_000, 989_999)}"
        elif name == "invoice":
            facts[name] = f"INV-{rng.randint(20_000, 98_999)}"
        else:
            raise KeyError(name)


_MENTIONS = {
    "S": ("I", "he", "she"),
    "he": ("I", "he", "she"),
    "He": ("I", "He", "She"),
    "me": ("me", "him", "her"),
    "my": ("my", "his", "her"),
    "self": ("myself", "himself", "herself"),
}


def _workday(day: date) -> date:
    """The day itself, or the Monday after a weekend."""
    return day + timedelta(max(0, 7 - day.weekday()) if day.weekday() > 4 else 0)


def _count(number: int) -> str:
    words = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    return words[number - 2] if 2 <= number <= 10 else str(number)


def _ordinal(number: int) -> str:
    ending = (
        "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    )
    return f"{number}{ending}"
