"""Lines of the author's code: bounded in length and number."""

import pytest
from structlog.testing import capture_logs

from processors.executor.hosts import output as module
from processors.executor.hosts.output import Output


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def test_lines_are_put_together_from_pieces_and_decoded(clock: Clock) -> None:
    output = Output(10, 100)
    output.context = {"host": 7}
    reader = output.reader("stderr")
    with capture_logs() as logs:
        for piece in (b"on", b"e\r\ntw\xc5", b"\xbe\n\n\xff\nlast"):
            reader.data_received(piece)
        reader.connection_lost(None)
    assert [line["text"] for line in logs] == ["one", "twž", "\ufffd", "last"]
    assert {(line["stream"], line["host"]) for line in logs} == {("stderr", 7)}


def test_a_long_line_is_cut_and_one_without_end_is_not_kept(clock: Clock) -> None:
    output = Output(10, 5)
    reader = output.reader("stdout")
    with capture_logs() as logs:
        reader.data_received(b"abcdefgh\n")
        reader.data_received(b"ijklmnop")
        reader.data_received(b"\n")
    assert [line["text"] for line in logs] == [
        "abcde [... 3 more characters]", "ijklm [... 3 more characters]",
    ]  # fmt: skip


def test_lines_over_the_number_of_a_second_are_counted_and_told_when_it_is_over(clock: Clock) -> None:
    output = Output(3, 100)
    reader = output.reader("stdout")
    with capture_logs() as logs:
        reader.data_received(b"".join(b"%d\n" % n for n in range(5)))
        reader.data_received(b"x\n" * 7)
        clock.now += 1
        output.line("log", "next", run_id="run_1")
    assert [line.get("text") for line in logs] == ["0", "1", "2", None, "next"]
    assert (logs[3]["event"], logs[3]["lines"]) == ("step_host_output_left_out", 9)
    assert logs[4]["run_id"] == "run_1"
