"""What an agent says to one server during one task, and what it costs."""

import json
import time
from dataclasses import dataclass, field

from .. import procfs, tokens
from ..client import Client, ClientError


@dataclass
class Cost:
    """Of one task done once."""

    calls: int = 0
    asked: int = 0  # tokens of the requests
    answered: int = 0  # tokens of the replies
    milliseconds: float = 0


@dataclass
class Talk:
    """One task: every call is counted, every reply kept for the check at the end."""

    client: Client
    cost: Cost = field(default_factory=Cost)
    replies: list[str] = field(default_factory=list[str])

    def call(self, tool: str, **arguments: object) -> str:
        begin = time.perf_counter()
        try:
            reply = self.client.call(tool, arguments)
        except ClientError as exc:  # an error is an answer too, and is paid for
            reply = str(exc)
        self.cost.milliseconds += (time.perf_counter() - begin) * 1000
        self.cost.calls += 1
        self.cost.asked += tokens.count(json.dumps({"name": tool, "arguments": arguments}, separators=(",", ":")))
        self.cost.answered += tokens.count(reply)
        self.replies.append(reply)
        return reply

    def cpu(self) -> float:
        return procfs.cpu_ms(self.client.pid)
