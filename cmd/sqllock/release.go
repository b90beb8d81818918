package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/sqlnative/locks/internal/cli"
	"github.com/sqlnative/locks/sqllock"
)

// releaseResult is the JSON of release.
type releaseResult struct {
	place
	Released lockJSON `json:"released"`
}

func (a *app) releaseCommand() *cobra.Command {
	var token int64
	var force bool
	cmd := &cobra.Command{
		Use:   "release NAME (--token TOKEN | --force)",
		Short: "Take a lock away from its holder",
		Long: `release takes the lock of the job NAME away from its holder, or else the lock that
is called NAME, also before its --at-least has passed. It asks for the token that
"sqllock show NAME" prints, so that no successor's lock is hit; --force does without,
and takes it from whoever has it.

The holder learns of it with its next renewal, within a third of its TTL; until then
it may be at work beside the next one. Under "sqllock run" its command is then ended.
A lock that a transaction has pinned (Guard) is not taken away.`,
		Example:           "  sqllock release nightly-report --token 1796044617225000\n  sqllock release nightly-report --force",
		Args:              oneName("NAME"),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().Int64Var(&token, "token", 0, "the holder's `token`, as show prints it")
	cmd.Flags().BoolVar(&force, "force", false, "whoever the holder is")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch given := cmd.Flags().Changed("token"); {
		case given && force:
			return errors.New("--token and --force: one of them")
		case !given && !force:
			return fmt.Errorf("--token is missing: \"sqllock show %s\" prints it (or --force)", args[0])
		case given && token <= 0:
			return fmt.Errorf("--token is %d; it is a positive number, as \"sqllock show %s\" prints it", token, args[0])
		}
		return a.connected(func(ctx context.Context, s *session, args []string) error {
			i, err := s.find(ctx, args[0], token)
			if err != nil {
				return err
			}
			if err := s.locker.ForceRelease(ctx, i.Name, i.Token); err != nil {
				return err
			}
			r := releaseResult{s.place(), lockOf(*i, nil)}
			return s.out.Result(r, func(w io.Writer) error {
				return cli.Linef(w, "released %s, token %d: taken from %s; %s of its lease was left", i.Name, i.Token, i.Holder, short(i.Left))
			})
		})(cmd, args)
	}
	return cmd
}

// find finds the lock that a name means, among those that are held; of two the one
// with the token.
func (s *session) find(ctx context.Context, name string, token int64) (*sqllock.Info, error) {
	all, err := s.locker.List(ctx)
	if err != nil {
		return nil, err
	}
	var other *sqllock.Info
	for _, n := range lockNames(name) {
		for _, i := range all {
			switch {
			case i.Name != n:
			case token == 0 || i.Token == token:
				return &i, nil
			default:
				other = &i
			}
		}
	}
	if other != nil {
		return nil, fmt.Errorf("%s is held with another token, by %s: \"sqllock show %s\" prints it", other.Name, other.Holder, name)
	}
	return nil, fmt.Errorf("neither %s nor %s is held: \"sqllock ls\" shows what is", lockNames(name)[0], name)
}
