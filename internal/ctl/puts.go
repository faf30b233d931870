package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/cli"
)

// defaultPutSize is what `put KEY` reserves.
const defaultPutSize = 1 << 20

type putResult struct {
	objectResult
	Client string `json:"client_id"`
	term
}

type putFlags struct {
	item    client.PutItem
	config  client.PutConfig
	slices  uint64 // bytes of all slices
	softPin bool
	client  uuid.UUID
}

func (p *putFlags) bind(f *pflag.FlagSet, size uint64) {
	usage := "`size` of the object in bytes, such as 4096, 64KiB or 1MiB"
	if size > 0 {
		usage += " (default " + cli.SizeText(size) + ")"
	}
	cli.SizeVar(f, &p.item.Size, "size", usage)
	f.Func("slice", "`size` of a slice of the object, in place of --size; may be given several times", func(s string) error {
		n, err := cli.ParseSize(s)
		p.slices += n
		return err
	})
	f.IntVar(&p.config.Replicas, "replicas", 1, "replicas wanted, on distinct segment names; one is enough")
	f.StringSliceVar(&p.config.PreferredSegments, "preferred-segment", nil, "name of a segment to try first; may be given several times")
	f.BoolVar(&p.softPin, "soft-pin", false, "evict it only when nothing else can be")
	f.DurationVar(&p.config.SoftPinTTL, "soft-pin-ttl", 0, "how long it is pinned softly; 0 for the server's default")
	f.BoolVar(&p.config.HardPin, "hard-pin", false, "never evict it")
	f.BoolVar(&p.config.Upsert, "upsert", false, "replace what is under the key; nothing is readable there until the put ends")
	f.StringVar(&p.item.Group, "group", "", "group of objects that belong together")
	bindClientID(f, &p.client)
}

// bindClientID adds the flag that names the writer of an object; zero without it.
func bindClientID(f *pflag.FlagSet, id *uuid.UUID) {
	uuidVar(f, id, "client-id", "writer of the object, a `uuid` (default that of the client certificate in --tls-cert, or else "+writer().String()+", for all puts of masterctl)")
}

func uuidVar(f *pflag.FlagSet, id *uuid.UUID, name, usage string) {
	f.Func(name, usage, func(s string) error {
		given, err := uuid.Parse(s)
		if err != nil || given == uuid.Nil {
			return errors.New("must be a UUID such as " + uuid.NewString())
		}
		*id = given
		return nil
	})
}

// check checks the flags and completes the item. size is that of an object without --size;
// 0 makes the flag required.
func (p *putFlags) check(cmd *cobra.Command, size uint64) error {
	if p.slices > 0 && p.item.Size > 0 {
		return cli.Misusef("--size and --slice exclude each other")
	}
	p.item.Size = cmp.Or(p.slices, p.item.Size, size)
	switch {
	case p.item.Size == 0:
		return cli.Misusef("%s needs --size, such as --size 1MiB", cmd.CommandPath())
	case p.config.Replicas < 1 || p.config.Replicas > 64:
		return cli.Misusef("--replicas is %d: it must be from 1 to 64", p.config.Replicas)
	case p.config.SoftPinTTL < 0:
		return cli.Misusef("--soft-pin-ttl is %v: it must not be below 0", p.config.SoftPinTTL)
	case p.config.SoftPinTTL > 0 && !p.softPin:
		return cli.Misusef("--soft-pin-ttl needs --soft-pin")
	case p.softPin:
		p.config.SoftPin = client.PinSoftly
	}
	return nil
}

func (f *Flags) putStartCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "put-start KEY --size N",
		Short: "Reserve a place for an object, and print where its replicas are to be written",
		Long: `Reserves memory for an object and prints where its replicas are to be written.
It is not readable before put-end. Without put-end or put-revoke, another client
may put the key again after 30 s.`,
	}
	return f.startsPut(cmd, 0, "reserved", func(context.Context, *session, client.Reservation) error { return nil })
}

