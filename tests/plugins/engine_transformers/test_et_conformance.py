"""The checks that every engine passes: one engine that shares a model, one that loaded its own."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from agentr1_core.engine import WeightSource
from agentr1_core.testing.engine_kit import EngineKit
from agentr1_engine_transformers import TransformersEngine


class WithReference(EngineKit):
    """The kit with one forward of the model itself for a reference."""

    def reference_logprobs(self, prompt_ids, token_ids, sampling):
        ids = torch.from_numpy(np.concatenate([prompt_ids, token_ids])).long()
        with torch.no_grad():
            logits = self.model(input_ids=ids[None], use_cache=False).logits[0, len(prompt_ids) - 1 : -1]
        scored = torch.log_softmax(logits.float() / sampling.temperature, -1)
        return scored.gather(1, ids[len(prompt_ids) :, None])[:, 0].numpy()


class TestSharedModel(WithReference):
    @pytest.fixture(autouse=True, scope="class")
    def _model(self, request, tiny_of_session):
        request.cls.model = tiny_of_session("qwen2")

    def make_engine(self):
        return TransformersEngine.sharing(self.model)


class TestOwnModel(WithReference):
    @pytest.fixture(autouse=True, scope="class")
    def _folder(self, request, tiny_of_session, tmp_path_factory):
        request.cls.model = tiny_of_session("gpt2")
        request.cls.folder = tmp_path_factory.mktemp("model")
        request.cls.model.save_pretrained(request.cls.folder)

    def new_weights(self):
        return WeightSource("file", path=self.folder)

    def make_engine(self):
        return TransformersEngine(TransformersEngine.Settings(model=str(self.folder), device="cpu"))


class TestRecurrentModel(WithReference):
    @pytest.fixture(autouse=True, scope="class")
    def _model(self, request, tiny_of_session):
        request.cls.model = tiny_of_session("mamba")

    def make_engine(self):
        return TransformersEngine.sharing(self.model, settings=TransformersEngine.Settings(max_context=128))
