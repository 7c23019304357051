"""`fusion-cli devices`: profiles of the user's own, measured here or given, and rooflines."""

from __future__ import annotations

import json
import re
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fusion_cli import calibrate
from fusion_cli.cli import main
from fusion_cli.devices.known import base_for, known_profiles, load_profile, user_folder
from fusion_cli.devices.profile import read_profile
from fusion_cli.resources import resource_dir
from fusion_cli.targets import AMX, CPU, CUDA


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def call(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["devices", *map(str, arguments)])


BUNDLED = resource_dir("devices")
SM_89 = next(t for t in CUDA if t.name == "sm_89")


def test_a_profile_that_is_added_is_taken_until_it_is_removed(tmp_path: Path) -> None:
    before = load_profile(CPU)
    own = tmp_path / "mine.toml"
    own.write_text(
        re.sub(r"^bandwidth_gbs = .*$", "bandwidth_gbs = 61.0", (BUNDLED / "cpu.toml").read_text(), flags=re.MULTILINE)
    )
    result = call("add", own)
    assert result.exit_code == 0, result.output
    assert load_profile(CPU).bandwidth_gbs == 61.0
    listed = {d["name"]: d["is_own"] for d in json.loads(call("list", "--json").stdout)}
    assert listed["mine"]
    assert not listed["cpu"]
    assert "your own" in call("list").stdout
    assert call("remove", "mine").exit_code == 0
    assert load_profile(CPU) == before
    result = call("remove", "cpu")
    assert result.exit_code == 1
    assert "only your own can be removed" in result.output


def test_devices_of_one_architecture_are_taken_where_the_user_says_which() -> None:
    assert load_profile(SM_89).name == "a100"
    assert call("add", "l40s").exit_code == 0
    assert load_profile(SM_89).name == "l40s"
    assert not load_profile(SM_89).measured


@pytest.mark.parametrize("name", ["h100", "l40s", "rtx4090", "t4", "a100"])
def test_what_was_not_measured_says_so_and_where_its_numbers_are_from(name: str) -> None:
    assert not read_profile(known_profiles()[name]).measured
    assert "data sheet" in call("show", name).stdout
    assert read_profile(known_profiles()["h200"]).measured


@pytest.mark.parametrize("text", ["name = 'x'", "no toml ["])
def test_what_is_no_profile_is_not_added(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.toml").write_text(text)
    result = call("add", tmp_path / "bad.toml")
    assert result.exit_code == 1
    assert not list(user_folder().glob("*"))
    result = call("add", "h20")
    assert "did you mean 'h200'?" in result.output


def test_names_that_are_no_file_names_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate._Bench, "rates", lambda self: [])
    result = call("calibrate", "--target", "cpu", "--name", "../x")
    assert result.exit_code == 1
    assert "is no name for a profile" in result.output


def test_calibrate_measures_this_machine_and_is_then_preferred(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "SECONDS", 0.01)
    monkeypatch.setitem(calibrate._SIDE, "cpu", 64)
    monkeypatch.setitem(calibrate._MEMORY, "cpu", 1 << 16)
    result = call("calibrate", "--target", "cpu")
    assert result.exit_code == 0, result.output
    found, base = load_profile(CPU), read_profile(BUNDLED / "xeon.toml")
    assert found.name == "my-cpu"
    assert "measured by fusion-cli devices calibrate" in found.description
    measured = ("run_us", "node_us", "bandwidth_gbs", "cache_bandwidth_gbs", "special_gops")
    assert all(getattr(found, key) != getattr(base, key) for key in measured)
    assert found.tflops["float32"] != base.tflops["float32"]
    assert (found.linear_slowdown, found.launch_us, found.error) == (base.linear_slowdown, base.launch_us, base.error)
    assert "MatMul 64x64x64" in call("show", "my-cpu").stdout


def test_calibrating_begins_with_a_profile_that_knows_what_was_measured_there() -> None:
    """Predictions do not, unless the user's own come of it."""
    assert base_for(CPU) == BUNDLED / "xeon.toml"
    assert read_profile(base_for(CPU)).has_reference
    assert load_profile(CPU).name == "cpu"
    assert base_for(AMX) == BUNDLED / "amx.toml"


def test_a_gpu_that_is_not_there_cannot_be_measured() -> None:
    result = call("calibrate", "--target", "sm_90a")
    assert result.exit_code == 1
    assert "cannot be timed on such a device" in result.output


def test_numbers_are_put_in_their_place_and_others_stay() -> None:
    head = '# what\nname = "a"\ndescription = "b"\nmeasured = false\ndefault = false\n'
    text = f"{head}[memory]\nrate = 1 # x\nsize = 2 # y\n[launch]\ndefault = 4\nrate = 3\n"
    new = calibrate.with_rates(text, [calibrate.Rate("memory", "rate", 5.0, "seen")], "n", 'a "machine"')
    assert new == (
        'name = "n"\ndescription = "a \'machine\'"\n[memory]\nrate = 5  # seen\nsize = 2 # y\n'
        "[launch]\ndefault = 4\nrate = 3\n"
    )


def test_what_was_fitted_goes_by_the_ratio_of_what_was_measured() -> None:
    """A machine with twice the bandwidth and half the speed of one node than the one that numbers were fitted on."""
    text = (
        "[memory]\nbandwidth_gbs = 30 # fitted\n[dispatch]\nnode_us = 0.4\nop_us = 3\n[launch]\nMatMul = 5\n"
        "[reference]\nbandwidth_gbs = 10\nnode_us = 0.2\n[error]\ndefault = 0.2\n"
    )
    rates = [calibrate.Rate("memory", "bandwidth_gbs", 20.0, "seen"), calibrate.Rate("dispatch", "node_us", 0.4, "too")]
    new = tomllib.loads(calibrate.with_rates(text, rates, "n", "m"))
    assert new["memory"] == {"bandwidth_gbs": 60}
    assert new["dispatch"] == {"node_us": pytest.approx(0.8), "op_us": pytest.approx(6)}
    assert (new["launch"], new["error"], "reference" in new) == ({"MatMul": 5}, {"default": 0.2}, False)


def test_a_roofline_is_drawn(tmp_path: Path) -> None:
    for name in known_profiles():
        result = call("show", name, "--plot", tmp_path / f"{name}.svg")
        assert result.exit_code == 0, result.output
        drawn = ET.parse(tmp_path / f"{name}.svg").getroot()
        line = drawn.find(".//{http://www.w3.org/2000/svg}polyline")
        assert line is not None
        assert len(line.attrib["points"].split()) == 3
    other = tmp_path / "other.svg"
    other.write_text("mine")
    assert call("show", "cpu", "--plot", other).exit_code == 1
    assert other.read_text() == "mine"
