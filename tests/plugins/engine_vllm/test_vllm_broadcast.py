"""Weights sent from memory: how they are cut, how the members meet, and that a failure on either side ends both.

The workers here are threads that do what the worker extension does; ``tests/servers/vllm`` has the real ones.
"""

import json
import threading

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentr1_core.engine import SamplingParams, WeightSource
from agentr1_core.errors import EngineError
from agentr1_core.mdp import token_array
from agentr1_engine_vllm.weight_group import Meeting, TensorPlan, in_buckets, join, receive

RPC = "/collective_rpc"
SENT = {
    "a": torch.arange(6.0).view(2, 3),
    "b": torch.arange(3, dtype=torch.bfloat16),
    "c": torch.ones(2, 2, dtype=torch.bfloat16),
    "d": torch.tensor(7.0),
}


class Workers:
    """The workers of one server: each method runs in all of them at once, as vLLM's executor does it."""

    def __init__(self, fake, n):
        self.n, self.groups, self.got = n, [None] * n, [{} for _ in range(n)]
        self.meetings, self.breaks = [], False
        fake.on[RPC] = self.rpc

    def rpc(self, body):
        if body["method"] == "agentr1_ping":
            meeting = self.meetings[-1].id if self.groups[0] else None
            return 200, {"results": [{"device": "cpu", "meeting": meeting}] * self.n}
        if body["method"] == "agentr1_join":
            self.meetings.append(Meeting(**json.loads(body["args"][0])))
        elif self.breaks:
            for group in self.groups:
                group.abort()
            self.groups = [None] * self.n
            return 500, {"error": "a worker ended"}
        threads = [threading.Thread(target=self.work, args=(rank, body), daemon=True) for rank in range(self.n)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        return 200, {"results": [{}] * self.n}

    def work(self, rank, body):
        if body["method"] == "agentr1_join":
            self.groups[rank] = join(self.meetings[-1], 1 + rank)
        else:
            plans = [TensorPlan.parse(plan) for plan in json.loads(body["args"][0])]
            self.got[rank] = dict(receive(self.groups[rank], plans, "cpu"))


def same(found, sent):
    assert found.keys() == sent.keys()
    for name, tensor in sent.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)


@pytest.mark.parametrize("n_workers", [1, 2])
def test_every_worker_gets_every_tensor(fake, on_servers, n_workers):
    workers = Workers(fake, n_workers)
    newer = {name: tensor + 1 for name, tensor in SENT.items()}

    async def work(engine):
        await engine.update_weights(WeightSource("state_dict", tensors=SENT), 1)
        for got in workers.got:
            same(got, SENT)
        await engine.update_weights(WeightSource("state_dict", tensors=newer), 2)
        return await engine.generate(token_array([3]), SamplingParams(max_tokens=2))

    assert on_servers([fake], work, weight_sync="broadcast").version_spans[0].version == 2
    for got in workers.got:
        same(got, newer)
    (meeting,) = workers.meetings  # one group serves all updates
    assert (meeting.backend, meeting.size) == ("gloo", 1 + n_workers)
    assert meeting.file is not None  # nobody listens to the network on one machine


def test_a_worker_that_breaks_off_is_an_error_and_the_group_is_made_anew(fake, on_servers):
    workers = Workers(fake, 1)

    async def work(engine):
        workers.breaks = True
        with pytest.raises(EngineError, match="a worker ended"):
            await engine.update_weights(WeightSource("state_dict", tensors=SENT), 1)
        workers.breaks = False
        (member,) = engine._fleet.members
        await engine._take_back(engine._fleet, member)

    on_servers([fake], work, weight_sync="broadcast")
    same(workers.got[0], SENT)
    assert len(workers.meetings) == 2


def test_a_server_that_comes_back_gets_what_was_sent_and_not_what_the_trainer_has_made_of_it(fake, on_servers):
    workers = Workers(fake, 1)
    sent = {name: tensor.clone() for name, tensor in SENT.items()}

    async def work(engine):
        await engine.update_weights(WeightSource("state_dict", tensors=sent), 1)
        for tensor in sent.values():
            tensor.zero_()
        (member,) = engine._fleet.members
        engine._fleet.mark_down(member, "killed")
        workers.got, workers.groups = [{}], [None]
        await engine._take_back(engine._fleet, member)

    on_servers([fake], work, weight_sync="broadcast")
    same(workers.got[0], SENT)


def test_members_that_do_not_come_are_not_waited_for_without_end(fake, on_servers):
    fake.on[RPC] = lambda body: (200, {"results": [{"device": "cpu", "meeting": None}]})

    async def work(engine):
        with pytest.raises(EngineError, match=r"(?s)broadcast.*weight_sync: file"):
            await engine.update_weights(WeightSource("state_dict", tensors=SENT), 1)

    on_servers([fake], work, weight_sync="broadcast", request_timeout_s=1.0)


def test_what_is_tied_is_sent_once(fake, on_servers):
    workers = Workers(fake, 1)
    embedding = torch.ones(3, 2)
    tied = {"embed": embedding, "norm": torch.ones(2), "head": embedding}

    async def work(engine):
        await engine.update_weights(WeightSource("state_dict", tensors=tied), 1)
        assert engine._spool.current.tensors.keys() == {"embed", "norm"}

    on_servers([fake], work, weight_sync="broadcast")
    assert workers.got[0].keys() == {"embed", "norm"}


def test_tensors_without_names_are_refused(fake, on_servers):
    async def work(engine):
        with pytest.raises(EngineError, match="no tensors"):
            await engine.update_weights(WeightSource("state_dict"), 1)

    on_servers([fake], work, weight_sync="broadcast")


@given(st.lists(st.tuples(st.sampled_from(["float32", "bfloat16"]), st.integers(0, 40))), st.integers(1, 60))
def test_buckets_keep_order_and_type_and_stay_small(said, limit):
    plans = [TensorPlan(str(number), dtype, (size,), size) for number, (dtype, size) in enumerate(said)]
    buckets = list(in_buckets(plans, limit))
    assert [plan for bucket in buckets for plan in bucket] == plans
    for bucket in buckets:
        assert len({plan.dtype for plan in bucket}) == 1
        assert len(bucket) == 1 or sum(plan.n_bytes for plan in bucket) <= limit
