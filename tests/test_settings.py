from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respserver import settings
from respserver.auth import KeyRing
from respserver.config import Config, Limits, Mode, RouteConfig
from respserver.errors import ConfigError

BY_NAME = {option.name: option for option in settings.OPTIONS}


def write(folder: Path, text: str, name: str = "settings.toml") -> str:
    file = folder / name
    file.write_text(text, "utf-8")
    return str(file)


def refusal(**sources: object) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        settings.load(**sources)
    return caught.value


def test_nothing_given_is_the_default_configuration():
    assert settings.load() == Config()


def test_every_field_is_an_option_but_the_tables():
    names = set(Config.__struct_fields__) | set(Limits.__struct_fields__)
    assert names - set(BY_NAME) == {"routes", "classifiers", "limits"}


def test_an_option_has_one_name_in_three_spellings():
    option = BY_NAME["message_bytes"]
    assert (option.flag, option.key, option.variable) == (
        "--message-bytes",
        "limits.message_bytes",
        "RESPSERVER_MESSAGE_BYTES",
    )


def test_heavier_sources_replace_lighter_ones(tmp_path):
    file = write(tmp_path, 'port = 1\nhost = "127.0.0.2"\ntps = 65\nmodel = ["a", "b"]\n[limits]\npost_queue = 5\n')
    environment = {"RESPSERVER_PORT": "2", "RESPSERVER_HOST": "127.0.0.3", "RESPSERVER_POST_QUEUE": "6"}
    config = settings.load({"port": ["3"], "model": ["c"]}, environment, file)
    assert config == Config(port=3, host="127.0.0.3", tps=65.0, model=("c",), limits=Limits(post_queue=6))


@pytest.mark.parametrize("option", settings.OPTIONS, ids=lambda option: option.name)
def test_each_default_can_be_written_out_as_an_option_and_as_a_variable(option):
    if option.default_text:
        value = Limits().__getattribute__(option.name) if option.table else getattr(Config(), option.name)
        for read in (
            settings.from_arguments({option.name: [option.default_text]}),
            settings.from_environment({option.variable: option.default_text}),
        ):
            assert read[option.key].value == value


@pytest.mark.parametrize(
    ("text", "expected"), [("on", True), ("ON", True), ("true", True), ("1", True), ("off", False), ("no", False)]
)
def test_switches_are_on_or_off(text, expected):
    assert settings.load({"strict": [text]}).strict is expected


def test_repeated_options_collect_and_single_ones_take_the_last():
    config = settings.load({"model": ["a", "b,c"], "port": ["1", "2"], "mode": ["shipped", "prototype"]})
    assert config == Config(model=("a", "b,c"), port=2, mode=Mode.PROTOTYPE)


def test_lists_in_variables_are_split_at_commas():
    assert settings.load(environment={"RESPSERVER_MODEL": "gpt-*, o1"}).model == ("gpt-*", "o1")


def test_empty_and_foreign_variables_are_no_settings():
    environment = {
        "RESPSERVER_CERTFILE": "",
        "RESPSERVER_PORT": " ",
        "RESPSERVER_SERVICE_HOST": "10.0.0.1",
        "PORT": "1",
    }
    assert settings.load(environment=environment) == Config()


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("port", "eighty", "expected a whole number from 0 to 65535, got 'eighty'"),
        ("port", "65536", "expected a whole number from 0 to 65535, got '65536'"),
        ("port", "", "expected a whole number from 0 to 65535, got ''"),
        ("mode", "both", "expected shipped or prototype, got 'both'"),
        ("log_level", "trace", "expected debug, info, warning or error, got 'trace'"),
        ("strict", "maybe", "expected on or off, got 'maybe'"),
        ("tps", "-1", "expected a number of at least 0, got '-1'"),
        ("ttft", "nan", "expected a number of at least 0, got 'nan'"),
        ("jitter", "2", "expected a number from 0 to 1, got '2'"),
        ("tool_seconds", "0", "expected a number above 0, got '0'"),
        ("message_bytes", "12", "expected a whole number of at least 1024, got '12'"),
        ("script", "", "expected a file name, got ''"),
    ],
)
def test_a_bad_value_is_named_as_it_was_written(name, text, problem):
    error = refusal(arguments={name: [text]})
    assert (error.option, error.problem) == (BY_NAME[name].flag, problem)
    if text:
        error = refusal(environment={BY_NAME[name].variable: text})
        assert (error.option, error.problem) == (BY_NAME[name].variable, problem)


