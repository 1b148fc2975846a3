"""What a record is, in an English sentence."""

from __future__ import annotations

import pytest

from privsyn.models.language.articles import bare, with_document


@pytest.mark.parametrize(
    ("document", "named"),
    [
        ("abstract of a medical article", "an abstract of a medical article"),
        ("Email", "an Email"),
        ("issue", "an issue"),
        ("unanswered question", "an unanswered question"),
        ("user review", "a user review"),
        ("university form", "a university form"),
        ("one-line note", "a one-line note"),
        ("message to a clinic", "a message to a clinic"),
        ("note", "a note"),
        ("", "a "),
        ("US presidential speech", "a US presidential speech"),
        ("UN resolution", "a UN resolution"),
        ("EU report", "an EU report"),
        ("NHS letter", "an NHS letter"),
        ("SMS", "an SMS"),
        ("FAQ", "an FAQ"),
        ("URL", "a URL"),
        ("X-ray report", "an X-ray report"),
        ("e-mail", "an e-mail"),
        ("MRI report", "an MRI report"),
        ("U-turn", "a U-turn"),
        ("uninsured patient's letter", "an uninsured patient's letter"),
        ("unintended incident report", "an unintended incident report"),
        ("unidentified caller's note", "an unidentified caller's note"),
        ("unique note", "a unique note"),
        ("union notice", "a union notice"),
        ("unimodal trace", "a unimodal trace"),
        ("usual complaint", "a usual complaint"),
        ("European law", "a European law"),
        ("urine test", "a urine test"),
        ("urgent request", "an urgent request"),
        ("hourly report", "an hourly report"),
        ("honest review", "an honest review"),
        ("heir's letter", "an heir's letter"),
        ("hotel review", "a hotel review"),
        ("8-page letter", "an 8-page letter"),
        ("11-page letter", "an 11-page letter"),
        ("110-page letter", "a 110-page letter"),
    ],
)
def test_a_document_has_the_article_that_its_sound_asks_for(document, named):
    assert with_document("This is a {document}.", document) == f"This is {named}."
    assert with_document("A {document}", document) == named[:1].upper() + named[1:]
    assert with_document("Write one {document}: Ada {document}", document) == (
        f"Write one {document}: Ada {document}"
    )


@pytest.mark.parametrize(
    ("document", "noun"),
    [
        ("a complaint", "complaint"),
        ("An email to a shop", "email to a shop"),
        ("THE answer of a bank.", "answer of a bank"),
        ("complaint..", "complaint"),
        ("theatre review", "theatre review"),
        ("anecdote", "anecdote"),
        ("a", "a"),
        ("letter to the U.S. Senate", "letter to the U.S. Senate"),
    ],
)
def test_an_article_before_a_document_and_a_full_stop_behind_it_are_not_said_twice(document, noun):
    assert bare(document) == noun
    assert bare(noun) == noun
    assert with_document("Write one {document}.", document) == f"Write one {noun}."


@pytest.mark.parametrize(
    ("document", "plural"),
    [
        ("support tickets", True),
        ("the notes of a nurse", True),
        ("FAQs", True),
        ("messages to a clinic", True),
        ("status of orders", False),
        ("SMS", False),
        ("address", False),
        ("analysis", False),
        ("movie news", False),
        ("patient's letter", False),
        ("message from customers", False),
    ],
)
def test_of_many_documents_a_prompt_speaks_of_one(document, plural):
    said = with_document("The following is a {document}.", document)
    assert said.startswith("The following is one of the ") == plural
    assert with_document("A {document}", document).startswith("One of the ") == plural
