"""What an algorithm's hooks return is checked where it enters the run."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from types import CoroutineType
from typing import Any

from fedsim.errors import RunError
from fedsim.quoting import shortened


def instructions(hook: Any, result: Any) -> tuple[Any, Mapping[int, Any]]:
    """Return the state and the messages that an *instruct* hook has returned.

    Raises:
        RunError: It has returned something else.
    """
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], Mapping):
        return result
    raise _unexpected(hook, result, "(state, messages), with messages a mapping of clients to messages")


def called(hook: Callable[..., Any], *arguments: Any) -> Coroutine[Any, Any, Any]:
    """Call a hook, and return its coroutine.

    Raises:
        RunError: It is no coroutine function.
    """
    coroutine = hook(*arguments)
    if type(coroutine) is CoroutineType or isinstance(coroutine, Coroutine):
        return coroutine
    raise RunError(f"the hook {_name_of(hook)} is an ordinary function: write it with async def")


def local_result(hook: Any, result: Any) -> tuple[Any, Any]:
    """Return the state and the reply that a *local* hook has returned.

    Raises:
        RunError: It has returned something else.
    """
    if isinstance(result, tuple) and len(result) == 2:
        return result
    raise _unexpected(hook, result, "(state, reply)")


def merged_state(hook: Any, result: Any, before: Any) -> Any:
    """Return the state that a *merge* hook has returned.

    Raises:
        RunError: It has returned None, and there was a state before.
    """
    if result is None and before is not None:
        raise _unexpected(hook, result, f"the server's new state, a {type(before).__name__}")
    return result


def foreign_await(hook: Any, awaited: Any) -> RunError:
    """Return the error of a client hook that awaits something else than a call of its context."""
    kind = "nothing (as asyncio.sleep(0) does)" if awaited is None else f"a {type(awaited).__name__}"
    return RunError(
        f"the hook {_name_of(hook)} awaited {kind}: a client's hook awaits calls of its context, such as "
        "client.fit and client.predict, one at a time; client.predict_each makes several predictions"
    )


def _name_of(hook: Any) -> str:
    while isinstance(hook, partial):  # what the runtime has put around it
        hook = next((arg for arg in hook.args if callable(arg)), hook.func)
    return f"{getattr(hook, '__module__', '?')}.{getattr(hook, '__qualname__', repr(hook))}"


def _unexpected(hook: Any, result: Any, expected: str) -> RunError:
    shown = "None" if result is None else f"{type(result).__name__} ({shortened(repr(result), 60)})"
    return RunError(f"the hook {_name_of(hook)} returned {shown}, but has to return {expected}")