func (f *Flags) putCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "put KEY",
		Short: "Put an object: put-start and put-end in one, without any bytes",
		Long: `Reserves memory for an object and makes it readable at once: put-start and
put-end in one. It is for trying out a cluster: only metadata is written, and no
bytes are.`,
	}
	return f.startsPut(cmd, defaultPutSize, "put", func(ctx context.Context, s *session, r client.Reservation) error {
		if err := s.PutEnd(ctx, r.Ref(), client.SelectAll); err != nil {
			return fmt.Errorf("object %v is reserved and not ended: %w", r.ID, err)
		}
		return nil
	})
}

// startsPut completes a command that reserves memory for an object and then calls then. size
// is that of an object without --size.
func (f *Flags) startsPut(cmd *cobra.Command, size uint64, done string, then func(context.Context, *session, client.Reservation) error) *cobra.Command {
	p := &putFlags{}
	p.bind(cmd.Flags(), size)
	completeFlag(cmd, "preferred-segment", f.completeSegments)
	cmd.Args = cli.Arguments(1, 1, "one KEY")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p.item.Key = args[0]
		if err := p.check(cmd, size); err != nil {
			return err
		}
		return f.call(cmd, p.client, func(ctx context.Context, s *session) error {
			r, err := s.PutStart(ctx, p.item, p.config)
			if err == nil {
				err = then(ctx, s, r)
			}
			if err != nil {
				return f.noRoom(ctx, err, p.item.Size)
			}
			result := putResult{reserved(r), s.ID().String(), s.term()}
			return f.Print(cmd, result, func(w io.Writer) {
				fmt.Fprintf(w, "%s %s: object %s, %s, in %s by client %s\n\n", done, cli.Key(r.Key), result.ID, cli.SizeText(r.Size), result.when(), result.Client)
				objectTable(w, []objectResult{result.objectResult})
			})
		})
	}
	return cmd
}

// noRoom returns the error of a put. If no segment is large enough for the object, the error
// says so, since no eviction would help.
func (f *Flags) noRoom(ctx context.Context, err error, size uint64) error {
	if errs.KindOf(err) != errs.NoAvailableHandle || f.Mooncake {
		return err
	}
	list, listErr := f.segments(ctx, "")
	if listErr != nil || len(list.Segments) == 0 {
		return err
	}
	largest := slices.MaxFunc(list.Segments, func(a, b segmentResult) int { return cmp.Compare(a.Capacity, b.Capacity) })
	if size <= largest.Capacity {
		return err
	}
	return cli.Advised(errs.New(errs.NoAvailableHandle, "PutStart",
		"an object of %s can never fit: a replica lies in one segment, and the largest, %s, has %s; mount a larger one, or split the object",
		cli.SizeText(size), cli.Printable(largest.Name), cli.SizeText(largest.Capacity)))
}

// finishResult is what ending and revoking a put prints.
type finishResult struct {
	Key  string `json:"key"`
	ID   string `json:"object_id,omitempty"`
	Done string `json:"done"` // ended or revoked
	term
}

// finishCommand is put-end or put-revoke.
func (f *Flags) finishCommand(use, short, done string, finish func(*client.Client, context.Context, client.PutRef, client.Selector) error) *cobra.Command {
	var id uint64
	var owner uuid.UUID
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cli.Arguments(1, 1, "one KEY"),

		ValidArgsFunction: f.completeKeys,
		RunE: func(cmd *cobra.Command, args []string) error {
			ref := client.PutRef{Key: args[0], ID: client.ObjectID(id)}
			return f.call(cmd, owner, func(ctx context.Context, s *session) error {
				if err := finish(s.Client, ctx, ref, client.SelectAll); err != nil {
					return err
				}
				result := finishResult{Key: ref.Key, Done: done, term: s.term()}
				if ref.ID != 0 {
					result.ID = ref.ID.String()
				}
				return f.Print(cmd, result, func(w io.Writer) { fmt.Fprintf(w, "%s %s in %s\n", done, cli.Key(ref.Key), result.when()) })
			})
		},
	}
	cmd.Flags().Uint64Var(&id, "id", 0, "object id as put-start printed it; without it, the put under the key")
	bindClientID(cmd.Flags(), &owner)
	return cmd
}
