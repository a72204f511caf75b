"""A TRL GRPO script, and the same script with step-level rollouts: the two functions below differ in four lines.

Runs on a CPU in seconds, with a tiny model made on the spot and nothing from a hub:

    python examples/trl_existing_script.py                # plain TRL: one answer to each prompt
    python examples/trl_existing_script.py --step-level   # three turns; the environment rewrites the context
"""

from __future__ import annotations

import argparse
import tempfile

import torch
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig

from agentr1_core.env import AgentEnv


class ThreeTurns(AgentEnv):
    """Say vowels, three times; after each turn the model sees only how many it has said so far."""

    async def reset(self, task):
        self.task, self.turns, self.found = task, 0, 0
        return task.prompt

    async def step(self, action):
        self.turns += 1
        self.found += vowels(action.text)
        shown = (*self.task.prompt, {"role": "user", "content": f"so far {self.found}"})
        return shown, None, self.turns == 3, False, {}


def vowels(text):
    return sum(letter in "aeiou" for letter in text)


def reward(completions, **kwargs):
    """Vowels for each message of the model: TRL gives one message, a step-level episode all of them."""
    said = [[message["content"] for message in messages if message["role"] == "assistant"] for messages in completions]
    return [sum(map(vowels, texts)) / len(texts) for texts in said]


def train_plain(model, tokenizer, dataset, config):
    from trl import GRPOTrainer

    trainer = GRPOTrainer(
        model=model,
        reward_funcs=reward,
        args=config,
        train_dataset=dataset,
        processing_class=tokenizer,
    )
    trainer.train()
    return trainer


def train_step_level(model, tokenizer, dataset, config):
    from agentr1_backend_trl import StepGRPOTrainer

    trainer = StepGRPOTrainer(
        model=model,
        reward_funcs=reward,
        args=config,
        train_dataset=dataset,
        processing_class=tokenizer,
        env=ThreeTurns,
    )
    trainer.train()
    return trainer


def tiny_model():
    """A character-level tokenizer with a chat template, and a fresh model of a few thousand parameters."""
    torch.manual_seed(0)
    specials = ["<p>", "<s>", "</s>"]  # padding, and where a message starts and ends
    letters = [*"abcdefghijklmnopqrstuvwxyz0123456789", "Ġ", "Ċ"]
    raw = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate([*specials, *letters])}, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    raw.add_special_tokens(specials)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="</s>", pad_token="<p>")
    tokenizer.chat_template = (
        "{% for m in messages %}<s>{{ m['role'] }}\n{{ m['content'] }}</s>\n{% endfor %}"
        "{% if add_generation_prompt %}<s>assistant\n{% endif %}"
    )
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=256,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return Qwen2ForCausalLM(config), tokenizer


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--step-level", action="store_true", help="train on transitions instead of single answers")
    parser.add_argument("--updates", type=int, default=20)
    options = parser.parse_args()
    model, tokenizer = tiny_model()
    prompts = [[{"role": "user", "content": f"say vowels {i}"}] for i in range(16)]
    dataset = Dataset.from_dict({"prompt": prompts})
    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=32,
            num_generations=8,
            max_completion_length=8,
            max_steps=options.updates,
            learning_rate=1e-2,
            logging_steps=1,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
            bf16=False,
            gradient_checkpointing=False,
            use_cpu=True,
        )
        train = train_step_level if options.step_level else train_plain
        trainer = train(model, tokenizer, dataset, config)
    rewards = [entry["reward"] for entry in trainer.state.log_history if "reward" in entry]
    print(f"vowels in an answer: {rewards[0]:.2f} in the first update, {rewards[-1]:.2f} in the last")


if __name__ == "__main__":
    main()
