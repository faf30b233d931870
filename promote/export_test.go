package promote

// MayStart reports whether an operator's permission to start empty stands.
func (n *Node) MayStart() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.allowed
}
