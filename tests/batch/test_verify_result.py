"""The verdict over the checks of a verification (pure)."""

import pytest

from tidemark.verify.result import EXIT_CODES, ProofPart, Verdict, Verification

HOLDS = ProofPart(name="a")
EXPIRED = ProofPart(name="b", expired=True)
UNKNOWN = ProofPart(name="c", unknown=["Kafka does not answer"])


def differing() -> ProofPart:
    check = ProofPart(name="d", unknown=["a part is unknown"])
    check.equal("rows", expected=2, found=1, where="an object")
    return check


@pytest.mark.parametrize(
    ("checks", "verdict", "code"),
    [
        ((), "unknown", 2),
        ((HOLDS, UNKNOWN), "unknown", 2),
        ((HOLDS, EXPIRED), "proven", 0),
        ((HOLDS, UNKNOWN, differing()), "disproven", 1),
    ],
    ids=["no check", "one unknown", "one expired", "one differs"],
)
def test_what_could_not_be_checked_is_unknown(checks: tuple[ProofPart, ...], verdict: Verdict, code: int) -> None:
    found = Verification(stream="s", day="2013-01-14", version=1, seal="key", lost=0, checks=checks)
    assert (found.verdict, EXIT_CODES[found.verdict]) == (verdict, code)
