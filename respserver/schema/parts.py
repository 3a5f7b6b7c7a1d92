"""Content parts as clients send them: texts, images and files (protocol.md section 6.4).

Nothing is fetched, and no image or file is opened: its form is checked, and in the context a placeholder stands for it,
of a name and so many tokens as ``image_tokens`` and ``file_tokens`` say.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from urllib.parse import urlsplit

import msgspec

from respserver.errors import InvalidField, MissingParameter
from respserver.schema.codec import InvalidChoice, join
from respserver.schema.items import InputPart

IMAGE_TOKENS = {"low": 85, "auto": 765, "high": 765, "original": 1445}
"""By ``detail``. The numbers are those of an image of a megapixel in the tables that are published for such models; its
real size is inside the data, which nobody here looks into."""
FILE_BYTES_PER_TOKEN = 256
"""A page of a PDF has some 50 KB and some 200 tokens of text."""
MIN_FILE_TOKENS = 64
"""Also of a file that is not here: one that is named by its id or address."""
MAX_FILE_TOKENS = 16_384
IMAGE_TYPES = ("image/png", "image/jpeg", "image/jpg", "image/webp", "image/gif")
_BASE64 = (string.ascii_letters + string.digits + "+/").encode()
_TEXT_KINDS = ("input_text", "output_text")


class Part(msgspec.Struct, kw_only=True):
    """A content part as it was sent."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: str | None = None
    detail: str | None = None
    file_id: str | None = None
    file_url: str | None = None
    file_data: str | None = None
    filename: str | None = None


def read_parts(content: str | Sequence[Part], param: str) -> list[InputPart]:
    """Check parts and say what the context needs of them; a string is one text. Raises an ``InvalidRequest`` that names
    the part at fault."""
    if isinstance(content, str):
        return [InputPart(type="input_text", text=content)]
    return [_read_part(part, f"{param}[{index}]") for index, part in enumerate(content)]


def read_image(url: str | None, file_id: str | None, detail: str | None, param: str) -> tuple[int, int]:
    """Check where an image comes from. Returns how many tokens it takes, and the bytes of one that is here."""
    if detail is not None and detail not in IMAGE_TOKENS:
        raise InvalidChoice(join(param, "detail"), detail, tuple(IMAGE_TOKENS))
    tokens = IMAGE_TOKENS[detail or "auto"]
    if url is not None:
        return tokens, _check_image_url(url, join(param, "image_url"))
    if not file_id:
        raise MissingParameter(join(param, "image_url"), "An image needs an 'image_url' or a 'file_id'.")
    return tokens, 0


def file_tokens(size: int) -> int:
    """How many tokens a file of so many bytes takes."""
    return max(MIN_FILE_TOKENS, min(MAX_FILE_TOKENS, size // FILE_BYTES_PER_TOKEN))


def base64_size(text: str) -> int | None:
    """The bytes that a base64 text stands for, or None if it is none. Nothing is decoded, so that 16 MB take no longer
    here than they took to arrive."""
    if not text.isascii():
        return None
    body = text.rstrip("=").encode()
    padding = len(text) - len(body)
    if len(body) % 4 == 1 or padding > 2 or (padding and len(text) % 4) or body.translate(None, _BASE64):
        return None
    return len(body) * 3 // 4


def _read_part(part: Part, param: str) -> InputPart:
    pads, size = 0, 0
    if part.type == "input_image":
        pads, size = read_image(part.image_url, part.file_id, part.detail, param)
    elif part.type == "input_file":
        size = _read_file(part, param)
        pads = file_tokens(size)
    elif part.type in _TEXT_KINDS and part.text is None:
        raise MissingParameter(join(param, "text"))
    elif part.type == "refusal" and part.refusal is None:
        raise MissingParameter(join(param, "refusal"))
    return InputPart(type=part.type, text=part.text, refusal=part.refusal, pads=pads, size=size)


def _check_image_url(url: str, param: str) -> int:
    if url[:5].lower() != "data:":
        if not _is_web_address(url):
            raise InvalidField(param, "expected an http or https URL, or a data URL with base64.", "invalid_image_url")
        return 0
    head, comma, data = url[5:].partition(",")
    kind, _, coding = head.lower().partition(";")
    if not comma or coding.rpartition(";")[2] != "base64":
        problem = "expected a data URL of the form 'data:image/png;base64,...'."
        raise InvalidField(param, problem, "invalid_image_url")
    if kind not in IMAGE_TYPES:
        problem = "unsupported image. Expected PNG, JPEG, WebP or GIF."
        raise InvalidField(param, problem, "unsupported_image_media_type")
    size = base64_size(data)
    if size is None:
        raise InvalidField(param, "the data is not valid base64.", "invalid_base64_image")
    if not size:
        raise InvalidField(param, "the image is empty.", "empty_image_file")
    return size


def _read_file(part: Part, param: str) -> int:
    """The bytes of a file that came with the message, 0 if it is only named."""
    if part.file_data is not None:
        head, comma, data = part.file_data.partition(",")
        if not comma:
            data = head
        elif not (head[:5].lower() == "data:" and head[-7:].lower() == ";base64"):
            data = part.file_data
        size = base64_size(data)
        if not size:
            problem = "the file is empty." if size == 0 else "the data is not valid base64."
            raise InvalidField(join(param, "file_data"), problem, "empty_file" if size == 0 else "invalid_base64_file")
        return size
    if part.file_url is not None:
        if not _is_web_address(part.file_url):
            raise InvalidField(join(param, "file_url"), "expected an http or https URL.", "invalid_file_url")
    elif not part.file_id:
        hint = "A file needs a 'file_id', a 'file_url' or a 'file_data'."
        raise MissingParameter(join(param, "file_id"), hint)
    return 0


def _is_web_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:  # brackets of an address, or the port
        return False
