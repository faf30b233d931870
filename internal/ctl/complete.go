package ctl

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/cli"
)

// completeTimeout bounds how long a shell waits for names.
const completeTimeout = 2 * time.Second

// A completer offers what an argument or a flag may be, as cobra wants it.
type completer = func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective)

func completeFlag(cmd *cobra.Command, name string, c completer) {
	if err := cmd.RegisterFlagCompletionFunc(name, c); err != nil {
		panic(err) // there is no such flag
	}
}

func values(words ...string) completer {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

func fileNames(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveDefault
}

// offer completes to names that the nodes report, except those given already; to nothing if
// no node answers.
func (f *Flags) offer(cmd *cobra.Command, args []string, names func(context.Context, nodes) []string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), completeTimeout)
	defer cancel()
	if f.environment(cmd.Flags()) != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	all, err := f.survey(ctx)
	defer all.close()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	list := slices.DeleteFunc(names(ctx, all), func(name string) bool {
		return slices.Contains(args, name) || name != cli.Printable(name) // a shell shows names as they are
	})
	return list, cobra.ShellCompDirectiveNoFileComp
}

func (f *Flags) completeNodes(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return f.offer(cmd, args, func(_ context.Context, all nodes) (ids []string) {
		for _, n := range all {
			if n.id != "" {
				ids = append(ids, n.id)
			}
		}
		return ids
	})
}

// completeStandbys completes to the nodes that the primary could hand over to.
func (f *Flags) completeStandbys(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return f.offer(cmd, args, func(_ context.Context, all nodes) (ids []string) {
		primary := all.primary()
		for _, n := range all {
			if n != primary && n.id != "" {
				ids = append(ids, n.id)
			}
		}
		return ids
	})
}

func (f *Flags) completeMembers(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return f.offer(cmd, args, func(_ context.Context, all nodes) (names []string) {
		if len(args) > 0 { // these commands take one argument
			return nil
		}
		for _, m := range all.members() {
			names = append(names, cmp.Or(m.GetName(), m.GetPeerUrl()))
		}
		return names
	})
}

func (f *Flags) completeSegments(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return f.offer(cmd, args, func(ctx context.Context, all nodes) (names []string) {
		resp, _ := all.best().admin.ListSegments(ctx, &pb.ListSegmentsRequest{})
		for _, s := range resp.GetSegments() {
			names = append(names, s.GetSegment().GetName())
		}
		slices.Sort(names)
		return slices.Compact(names)
	})
}

func (f *Flags) completeKeys(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	const most = 50
	return f.offer(cmd, args, func(ctx context.Context, all nodes) []string {
		resp, _ := all.best().admin.ListKeys(ctx, &pb.ListKeysRequest{Tenant: f.tenant, Regex: `\A` + regexp.QuoteMeta(begun), IncludeUnreadable: true, PageSize: most})
		return resp.GetKeys()
	})
}

func (f *Flags) completeJobs(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return f.offer(cmd, args, func(ctx context.Context, all nodes) (ids []string) {
		resp, _ := all.best().admin.ListDrainJobs(ctx, &pb.ListDrainJobsRequest{})
		for _, j := range resp.GetJobs() {
			ids = append(ids, j.GetJobId())
		}
		return ids
	})
}

// completeTypes completes to all types of events. The reference lists what is in them.
func completeTypes() completer {
	return values(
		"ADD_LOCAL_DISK", "ADD_TASK", "CLEAR_REPLICAS", "CLOSE_SEGMENT", "DISCARD", "END_TRANSFER", "EVICTION_CUTOFF", "EVICT_TENANT", "FORK",
		"LEASE_RENEWALS", "MOUNT_LOCAL_DISK", "MOUNT_SEGMENT", "PUT_END", "PUT_REVOKE", "PUT_START", "REMOVE", "REMOVE_ALL", "REMOVE_BY_REGEX",
		"REVOKE_REPLICAS", "SAVE_DRAIN", "SET_OFFLOADING", "SET_QUOTA", "SET_TASKS", "START_TRANSFER", "TERM_START", "UNMOUNT_LOCAL_DISK",
		"UNMOUNT_SEGMENT", "USE_RULES", "WIPE_DISKS",
	)
}

func (f *Flags) completeTenants(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return f.offer(cmd, args, func(ctx context.Context, all nodes) (names []string) {
		quotas, _ := all.quotas(ctx)
		for _, q := range quotas {
			names = append(names, q.Tenant)
		}
		return names
	})
}