@pytest.mark.parametrize(
    ("toml", "place", "problem"),
    [
        ("port = '8080'", "port", "expected a whole number from 0 to 65535, got '8080'"),
        ("port = true", "port", "expected a whole number from 0 to 65535, got True"),
        ("strict = 1", "strict", "expected true or false, without quotes, got 1"),
        ("debug_timings = 'on'", "debug_timings", "expected true or false, without quotes, got 'on'"),
        ("model = 'gpt-*'", "model", "expected a list of texts, got 'gpt-*'"),
        ("model = [1]", "model", "expected a list of texts, got [1]"),
        ("prot = 1", "prot", "unknown key; did you mean port?"),
        ("xyzzy = 1", "xyzzy", "unknown key"),
        ("message_bytes = 2048", "message_bytes", "unknown key; it stands in the table [limits]"),
        ("limits = 3", "limits", "expected a table, [limits]"),
        ("[limits]\ntool_seconds = 0", "limits.tool_seconds", "expected a number above 0, got 0"),
        ("[limits]\nport = 1", "limits.port", "unknown key; it stands at the top of the file, before the first table"),
        ("[[routes]]\npattern = 1", "routes[0].pattern", "expected a text that is not empty, got 1"),
        ("[[routes]]\npattern = 'a'\n[[routes]]\nengine = 'x'", "routes[1].pattern", "is missing"),
        ("[[routes]]\npattern = 'a'\nengin = 'x'", "routes[0].engin", "unknown key; did you mean engine?"),
        ("routes = 3", "routes", "expected a list of tables, got 3"),
        ("[routes]\npattern = 'a'", "routes", "write [[routes]], with two brackets"),
        ("[limit]", "limit", "unknown key; did you mean [limits]?"),
        ("[[route]]", "route", "unknown key; did you mean [[routes]]?"),
        ("[[classifiers]]\nkind = 'term'", "classifiers[0].kind", "expected terms, http or latency, got 'term'"),
        ("[[classifiers]]\nfile = 'a'", "classifiers[0].kind", "is missing"),
        ("[[classifiers]]\nkind = 'terms'\nfil = 'a'", "classifiers[0].fil", "unknown key; did you mean file?"),
        ("[[classifiers]]\nkind = 'http'\nurl = 'x'", "classifiers[0].url", "expected http://… or https://…"),
        (
            "[[classifiers]]\nkind = 'http'\nurl = 'http://x'\nreads = 'all'",
            "classifiers[0].reads",
            "expected new or context, got 'all'",
        ),
        ('certfile = "a\\u0000b"', "certfile", "expected a file name, got 'a\\x00b'"),
    ],
)
def test_a_mistake_in_the_file_is_named_by_file_and_key(tmp_path, toml, place, problem):
    file = write(tmp_path, toml)
    error = refusal(file=file)
    assert (error.option, error.problem) == (f"{file}: {place}", problem)


def test_a_file_that_is_not_toml_is_named_with_the_line(tmp_path):
    file = write(tmp_path, "port = 1\nmode =\n")
    error = refusal(file=file)
    assert error.option == file
    assert "line 2" in error.problem


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_file_that_cannot_be_read_is_named(tmp_path, content):
    file = tmp_path / "settings.toml"
    if content is not None:
        file.write_bytes(content)
    assert f"cannot read {file}" in str(refusal(file=str(file)))


def test_the_file_may_be_named_by_a_variable_and_the_argument_weighs_more(tmp_path):
    one, two = write(tmp_path, "port = 1", "one.toml"), write(tmp_path, "port = 2", "two.toml")
    assert settings.load(environment={"RESPSERVER_CONFIG": one}).port == 1
    assert settings.load(environment={"RESPSERVER_CONFIG": one}, file=two).port == 2


def test_routes_come_from_the_file(tmp_path):
    file = write(tmp_path, '[[routes]]\npattern = "gpt-*"\ncontext_window = 1000\n[[routes]]\npattern = "*"\n')
    assert settings.load(file=file).routes == (
        RouteConfig(pattern="gpt-*", context_window=1000),
        RouteConfig(pattern="*"),
    )


def test_file_names_in_the_file_count_from_its_folder(tmp_path):
    write(tmp_path, "k alice", "keys.txt")
    script = write(tmp_path, "", "demo.toml")
    file = write(tmp_path, f'api_keys_file = "keys.txt"\nscript = "{script}"')
    config = settings.load(file=file)
    assert config.api_keys_file == str(tmp_path / "keys.txt")
    assert config.script == script


