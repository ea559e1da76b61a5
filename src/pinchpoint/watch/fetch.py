"""One kept-alive HTTP connection for pages that are read again and again. Nothing but GET; redirects are not followed.

What was sent as a credential is hidden in what comes back: labels and versions go to files and to the screen.
"""

from __future__ import annotations

import base64
import http.client
import ssl
from collections.abc import Mapping

from pinchpoint.credentials import hide_in_page, of_header
from pinchpoint.errors import SourceError

__all__ = ["Page"]

TIMEOUT_S = 2.0
LARGEST = 16 << 20


class Page:
    """A host that is asked for pages."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        tls: bool = False,
        verify: bool = True,
        ca_file: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self.where = f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"
        self._headers = dict(headers or {})
        self._hidden = [word for name, value in self._headers.items() for word in of_header(name, value)]
        if tls:
            context = ssl.create_default_context(cafile=ca_file)
            if not verify:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            self._connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, port, timeout=timeout_s, context=context
            )
        else:
            self._connection = http.client.HTTPConnection(host, port, timeout=timeout_s)

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> bytes:
        """The body of a 200.

        Raises:
            SourceError: another status, no HTTP, or a body beyond 16 MiB.
            OSError: no connection, or no answer within the timeout.
        """
        status, body = self.ask(path, headers)
        if status != 200:
            raise SourceError(f"{self.where}{path.partition('?')[0]} answers {status}{_hint(status)}")
        return body

    def ask(self, path: str, headers: Mapping[str, str] | None = None) -> tuple[int, bytes]:
        """Status and body. A connection that the other side closed meanwhile is opened again, once."""
        fresh = self._connection.sock is None
        try:
            return self._once(path, headers)
        except (http.client.BadStatusLine, ConnectionError) as failure:
            self.close()
            if fresh or isinstance(failure, ConnectionRefusedError):
                raise self._fault(failure) from failure
        try:
            return self._once(path, headers)
        except http.client.HTTPException as failure:
            self.close()
            raise self._fault(failure) from failure

    def _once(self, path: str, headers: Mapping[str, str] | None) -> tuple[int, bytes]:
        try:
            self._connection.request("GET", path, headers={**self._headers, **(headers or {})})
            response = self._connection.getresponse()
            body = response.read(LARGEST + 1)
            if len(body) > LARGEST:
                raise SourceError(f"{self.where}{path.partition('?')[0]}: the page is larger than 16 MiB")
            return response.status, hide_in_page(body, self._hidden)
        except (http.client.BadStatusLine, ConnectionError):
            raise
        except http.client.HTTPException as failure:
            self.close()
            raise self._fault(failure) from failure
        except (OSError, SourceError):
            self.close()
            raise

    def _fault(self, failure: Exception) -> SourceError:
        if isinstance(failure, OSError):
            return SourceError(f"{self.where}: {failure.strerror or failure or type(failure).__name__}")
        return SourceError(f"{self.where} does not answer in HTTP ({type(failure).__name__})")

    def close(self) -> None:
        """Close the connection; the next question opens it again."""
        self._connection.close()


def basic(user: str, password: str) -> dict[str, str]:
    """Header for a user and password."""
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def _hint(status: int) -> str:
    return {
        401: " (it wants a key)",
        403: " (it refuses the key)",
        404: " (there is no such page)",
        301: " (moved; name the new place)",
        302: " (moved; name the new place)",
        307: " (moved; name the new place)",
        308: " (moved; name the new place)",
    }.get(status, "")
