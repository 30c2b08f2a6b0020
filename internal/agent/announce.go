package agent

// InUse returns how many tenants and waiting requests there are, and a
// channel that is closed when that may have changed.
func (a *Agent) InUse() (n int, changed <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.tenants) + len(a.queue), a.changed
}

// announce wakes everybody who waits for tenants or queue to change, and tells
// the pacer. Agent.mu is held.
func (a *Agent) announce() {
	a.publish()
	a.tell()
}

// tell is announce for a change that does not concern the pacer. Agent.mu is held.
func (a *Agent) tell() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// all returns the tenants, the oldest first.
func (a *Agent) all() []*tenant {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sorted()
}
