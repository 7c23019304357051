"""The profiles there are: those that come with the program, and the user's own, which go before them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from fusion_cli.devices.profile import DeviceProfile, read_profile
from fusion_cli.errors import FusionError
from fusion_cli.files import appearing, file_sha256
from fusion_cli.resources import resource_dir
from fusion_cli.runtime.seal import configuration
from fusion_cli.types import Target


def user_folder() -> Path:
    """`fusion-cli/devices` in the user's configuration folder."""
    return configuration() / "devices"


def known_profiles() -> dict[str, Path]:
    """The files of all profiles by name; a user's own stands for one of its name that comes with the program."""
    folders = (_bundled(), user_folder())
    return {path.stem: path for folder in folders for path in sorted(folder.glob("*.toml"))}


def add_profile(text: str, name: str) -> Path:
    """Keep a profile as the user's own; returns its file, which appears whole or not at all. Raises FusionError where
    it is none, or OSError."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise FusionError(f"'{name}' is no name for a profile", hint="give letters, digits, '.', '-' and '_'")
    folder = user_folder()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.toml"
    with appearing(path) as new:
        new.write_text(text, encoding="utf-8")
        read_profile(new)
    return path


def load_profile(target: Target) -> DeviceProfile:
    """The profile for a target: the user's own of the same architecture, else the measured one of it, or else the most
    capable one that is not above it. The portable target, for which nothing is built, takes the first GPU's, as advice
    only. Raises FusionError where a user's own cannot be read."""
    return replace(read_profile(file_for(target)), target=target.name, advisory=target.kind == "portable")


def profile_id(target: Target) -> str:
    """What predictions for a target are made with: "" for a profile that comes with the program, else the user's own by
    its name and the beginning of its checksum."""
    path = file_for(target)
    return f"{path.stem} {file_sha256(path)[:12]}" if path.parent == user_folder() else ""


def base_for(target: Target) -> Path:
    """The file of the profile that `devices calibrate` begins with, of those that come with the program: one that has
    what was measured so on its own machine, else the one for the target."""
    fitting = (path for p, path in _profiles(_bundled()) if p.has_reference and _is_for(target, p))
    return next(fitting, None) or _bundled_for(target)


def file_for(target: Target) -> Path:
    """The file of the profile that `load_profile` reads."""
    fitting = (path for p, path in _profiles(user_folder()) if _is_for(target, p))
    return next(fitting, None) or _bundled_for(target)


def _bundled() -> Path:
    return resource_dir("devices")


def _profiles(folder: Path) -> list[tuple[DeviceProfile, Path]]:
    return [(read_profile(path), path) for path in sorted(folder.glob("*.toml"))]


def _is_for(target: Target, profile: DeviceProfile) -> bool:
    return (profile.kind, profile.arch) == (target.kind, target.arch)


def _bundled_for(target: Target) -> Path:
    profiles = [(p, path) for p, path in _profiles(_bundled()) if p.is_default]
    if target.kind == "cpu":
        return next(path for p, path in profiles if _is_for(target, p))
    # Of one architecture there are several devices; which of them is meant is the user's to say by adding it.
    gpus = sorted(((p, path) for p, path in profiles if p.kind == "cuda"), key=_capability)
    if target.kind == "portable":
        return gpus[0][1]
    below = [each for each in gpus if _capability(each) <= _number(target.arch)]
    return max(below or gpus[:1], key=_capability)[1]


def _capability(each: tuple[DeviceProfile, Path]) -> int:
    return _number(each[0].arch)


def _number(arch: str) -> int:
    digits = re.search(r"\d+", arch)
    return int(digits.group()) if digits else 0
