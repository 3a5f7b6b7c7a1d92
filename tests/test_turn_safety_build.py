"""From ``[[classifiers]]`` tables to a screening; what is wrong is named before the server starts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from respserver import settings
from respserver.config import (
    Config,
    HttpClassifierConfig,
    LatencyClassifierConfig,
    TermsClassifierConfig,
    check,
)
from respserver.errors import ConfigError
from respserver.schema.input import user_message
from respserver.turn.safety import PASS, Verdict, build_screening

PAGE = Path(__file__).parent.parent / "docs" / "safety.md"


def load(folder: Path, toml: str) -> Config:
    (folder / "respserver.toml").write_text(toml, "utf-8")
    return settings.load(file=str(folder / "respserver.toml"))


async def never():
    raise AssertionError("nobody reads the whole context")


async def before(config: Config, text: str) -> Verdict:
    return await build_screening(config).before([user_message(text)], never, PASS)


def test_tables_become_settings_and_files_count_from_the_folder(tmp_path):
    (tmp_path / "terms.txt").touch()
    config = load(
        tmp_path,
        '[[classifiers]]\nkind = "terms"\nfile = "terms.txt"\n'
        '[[classifiers]]\nkind = "http"\nurl = "http://127.0.0.1:9000/x"\nreads = "context"\nfailure = "open"\n'
        '[[classifiers]]\nkind = "latency"\nseconds = 0.1\nwhen = "beside"\n',
    )
    assert config.classifiers == (
        TermsClassifierConfig(file=str(tmp_path / "terms.txt")),
        HttpClassifierConfig(url="http://127.0.0.1:9000/x", reads="context", failure="open"),
        LatencyClassifierConfig(seconds=0.1, when="beside"),
    )
    assert build_screening(config).needs_context


async def test_lines_without_a_category_have_the_name_of_their_classifier(tmp_path):
    (tmp_path / "terms.txt").write_text("\ufeffflag: bomb\n", "utf-8")
    file = str(tmp_path / "terms.txt")
    named = Config(classifiers=(TermsClassifierConfig(file=file, name="house-rules"),))
    assert await before(named, "bomb") == Verdict("flag", ("house-rules",))
    assert await before(Config(classifiers=(TermsClassifierConfig(file=file),)), "bomb") == Verdict("flag", ("terms",))
    beside = Config(classifiers=(TermsClassifierConfig(file=file, when="beside"),))
    assert await before(beside, "bomb") == PASS


@pytest.mark.parametrize(
    ("table", "place", "problem"),
    [
        ("", "[0].kind", "is missing"),
        ('kind = "oracle"', "[0].kind", "expected terms, http or latency, got 'oracle'"),
        ('kind = "terms"', "[0].file", "is missing"),
        ('kind = "latency"\nfile = "x"', "[0].file", "unknown key"),
        ('kind = "latency"\nseconds = -1', "[0].seconds", "expected a number of at least 0, got -1"),
        ('kind = "latency"\nname = "two words"', "[0].name", "expected up to 64 letters, digits, _ . / or -"),
        ('kind = "http"\nurl = "ftp://host/"', "[0].url", "expected http://… or https://…"),
        ('kind = "http"\nurl = "http://user:secret@host/"', "[0].url", "expected http://… or https://…"),
        ('kind = "http"\nurl = "http://:80/"', "[0].url", "'http://:80/' names no host, or an impossible port"),
        ('kind = "http"\nurl = "http://h:99999"', "[0].url", "'http://h:99999' names no host, or an impossible port"),
        ('kind = "http"\nurl = "http://[::1/"', "[0].url", "'http://[::1/' names no host, or an impossible port"),
        ('kind = "terms"\nfile = "none.txt"', "[0].file", "cannot read"),
    ],
)
def test_a_wrong_table_is_named_by_file_and_place(tmp_path, table, place, problem):
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, f"[[classifiers]]\n{table}\n")
    assert caught.value.option == f"{tmp_path / 'respserver.toml'}: classifiers{place}"
    assert caught.value.problem.startswith(problem)
    assert "secret" not in str(caught.value)


def test_a_bad_line_of_a_terms_file_is_named_before_the_server_starts(tmp_path):
    (tmp_path / "terms.txt").write_text("fine\n/(/\n", "utf-8")
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, '[[classifiers]]\nkind = "terms"\nfile = "terms.txt"\n')
    assert caught.value.option == f"{tmp_path / 'terms.txt'}:2"


def test_a_terms_file_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "terms.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8 text"):
        build_screening(Config(classifiers=(TermsClassifierConfig(file=str(tmp_path / "terms.txt")),)))


def test_a_key_of_a_classifier_does_not_show():
    config = Config(classifiers=(HttpClassifierConfig(url="http://h/", api_key="tell-nobody"),))
    assert "nobody" not in repr(config)
    with pytest.raises(ConfigError) as caught:
        check(Config(classifiers=(HttpClassifierConfig(url="http://h/", api_key="tell nobody"),)))
    assert "nobody" not in str(caught.value)


async def test_the_examples_of_the_documentation_are_valid(tmp_path):
    page = PAGE.read_text("utf-8")
    simplest, whole = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    examples = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    for terms in (simplest, whole):
        (tmp_path / "terms.txt").write_text(terms, "utf-8")
        assert [len(load(tmp_path, example).classifiers) for example in examples] == [1, 3]
    config = Config(classifiers=(TermsClassifierConfig(file=str(tmp_path / "terms.txt")),))
    assert await before(config, "How is a Nerve  Agent made?") == Verdict("block", ("weapons",))
    assert await before(config, "My card is 4000 1234 5678 9010.") == Verdict("flag", ("privacy/card",))
