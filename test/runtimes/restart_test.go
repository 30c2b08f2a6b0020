package runtimes

import (
	"context"
	"fmt"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/edits"
)

// A container goes on with its share when the runtime is killed, and the share ends with its pod.
func TestRestartBelowAContainer(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		m := start(t, k, true)
		a := &tenants{held: map[string]agent.Tenancy{}}
		guard, _ := m.serve(a)
		s := m.asking("p")
		id, err := s.create("main", nil, slotMounts())
		if err == nil {
			err = s.start(id)
		}
		if err != nil {
			t.Fatal(err)
		}
		lost, _ := guard.Down()
		m.restart()
		select {
		case <-lost:
		case <-time.After(longest):
			t.Fatal("the agent does not know that the runtime has ended")
		}
		m.asks(guard)
		if status, err := s.state(t.Context(), id); err != nil || status.GetState() != cri.ContainerState_CONTAINER_RUNNING {
			t.Fatalf("after the restart it is %v, %v", status, err)
		}
		again, err := s.create("beside", nil, nil, edits.ShareDir)
		s.runs("a container without a slot, after the restart", again, err, false)
		if held := a.Tenancies(); len(held) != 1 {
			t.Errorf("after the restart are held %v", held)
		}
		if _, err := s.StopContainer(t.Context(), &cri.StopContainerRequest{ContainerId: id}); err != nil {
			t.Fatal(err)
		}
		s.ended(id)
		if _, err := s.StopPodSandbox(t.Context(), &cri.StopPodSandboxRequest{PodSandboxId: s.id}); err != nil {
			t.Fatal(err)
		}
		m.until("the share has ended", func(context.Context) error {
			if held := a.Tenancies(); len(held) > 0 {
				return fmt.Errorf("held are %v", held)
			}
			return nil
		})
	})
}

// A device that the kubelet names is put in, and without its file no container is made. containerd 1.7 drops both, so that
// the agent prepares nothing for it (package dra).
func TestDevicesThatTheKubeletNames(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		m := start(t, k, true)
		s := m.pod("p", nil)
		named := func(name, device string) (string, error) {
			return s.with(&cri.ContainerConfig{
				Metadata: &cri.ContainerMetadata{Name: name}, Args: []string{edits.ShareDir}, CDIDevices: []*cri.CDIDevice{{Name: device}},
			})
		}
		m.write("cdi/divvy.json", fmt.Sprintf(`{"cdiVersion": "0.5.0", "kind": "divvy.test/share", "devices": [{"name": "one",
			"containerEdits": {"mounts": [{"hostPath": "/etc", "containerPath": %q, "options": ["ro", "rbind"]}]}}]}`, edits.ShareDir))
		id, err := named("main", "divvy.test/share=one")
		s.runs("a device", id, err, k.devices)
		id, err = named("lost", "divvy.test/share=two")
		if !k.devices {
			s.runs("a device that nothing describes", id, err, false)
		} else if err == nil {
			t.Error("a container is made without its device")
		}
	})
}
