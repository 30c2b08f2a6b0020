package scheduler

import (
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/internal/scheduler/ledger"
	"github.com/divvy-gpu/divvy/internal/scheduler/workload"
)

// touchClaim notes that a claim has something else than before.
func (e *Engine) touchClaim(key string, after *resourcev1.ResourceClaim) {
	var claim workload.Claim
	if after != nil {
		for _, user := range after.Status.ReservedFor {
			if user.Resource == "pods" && user.APIGroup == "" {
				claim.Pods = append(claim.Pods, user.UID)
			} else {
				claim.Others = true
			}
		}
		is := ledger.StandingOf(after)
		made, turning := e.ledger.Turning(key)
		claim.Away = turning && made || !turning && is.Order > 0 && !is.Refused
		claim.Out, claim.Back = claim.Away && !e.ledger.OnGPUs(key), is.BackAt.Time
		if now := e.clock(); claim.Back.After(now) {
			claim.Back = now // its node's clock is ahead, which makes nobody's minimum run time longer
		}
	}
	e.queues.touched[key] = claim
}

// settleClaim brings a claim up to date of which something was told.
func (e *Engine) settleClaim(key string) {
	claim := e.queues.touched[key]
	delete(e.queues.touched, key)
	if home := e.ledger.Home(key); len(home) > 0 {
		claim.Charges = e.charges(home)
	}
	e.queues.set.SetClaim(key, claim)
}
