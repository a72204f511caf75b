"""The checks that every engine passes that answers in text."""

import pytest

from agentr1_core.testing.chat_engine_kit import ChatEngineKit
from agentr1_engine_openai import OpenAIEngine


class TestOpenAI(ChatEngineKit):
    @pytest.fixture(autouse=True, scope="class")
    def _service(self, request, lasting_service):
        request.cls.url = lasting_service.url

    def make_engine(self):
        return OpenAIEngine(OpenAIEngine.Settings(model="tiny", base_url=self.url))
