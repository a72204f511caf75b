"""What is checked at the start, and the command of a server that the engine starts."""

import json
import os
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from agentr1_core.errors import ConfigError, EngineError
from agentr1_engine_vllm import VLLMEngine
from agentr1_engine_vllm.checks import Installation, check_model, check_version, look_at
from agentr1_engine_vllm.launch import plan_launch
from agentr1_engine_vllm.server.require_token import RequireToken

Settings = VLLMEngine.Settings


async def nothing(engine):
    return engine.capabilities.max_context


def test_a_server_that_can_do_it_all_tells_its_context(fake, on_servers):
    assert on_servers([fake], nothing) == 64


@pytest.mark.parametrize(
    ("path", "answer", "words"),
    [
        ("/version", (200, {"version": "0.19.1"}), "0.19.1; this engine knows >=0.32,<0.34"),
        ("/version", (200, {"version": "0.40.0"}), "0.40.0"),
        ("/v1/models", (200, {"data": [{"id": "theirs"}]}), "it serves: theirs"),
        ("/weight_info", (404, {"detail": "Not Found"}), "VLLM_SERVER_DEV_MODE=1"),
        ("/collective_rpc", (500, {"error": {"message": "no attribute"}}), "--worker-extension-cls"),
        ("/inference/v1/generate", (404, {"detail": "Not Found"}), "--enable-scale-out"),
        ("/version", (401, {"error": "Unauthorized"}), "401"),
    ],
)
def test_what_a_server_lacks_is_one_clear_error(fake, on_servers, path, answer, words):
    fake.on[path] = answer
    with pytest.raises(EngineError, match=words):
        on_servers([fake], nothing)


def test_logprobs_of_another_distribution_are_found_out(fake, on_servers):
    raw = {"logprobs": {"content": [{"token_id": 7, "logprob": -0.7}]}}
    fake.on["/inference/v1/generate"] = lambda body: (200, fake.generation(body, **raw))
    with pytest.raises(EngineError, match="--logprobs-mode processed_logprobs"):
        on_servers([fake], nothing)


def test_a_token_is_sent_with_everything(fake, on_servers, monkeypatch):
    fake.token = "secret"
    monkeypatch.setenv("MY_TOKEN", "secret")
    assert on_servers([fake], nothing, token_env="MY_TOKEN") == 64


def test_a_server_on_another_machine_wants_a_token(run, monkeypatch):
    monkeypatch.delenv("AGENTR1_VLLM_TOKEN", raising=False)
    engine = VLLMEngine(Settings(urls=("http://192.0.2.1:8000",)))
    with pytest.raises(ConfigError, match="another machine"):
        run(engine.start())


@pytest.mark.parametrize("version", ["0.32.0", "0.33.1+cpu"])
def test_known_versions(version):
    check_version(version, "it")


def test_an_interpreter_without_vllm_is_refused(run, tmp_path):
    with pytest.raises(EngineError, match="has no vLLM"):
        run(look_at(Path(sys.executable)))
    with pytest.raises(EngineError, match="could not be asked"):
        run(look_at(tmp_path / "python"))


@pytest.fixture
def model(tmp_path):
    def folder(**config):
        (tmp_path / "config.json").write_text(json.dumps(config))
        return str(tmp_path)

    return folder


def test_heads_that_the_cpu_build_cannot_do_are_refused(model):
    tiny = model(hidden_size=96, num_attention_heads=4, max_position_embeddings=512)
    with pytest.raises(EngineError, match="size 24; vLLM on CPU can do 32, 64"):
        check_model(tiny, Settings(), cpu=True)
    check_model(tiny, Settings(), cpu=False)
    check_model(model(hidden_size=96, num_attention_heads=4, head_dim=64), Settings(), cpu=True)


def test_a_context_longer_than_the_model_s_is_refused(model):
    folder = model(hidden_size=128, num_attention_heads=4, max_position_embeddings=512)
    with pytest.raises(EngineError, match=r"is 1024, but the context of .* is 512"):
        check_model(folder, Settings(max_model_len=1024), cpu=True)


