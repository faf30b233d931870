package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/internal/clock"
)

func (f *Flags) mountCommand() *cobra.Command {
	s := client.Segment{ID: uuid.New()}
	owner, keep := uuid.Nil, false
	cmd := &cobra.Command{
		Use:   "mount NAME --size N",
		Short: "Lend memory to the store, as a host would, until Ctrl-C",
		Long: `Mounts a segment and stays, because a master forgets a client that has not
pinged for its --client_ttl (10 s): it pings, also the next primary, and mounts the
segment again if that does not know it. Ctrl-C unmounts it; with --keep the master
unmounts it after the --client_ttl. It ends with an error when somebody else unmounts the
segment, or mounts the same memory.

The memory does not exist. The segment is for trying out a cluster: objects can be
put and found, and have no bytes. A segment mounted before at the same --endpoint
and --base is replaced.

Where nodes run with --roles, a client lends memory under its own id only: that of its
certificate is taken; with a token give --client-id. Use one such command at a time for
each id: a master that has forgotten a client asks it only once to mount again.`,
		Args: cli.Arguments(1, 1, "the NAME of one segment"),
		RunE: func(cmd *cobra.Command, args []string) error {
			s.Name = args[0]
			s.Endpoint = cmp.Or(s.Endpoint, s.Name)
			switch {
			case s.Size == 0:
				return cli.Misusef("%s needs --size, such as --size 64MiB", cmd.CommandPath())
			case s.Base == 0 || s.Base+s.Size < s.Base:
				return cli.Misusef("--base is %#x: it must not be 0, and %s must fit behind it", s.Base, cli.SizeText(s.Size))
			}
			return f.RunLong(cmd, func(ctx context.Context) error { return f.mount(ctx, cmd, owner, s, keep) })
		},
	}
	flags := cmd.Flags()
	cli.SizeVar(flags, &s.Size, "size", "`size` of the segment in bytes, such as 64MiB or 1GiB")
	flags.Uint64Var(&s.Base, "base", 1<<32, "address of its first byte")
	flags.StringVar(&s.Endpoint, "endpoint", "", "where its bytes would be reached (default NAME)")
	flags.StringVar(&s.Protocol, "transfer-protocol", "tcp", "how its bytes would travel, such as tcp or rdma")
	flags.StringVar(&s.HostID, "host-id", "", "stable identity of the host")
	uuidVar(flags, &s.ID, "id", "id of the segment, a `uuid` (default a new one)")
	uuidVar(flags, &owner, "client-id", "client that lends it, a `uuid` (default that of the client certificate in --tls-cert, or else a new one)")
	flags.BoolVar(&keep, "keep", false, "do not unmount it at the end")
	return cmd
}

// A mountResult is what `masterctl segments mount` prints once it is mounted.
type mountResult struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	Base     uint64 `json:"base"`
	Size     uint64 `json:"size"`
	Endpoint string `json:"endpoint"`
	Client   string `json:"client_id"`
	term
}

// mount lends a segment until the command is interrupted. Unless an owner is given, or the
// certificate is for one, each such process is a client of its own: the master asks a client
// only once to mount again, so if two processes shared an id, only one of them would.
func (f *Flags) mount(ctx context.Context, cmd *cobra.Command, owner uuid.UUID, segment client.Segment, keep bool) error {
	if err := f.Widen(ctx); err != nil {
		return err
	}
	s, err := f.session(ctx, cmp.Or(owner, f.ownClientID(), uuid.New()), cmd.PrintErrf)
	if err != nil {
		return err
	}
	defer s.Close()
	once, done := context.WithTimeout(ctx, f.Timeout)
	defer done()
	if err := s.MountSegment(once, segment); err != nil {
		return err
	}
	result := mountResult{segment.ID.String(), segment.Name, segment.Base, segment.Size, segment.Endpoint, s.ID().String(), s.term()}
	err = f.Print(cmd, result, func(w io.Writer) {
		fmt.Fprintf(w, "mounted %s: %s at %#x of %s, segment %s of client %s in %s\n",
			cli.Printable(result.Name), cli.SizeText(result.Size), result.Base, cli.Printable(result.Endpoint), result.ID, result.Client, result.when())
	})
	if err != nil {
		return err
	}
	cmd.PrintErrln("It stays mounted while this command runs. Ctrl-C ends it.")
	if s.unmountedByOthers(ctx) {
		return fmt.Errorf("somebody else unmounted %s (masterctl segments unmount), or mounted the same memory, so this command ends; masterctl events --segment says when",
			cli.Printable(segment.Name))
	}
	if keep {
		return nil
	}
	last, end := context.WithTimeout(context.WithoutCancel(ctx), f.Timeout)
	defer end()
	if err := s.UnmountSegment(last, segment.ID); err != nil {
		return err
	}
	cmd.PrintErrf("unmounted %s\n", cli.Printable(segment.Name))
	return nil
}

// lookEvery is how often a mounting command looks whether its segment is mounted still.
const lookEvery = time.Second

// unmountedByOthers waits until the client has no segment any more although the master knows
// it, and then returns true. It returns false when the context ends.
//
// A master that has forgotten the client says so in the answer to a ping, and the client
// mounts again before its next ping. So if pings are answered while no segment is there, and
// nothing was mounted again, somebody else unmounted it.
func (s *session) unmountedByOthers(ctx context.Context) bool {
	const enough = 2 // the first ping may have been answered before
	seen, missed, pings, remounts := false, false, uint64(0), uint64(0)
	look := func() error {
		answered, tried := s.pings.Load(), s.remounts.Load()
		found, err := s.BatchQueryIP(ctx, []uuid.UUID{s.ID()})
		_, there := found[s.ID()]
		switch {
		case err != nil: // nothing is known
		case there:
			seen, missed = true, false
		case !seen: // its endpoint names no host, so it never shows
		case !missed || tried != remounts:
			missed, pings, remounts = true, s.pings.Load(), tried
		case answered >= pings+enough && s.remounts.Load() == tried:
			return errUnmounted
		}
		return nil
	}
	err := look()
	if err == nil {
		err = clock.Every(ctx, lookEvery, look)
	}
	return errors.Is(err, errUnmounted)
}

var errUnmounted = errors.New("the segment was unmounted")
