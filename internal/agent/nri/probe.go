package nri

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	nriplugin "github.com/containerd/nri/pkg/plugin"
)

// The container that a probe asks for, which the runtime must refuse to make: the
// manifest of the agent's pod has ProbeAnnotation with the value ProbeRequires.
const (
	probeContainer = "divvy-probe"
	probePlugin    = "divvy-probe-absent"
	// ProbeAnnotation requires a plugin that does not exist for one container.
	ProbeAnnotation = nriplugin.RequiredPluginsAnnotation + "/container." + probeContainer
	// ProbeRequires is its value.
	ProbeRequires = "[" + probePlugin + "]"
)

const (
	podUIDLabel  = "io.kubernetes.pod.uid"
	probeTimeout = 10 * time.Second
)

// Probe returns a probe for [Config] that asks the runtime at endpoint, such as
// unix:///run/containerd/containerd.sock, to make a container in the agent's own
// sandbox, of which the sandbox's annotation says that it requires a plugin that
// is not there. A runtime whose validator is on refuses and names that plugin;
// what is made otherwise is never started and is removed at once. podUID is that
// of the agent's pod.
func Probe(endpoint, podUID string) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return fmt.Errorf("connect to the container runtime at %s: %w", endpoint, err)
		}
		defer func() { _ = conn.Close() }()
		return probe(ctx, cri.NewRuntimeServiceClient(conn), podUID)
	}
}

// runtime is the part of the runtime's service that a probe needs.
type runtime interface {
	ListPodSandbox(ctx context.Context, in *cri.ListPodSandboxRequest, opts ...grpc.CallOption) (*cri.ListPodSandboxResponse, error)
	ListContainers(ctx context.Context, in *cri.ListContainersRequest, opts ...grpc.CallOption) (*cri.ListContainersResponse, error)
	CreateContainer(ctx context.Context, in *cri.CreateContainerRequest, opts ...grpc.CallOption) (*cri.CreateContainerResponse, error)
	RemoveContainer(ctx context.Context, in *cri.RemoveContainerRequest, opts ...grpc.CallOption) (*cri.RemoveContainerResponse, error)
}

func probe(ctx context.Context, service runtime, podUID string) error {
	if podUID == "" {
		return errors.New("the agent does not know its own pod: give its manifest the variable POD_UID from metadata.uid")
	}
	sandbox, image, err := self(ctx, service, podUID)
	if err != nil {
		return err
	}
	if sandbox.GetAnnotations()[ProbeAnnotation] != ProbeRequires {
		return fmt.Errorf("the agent's own pod has no annotation %s: %q", ProbeAnnotation, ProbeRequires)
	}
	made, err := service.CreateContainer(ctx, &cri.CreateContainerRequest{
		PodSandboxId:  sandbox.GetId(),
		Config:        &cri.ContainerConfig{Metadata: &cri.ContainerMetadata{Name: probeContainer}, Image: image},
		SandboxConfig: &cri.PodSandboxConfig{Metadata: sandbox.GetMetadata()},
	})
	switch {
	case err == nil:
		return errors.Join(ErrOpen, remove(ctx, service, made.GetContainerId()))
	case strings.Contains(err.Error(), probePlugin):
		return nil
	}
	return fmt.Errorf("probe whether the runtime refuses a container: %w", err)
}

// self finds the agent's own sandbox and image: the runtime certainly has that image.
func self(ctx context.Context, service runtime, podUID string) (*cri.PodSandbox, *cri.ImageSpec, error) {
	sandboxes, err := service.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{
		State:         &cri.PodSandboxStateValue{State: cri.PodSandboxState_SANDBOX_READY},
		LabelSelector: map[string]string{podUIDLabel: podUID},
	}})
	if err != nil {
		return nil, nil, fmt.Errorf("find the agent's own pod: %w", err)
	}
	if len(sandboxes.GetItems()) == 0 {
		return nil, nil, fmt.Errorf("find the agent's own pod: the container runtime has no sandbox of pod %s", podUID)
	}
	sandbox := sandboxes.GetItems()[0]
	containers, err := service.ListContainers(ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{PodSandboxId: sandbox.GetId()}})
	if err != nil {
		return nil, nil, fmt.Errorf("find the agent's own container: %w", err)
	}
	for _, c := range containers.GetContainers() {
		if c.GetState() == cri.ContainerState_CONTAINER_RUNNING {
			return sandbox, c.GetImage(), nil
		}
	}
	return nil, nil, fmt.Errorf("find the agent's own container: none runs in sandbox %s", sandbox.GetId())
}

func remove(ctx context.Context, service runtime, id string) error {
	if _, err := service.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: id}); err != nil {
		return fmt.Errorf("remove the container that the probe made: %w", err)
	}
	return nil
}
