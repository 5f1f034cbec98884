from __future__ import annotations

import time

import pytest

from samekind.nets.text.cleaning import MAX_PIECES, PIECE_CHARACTERS, clean_text, cut_text


@pytest.mark.parametrize(
    ("given", "clean"),
    [
        ("", ""),
        ("  two\t\nwords \x00", "two words"),
        ("<p>Fish &amp; <b>chips</b></p><br/>now", "Fish & chips now"),
        ("<script>var x = '<p>';</script>text<!-- hidden -->", "text"),
        ("a <b> c", "a c"),
        ("1 < 2 and List<int> > 3, <me@example.org>", "1 < 2 and List<int> > 3, <me@example.org>"),
        ("cafe\u0301", "caf\u00e9"),
        ("half \ud83d of an emoji, and a whole one \U0001f600", "half \ufffd of an emoji, and a whole one \U0001f600"),
        ("<!DOCTYPE html><html><body>x</body></html>", "x"),
    ],
)
def test_a_text_is_cleaned(given: str, clean: str) -> None:
    assert clean_text(given) == clean


@pytest.mark.parametrize("unit", ["<script", "<!--", "<b ", "&amp", "<style>\u0130", "\u0301"])
def test_cleaning_a_megabyte_of_open_tags_takes_linear_time(unit: str) -> None:
    start = time.perf_counter()
    clean_text(unit * (2**20 // len(unit)))
    assert time.perf_counter() - start < 3.0


def test_a_short_text_is_one_piece() -> None:
    assert cut_text("x" * PIECE_CHARACTERS) == ["x" * PIECE_CHARACTERS] and cut_text("") == [""]


def test_pieces_of_a_long_text_end_at_spaces_and_hold_all_words() -> None:
    text = " ".join(f"word{i}" for i in range(1000))
    pieces = cut_text(text)
    assert " ".join(pieces) == text
    assert len(pieces) == -(-len(text) // PIECE_CHARACTERS)
    assert max(map(len, pieces)) <= 1.3 * PIECE_CHARACTERS


def test_a_text_without_spaces_is_cut_anywhere() -> None:
    assert "".join(cut_text("\u4e2d" * 5000)) == "\u4e2d" * 5000


def test_of_a_very_long_text_evenly_spaced_pieces_are_taken() -> None:
    text = " ".join(str(i) for i in range(200_000))
    pieces = cut_text(text)
    assert len(pieces) == MAX_PIECES
    assert pieces[0].startswith("0 1 2") and pieces[-1].endswith(" 199999")
