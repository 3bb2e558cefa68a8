package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/client"
)

// listing is what one command that lists things in pages differs by from another: each
// reads a page and shows a thing a line.
type listing[T any] struct {
	use            string // how it is called; empty: list
	short, example string
	args           []string // the names of its arguments
	header         []string
	empty          string // what is said where there is nothing
	row            func(T) []string
}

// all is the command that lists whatever the caller may see.
func (l listing[T]) all(c *cli, read func(*client.Client, context.Context, client.Window) (api.Page[T], error)) *cobra.Command {
	return l.command(c, func(*cobra.Command) error { return nil }, func(server *client.Client, ctx context.Context, _ []string, window client.Window) (api.Page[T], error) {
		return read(server, ctx, window)
	})
}

// about is the command that lists what belongs to the thing that its argument names.
func (l listing[T]) about(c *cli, read func(*client.Client, context.Context, string, client.Window) (api.Page[T], error)) *cobra.Command {
	return l.command(c, func(*cobra.Command) error { return nil }, func(server *client.Client, ctx context.Context, args []string, window client.Window) (api.Page[T], error) {
		return read(server, ctx, args[0], window)
	})
}

// ofTeam is the command that lists what belongs to the team that --team names.
func (l listing[T]) ofTeam(c *cli, read func(*client.Client, context.Context, string, client.Window) (api.Page[T], error)) *cobra.Command {
	var team string
	cmd := l.command(c, needTeam, func(server *client.Client, ctx context.Context, _ []string, window client.Window) (api.Page[T], error) {
		return read(server, ctx, team, window)
	})
	teamFlag(cmd, &team)
	return cmd
}

func (l listing[T]) command(c *cli, check func(*cobra.Command) error, read func(*client.Client, context.Context, []string, client.Window) (api.Page[T], error)) *cobra.Command {
	var window windowFlags
	cmd := &cobra.Command{
		Use: l.use, Short: l.short, Example: l.example, Args: exactly(l.args...),
		RunE: func(cmd *cobra.Command, args []string) error {
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
			page, err := read(server, cmd.Context(), args, window.Window)
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
	if l.use == "" {
		cmd.Use, cmd.Aliases = "list", []string{"ls"}
	}
	window.add(cmd.Flags())
	return cmd
}

// did does one thing on the server that answers nothing, and says what was done.
func (c *cli) did(cmd *cobra.Command, answer map[string]any, text string, do func(context.Context, *client.Client) error) error {
	server, err := c.connect()
	if err != nil {
		return err
	}
	if err := do(cmd.Context(), server); err != nil {
		return err
	}
	return c.print(answer, func(w io.Writer) error {
		_, err := fmt.Fprintln(w, text)
		return err
	})
}

// one does one thing on the server and prints what it answers.
func one[T any](c *cli, cmd *cobra.Command, do func(context.Context, *client.Client) (T, error), write func(io.Writer, T) error) error {
	server, err := c.connect()
	if err != nil {
		return err
	}
	answer, err := do(cmd.Context(), server)
	if err != nil {
		return err
	}
	return c.print(answer, func(w io.Writer) error { return write(w, answer) })
}
