"""One real SGLang server for all tests here, in an environment of its own; tests talk to it over HTTP.

Run them with ``make test-sglang``, which makes that environment. The models come from ../conftest.py; ``cpu_shim``
stands in for what SGLang lacks without a GPU.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from agentr1_core.blocking import BlockingLoop
from agentr1_core.engine import WeightSource
from agentr1_engine_sglang import SGLangEngine

ROOT = Path(__file__).parents[3]
PYTHON = Path(os.environ.get("AGENTR1_SGLANG_PYTHON", ROOT / ".venvs" / "sglang" / "bin" / "python"))
SHIM = Path(__file__).parent / "cpu_shim"
collect_ignore = ["cpu_shim"]  # it is for the server's interpreter


@pytest.fixture(scope="session")
def served(base, tmp_path_factory):
    """The event loop and the engine that started the server."""
    assert PYTHON.exists(), f"{PYTHON} is missing: run `make test-sglang`"
    loop = BlockingLoop()
    engine = SGLangEngine(
        SGLangEngine.Settings(
            model=str(base),
            python=PYTHON,
            device="cpu",
            dtype="float32",
            threads=1,
            env={"PYTHONPATH": str(SHIM), "HF_HUB_OFFLINE": "1"},
            extra_args=("--max-running-requests", "64"),
            startup_timeout_s=1200,
            run_dir=tmp_path_factory.mktemp("run"),
        )
    )
    loop.run(engine.start())
    yield loop, engine
    loop.run(engine.close())
    loop.close()


@pytest.fixture
def engine(served, run, base):
    """The engine with the weights of ``base`` as version 0."""
    run(served[1].update_weights(WeightSource("file", path=base), 0))
    return served[1]


@pytest.fixture(scope="session")
def address(served):
    """URL and token of the server, for engines that use one that runs already."""
    (member,) = served[1]._fleet.members
    return member.client.url, member.client._http.headers["Authorization"].removeprefix("Bearer ")


@pytest.fixture
def on_server(address, run, monkeypatch):
    """``on_server(work, **settings)``: what ``work(engine)`` returns, with another engine on the running server."""
    url, token = address
    monkeypatch.setenv("AGENTR1_SGLANG_TOKEN", token)

    def play(work, **settings):
        async def main():
            engine = SGLangEngine(SGLangEngine.Settings(urls=(url,), **settings))
            try:
                await engine.start()
                return await work(engine)
            finally:
                await engine.close()

        return run(main())

    return play


@pytest.fixture(scope="session")
def filtered():
    """Temperature, then top-k, top-p and min-p, each of the whole distribution, as SGLang joins them."""

    def left(logits, sampling):
        probs = torch.softmax(logits / sampling.temperature, -1)
        ordered, order = probs.sort(-1, descending=True)
        rank = torch.arange(probs.shape[-1])
        keep = (ordered.cumsum(-1) - ordered <= sampling.top_p) & (ordered >= sampling.min_p * ordered[:, :1])
        if sampling.top_k:
            keep &= rank < sampling.top_k
        kept = torch.zeros_like(keep).scatter(-1, order, keep)
        return probs.log().masked_fill(~kept, -torch.inf)

    return left
