package ctl

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/cli"
)

type quotaList struct {
	Quotas []quotaResult `json:"quotas"`
}

// A quotaResult is a tenant with its quota, in the words of the HTTP API.
type quotaResult struct {
	Tenant    string `json:"tenant_id"`
	Requested uint64 `json:"requested_quota_bytes"`
	Effective uint64 `json:"effective_quota_bytes"`
	Charged   uint64 `json:"charged_bytes"`
	Closed    bool   `json:"admission_closed"` // it has no quota, so its puts are refused
	Over      bool   `json:"over_quota"`
	Explicit  bool   `json:"has_explicit_policy"`
}

const (
	quotaPath = "/api/v1/tenant_quotas"
	noTenants = "the masters run without --enable_multi_tenants, so there are no quotas"
)

func (f *Flags) quotaCommand() *cobra.Command {
	list := &cobra.Command{
		Use:   "list",
		Short: "Print all tenants that have a quota or objects",
		Args:  cli.NoArguments,
		RunE: f.withNodes(func(ctx context.Context, cmd *cobra.Command, all nodes) error {
			quotas, err := all.quotas(ctx)
			if err != nil {
				return err
			}
			return f.Print(cmd, quotaList{quotas}, func(w io.Writer) { quotaTable(w, quotas) })
		}),
	}
	cmd := &cobra.Command{Use: "quota", Short: "Print, set and remove quotas of tenants", RunE: list.RunE}
	return cli.Group(cmd, list, f.quotaSetCommand(), f.quotaRemoveCommand())
}

func (ns nodes) quotas(ctx context.Context) ([]quotaResult, error) {
	var answer struct {
		Data []quotaResult `json:"data"`
	}
	err := ns.askPrimary(ctx, "Quota", http.MethodGet, quotaPath, nil, &answer, noTenants)
	return append([]quotaResult{}, answer.Data...), err
}

func quotaTable(w io.Writer, quotas []quotaResult) {
	t := cli.NewTable(w, "TENANT", "QUOTA", "CHARGED", "STATE")
	for _, q := range quotas {
		state, size := "", "none"
		switch {
		case q.Closed:
			state = "puts are refused: it has no quota"
		case q.Over:
			state = "over its quota"
		}
		if q.Explicit {
			if size = cli.SizeText(q.Effective); q.Requested > q.Effective {
				size += " of " + cli.SizeText(q.Requested)
			}
		}
		t.Row(q.Tenant, size, cli.SizeText(q.Charged), cli.Or(state))
	}
	t.End()
}

func (f *Flags) quotaSetCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "set TENANT SIZE",
		Short: "Give a tenant a quota of memory, such as 10GiB",
		Long: `Gives a tenant a quota of memory. A tenant without one may put nothing. If the tenant
has more than that, its objects are evicted as their leases end.`,
		Args: cli.Arguments(2, 2, "a TENANT and a SIZE, such as 10GiB"),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return f.completeTenants(cmd, args, begun)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			size, err := cli.ParseSize(args[1])
			if err != nil {
				return cli.Misusef("the SIZE is %q: it %w", args[1], err)
			}
			return f.withNodes(func(ctx context.Context, cmd *cobra.Command, all nodes) error {
				var answer struct {
					Data quotaResult `json:"data"`
				}
				body := fmt.Appendf(nil, `{"requested_quota_bytes":%d}`, size)
				if err := all.askPrimary(ctx, "Quota", http.MethodPut, quotaPath+"?tenant_id="+url.QueryEscape(args[0]), body, &answer, noTenants); err != nil {
					return err
				}
				return f.Print(cmd, answer.Data, func(w io.Writer) {
					q := answer.Data
					fmt.Fprintf(w, "%s has a quota of %s, and %s of it are taken\n", cli.Printable(q.Tenant), cli.SizeText(q.Effective), cli.SizeText(q.Charged))
					if q.Effective < size {
						fmt.Fprintf(w, "that is less than %s: quotas together are not more than the mounted memory; it grows as hosts mount more\n", cli.SizeText(size))
					}
				})
			})(cmd, args)
		},
	}
}

// A quotaRemoval is what `masterctl quota rm` prints.
type quotaRemoval struct {
	Tenant string `json:"tenant_id"`
}

func (f *Flags) quotaRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "rm TENANT",
		Short:             "Remove the quota of a tenant without objects: its puts are refused from then on",
		Args:              cli.Arguments(1, 1, "one TENANT"),
		ValidArgsFunction: f.completeTenants,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.withNodes(func(ctx context.Context, cmd *cobra.Command, all nodes) error {
				err := all.askPrimary(ctx, "Quota", http.MethodDelete, quotaPath+"?tenant_id="+url.QueryEscape(args[0]), nil, new(struct{}), noTenants)
				switch kind := errs.KindOf(err); {
				case kind == errs.TenantNotEmpty:
					return cli.Advised(errs.New(kind, "Quota", "the tenant still has objects; remove them first: masterctl rm-all --yes --tenant=%s", args[0]))
				case kind == errs.ObjectNotFound:
					return cli.Advised(errs.New(kind, "Quota", "%q has no quota; masterctl quota list shows who has", args[0]))
				case err != nil:
					return err
				}
				return f.Print(cmd, quotaRemoval{args[0]}, func(w io.Writer) { fmt.Fprintf(w, "%s has no quota any more\n", cli.Printable(args[0])) })
			})(cmd, args)
		},
	}
}
