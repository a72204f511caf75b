"""Adapters that are sent by themselves: the requests a server gets, and servers that cannot take them."""

import json

import pytest

from agentr1_core.engine import SamplingParams, WeightSource
from agentr1_core.errors import EngineError
from agentr1_core.mdp import token_array

PROMPT = token_array([3, 4, 5])
SHORT = SamplingParams(max_tokens=2)
RPC = "/collective_rpc"


class Adapters:
    """What vLLM does with adapters: numbers that go up, one place for one."""

    def __init__(self, fake, max_rank=8):
        self.names, self.loaded, self.number, self.max_rank = [], [], 0, max_rank
        self.requests = []
        fake.on["/v1/models"] = lambda body: (200, {"data": [{"id": name, "max_model_len": 64} for name in self.all]})
        fake.on["/v1/load_lora_adapter"] = self.load
        fake.on["/v1/unload_lora_adapter"] = self.unload
        fake.on[RPC] = self.rpc

    @property
    def all(self):
        return ["policy", *self.names]

    def load(self, body):
        self.number += 1
        self.names, self.loaded = [body["lora_name"]], [self.number]
        self.requests.append("load")
        return 200, b"Success: the adapter was added."

    def unload(self, body):
        if body["lora_name"] not in self.names:
            return 404, {"error": {"message": f"The lora adapter '{body['lora_name']}' cannot be found."}}
        self.names = []
        self.requests.append("unload")
        return 200, b"Success"

    def rpc(self, body):
        if body["method"] == "agentr1_lora":
            return 200, {"results": [{"max_rank": self.max_rank, "adapters": self.loaded}]}
        if body["method"] == "agentr1_swap_adapter":
            assert body["args"][:2] == [str(self.loaded[0]), "policy-adapter"]
            self.requests.append("swap")
        elif body["method"] == "agentr1_load_weights":
            self.requests.append("whole")
        return 200, {"results": [{}]}


@pytest.fixture
def adapter(tmp_path):
    """``adapter(rank)``: a folder that looks like PEFT's."""

    def folder(rank=4, **more):
        path = tmp_path / f"adapter-{rank}"
        path.mkdir(exist_ok=True)
        (path / "adapter_model.safetensors").write_bytes(b"weights")
        (path / "adapter_config.json").write_text(json.dumps({"r": rank, **more}))
        return WeightSource("lora", path=path)

    return folder


def test_the_first_adapter_is_loaded_and_later_ones_take_its_place(fake, on_servers, adapter, weights):
    server = Adapters(fake)

    async def work(engine):
        found = []
        for version, source in enumerate([WeightSource("file", path=weights()), adapter(), adapter(), adapter()]):
            await engine.update_weights(source, version)
            found.append(await engine.generate(PROMPT, SHORT))
        await engine.update_weights(WeightSource("file", path=weights()), 4)
        found.append(await engine.generate(PROMPT, SHORT))
        return found

    found = on_servers([fake], work, lora="adapter")
    assert server.requests == ["whole", "load", "swap", "swap", "whole", "unload"]
    assert [one.version_spans[0].version for one in found] == [0, 1, 2, 3, 4]
    asked = [body["model"] for body in fake.generations() if body["request_id"] != "agentr1-check"]
    assert asked == ["policy", "policy-adapter", "policy-adapter", "policy-adapter", "policy"]
    pauses = [query["mode"] for path, query, _ in fake.seen if path == "/pause"]
    assert pauses == ["keep", "wait", "keep", "keep", "wait"]  # actions in flight cannot change the name they asked for


def test_a_server_that_was_started_again_gets_whole_weights_and_adapter(fake, on_servers, adapter, weights):
    server = Adapters(fake)

    async def work(engine):
        await engine.update_weights(WeightSource("file", path=weights()), 1)
        await engine.update_weights(adapter(), 2)
        server.names, server.loaded = [], []
        (member,) = engine._fleet.members
        engine._fleet.mark_down(member, "killed")
        await engine._take_back(engine._fleet, member)
        return await engine.generate(PROMPT, SHORT)

    assert on_servers([fake], work, lora="adapter").version_spans[0].version == 2
    assert server.requests == ["whole", "load", "whole", "load"]


def test_what_an_earlier_engine_left_is_unloaded_first(fake, on_servers, adapter):
    server = Adapters(fake)
    server.names, server.loaded, server.number = ["policy-adapter"], [7], 7

    async def work(engine):
        await engine.update_weights(adapter(), 1)

    on_servers([fake], work, lora="adapter")
    assert server.requests == ["unload", "load"]


@pytest.mark.parametrize(("rank", "more"), [(16, {}), (4, {"rank_pattern": {"q_proj": 16}})])
def test_an_adapter_without_room_is_refused(fake, on_servers, adapter, rank, more):
    Adapters(fake)

    async def work(engine):
        with pytest.raises(EngineError, match=r"rank 16.*largest is 8"):
            await engine.update_weights(adapter(rank, **more), 1)

    on_servers([fake], work, lora="adapter")
    assert "/resume" in fake.paths()


@pytest.mark.parametrize("lacks", ["route", "option"])
def test_a_server_without_adapters_is_refused_at_the_start(fake, on_servers, lacks):
    server = Adapters(fake, max_rank=None)
    if lacks == "route":
        fake.on["/v1/unload_lora_adapter"] = (404, {"detail": "Not Found"})

    async def work(engine):
        raise AssertionError("it started")

    with pytest.raises(EngineError, match=r"adapters.*\n?.*--enable-lora"):
        on_servers([fake], work, lora="adapter")
    assert server.requests == []


def test_adapters_are_refused_where_they_are_merged(fake, on_servers, adapter):
    async def work(engine):
        with pytest.raises(EngineError, match="'lora', only by file"):
            await engine.update_weights(adapter(), 1)

    on_servers([fake], work)
