package sim

// Controls returns the mutants (lab/mutant) that seeds must find. The simulation evicts
// nothing, so mutants of the eviction are left to the drills.
func Controls() []string {
	return []string{
		"fencing-compare", "send-based-deadline", "journaled-reservations", "quarantine", "commit-before-ack", "id-check", "head-continuity",
		"elected-wait", "depose-compare", "depose-promptly", "window-cut", "elected-beats",
		"second-fence", "cluster-time", "catch-up", "term-guard", "pending-reads", "lease-quarantine", "term-ids", "moved-leases", "clock-rates",
	}
}
