package program

import (
	"context"

	schedulerconfig "k8s.io/kubernetes/cmd/kube-scheduler/app/config"
	"k8s.io/kubernetes/pkg/scheduler"
)

// adapt replaces the scheduler's decisions for pods with claims for Divvy's devices.
func adapt(_ context.Context, _ *schedulerconfig.CompletedConfig, _ *scheduler.Scheduler, _ func(step string)) error {
	return nil
}
