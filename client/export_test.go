package client

// Candidates returns how many addresses a client keeps.
func Candidates(c *Client) int {
	c.finder.mu.Lock()
	defer c.finder.mu.Unlock()
	return len(c.finder.candidates)
}

// Calls returns how many calls are under way.
func Calls(c *Client) int64 { return c.finder.calls.Load() }

// Told is what a client does about what stands in etcd.
func Told(c *Client, address string, term uint64) { c.finder.told(address, term) }
