"""Merging shards: the whole run, or a message that says which shard is in the way."""

from hashlib import sha256

import pytest
from click.testing import CliRunner

from pytest_ascend.errors import RunLogError
from pytest_ascend.page.commands import report
from pytest_ascend.runlog.contents import Lost, Run, Selection, TimeStamped, digest
from pytest_ascend.runlog.writing import RunLog, read
from pytest_ascend.verdict.merge import merge
from pytest_ascend.verdict.summary import summarise
from tests.unit.runlog import synthetic
from tests.unit.runlog.synthetic import replace

CASES = synthetic.op_cases(9)


def shard(folder, index, outcomes=("passed",), *, count=3, cases=CASES, finish=True, **fields):
    """Write the log of one shard, which has every ``count``-th case."""
    mine = cases[index - 1 :: count]
    known = {"index": index, "count": count, "cases": len(cases), "digest": digest(case.id for case in cases)}
    header = synthetic.header(mine, stack=synthetic.HARDWARE, selection=Selection("subset", f"shard {index}/{count}"))
    header = replace(header, shard={**known, "selection": {"kind": "full", "reason": ""}}, run_id=f"run-{index}")
    log = RunLog.create(folder / f"shard-{index}" / "run.jsonl", replace(header, **fields))
    random = synthetic.Random(index)
    for place, case in enumerate(mine):
        log.append(synthetic.record(case, outcomes[place % len(outcomes)], random))
    if finish:
        log.finish(summarise(log.contents()).footer(synthetic.FINISHED))
    log.close()
    return read(folder / f"shard-{index}" / "run.jsonl")


@pytest.fixture
def runs(tmp_path):
    return [shard(tmp_path, index) for index in (1, 2, 3)]


def refusal(runs, tmp_path):
    with pytest.raises(RunLogError) as caught:
        merge(runs, tmp_path / "whole" / "run.jsonl")
    assert not (tmp_path / "whole").exists()
    return caught.value.message


def test_the_whole_has_an_id_that_follows_from_those_of_its_shards(runs, tmp_path):
    for place, given in enumerate((runs, runs[::-1])):
        merge(given, tmp_path / str(place) / "run.jsonl")
        whole = read(tmp_path / str(place) / "run.jsonl").header.run_id
        assert whole == sha256(b"run-1run-2run-3").hexdigest()[:32]


def test_shards_alone_never_conform(runs):
    assert {summarise(run).verdict.kind for run in runs} == {"subset"}


def test_the_devices_of_all_machines_are_known_or_none(tmp_path):
    doctors = [{"findings": [], "devices": [{"npu": index, "health": "OK"}]} for index in range(3)]
    merge([shard(tmp_path, i + 1, doctor=doctors[i]) for i in range(3)], tmp_path / "run.jsonl")
    assert [each["npu"] for each in read(tmp_path / "run.jsonl").header.doctor["devices"]] == [0, 1, 2]
    del doctors[1]["devices"]
    merge([shard(tmp_path / "b", i + 1, doctor=doctors[i]) for i in range(3)], tmp_path / "b" / "run.jsonl")
    assert read(tmp_path / "b" / "run.jsonl").header.doctor["devices"] == []


def test_the_whole_is_a_full_run(runs, tmp_path):
    merge(runs[::-1], tmp_path / "run.jsonl")
    whole = read(tmp_path / "run.jsonl")
    found = summarise(whole)
    assert (found.verdict.kind, found.contradictions, len(found.results)) == ("conforms", (), 9)
    assert whole.header.selection == Selection("full")
    assert not whole.header.shard


