"""The ratio that corrects for an engine of another opinion; a sequence is one step's action."""

from types import SimpleNamespace

import pytest
import torch

from agentr1_backend_trl.importance import ImportanceCorrection
from agentr1_core.errors import ConfigError

TRAINER = torch.tensor([[-1.0, -1.0, -2.0, -5.0, -1.0]])
ENGINE = torch.tensor([[-1.0, -2.0, -1.0, 0.0, -3.0]])
MASK = torch.tensor([[1, 1, 1, 0, 1]])  # the fourth token is the environment's
SPANS = torch.tensor([[0, 0, 0, -1, 1]])
E = torch.e


@pytest.mark.parametrize(
    ("mode", "wanted"),
    [
        ("token_truncate", [1, 2.5, 1 / E, 1, 2.5]),
        ("token_mask", [1, 0, 1 / E, 1, 0]),
        ("sequence_truncate", [1, 1, 1, 1, 2.5]),  # step 0: 0 + 1 - 1 = 0; step 1: 2
        ("sequence_mask", [1, 1, 1, 1, 0]),
    ],
)
def test_modes(mode, wanted):
    ratio = ImportanceCorrection(mode, clip_max=2.5).ratio(TRAINER, ENGINE, MASK, SPANS)
    assert ratio[0].tolist() == pytest.approx([float(value) for value in wanted])


def test_merging_rows_does_not_change_a_sequence_ratio():
    correction = ImportanceCorrection("sequence_truncate", clip_max=100.0)
    merged = correction.ratio(TRAINER, ENGINE, MASK, SPANS)
    alone = correction.ratio(TRAINER[:, :3], ENGINE[:, :3], MASK[:, :3], SPANS[:, :3])
    assert merged[:, :3].tolist() == alone.tolist()


def test_settings_of_trl_are_kept():
    args = SimpleNamespace(
        vllm_importance_sampling_correction=True,
        vllm_importance_sampling_mode="token_mask",
        vllm_importance_sampling_clip_max=3.0,
        vllm_importance_sampling_clip_min=None,
    )
    assert ImportanceCorrection.from_args(args, None) == ImportanceCorrection("token_mask", 3.0, 0.0)
    assert ImportanceCorrection.from_args(args, 1.5) == ImportanceCorrection("token_truncate", 1.5)
    args.vllm_importance_sampling_correction = False
    assert ImportanceCorrection.from_args(args, None) is None
    with pytest.raises(ConfigError, match="importance_cap"):
        ImportanceCorrection.from_args(args, 0.0)
