"""The sandbox bank as a child process: of `make run`, and of a test."""

import http.client
import sys
from collections.abc import Sequence
from pathlib import Path

from wallet_project.dev.servers import HOST, Server

_CHECKOUT = Path(__file__).resolve().parents[3]


class SandboxBank(Server):
    """Stopped, killed and started again, it keeps its book and its port."""

    name = "bank"
    program = Path(sys.executable).name

    def __init__(
        self,
        home: Path,
        *,
        api_key: str,
        secrets: Sequence[str],
        token: str,
        callback_url: str = "",
        delay: float = 0.5,
    ) -> None:
        """
        Args:
            api_key: who may ask for payments.
            secrets: the first signs the notices.
            token: opens the control API.
            callback_url: where notices go; left out, they wait until the bank is told.
            delay: seconds until a payment is settled.
        """
        super().__init__(home)
        self.api_key = api_key
        self.secrets = list(secrets)
        self.token = token
        self.callback_url = callback_url
        self.delay = delay

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def prepare(self) -> None:
        self.data.mkdir(exist_ok=True)

    def command(self) -> Sequence[str | Path]:
        return [sys.executable, "-m", "wallet_project.dev.bank", "--home", self.data, "--port", str(self.port)]

    def environment(self) -> dict[str, str]:
        return super().environment() | {
            "PYTHONPATH": str(_CHECKOUT),
            "PYTHONUNBUFFERED": "1",
            "BANK_API_KEY": self.api_key,
            "BANK_WEBHOOK_SECRETS": ",".join(self.secrets),
            "BANK_CALLBACK_URL": self.callback_url,
            "SANDBOX_BANK_TOKEN": self.token,
            "SANDBOX_BANK_DELAY": str(self.delay),
        }

    def answers(self) -> bool:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=2)
        try:
            connection.request("GET", "/sandbox")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
