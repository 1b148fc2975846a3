"""Exact output distributions of a token method on a tiny vocabulary, and their divergence."""

import numpy as np
from scipy.special import logsumexp

# What a reference can do to the logits, the worst included.
PULLS = {
    "up": (0.0, 1e9, -1e9),
    "down": (0.0, -1e9, 1e9),
    "nan": (0.0, float("nan"), 1.0),
    "inf": (0.0, float("inf"), float("-inf")),
    "mild": (0.0, 0.3, -0.2),
}
PUBLIC = (-3.0, 0.1, 0.0)
ORDERS = (1.01, 1.5, 2.0, 4.0, 8.0, 32.0, 128.0)


class Walk:
    """A noise source that follows a given path and multiplies up how likely it was."""

    kind = "seeded"

    def __init__(self, path):
        self._path = list(path)
        self.log_probability = 0.0
        self.widths: list[int] = []

    def noisy_max(self, scores, scale, sensitivity):
        step = len(self.widths)
        choice = self._path[step] if step < len(self._path) else 0
        exponents = (scores - scores.max()).astype(np.float64) / scale
        self.log_probability += float(exponents[choice] - np.log(np.exp(exponents).sum()))
        self.widths.append(len(scores))
        return choice


def distribution(output, start=Walk):
    """Probability of every output, by walking every path of draws once."""
    probabilities: dict[object, float] = {}
    paths: list[tuple[int, ...]] = [()]
    while paths:
        path = paths.pop()
        walk = start(path)
        value = output(walk)
        probabilities[value] = probabilities.get(value, 0.0) + float(np.exp(walk.log_probability))
        taken = path + (0,) * (len(walk.widths) - len(path))
        for step in range(len(path), len(taken)):
            paths += [(*taken[:step], choice) for choice in range(1, walk.widths[step])]
    return probabilities


def renyi(p, q, order):
    """Renyi divergence D_order(p || q) of two exact distributions."""
    values = [value for value, mass in p.items() if mass > 0]
    if any(q.get(value, 0.0) == 0 for value in values):
        return float("inf")
    log_p = np.log([p[value] for value in values])
    log_q = np.log([q[value] for value in values])
    return float(logsumexp(order * log_p + (1 - order) * log_q) / (order - 1))


def excess(p, q, rho):
    """Largest ratio of a divergence, either way, to what rho-zCDP allows. At most 1 is safe."""
    return max(max(renyi(p, q, order), renyi(q, p, order)) / (order * rho) for order in ORDERS)
