"""A draw that vLLM throws away on CPU leaves the generator where it was."""

from types import SimpleNamespace

import numpy as np
import torch

from agentr1_engine_vllm.server.cpu_seeds import rewind_thrown_away_draws


def runner_class():
    class Runner:
        """Draws one number a request; its books wind generators back as vLLM's do, which CPU generators refuse."""

        def __init__(self, thrown_away):
            generators = {i: torch.Generator().manual_seed(i) for i in range(len(thrown_away))}
            self.input_batch = SimpleNamespace(num_reqs=len(thrown_away), generators=generators)
            self.discard_request_mask = SimpleNamespace(np=np.array(thrown_away))

        def _sample(self):
            return [torch.rand(1, generator=one).item() for _, one in sorted(self.input_batch.generators.items())]

        def _bookkeeping_sync(self):
            for index in np.nonzero(self.discard_request_mask.np)[0]:
                generator = self.input_batch.generators.get(int(index))
                if generator is not None:
                    generator.set_offset(generator.get_offset() - 4)

    return Runner


def test_vllm_a_thrown_away_draw_does_not_count():
    kind = runner_class()
    assert rewind_thrown_away_draws(kind)
    assert rewind_thrown_away_draws(kind)  # twice is harmless
    runner = kind([True, False])
    first = runner._sample()
    runner._bookkeeping_sync()
    runner.discard_request_mask.np[:] = False
    second = runner._sample()
    assert second[0] == first[0]
    assert second[1] != first[1]
    assert sorted(runner.input_batch.generators) == [0, 1]


def test_vllm_a_runner_without_these_methods_is_left_alone():
    assert not rewind_thrown_away_draws(SimpleNamespace)
