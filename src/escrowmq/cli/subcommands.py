"""Groups of commands: they suggest a name for a command that does not exist, and the place for a misplaced option."""

from __future__ import annotations

from difflib import get_close_matches

import click


class CommandGroup(click.Group):
    """A group whose errors name the command, or the place of the option, that was probably meant. Its help lists the
    commands in the order of their definitions.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not ctx.resilient_parsing and not name.startswith("-") and self.get_command(ctx, name) is None:
            close = get_close_matches(name, self.list_commands(ctx), n=1)
            raise click.UsageError(f"No such command {name!r}" + (f"; did you mean {close[0]}?" if close else ""), ctx)
        found = super().resolve_command(ctx, args)
        self._pass_options(ctx, found[0], found[1])
        return found

    def _pass_options(self, ctx: click.Context, name: str | None, command: click.Command | None) -> None:
        """Make options before a subcommand the defaults of its own ones, so that none is ignored."""
        given = [param for param in self.params if param.name in ctx.params and _was_given(ctx, param.name)]
        if not given or name is None or command is None:
            return
        known = {param.name for param in command.params}
        for param in given:
            if param.name not in known:
                raise click.UsageError(
                    f"The option '{param.opts[0]}' does not apply to '{ctx.command_path} {name}'", ctx
                )
        ctx.default_map = {name: {str(param.name): ctx.params[str(param.name)] for param in given}}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.option_name not in _options(self, ctx):
                raise
            text = f"No such option {error.option_name!r} before the subcommand; put it after the subcommand"
            raise click.UsageError(text, ctx) from error


def _was_given(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def _options(command: click.Command, ctx: click.Context) -> set[str]:
    """Return the options of a command and of all commands below it."""
    found = {
        name
        for option in command.params
        if isinstance(option, click.Option)
        for name in (*option.opts, *option.secondary_opts)
    }
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            below = command.get_command(ctx, name)
            found |= set() if below is None else _options(below, ctx)
    return found
