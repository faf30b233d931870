package sim

// Controls returns the mutants (lab/mutant) that seeds must find. Nothing is
// evicted here, so those of eviction are for the drills.
func Controls() []string {
	return []string{
		"fencing-compare", "send-based-deadline", "journaled-reservations", "quarantine", "commit-before-ack", "id-check", "head-continuity",
		"elected-wait", "depose-compare", "depose-promptly", "window-cut", "elected-beats",
		"second-fence", "cluster-time", "catch-up", "term-guard", "pending-reads", "lease-quarantine", "term-ids", "moved-leases", "clock-rates",
	}
}
