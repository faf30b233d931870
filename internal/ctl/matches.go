package ctl

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	tty "golang.org/x/term"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/cli"
)

// listPage is how many keys one call lists: the largest page that a node sends.
const listPage = 10_000

// listKeys calls each with the keys that match, page by page and in no order, until it
// returns false. Listing extends no leases.
func (f *Flags) listKeys(ctx context.Context, ns nodes, req *pb.ListKeysRequest, each func(*pb.ListKeysResponse) bool) error {
	req.Tenant, req.PageSize = f.tenant, listPage
	for {
		resp, err := ns.best().admin.ListKeys(ctx, req)
		if err != nil {
			return readError(err)
		}
		if req.PageToken = resp.GetNextPageToken(); !each(resp) || req.PageToken == "" {
			return nil
		}
	}
}

// selection are the flags that say which keys to list.
type selection struct {
	pattern, prefix string
	limit           uint64
}

func (s *selection) bind(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.pattern, "regex", "", "only keys that contain a match of it (Go's syntax)")
	cmd.Flags().StringVar(&s.prefix, "prefix", "", "only keys that begin with it")
	cmd.Flags().Uint64Var(&s.limit, "limit", 1000, "most keys to print; 0 for all")
}

func (s *selection) request() (*pb.ListKeysRequest, error) {
	switch {
	case s.prefix != "" && s.pattern != "":
		return nil, cli.Misusef("--prefix and --regex exclude each other")
	case s.prefix != "":
		return &pb.ListKeysRequest{Regex: `\A` + regexp.QuoteMeta(s.prefix)}, nil
	}
	return &pb.ListKeysRequest{Regex: s.pattern}, nil
}

func (s *selection) enough(n int) bool { return s.limit > 0 && uint64(n) >= s.limit }

// cut shortens a list to the limit, and prints a note if it was longer.
func cut[T any](cmd *cobra.Command, list []T, limit uint64) []T {
	if limit == 0 || uint64(len(list)) <= limit {
		return list
	}
	cmd.PrintErrf("there are more than %s; --limit 0 prints all\n", cli.Count(limit))
	return list[:limit]
}

type keyList struct {
	Keys []string `json:"keys"`
}

func (f *Flags) keysListCommand() *cobra.Command {
	which, all := &selection{}, false
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Print the keys of objects",
		Long: `Prints the keys of the objects that can be read, in no order. Unlike get and
exists it extends no leases.`,
		Args: cli.NoArguments,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		req, err := which.request()
		if err != nil {
			return err
		}
		req.IncludeUnreadable = all
		return f.withNodes(func(ctx context.Context, cmd *cobra.Command, ns nodes) error {
			list := keyList{Keys: []string{}}
			err := f.listKeys(ctx, ns, req, func(page *pb.ListKeysResponse) bool {
				list.Keys = append(list.Keys, page.GetKeys()...)
				return !which.enough(len(list.Keys) - 1) // one beyond the limit shows that there are more
			})
			if err != nil {
				return err
			}
			list.Keys = cut(cmd, list.Keys, which.limit)
			return f.Print(cmd, list, func(w io.Writer) {
				for _, key := range list.Keys {
					fmt.Fprintln(w, cli.Key(key))
				}
			})
		})(cmd, args)
	}
	which.bind(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "also objects that cannot be read, such as those that are being written")
	return cmd
}

// matches are what would be removed: how many objects, and some of their keys.
type matches struct {
	Matches uint64   `json:"matches"`
	Sample  []string `json:"sample"`
	what    string   // of them, for people; "match" if it is empty
}

// sampled is how many keys a sample has at most.
const sampled = 10

func (f *Flags) countMatches(cmd *cobra.Command, pattern string) (found matches, err error) {
	found.Sample = []string{}
	err = f.withNodes(func(ctx context.Context, _ *cobra.Command, ns nodes) error {
		return f.listKeys(ctx, ns, &pb.ListKeysRequest{Regex: pattern}, func(page *pb.ListKeysResponse) bool {
			keys := page.GetKeys()
			found.Matches += uint64(len(keys))
			found.Sample = append(found.Sample, keys[:min(len(keys), sampled-len(found.Sample))]...)
			return true
		})
	})(cmd, nil)
	return found, err
}

