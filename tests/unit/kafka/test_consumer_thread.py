"""The thread of the consumer, where mode's own leaves something behind."""

import asyncio
import gc
import warnings

import pytest

from processors.adapters.kafka.consumer_thread import ConsumerThread


class _Asleep(ConsumerThread):
    def __init__(self, parent: asyncio.AbstractEventLoop) -> None:
        self.parent_loop = parent

    async def sleep(self, _: float) -> None: ...


@pytest.mark.parametrize("has_ended", [False, True])
async def test_waking_a_loop_that_has_ended_leaves_no_coroutine_behind(has_ended: bool) -> None:
    parent = asyncio.new_event_loop()
    if has_ended:
        parent.close()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        await _Asleep(parent)._wakeup_timer_in_thread()
        parent.close()
        gc.collect()
    assert not [one for one in told if "never awaited" in str(one.message)]
