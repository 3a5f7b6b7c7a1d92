"""The settings that are lists of tables in the settings file: routes and classifiers. ``config.py`` holds them."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from respserver.limits import Seconds


class RouteConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of the routing table: which model names go where."""

    pattern: Annotated[str, Meta(min_length=1, description="Model name or shell pattern (gpt-*, *).")]
    engine: Annotated[str, Meta(description="Engine that serves it.")] = "sim"
    context_window: Annotated[int, Meta(ge=0, description="Tokens that fit; 0 is no limit.")] = 0
    steering: Annotated[bool, Meta(description="Whether responses take `response.steer`; older models' do not.")] = True


class _Classifier(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    name: Annotated[
        str,
        Meta(
            max_length=64,
            pattern=r"^([A-Za-z0-9][A-Za-z0-9_./-]*)?$",
            description="What logs call it; the kind if left out.",
            extra={"words": "up to 64 letters, digits, _ . / or -, a letter or a digit first"},
        ),
    ] = ""
    when: Annotated[
        Literal["before", "beside"],
        Meta(description="Whether `response.created` waits for it, or sampling alone."),
    ] = "before"


class TermsClassifierConfig(_Classifier, frozen=True, tag="terms"):
    """Terms and patterns from a file."""

    file: Annotated[str, Meta(min_length=1, description="File of terms and patterns, one a line.")]


class HttpClassifierConfig(_Classifier, frozen=True, tag="http"):
    """A classifier that is asked over HTTP."""

    url: Annotated[
        str,
        Meta(
            pattern=r"^https?://[!-?A-~]+$",
            description="Where the question is posted.",
            extra={"words": "http://… or https://…", "secret": True},  # people write passwords into it
        ),
    ]
    api_key: Annotated[
        str,
        Meta(
            pattern=r"^[!-~]*$",
            description="Sent as a bearer key.",
            extra={"words": "visible ASCII characters without spaces", "secret": True},
        ),
    ] = ""
    reads: Annotated[
        Literal["new", "context"], Meta(description="Whether it is shown what is new, or everything each time.")
    ] = "new"
    seconds: Annotated[Seconds, Meta(description="How long it may take, connecting included.")] = 2.0
    failure: Annotated[
        Literal["closed", "open"],
        Meta(description="Without an answer, refuse the input (closed) or let it pass (open)."),
    ] = "closed"

    def __repr__(self) -> str:
        return f"HttpClassifierConfig(name={self.name!r}, url={self.url!r}, when={self.when!r})"


class LatencyClassifierConfig(_Classifier, frozen=True, tag="latency"):
    """Passes everything after a while, for measurements."""

    seconds: Annotated[float, Meta(ge=0, lt=1e9, description="How long it takes.")] = 0.05


ClassifierConfig = TermsClassifierConfig | HttpClassifierConfig | LatencyClassifierConfig
