"""The checks that every engine passes that answers in text."""

import pytest

from agentr1_core.errors import PluginError
from agentr1_core.testing.chat_engine_kit import ChatEngineKit
from agentr1_core.testing.installed_offer import kits_of
from agentr1_engine_openai import OpenAIEngine


class TestOpenAI(ChatEngineKit):
    @pytest.fixture(autouse=True, scope="class")
    def _service(self, request, lasting_service):
        request.cls.url = lasting_service.url

    def make_engine(self):
        return OpenAIEngine(OpenAIEngine.Settings(model="tiny", base_url=self.url))


def test_by_name_it_gets_the_kit_for_text(tmp_path, service):
    path = tmp_path / "run.yaml"
    path.write_text(f"engine: {{name: openai, model: tiny, base_url: '{service.url}'}}\n")

    (kit,) = kits_of(["engine:openai"], str(path)).values()

    assert issubclass(kit, ChatEngineKit)
    assert kit().make_engine().settings.base_url == service.url
    path.write_text("engine: transformers\n")
    with pytest.raises(PluginError, match="plays with the engine 'transformers'"):
        kits_of(["engine:openai"], str(path))
