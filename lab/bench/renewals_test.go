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
		t.Error("a way measured nothing")
	}
	if got.Steady.BytesPerRenewal > 16 || got.Packed.BytesPerRenewal > 16 {
		t.Errorf("%.1f and %.1f bytes a renewal, at most 16 are promised", got.Steady.BytesPerRenewal, got.Packed.BytesPerRenewal)
	}
	if got.Steady.EtcdWritesPerSecond > 20 {
		t.Errorf("%.1f etcd writes a second for 15,000 renewals, at most 20 are promised", got.Steady.EtcdWritesPerSecond)
	}
	if got.Packed.AppliedP99 <= 0 || got.Steady.AppliedP50 <= 0 {
		t.Error("no renewal was seen at the standby")
	}
}
