package coro

// HasSlot reports whether the connection has a slot.
func (c *Conn) HasSlot() bool { return c.slot.Has() }
