"""The quick tests start no process, and neither Airflow nor DVC."""

import sys

import pytest

STARTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "os.exec"}
# joblib asks the first once a process for the cores that scikit-learn may use. matplotlib asks the
# second for fonts, on a machine whose list of them it has not written yet.
LIBRARIES_ASK = {"lscpu", "fc-list"}
REFUSED = {"airflow", "dvc"}
ELSEWHERE = "a test that does belongs in tests/integration, or in tests/system where Airflow runs"
_watching = False


def _refuse(event, arguments):
    """An audit hook: Python has no way to take one back, so it looks at whether a test runs."""
    if not _watching or (event == "subprocess.Popen" and arguments[0] in LIBRARIES_ASK):
        return
    if event in STARTS:
        raise RuntimeError(f"{event}: tests/unit starts no process; {ELSEWHERE}")
    if event == "import" and arguments[0] in REFUSED:
        raise RuntimeError(f"import {arguments[0]}: tests/unit needs it not; {ELSEWHERE}")


sys.addaudithook(_refuse)


@pytest.fixture(autouse=True)
def no_processes(monkeypatch):
    """A process, or an import of Airflow or DVC, fails the test that asks for it."""
    import multiprocessing.util

    def spawn(*_):
        raise RuntimeError(f"multiprocessing: tests/unit starts no process; {ELSEWHERE}")

    # multiprocessing starts its processes below what Python audits.
    monkeypatch.setattr(multiprocessing.util, "spawnv_passfds", spawn)
    global _watching
    _watching = True
    yield
    _watching = False
