package program

import (
	"k8s.io/client-go/rest"
	schedulerconfig "k8s.io/kubernetes/cmd/kube-scheduler/app/config"

	"github.com/divvy-gpu/divvy/internal/lease"
)

// guard has the scheduler write only while it holds the lease, and also what Kubernetes' own plugins write. Without an election
// nothing is checked.
func guard(config *schedulerconfig.CompletedConfig) error {
	election := config.LeaderElection
	if election == nil {
		return nil
	}
	election.Name = config.ComponentConfig.LeaderElection.ResourceName // of the figure of who leads
	l := lease.New(election.Lock, election.LeaseDuration, election.RenewDeadline)
	election.Lock = l
	return l.Guard(config.Client, rest.AddUserAgent(config.KubeConfig, "scheduler"))
}