def test_a_hub_id_is_left_to_the_server():
    check_model("nobody/no-model", Settings(), cpu=True)


def test_neither_model_nor_servers():
    with pytest.raises(ConfigError, match="needs a model"):
        VLLMEngine()


@pytest.mark.parametrize("word", ["--host=0.0.0.0", "--logprobs-mode", "--worker_extension_cls=x", "--model"])
def test_options_that_would_break_what_is_promised_are_refused(word):
    with pytest.raises(ValidationError, match="set by the engine itself"):
        Settings(extra_args=(word,))


@pytest.fixture
def launch(tmp_path):
    def plan(cpu=True, **settings):
        settings = Settings(python=Path("/venv/bin/python"), **settings)
        return plan_launch(settings, "some/model", Installation("0.32.0", cpu), tmp_path, tmp_path / "vllm.log")

    return plan


def test_the_server_listens_on_the_loopback_interface_only(launch):
    plan = launch(extra_args=("--max-num-seqs", "8"))
    words = list(plan.command)
    assert words[:3] == ["/venv/bin/python", "-m", "vllm.entrypoints.openai.api_server"]
    assert words[words.index("--host") + 1] == "127.0.0.1"
    assert plan.url.startswith("http://127.0.0.1:")
    assert words[-2:] == ["--max-num-seqs", "8"]
    assert plan.token in plan.env.values()
    assert not any(plan.token in word for word in words)  # other users see command lines


def test_the_cpu_build_gets_what_it_needs_and_a_gpu_vllm_s_own_choice(launch):
    on_cpu, on_gpu = launch(cpu=True).command, launch(cpu=False).command
    for option in ("--enforce-eager", "--block-size", "--kv-cache-memory-bytes"):
        assert option in on_cpu
        assert option not in on_gpu


def test_a_server_for_adapters_has_room_for_their_rank(launch):
    plain, roomy = launch(), launch(lora="adapter", lora_rank=20)
    assert "--enable-lora" not in plain.command
    assert "VLLM_ALLOW_RUNTIME_LORA_UPDATING" not in plain.env
    assert roomy.command[roomy.command.index("--max-lora-rank") + 1] == "32"  # vLLM takes no 20
    assert roomy.env["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] == "1"
    with pytest.raises(EngineError, match="lora_rank"):
        launch(lora="adapter", lora_rank=1000)


def test_no_library_of_the_trainer_gets_into_the_server(launch, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/trainer")
    monkeypatch.setenv("VIRTUAL_ENV", "/trainer")
    plan = launch(env={"CUDA_VISIBLE_DEVICES": "1"}, threads=2)
    assert os.listdir(plan.env["PYTHONPATH"]) == ["agentr1_engine_vllm"]
    assert "VIRTUAL_ENV" not in plan.env
    assert plan.env["CUDA_VISIBLE_DEVICES"] == "1"
    assert plan.env["OMP_NUM_THREADS"] == "2"


def test_the_door_keeper_lets_only_the_token_in(run, monkeypatch):
    monkeypatch.setenv("AGENTR1_SERVER_TOKEN", "secret")
    sent, reached = [], []

    async def app(scope, receive, send):
        reached.append(scope["type"])

    async def send(message):
        sent.append(message)

    keeper = RequireToken(app)
    for kind, headers in (
        ("lifespan", None),
        ("http", [(b"authorization", b"Bearer secret")]),
        ("http", [(b"authorization", b"Bearer guessed")]),
        ("http", []),
        ("websocket", []),
    ):
        run(keeper({"type": kind, "headers": headers}, None, send))
    assert reached == ["lifespan", "http"]
    assert [message.get("status") for message in sent] == [401, None, 401, None, None]


def test_without_a_token_the_door_keeper_does_not_serve(monkeypatch):
    monkeypatch.delenv("AGENTR1_SERVER_TOKEN", raising=False)
    with pytest.raises(RuntimeError, match="AGENTR1_SERVER_TOKEN"):
        RequireToken(None)
