package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/understudy-store/understudy/client"
)

// defaultPutSize is what `put KEY` reserves.
const defaultPutSize = 1 << 20

// A putResult is what putting prints.
type putResult struct {
	objectResult
	Client string `json:"client_id"`
	reign
}

func (g *globals) putCommands() []*cobra.Command {
	return []*cobra.Command{g.putCommand(), g.putStartCommand(), g.putEndCommand(), g.putRevokeCommand()}
}

// putFlags are the flags of a put.
type putFlags struct {
	size     uint64
	slices   sizesFlag
	client   uuidFlag
	config   client.PutConfig
	softPin  bool
	group    string
	defaults uint64 // size if none is given; 0 demands one
}

func (p *putFlags) bind(f *pflag.FlagSet) {
	f.Var(sizeFlag{&p.size}, "size", "bytes of the object, such as 4096, 64KiB or 1MiB")
	f.Var(&p.slices, "slice", "bytes of a slice of the object, in place of --size; may be given several times")
	f.IntVar(&p.config.Replicas, "replicas", 1, "replicas wanted, on distinct segment names; one is enough")
	f.StringSliceVar(&p.config.PreferredSegments, "preferred-segment", nil, "name of a segment to try first; may be given several times")
	f.BoolVar(&p.softPin, "soft-pin", false, "evict it only when nothing else can be")
	f.DurationVar(&p.config.SoftPinTTL, "soft-pin-ttl", 0, "how long it is pinned softly; 0 for the server's default")
	f.BoolVar(&p.config.HardPin, "hard-pin", false, "never evict it")
	f.StringVar(&p.group, "group", "", "group of objects that belong together")
	p.client.bind(f)
}

func (p *putFlags) item(cmd *cobra.Command, key string) (client.PutItem, error) {
	item := client.PutItem{Key: key, Size: p.size, Group: p.group}
	if len(p.slices) > 0 {
		if p.size != 0 {
			return item, usagef("--size and --slice exclude each other")
		}
		for _, s := range p.slices {
			item.Size += s
		}
	}
	if item.Size == 0 {
		item.Size = p.defaults
	}
	switch {
	case item.Size == 0:
		return item, usagef("%s needs --size, such as --size 1MiB", cmd.CommandPath())
	case p.config.Replicas < 1 || p.config.Replicas > 64:
		return item, usagef("--replicas is %d: it must be from 1 to 64", p.config.Replicas)
	case p.config.SoftPinTTL < 0:
		return item, usagef("--soft-pin-ttl is %v: it must not be below 0", p.config.SoftPinTTL)
	case p.config.SoftPinTTL > 0 && !p.softPin:
		return item, usagef("--soft-pin-ttl needs --soft-pin")
	}
	if p.softPin {
		p.config.SoftPin = client.PinSoftly
	}
	return item, nil
}

// start reserves an object's place.
func (p *putFlags) start(ctx context.Context, s *session, item client.PutItem) (*client.Reservation, error) {
	r, err := s.PutStart(ctx, item, p.config)
	return &r, err
}

func (g *globals) putStartCommand() *cobra.Command {
	p := &putFlags{}
	cmd := &cobra.Command{
		Use:   "put-start KEY --size N",
		Short: "Reserve a place for an object, and print where its replicas are to be written",
		Long: `Reserves memory for an object and prints where its replicas are to be written.
Nobody can read it before put-end. Without put-end or put-revoke somebody else
may put the key again after 30 s.`,
		Args: arguments(1, 1, "one KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			item, err := p.item(cmd, args[0])
			if err != nil {
				return err
			}
			return g.call(cmd, p.client.id(), func(ctx context.Context, s *session) error {
				r, err := p.start(ctx, s, item)
				if err != nil {
					return err
				}
				return g.printPut(cmd, s, r, "reserved")
			})
		},
	}
	p.bind(cmd.Flags())
	return cmd
}

