package dra

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/api/metadata"
	"k8s.io/dynamic-resource-allocation/devicemetadata"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/test/bench/figure"
)

// container has the files that a container finds, by the path in it, and its device nodes.
type container struct {
	files map[string]string
	nodes []string
}

// containerOfSpecs makes the container that a runtime makes of these CDI devices, from the specifications that are there now.
func containerOfSpecs(t *testing.T, dir string, ids []string) container {
	t.Helper()
	c := container{files: map[string]string{}}
	names, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]specs.ContainerEdits{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		var spec specs.Spec
		if err == nil {
			err = json.Unmarshal(text, &spec)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range spec.Devices {
			found[spec.Kind+"="+d.Name] = d.ContainerEdits
		}
	}
	for _, id := range ids {
		e, ok := found[id]
		if !ok {
			t.Fatalf("there is no CDI device %s", id)
		}
		if len(e.Env) > 0 || len(e.Hooks) > 0 {
			t.Errorf("%s brings %v and %v", id, e.Env, e.Hooks)
		}
		for _, mount := range e.Mounts {
			c.files[mount.ContainerPath] = mount.HostPath
		}
		for _, node := range e.DeviceNodes {
			c.nodes = append(c.nodes, node.Path)
		}
	}
	return c
}

// launch finds a device as KubeVirt 1.9 does: the one file of the request's folder, the first object of a version that is
// known, the one request of that name with one device, and there the UUID of a mediated device before an address.
func (c container) launch(folder, claim, request string) (device string, err error) {
	var files []string
	for name := range c.files {
		if ok, _ := path.Match(path.Join("/var/run/kubernetes.io/dra-device-attributes", folder, claim, request, "*-metadata.json"), name); ok {
			files = append(files, name)
		}
	}
	if len(files) != 1 {
		return "", fmt.Errorf("request %s has the files %v", request, files)
	}
	file, err := os.Open(c.files[files[0]])
	if err != nil {
		return "", err
	}
	defer file.Close()
	var known metadata.DeviceMetadata
	if err := devicemetadata.DecodeMetadataFromStream(json.NewDecoder(file), &known); err != nil {
		return "", err
	}
	if len(known.Requests) != 1 || known.Requests[0].Name != request || len(known.Requests[0].Devices) != 1 {
		return "", fmt.Errorf("the file has requests %+v", known.Requests)
	}
	attributes := known.Requests[0].Devices[0].Attributes
	for _, name := range []resourcev1.QualifiedName{"mdevUUID", "resource.kubernetes.io/pciBusID"} {
		if value := attributes[name].StringValue; value != nil && *value != "" {
			return *value, nil
		}
	}
	return "", fmt.Errorf("neither UUID nor address in %v", attributes)
}

// kubelet serves a driver that offers devices to virtual machines.
func (m *machine) serveMachines(k *kubelet) drapb.DRAPluginClient {
	m.t.Helper()
	m.names()
	k.start()
	o := &publication{changed: make(chan struct{})}
	d := New(Config{
		Node: nodeName, Client: m.client, Tenants: m.start().agent, Machines: m.machines, Handed: filepath.Join(m.dir, "machine-claims.json"), Pool: o.resources,
		PluginDir: k.pluginDir, RegistryDir: k.registryDir, CDIDir: m.cdiDir, Log: slog.New(slog.DiscardHandler), RetryPause: 10 * time.Millisecond,
	})
	ctx, cancel := context.WithCancel(m.t.Context())
	done := make(chan error)
	go func() { done <- d.Run(ctx) }()
	m.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			m.t.Error(err)
		}
	})
	return k.register()
}

