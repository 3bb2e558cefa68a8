package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/client"
)

// listing is what one "list" command differs by from another: each reads a page and
// shows a thing a line.
type listing[T any] struct {
	short, example string
	header         []string
	empty          string // what is said where there is nothing
	row            func(T) []string
}

// all is the command that lists whatever the caller may see.
func (l listing[T]) all(c *cli, read func(*client.Client, context.Context, client.Window) (api.Page[T], error)) *cobra.Command {
	return l.command(c, func(*cobra.Command) error { return nil }, read)
}

// ofTeam is the command that lists what belongs to the team that --team names.
func (l listing[T]) ofTeam(c *cli, read func(*client.Client, context.Context, string, client.Window) (api.Page[T], error)) *cobra.Command {
	var team string
	cmd := l.command(c, needTeam, func(server *client.Client, ctx context.Context, window client.Window) (api.Page[T], error) {
		return read(server, ctx, team, window)
	})
	teamFlag(cmd, &team)
	return cmd
}

func (l listing[T]) command(c *cli, check func(*cobra.Command) error, read func(*client.Client, context.Context, client.Window) (api.Page[T], error)) *cobra.Command {
	var window windowFlags
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: l.short, Example: l.example, Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := check(cmd); err != nil {
				return err
			}
			if err := window.check(); err != nil {
				return err
			}
			server, err := c.connect()
			if err != nil {
				return err
			}
			page, err := read(server, cmd.Context(), window.Window)
			if err != nil {
				return err
			}
			return c.print(page, func(w io.Writer) error {
				t := &table{header: l.header, empty: l.empty}
				for _, item := range page.Items {
					t.add(l.row(item)...)
				}
				return writePage(w, t, page.NextCursor)
			})
		},
	}
	window.add(cmd.Flags())
	return cmd
}
