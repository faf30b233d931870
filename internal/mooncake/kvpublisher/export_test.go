package kvpublisher

// Subscribed returns how many subscribers get what is published from now on.
func (p *Publisher) Subscribed() (n int) {
	p.subscribers.mu.Lock()
	defer p.subscribers.mu.Unlock()
	for s := range p.subscribers.all {
		s.mu.Lock()
		if s.topics > 0 && !s.slow {
			n++
		}
		s.mu.Unlock()
	}
	return n
}
