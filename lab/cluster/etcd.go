package cluster

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/understudy-store/understudy/internal/app"
	"github.com/understudy-store/understudy/internal/etcd/etcdserver"
	"github.com/understudy-store/understudy/lab/etcdmember"
)

// etcdQuota is larger than what a demo or a drill writes between compactions.
const etcdQuota = 4 << 30

// EtcdCommand returns a command that runs an etcd member, by default a lone one, in a
// process of its own, so that it outlives the master. It is for experiments.
func EtcdCommand(name string) *cobra.Command {
	var o etcdOptions
	cmd := &cobra.Command{
		Use:   name,
		Short: "Run an etcd server, for trying things out",
		Long: `Run an etcd server, for trying things out: a master with an etcd of its own
takes it along when it dies, and then no standby can take over. In production
use a real etcd cluster.`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return o.run(ctx)
		},
	}
	cmd.Flags().StringVar(&o.dir, "data-dir", "./understudy-etcd", "where it keeps its data")
	cmd.Flags().StringVar(&o.listen, "listen", "127.0.0.1:2379", "host:port for clients; port 0 takes a free one")
	cmd.Flags().StringVar(&o.ready, "ready-file", "", "a file to write the address to once it serves")
	cmd.Flags().StringVar(&o.name, "name", "", "name of the member; needed if there are others")
	cmd.Flags().StringToStringVar(&o.members, "initial-cluster", nil, "name=host:port at which each member is reached by its peers; none for a lone one")
	cmd.Flags().StringVar(&o.peer, "listen-peer", "", "host:port for peers, if it is not the one at which they reach this member")
	return cmd
}

type etcdOptions struct {
	dir, listen, ready string
	name, peer         string
	members            map[string]string
}

func (o etcdOptions) run(ctx context.Context) error {
	server, err := etcdmember.Start(ctx, etcdserver.Settings{
		DataDir: o.dir, ClientAddr: o.listen, QuotaBytes: etcdQuota, Logger: zerolog.New(os.Stderr).Level(zerolog.WarnLevel),
	}, etcdmember.Peers{Name: o.name, Cluster: o.members, Listen: o.peer})
	if err != nil {
		return err
	}
	defer func() { _ = server.Close() }()
	if o.ready == "" {
		fmt.Fprintln(os.Stderr, "etcd serves at "+strings.Join(server.Endpoints(), ","))
	} else if err := (app.Ready{PID: os.Getpid(), Etcd: server.Endpoints()}).Write(o.ready); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-server.Err():
		return err
	}
}
