"""Private evolution's image experiments: what they cost, and that one runs from end to end."""

from pathlib import Path

import pytest

with pytest.MonkeyPatch.context() as patch:  # as where a benchmark is started
    patch.syspath_prepend(Path(__file__).parents[3] / "benchmarks" / "papers" / "private_evolution")
    import images


@pytest.mark.parametrize(
    ("experiment", "epsilon"),
    [("cifar10", 0.5613), ("camelyon17", 9.9962), ("camelyon17-stages", 10.7323)],
)
def test_an_experiment_costs_what_the_note_says(experiment, epsilon):
    """Planned with the paper's populations, of which no record is read."""
    changes = ["-S", "methods.private_evolution.population=5000"]
    row = images.main([experiment, "--small", "--plan", *changes])
    assert row["epsilon"] == pytest.approx(epsilon, abs=1e-4)


@pytest.mark.slow
def test_the_small_variant_runs_with_classes_that_no_label_names(tmp_path):
    folder = tmp_path / "project"
    row = images.main(["camelyon17", "--small", "--folder", str(folder)])
    assert row["images"] == 6
    assert set(row["classes"]) <= {"honeycomb", "velvet", "bib"}
    assert row["downstream.accuracy"] >= 0
