package agent

// Absent returns the GPUs that tenancies hold and that are not there, with how many
// bytes of each, and a channel that is closed when that may have changed. They were
// lost before the agent started, so that nobody watches their health.
func (a *Agent) Absent() (held map[string]uint64, changed <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	held = map[string]uint64{}
	for _, t := range a.tenants {
		if t.Tenancy == nil {
			continue
		}
		for _, s := range t.Shares {
			if a.gpu(s.UUID).Index < 0 {
				held[s.UUID] += s.Limit
			}
		}
	}
	return held, a.changed
}
