"""The engines that can hold the replicated log, each behind the port of `replica.log`: Kafka and NATS JetStream.

Unlike the rest of the package, this folder has sockets, threads and a clock. Its libraries are those of the extras
`replication-kafka` and `replication-nats`, and are imported when a log is opened.
"""

from escrowmq.replica.engines.address import EngineAddress
from escrowmq.replica.engines.errors import EngineMissing, SettingsRefused
from escrowmq.replica.engines.opening import open_log
from escrowmq.replica.engines.port import EngineLog, EngineState
from escrowmq.replica.engines.settings import WrongSetting
from escrowmq.replica.engines.watch import SettingsWatch

__all__ = [
    "EngineAddress",
    "EngineLog",
    "EngineMissing",
    "EngineState",
    "SettingsRefused",
    "SettingsWatch",
    "WrongSetting",
    "open_log",
]
