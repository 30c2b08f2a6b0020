package agent

import (
	"context"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/backend"
)

// offences are what a share's processes did against all shares of a GPU.
type offences struct {
	since time.Time
	count int
	// answered is whether they were signalled for it.
	answered bool
}

const (
	// offenceTime is for how long an offence counts, and manyOffences in that time are answered: a single one may be a program
	// that its user stopped at the wrong moment.
	offenceTime  = time.Minute
	manyOffences = 3
)

// offend counts an offence of a tenant at a GPU. It reports whether that is news, and whether it is to be answered.
func (a *Agent) offend(tenant, uuid string, now time.Time) (news, answer bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, o := range a.offences {
		if now.Sub(o.since) > offenceTime {
			delete(a.offences, key)
		}
	}
	key := [2]string{tenant, uuid}
	o := a.offences[key]
	if o == nil {
		o = &offences{since: now}
		a.offences[key] = o
	}
	o.count++
	answer = o.count >= manyOffences && signals[a.config.Misuse] != 0
	news = o.count == 1 || answer && !o.answered
	o.answered = o.answered || answer
	return news, answer
}

// accuse tells of what a process did against all shares of a GPU, and answers it by the configuration where its share goes on
// with it.
func (a *Agent) accuse(ctx context.Context, i backend.Incident) {
	tenant, known := a.member(i.By)
	news, answer := a.offend(tenant, i.UUID, time.Now())
	answer = answer && known && tenant != ""
	e := control.Event{Kind: control.EventGPU, UUID: i.UUID, Text: i.Text}
	a.mu.Lock()
	if t := a.tenants[tenant]; t != nil {
		e.Kind, e.Tenant, e.User = control.EventMisuse, t.Name, t.User
	}
	a.mu.Unlock()
	switch {
	case answer && a.config.Misuse == agentconfig.OutsideStop:
		e.Text += "; it does so again and again, and was stopped (SIGSTOP): `divvy stop` ends its share"
	case answer:
		e.Text += "; it does so again and again, and was killed"
	}
	if news {
		a.events.add(e)
	}
	if answer {
		a.answer(ctx, tenant, []onGPU{{id: i.By}})
	}
}
