package agent

import "github.com/divvy-gpu/divvy/internal/process"

// encloses reports whether a share of root's has a process of another user: the one that
// asked for the share, one that descends from it and is the user that it has become, one
// that the backend says is the share's, or one that was started in the share and has its sign. Nobody without root's rights makes such a share, or
// brings a process into it. What it was once it remains: it may lose its parent.
func (h *hunt) encloses(id process.ID) bool {
	t := h.tenant
	if t.UID != 0 || h.enclosed[id] {
		return h.enclosed[id]
	}
	h.agent.mu.Lock()
	holder, wanted := t.Holder, h.agent.tenantOf(&t.record)
	h.agent.mu.Unlock()
	became := id == holder || id.DescendsFrom(holder) && id.SameUser(holder)
	// A sign alone could be passed to any process that takes descriptors, and an environment
	// says what its user likes.
	started := func() bool { return process.StartedWith(id.PID, "/"+t.ID) && signed(t, []process.ID{id})(id) }
	if !became && !h.agent.makerOf(wanted).Has(wanted, id.PID) && !started() || !id.Alive() {
		return false
	}
	if h.enclosed == nil {
		h.enclosed = map[process.ID]bool{}
	}
	h.enclosed[id] = true
	return true
}
