"""`rules lint` of files and folders: what is found, how it is told, and what rules are to each other."""

from __future__ import annotations

import json
from pathlib import Path

from fusion_cli.rulekit.findings import lint
from tests.helpers.cli_helpers import call
from tests.helpers.reason_codes import explained
from tests.helpers.rule_texts import rule, write
from tests.language.test_lint_calls import CALLS
from tests.language.test_lint_conditions import CONDITIONS
from tests.language.test_lint_headers import HEADERS
from tests.language.test_lint_text import TEXT


def test_an_idioms_name_for_a_fusion(tmp_path: Path) -> None:
    path = write(tmp_path, rule("    y = Relu (x)", signature="Linear (x) => (y)"))
    assert [(f.code, f.line) for f in lint([path])[1]] == [("FUS043", 3)]
    result = call("rules", "list", "--rule-path", tmp_path)
    assert result.exit_code == 1
    assert "'Linear' is an idiom (linear.rule), so this fusion needs another name" in result.stderr


def test_every_code_has_a_case() -> None:
    others = {"FUS007", "FUS027", "FUS037", "FUS042", "FUS043"}
    trapped = {code for _, code, _, _ in (TEXT | CALLS | HEADERS).values()}
    assert trapped | {code for code, _, _ in CONDITIONS.values()} | others == set(explained()["lint"])


def test_idioms_in_a_circle_are_found_once(tmp_path: Path) -> None:
    for name, other in (("Ping", "Pong"), ("Pong", "Pang"), ("Pang", "Ping")):
        text = rule(f"    y = pattern.{other} (x)", signature=f"{name} (x) => (y)")
        write(tmp_path, text, f"idioms/{name}.rule")
    _, findings = lint([tmp_path])
    assert [f.code for f in findings] == ["FUS027"]
    assert "Pang -> Ping -> Pong -> Pang" in findings[0].message


def test_taking_a_bundled_rules_place_is_a_note(tmp_path: Path) -> None:
    path = write(tmp_path, rule("    y = Relu (x)", signature="LinearActivation (x) => (y)"))
    result = call("rules", "lint", path)
    assert result.exit_code == 0
    assert "note: " in result.stdout
    assert "takes the place of the bundled rule 'LinearActivation'" in result.stdout


def test_a_rule_in_two_files_of_a_folder_is_a_fault(tmp_path: Path) -> None:
    for name in ("a.rule", "b.rule"):
        write(tmp_path, rule("    y = Relu (x)"), name)
    _, findings = lint([tmp_path])
    assert [(f.code, f.severity, f.path.name) for f in findings] == [("FUS042", "warning", "b.rule")]


def test_all_faults_of_all_files_come_at_once(tmp_path: Path) -> None:
    write(tmp_path, rule("    a = Reluu (xx)\n    y = Softmax <axsi = 1> (a)") + rule("    y = Tnah (x)"), "a.rule")
    write(tmp_path, rule("    y = Relu x") + rule("    y = Gelo (x)"), "b.rule")
    result = call("rules", "lint", tmp_path)
    assert result.exit_code == 1
    for place in ("a.rule:5:9:", "a.rule:5:16:", "a.rule:6:18:", "a.rule:12:9:", "b.rule:5:9:", "b.rule:11:9:"):
        assert place in result.stdout
    assert result.stdout.splitlines()[-1].endswith("faults found")


def test_findings_as_json(tmp_path: Path) -> None:
    path = write(tmp_path, rule("    y = Reluu (x)"))
    result = call("rules", "lint", "--json", path)
    assert result.exit_code == 1
    (finding,) = json.loads(result.stdout)["findings"]
    assert (finding["path"], finding["line"], finding["column"]) == (str(path), 5, 9)
    assert (finding["code"], finding["severity"]) == ("FUS020", "error")


def test_a_file_knows_the_idioms_beside_it(tmp_path: Path) -> None:
    write(tmp_path, rule("    y = Relu (x)", signature="Own (x) => (y)"), "idioms/own.rule")
    path = write(tmp_path, rule("    h = pattern.Own (x)\n    y = Tanh (h)"))
    files, findings = lint([path])
    assert [f.path for f in files] == [path]
    assert findings == []


def test_the_bundled_rules_have_no_fault() -> None:
    _, findings = lint([])
    assert [str(f) for f in findings] == []


def test_what_does_not_exist(tmp_path: Path) -> None:
    result = call("rules", "lint", tmp_path / "none.rule")
    assert result.exit_code == 1
    assert "no such rule file or folder" in result.stderr
