"""GPU memory is given back while nothing is sampled, and taken again before anything is."""

import asyncio
import time
from types import SimpleNamespace

import pytest

from agentr1_core.engine import SamplingParams, WeightSource
from agentr1_core.errors import EngineError
from agentr1_core.mdp import token_array
from agentr1_engine_sglang import memory
from agentr1_engine_sglang.memory import Memory

PROMPT = token_array([3, 4, 5])
SHORT = SamplingParams(max_tokens=2)
RELEASE, RESUME = "/release_memory_occupation", "/resume_memory_occupation"


@pytest.fixture
def colocated(on_servers):
    """As ``on_servers``, with an engine that thinks that it started the server itself."""

    def play(servers, work):
        async def with_memory(engine):
            engine._memory, engine._managed = Memory(10.0), SimpleNamespace(restarts=0, stop=stop, runs=True)
            return await work(engine)

        return on_servers(servers, with_memory)

    async def stop():
        pass

    return play


def about_memory(fake):
    return [path for path in fake.paths() if path in (RELEASE, RESUME, "/generate")][-4:]


def test_it_is_given_back_once_and_taken_again_once(fake, colocated):
    async def work(engine):
        await engine.rest()
        await engine.rest()
        await asyncio.gather(*(engine.generate(PROMPT, SHORT) for _ in range(2)))

    colocated([fake], work)
    assert about_memory(fake) == [RELEASE, RESUME, "/generate", "/generate"]


def test_nothing_is_sampled_before_the_memory_is_there_again(fake, colocated):
    sampled_too_early = []

    def resume(body):
        time.sleep(0.3)
        sampled_too_early.extend(fake.calls())
        return 200, {}

    async def work(engine):
        await engine.rest()
        fake.on[RESUME] = resume
        await asyncio.gather(*(engine.generate(PROMPT, SHORT) for _ in range(4)))

    colocated([fake], work)
    assert not sampled_too_early
    assert len(fake.calls()) == 4


def test_memory_that_could_not_be_taken_is_asked_for_again(fake, colocated):
    async def work(engine):
        await engine.rest()
        fake.on[RESUME] = (500, {"message": "out of memory"})
        with pytest.raises(EngineError, match="out of memory"):
            await engine.generate(PROMPT, SHORT)
        del fake.on[RESUME]
        await engine.generate(PROMPT, SHORT)

    colocated([fake], work)
    assert about_memory(fake) == [RELEASE, RESUME, RESUME, "/generate"]


def test_weights_are_loaded_into_memory_that_was_taken_again(fake, colocated, weights):
    async def work(engine):
        await engine.rest()
        await engine.update_weights(WeightSource("file", path=weights()), 1)

    colocated([fake], work)
    paths = fake.paths()
    assert paths.index(RELEASE) < paths.index(RESUME) < paths.index("/update_weights_from_disk")


def test_a_server_that_was_started_again_has_its_memory(fake, colocated):
    async def work(engine):
        await engine.rest()
        engine._managed.restarts = 1
        await engine.generate(PROMPT, SHORT)

    colocated([fake], work)
    assert RESUME not in fake.paths()


def test_a_server_that_samples_is_left_alone(fake, colocated, monkeypatch):
    monkeypatch.setattr(memory, "_IDLE_WAIT_S", 0.001)
    fake.on["/flush_cache"] = (400, {"message": "there are running requests"})

    async def work(engine):
        with pytest.raises(EngineError, match="still sampling"):
            await engine.rest()

    colocated([fake], work)
    assert RELEASE not in fake.paths()


def test_without_the_setting_nothing_is_given_back(fake, on_servers):
    async def work(engine):
        await engine.rest()

    on_servers([fake], work)
    assert RELEASE not in fake.paths()
