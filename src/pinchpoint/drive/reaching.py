"""Reaching an endpoint: the TLS settings, and in plain words why it could not be reached."""

from __future__ import annotations

import errno
import socket
import ssl

from pinchpoint.errors import PlanError
from pinchpoint.plan.model import Endpoint
from pinchpoint.vocab import ErrorKind
from pinchpoint.wire.address import Address

__all__ = ["tls_context", "why_unreached"]


def tls_context(endpoint: Endpoint) -> ssl.SSLContext:
    """TLS as the plan wants it: verified against the system's or the plan's authorities, or not at all.

    Raises:
        PlanError: ``ca_file`` or ``client_cert`` cannot be used.
    """
    try:
        context = ssl.create_default_context(cafile=endpoint.ca_file)
    except (OSError, ssl.SSLError) as failure:
        raise PlanError(f"ca_file {endpoint.ca_file} cannot be used: {failure}") from failure
    if not endpoint.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if endpoint.client_cert is not None:
        certificate, _, key = endpoint.client_cert.partition(",")
        try:
            context.load_cert_chain(certificate, key or None)
        except (OSError, ssl.SSLError) as failure:
            raise PlanError(
                f"client_cert {endpoint.client_cert} cannot be used: {failure}; "
                "name a PEM file with certificate and key, or certificate.pem,key.pem"
            ) from failure
    context.set_alpn_protocols(["http/1.1"])
    return context


def why_unreached(failure: Exception, address: Address, limit_s: float) -> tuple[ErrorKind, str]:
    """Kind and plain words for a connection that could not be made."""
    where = f"{address.host}:{address.port}"
    if isinstance(failure, ssl.SSLCertVerificationError):
        return ErrorKind.TLS, (
            f"the certificate of {where} is not trusted ({failure.verify_message}); "
            "name its authority with --ca-file, or use --insecure"
        )
    if isinstance(failure, ssl.SSLError):
        reason = (failure.reason or str(failure)).replace("_", " ").lower()
        hint = (
            "; does it speak plain http://?" if "wrong version" in reason or "record layer" in reason else ""
        )
        return ErrorKind.TLS, f"the TLS handshake with {where} failed ({reason}){hint}"
    if isinstance(failure, ConnectionResetError | ConnectionAbortedError) and address.scheme == "https":
        return (
            ErrorKind.TLS,
            f"{where} closed the connection in the TLS handshake; does it speak plain http://?",
        )
    if isinstance(failure, TimeoutError) and address.scheme == "https":
        return ErrorKind.CONNECT, (
            f"no connection to {where} within {limit_s:g} s, TLS handshake included; does it speak plain http://?"
        )
    return ErrorKind.CONNECT, _why_no_connection(failure, where, address.host, limit_s)


def _why_no_connection(failure: Exception, where: str, host: str, limit_s: float) -> str:
    code = getattr(failure, "errno", None)
    if isinstance(failure, socket.gaierror):
        return f"the host name {host} cannot be resolved"
    if isinstance(failure, TimeoutError):
        return f"no connection to {where} within {limit_s:g} s"
    # Several addresses of one host: asyncio joins what went wrong into one text.
    if isinstance(failure, ConnectionRefusedError) or "Connect call failed" in str(failure):
        return f"nothing listens at {where} (connection refused)"
    if code in (errno.EMFILE, errno.ENFILE):
        return "no file descriptor left for another connection; raise ulimit -n"
    if code == errno.EADDRNOTAVAIL:
        return f"no local port left for another connection to {where}; widen net.ipv4.ip_local_port_range"
    return (
        f"no connection to {where}: {getattr(failure, 'strerror', None) or failure or type(failure).__name__}"
    )
