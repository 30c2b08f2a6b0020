package deviceplugin

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kubelet "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// startWait is how long the kubelet waits for the container runtime to ask the agent, which
// after a restart of either is a moment. The kubelet gives up after 30 s.
const startWait = 10 * time.Second

// stopper keeps a container from starting unless package nri takes it out again.
func stopper() []*kubelet.Mount {
	return []*kubelet.Mount{{ContainerPath: v1alpha1.Stopper, HostPath: "/dev/null", ReadOnly: true}}
}

// beforeStart answers the kubelet's question before a container is made. The stopper would
// let none start while the guard is down, but a container that did not start has ended: a
// pod that never starts again would fail. Refused before it is made, it waits.
func beforeStart(ctx context.Context, guard Guard) (*kubelet.PreStartContainerResponse, error) {
	wait := time.NewTimer(startWait)
	defer wait.Stop()
	for {
		changed, reason := guard.Down()
		if reason == nil {
			return &kubelet.PreStartContainerResponse{}, nil
		}
		select {
		case <-changed:
		case <-wait.C:
			return nil, status.Errorf(codes.Unavailable, "no share can be put into a container on this node: %v", reason)
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
}

// PreStartContainer is asked before each container with slots is made.
func (s *service) PreStartContainer(ctx context.Context, _ *kubelet.PreStartContainerRequest) (*kubelet.PreStartContainerResponse, error) {
	return beforeStart(ctx, s.config.Guard)
}

// PreStartContainer is asked before each container with replicas is made.
func (s *replicaService) PreStartContainer(ctx context.Context, _ *kubelet.PreStartContainerRequest) (*kubelet.PreStartContainerResponse, error) {
	return beforeStart(ctx, s.replicas.Guard)
}
