"""Several servers: what happens when one goes away, how weights reach them all, and a router in front of them."""

import asyncio
import time

import pytest

from agentr1_core.engine import SamplingParams, WeightSource
from agentr1_core.errors import EngineError
from agentr1_core.mdp import FinishReason, token_array
from agentr1_core.serving import ServerFault, ServerUnreachable
from agentr1_core.serving import engine as served

PROMPT = token_array([3, 4, 5])
GENERATE = "/generate"
SHORT = SamplingParams(max_tokens=2)
DISK = "/update_weights_from_disk"


@pytest.fixture(autouse=True)
def _look_often(monkeypatch):
    monkeypatch.setattr(served, "LOOK_S", 0.05)


def is_call(body):
    return body["rid"] != "agentr1-check"


def test_another_server_answers_when_one_breaks_off(fakes, on_servers):
    broken, sound = servers = fakes(2)
    broken.on[GENERATE] = lambda body: (None, b"") if is_call(body) else None
    broken.on["/model_info"] = lambda body: (500, {}) if broken.calls() else None

    async def work(engine):
        found = await asyncio.gather(*(engine.generate(PROMPT, SHORT, session=f"s{i}") for i in range(6)))
        return found, await engine.health()

    found, health = on_servers(servers, work)
    assert all(one.token_ids.tolist() == [7, 7] for one in found)
    assert health.ready
    assert "1 of 2 servers" in health.detail
    assert broken.url in health.detail
    assert len(sound.calls()) == 6


def test_when_the_only_server_breaks_off_the_cause_is_told_and_later_calls_wait_for_it(fake, on_servers):
    ill = True
    fake.on[GENERATE] = lambda body: (None, b"") if ill and is_call(body) else None
    fake.on["/model_info"] = lambda body: (503, {}) if ill and fake.calls() else None

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


def test_new_weights_are_loaded_between_a_pause_and_its_end(fakes, on_servers, weights):
    servers = fakes(2)

    async def work(engine):
        await engine.update_weights(WeightSource("file", path=weights()), 5)
        return await engine.generate(PROMPT, SHORT), await engine.health()

    found, health = on_servers(servers, work)
    assert [span.version for span in found.version_spans] == [5]
    assert health.weight_version == 5
    for server in servers:
        paths = server.paths()
        begin = paths.index("/pause_generation")
        assert paths[begin : begin + 4] == ["/pause_generation", DISK, "/model_info", "/continue_generation"]
        bodies = dict(server.seen)
        assert bodies["/pause_generation"] == {"mode": "retract"}  # never `in_place`
        assert bodies[DISK]["flush_cache"] is True
        assert bodies[DISK]["weight_version"] == "5"


def test_actions_may_finish_before_the_weights_change(fake, on_servers, weights):
    async def work(engine):
        await engine.update_weights(WeightSource("file", path=weights()), 5)

    on_servers([fake], work, on_update="finish")
    assert DISK in fake.paths()
    assert "/pause_generation" not in fake.paths()


@pytest.mark.parametrize(
    ("path", "answer", "words"),
    [
        (DISK, (400, {"success": False, "message": "Failed to get weights iterator"}), "Failed to get weights"),
        (DISK, (200, {"success": False, "message": "the cache could not be flushed"}), "could not be flushed"),
        (DISK, (200, None), "could not load"),
    ],
)
def test_weights_that_a_server_cannot_load_are_an_error_and_nothing_goes_on_under_them(
    fake, on_servers, weights, path, answer, words
):
    fake.on[path] = answer

    async def work(engine):
        with pytest.raises(EngineError, match=words):
            await engine.update_weights(WeightSource("file", path=weights()), 1)
        assert not engine._fleet.up  # it has weights that nobody knows

    on_servers([fake], work)
    assert ("/abort_request", {"abort_all": True}) in fake.seen
    assert fake.paths().index("/abort_request") < fake.paths().index("/continue_generation")


def test_a_server_that_says_other_weights_than_it_was_given_is_not_used(fake, on_servers, weights):
    fake.on["/model_info"] = lambda body: (200, {"is_generation": True, "weight_version": "0"})

    async def work(engine):
        with pytest.raises(EngineError, match="says that it has weights '0' after an update to 1"):
            await engine.update_weights(WeightSource("file", path=weights()), 1)
        assert not engine._fleet.up

    on_servers([fake], work)


