"""The words for what the bank can be told to do with a payment: `settle`, or `timeout,return=40`.

They stand in the payment's own texts behind `sandbox:`, or come by the control API without it.
"""

import re
from collections.abc import Mapping

Plan = Mapping[str, int | None]
"""The words, each with its number if it has one."""

ANSWERS = {
    "reject": "is not taken at all: 422",
    "lost": "gets lost before the bank has it: the first n tries (1)",
    "timeout": "is taken, and the first n tries (1) are not answered",
    "broken": "is taken, and the first n tries (1) are answered with half a JSON text",
    "reset": "is taken, and the connection is reset at the first n tries (1)",
    "502": "is taken, and a proxy answers 502 to the first n tries (1)",
}
COURSES = {
    "settle": "is settled, after n seconds; what happens anyway",
    "refuse": "is taken, and refused after n seconds",
    "refuse-now": "is taken, and the answer says that it is refused",
    "wait": "stays accepted until the bank is told",
}
NOTICES = {
    "early": "is settled at once, with the notice before the answer",
    "late": "the notices come n seconds (5) after what they tell",
    "twice": "each notice is sent n times (2)",
    "never": "no notice is sent; only a query tells",
}
ODDITIES = {
    "return": "goes back after it was settled: n minor units, or all",
    "return-first": "likewise, and that is told before the settlement is",
    "refuse-after": "is settled and told so, and then told to be refused, which is a lie",
    "wrong-amount": "the notices of settlement and refusal tell n minor units, or 1 too many",
}
WORDS = ANSWERS | COURSES | NOTICES | ODDITIES

_IN_TEXT = re.compile(r"sandbox:([a-z0-9,=-]+)")
_WORD = re.compile(r"([a-z0-9-]+)(?:=([0-9]{1,15}))?")


def read(text: str) -> Plan:
    """The plan that such words make.

    Raises:
        ValueError: a word is unknown, or two contradict each other.
    """
    plan: dict[str, int | None] = {}
    for item in text.split(","):
        match = _WORD.fullmatch(item)
        if match is None or match[1] not in WORDS:
            raise ValueError(f"{item!r} is none of the words {', '.join(WORDS)}")
        plan[match[1]] = None if match[2] is None else int(match[2])
    for group in (ANSWERS, COURSES, NOTICES):
        if len(chosen := [word for word in plan if word in group]) > 1:
            raise ValueError(f"{' and '.join(chosen)} contradict each other")
    return plan


def find(*texts: str | None) -> str | None:
    """The words that stand in the texts of a payment, if any do."""
    found = [match for text in texts if text for match in _IN_TEXT.findall(text)]
    return ",".join(found) or None


def chosen(plan: Plan, group: Mapping[str, str]) -> str | None:
    """The plan's word of a group."""
    return next((word for word in plan if word in group), None)
