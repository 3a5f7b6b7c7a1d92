"""Errors know how they look on the wire, and stay small whatever they quote."""

from __future__ import annotations

import inspect

from respserver import errors


def test_an_error_that_quotes_a_client_is_bounded() -> None:
    error = errors.UnknownEventType("x" * 1_000_000)
    assert len(error.message) == errors.MAX_MESSAGE
    assert str(error) == error.message
    assert len(errors.UnknownParameter("y" * 10_000).param or "") == errors.MAX_PARAM


def test_every_error_is_drawn_in_the_tree_of_the_docstring() -> None:
    drawn = errors.__doc__ or ""
    for name, value in inspect.getmembers(errors, inspect.isclass):
        if issubclass(value, errors.RespserverError):
            assert name in drawn, name


def test_every_code_is_a_word_and_every_status_an_error() -> None:
    for value in vars(errors).values():
        if inspect.isclass(value) and issubclass(value, errors.ApiError):
            assert value.code
            assert value.code.isidentifier()
            assert 400 <= value.status < 600


def test_what_an_error_is_told_wins_over_its_class() -> None:
    error = errors.InvalidRequest("m", status=415, code="c", type="t", param="p", headers={"retry-after": "1"})
    assert (error.status, error.code, error.type, error.param) == (415, "c", "t", "p")
    assert error.headers == {"retry-after": "1"}
    assert errors.InvalidRequest.code == "invalid_request"
