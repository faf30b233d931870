package drill

import (
	"context"
	"slices"
	"testing"

	"github.com/understudy-store/understudy/errs"
)

// A node that ends by itself fails the drill: one that is missed at the end, and
// one that the drill would have killed anyway.
func TestCrashes(t *testing.T) {
	type crash func(ctx context.Context, e *Env, p pair)
	for name, crash := range map[string]crash{
		"a standby, to the end": func(_ context.Context, _ *Env, p pair) {
			p.standby.Process.Kill() // stands for a panic
		},
		"the primary, before it is killed": func(ctx context.Context, e *Env, p pair) {
			p.primary.Process.Kill()
			p.primary.Kill()
			e.restart(ctx, p.primary)
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := Drill{Name: "crash", Promises: []string{"D", "S"}, run: func(ctx context.Context, e *Env) {
				e.episode(ctx, episode{nodes: 3, work: &work{}}, func(ctx context.Context) { crash(ctx, e, e.ready(ctx)) })
			}}
			r := Run(t.Context(), d, Options{Short: true, Dir: t.TempDir()})
			if r.Error != "" || r.broken() || r.OK || !slices.ContainsFunc(r.Checks, func(c Check) bool { return c.Name == "no crash" && !c.OK }) {
				t.Errorf("got %+v, want no promise broken and the check \"no crash\" failed", r)
			}
		})
	}
}

// Errors that a client may take for the end of a call.
func TestFinalErrors(t *testing.T) {
	for kind, want := range map[errs.Kind]bool{
		errs.OK: false, errs.Unavailable: false, errs.NotLeader: false, errs.Unresolved: false, errs.NoAvailableHandle: false,
		errs.ObjectNotFound: false, errs.ObjectExists: false, errs.ObjectHasLease: false, errs.ReplicaNotReady: false,
		errs.Internal: true, errs.InvalidParams: true, errs.NotSupported: true,
	} {
		if got := final(kind); got != want {
			t.Errorf("%v: got final %t, want %t", kind, got, want)
		}
	}
}
