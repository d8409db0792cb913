"""Logging in by an access key: the client proves by a signature that it has the secret key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from escrowmq.core.conditions import BrokerError, Condition

if TYPE_CHECKING:
    from escrowmq.wire.endpoint import Host
    from escrowmq.wire.rocketmq.login import RocketmqLogin
    from escrowmq.wire.rocketmq.signature import SignedProof


def enter_with_key(host: Host, login: RocketmqLogin, access_key: str, proof: SignedProof | None) -> None:
    """Log in as the user of `access_key`. Both generations call this for each request that names a key.

    Raises ACCESS_REFUSED if the key is unknown or the signature wrong, with the same text and the same work, and the
    errors of `RocketmqLogin.enter`.
    """
    user = host.broker.access.user_of_key(access_key)
    fits = proof is not None and proof.fits(host.secret_key(access_key))
    if user is None or not fits:
        raise BrokerError(Condition.ACCESS_REFUSED, "the access key is unknown, or its signature is wrong")
    login.enter(user)
