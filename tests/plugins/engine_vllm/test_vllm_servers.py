"""Several servers: where sessions go, what happens when one goes away, and how weights reach them all."""

import asyncio

import pytest

from agentr1_core.engine import SamplingParams, WeightSource
from agentr1_core.errors import ConfigError, EngineError
from agentr1_core.mdp import token_array
from agentr1_core.serving import ServerUnreachable
from agentr1_core.serving import engine as served

PROMPT = token_array([3, 4, 5])
GENERATE = "/inference/v1/generate"
SHORT = SamplingParams(max_tokens=2)


@pytest.fixture(autouse=True)
def _look_often(monkeypatch):
    monkeypatch.setattr(served, "LOOK_S", 0.05)


def calls_of(fake):
    return [body for body in fake.generations() if body["request_id"] != "agentr1-check"]


def test_a_session_stays_where_its_prefix_is_cached(fakes, on_servers):
    servers = fakes(2)

    async def work(engine):
        for _ in range(3):
            await asyncio.gather(*(engine.generate(PROMPT, SHORT, session=f"s{i}") for i in range(8)))
        homes = {}
        return homes

    on_servers(servers, work)
    assert [len(calls_of(server)) for server in servers] == [12, 12]


def test_another_server_answers_when_one_breaks_off(fakes, on_servers):
    broken, sound = servers = fakes(2)
    broken.on[GENERATE] = lambda body: (None, b"") if body["request_id"] != "agentr1-check" else None
    broken.on["/health"] = lambda body: (500, {}) if calls_of(broken) else None

    async def work(engine):
        found = await asyncio.gather(*(engine.generate(PROMPT, SHORT, session=f"s{i}") for i in range(6)))
        return found, await engine.health()

    found, health = on_servers(servers, work)
    assert all(one.token_ids.tolist() == [7, 7] for one in found)
    assert health.ready
    assert "1 of 2 servers" in health.detail
    assert broken.url in health.detail
    assert len(calls_of(sound)) == 6


def test_when_the_only_server_breaks_off_the_cause_is_told_and_later_calls_wait_for_it(fake, on_servers):
    ill = True
    fake.on[GENERATE] = lambda body: (None, b"") if ill and body["request_id"] != "agentr1-check" else None
    fake.on["/health"] = lambda body: (503, {}) if ill else None

    async def work(engine):
        nonlocal ill
        with pytest.raises(ServerUnreachable, match=fake.url):
            await engine.generate(PROMPT, SHORT)
        waiting = asyncio.create_task(engine.generate(PROMPT, SHORT))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        ill = False
        return await waiting

    assert on_servers([fake], work).token_ids.tolist() == [7, 7]


def test_waiting_for_a_server_has_an_end(fake, on_servers):
    fake.on[GENERATE] = lambda body: (None, b"") if body["request_id"] != "agentr1-check" else None
    fake.on["/health"] = lambda body: (503, {}) if calls_of(fake) else None

    async def work(engine):
        for _ in range(2):
            with pytest.raises(EngineError, match=fake.url):
                await engine.generate(PROMPT, SHORT)

    on_servers([fake], work, startup_timeout_s=0.3)


def test_closing_ends_what_waits(fake, on_servers):
    fake.on[GENERATE] = lambda body: fake.until_aborted(body) if body["request_id"] != "agentr1-check" else None

    async def work(engine):
        call = asyncio.create_task(engine.generate(PROMPT, SHORT))
        await asyncio.sleep(0.05)
        await engine.close()
        with pytest.raises(EngineError):
            await call
        with pytest.raises(EngineError, match="not running"):
            await engine.generate(PROMPT, SHORT)

    on_servers([fake], work)


def test_new_weights_are_loaded_between_a_pause_and_a_resume(fakes, on_servers, weights):
    servers = fakes(2)

    async def work(engine):
        await engine.update_weights(WeightSource("file", path=weights()), 5)
        return await engine.generate(PROMPT, SHORT), await engine.health()

    found, health = on_servers(servers, work)
    assert [span.version for span in found.version_spans] == [5]
    assert health.weight_version == 5
    for server in servers:
        routes = [path for path in server.paths() if path not in ("/health", GENERATE)][-5:]
        assert routes == ["/pause", "/collective_rpc", "/reset_prefix_cache", "/update_weight_version", "/resume"]
        queries = {path: query for path, query, _ in server.seen}
        assert queries["/pause"] == {"mode": "keep"}
        assert queries["/reset_prefix_cache"] == {"reset_running_requests": "true"}


def test_actions_may_finish_before_the_weights_change(fake, on_servers, weights):
    async def work(engine):
        await engine.update_weights(WeightSource("file", path=weights()), 5)

    on_servers([fake], work, on_update="finish")
    assert {path: query for path, query, _ in fake.seen}["/pause"] == {"mode": "wait"}


def test_nothing_is_sampled_while_weights_change_hands(fake, on_servers, weights):
    sampled_in_between = []

    def load(body):
        if body["method"] == "agentr1_load_weights":
            before = len(calls_of(fake))
            import time

            time.sleep(0.2)
            sampled_in_between.append(len(calls_of(fake)) - before)

    fake.on["/collective_rpc"] = load

    async def work(engine):
        update = asyncio.create_task(engine.update_weights(WeightSource("file", path=weights()), 1))
        await asyncio.sleep(0.05)
        found = await engine.generate(PROMPT, SHORT)
        await update
        return found

    assert [span.version for span in on_servers([fake], work).version_spans] == [1]
    assert sampled_in_between == [0]


def test_a_cache_that_is_not_dropped_is_an_error(fake, on_servers, weights, monkeypatch):
    from agentr1_engine_vllm import sync

    monkeypatch.setattr(sync, "_RESET_WAIT_S", 0.001)
    fake.on["/reset_prefix_cache"] = (200, {"success": False})

    async def work(engine):
        with pytest.raises(EngineError, match="cached prefixes"):
            await engine.update_weights(WeightSource("file", path=weights()), 1)
        assert not engine._fleet.up  # it has weights that nobody knows

    on_servers([fake], work)
    assert fake.paths()[-1] in ("/resume", "/health")
    assert "/abort_requests" in fake.paths()


def test_a_server_that_was_away_gets_the_weights_it_missed(fakes, on_servers, weights):
    away, sound = servers = fakes(2)
    ill = False
    away.on["/pause"] = lambda body: (None, b"") if ill else None
    away.on["/health"] = lambda body: (503, {}) if ill else None

    async def work(engine):
        nonlocal ill
        ill = True
        await engine.update_weights(WeightSource("file", path=weights()), 1)
        assert len(engine._fleet.up) == 1
        labels = (away.label, sound.label)
        ill = False
        while len(engine._fleet.up) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return labels

    assert on_servers(servers, work) == ("default", "1")
    assert away.label == "1"


@pytest.mark.parametrize("source", [WeightSource("state_dict", tensors={}), WeightSource("file")])
def test_weights_that_cannot_be_taken_are_refused(fake, on_servers, source):
    async def work(engine):
        with pytest.raises(EngineError):
            await engine.update_weights(source, 1)
        return await engine.generate(PROMPT, SHORT)

    assert [span.version for span in on_servers([fake], work).version_spans] == [0]


def test_processes_share_the_servers_out_among_themselves(fakes, on_servers, monkeypatch):
    servers = fakes(2)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")

    async def work(engine):
        await engine.generate(PROMPT, SHORT)

    on_servers(servers, work)
    assert [len(calls_of(server)) for server in servers] == [0, 1]
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(ConfigError, match="2 servers for 3"):
        on_servers(servers, work)
