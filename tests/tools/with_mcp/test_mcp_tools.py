"""MCP servers as tools: real servers over pipes and HTTP, sessions for each episode, and servers that fail."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mcp")

from agentr1_core import AgentEnvLoop, Policy, Rollouts, Task, ToolEnv
from agentr1_core.engine import SamplingParams
from agentr1_core.errors import ConfigError, PluginError
from agentr1_core.mdp import Action, ToolCall
from agentr1_core.render import create_chat_renderer
from agentr1_core.testing.scripted_engine import ScriptedEngine
from agentr1_core.testing.tool_kit import ToolKit
from agentr1_core.tool import ToolBox, ToolContext, ToolOutcome, call_tool
from agentr1_tools.mcp.source import MCPServer

HERE = Path(__file__).parent
LIBRARY = [sys.executable, str(HERE / "library_server.py")]


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log.txt"


@pytest.fixture
def bare(log):
    """Makes the bare server's source with more settings."""
    command = [sys.executable, str(HERE / "bare_server.py"), str(log)]
    return lambda **settings: MCPServer(command=command, **{"call_timeout_s": 5.0, **settings})


@contextmanager
def serve_http(port):
    process = subprocess.Popen([*LIBRARY, "http", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: listens(port))
        yield
    finally:
        process.kill()
        process.wait()


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_for(condition):
    for _ in range(1500):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("it never happened")


@pytest.fixture
def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def act(*calls):
    return Action(
        token_ids=np.array([1], dtype=np.int32),
        logprobs=np.array([-1.0], dtype=np.float32),
        text="",
        message={"role": "assistant", "content": ""},
        tool_calls=tuple(ToolCall(name, arguments, f"call_{i}") for i, (name, arguments) in enumerate(calls)),
    )


async def episode(box, *turns):
    """Plays turns of calls in one episode; the answers of the tools, turn by turn."""
    env = ToolEnv(box)
    await env.reset(Task({"prompt": "Go"}))
    try:
        answers = []
        for calls in turns:
            result = await env.step(act(*calls))
            shown = result.observation.messages[-len(calls) :]
            answers.append([message["content"] for message in shown])
        return answers
    finally:
        await env.close()


def with_box(source, play):
    """Runs ``play(box)`` with the source's tools open."""

    async def use():
        box = ToolBox([source])
        async with asyncio.timeout(60):
            await box.start()
            try:
                return await play(box)
            finally:
                await box.close()

    return asyncio.run(use())


def started(log):
    return [int(line.split()[1]) for line in log.read_text().splitlines() if line.startswith("start")]


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_server_over_pipes_describes_its_tools_and_keeps_episodes_apart():
    async def play(box):
        assert sorted(box.by_name) == ["complain", "count"]
        spec = box.by_name["count"].spec
        assert spec["description"].startswith("Count on from what this server has seen.")
        assert spec["parameters"]["properties"]["step"]["type"] == "integer"
        one_episode = ([("count", {"step": 2})], [("count", {"step": 3})])
        return await asyncio.gather(episode(box, *one_episode), episode(box, *one_episode))

    assert with_box(MCPServer(command=[*LIBRARY, "stdio"]), play) == [[["2"], ["5"]], [["2"], ["5"]]]


def test_a_server_over_http_and_what_an_episode_sees_when_it_restarts(free_port):
    async def play(box):
        turns = ([("count", {"step": 1}), ("complain", {"text": "no luck"}), ("count", {"step": "x"})],)
        (first,) = await episode(box, *turns)
        ctx = ToolContext()

        async def count():
            return (await call_tool(box.by_name, "count", {"step": 5}, ctx)).response.text

        before = await count()
        server.close()
        away = await count()
        with serve_http(free_port):
            again = await count(), await count()
            await ctx.cleanup.aclose()
        return first, before, away, again

    with ExitStack() as server:
        server.enter_context(serve_http(free_port))
        url = f"http://127.0.0.1:{free_port}/mcp"
        (counted, complained, wrong), before, away, again = with_box(MCPServer(url=url), play)
    assert counted == "1"
    assert complained.startswith("The tool 'complain' failed: Error executing tool complain")
    assert wrong.startswith("Wrong arguments for 'count'")
    assert before == "6"
    assert away.startswith("The tool 'count' failed: the server cannot be reached")
    assert again == ("5", "10")


def test_all_pages_of_tools_are_asked_for_and_names_become_identifiers(bare):
    async def names(box):
        return sorted(box.by_name)

    assert with_box(bare(), names) == ["act", "second_tool"]
    assert with_box(bare(include=["second.tool"], prefix="b_"), names) == ["b_second_tool"]
    with pytest.raises(PluginError, match="has no tool 'third'"):
        with_box(bare(include=["third"]), names)


def test_calls_of_one_episode_share_a_session_that_ends_with_it(bare, log):
    async def play(box):
        call = ("act", {"how": "pid"})
        first = await episode(box, [call, call, call], [call])
        second = await episode(box, [call])
        assert not any(is_running(pid) for pid in started(log))
        return first, second

    first, second = with_box(bare(), play)
    pids = {answer for answers in first for answer in answers}
    assert len(pids) == 1
    assert not pids & {answer for answers in second for answer in answers}
    assert len(started(log)) == 3  # one to ask for the tools, one for each episode


def test_an_episode_that_calls_nothing_opens_nothing(bare, log):
    async def play(box):
        return await episode(box)

    with_box(bare(), play)
    assert len(started(log)) == 1


def test_one_session_for_the_whole_run(bare, log):
    async def play(box):
        await episode(box, [("act", {"how": "pid"})])
        await episode(box, [("act", {"how": "pid"})])

    with_box(bare(session="run"), play)
    assert len(started(log)) == 1
    assert not is_running(started(log)[0])


def test_a_server_that_died_is_started_again(bare, log):
    async def play(box):
        return await episode(box, [("act", {"how": "die once"})])

    ((answer,),) = with_box(bare(), play)
    assert answer == "die once\n[image]"
    assert len(started(log)) == 3


@pytest.mark.parametrize("session", ["episode", "run"])
def test_a_server_that_always_dies_is_told_to_the_model(bare, session):
    async def play(box):
        return await episode(box, [("act", {"how": "die"})], [("act", {"how": "well"})])

    ((died,), (well,)) = with_box(bare(session=session), play)
    assert died == "The tool 'act' failed: the connection was lost 2 times"
    assert well.startswith("well")


def test_a_call_that_hangs_is_given_up_and_leaves_no_process(bare, log):
    async def play(box):
        return await episode(box, [("act", {"how": "hang"})])

    ((answer,),) = with_box(bare(call_timeout_s=0.3), play)
    assert answer == "The tool 'act' did not answer within 0.3 seconds."
    assert not any(is_running(pid) for pid in started(log))


def test_a_cancelled_episode_leaves_no_process(bare, log):
    async def play(box):
        playing = asyncio.create_task(episode(box, [("act", {"how": "hang"})]))
        await asyncio.to_thread(wait_for, lambda: "hang" in log.read_text())
        playing.cancel()
        await asyncio.wait({playing}, timeout=30)
        assert playing.cancelled()
        assert not any(is_running(pid) for pid in started(log))

    with_box(bare(), play)


def test_calls_outside_an_episode_are_closed_with_the_box(bare, log):
    async def play(box):
        result = await call_tool(box.by_name, "act", {"how": "pid"}, ToolContext())
        assert result.outcome is ToolOutcome.OK

    with_box(bare(), play)
    assert not any(is_running(pid) for pid in started(log))


def test_the_program_sees_only_the_variables_it_is_given(bare, monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "hunter2")
    monkeypatch.setenv("OTHER_SECRET", "swordfish")

    async def play(box):
        return await episode(box, [("act", {"how": "env"})])

    ((answer,),) = with_box(bare(env_from=["MY_API_KEY"], env={"MODE": "test"}), play)
    seen = json.loads(answer.split("\n")[0])
    assert (seen["MY_API_KEY"], seen["MODE"]) == ("hunter2", "test")
    assert "OTHER_SECRET" not in seen


def test_secrets_are_not_in_what_is_printed(monkeypatch):
    monkeypatch.setenv("TOKEN", "hunter2")
    server = MCPServer(url="http://localhost:1/mcp", headers_from={"Authorization": "TOKEN"})
    assert server.endpoint.headers == {"Authorization": "hunter2"}
    assert "hunter2" not in repr(server.endpoint) + str(server.endpoint)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"command": ["/no/such/program"]}, "FileNotFoundError"),
        ({"command": [sys.executable, "-c", "pass"]}, "cannot be used"),
        ({"command": [sys.executable, "-c", "import time; time.sleep(60)"], "connect_timeout_s": 0.5}, "no answer"),
        ({"url": "http://127.0.0.1:9/mcp"}, "cannot be used"),
    ],
    ids=["no program", "program that ends", "program that is silent", "nobody listens"],
)
def test_a_server_that_cannot_be_used_stops_the_run_at_its_start(settings, says):
    with pytest.raises(PluginError, match="The MCP server") as refused:
        with_box(MCPServer(**{"connect_timeout_s": 10.0, **settings}), lambda box: None)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, "either `command` or `url`"),
        ({"command": ["x"], "url": "http://x"}, "either `command` or `url`"),
        ({"command": "server --port 1"}, "Write it as a list"),
        ({"command": ["bash", "-c", "server | tee log"]}, "starts the shell 'bash'"),
        ({"command": ["/bin/sh", "-c", "server"]}, "starts the shell '/bin/sh'"),
        ({"url": "file:///etc/passwd"}, "http:// or https://"),
        ({"command": ["x"], "session": "turn"}, "`episode` or `run`"),
        ({"command": ["x"], "env_from": ["NOT_SET_ANYWHERE"]}, "export NOT_SET_ANYWHERE"),
    ],
)
def test_wrong_settings_are_named(settings, says):
    with pytest.raises(ConfigError) as refused:
        MCPServer(**settings)
    assert says in str(refused.value)


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(PluginError, match=r"agentr1-tools\[mcp\]"):
        asyncio.run(MCPServer(command=["x"]).start())


