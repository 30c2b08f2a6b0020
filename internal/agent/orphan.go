package agent

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/backend"
)

// ender ends what a user's own agent ran for its shares of a backend.
type ender interface {
	InheritedPipe(tenants, uuid string) string
	EndInherited(ctx context.Context, pipe string, uid int) error
}

// withoutCeiling is a share that was had by one backend, with the terms with which it goes on with another. A ceiling of
// SMs is no part of GPU time: it guarantees nothing, and its programs that run keep it, so that the same part of the time would
// leave them that part of the ceiling alone. So the share gets its time by weight.
func withoutCeiling(s backend.Share, had, with v1alpha1.Backend) backend.Share {
	if had == v1alpha1.BackendMPS && with != v1alpha1.BackendMPS {
		s.Cores, s.Policy, s.MaxCores, s.Weight, s.Class = 0, "", 0, 0, ""
	}
	return s
}

// goesOn says how the shares of one backend go on with another, which was had by a user's own agent.
func goesOn(had, with v1alpha1.Backend) string {
	if had == v1alpha1.BackendMPS {
		return fmt.Sprintf("it goes on with backend %s, which divides GPU time, by weight and without cores: a ceiling of SMs is no part of the time. Its programs that run keep the MPS control daemon of their user's own agent and their ceiling of SMs. "+
			"Nobody supervises that daemon, which ends with the user's last share there: start the share's command again to be without it", with)
	}
	return fmt.Sprintf("it goes on with backend %s, which divides GPU time: backend %s is the right of root here", with, had)
}

// endOrphans ends the control daemons by which a user's own agent served the GPUs of a tenant that has ended, unless
// another share that was taken over from that agent may live by them.
func (a *Agent) endOrphans(ctx context.Context, t *tenant) {
	own, ok := a.config.Backends.Of(v1alpha1.BackendMPS).(ender)
	if !ok || t.Origin == "" {
		return
	}
	place := filepath.Dir(t.Origin)
	for _, s := range t.Shares {
		if a.othersOf(t, place, s.UUID) {
			continue
		}
		pipe := own.InheritedPipe(place, s.UUID)
		if err := own.EndInherited(context.WithoutCancel(ctx), pipe, t.UID); err != nil {
			a.config.Log.WarnContext(ctx, "a control daemon is left", "user", t.User, "pipe", pipe, "error", err)
			a.events.add(control.Event{
				Kind: control.EventFault, Tenant: t.Name, User: t.User, UUID: s.UUID,
				Text: fmt.Sprintf("the MPS control daemon at %s goes on without a share: %v: end it by `echo quit | CUDA_MPS_PIPE_DIRECTORY=%s nvidia-cuda-mps-control`", pipe, err, pipe),
			})
		}
	}
}

// othersOf reports whether another tenant on a GPU was taken over from the same place.
func (a *Agent) othersOf(t *tenant, place, uuid string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, o := range a.tenants {
		if o != t && !o.ended && o.Origin != "" && filepath.Dir(o.Origin) == place && o.has(uuid) {
			return true
		}
	}
	return false
}
