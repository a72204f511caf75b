"""What is checked at the start, and the command of a server that the engine starts."""

import json
import stat
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from agentr1_core.engine import SamplingParams
from agentr1_core.env_loop import AgentEnvLoop
from agentr1_core.episode import Policy
from agentr1_core.errors import ConfigError, EngineError, PluginError
from agentr1_core.rollout import Rollouts
from agentr1_engine_sglang import SGLangEngine
from agentr1_engine_sglang.checks import Installation, check_model, check_version, folder_of, look_at, vocabulary_of
from agentr1_engine_sglang.launch import plan_launch

Settings = SGLangEngine.Settings


async def capabilities(engine):
    return engine.capabilities


def test_a_server_that_can_do_it_all_tells_its_context(fake, on_servers):
    found = on_servers([fake], capabilities)
    assert found.max_context == 2043
    assert found.truncation
    assert not found.seed  # it was not started for that
    assert found.weight_sync == {"file"}


def changed(fake, **changes):
    return 200, {**fake.answer("/server_info", None)[1], **changes}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"version": "0.5.18"}, r"0\.5\.18; this engine knows >=0\.5\.19,<0\.6"),
        ({"version": "0.6.0"}, r"0\.6\.0"),
        ({"speculative_algorithm": "EAGLE"}, "--speculative-algorithm"),
    ],
)
def test_what_a_server_is_not_fit_for_is_one_clear_error(fake, on_servers, changes, words):
    fake.on["/server_info"] = changed(fake, **changes)
    with pytest.raises(EngineError, match=words):
        on_servers([fake], capabilities)


def test_replicas_take_no_tensors(fake, on_servers):
    fake.on["/server_info"] = changed(fake, dp_size=2)
    assert on_servers([fake], capabilities).weight_sync == {"file"}
    with pytest.raises(EngineError, match="data-parallel"):
        on_servers([fake], capabilities, weight_sync="broadcast")


@pytest.mark.parametrize(
    ("path", "answer", "words"),
    [
        ("/server_info", (404, {"detail": "Not Found"}), "404"),
        ("/server_info", (401, {"error": "Unauthorized"}), "Unauthorized"),
        ("/server_info", (200, {"hello": "I am a web server"}), "no SGLang server"),
        ("/model_info", (200, {"is_generation": False}), "does not generate"),
        ("/generate", (200, {"meta_info": {}}), "gives no log-probs"),
    ],
)
def test_what_a_server_lacks_is_one_clear_error(fake, on_servers, path, answer, words):
    fake.on[path] = answer
    with pytest.raises(EngineError, match=words):
        on_servers([fake], capabilities)


def test_logprobs_of_another_distribution_are_found_out(fake, on_servers):
    """One that ignores the temperature gives the same ones at any."""
    plain = fake.generation({"rid": "agentr1-check", "sampling_params": {"temperature": 1.0}})
    fake.on["/generate"] = (200, plain)
    with pytest.raises(EngineError, match="SGLANG_RETURN_ORIGINAL_LOGPROB"):
        on_servers([fake], capabilities)


def test_without_logprobs_of_what_is_left_a_run_that_needs_them_ends_at_its_start(fake, run):
    def old(body):
        answer = fake.generation(body)
        answer["meta_info"].pop("output_token_sampling_logprobs", None)
        return 200, answer

    fake.on["/generate"] = old
    engine = SGLangEngine(Settings(urls=(fake.url,)))
    rollouts = Rollouts(AgentEnvLoop(lambda task: None), Policy(engine, None, SamplingParams(top_p=0.9)))
    with pytest.raises(PluginError, match=r"sglang.*truncation"):
        run(rollouts.start())


def test_a_token_is_sent_with_everything(fake, on_servers, monkeypatch):
    fake.token = "secret"
    monkeypatch.setenv("MY_TOKEN", "secret")
    assert on_servers([fake], capabilities, token_env="MY_TOKEN").max_context == 2043


def test_a_server_on_another_machine_wants_a_token(run, monkeypatch):
    monkeypatch.delenv("AGENTR1_SGLANG_TOKEN", raising=False)
    engine = SGLangEngine(Settings(urls=("http://192.0.2.1:30000",)))
    with pytest.raises(ConfigError, match="another machine"):
        run(engine.start())


@pytest.mark.parametrize("version", ["0.5.19", "0.5.23", "0.5.24.post1"])
def test_known_versions(version):
    check_version(version, "it")


