"""States to try a store with, and what to require of it: the words in which the checks are written."""

from __future__ import annotations

import msgspec

from respserver.state import OpenCall, ResponseState, StoredItem
from respserver.store.base import Store

TENANT = "tenant"


def make_state(
    response_id: str, parent: str | None, *, tenant: str = TENANT, response: bytes = b"{}", items: tuple[str, ...] = ()
) -> ResponseState:
    """A small state that continues ``parent``, or begins a chain; ``items`` are ids of output items."""
    return ResponseState(
        id=response_id,
        tenant=tenant,
        created_at=1_700_000_000,
        previous_response_id=parent,
        response=response,
        items=[StoredItem("input", b'{"type":"message"}'), *(item_of(response_id, name) for name in items)],
        item_ids=list(items),
    )


def item_of(response_id: str, item_id: str) -> StoredItem:
    """The item of this id as ``make_state`` puts it into a response."""
    return StoredItem("output", b'{"type":"message","id":"%s","of":"%s"}' % (item_id.encode(), response_id.encode()))


def full_state() -> ResponseState:
    """A state in which no field but the store's own has its default."""
    return ResponseState(
        id="resp_full",
        tenant=TENANT,
        created_at=1_700_000_000,
        previous_response_id=None,
        response=b'{"id":"resp_full"}',
        items=[StoredItem("input", b'{"text":"\xc3\xa9\xf0\x9f\xa6\x8a"}'), StoredItem("output", b"\x00\xff")],
        tools=b'[{"type":"function"}]',
        added_tools=[b"[]", b'[{"type":"custom"}]'],
        body_ids=bytes(range(256)),
        fingerprint="tokenizer/1",
        head_key=b"\x00\x01",
        open_calls=[OpenCall("call_1", "function_call", "shell"), OpenCall("call_2", "custom_tool_call", "a.b", False)],
        item_ids=["msg_1", "msg_2"],
        call_ids=["call_1", "call_2"],
        verdict="passed",
    )


async def save_chain(store: Store, *names: str) -> None:
    """Save a chain of these ids."""
    await store.save(make_state(names[0], None))
    await continue_chain(store, *names)


async def continue_chain(store: Store, parent: str, *names: str) -> None:
    """Save these ids one after the other, the first as a continuation of ``parent``."""
    for name in names:
        await store.save(make_state(name, parent))
        parent = name


async def require_chain(store: Store, response_id: str, expected: list[str]) -> None:
    """Raise ``AssertionError`` unless the id is stored and its chain is this, oldest first."""
    loaded = await store.load(response_id, TENANT)
    require(loaded is not None and loaded.id == response_id, f"{response_id} should be stored, load gave {loaded}")
    chain = await store.load_chain(response_id, TENANT)
    touched = await store.touch(response_id, TENANT)
    require(touched == (chain is not None), f"touch says {touched} of {response_id}, load_chain gives {chain}")
    found = ids_of(chain) if chain is not None else None
    require(found == expected, f"the chain of {response_id} is {found}, not {expected}")


async def require_unknown(store: Store, response_id: str, tenant: str) -> None:
    """Raise ``AssertionError`` if the store gives the id out."""
    require(await store.load(response_id, tenant) is None, f"load knows {response_id}, which should be unknown")
    require(await store.load_chain(response_id, tenant) is None, f"load_chain knows {response_id}, which it shouldn't")
    require(await store.touch(response_id, tenant) is False, f"touch knows {response_id}, which it shouldn't")


def plain(state: ResponseState | None) -> ResponseState | None:
    """The state without the three fields that are the store's to set."""
    return state and msgspec.structs.replace(state, branch="", position=0, fork_of=None)


def plain_chain(chain: list[ResponseState] | None) -> list[ResponseState | None]:
    """The same for every state of a chain; no chain is an empty one."""
    return [plain(state) for state in chain or ()]


def ids_of(chain: list[ResponseState] | None) -> list[str]:
    """A chain's ids, oldest first; no chain is an empty one."""
    return [state.id for state in chain or ()]


def require(condition: bool, message: str) -> None:
    """Raise ``AssertionError`` with this message unless the condition holds."""
    # Not an assert statement: a check must hold under python -O too.
    if not condition:
        raise AssertionError(message)
