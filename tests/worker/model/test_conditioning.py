"""What features add to the extra tokens of a frame."""

from dataclasses import replace
from fractions import Fraction

import pytest
import torch

from worker import features
from worker.config import DEMO_MODEL, TINY_MODEL
from worker.features import Features
from worker.model.conditioning import Conditioning
from worker.shapes import FULL_MODEL

LOUD = Features(audio=[1, -0.5, 0.25], control=[-1] * 16).packed()


def test_no_features_add_exactly_nothing() -> None:
    """A session without them is bit for bit what it was."""
    assert not Conditioning(TINY_MODEL).added(features.NONE).any()


def test_every_feature_has_a_say_of_its_own() -> None:
    """A column that is zero, or that of another feature, would be lost on the viewer."""
    subject = Conditioning(TINY_MODEL)
    columns = []
    for index in range(features.NUM_BYTES):
        packed = bytearray(features.NUM_BYTES)
        packed[index] = features.STEPS
        columns.append(subject.added(bytes(packed)).flatten())
    matrix = torch.stack(columns)
    assert torch.linalg.matrix_rank(matrix.double()) == features.NUM_BYTES


def test_the_sum_is_exact_so_that_any_order_gives_the_same_bits() -> None:
    """Ranks may multiply in other blocks than each other; against fractions, rounded once."""
    subject = Conditioning(TINY_MODEL)
    signed = [byte - 256 if byte > 127 else byte for byte in LOUD]
    matrix = subject._matrix_EDN.flatten(0, 1).tolist()
    exact = [
        sum(Fraction(weight) * value for weight, value in zip(row, signed, strict=True))
        for row in matrix
    ]
    # The total is a whole number, which float64 holds; what follows is one division and one cast.
    expected = torch.tensor([float(total) for total in exact], dtype=torch.float64)
    assert all(Fraction(float(total)) == total for total in exact)
    expected = (expected / (2.0**16 * 127)).to(torch.float32)
    assert torch.equal(subject.added(LOUD).flatten(), expected)


def test_loud_features_are_as_wide_as_what_they_are_added_to() -> None:
    """Much less and nobody sees them; much more and they are all there is."""
    added = Conditioning(FULL_MODEL).added(bytes([127] * features.NUM_BYTES))
    assert added.shape == (9, FULL_MODEL.width)
    # Weights of the extra tokens have the variance 1 / width.
    assert added.std().item() == pytest.approx(FULL_MODEL.width**-0.5, rel=0.05)


def test_a_model_without_extra_tokens_has_no_place_for_features() -> None:
    """It ignores them, as docs/viewer-protocol.md says."""
    assert Conditioning(DEMO_MODEL).added(LOUD).shape == (0, DEMO_MODEL.width)


def test_another_model_seed_is_another_projection() -> None:
    """As with all its weights."""
    other = replace(TINY_MODEL, seed=1)
    assert not torch.equal(Conditioning(other).added(LOUD), Conditioning(TINY_MODEL).added(LOUD))
