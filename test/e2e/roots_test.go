package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/test/e2e/cluster"
)

// cardDriver is another driver, and the name of its device class.
const cardDriver = "nic.example.com"

// cards is that driver: its devices need no preparation.
type cards struct{}

func (cards) PrepareResourceClaims(_ context.Context, claims []*resourcev1.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	prepared := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		var result kubeletplugin.PrepareResult
		for _, r := range claim.Status.Allocation.Devices.Results {
			if r.Driver == cardDriver {
				result.Devices = append(result.Devices, kubeletplugin.Device{Requests: []string{r.Request}, PoolName: r.Pool, DeviceName: r.Device})
			}
		}
		prepared[claim.UID] = result
	}
	return prepared, nil
}

func (cards) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	done := map[types.UID]error{}
	for i := range claims {
		done[claims[i].UID] = nil
	}
	return done, nil
}

func (cards) HandleError(ctx context.Context, err error, msg string) {
	utilruntime.HandleErrorWithContext(ctx, err, msg)
}

// card has another driver serve a node until the scenario has been cleared. It has one device. The function that is returned
// publishes it under a PCIe root.
func (l *lab) card(n *cluster.Machine) (publish func(root string)) {
	l.t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(l.ctx))
	l.must(l.ApplyText(l.ctx, fmt.Sprintf(`{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: %[1]s}, `+
		`spec: {selectors: [{cel: {expression: 'device.driver == "%[1]s"'}}]}}`, cardDriver)))
	dir := filepath.Join(kubeletplugin.KubeletPluginsDir, cardDriver)
	l.must(os.MkdirAll(n.Path(dir), 0o750))
	listen := func(_ context.Context, path string) (net.Listener, error) { return listenOn(n, path) }
	helper, err := kubeletplugin.Start(ctx, cards{}, kubeletplugin.DriverName(cardDriver), kubeletplugin.KubeClient(l.Client()), kubeletplugin.NodeName(n.Name),
		kubeletplugin.PluginDataDirectoryPath(dir), kubeletplugin.PluginListener(listen), kubeletplugin.RegistrarListener(listen))
	l.must(err)
	l.t.Cleanup(func() {
		helper.Stop()
		slices := metav1.ListOptions{FieldSelector: resourcev1.ResourceSliceSelectorDriver + "=" + cardDriver}
		err := errors.Join(
			os.RemoveAll(n.Path(dir)), os.Remove(n.Path(filepath.Join(kubeletplugin.KubeletRegistryDir, cardDriver+"-reg.sock"))),
			l.Client().ResourceV1().ResourceSlices().DeleteCollection(ctx, metav1.DeleteOptions{}, slices),
			l.Client().ResourceV1().DeviceClasses().Delete(ctx, cardDriver, metav1.DeleteOptions{}))
		stop()
		if err != nil {
			l.t.Error(err)
		}
	})
	return func(root string) {
		l.t.Helper()
		device := resourcev1.Device{Name: "card", Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
			resourcev1.QualifiedName(deviceattribute.StandardDeviceAttributePCIeRoot): {StringValue: &root},
		}}
		l.must(helper.PublishResources(ctx, resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{
			n.Name: {Slices: []resourceslice.Slice{{Devices: []resourcev1.Device{device}}}},
		}}))
	}
}

// listenOn makes a socket at a path of a node. The host's path would be too long for an address, so the open directory stands in it.
func listenOn(n *cluster.Machine, path string) (net.Listener, error) {
	dir, err := os.Open(n.Path(filepath.Dir(path)))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	address := net.UnixAddr{Net: "unix", Name: fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path))}
	made, err := net.ListenUnix(address.Net, &address)
	if err != nil {
		return nil, err
	}
	made.SetUnlinkOnClose(false) // the directory is closed then
	return made, nil
}

// roots are the PCIe roots of a node's GPUs by UUID, as they are published.
func (l *lab) roots(n *cluster.Machine) map[string]string {
	l.t.Helper()
	list, err := l.Client().ResourceV1().ResourceSlices().List(l.ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + n.Name})
	l.must(err)
	found := map[string]string{}
	for i := range list.Items {
		for _, d := range list.Items[i].Spec.Devices {
			if uuid, _, ok := pool.Parse(d.Name); ok {
				found[uuid] = ptr.Deref(d.Attributes[resourcev1.QualifiedName(deviceattribute.StandardDeviceAttributePCIeRoot)].StringValue, "")
			}
		}
	}
	return found
}

// A pod that asks for a share of a GPU and for another driver's device under the same PCIe root gets the GPU there, though it gets
// another one without the constraint. Its share counts.
func oneRootOfTwoDrivers(l *lab) {
	n := l.Nodes[1]
	publish := l.card(n)
	ask := func(name, constraints string) (uuid string) {
		l.t.Helper()
		l.must(l.ApplyText(l.ctx, fmt.Sprintf(`{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: %s, namespace: %s}, spec: {devices: {`+
			`requests: [{name: gpu, exactly: {deviceClassName: %s, capacity: {requests: {memory: 4Gi}}}}, {name: card, exactly: {deviceClassName: %s}}], `+
			`constraints: [%s]}}}`, name, l.namespace, v1alpha1.ClassShare, cardDriver, constraints)))
		p := uses(plain(name, "", ""), name)
		p.Spec.SchedulerName = v1alpha1.SchedulerName
		if node := l.run(p).Spec.NodeName; node != n.Name {
			l.t.Fatalf("pod %s is on %s, and the other driver on %s", name, node, n.Name)
		}
		return l.nvml(name, "main")[0].UUID
	}
	publish("pci0000:00")
	roots, chosen, wanted := l.roots(n), ask("anywhere", ""), ""
	for uuid, root := range roots {
		if root != roots[chosen] {
			wanted = uuid
		}
	}
	if wanted == "" {
		l.t.Fatalf("the GPUs are under the roots %v", roots)
	}
	l.remove("anywhere")
	l.kubectl("delete", "resourceclaim", "-n", l.namespace, "anywhere")
	publish(roots[wanted])
	if got := ask("beside", "{requests: [gpu, card], matchAttribute: "+string(deviceattribute.StandardDeviceAttributePCIeRoot)+"}"); got != wanted {
		l.t.Errorf("the pod has a share of %s, and the device is beside %s", got, wanted)
	}
	l.limited("beside", "main", 4*gib, 1)
	l.settled()
	// Beside it there is no room for a pod that the other GPU takes.
	l.run(on(n, plain("one", "12Gi", "")))
	l.create(on(n, plain("two", "12Gi", "")))
	l.waitsFor("two", "")
	l.pending("two")
	l.settled()
}
