package nri

import (
	"errors"
	"maps"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/divvy-gpu/divvy/internal/agent"
)

// pod returns the pod with a UID, and adds it if it is new. plugin.mu is held.
func (p *plugin) pod(uid string) *pod {
	found := p.pods[uid]
	if found == nil {
		found = &pod{uid: uid, sandboxes: make(map[string]bool), tries: make(map[string]*try)}
		p.pods[uid] = found
	}
	return found
}

// enter notes that a sandbox runs. For a sandbox that began before the connection the
// runtime reports only the ends of its containers.
func (p *plugin) enter(sandbox *api.PodSandbox, begins bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.pods[sandbox.GetUid()] != nil
	found := p.pod(sandbox.GetUid())
	if begins || !known {
		found.earlier = !begins
	}
	if found.sandboxes == nil {
		found.sandboxes = make(map[string]bool)
	}
	found.sandboxes[sandbox.GetId()] = true
}

// begin notes a container that is made.
func (p *plugin) begin(uid, container string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := p.pod(uid)
	if found.containers == nil {
		found.containers = make(map[string]bool)
	}
	found.containers[container] = true
}

// end notes that a container has ended, which for a pod that was found running is all
// that the runtime reports.
func (p *plugin) end(container string) {
	p.mu.Lock()
	var last string
	for uid, found := range p.pods {
		if !found.containers[container] {
			continue
		}
		delete(found.containers, container)
		if found.earlier && len(found.containers) == 0 {
			found.sandboxes, last = nil, uid
		}
	}
	p.mu.Unlock()
	if last != "" {
		p.release(last)
	}
}

// leave notes that a sandbox has stopped. It ignores sandboxes of pods that asked for
// nothing or were released already.
func (p *plugin) leave(sandbox *api.PodSandbox) {
	p.mu.Lock()
	found := p.pods[sandbox.GetUid()]
	if found != nil {
		delete(found.sandboxes, sandbox.GetId())
	}
	last := found != nil && len(found.sandboxes) == 0
	p.mu.Unlock()
	if last {
		p.release(sandbox.GetUid())
	}
}

// prepare begins to prepare a share, or returns the try that is under way or has
// succeeded and was not used yet. One that failed is begun anew.
func (p *plugin) prepare(uid string, tenancy agent.Tenancy) *try {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := p.pod(uid)
	if t := found.tries[tenancy.Key]; t != nil && (!t.ended() || t.err == nil) {
		return t
	}
	t := &try{tenancy: tenancy, done: make(chan struct{})}
	found.tries[tenancy.Key] = t
	p.running.Go(func() {
		found.work.Lock()
		defer found.work.Unlock()
		defer close(t.done) // within the lock: who holds it sees tries that have ended or not begun
		if !p.runs(found) {
			t.err = errStopped
			return
		}
		t.edits, t.err = p.tenants.Prepare(p.work, tenancy)
		if t.err != nil {
			p.log.Warn("share not prepared", "tenant", tenancy.Name, "error", t.err)
		}
	})
	return t
}

// used forgets a try that succeeded, so that the share's next container, perhaps much
// later, asks the agent again, which then makes what is missing.
func (p *plugin) used(uid string, t *try) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if found := p.pods[uid]; found != nil && found.tries[t.tenancy.Key] == t {
		delete(found.tries, t.tenancy.Key)
	}
}

var errStopped = errors.New("the pod has stopped")

func (p *plugin) runs(found *pod) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(found.sandboxes) > 0
}

// over reports whether the pod's shares are to end. If so it forgets what was prepared
// for the pod, so that no container gets a share that is about to be released.
func (p *plugin) over(found *pod) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(found.sandboxes) > 0 {
		return false
	}
	maps.DeleteFunc(found.tries, func(_ string, t *try) bool { return t.ended() })
	return true
}

// release ends the shares of a pod in the background. It tries again until it succeeds
// or the pod has a running sandbox: killed processes take a while to end.
func (p *plugin) release(uid string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := p.pod(uid)
	if found.releasing {
		return
	}
	found.releasing = true
	p.running.Go(func() {
		for pause := p.retry; !p.releaseOnce(found); pause = min(2*pause, maxRetry) {
			select {
			case <-time.After(pause):
			case <-p.work.Done():
				return
			}
		}
	})
}

// releaseOnce reports whether there is nothing more to do.
func (p *plugin) releaseOnce(found *pod) (finished bool) {
	found.work.Lock()
	defer found.work.Unlock()
	var faults []error
	if p.over(found) {
		for _, t := range p.tenants.Tenancies() {
			if uid, ok := agent.PodOfKey(t.Key); ok && uid == found.uid {
				if err := p.tenants.Release(p.work, t.Key); err != nil {
					faults = append(faults, err)
				}
			}
		}
	}
	if len(faults) > 0 {
		if err := errors.Join(faults...); err.Error() != found.fault {
			found.fault = err.Error()
			p.log.Warn("share not released yet", "error", err)
		}
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	found.releasing = false
	if len(found.sandboxes) > 0 {
		return true
	}
	delete(p.pods, found.uid)
	return true
}
