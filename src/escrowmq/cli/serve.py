"""`escrowmq serve`: run the broker in the foreground."""

from __future__ import annotations

import gc
import os
from functools import partial
from pathlib import Path

import click

LOG_LEVELS = ("debug", "info", "warning", "error")
DATA_DIR = "escrowmq-data"
"""The default of the configuration, repeated because importing the configuration would slow the help down."""


class InvalidConfiguration(click.ClickException):
    """The configuration is invalid, so the broker does not start."""

    exit_code = 2


@click.command()
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help=f"The data directory, which contains the journal.  [default: {DATA_DIR}]",
)
@click.option("--listen", metavar="HOST:PORT", help="The address for clients; port 0 picks a free port.")
@click.option("--rocketmq", is_flag=True, help="Serve clients of RocketMQ too, on the ports of `rocketmq` settings.")
@click.option(
    "--replicate",
    metavar="URL",
    help="Keep the journal on this log too, kafka://HOST:PORT/TOPIC or nats://HOST:PORT/STREAM.",
)
@click.option("--http", metavar="HOST:PORT", help="Serve the HTTP interface for operators there.")
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="ESCROWMQ_CONFIG",
    show_envvar=True,
    help="A TOML file with settings.",
)
@click.option("--log-level", type=click.Choice(LOG_LEVELS), help="Log messages of this level and above to stderr.")
def serve(
    data_dir: Path | None,
    listen: str | None,
    file: Path | None,
    log_level: str | None,
    http: str | None,
    replicate: str | None,
    *,
    rocketmq: bool,
) -> None:
    """Run the broker in the foreground.

    Prints `ready amqp://HOST:PORT data=DIR` on stdout once clients can connect, and logs to stderr. With --rocketmq
    three more `ready` lines follow: for the name server, the broker and gRPC. With --http one more follows, for HTTP.
    With --replicate, it prints `standby amqp://HOST:PORT data=DIR` first, and `ready …` when it leads. With
    --http, a standby answers health checks, and prints a `standby` line for HTTP, too.
    On SIGTERM or Ctrl-C the broker closes its connections, syncs the journal and exits with 0.

    Each key of the file can also be an environment variable, such as ESCROWMQ_LOG_FORMAT for `format` in `[log]`. An
    option overrides such a variable, and the variable overrides the file.

    \b
    Examples:
      escrowmq serve --data-dir /var/lib/escrowmq --listen 0.0.0.0:5672
      escrowmq serve --config /etc/escrowmq.toml --log-level debug
      escrowmq serve --data-dir /tmp/q --listen 127.0.0.1:0
      escrowmq serve --data-dir /var/lib/escrowmq --http 127.0.0.1:15672
      escrowmq serve --data-dir /var/lib/escrowmq --replicate nats://n1:4222,n2:4222,n3:4222/escrowmq
    """
    gc.disable()  # collecting what is imported would take a fifth of the time, and finds nothing
    try:
        from escrowmq.config.errors import ConfigError
        from escrowmq.config.sources import load
        from escrowmq.journal.errors import JournalError
        from escrowmq.replica.errors import ReplicaError
        from escrowmq.server.main import BadSetting, run
    finally:
        gc.enable()
    options: dict[str, object] = {
        "data_dir": data_dir.absolute() if data_dir else None,
        "listen.address": listen,
        "log.level": log_level,
        "rocketmq.enabled": rocketmq or None,
        "http.address": http,
        "replication.url": replicate,
    }
    if replicate == "":  # such as an unset variable of a shell
        raise InvalidConfiguration("replication.url (--replicate): expected a URL, not an empty text")
    overrides = {key: value for key, value in options.items() if value is not None}
    read = partial(load, file, overrides, os.environ)
    try:
        config = read()
    except ConfigError as error:
        raise InvalidConfiguration(str(error)) from error
    try:
        run(config, read)
    except BadSetting as error:
        raise InvalidConfiguration(str(error)) from error
    except ConfigError as error:  # TLS files are checked when they are used; no option sets them
        raise InvalidConfiguration(f"{file or 'environment variables'}: {error}") from error
    except (JournalError, ReplicaError) as error:
        raise click.ClickException(str(error)) from error
