"""The committed drawings are what the script draws."""

import pathlib

import draw_im2col
import pytest


@pytest.mark.parametrize("name", draw_im2col.FIGURES)
def test_drawings_are_up_to_date(name, tmp_path):
    draw_im2col.main(tmp_path)
    committed = pathlib.Path(draw_im2col.__file__).with_name(f"{name}.svg")
    assert (tmp_path / f"{name}.svg").read_text() == committed.read_text(), "run make figures"
