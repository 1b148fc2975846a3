"""Write tests/golden/*.json with independent libraries, in environments of their own.

dp-accounting cannot be installed beside Airflow and needs older numpy and scipy; mpmath comes
with it. Opacus brings torch. So each source has a throw-away environment:

    uv venv /tmp/golden --python 3.11
    uv pip install --python /tmp/golden/bin/python dp-accounting==0.6.0 "numpy<2.3" "scipy<1.16"
    /tmp/golden/bin/python tools/write_golden.py exact dp_accounting

    uv venv /tmp/golden-opacus --python 3.11
    uv pip install --python /tmp/golden-opacus/bin/python opacus==1.6.0 torch==2.13.0
    /tmp/golden-opacus/bin/python tools/write_golden.py opacus

    uv pip install --python /tmp/golden/bin/python "numpy<2.3"
    /tmp/golden/bin/python tools/write_golden.py bounded_range

    uv pip install --python /tmp/golden/bin/python dp-accounting==0.6.0 "numpy<2.3" "scipy<1.16" \
        riskcal==1.5.1
    /tmp/golden/bin/python tools/write_golden.py risk

``exact`` holds the closed forms and integrals in 40-digit arithmetic, as decimal strings: a
reported loss may never lie below them. The other files hold what the libraries report.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden"
DELTAS = ("1e-15", "1e-9", "1e-6", "1e-5", "1e-2", "0.3")

SAMPLED = (
    (0.01, 1.0, 1000, 1e-5),
    (2048 / 182034, 1.1, 889, 1e-7),
    (2048 / 182034, 1.1, 889, 1e-6),
    (0.001, 0.6, 5000, 1e-6),
    (0.05, 2.0, 200, 1e-5),
    (0.3, 5.0, 100, 1e-6),
    (0.5, 0.9, 3, 1e-5),
    (0.0001, 0.5, 100000, 1e-9),
    (0.02, 10.0, 2000, 1e-6),
)
"""Rate, noise multiplier, steps, delta."""

GAUSSIANS = ((2.8284271247461903, 1), (2.8284271247461903, 5), (1.0, 1), (25.0, 17), (0.5, 2))
PURES = ((0.1,), (1.0,), (3.0,), (0.1,) * 50, (0.5, 1.0, 0.01))


def exact() -> dict[str, Any]:
    """Closed forms, roots and integrals with mpmath."""
    import mpmath as mp

    mp.mp.dps = 40

    def text(value: Any) -> str:
        return str(mp.nstr(value, 30, min_fixed=0, max_fixed=0))

    def zcdp(rho: Any, delta: Any) -> Any:
        wanted = -mp.log(delta)
        low, high = mp.mpf(0), mp.sqrt(wanted / rho)
        while high - low > high * mp.mpf(10) ** -35:
            u = (low + high) / 2
            low, high = (low, u) if rho * u * u + mp.log1p(u) > wanted else (u, high)
        u = high
        return mp.mpf(max(0, rho * (1 + u) + mp.log(u / (1 + u)) + (wanted - mp.log1p(u)) / u))

    def gaussian(mu: Any, delta: Any) -> Any:
        def excess(epsilon: Any) -> Any:
            x = mu / 2 - epsilon / mu
            return mp.ncdf(x) - mp.exp(epsilon) * mp.ncdf(x - mu) - delta

        if excess(mp.mpf(0)) <= 0:
            return mp.mpf(0)
        low, high = mp.mpf(0), zcdp(mu * mu / 2, delta) + 1
        while high - low > high * mp.mpf(10) ** -25:
            middle = (low + high) / 2
            low, high = (middle, high) if excess(middle) > 0 else (low, middle)
        return high

    def moment(rate: Any, sigma: Any, order: Any) -> Any:
        # The trapezoid rule on an analytic integrand: with this step the error is below e^-150.
        step = min(sigma, sigma**2) / 8
        first, last = -14 * sigma, order + 14 * sigma
        total = mp.mpf(0)
        for k in range(int((last - first) / step) + 1):
            z = first + k * step
            inner = 1 - rate + rate * mp.exp((2 * z - 1) / (2 * sigma**2))
            total += mp.exp(-z * z / (2 * sigma**2)) * (inner**order - 1)
        return mp.log1p(total * step / (sigma * mp.sqrt(2 * mp.pi)))

    result: dict[str, Any] = {"source": f"mpmath {version('mpmath')}, 40 digits"}
    rhos = ("1e-12", "1e-8", "1e-4", "0.01", "0.1", "1", "10", "100", "1e4")
    result["zcdp"] = [
        {
            "rho": float(r),
            "delta": float(d),
            "epsilon": text(zcdp(mp.mpf(float(r)), mp.mpf(float(d)))),
        }
        for r, d in product(rhos, DELTAS)
    ]
    mus = ("1e-4", "0.01", "0.1", "0.35", "1", "3", "10", "30", "100")
    result["gaussian"] = [
        {
            "mu": float(m),
            "delta": float(d),
            "epsilon": text(gaussian(mp.mpf(float(m)), mp.mpf(float(d)))),
            "epsilon_at_lower_delta": text(
                gaussian(mp.mpf(float(m)), mp.mpf(float(d)) * (1 - mp.mpf("2e-6")))
            ),
        }
        for m, d in product(mus, DELTAS)
    ]
    result["pure_rdp"] = []
    for e, o in product(
        (1e-8, 1e-3, 0.1, 1.0, 2.0, 10.0, 700.0), (1.001, 1.5, 2.0, 4.4, 1000.0, 1e6)
    ):
        epsilon, order = mp.mpf(e), mp.mpf(o)
        ratio = (mp.exp(order * epsilon) + mp.exp((1 - order) * epsilon)) / (1 + mp.exp(epsilon))
        result["pure_rdp"].append(
            {"epsilon": e, "order": o, "loss": text(mp.log(ratio) / (order - 1))}
        )
    mp.mp.dps = 30
    result["sampled_moment"] = [
        {
            "rate": q,
            "sigma": s,
            "order": a,
            "log_moment": text(moment(mp.mpf(q), mp.mpf(s), mp.mpf(a))),
        }
        for q, s, a in product(
            (1e-6, 1e-3, 0.01, 0.1, 0.5, 0.9),
            (0.5, 1.0, 2.0, 10.0),
            (1.01, 1.5, 2.0, 2.5, 5.3, 20.7, 64.5, 256.0),
        )
    ]
    return result


def dp_accounting() -> dict[str, Any]:
    """Renyi and privacy-loss-distribution accountants of google/differential-privacy."""
    import dp_accounting as dpa
    from dp_accounting.pld import privacy_loss_distribution as pld
    from dp_accounting.rdp import RdpAccountant

    result: dict[str, Any] = {"source": f"dp-accounting {version('dp-accounting')}"}
    result["sampled_gaussian"] = []
    for rate, sigma, steps, delta in SAMPLED:
        one = dpa.PoissonSampledDpEvent(rate, dpa.GaussianDpEvent(sigma))
        rdp = RdpAccountant().compose(one, steps)
        low, high = (
            pld.from_gaussian_mechanism(
                sigma, sampling_prob=rate, pessimistic_estimate=side, use_connect_dots=side
            )
            .self_compose(steps)
            .get_epsilon_for_delta(delta)
            for side in (False, True)
        )
        result["sampled_gaussian"].append(
            {
                "rate": rate,
                "noise_multiplier": sigma,
                "steps": steps,
                "delta": delta,
                "rdp": float(rdp.get_epsilon(delta)),
                "pld_low": float(low),
                "pld_high": float(high),
            }
        )
    orders = [1.25, 1.5, 1.75, 2.0, 2.5, 4.0, 7.7, 12.0, 32.0, 63.5, 128.0, 512.0]
    result["sampled_curve"] = []
    for rate, sigma, _, _ in SAMPLED:
        accountant = RdpAccountant(orders)
        accountant.compose(dpa.PoissonSampledDpEvent(rate, dpa.GaussianDpEvent(sigma)))
        result["sampled_curve"].append(
            {
                "rate": rate,
                "noise_multiplier": sigma,
                "orders": orders,
                "losses": [float(x) for x in accountant._rdp],
            }
        )
    result["gaussian"] = []
    for (sigma, count), delta in product(GAUSSIANS, (1e-9, 1e-5)):
        low, high = (
            pld.from_gaussian_mechanism(
                sigma / count**0.5, pessimistic_estimate=side, use_connect_dots=side
            ).get_epsilon_for_delta(delta)
            for side in (False, True)
        )
        rdp = RdpAccountant().compose(dpa.GaussianDpEvent(sigma), count)
        result["gaussian"].append(
            {
                "noise_multiplier": sigma,
                "count": count,
                "delta": delta,
                "rdp": float(rdp.get_epsilon(delta)),
                "pld_low": float(low),
                "pld_high": float(high),
            }
        )
    result["pure"] = []
    for epsilons, delta in product(PURES, (1e-9, 1e-5)):
        total = None
        for epsilon in epsilons:
            one = pld.from_randomized_response(2 / (1 + 2.718281828459045**epsilon), 2)
            total = one if total is None else total.compose(one)
        rdp = RdpAccountant()
        for epsilon in epsilons:
            rdp.compose(dpa.LaplaceDpEvent(1 / epsilon))
        result["pure"].append(
            {
                "epsilons": list(epsilons),
                "delta": delta,
                "randomised_response_pld": float(total.get_epsilon_for_delta(delta)),
                "laplace_rdp": float(rdp.get_epsilon(delta)),
            }
        )
    result["zcdp"] = [
        {
            "rho": rho,
            "delta": delta,
            "rdp": float(RdpAccountant().compose(dpa.ZCDpEvent(rho)).get_epsilon(delta)),
        }
        for rho, delta in product((0.001, 0.019223, 0.1, 1.0, 5.0), (1e-9, 1e-6))
    ]
    return result


def opacus() -> dict[str, Any]:
    """Renyi and PRV accountants of Opacus."""
    from opacus.accountants import PRVAccountant, RDPAccountant

    cases = []
    for rate, sigma, steps, delta in SAMPLED:
        prv, rdp = PRVAccountant(), RDPAccountant()
        prv.history = rdp.history = [(sigma, rate, steps)]
        error = 0.01
        cases.append(
            {
                "rate": rate,
                "noise_multiplier": sigma,
                "steps": steps,
                "delta": delta,
                "rdp": float(rdp.get_epsilon(delta)),
                "prv_upper": float(prv.get_epsilon(delta, eps_error=error)),
                "prv_error": error,
            }
        )
    return {"source": f"opacus {version('opacus')}", "sampled_gaussian": cases}


DRAWS = (
    (2.0, 1, 1.0),
    (0.5065, 48, 9.0),
    (0.0637, 48, 0.9),
    (0.1104, 16, 0.9),
    (0.2026, 300, 9.3),
    (1.2232, 48, 27.0),
)
"""Range, count, epsilon."""


def bounded_range(choices: int = 200) -> dict[str, Any]:
    """Delta of an adversary who picks t among multiples of range / choices, draw by draw.

    His losses stay on a lattice, so this is what he reaches: a bound from below, by nothing but
    the definition of a draw.
    """

    def delta(eta: float, count: int, epsilon: float) -> float:
        places = np.arange(-count * choices, count * choices + 1)
        left = np.maximum(0.0, 1 - np.exp(np.minimum(epsilon - places * (eta / choices), 0.0)))
        for _ in range(count):  # left[i]: delta when so much loss is behind him
            kept = len(left) - 2 * choices
            best = np.zeros(kept)
            for j in range(choices + 1):
                up = (1 - np.exp(-(choices - j) * eta / choices)) / (1 - np.exp(-eta))
                high, low = left[choices + j :][:kept], left[j:][:kept]
                best = np.maximum(best, up * high + (1 - up) * low)
            left = best
        return float(left[0])

    return {
        "source": f"strategies on {choices} values of t, enumerated",
        "draws": [
            {"range": eta, "count": count, "epsilon": epsilon, "delta": delta(eta, count, epsilon)}
            for eta, count, epsilon in DRAWS
        ],
    }


RISKS = {
    "gaussian": ((4.0, 1), (1.0, 1), (0.45, 1), (5.0, 10)),
    "sampled": ((0.1, 1.0, 30), (0.01, 0.8, 1000)),
    "pure": ((0.1,), (1.0,), (3.0,)),
}
"""Events: kind and values, as the constructors of privsyn.dp.events take them."""


def risk() -> dict[str, Any]:
    """What an attacker achieves, from dp-accounting's loss distributions by riskcal."""
    import dp_accounting as dp
    from dp_accounting.pld import privacy_loss_distribution as pld
    from riskcal import analysis

    def distribution(kind: str, values: tuple[float, ...]) -> Any:
        if kind == "pure":
            return pld.from_privacy_parameters(
                dp.pld.common.DifferentialPrivacyParameters(values[0], 0.0)
            )
        rate, noise, count = values if kind == "sampled" else (1.0, *values)
        one = pld.from_gaussian_mechanism(
            noise, sampling_prob=rate, value_discretization_interval=1e-4
        )
        return one.self_compose(int(count))

    def figures(found: Any) -> dict[str, float]:
        return {
            "found_at_1_percent": 1 - float(analysis.get_beta_from_pld(found, alpha=0.01)),
            "found_at_1_permille": 1 - float(analysis.get_beta_from_pld(found, alpha=0.001)),
            "advantage": float(analysis.get_advantage_from_pld(found)),
        }

    return {
        "source": f"riskcal {version('riskcal')}, dp-accounting {version('dp-accounting')}",
        "rows": [
            {
                "name": "-".join([kind, *map(str, values)]),
                "event": [kind, *values],
                "risk": figures(distribution(kind, values)),
            }
            for kind, rows in RISKS.items()
            for values in rows
        ],
    }


SOURCES = {
    "risk": risk,
    "exact": exact,
    "dp_accounting": dp_accounting,
    "opacus": opacus,
    "bounded_range": bounded_range,
}


def main(names: list[str]) -> None:
    """Write the named golden files."""
    for name in names or list(SOURCES):
        path = GOLDEN / f"{name}.json"
        path.write_text(json.dumps(SOURCES[name](), indent=1) + "\n", encoding="ascii")
        print(path)


if __name__ == "__main__":
    main(sys.argv[1:])
