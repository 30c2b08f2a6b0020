package agent

import (
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/process"
)

// members remembers to which tenants processes belong, as the kernel told. A process
// stays a tenant's until it ends, and what descends from it is the tenant's too: no
// later fork, session or namespace leads out. The zero value is ready.
type members struct {
	mu    sync.Mutex // held for a moment, alone
	known map[process.ID]membership
	// full is how many entries known may have before the dead are taken out.
	full int
}

// membership is what is known of one process.
type membership struct {
	tenant string // the tenant's id, "" for nobody's
	asked  time.Time
}

const (
	// reconsidered is after how long a process that was nobody's is asked about again:
	// it may have mapped a tenant's pages since.
	reconsidered = 2 * time.Second
	// leastMembers are remembered before the first dead are taken out.
	leastMembers = 64
)

// recall returns the tenant of a process, ok if that need not be asked again.
func (m *members) recall(id process.ID, now time.Time) (tenant string, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k, found := m.known[id]
	return k.tenant, found && (k.tenant != "" || now.Sub(k.asked) < reconsidered)
}

func (m *members) remember(id process.ID, tenant string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil {
		m.known = map[process.ID]membership{}
	}
	if len(m.known) >= max(m.full, leastMembers) {
		maps.DeleteFunc(m.known, func(id process.ID, _ membership) bool { return !id.Alive() })
		m.full = 2 * len(m.known)
	}
	m.known[id] = membership{tenant, now}
}

// of are the living processes that are remembered as a tenant's.
func (m *members) of(tenant string) (found []process.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, k := range m.known {
		if k.tenant == tenant && id.Alive() {
			found = append(found, id)
		}
	}
	return found
}

// forget drops the processes of a tenant that has ended.
func (m *members) forget(tenant string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.known, func(_ process.ID, k membership) bool { return k.tenant == tenant })
}

// ownerOf is the id of the tenant to which the process with a pid belongs, as the
// kernel tells, "" if none or as long as that is not known.
func (a *Agent) ownerOf(pid int) string {
	id, err := process.Find(pid)
	if err != nil {
		return ""
	}
	tenant, _ := a.member(id)
	return tenant
}

// ofOwner is the question whose a process is.
const ofOwner = "owner"

// member is memberOf for those who cannot wait long; ok is false while it is not known.
func (a *Agent) member(id process.ID) (tenant string, ok bool) {
	if tenant, ok := a.members.recall(id, time.Now()); ok {
		return tenant, true
	}
	found, ok := a.asking.ask(question{id, ofOwner}, process.Owner(id.PID), func() answer {
		tenant, unread := a.findMember(id)
		return answer{tenant: tenant, unread: unread}
	})
	if found.tenant != "" && !a.hasTenant(found.tenant) {
		return "", ok // it ended since
	}
	return found.tenant, ok
}

// memberOf is ownerOf for a process that was found before. It may take long.
func (a *Agent) memberOf(id process.ID) string {
	if tenant, ok := a.members.recall(id, time.Now()); ok {
		return tenant
	}
	tenant, _ := a.findMember(id)
	return tenant
}

// findMember asks whose a process is and remembers it.
func (a *Agent) findMember(id process.ID) (tenant string, unread bool) {
	now := time.Now()
	if tenant, unread = a.askMember(id); tenant != "" && !a.hasTenant(tenant) {
		tenant = "" // it ended meanwhile
	}
	a.members.remember(id, tenant, now)
	return tenant, unread
}

// askMember asks the kernel whose a process is: the tenant's in whose container it or
// one of its ancestors runs, or from whose processes it descends, or that the backend
// finds. unread is true where that cannot be known because the process has too much open.
func (a *Agent) askMember(id process.ID) (owner string, unread bool) {
	family := append([]int{id.PID}, process.Ancestors(id.PID)...)
	for _, pid := range family {
		if tenant := a.config.Backends.Container(pid); tenant != "" && a.hasTenant(tenant) {
			return tenant, false
		}
	}
	for _, pid := range family[1:] {
		if parent, err := process.Find(pid); err == nil {
			if tenant, _ := a.members.recall(parent, time.Time{}); tenant != "" && a.mayInherit(tenant, id) {
				return tenant, false
			}
		}
	}
	holders, asked := a.askable(family)
	for _, pid := range family {
		t := holders[pid]
		if t == nil {
			continue
		}
		// Another process may have the number by now.
		if t.Holder == id || t.Holder.PID != id.PID && t.Holder.Alive() && a.mayInherit(t.ID, id) {
			return t.ID, false
		}
	}
	if id.PID == os.Getpid() {
		return "", false
	}
	return a.config.Backends.Owner(asked, id.PID)
}

// askable are the tenants that processes of a family hold, by pid, and those of which the
// backend tells whether they have a process.
func (a *Agent) askable(family []int) (holders map[int]*tenant, asked []backend.Tenant) {
	a.mu.Lock()
	defer a.mu.Unlock()
	holders = map[int]*tenant{}
	for _, t := range a.sorted() {
		if t.process && slices.Contains(family, t.Holder.PID) {
			holders[t.Holder.PID] = t
		}
		if t.Layer != backend.LayerContainer {
			asked = append(asked, a.tenantOf(&t.record))
		}
	}
	return holders, asked
}

// mayInherit reports whether a process is a tenant's by what it descends from: a
// container's is, and of another tenant's those of its user. What a program such as sudo
// or su has started for another user is that user's business, as is a share that they ask
// for there.
func (a *Agent) mayInherit(tenant string, id process.ID) bool {
	a.mu.Lock()
	t := a.tenants[tenant]
	var of record
	if t != nil {
		of = t.record
	}
	a.mu.Unlock()
	return t != nil && (of.Layer == backend.LayerContainer || of.owns(id))
}

func (a *Agent) hasTenant(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.tenants[id] != nil
}

// nameOf is what users call a tenant, and its user; both are "" for one that is not there.
func (a *Agent) nameOf(id string) (name, user string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t := a.tenants[id]; t != nil {
		return t.Name, t.User
	}
	return "", ""
}
