"""A tiny chat model, an environment that rewrites its context, and trainers around them; nothing comes from a hub."""

import os

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest
import torch
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig

from agentr1_backend_trl.trainer import StepGRPOTrainer
from agentr1_core.env import AgentEnv
from agentr1_core.episode import RolloutLimits

torch.set_num_threads(1)  # more threads only get in each other's way with a model this small

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(autouse=True, scope="module")
def denormals_are_zero():
    """Saturated softmaxes give denormal gradients, which CPUs handle several times slower."""
    torch.set_flush_denormal(True)
    yield
    torch.set_flush_denormal(False)  # hypothesis checks that floats are whole


def build_tokenizer():
    specials = ["<|pad|>", "<|im_start|>", "<|im_end|>"]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: number for number, token in enumerate([*specials, *letters])}
    raw = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    raw.decoder = decoders.ByteLevel()
    raw.add_special_tokens(specials)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<|im_end|>", pad_token="<|pad|>")
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def build_model(seed=0, hidden=32):
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=264,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=2,
        pad_token_id=0,
    )
    return Qwen2ForCausalLM(config)


class Walk(AgentEnv):
    """Episodes of different length; each turn is rewarded by how many letters ``a`` to ``m`` were said.

    ``append=False`` shows only the last answer, so that every turn is a row of its own.
    """

    def __init__(self, turns=3, append=False, reward=True):
        self.turns, self.append, self.reward = turns, append, reward

    async def reset(self, task):
        self.messages = [{"role": "user", "content": f"go {task.get('n', 0)}"}]
        self.taken = 0
        return tuple(self.messages)

    async def step(self, action):
        self.taken += 1
        self.messages = [*self.messages, action.message, {"role": "user", "content": f"turn {self.taken}"}]
        said = action.text
        value = sum("a" <= letter <= "m" for letter in said) / 4 if self.reward else None
        last = self.taken >= self.turns or said[:1] in ("z", "q")
        shown = tuple(self.messages) if self.append else ({"role": "user", "content": f"turn {self.taken}: {said}"},)
        return None if last else shown, value, last, False, {}


def rows(n=8, **env_kwargs):
    return Dataset.from_list([{"n": i, "env_kwargs": {"turns": 1 + i % 3, **env_kwargs}} for i in range(n)])


def config_for(folder, **changes):
    settings = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 8,
        "gradient_accumulation_steps": 1,
        "num_generations": 4,
        "max_completion_length": 6,
        "learning_rate": 1e-3,
        "max_steps": 2,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "bf16": False,
        "use_cpu": True,
        "gradient_checkpointing": False,
        "disable_tqdm": True,
        "seed": 3,
        "lr_scheduler_type": "constant",
        **changes,
    }
    return GRPOConfig(**settings)


@pytest.fixture
def make_trainer(tmp_path):
    """Build a trainer on the tiny model; ``config`` are changes to its ``GRPOConfig``."""

    def make(config=None, *, model=None, dataset=None, **arguments):
        if not {"env", "flow", "tools"} & set(arguments):
            arguments["env"] = Walk
        return StepGRPOTrainer(
            model or build_model(),
            args=config_for(tmp_path / "out", **(config or {})),
            train_dataset=rows() if dataset is None else dataset,
            processing_class=build_tokenizer(),
            limits=RolloutLimits(max_steps=4),
            **arguments,
        )

    return make


@pytest.fixture
def tiny():
    """The builders themselves."""

    class Builders:
        model = staticmethod(build_model)
        tokenizer = staticmethod(build_tokenizer)
        config = staticmethod(config_for)
        dataset = staticmethod(rows)
        env = Walk

    return Builders
