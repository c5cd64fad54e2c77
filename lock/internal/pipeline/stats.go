package pipeline

// Stats holds the counts of a Pipeline: see lock.Stats.
type Stats struct {
	Queued, InFlight  int    // commands, now
	Batches, Commands uint64 // sent; only grow
	Retries, GivenUp  uint64 // Calls; only grow
}

// Stats returns the counts, over all nodes. It may be called concurrently.
func (p *Pipeline) Stats() Stats {
	s := Stats{Retries: p.retries.Load(), GivenUp: p.givenUp.Load()}
	for _, n := range p.router.nodes() {
		n.plain.addTo(&s)
		n.durable.addTo(&s)
	}
	return s
}

// addTo adds the queue's counts to s.
func (q *queue) addTo(s *Stats) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range q.waiting {
		if !c.canceled {
			s.Queued++
		}
	}
	s.InFlight += q.unanswered
	s.Batches += q.batches
	s.Commands += q.commands
}