def test_weights_of_another_shape_never_reach_the_server(fake, on_servers, weights):
    async def work(engine):
        await engine.update_weights(WeightSource("file", path=weights()), 1)
        with pytest.raises(EngineError, match=r"'embed' in the shape \(4, 3\); the model has it in \(2, 3\)"):
            await engine.update_weights(WeightSource("file", path=weights((4, 3))), 2)

    on_servers([fake], work)
    assert fake.paths().count(DISK) == 1


def test_a_file_that_is_no_safetensors_is_refused(fake, on_servers, tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"weights")

    async def work(engine):
        with pytest.raises(EngineError, match="no safetensors file"):
            await engine.update_weights(WeightSource("file", path=tmp_path), 1)

    on_servers([fake], work)


@pytest.mark.parametrize("fault", ["cancelled", "other"])
def test_a_server_whose_update_was_broken_off_is_not_used_until_it_has_the_weights(
    fake, on_servers, weights, monkeypatch, fault
):
    begun, held = asyncio.Event(), True

    async def work(engine):
        nonlocal held
        push = engine.push

        async def broken(client, kept):
            begun.set()
            if held and fault == "other":
                raise RuntimeError("out of memory")
            await (asyncio.sleep(60) if held else push(client, kept))

        monkeypatch.setattr(engine, "push", broken)
        update = asyncio.create_task(engine.update_weights(WeightSource("file", path=weights()), 1))
        await begun.wait()
        if fault == "cancelled":
            update.cancel()
        with pytest.raises((asyncio.CancelledError, RuntimeError)):
            await update
        assert not engine._fleet.up
        held = False
        return await engine.generate(PROMPT, SHORT)

    assert [span.version for span in on_servers([fake], work).version_spans] == [1]


def test_a_server_that_was_away_gets_the_weights_it_missed(fakes, on_servers, weights):
    away, sound = servers = fakes(2)
    ill = False
    away.on["/pause_generation"] = lambda body: (None, b"") if ill else None
    away.on["/abort_request"] = away.on["/continue_generation"] = lambda body: (None, b"") if ill else None
    away.on["/model_info"] = lambda body: (503, {}) if ill else None

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


TENSORS = {"embed": (2, 3), "head": (2, 3)}


@pytest.fixture
def tensors():
    import torch

    return {name: torch.zeros(shape) for name, shape in TENSORS.items()}


def test_tensors_travel_within_a_session_of_their_own(fake, on_servers, tensors):
    async def work(engine):
        await engine.update_weights(WeightSource("state_dict", tensors=tensors), 3)

    on_servers([fake], work, weight_sync="tensors")
    begin = fake.paths().index("/pause_generation")
    assert fake.paths()[begin + 1 : begin + 4] == [
        "/begin_weight_update",
        "/update_weights_from_tensor",
        "/end_weight_update",
    ]


def test_older_servers_take_tensors_without_a_session(fake, on_servers, tensors):
    fake.on["/begin_weight_update"] = fake.on["/end_weight_update"] = (404, {"detail": "Not Found"})

    async def work(engine):
        await engine.update_weights(WeightSource("state_dict", tensors=tensors), 3)

    on_servers([fake], work, weight_sync="tensors")
    assert "/update_weights_from_tensor" in fake.paths()
    assert "/end_weight_update" not in fake.paths()
    assert fake.label == "3"


def test_a_session_is_closed_when_its_weights_are_refused(fake, on_servers, tensors):
    fake.on["/update_weights_from_tensor"] = (400, {"success": False, "message": "no such parameter"})

    async def work(engine):
        with pytest.raises(EngineError, match="no such parameter"):
            await engine.update_weights(WeightSource("state_dict", tensors=tensors), 3)

    on_servers([fake], work, weight_sync="tensors")
    assert "/end_weight_update" in fake.paths()


def test_a_server_that_refuses_the_group_is_not_waited_for(fake, on_servers, tensors):
    fake.on["/init_weights_update_group"] = (400, {"success": False, "message": "no backend"})

    async def work(engine):
        with pytest.raises(EngineError, match="no backend"):
            await engine.update_weights(WeightSource("state_dict", tensors=tensors), 3)

    on_servers([fake], work, weight_sync="broadcast")


