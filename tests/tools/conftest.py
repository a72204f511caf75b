"""Indexes that tests build go where tests belong."""

import pytest


@pytest.fixture(autouse=True)
def cache_of_the_test(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
