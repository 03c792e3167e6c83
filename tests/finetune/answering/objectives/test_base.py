"""Maps between widths."""

import numpy as np

from inbedder_finetune.answering.objectives.base import make_orthonormal_map


def test_a_map_between_widths_is_orthonormal():
    assert np.abs(make_orthonormal_map(4, 9) @ make_orthonormal_map(4, 9).T - np.eye(4)).max() < 1e-6
    assert np.abs(make_orthonormal_map(9, 4).T @ make_orthonormal_map(9, 4) - np.eye(4)).max() < 1e-6
