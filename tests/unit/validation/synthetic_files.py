"""Rows of synthetic files the validation tests share."""

LABELS = ("Billing", "Symptoms")
WORDS = "please move my visit to next week because the bill from march is still open".split()


def good_rows(count=40):
    return [
        {
            "id": f"invisible_ink-00ff-{i:06d}",
            "text": " ".join(WORDS[i % 7 :]) + f" {'again ' * (i % 5)}number {'i' * (i + 1)}",
            "label": LABELS[2 * i // count],
        }
        for i in range(count)
    ]
