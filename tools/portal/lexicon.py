"""Conditions with the drugs and tests that go with them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Drug:
    """A medicine as a patient speaks of it."""

    name: str
    doses: tuple[str, ...]
    units: str = "pills"


@dataclass(frozen=True)
class Test:
    """A test as a patient speaks of it.

    Attributes:
        name: With no article.
        values: What a patient would copy from the result, lowest first, all out of range.
        normal: The reference range as printed, or empty for a report in words.
        high_is_bad: Which way the values get worse.
    """

    name: str
    values: tuple[str, ...]
    normal: str = ""
    high_is_bad: bool = True


@dataclass(frozen=True)
class Condition:
    """A condition with what usually goes with it.

    Attributes:
        name: As in "my <name>".
        field: The specialty.
        drugs: What is prescribed for it.
        tests: What is measured because of it, each with a printed range.
        ages: Youngest and oldest patient.
        sex: "f", "m", or empty for both.
        adjective: As in "<adjective> medicine", where it is not the name.
    """

    name: str
    field: str
    drugs: tuple[Drug, ...]
    tests: tuple[Test, ...]
    ages: tuple[int, int] = (18, 95)
    sex: str = ""
    adjective: str = ""


def _drug(line: str) -> Drug:
    """Read 'lisinopril; 10 mg, 20 mg; pills'."""
    name, doses, units = line.split("; ")
    return Drug(name, tuple(doses.split(", ")), units)


def _numbers(low: float, high: float, digits: int, what: str = "") -> tuple[str, ...]:
    """Seventeen evenly spaced readings between two ends."""
    step = (high - low) / 16
    return tuple(f"{what} {low + i * step:.{digits}f}".strip() for i in range(17))


A1C = Test("A1c", _numbers(5.8, 9.8, 1), "under 5.7")
GLUCOSE = Test("fasting glucose", _numbers(101, 211, 0), "70 to 99")
LIPIDS = Test("lipid panel", _numbers(108, 228, 0, "LDL"), "under 100 for LDL")
TSH = Test("TSH", _numbers(4.7, 11.9, 2), "0.45 to 4.5")
POTASSIUM = Test("metabolic panel", _numbers(5.3, 6.9, 1, "potassium"), "3.5 to 5.2")
KIDNEY = Test("kidney function test", _numbers(38, 58, 0, "eGFR"), "above 60", high_is_bad=False)
CBC = Test("blood count", _numbers(8.2, 11.4, 1, "hemoglobin"), "12 to 16", high_is_bad=False)
FERRITIN = Test("ferritin", _numbers(4, 14, 1), "15 to 150", high_is_bad=False)
VITAMIN_D = Test("vitamin D level", _numbers(9, 28, 1), "30 to 100", high_is_bad=False)
B12 = Test("B12 level", _numbers(131, 226, 0), "232 to 1245", high_is_bad=False)
LIVER = Test("liver panel", _numbers(49, 149, 0, "ALT"), "0 to 44")
URIC = Test("uric acid", _numbers(7.3, 10.4, 1), "under 7")
PSA = Test("PSA", _numbers(4.2, 9.4, 1), "under 4")
CRP = Test("CRP", _numbers(6, 41, 0), "under 5")
LEAD = Test("lead level", _numbers(3.6, 7.1, 1), "under 3.5")
CHEST = Test(
    "chest x-ray",
    ("a small nodule", "mild hyperinflation", "patchy opacity", "no acute findings", "scarring"),
)
KNEE = Test(
    "knee x-ray",
    (
        "moderate joint space narrowing",
        "a small effusion",
        "bone spurs",
        "mild degenerative change",
    ),
)
HEAD = Test(
    "head MRI",
    ("nonspecific white matter changes", "a sinus cyst", "no acute abnormality", "mild atrophy"),
)
HEART = Test("EKG", ("sinus bradycardia", "left axis deviation", "a borderline tracing", "PACs"))
HOLTER = Test("heart monitor", ("occasional PVCs", "a short run of SVT", "pauses at night"))
BONES = Test("bone density scan", ("T-score -1.8", "T-score -2.4", "T-score -2.7", "osteopenia"))
BREATH = Test("breathing test", ("FEV1 71 percent", "FEV1 84 percent", "mild obstruction"))
MAMMO = Test("mammogram", ("dense tissue", "a focal asymmetry", "calcifications", "BI-RADS 0"))

SCANS = (CHEST, KNEE, HEAD, HEART, HOLTER, BONES, BREATH, MAMMO)

CONDITIONS = (
    Condition("blood pressure", "cardiology", tuple(map(_drug, (
        "lisinopril; 10 mg, 20 mg, 40 mg; tablets", "amlodipine; 5 mg, 10 mg; pills",
        "losartan; 25 mg, 50 mg, 100 mg; tablets", "hydrochlorothiazide; 12.5 mg, 25 mg; pills"))),
        (POTASSIUM, KIDNEY), (34, 95)),
    Condition("diabetes", "endocrinology", tuple(map(_drug, (
        "metformin; 500 mg, 1000 mg; tablets", "glipizide; 5 mg, 10 mg; pills",
        "insulin glargine; 18 units, 24 units, 30 units; pens",
        "empagliflozin; 10 mg, 25 mg; pills"))),
        (A1C, GLUCOSE, KIDNEY), (30, 92)),
    Condition("cholesterol", "cardiology", tuple(map(_drug, (
        "atorvastatin; 10 mg, 20 mg, 40 mg; tablets", "rosuvastatin; 5 mg, 10 mg, 20 mg; pills"))),
        (LIPIDS, LIVER), (35, 90)),
    Condition("thyroid", "endocrinology", tuple(map(_drug, (
        "levothyroxine; 50 mcg, 75 mcg, 88 mcg, 112 mcg; tablets",))), (TSH,), (22, 92)),
    Condition("asthma", "pulmonology", tuple(map(_drug, (
        "albuterol; 90 mcg; puffs", "fluticasone; 110 mcg, 220 mcg; puffs",
        "montelukast; 5 mg, 10 mg; tablets"))), (), (4, 70)),
    Condition("anxiety", "psychiatry", tuple(map(_drug, (
        "sertraline; 50 mg, 100 mg; pills", "escitalopram; 10 mg, 20 mg; tablets",
        "bupropion; 150 mg, 300 mg; tablets", "buspirone; 10 mg, 15 mg; pills"))),
        (TSH, VITAMIN_D, CBC), (17, 75)),
    Condition("migraine", "neurology", tuple(map(_drug, (
        "sumatriptan; 50 mg, 100 mg; tablets", "topiramate; 25 mg, 50 mg; pills",
        "propranolol; 40 mg, 60 mg; capsules"))), (CBC,), (16, 64)),
    Condition("reflux", "gastroenterology", tuple(map(_drug, (
        "omeprazole; 20 mg, 40 mg; capsules", "pantoprazole; 40 mg; tablets",
        "famotidine; 20 mg, 40 mg; pills"))), (CBC,), (20, 88)),
    Condition("afib", "cardiology", tuple(map(_drug, (
        "apixaban; 2.5 mg, 5 mg; tablets", "metoprolol; 25 mg, 50 mg, 100 mg; pills"))),
        (POTASSIUM,), (55, 95)),
    Condition("arthritis", "rheumatology", tuple(map(_drug, (
        "meloxicam; 7.5 mg, 15 mg; pills", "celecoxib; 100 mg, 200 mg; capsules",
        "methotrexate; 10 mg, 15 mg; tablets"))), (CRP, LIVER), (40, 92)),
    Condition("osteoporosis", "endocrinology", tuple(map(_drug, (
        "alendronate; 35 mg, 70 mg; tablets",))), (VITAMIN_D,), (60, 95)),
    Condition("eczema", "dermatology", tuple(map(_drug, (
        "triamcinolone cream; 0.1%, 0.5%; tubes", "tacrolimus ointment; 0.03%, 0.1%; tubes"))),
        (), (1, 50)),
    Condition("allergies", "allergy", tuple(map(_drug, (
        "cetirizine; 5 mg, 10 mg; tablets", "azelastine spray; 0.1%; sprays",
        "epinephrine; 0.15 mg, 0.3 mg; pens"))), (), (3, 60), "", "allergy"),
    Condition("ADHD", "psychiatry", tuple(map(_drug, (
        "methylphenidate; 18 mg, 27 mg, 36 mg; capsules", "guanfacine; 1 mg, 2 mg; tablets"))),
        (CBC,), (6, 40)),
    Condition("nerve pain", "neurology", tuple(map(_drug, (
        "gabapentin; 100 mg, 300 mg, 600 mg; capsules", "duloxetine; 30 mg, 60 mg; capsules"))),
        (B12, A1C), (38, 90)),
    Condition("gout", "rheumatology", tuple(map(_drug, (
        "allopurinol; 100 mg, 300 mg; tablets", "colchicine; 0.6 mg; pills"))), (URIC, KIDNEY),
        (38, 88)),
    Condition("prostate", "urology", tuple(map(_drug, (
        "tamsulosin; 0.4 mg; capsules", "finasteride; 5 mg; pills"))), (PSA,), (50, 92), "m"),
    Condition("menopause", "gynecology", tuple(map(_drug, (
        "estradiol patches; 0.05 mg, 0.1 mg; patches", "progesterone; 100 mg, 200 mg; capsules"))),
        (VITAMIN_D,), (44, 66), "f", "hormone"),
    Condition("low iron", "hematology", tuple(map(_drug, (
        "ferrous sulfate; 325 mg; pills",))), (FERRITIN, CBC), (15, 80), "", "iron"),
    Condition("seizures", "neurology", tuple(map(_drug, (
        "levetiracetam; 500 mg, 750 mg; tablets", "lamotrigine; 100 mg, 150 mg; tablets"))),
        (LIVER,), (5, 70), "", "seizure"),
    Condition("ear infections", "ENT", tuple(map(_drug, (
        "amoxicillin liquid; 5 mL, 7.5 mL; doses", "cefdinir liquid; 4 mL, 6 mL; doses"))),
        (LEAD,), (1, 9), "", "ear"),
)  # fmt: skip
