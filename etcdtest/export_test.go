package etcdtest

// Revision looks up the revision that a running member has applied, past its
// links.
func (c *Cluster) Revision(i int) int64 { return c.nodes[i].server.Embedded().Server.KV().Rev() }
