"""The checks that every engine passes: one engine that shares a model, one that loaded its own."""

from __future__ import annotations

import pytest

from agentr1_core.testing.engine_kit import EngineKit
from agentr1_engine_transformers import TransformersEngine


class TestSharedModel(EngineKit):
    @pytest.fixture(autouse=True, scope="class")
    def _model(self, request, tiny_of_session):
        request.cls.model = tiny_of_session("qwen2")

    def make_engine(self):
        return TransformersEngine.sharing(self.model)


class TestOwnModel(EngineKit):
    @pytest.fixture(autouse=True, scope="class")
    def _folder(self, request, tiny_of_session, tmp_path_factory):
        request.cls.folder = tmp_path_factory.mktemp("model")
        tiny_of_session("gpt2").save_pretrained(request.cls.folder)

    def make_engine(self):
        return TransformersEngine(TransformersEngine.Settings(model=str(self.folder), device="cpu"))


class TestRecurrentModel(EngineKit):
    @pytest.fixture(autouse=True, scope="class")
    def _model(self, request, tiny_of_session):
        request.cls.model = tiny_of_session("mamba")

    def make_engine(self):
        return TransformersEngine.sharing(self.model, settings=TransformersEngine.Settings(max_context=128))