// Before the kubelet is answered, and so before a container starts, each request has one file with one device, which
// Kubernetes' own decoder reads, and by which KubeVirt finds the device.
func TestMetadata(t *testing.T) {
	right := 0
	for name, c := range map[string]struct{ devices, want []string }{
		"a GPU":              {[]string{"gpu", wholeCard}, []string{"gpu", "0000:3b:00.0"}},
		"two GPUs":           {[]string{"gpu-0", wholeCard, "gpu-1", anotherCard}, []string{"gpu-0", "0000:3b:00.0", "gpu-1", "0000:86:00.0"}},
		"a mediated device":  {[]string{"vgpu", mediatedOne}, []string{"vgpu", mdev}},
		"a virtual function": {[]string{"vf", virtualCard}, []string{"vf", "0000:c1:00.4"}},
		"a typed function":   {[]string{"vgpu", "vgpu-0000-3b-00-4-471"}, []string{"vgpu", "0000:3b:00.4"}},
		"an alternative":     {[]string{"gpu/large", wholeCard}, []string{"gpu", "0000:3b:00.0"}},
	} {
		found := true
		for _, template := range []bool{false, true} {
			found = t.Run(name, func(t *testing.T) {
				claim, pod := launcher(c.devices...)
				folder, called := metadata.ResourceClaimsSubDir, claim.Name
				if template {
					folder, called = metadata.ResourceClaimTemplatesSubDir, "the-vm"
					claim.Annotations = map[string]string{resourcev1.PodResourceClaimAnnotation: called}
				}
				m, _ := withHost(t, claim, pod)
				plugin := m.serveMachines(newKubelet(t))
				request := []*drapb.Claim{{Namespace: "team", Name: "a", Uid: string(uidA)}}
				answer, err := plugin.NodePrepareResources(t.Context(), &drapb.NodePrepareResourcesRequest{Claims: request})
				if err != nil || answer.Claims[string(uidA)].Error != "" || len(answer.Claims[string(uidA)].Devices) != len(c.want)/2 {
					t.Fatalf("%v, %v", answer, err)
				}
				var ids []string
				for _, d := range answer.Claims[string(uidA)].Devices {
					ids = append(ids, d.CdiDeviceIds...)
				}
				got := containerOfSpecs(t, m.cdiDir, ids)
				if len(got.files) != len(c.want)/2 || len(got.nodes) != len(c.want) {
					t.Errorf("a container gets the files %v and the nodes %v", got.files, got.nodes)
				}
				for i := 0; i < len(c.want); i += 2 {
					if device, err := got.launch(folder, called, c.want[i]); err != nil || device != c.want[i+1] {
						t.Errorf("request %s is %s, %v, want %s", c.want[i], device, err, c.want[i+1])
					}
				}
				if _, err := plugin.NodeUnprepareResources(t.Context(), &drapb.NodeUnprepareResourcesRequest{Claims: request}); err != nil {
					t.Error(err)
				}
				for _, file := range got.files {
					if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
						t.Errorf("%s is left: %v", file, err)
					}
				}
				if left := m.specs(); len(left) > 0 {
					t.Errorf("specifications %v are left", left)
				}
			}) && found
		}
		if found {
			right++
		}
	}
	figure.Tell(t, figure.Figure{
		ID: "kv.metadata", Values: []float64{float64(right)},
		Note: "kinds of claims whose requests have one file and one device each before the kubelet is answered, by Kubernetes' decoder and KubeVirt 1.9's rules",
	})
}

// A claim whose file cannot be written is refused, because its machine would start without the device.
func TestMetadataThatCannotBeWritten(t *testing.T) {
	claim, pod := launcher("gpu", wholeCard)
	m, _ := withHost(t, claim, pod)
	k := newKubelet(t)
	if err := os.MkdirAll(k.pluginDir, 0o700); err != nil {
		t.Fatal(err)
	}
	blocking := filepath.Join(k.pluginDir, "dra-device-metadata")
	if err := os.WriteFile(blocking, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	plugin := m.serveMachines(k)
	request := &drapb.NodePrepareResourcesRequest{Claims: []*drapb.Claim{{Namespace: "team", Name: "a", Uid: string(uidA)}}}
	answer, err := plugin.NodePrepareResources(t.Context(), request)
	if err != nil || !strings.Contains(answer.Claims[string(uidA)].Error, "the file that tells a virtual machine of "+wholeCard+" could not be written") || len(answer.Claims[string(uidA)].Devices) > 0 {
		t.Errorf("%v, %v", answer, err)
	}
	if err := os.Remove(blocking); err != nil {
		t.Fatal(err)
	}
	if answer, err = plugin.NodePrepareResources(t.Context(), request); err != nil || answer.Claims[string(uidA)].Error != "" {
		t.Errorf("asked again: %v, %v", answer, err)
	}
}

// Where nothing is offered to virtual machines, claims of shares get no such files.
func TestNoMetadataOfShares(t *testing.T) {
	claim, pod := simple()
	m := newMachine(t, claim, pod)
	m.names()
	k, o := newKubelet(t), &publication{changed: make(chan struct{})}
	k.start()
	m.serve(k, o.resources)
	answer, err := k.register().NodePrepareResources(t.Context(), &drapb.NodePrepareResourcesRequest{Claims: []*drapb.Claim{{Namespace: "team", Name: "a", Uid: string(uidA)}}})
	if err != nil || len(answer.Claims[string(uidA)].Devices) != 1 || len(answer.Claims[string(uidA)].Devices[0].CdiDeviceIds) != 1 {
		t.Errorf("%v, %v", answer, err)
	}
	if fileless([]*drapb.Device{{DeviceName: "x", CdiDeviceIds: []string{v1alpha1.CDIMachineKind + "=a"}}}) != "x" {
		t.Error("a device without a file is not seen")
	}
}