def test_an_interpreter_without_sglang_is_refused(run, tmp_path):
    with pytest.raises(EngineError, match="has no SGLang"):
        run(look_at(Path(sys.executable)))
    with pytest.raises(EngineError, match="could not be asked"):
        run(look_at(tmp_path / "python"))


@pytest.fixture
def model(tmp_path):
    def folder(**config):
        (tmp_path / "config.json").write_text(json.dumps(config))
        return str(tmp_path)

    return folder


def test_a_context_longer_than_the_model_s_is_refused(model):
    folder = model(max_position_embeddings=512)
    with pytest.raises(EngineError, match=r"is 1024, but the context of .* is 512"):
        check_model(folder, Settings(context_length=1024))
    check_model(folder, Settings(context_length=256))
    check_model("nobody/no-model", Settings(context_length=1024))  # left to the server


def test_a_folder_without_a_configuration_is_refused(tmp_path):
    with pytest.raises(EngineError, match=r"config\.json"):
        check_model(str(tmp_path), Settings())


def test_the_vocabulary_is_read_where_the_configuration_lies_here(model, tmp_path):
    assert vocabulary_of(folder_of(model(vocab_size=400))) == 400
    assert vocabulary_of(folder_of(model(text_config={"vocab_size": 500}))) == 500
    assert folder_of(str(tmp_path / "elsewhere")) is None
    assert folder_of("nobody/no-model") is None


def test_neither_model_nor_servers():
    with pytest.raises(ConfigError, match="needs a model"):
        SGLangEngine()


@pytest.mark.parametrize("word", ["--host=0.0.0.0", "--api-key", "--weight_version=x", "--model-path"])
def test_options_that_would_break_what_is_promised_are_refused(word):
    with pytest.raises(ValidationError, match="set by the engine itself"):
        Settings(extra_args=(word,))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"router": "http://127.0.0.1:1"}, "name the servers behind it"),
        ({"router": "127.0.0.1:1", "urls": ("http://127.0.0.1:2",)}, "no http:// or https://"),
        ({"deterministic": True, "urls": ("http://127.0.0.1:2",)}, "started with these"),
        ({"deterministic": True, "device": "cpu"}, "cannot do that on CPU"),
        ({"colocate": True, "device": "cpu"}, "cannot do that on CPU"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(settings, words):
    with pytest.raises(ValidationError, match=words):
        Settings(**settings)


@pytest.fixture
def launch(tmp_path):
    def plan(cpu=True, **settings):
        settings = Settings(python=Path("/venv/bin/python"), **settings)
        return plan_launch(settings, "some/model", Installation("0.5.23", cpu), tmp_path, tmp_path / "sglang.log")

    return plan


def test_the_server_listens_on_the_loopback_interface_only(launch, tmp_path):
    plan = launch(extra_args=("--max-running-requests", "8"))
    words = list(plan.command)
    assert words[:3] == ["/venv/bin/python", "-m", "sglang.launch_server"]
    assert words[words.index("--host") + 1] == "127.0.0.1"
    assert plan.url.startswith("http://127.0.0.1:")
    assert words[-2:] == ["--max-running-requests", "8"]


def test_the_key_stands_where_only_this_user_can_read_it(launch):
    plan = launch()
    words = list(plan.command)
    assert not any(plan.token in word for word in (*words, *plan.env.values()))
    file = Path(words[words.index("--config") + 1])
    assert file.read_text() == f"api-key: {plan.token}\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_server_on_cpu_gets_what_it_needs_and_one_on_gpu_sglang_s_own_choice(launch):
    on_cpu, on_gpu = launch(cpu=True), launch(cpu=False, deterministic=True)
    for option in ("--device", "--attention-backend", "--max-total-tokens"):
        assert option in on_cpu.command
        assert option not in on_gpu.command
    assert on_cpu.env["SGLANG_USE_CPU_ENGINE"] == "1"
    assert "--enable-deterministic-inference" in on_gpu.command


def test_no_library_of_the_trainer_gets_into_the_server(launch, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/trainer")
    monkeypatch.setenv("VIRTUAL_ENV", "/trainer")
    monkeypatch.setenv("SGLANG_RETURN_ORIGINAL_LOGPROB", "1")
    plan = launch(env={"CUDA_VISIBLE_DEVICES": "1"}, threads=2)
    assert "PYTHONPATH" not in plan.env
    assert "VIRTUAL_ENV" not in plan.env
    assert plan.env["CUDA_VISIBLE_DEVICES"] == "1"
    assert plan.env["OMP_NUM_THREADS"] == "2"
    assert plan.env["SGLANG_RETURN_ORIGINAL_LOGPROB"] == "0"
