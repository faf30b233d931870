package ctl

import (
	"bufio"
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

// listPage is how many keys one call lists; the most that a node gives.
const listPage = 10_000

// listKeys calls a function with the keys that contain a match, page by page and
// in no order, until that returns false. Listing extends no leases.
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

// request returns the request for the keys.
func (s *selection) request() (*pb.ListKeysRequest, error) {
	switch {
	case s.prefix != "" && s.pattern != "":
		return nil, cli.Misusef("--prefix and --regex exclude each other")
	case s.prefix != "":
		return &pb.ListKeysRequest{Regex: `\A` + regexp.QuoteMeta(s.prefix)}, nil
	}
	return &pb.ListKeysRequest{Regex: s.pattern}, nil
}

// enough reports whether a list that has so many keys is long enough.
func (s *selection) enough(n int) bool { return s.limit > 0 && uint64(n) >= s.limit }

// cut leaves out what is beyond the limit, and says so.
func cut[T any](cmd *cobra.Command, list []T, limit uint64) []T {
	if limit == 0 || uint64(len(list)) <= limit {
		return list
	}
	cmd.PrintErrf("there are more than %s; --limit 0 prints all\n", cli.Count(limit))
	return list[:limit]
}

// A keyList is what `masterctl keys` prints.
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
				return !which.enough(len(list.Keys) - 1) // one more says whether there are more
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

// matches are what a pattern matches: how many keys, and some of them.
type matches struct {
	Matches uint64   `json:"matches"`
	Sample  []string `json:"sample"`
}

func (f *Flags) countMatches(cmd *cobra.Command, pattern string) (found matches, err error) {
	const sampled = 10
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

func (m *matches) print(w io.Writer) {
	fmt.Fprintf(w, "%s object(s) match\n", cli.Count(m.Matches))
	for _, key := range m.Sample {
		fmt.Fprintln(w, "  "+cli.Key(key))
	}
	if more := m.Matches - uint64(len(m.Sample)); more > 0 {
		fmt.Fprintf(w, "  and %s more\n", cli.Count(more))
	}
}

func (f *Flags) printMatches(cmd *cobra.Command, pattern string) error {
	found, err := f.countMatches(cmd, pattern)
	if err != nil {
		return err
	}
	return f.Print(cmd, found, found.print)
}

// askAboutMatches asks whoever sits at the terminal whether to remove what a
// pattern matches.
func (f *Flags) askAboutMatches(cmd *cobra.Command, pattern string) error {
	in, file := cmd.InOrStdin().(*os.File)
	if file && !tty.IsTerminal(int(in.Fd())) {
		return cli.Misusef("this removes every object whose key contains a match of %q; see them with --dry-run, and confirm with --yes", pattern)
	}
	found, err := f.countMatches(cmd, pattern)
	if err != nil {
		return err
	}
	found.print(cmd.ErrOrStderr())
	cmd.PrintErr("Remove them? [y/N] ")
	answer, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		return errors.New("nothing was removed")
	}
	return nil
}