func (g *globals) putCommand() *cobra.Command {
	p := &putFlags{defaults: defaultPutSize}
	cmd := &cobra.Command{
		Use:   "put KEY",
		Short: "Put an object: put-start and put-end in one, without any bytes",
		Long: `Reserves memory for an object and makes it readable at once: put-start and
put-end in one. It is for trying out a cluster. Only metadata is moved; nobody
writes bytes to the place.`,
		Args: arguments(1, 1, "one KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			item, err := p.item(cmd, args[0])
			if err != nil {
				return err
			}
			return g.call(cmd, p.client.id(), func(ctx context.Context, s *session) error {
				r, err := p.start(ctx, s, item)
				if err != nil {
					return err
				}
				if err := s.PutEnd(ctx, r.Ref(), client.SelectAll); err != nil {
					return fmt.Errorf("object %v is reserved and not ended: %w", r.ID, err)
				}
				return g.printPut(cmd, s, r, "put")
			})
		},
	}
	p.bind(cmd.Flags())
	return cmd
}

func (g *globals) printPut(cmd *cobra.Command, s *session, r *client.Reservation, done string) error {
	result := putResult{reserved(r), s.ID().String(), s.reign()}
	return g.print(cmd, result, func(w io.Writer) {
		fmt.Fprintf(w, "%s %s: object %s, %s, in %s by client %s\n\n", done, r.Key, result.ID, sizeText(r.Size), result.when(), result.Client)
		objectTable(w, []objectResult{result.objectResult})
	})
}

// refFlags name a put that was started before.
type refFlags struct {
	id     uint64
	client uuidFlag
}

func (p *refFlags) bind(f *pflag.FlagSet) {
	f.Uint64Var(&p.id, "id", 0, "object id as put-start printed it; without it, whatever put is under the key is meant")
	p.client.bind(f)
}

func (g *globals) putEndCommand() *cobra.Command {
	return g.finishCommand("put-end KEY", "Make an object that put-start reserved readable", "ended", (*client.Client).PutEnd)
}

func (g *globals) putRevokeCommand() *cobra.Command {
	return g.finishCommand("put-revoke KEY", "Give up a reservation of put-start", "revoked", (*client.Client).PutRevoke)
}

// finishResult is what ending and revoking a put prints.
type finishResult struct {
	Key  string `json:"key"`
	ID   string `json:"object_id,omitempty"`
	Done string `json:"done"` // ended or revoked
	reign
}

func (g *globals) finishCommand(use, short, done string, finish func(*client.Client, context.Context, client.PutRef, client.Selector) error) *cobra.Command {
	p := &refFlags{}
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  arguments(1, 1, "one KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ref := client.PutRef{Key: args[0], ID: client.ObjectID(p.id)}
			return g.call(cmd, p.client.id(), func(ctx context.Context, s *session) error {
				if err := finish(s.Client, ctx, ref, client.SelectAll); err != nil {
					return err
				}
				result := finishResult{Key: ref.Key, Done: done, reign: s.reign()}
				if ref.ID != 0 {
					result.ID = ref.ID.String()
				}
				return g.print(cmd, result, func(w io.Writer) {
					fmt.Fprintf(w, "%s %s in %s\n", done, ref.Key, result.when())
				})
			})
		},
	}
	p.bind(cmd.Flags())
	return cmd
}

// A uuidFlag names a client. Not given, it is masterctl's own.
type uuidFlag struct{ given uuid.UUID }

func (f *uuidFlag) bind(flags *pflag.FlagSet) {
	flags.Var(f, "client-id", "writer of the object, a UUID (default "+writer().String()+", for all puts of masterctl)")
}

func (f *uuidFlag) id() uuid.UUID {
	if f.given == uuid.Nil {
		return writer()
	}
	return f.given
}

func (f *uuidFlag) String() string { return "" }
func (f *uuidFlag) Type() string   { return "uuid" }

func (f *uuidFlag) Set(s string) (err error) {
	if f.given, err = uuid.Parse(s); err != nil || f.given == uuid.Nil {
		return errors.New("must be a UUID such as " + writer().String())
	}
	return nil
}

// A sizesFlag is a list of sizes.
type sizesFlag []uint64

func (f *sizesFlag) Type() string { return "size" }

func (f *sizesFlag) String() string {
	if len(*f) == 0 {
		return ""
	}
	return strconv.Itoa(len(*f)) + " slices"
}

func (f *sizesFlag) Set(s string) error {
	var n uint64
	if err := (sizeFlag{&n}).Set(s); err != nil {
		return err
	}
	*f = append(*f, n)
	return nil
}
