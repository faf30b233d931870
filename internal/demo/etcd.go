package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/understudy-store/understudy/internal/etcdserver"
	"github.com/understudy-store/understudy/internal/procs"
)

// etcdQuota is larger than what a demo writes between compactions.
const etcdQuota = 4 << 30

// etcdChild runs an etcd server as a process of its own, not in the master that
// dies.
func etcdChild() *cobra.Command {
	var dir, ready string
	cmd := &cobra.Command{
		Use:           etcdCommand,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return runEtcd(ctx, dir, ready)
		},
	}
	cmd.Flags().StringVar(&dir, "data-dir", "", "where it keeps its data")
	cmd.Flags().StringVar(&ready, "ready-file", "", "what to write when it serves")
	return cmd
}

func runEtcd(ctx context.Context, dir, ready string) error {
	server, err := etcdserver.Start(ctx, etcdserver.Config{
		DataDir: dir, QuotaBytes: etcdQuota, Logger: zerolog.New(os.Stderr),
	})
	if err != nil {
		return err
	}
	defer func() { _ = server.Close() }()
	b, err := json.Marshal(procs.Ready{PID: os.Getpid(), Etcd: server.Endpoints()})
	if err != nil {
		return err
	}
	if err := os.WriteFile(ready+".new", b, 0o644); err != nil {
		return fmt.Errorf("writing the ready file: %w", err)
	}
	if err := os.Rename(ready+".new", ready); err != nil {
		return fmt.Errorf("writing the ready file: %w", err)
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-server.Err():
		return err
	}
}