// countOn counts the objects that have a replica on a segment, also those that are being
// written.
func (f *Flags) countOn(cmd *cobra.Command, id string) (found matches, err error) {
	found = matches{Sample: []string{}, what: "have a replica on it"}
	err = f.withNodes(func(ctx context.Context, _ *cobra.Command, ns nodes) error {
		return ns.best().eachRun(ctx, id, func(run *pb.DumpRangesResponse) {
			for _, r := range run.GetRanges() {
				if r.GetObjectId() == 0 {
					continue // in quarantine
				}
				if found.Matches++; len(found.Sample) < sampled {
					found.Sample = append(found.Sample, r.GetKey())
				}
			}
		})
	})(cmd, nil)
	return found, err
}

// countAll counts the objects of the tenant that is named. If none is named, it counts those
// of all tenants, including objects that are being written, and its sample has keys of the
// default tenant.
func (f *Flags) countAll(cmd *cobra.Command) (found matches, err error) {
	if f.tenant != "" {
		return f.countMatches(cmd, "")
	}
	found.Sample = []string{}
	err = f.withNodes(func(ctx context.Context, _ *cobra.Command, ns nodes) error {
		found.Matches = ns.best().status.GetState().GetObjects()
		return f.listKeys(ctx, ns, &pb.ListKeysRequest{}, func(page *pb.ListKeysResponse) bool {
			found.Sample = page.GetKeys()[:min(len(page.GetKeys()), sampled)]
			return false
		})
	})(cmd, nil)
	return found, err
}

func (m *matches) print(w io.Writer) {
	fmt.Fprintf(w, "%s object(s) %s\n", cli.Count(m.Matches), cmp.Or(m.what, "match"))
	for _, key := range m.Sample {
		fmt.Fprintln(w, "  "+cli.Key(key))
	}
	if more := m.Matches - min(m.Matches, uint64(len(m.Sample))); more > 0 {
		fmt.Fprintf(w, "  and %s more\n", cli.Count(more))
	}
}

// certainty has the flags of a command that removes many objects: --dry-run and --yes.
type certainty struct {
	*Flags
	dryRun, yes       bool
	question, refused string // what it asks, and what it says after any answer but yes
	always            bool   // it does its work without a question if it takes no objects
}

func (f *Flags) bindSure(cmd *cobra.Command) *certainty {
	c := &certainty{Flags: f, question: "Remove them?", refused: "nothing was removed"}
	cmd.Flags().BoolVar(&c.dryRun, "dry-run", false, "only count what would be removed, and print some of the keys")
	cmd.Flags().BoolVar(&c.yes, "yes", false, "do not ask")
	return c
}

// then calls remove if the flags, or an answer at the terminal, confirm it. consequence is
// what remove would do, for the error if nobody can confirm.
func (c *certainty) then(cmd *cobra.Command, consequence string, count func() (matches, error), remove func() error) error {
	if c.yes && !c.dryRun {
		return remove()
	}
	if !c.dryRun && !canAsk(cmd) {
		return cli.Misusef("%s; see them with --dry-run, and confirm with --yes", consequence)
	}
	found, err := count()
	if err != nil {
		return err
	}
	if c.dryRun {
		return c.Print(cmd, found, found.print)
	}
	switch found.print(cmd.ErrOrStderr()); {
	case found.Matches == 0 && c.always:
		return remove()
	case found.Matches == 0:
		return nil // there is nothing to ask
	}
	if err := ask(cmd, c.question, c.refused); err != nil {
		return err
	}
	return remove()
}

// canAsk reports whether somebody can answer a question: standard input is a terminal, or not
// a file.
func canAsk(cmd *cobra.Command) bool {
	in, file := cmd.InOrStdin().(*os.File)
	return !file || tty.IsTerminal(int(in.Fd()))
}

// ask asks a question, and returns an error with the text refused after any answer but yes.
func ask(cmd *cobra.Command, question, refused string) error {
	cmd.PrintErr(question + " [y/N] ")
	answer, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		return errors.New(refused)
	}
	return nil
}