@pytest.mark.parametrize("source", [WeightSource("state_dict", tensors={}), WeightSource("file"), WeightSource("live")])
def test_weights_that_cannot_be_taken_are_refused(fake, on_servers, source):
    async def work(engine):
        with pytest.raises(EngineError):
            await engine.update_weights(source, 1)
        return await engine.generate(PROMPT, SHORT)

    assert [span.version for span in on_servers([fake], work).version_spans] == [0]


def test_actions_go_through_the_router_and_weights_to_the_servers(fakes, on_servers, weights):
    first, second, router = fakes(3)

    async def work(engine):
        await asyncio.gather(*(engine.generate(PROMPT, SHORT, session=f"s{i}") for i in range(4)))
        await engine.update_weights(WeightSource("file", path=weights()), 1)

    on_servers([first, second], work, router=router.url)
    assert [len(one.calls()) for one in (first, second, router)] == [0, 0, 4]
    assert [one.paths().count(DISK) for one in (first, second, router)] == [1, 1, 0]


def test_an_abort_behind_a_router_is_told_to_every_server(fakes, on_servers):
    first, second, router = fakes(3)

    def wait(body):
        if is_call(body):
            until = time.monotonic() + 10
            while not all(body["rid"] in one.aborted for one in (first, second)) and time.monotonic() < until:
                time.sleep(0.01)
            router.aborted.add(body["rid"])
            return router.until_aborted(body)
        return None

    router.on[GENERATE] = wait

    async def work(engine):
        call = asyncio.create_task(engine.generate(PROMPT, SamplingParams(max_tokens=50), session="mine"))
        while not router.calls():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await engine.abort("mine")
        return await call

    assert on_servers([first, second], work, router=router.url).finish_reason is FinishReason.ABORT


def test_a_server_behind_a_router_that_is_gone_keeps_no_abort_from_the_others(fakes, on_servers):
    gone, sound, router = fakes(3)

    def wait(body):
        if is_call(body):
            until = time.monotonic() + 10
            while body["rid"] not in sound.aborted and time.monotonic() < until:
                time.sleep(0.01)
            answer = router.generation(body, finish_reason={"type": "abort"}) if body["rid"] in sound.aborted else {}
            return 200, answer
        return None

    router.on[GENERATE] = wait

    async def work(engine):
        gone.on["/abort_request"] = (None, b"")
        call = asyncio.create_task(engine.generate(PROMPT, SamplingParams(max_tokens=5), session="mine"))
        while not router.calls():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await engine.abort("mine")
        return await call

    assert on_servers([gone, sound], work, router=router.url).finish_reason is FinishReason.ABORT


def test_a_router_that_does_not_pass_all_on_is_found_out(fakes, on_servers):
    """As sglang-router 0.3.2 does, which knows nothing of sampling masks."""
    server, router = fakes(2)

    def forgetful(body):
        answer = router.generation(body)
        answer["meta_info"].pop("output_token_sampling_logprobs", None)
        return 200, answer

    router.on[GENERATE] = forgetful

    async def work(engine):
        with pytest.raises(EngineError, match="no log-probs of the distribution"):
            await engine.generate(PROMPT, SamplingParams(max_tokens=2, top_p=0.9))
        return engine.capabilities.truncation

    assert on_servers([server], work, router=router.url) is False


def test_a_router_that_does_not_answer_is_an_error_at_the_start(fakes, on_servers):
    server, router = fakes(2)
    router.on[GENERATE] = (503, {"error": "no workers"})
    with pytest.raises(ServerFault, match="no workers"):
        on_servers([server], lambda engine: engine.health(), router=router.url)


def test_a_router_that_is_gone_says_nothing_about_the_servers(fakes, on_servers):
    server, router = fakes(2)
    router.on[GENERATE] = lambda body: (None, b"") if is_call(body) else None

    async def work(engine):
        with pytest.raises(ServerFault, match="router"):
            await engine.generate(PROMPT, SHORT)
        assert len(engine._fleet.up) == 1

    on_servers([server], work, router=router.url)
