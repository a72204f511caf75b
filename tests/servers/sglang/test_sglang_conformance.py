"""The checks that every engine passes, on a server that runs already."""

import pytest

from agentr1_core.testing.engine_kit import EngineKit
from agentr1_engine_sglang import SGLangEngine


class TestSGLang(EngineKit):
    @pytest.fixture(autouse=True, scope="class")
    def _server(self, request, address):
        url, token = address
        request.cls.url = url
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AGENTR1_SGLANG_TOKEN", token)
            yield

    def make_engine(self):
        return SGLangEngine(SGLangEngine.Settings(urls=(self.url,)))
