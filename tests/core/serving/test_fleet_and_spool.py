"""Where sessions go, and what is kept of weights."""

import shutil

import pytest

from agentr1_core.errors import EngineError
from agentr1_core.serving import Fleet, Member, ServerClient, WeightSpool, is_loopback


@pytest.fixture
def fleet():
    fleet = Fleet([Member(ServerClient(f"http://127.0.0.1:{port}")) for port in (1, 2)])
    for member in fleet.members:
        fleet.mark_up(member)
    return fleet


def test_new_sessions_go_where_least_runs_and_stay(fleet):
    first, second = fleet.members
    first.running = 3
    assert fleet.choose("a") is second
    second.running = 9
    assert fleet.choose("a") is second
    assert fleet.choose("b") is first
    assert fleet.choose(None) is first


def test_a_session_moves_when_its_server_is_down(fleet):
    home = fleet.choose("a")
    fleet.mark_down(home, "gone")
    assert fleet.choose("a") is not home


def test_without_servers_the_causes_are_told(fleet, run):
    for member in fleet.members:
        fleet.mark_down(member, "out of memory")
    with pytest.raises(EngineError, match=r"127.0.0.1:1: out of memory; .*:2: out of memory"):
        fleet.choose("a")
    with pytest.raises(EngineError, match="out of memory"):
        run(fleet.wait_up(0.01))
    fleet.give_up(EngineError("It will not come back."))
    with pytest.raises(EngineError, match="not come back"):
        run(fleet.wait_up(10))


@pytest.mark.parametrize(
    ("url", "loopback"),
    [
        ("http://127.0.0.1:8000", True),
        ("http://localhost:8000", True),
        ("http://[::1]:8000", True),
        ("http://127.0.0.1.evil.org", False),
        ("http://10.0.0.1", False),
    ],
)
def test_loopback_addresses(url, loopback):
    assert is_loopback(url) == loopback


@pytest.fixture
def spool(tmp_path):
    spool = WeightSpool(tmp_path)
    yield spool
    spool.close()
    assert not spool.folder.exists()


def test_weights_outlive_the_folder_they_came_from(spool, tmp_path):
    source = tmp_path / "step"
    source.mkdir()
    (source / "model.safetensors").write_bytes(b"one")
    kept = spool.keep(source, 1)
    (source / "model.safetensors").unlink()
    kept.check()
    assert (kept.folder / "model.safetensors").read_bytes() == b"one"
    source.joinpath("model.safetensors").write_bytes(b"two")
    newer = spool.keep(source, 2)
    spool.drop_old()
    assert not kept.folder.exists()
    assert (newer.folder / "model.safetensors").read_bytes() == b"two"


def test_weights_overwritten_in_place_are_found_out(spool, tmp_path):
    source = tmp_path / "step"
    source.mkdir()
    file = source / "model.safetensors"
    file.write_bytes(b"one")
    kept = spool.keep(source, 1)
    file.write_bytes(b"other")
    with pytest.raises(EngineError, match="overwritten"):
        kept.check()


def test_a_folder_without_weights_is_refused(spool, tmp_path):
    for source in (None, tmp_path / "none", tmp_path):
        with pytest.raises(EngineError):
            spool.keep(source, 1)


def write_adapter(folder, content):
    folder.mkdir(exist_ok=True)
    (folder / "adapter_model.safetensors").write_bytes(content)
    (folder / "adapter_config.json").write_text("{}")
    (folder / "README.md").write_text("not needed")
    return folder


def test_an_adapter_is_kept_beside_the_whole_weights_it_belongs_to(spool, tmp_path):
    source = tmp_path / "step"
    source.mkdir()
    (source / "model.safetensors").write_bytes(b"whole")
    whole = spool.keep(source, 1)
    first = spool.keep_adapter(write_adapter(tmp_path / "adapter", b"one"), 1)
    shutil.rmtree(tmp_path / "adapter")  # overwriting a file in place would change its link as well
    second = spool.keep_adapter(write_adapter(tmp_path / "adapter", b"two"), 2)
    spool.drop_old()
    assert (first.whole, second.whole) == (None, None)
    assert not first.adapter.path.exists()
    assert spool.current.version == 2
    assert spool.current.folder == whole.folder
    assert spool.current.adapter == second.adapter
    assert sorted(file.name for file in second.adapter.path.iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
    ]
    spool.current.check()
    assert spool.keep(source, 3).adapter is None


def test_an_adapter_without_weights_on_a_file_has_no_folder(spool, tmp_path):
    kept = spool.keep_adapter(write_adapter(tmp_path / "adapter", b"one"), 1)
    with pytest.raises(EngineError, match="no files"):
        _ = kept.folder


def test_an_adapter_without_its_configuration_is_refused(spool, tmp_path):
    (write_adapter(tmp_path / "adapter", b"one") / "adapter_config.json").unlink()
    with pytest.raises(EngineError, match=r"adapter_config\.json"):
        spool.keep_adapter(tmp_path / "adapter", 1)
