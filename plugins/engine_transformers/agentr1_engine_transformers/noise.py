"""The random numbers of one request: a stream of its own, so that its tokens never depend on its neighbours.

The sampler asks for one standard exponential per vocabulary entry and sampled token. On the CPU they come from
numpy in float64, on another device from a torch generator there; the two streams differ.
"""

from __future__ import annotations

import numpy as np
import torch


class NoiseStream:
    """Exponential noise from one seed; ``None`` takes entropy from the operating system."""

    __slots__ = ("_device", "_host", "_seed")

    def __init__(self, seed: int | None) -> None:
        self._seed = seed
        self._host: np.random.Generator | None = None
        self._device: torch.Generator | None = None

    def fill(self, row: torch.Tensor) -> None:
        """Draw the next exponentials into ``row``, ``(n_vocab,)`` float64, in place."""
        if row.device.type == "cpu":
            if self._host is None:
                self._host = np.random.Generator(np.random.SFC64(_sequence(self._seed)))
            self._host.standard_exponential(out=row.numpy())
            return
        if self._device is None:
            self._device = torch.Generator(row.device)
            self._device.manual_seed(int(_sequence(self._seed).generate_state(1, np.uint64)[0] >> np.uint64(1)))
        row.exponential_(generator=self._device)


def _sequence(seed: int | None) -> np.random.SeedSequence:
    """A seed sequence; a negative seed is taken modulo 2**64, as torch does."""
    return np.random.SeedSequence(None if seed is None else seed % 2**64)
