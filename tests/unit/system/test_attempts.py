"""What follows an attempt, and what two attempts say together."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from pytest_ascend.system.attempts import Attempt, Decision, End, decide, how_it_ended

PASSED = Attempt(card="npu:0", end=End.ANSWERED, answer="passed")
FAILED = Attempt(card="npu:0", end=End.ANSWERED, answer="failed")
ERRORED = Attempt(card="npu:0", end=End.ANSWERED, answer="errored")
CRASHED = Attempt(card="npu:0", end=End.CRASHED)
HUNG = Attempt(card="npu:0", end=End.HUNG)
KILLED = Attempt(card="npu:0", end=End.KILLED)
UNPROVEN = Attempt(card="npu:0", end=End.UNPROVEN, answer="passed")
ELSEWHERE = Attempt(card="npu:1", end=End.ANSWERED, answer="passed")
CRASHED_ELSEWHERE = Attempt(card="npu:1", end=End.CRASHED)

TABLE = {
    "a pass stands": ((PASSED,), Decision.ACCEPT),
    "a failure is asked for again": ((FAILED,), Decision.AGAIN),
    "an error is asked for again, apart": ((ERRORED,), Decision.ALONE),
    "a failure twice stands": ((FAILED, FAILED), Decision.ACCEPT),
    "a failure, then a pass": ((FAILED, PASSED), Decision.FLAKY),
    "a failure, then an error": ((FAILED, ERRORED), Decision.FLAKY),
    "a crash is tried once more, alone": ((CRASHED,), Decision.ALONE),
    "a crash twice": ((CRASHED, CRASHED), Decision.BLAME),
    "a crash, then a hang": ((CRASHED, HUNG), Decision.BLAME),
    "a hang, then a pass": ((HUNG, PASSED), Decision.FLAKY),
    "unproven is tried again": ((UNPROVEN,), Decision.ALONE),
    "unproven, then a pass": ((UNPROVEN, PASSED), Decision.ACCEPT),
    "unproven twice": ((UNPROVEN, UNPROVEN), Decision.BLAME),
    "unproven, then a failure": ((UNPROVEN, FAILED), Decision.AGAIN),
    "killed from outside": ((KILLED,), Decision.AGAIN),
    "killed from outside, then a pass": ((KILLED, PASSED), Decision.ACCEPT),
    "killed from outside, always": ((KILLED, KILLED, KILLED), Decision.LOST),
    "a crash, killed, a crash": ((CRASHED, KILLED, CRASHED), Decision.BLAME),
}


@pytest.mark.parametrize("name", TABLE)
def test_what_follows(name: str) -> None:
    attempts, decision = TABLE[name]
    assert decide(attempts) is decision


def test_what_happened_on_a_faulty_card_says_nothing_of_the_case() -> None:
    faulty = frozenset({"npu:0"})
    assert decide((CRASHED, ELSEWHERE), faulty=faulty) is Decision.ACCEPT
    assert decide((CRASHED, CRASHED), faulty=faulty) is Decision.ALONE
    assert decide((CRASHED, CRASHED_ELSEWHERE), faulty=faulty) is Decision.ALONE


@pytest.mark.parametrize("last", [PASSED, FAILED, ERRORED, CRASHED, HUNG, UNPROVEN], ids=lambda each: each.result)
def test_whatever_went_before_only_attempts_on_well_cards_count(last: Attempt) -> None:
    faulty = frozenset({"npu:9"})
    kinds = (PASSED, FAILED, ERRORED, CRASHED, HUNG, UNPROVEN)
    for earlier in product([*kinds, *(replace(each, card="npu:9") for each in kinds)], repeat=2):
        assert decide((*earlier, replace(last, card="npu:9")), faulty=faulty) is Decision.ALONE
        well = [each for each in earlier if each.card not in faulty]
        assert decide((*earlier, last), faulty=faulty) is decide((*well, last))


def test_an_ordinary_test_is_asked_once() -> None:
    assert decide((FAILED,), is_case=False) is Decision.ACCEPT


def test_it_comes_to_an_end_whatever_happens() -> None:
    assert decide((KILLED, UNPROVEN, KILLED, FAILED, PASSED, CRASHED)) is Decision.BLAME


@pytest.mark.parametrize(
    ("code", "end", "said"),
    [
        (-11, End.CRASHED, "SIGSEGV"),
        (-6, End.CRASHED, "SIGABRT"),
        (-9, End.KILLED, "SIGKILL"),
        (-15, End.KILLED, "SIGTERM"),
        (139, End.CRASHED, "exit code 139"),
        (0, End.CRASHED, "exit code 0"),
    ],
)
def test_an_exit_code_says_who_ended_the_process(code: int, end: End, said: str) -> None:
    found, reason = how_it_ended(code)
    assert found is end
    assert said in reason
