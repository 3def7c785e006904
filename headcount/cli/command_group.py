"""A group of commands that knows the nearest name."""

import click

from files.names import nearest_hint


class NearestGroup(click.Group):
    """Says of an unknown command which one was probably meant, and shows each command's first sentence in full."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, each.get_short_help_str(limit=200)) for name, each in found if each is not None]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            raise click.UsageError(f"no command '{args[0]}'; {nearest_hint(args[0], known)}", ctx)
        return super().resolve_command(ctx, args)