def test_the_keys_file_is_read_as_lines_for_the_key_ring(tmp_path):
    file = write(tmp_path, "\ufeff# keys\nk alice\n", "keys.txt")
    config = settings.load({"api_keys_file": [file]})
    assert KeyRing.from_config(config, settings.key_lines(config)).authenticate("Bearer k") == "alice"
    assert settings.key_lines(Config()) == []


def test_a_bad_line_of_the_keys_file_is_named_before_the_server_starts(tmp_path):
    file = write(tmp_path, "k alice\na b c\n", "keys.txt")
    assert refusal(arguments={"api_keys_file": [file]}).option == f"{file}:2"


@pytest.mark.parametrize("name", ["script", "api_keys_file", "certfile", "keyfile"])
def test_a_missing_file_is_named_by_the_option_that_asks_for_it(tmp_path, name):
    missing = str(tmp_path / "missing")
    there = write(tmp_path, "", "there.pem")
    arguments = {"certfile": [there], "keyfile": [there]} if name in ("certfile", "keyfile") else {}
    error = refusal(arguments={**arguments, name: [missing]})
    assert error.option == BY_NAME[name].flag
    assert error.problem == f"cannot read {missing}: No such file or directory"


def test_a_ready_file_needs_its_folder(tmp_path):
    error = refusal(environment={"RESPSERVER_READY_FILE": str(tmp_path / "none" / "ready.json")})
    assert (error.option, error.problem) == ("RESPSERVER_READY_FILE", f"there is no folder '{tmp_path / 'none'}'")
    assert settings.load({"ready_file": ["ready.json"]}).ready_file == "ready.json"


def test_certificate_and_key_must_be_a_pair(tmp_path):
    junk = write(tmp_path, "not a certificate", "junk.pem")
    error = refusal(arguments={"certfile": [junk], "keyfile": [junk]})
    assert error.option == "--certfile"
    assert "cannot be used together" in error.problem


def test_a_real_certificate_and_its_key_pass(tmp_path):
    trustme = pytest.importorskip("trustme")
    leaf = trustme.CA(key_type=trustme.KeyType.ECDSA).issue_cert("localhost")
    certfile, keyfile = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    leaf.cert_chain_pems[0].write_to_path(certfile)
    leaf.private_key_pem.write_to_path(keyfile)
    assert settings.load({"certfile": [certfile], "keyfile": [keyfile]}).keyfile == keyfile


@pytest.mark.parametrize(
    ("sources", "option"),
    [
        ({"arguments": {"host": ["0.0.0.0"]}}, "--host"),
        ({"environment": {"RESPSERVER_HOST": "0.0.0.0"}}, "RESPSERVER_HOST"),
        ({"arguments": {"certfile": ["c.pem"]}}, "--keyfile"),
        ({"environment": {"RESPSERVER_API_KEY": "a,,b"}}, "RESPSERVER_API_KEY"),
    ],
)
def test_settings_that_do_not_go_together_are_named_as_they_were_written(sources, option):
    assert refusal(**sources).option == option


def test_the_refusal_to_listen_openly_says_what_would_allow_it():
    error = refusal(arguments={"host": ["0.0.0.0"]})
    assert all(flag in error.problem for flag in ("--api-key", "--api-keys-file", "--insecure"))
    assert settings.load({"host": ["0.0.0.0"], "insecure": ["on"]}).host == "0.0.0.0"


def test_a_bad_key_is_never_shown(tmp_path):
    for sources in (
        {"arguments": {"api_key": ["tell nobody"]}},
        {"environment": {"RESPSERVER_API_KEY": "tell nobody"}},
        {"environment": {"RESPSERVER_ENCRYPTION_KEY": "tell-nobody"}},
        {"file": write(tmp_path, "encryption_key = ['tell-nobody']", "e.toml")},
        {"file": write(tmp_path, "api_key = ['tell nobody']", "a.toml")},
        {"file": write(tmp_path, "api_key = 'tell-nobody'", "b.toml")},
        {"file": write(tmp_path, "api_key = [['tell-nobody']]", "c.toml")},
        {
            "file": write(
                tmp_path, "[[classifiers]]\nkind = 'http'\nurl = 'http://x'\napi_key = 'tell nobody'", "d.toml"
            )
        },
    ):
        assert "nobody" not in str(refusal(**sources))


@given(st.sampled_from(settings.OPTIONS), st.text())
def test_any_text_is_a_value_or_a_configuration_error(option, text):
    named = ""
    read = {}
    try:
        read = settings.from_arguments({option.name: [text]})
    except ConfigError as error:
        named = error.option
    assert (list(read) == [option.key]) != (named == option.flag)
