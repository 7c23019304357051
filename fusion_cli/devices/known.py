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
    folders = (resource_dir("devices"), user_folder())
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
    own = [(read_profile(path), path) for path in _bundled()]
    like = ((p, path) for p, path in own if (p.kind, p.arch) == (target.kind, target.arch))
    return next((path for p, path in like if p.has_reference), None) or _bundled_for(target)


def file_for(target: Target) -> Path:
    """The file of the profile that `load_profile` reads."""
    own = [(read_profile(path), path) for path in sorted(user_folder().glob("*.toml"))]
    found = next((path for p, path in own if (p.kind, p.arch) == (target.kind, target.arch)), None)
    return found or _bundled_for(target)


def _bundled() -> list[Path]:
    return sorted(resource_dir("devices").glob("*.toml"))


def _bundled_for(target: Target) -> Path:
    profiles = [(read_profile(path), path) for path in _bundled()]
    if target.kind == "cpu":
        fitting = [(p, path) for p, path in profiles if p.kind == "cpu" and p.arch == target.arch]
        return next(path for p, path in fitting if p.is_default)
    # Of one architecture there are several devices; which of them is meant is the user's to say by adding it.
    gpus = sorted(((p, path) for p, path in profiles if p.kind == "cuda" and p.is_default), key=_capability)
    if target.kind == "portable":
        return gpus[0][1]
    below = [each for each in gpus if _capability(each) <= _number(target.arch)]
    return max(below or gpus[:1], key=_capability)[1]


def _capability(each: tuple[DeviceProfile, Path]) -> int:
    return _number(each[0].arch)


def _number(arch: str) -> int:
    digits = re.search(r"\d+", arch)
    return int(digits.group()) if digits else 0
