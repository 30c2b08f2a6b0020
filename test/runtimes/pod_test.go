package runtimes

import (
	"context"
	"fmt"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// sandbox is that of a pod.
type sandbox struct {
	*machine
	id     string
	config *cri.PodSandboxConfig
}

// spaces are those of a pod in the network of the node: no other is shared.
func spaces() *cri.NamespaceOption {
	return &cri.NamespaceOption{Network: cri.NamespaceMode_NODE, Pid: cri.NamespaceMode_CONTAINER}
}

// labels are those that a kubelet gives a pod's sandbox and containers.
func labels(pod, container string) map[string]string {
	all := map[string]string{"io.kubernetes.pod.name": pod, "io.kubernetes.pod.namespace": "lab", "io.kubernetes.pod.uid": "uid-" + pod}
	if container != "" {
		all["io.kubernetes.container.name"] = container
	}
	return all
}

// pod makes a sandbox.
func (m *machine) pod(name string, notes map[string]string) *sandbox {
	m.t.Helper()
	s := &sandbox{machine: m, config: &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: name, Namespace: "lab", Uid: "uid-" + name},
		Labels:   labels(name, ""), Annotations: notes, LogDirectory: m.dir,
		Linux: &cri.LinuxPodSandboxConfig{CgroupParent: m.group, SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: spaces()}},
	}}
	made, err := m.RunPodSandbox(m.t.Context(), &cri.RunPodSandboxRequest{Config: s.config})
	if err != nil {
		m.t.Fatal(err)
	}
	s.id = made.GetPodSandboxId()
	return s
}

// create makes a container whose program looks for paths, or waits where there are none.
func (s *sandbox) create(name string, notes map[string]string, mounts []*cri.Mount, paths ...string) (string, error) {
	return s.with(&cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: name}, Args: paths, Annotations: notes, Mounts: mounts,
	})
}

// with makes a container.
func (s *sandbox) with(config *cri.ContainerConfig) (string, error) {
	name := config.GetMetadata().GetName()
	config.Image, config.LogPath = &cri.ImageSpec{Image: imageName, UserSpecifiedImage: imageName}, name+".log"
	config.Labels = labels(s.config.GetMetadata().GetName(), name)
	config.Linux = &cri.LinuxContainerConfig{SecurityContext: &cri.LinuxContainerSecurityContext{NamespaceOptions: spaces()}}
	made, err := s.CreateContainer(s.t.Context(), &cri.CreateContainerRequest{PodSandboxId: s.id, SandboxConfig: s.config, Config: config})
	return made.GetContainerId(), err
}

// start starts a container.
func (s *sandbox) start(id string) error {
	_, err := s.StartContainer(s.t.Context(), &cri.StartContainerRequest{ContainerId: id})
	return err
}

// state is that of a container.
func (s *sandbox) state(ctx context.Context, id string) (*cri.ContainerStatus, error) {
	found, err := s.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: id})
	return found.GetStatus(), err
}

// ended waits for the end of a container and returns how it ended.
func (s *sandbox) ended(id string) int {
	s.t.Helper()
	code := -1
	s.until("the container ends", func(ctx context.Context) error {
		found, err := s.state(ctx, id)
		if err != nil {
			return err
		}
		if found.GetState() != cri.ContainerState_CONTAINER_EXITED {
			return fmt.Errorf("it is %v", found.GetState())
		}
		code = int(found.GetExitCode())
		return nil
	})
	return code
}

func (s *sandbox) remove(id string) {
	s.t.Helper()
	if _, err := s.RemoveContainer(s.t.Context(), &cri.RemoveContainerRequest{ContainerId: id}); err != nil {
		s.t.Fatal(err)
	}
}
