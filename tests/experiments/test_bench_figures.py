"""Figures of a bench, from what its runs have left."""

from __future__ import annotations

import numpy as np
from matplotlib.colors import to_rgb

from samekind.experiments.bench_figures import FRAME, framed
from samekind.experiments.figures import QUERY, WRONG


def test_a_query_has_a_blue_frame_and_what_is_of_another_class_a_red_one() -> None:
    canvas = framed(np.zeros((1, 3, 4, 4, 3), dtype=np.uint8), np.array([[1, 1, 2]]))
    side = 4 + 2 * FRAME
    assert canvas.shape == (side, 3 * side, 3)
    frames = [tuple(canvas[0, place * side]) for place in range(3)]
    assert frames == [to_rgb(QUERY), (1.0, 1.0, 1.0), to_rgb(WRONG)]
    assert canvas[FRAME, FRAME].tolist() == [0.0, 0.0, 0.0]


def test_grey_images_are_drawn_as_ink_and_colours_as_they_are() -> None:
    kinds = np.array([[1]])
    ink = framed(np.array([[[[0, 255]]]], dtype=np.uint8), kinds)
    assert ink[FRAME, FRAME].tolist() == [1.0] * 3 and ink[FRAME, FRAME + 1].tolist() == [0.0] * 3
    colour = framed(np.array([[[[[255, 0, 51]]]]], dtype=np.uint8), kinds)
    assert colour[FRAME, FRAME].tolist() == [1.0, 0.0, 0.2]
