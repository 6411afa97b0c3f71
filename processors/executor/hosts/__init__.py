"""Step hosts: child processes in which the code of authors runs, behind the port `Bodies`.

The one place of the service that imports the SDK, and of it the frame format alone.
"""

from processors.executor.hosts.bundles import CodeBundle
from processors.executor.hosts.settings import HostSettings
from processors.executor.hosts.step_hosts import StepHosts

__all__ = ["CodeBundle", "HostSettings", "StepHosts"]
