"""`named` renames a step everywhere: the order of calls makes no difference, and the step has one stage."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import beamlike as bl
from beamlike.errors import DuplicateName
from tests.support.pipelines import plays

MINUTES = bl.FixedWindows("1m")


def grouping() -> bl.Collection:
    return plays().window_into(MINUTES, name="minutes").group_by("user").aggregate(n=bl.sum("score"))


def mapping() -> bl.Collection:
    return plays().map(dict)


USES: dict[str, Callable[[bl.Collection], object]] = {
    "a sink": lambda step: step.write("out", bl.Memory()),
    "late": lambda step: step.late("late").write("out", bl.Memory()),
    "dead letters": lambda step: step.dead_letters(name="lost").write("out", bl.Memory()),
    "a grouping": lambda step: (
        step.window_into(MINUTES, name="again").group_by("user", name="of it").aggregate(n=bl.count())
        .write("out", bl.Memory())
    ),
    "flatten": lambda step: bl.flatten(step, step, name="both").write("out", bl.Memory()),
    "steps": lambda step: step.filter(bl.col("user") == "x", name="x").write("out", bl.Memory()),
}  # fmt: skip


@pytest.mark.parametrize(
    ("make", "use"),
    [
        *((grouping, use) for use in USES if use != "dead letters"),
        *((mapping, use) for use in USES if use != "late"),
    ],
)
def test_what_was_made_of_a_step_before_it_was_named_is_made_of_the_same_step(
    make: Callable[[], bl.Collection], use: str
) -> None:
    before, after, more = make(), make(), make()
    USES[use](before)
    before.named("it").write("more", bl.Memory())
    named = after.named("it")
    USES[use](named)
    named.write("more", bl.Memory())
    assert before.pipeline.explain() == after.pipeline.explain()
    # Later steps on the old handle use the new name, too, and the last name counts.
    more.named("not it")
    more.named("it").write("more", bl.Memory())
    USES[use](more)
    assert more.pipeline.explain() == after.pipeline.explain()
    assert len(before.pipeline.plan().stages) == (make is grouping) + (use == "a grouping")


def test_a_run_has_one_stage_under_the_new_name_and_both_sinks_have_its_rows() -> None:
    p = bl.Pipeline("p")
    rows = bl.Rows([{"user": "ada", "at": 1}])
    read = p.read("plays", rows, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    counts = read.window_into(MINUTES).group_by("user").aggregate(n=bl.count())
    one, other = bl.Memory(), bl.Memory()
    counts.write("one", one)
    counts.named("counts").write("other", other)
    run = p.run()
    assert list(run.batches[-1].stages) == ["counts"]
    assert one.rows() == other.rows() == counts.collect().to_dicts()


def test_a_name_that_was_given_up_is_free_for_another_step() -> None:
    p = bl.Pipeline("p")
    source = plays(p)
    old = source.filter("won")
    old.named("winners").write("winners out", bl.Memory())
    old.write("old", bl.Memory())
    new = source.filter("won")
    new.write("new", bl.Memory())
    assert new.name == "plays.filter"
    steps = {
        route.consumer: [step.name for step in route.steps] for route in p.plan().sources["plays"].routes
    }
    assert steps == {"winners out": ["winners"], "old": ["winners"], "new": ["plays.filter"]}


def test_a_name_that_is_taken_is_refused_and_changes_nothing() -> None:
    step = grouping()
    step.write("out", bl.Memory())
    with pytest.raises(DuplicateName, match="step 'minutes': the name is taken"):
        step.named("minutes")
    assert list(step.pipeline.plan().stages) == [step.name]


def test_steps_before_a_watermark_have_their_latest_names() -> None:
    step = mapping()
    step.named("it")
    again = step.with_watermark(bl.MonotonousTimestamps(), name="again")
    again.write("out", bl.Memory())
    (source,) = again.pipeline.plan().sources.values()
    assert [taken.name for taken in source.steps_after_time] == ["it"]
