package bench

import (
	"testing"
	"time"
)

func TestRenewals(t *testing.T) {
	got, err := RunRenewals(t.Context(), Options{Objects: 20_000, Duration: 2 * time.Second, Rate: 15_000})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", got)
	if got.Packed.RenewalsPerSecond <= 0 || got.Literal.RenewalsPerSecond <= 0 || got.Txn128.RenewalsPerSecond <= 0 {
		t.Errorf("got %v, %v and %v renewals a second, want more than 0 of each encoding", got.Packed.RenewalsPerSecond, got.Literal.RenewalsPerSecond, got.Txn128.RenewalsPerSecond)
	}
	if got.Steady.BytesPerRenewal > 16 || got.Packed.BytesPerRenewal > 16 {
		t.Errorf("got %.1f and %.1f bytes a renewal, want at most 16", got.Steady.BytesPerRenewal, got.Packed.BytesPerRenewal)
	}
	if got.Steady.EtcdWritesPerSecond > 20 {
		t.Errorf("got %.1f etcd writes a second for 15,000 renewals, want at most 20", got.Steady.EtcdWritesPerSecond)
	}
	if got.Packed.AppliedP99 <= 0 || got.Steady.AppliedP50 <= 0 {
		t.Error("got no renewal at the standby, want some")
	}
}
