from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import pytest
from cyclopts import App, Parameter

from webhook.settings import Settings, SettingsError, ShownEnvironment


def given(*arguments: str) -> Settings:
    """Return the settings of a command line, as `stowplan serve` reads it."""
    app = App(config=ShownEnvironment(), result_action="return_value")

    @app.default
    def serve(
        *, settings: Annotated[Settings | None, Parameter(name="*", negative="")] = None
    ) -> Settings:
        return settings or Settings()

    result = app(arguments)
    assert isinstance(result, Settings)
    return result


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "stowplan.yaml"
    path.write_text(text)
    return str(path)


def test_a_flag_goes_before_the_environment_and_that_before_the_file_and_that_before_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "port: 1\nmetrics_port: 2\nmax_in_flight: 3\n"
    monkeypatch.setenv("STOWPLAN_CONFIG", written(tmp_path, text))
    monkeypatch.setenv("STOWPLAN_PORT", "10")
    monkeypatch.setenv("STOWPLAN_METRICS_PORT", "20")
    settings = given("--port", "100")
    assert settings.port == 100  # flag
    assert settings.metrics_port == 20  # environment
    assert settings.max_in_flight == 3  # file
    assert settings.host == "::"  # the default


def test_without_any_flag_the_environment_is_still_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOWPLAN_MAX_IN_FLIGHT", "1000")
    assert given().max_in_flight == 1000


def test_the_file_may_be_named_by_a_flag(tmp_path: Path) -> None:
    settings = given("--config", written(tmp_path, "scheduler_names: [a, b]\n"))
    assert settings.scheduler_names == ("a", "b")


def test_an_empty_file_says_nothing(tmp_path: Path) -> None:
    assert given("--config", written(tmp_path, "# nothing yet\n")).port == 9443


def test_lists_are_repeated_flags_or_one_separated_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STOWPLAN_CLUSTER", "nodes.yaml:pods.yaml")
    monkeypatch.setenv("STOWPLAN_EXCLUDED_NAMESPACES", "a,b")
    settings = given("--policies", "one", "--policies", "two")
    assert settings.policies == (Path("one"), Path("two"))
    assert settings.cluster == (Path("nodes.yaml"), Path("pods.yaml"))
    assert settings.excluded_namespaces == ("a", "b")


def test_an_empty_variable_is_as_good_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOWPLAN_TLS_CERT", "")
    assert given().tls_cert is None


def test_the_variable_that_kubernetes_sets_for_a_service_of_our_name_is_not_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STOWPLAN_PORT", "tcp://10.96.0.7:443")
    assert given().port == 9443


def test_help_names_each_flag_with_its_variable_and_default(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(AssertionError):  # help has no result
        given("--help")
    text = capsys.readouterr().out
    for name, field in Settings.model_fields.items():
        assert f"--{name.replace('_', '-')}" in text
        assert f"STOWPLAN_{name.upper()}" in text
        assert field.description
    assert "[default: 9443]" in text


def test_every_mistake_is_reported_with_the_place_its_value_came_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOWPLAN_MAX_IN_FLIGHT", "0")
    config = written(tmp_path, "host: x\nlog_level: loud\n")
    with pytest.raises(SettingsError) as failure:
        given("--port", "99999", "--config", config)
    places = {problem.file: problem for problem in failure.value.problems}
    assert "`99999`" in places["--port"].message
    assert "greater than 0" in places["STOWPLAN_MAX_IN_FLIGHT"].message
    assert "`loud`" in places[config].message
    assert places[config].line == 2
    assert all("stowplan serve --help" in problem.hint for problem in places.values())


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("host: x\npolices: [a]\n", 2, "unknown setting `polices`"),
        ("config: other.yaml\n", 1, "unknown setting `config`"),
        ("- a\n- b\n", 1, "expected `setting: value` lines"),
        ("host: x\nport: [\n", 2, "not YAML"),
        ("host: x\nhost: y\n", 2, "duplicate key `host`"),
        ("host: x\n---\nhost: y\n", 3, "expected one document"),
    ],
)
def test_a_file_that_is_no_settings_file_says_where_and_why(
    tmp_path: Path, text: str, line: int, said: str
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(SettingsError) as failure:
        Settings(config=path)
    (problem,) = failure.value.problems
    assert (problem.file, problem.line) == (path, line)
    assert said in problem.message


def test_a_misspelt_setting_hides_no_other_mistake(tmp_path: Path) -> None:
    config = written(tmp_path, "port: x\npolices: [a]\nhold: maybe\nhots: y\nlog_level: loud\n")
    with pytest.raises(SettingsError) as failure:
        given("--config", config, "--max-in-flight", "0")
    assert [(problem.line, problem.message) for problem in failure.value.problems] == [
        (0, "must be greater than 0, not `0`"),
        (1, "expected a whole number, not `x`"),
        (2, "unknown setting `polices`"),
        (3, "expected true or false, not `maybe`"),
        (4, "unknown setting `hots`"),
        (5, "input should be 'debug', 'info', 'warning' or 'error', not `loud`"),
    ]
    assert failure.value.problems[2].hint == "did you mean `policies`?"


def test_a_misspelt_setting_comes_with_the_right_spelling(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="did you mean `policies`"):
        Settings(config=written(tmp_path, "polices: [a]\n"))


def test_a_missing_file_is_named() -> None:
    with pytest.raises(SettingsError, match=r"/no/such\.yaml: cannot be read"):
        Settings(config="/no/such.yaml")


def test_a_certificate_without_its_key_is_refused() -> None:
    with pytest.raises(SettingsError, match="given together"):
        Settings(tls_cert="a.pem")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--prometheus-url", "prometheus:9090"), "--prometheus-url: string should match"),
        (("--certificate-secret", "tls"), "see `--certificate-names`"),
        (
            ("--certificate-secret", "tls", "--certificate-names", "a", "--cluster", "c.yaml"),
            "a Secret with the certificate is for a live cluster",
        ),
        (("--port", "https"), "--port: expected a whole number, not `https`"),
        (("--config", "nowhere.yaml"), "nowhere.yaml: cannot be read: no such file or directory"),
        (
            ("--usage-poll-seconds", "1"),
            "must be at least 5.0, not `1`",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(flags: tuple[str, ...], message: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(message)):
        given(*flags)
