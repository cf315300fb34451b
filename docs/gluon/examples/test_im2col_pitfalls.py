"""What the pitfalls of the documentation come to."""

import math

import im2col_pitfalls as pitfalls
import pytest
from test_tma_im2col import has_im2col

needs_gpu = pytest.mark.skipif(not has_im2col(), reason="needs a Hopper or data-center Blackwell GPU")


def test_corners_are_not_the_padding():
    assert pitfalls.corners_are_not_the_padding() == (16, 36)


@needs_gpu
def test_a_tap_before_the_base():
    assert pitfalls.a_tap_before_the_base() == [0, 0, 0, 0, 0, 1, 2, 3, 0, 5, 6, 7, 0, 9, 10, 11]


@needs_gpu
def test_a_block_past_the_end():
    assert pitfalls.a_block_past_the_end() == [16] + 15 * [0]


def test_a_flat_weight_matrix():
    flat, separate = pitfalls.a_flat_weight_matrix()
    assert math.isnan(flat) and separate == 4


@needs_gpu
def test_three_channels():
    assert pitfalls.three_channels() == "strides must be 16-byte aligned"
