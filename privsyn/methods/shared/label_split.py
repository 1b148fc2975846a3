"""How many records of each label a release holds: public numbers, or a paid histogram."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from numpy.typing import NDArray

from privsyn.errors import ConfigError


def sizes(
    where: str,
    labels: Sequence[str | None],
    each: int,
    split: Mapping[str, int] | None,
    *,
    paid: bool,
) -> list[int]:
    """Records of every label: ``each``, or those of a public split.

    Args:
        where: Section of the config, for messages.
        labels: The dataset's labels; [None] where there are none.
        each: Records of a label where there is no split.
        split: Records by label.
        paid: Whether a noisy histogram will split their sum.

    Raises:
        ConfigError: ``split`` names other labels than the dataset's, or there are none.
    """
    if (split is not None or paid) and list(labels) == [None]:
        raise ConfigError(
            f"{where}: the dataset has no labels to split the release by.",
            hint="Leave the split by labels out, or set dataset.labels.",
        )
    if split is None:
        return [each] * len(labels)
    if odd := sorted(set(split) ^ {label for label in labels if label is not None}):
        raise ConfigError(
            f"{where}.label_split does not agree with dataset.labels: {', '.join(odd)}.",
            hint="Give every label of the dataset its number, and no other.",
        )
    return [split[str(label)] for label in labels]


def refuse_for_texts(where: str, split: Mapping[str, int] | None) -> None:
    """Refuse a wanted number of records beside a public split, which says how many there are.

    Raises:
        ConfigError: There is a split.
    """
    if split is not None:
        raise ConfigError(
            f"{where}.label_split says how many records each label has: {sum(split.values())} in "
            "all, which excludes another number of texts.",
            hint=f"Change label_split, or take it out: -S {where}.label_split=null.",
        )


def apportion(total: int, noisy: Sequence[int] | NDArray) -> list[int]:  # type: ignore[type-arg]
    """``total`` split in proportion to noisy counts, at least 1 each, by largest remainder."""
    counts = [max(int(count), 0) for count in noisy]
    if not any(counts):
        counts = [1] * len(counts)
    rest, whole = total - len(counts), sum(counts)
    shares = [1 + rest * count // whole for count in counts]
    by_remainder = sorted(range(len(counts)), key=lambda i: -(rest * counts[i] % whole))
    for i in by_remainder[: total - sum(shares)]:
        shares[i] += 1
    return shares
