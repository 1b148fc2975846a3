"""What an exception may carry out of the public API.

A traceback holds frames, and a notebook that shows one shows their values: a data frame that was
passed in, a text that was being read. So no frame of privsyn leaves: an error is raised anew
with its message, which holds no record text, and without cause and context.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from privsyn.api.arguments import refuse_misfits
from privsyn.errors import Defect, PrivsynError

P = ParamSpec("P")
T = TypeVar("T")


def guarded(work: Callable[P, T]) -> Callable[P, T]:
    """A function of the API whose exceptions carry no frame, cause or context.

    Errors of privsyn keep their class and message. A foreign exception is a Defect, which says its
    type and place; an interruption says how to go on; an argument that does not fit is a mistake of
    the caller. With ``PRIVSYN_DEBUG`` set all pass as they
    are.
    """

    @functools.wraps(work)
    def held(*args: P.args, **kwargs: P.kwargs) -> T:
        failure: BaseException
        try:
            # Inside the try: its error must lose its frames as well, which hold the arguments.
            refuse_misfits(work, args, kwargs)
            return work(*args, **kwargs)
        except PrivsynError as error:
            failure = error
        except KeyboardInterrupt as error:
            failure = error if os.environ.get("PRIVSYN_DEBUG") else KeyboardInterrupt(_INTERRUPTED)
        except Exception as error:
            failure = error if os.environ.get("PRIVSYN_DEBUG") else Defect.of(error)
        if os.environ.get("PRIVSYN_DEBUG"):
            raise failure
        del args, kwargs  # a verbose traceback shows what the names of this frame stand for
        # The raise below adds this frame alone, whose arguments are deleted.
        failure.__cause__ = failure.__context__ = failure.__traceback__ = None
        raise failure

    return held


_INTERRUPTED = "interrupted; the same call again goes on from what is drawn, and spends no more"
