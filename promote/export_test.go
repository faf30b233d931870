package promote

// MayStart reports whether an operator's permission to start empty stands.
func (n *Node) MayStart() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.allowed
}

// Known returns how many other complete nodes this node remembers.
func (n *Node) Known() int {
	known := n.companions.known()
	if known.Primary == "" {
		return -1
	}
	return len(known.At)
}
