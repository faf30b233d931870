package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

const busyCommand = "__busy"

// KeepBusy keeps one processor busy, with another process, until the context ends.
func KeepBusy(ctx context.Context) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("a process that keeps a processor busy: %w", err)
	}
	err = exec.CommandContext(ctx, program, busyCommand).Run()
	if ctx.Err() == nil {
		return fmt.Errorf("a process that keeps a processor busy ended: %w", err)
	}
	return nil
}

// busy is the program of such a process.
func busy() {
	for n := 0; ; n++ {
	}
}
