"""Sentences that users read: plain constructions, the terms of the glossary, and at most 40 words."""

import re
from collections.abc import Callable, Iterator

import pytest

from prose import ROOT, Text, docstrings, documentation, messages

LAYERS: dict[str, Callable[[], Iterator[Text]]] = {
    "messages": messages,
    "documentation": documentation,
    "docstrings": docstrings,
}
# Without the X in place of inline code.
WORD = re.compile(r"(?!X\b)[A-Za-z][\w'-]*")
# Constructions that need a second reading, each with the remedy.
CONSTRUCTIONS = {
    r"\bof (which|whom)\b": "write two sentences",
    r"\b(that|those) of\b": "repeat the noun",
    r"\bwhat (is|are|was|were|it|they|has|have|had|can|could|may|of|a|an|the|[a-z]+s)\b": "write the noun",
    r"\bso (many|much|few)\b": "give the number",
    r"\b(is|are|was|be|been) told\b": "name the actor",
    r"\bwho (has|have|reads|wants|opens|asks|needs|looks|is|are)\b": "name the person, or write 'you'",
    r"\b(whatever|whichever|whoever|however many)\b": "name the cases",
    r"\bas far as\b": "write 'if'",
    r"\b(goes|go|went|gone) on\b": "write 'continues' or 'resumes'",
    r"\btakes? it from there\b": "describe the step",
    r"\b(nine of ten|99 of 100)\b": "write the percentile",
    r"(?<!there )\b(is|are) no (?!longer\b|more\b)": "write 'is not'",
}
MOST_PER_THOUSAND_WORDS = 1
MOST_WORDS = 40


@pytest.mark.parametrize("layer", LAYERS)
def test_constructions_are_plain(layer: str) -> None:
    texts = list(LAYERS[layer]())
    words = sum(len(WORD.findall(text.words)) for text in texts)
    assert words > 10_000
    found = [
        f"{text.place}: {match[0]!r}: {remedy}"
        for text in texts
        for pattern, remedy in CONSTRUCTIONS.items()
        for match in re.finditer(pattern, text.words, re.IGNORECASE)
    ]
    assert len(found) <= MOST_PER_THOUSAND_WORDS * words / 1000, "\n".join(found)


def _synonyms() -> dict[str, str]:
    """Returns the term for each word of the column "not" in the glossary."""
    table = (ROOT / "docs/glossary.md").read_text().split("| term | meaning | not |\n")[1].split("\n\n")[0]
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()[1:]]
    return {word.lower(): term for term, _, words in rows for word in re.findall(r"`([^`]+)`", words)}


@pytest.mark.parametrize("layer", LAYERS)
def test_terms_have_one_name(layer: str) -> None:
    synonyms = _synonyms()
    assert len(synonyms) > 10
    anywhere = re.compile(rf"(?<!flight )\b({'|'.join(synonyms)})\b", re.IGNORECASE)
    assert [
        f"{text.place}: {match[0]!r} is called {synonyms[match[0].lower()]!r}"
        for text in LAYERS[layer]()
        for match in anywhere.finditer(text.words)
    ] == []


# Lists of columns in docstrings are not sentences.
@pytest.mark.parametrize("layer", [layer for layer in LAYERS if layer != "docstrings"])
def test_sentences_are_short(layer: str) -> None:
    assert [
        f"{text.place}: {sentence}"
        for text in LAYERS[layer]()
        for sentence in text.sentences()
        if len(WORD.findall(sentence)) > MOST_WORDS
    ] == []


def test_a_riddle_is_found() -> None:
    riddle = "The first of these that there is, of which so many are told, goes on whatever it is."
    assert sum(bool(re.search(pattern, riddle)) for pattern in CONSTRUCTIONS) == 5
    (sentence,) = Text("", "word " * (MOST_WORDS + 1)).sentences()
    assert len(WORD.findall(sentence)) > MOST_WORDS