class TestMCPToolKeepsTheContract(ToolKit):
    @pytest.fixture(autouse=True)
    def offered(self, log):
        command = [sys.executable, str(HERE / "bare_server.py"), str(log)]

        async def ask():
            server = MCPServer(command=command)
            tools = await server.start()
            await server.close()
            return tools[0]

        self.tool = asyncio.run(ask())
        yield
        for pid in started(log):
            if is_running(pid):
                os.kill(pid, 9)

    def make_tool(self):
        return self.tool

    def good_calls(self):
        return [{"how": "hi"}, {"how": ""}]


def test_a_rollout_gives_each_episode_a_session(bare, log, tokenizer):
    """The collector opens the server; the model calls; every episode is answered by a process of its own."""
    call = '<tool_call>\n{"name": "act", "arguments": {"how": "pid"}}\n</tool_call>'
    box = ToolBox([bare()])
    engine = ScriptedEngine(tokenizer, [call, call, "Done."])
    policy = Policy(engine, create_chat_renderer(tokenizer), SamplingParams(max_tokens=200))
    rollouts = Rollouts(AgentEnvLoop(lambda task: ToolEnv(box)), policy, tools=box)

    async def collect():
        try:
            return await rollouts.collect([Task({"prompt": "Go"})], group_size=3)
        finally:
            await rollouts.close()

    (group,) = asyncio.run(asyncio.wait_for(collect(), 60)).groups
    answers = [
        [step.feedback[0]["content"].split("\n")[0] for step in trajectory.steps[:2]]
        for trajectory in group.trajectories
    ]
    assert [len(set(pair)) for pair in answers] == [1, 1, 1]
    assert len({pair[0] for pair in answers}) == 3
    assert not any(is_running(pid) for pid in started(log))
