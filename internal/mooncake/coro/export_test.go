package coro

// HasSlot reports whether the connection has a slot.
func (c *Conn) HasSlot() bool { return c.slot.Has() }

// NoSlots reports whether no connection has a slot.
func (s *Server) NoSlots() bool { return s.slots.Empty() }