def test_the_order_in_which_shards_are_given_does_not_matter(runs, tmp_path):
    for name, given in (("one", runs), ("other", runs[::-1])):
        merge(given, tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


def test_a_deviation_in_one_shard_is_one_of_the_whole(runs, tmp_path):
    runs[1] = shard(tmp_path / "again", 2, ["passed", "failed"])
    assert merge(runs, tmp_path / "run.jsonl").verdict.kind == "does-not-conform"


def test_a_shard_that_was_stopped_makes_a_whole_that_was(runs, tmp_path):
    runs[1] = shard(tmp_path / "again", 2, finish=False)
    assert merge(runs, tmp_path / "run.jsonl").verdict.kind == "incomplete"
    assert read(tmp_path / "run.jsonl").footer is None


def test_a_missing_shard_is_named(runs, tmp_path):
    for missing in range(3):
        given = [run for place, run in enumerate(runs) if place != missing]
        assert f"these shards are missing: {missing + 1}/3" in refusal(given, tmp_path)
    assert "these shards are missing: 1/3, 3/3" in refusal([runs[1]], tmp_path)


def test_a_shard_given_twice_is_named(runs, tmp_path):
    assert "it is shard 1/3, and so is" in refusal([runs[0], *runs], tmp_path)


def test_shards_of_different_divisions_are_refused(runs, tmp_path):
    other = shard(tmp_path / "again", 2, count=4)
    assert "it is one of 4 shards, and" in refusal([runs[0], other, runs[2]], tmp_path)


def test_a_run_that_is_no_shard_is_refused(runs, tmp_path):
    other = read(synthetic.write_log(tmp_path / "full.jsonl", CASES))
    assert "full.jsonl cannot be merged: it is no shard of a run" in refusal([*runs, other], tmp_path)


DIFFERENT = {
    "another stack, cann 9.0.0 and 8.5.0": {"stack": replace(synthetic.HARDWARE, cann="8.5.0")},
    "another level, smoke and full": {"level": "full"},
    "another rule, goldens None and 12": {"used": {"goldens": "12"}},
    "another rule, known ['b'] and ['c']": {"options": {"known": ["a", "c"]}},
    "another rule, standard None and strict": {
        "options": {"device": "auto", "baselines": "bundled", "standard": "strict"}
    },
}


@pytest.mark.parametrize(("said", "fields"), DIFFERENT.items())
def test_a_shard_of_another_run_is_refused_by_what_differs(runs, tmp_path, said, fields):
    if "known" in fields.get("options", {}):
        runs[0] = shard(tmp_path / "first", 1, options={"known": ["a", "b"]})
    runs[1] = shard(tmp_path / "again", 2, **fields)
    message = refusal(runs, tmp_path)
    assert len(message) < 1000
    assert said in message
    assert "again/shard-2" in message


def test_a_shard_of_another_manifest_is_refused(runs, tmp_path):
    runs[2] = shard(tmp_path / "again", 3, cases=synthetic.op_cases(12))
    assert "another manifest, of 9 and 12 cases" in refusal(runs, tmp_path)


def test_shards_that_lie_about_their_cases_are_refused(runs, tmp_path):
    header = replace(runs[1].header, manifest=runs[1].header.manifest[1:])
    runs[1] = Run(header=header, records=runs[1].records[1:], footer=runs[1].footer, path=runs[1].path)
    assert f"{runs[0].path} cannot be merged: its whole has 9 cases" in refusal(runs, tmp_path)


def test_the_names_of_machines_may_differ_and_are_all_kept(runs, tmp_path):
    runs[1] = shard(tmp_path / "again", 2, stack=replace(synthetic.HARDWARE, host="another machine"))
    merge(runs, tmp_path / "run.jsonl")
    assert read(tmp_path / "run.jsonl").header.stack.host == "192 cores, 1.5 TiB; another machine"


def test_the_command_writes_log_and_page_and_exits_as_the_run_would(runs, tmp_path):
    arguments = ["merge", *(run.path for run in runs), "-o", str(tmp_path / "whole")]
    result = CliRunner().invoke(report, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    assert "Conforms: all 9 cases passed" in result.output
    assert (tmp_path / "whole" / "conformance.html").is_file()


def test_what_is_over_a_line_of_one_part_is_not_in_the_whole(runs, tmp_path):
    stamp = TimeStamped(authority="http://stamps.example", digest="0" * 64, answer="MA==")
    lost = Lost(cases=(CASES[0].id,), reason="the card was reset")
    merge([replace(runs[0], events=(stamp, lost)), *runs[1:]], tmp_path / "run.jsonl")
    assert read(tmp_path / "run.jsonl").events == (lost,)


def test_what_happened_beside_the_cases_is_kept(runs, tmp_path):
    event = Lost(cases=(CASES[0].id,), reason="the card was reset")
    runs[0] = replace(runs[0], events=(event,))
    merge(runs, tmp_path / "run.jsonl")
    assert read(tmp_path / "run.jsonl").events == (event,)


def test_a_whole_starts_with_its_first_shard_and_ends_with_its_last_in_whatever_time_zone(tmp_path):
    starts = ("2026-03-01T10:00:00+00:00", "2026-03-01T10:30:00+02:00", "2026-03-01T09:00:00+00:00")
    runs = [shard(tmp_path, index + 1, started=text) for index, text in enumerate(starts)]
    merge(runs, tmp_path / "run.jsonl")
    assert read(tmp_path / "run.jsonl").header.started == starts[1]  # 8:30 in UTC
    last = replace(runs[0].footer, finished="2026-03-09T10:00:00+00:00")
    merge([replace(runs[0], footer=last), *runs[1:]], tmp_path / "b.jsonl")
    assert read(tmp_path / "b.jsonl").footer.finished == last.finished


def test_the_whole_names_its_parts_by_their_last_lines(runs, tmp_path):
    merge(runs, tmp_path / "run.jsonl")
    whole = read(tmp_path / "run.jsonl")
    assert whole.header.chain
    assert not whole.broken
    assert [(each.run_id, each.head) for each in whole.header.merged] == [
        (f"run-{index}", runs[index - 1].head) for index in (1, 2, 3)
    ]


def test_a_shard_that_was_altered_is_named(runs, tmp_path):
    path = tmp_path / "shard-2" / "run.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"duration_s":', b'"duration_s":1', 1))
    assert "shard-2/run.jsonl cannot be merged: Line 3 does not continue" in refusal(
        [runs[0], read(path), runs[2]], tmp_path
    )


def test_shards_of_different_years_are_refused(runs, tmp_path):
    runs[1] = shard(tmp_path / "again", 2, started="2021-03-01T10:00:00+00:00")
    assert "started on 2021-03-01" in refusal(runs, tmp_path)


def test_shards_are_at_most_two_weeks_apart(runs, tmp_path):
    """The last one ends at 3:14:05 on January 2nd."""
    merge([shard(tmp_path / "a", 1, started="2025-12-19T03:14:05+00:00"), *runs[1:]], tmp_path / "run.jsonl")
    runs[0] = shard(tmp_path / "b", 1, started="2025-12-19T03:14:04+00:00")
    assert "are at most 14 days apart" in refusal(runs, tmp_path)


def test_one_run_cannot_be_two_shards(runs, tmp_path):
    runs[1] = shard(tmp_path / "again", 2, run_id="run-1")
    assert "of the very run that wrote" in refusal(runs, tmp_path)


def test_other_machines_are_said(tmp_path):
    for index in (1, 2, 3):
        shard(tmp_path, index, stack=replace(synthetic.HARDWARE, host=f"aarch64, {index} CPUs"))
    given = [str(tmp_path / f"shard-{index}") for index in (1, 2, 3)]
    said = CliRunner().invoke(report, ["merge", *given, "-o", str(tmp_path / "whole")]).output
    assert "The shards ran on 3 machines (aarch64, 1 CPUs; aarch64, 2 CPUs; aarch64, 3 CPUs)" in said
