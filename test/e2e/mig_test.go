package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/simgpu"
	"github.com/divvy-gpu/divvy/test/e2e/cluster"
)

// TestMIG has claims for MIG instances: n1 has a GPU in MIG mode, n2 eight that come into it. Before that n2
// has pairs of them and its cards.
func TestMIG(t *testing.T) {
	gate(t)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), begins)
	defer cancel()
	wanted := map[string]string{v1alpha1.NodeLabel: ""}
	c, err := cluster.Start(ctx, cluster.Options{
		Nodes: []cluster.Node{
			{Name: "n1", Machine: filepath.Join(root, "test/e2e/testdata/a100-40g.yaml"), Labels: wanted},
			{Name: "n2", Machine: "h200x8", Labels: wanted},
		},
		Images: images(t),
		Log:    t.Logf,
	})
	if err != nil {
		t.Fatal(err)
	}
	l := over(t, c, root)
	l.installMIG()
	l.scenario("pairs", func(l *lab) { pairs(l, l.Nodes[1], l.agree) })
	l.scenario("mig", func(l *lab) {
		nvidiasInstances(l)
		instances(l)
		instancesInterrupted(l)
		instancesMade(l)
	})
}

// installMIG installs Divvy with NVIDIA's classes and further values. A GPU in MIG mode may have no device.
func (l *lab) installMIG(values ...string) {
	l.t.Helper()
	l.must(l.tryInstall(append(values, "nvidiaClass=true")...))
	l.ready()
}

// lay gives GPUs of a node a layout, as an administrator does.
func (l *lab) lay(n *cluster.Machine, devices, instances string) {
	l.t.Helper()
	file := "version: v1\nmig-configs: {wanted: [{devices: " + devices + ", mig-enabled: true, mig-devices: {" + instances + "}}]}\n"
	_, err := n.Exec(l.ctx, "sh", "-c", `printf '%s' "$1" | divvy gpu apply --simgpu node -f -`, "sh", file)
	l.must(err)
}

// devicesOf are the MIG instances that a node publishes, and whether any takes counters.
func (l *lab) devicesOf(n *cluster.Machine) (names []string, counters bool, err error) {
	list, err := l.Client().ResourceV1().ResourceSlices().List(l.ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + n.Name})
	if err != nil {
		return nil, false, err
	}
	for i := range list.Items {
		for _, d := range list.Items[i].Spec.Devices {
			if profile, start, ok := pool.ParseInstance(d.Name); ok {
				names = append(names, fmt.Sprintf("%s@%d", profile, start))
			}
			counters = counters || len(d.ConsumesCounters) > 0
		}
	}
	slices.Sort(names)
	return names, counters, nil
}

// offers waits until a node publishes these instances, such as 1g.5gb@0, none of which takes counters.
func (l *lab) offers(n *cluster.Machine, want ...string) {
	l.t.Helper()
	l.eventually(n.Name+" publishes its instances", func() string {
		names, counters, err := l.devicesOf(n)
		if err != nil {
			return err.Error()
		}
		if !slices.Equal(names, want) || counters {
			return fmt.Sprintf("it publishes %v, with counters: %t", names, counters)
		}
		return ""
	})
}

// ofInstances makes a pod that uses a claim of a template: a container for each request, each of which holds memory.
func ofInstances(name, template string, requests ...string) *corev1.Pod {
	p := plain(name, "", "")
	shape := p.Spec.Containers[0]
	p.Spec.Containers = nil
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "instances", ResourceClaimTemplateName: new(template)}}
	for _, request := range requests {
		c := shape
		c.Name = request
		c.Command = []string{"gpubench", "hold", "--bytes=64Mi"}
		c.Stdin = true // it holds until its input ends
		c.Resources = corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "instances", Request: request}}}
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	return p
}

// template makes a claim template with a request for each profile.
func (l *lab) template(name, class, domain string, profiles map[string]string, more string) {
	l.t.Helper()
	var requests []string
	for request, profile := range profiles {
		requests = append(requests, fmt.Sprintf(`{name: %s, exactly: {deviceClassName: %s, selectors: [{cel: {expression: "device.attributes['%s'].profile == '%s'"}}]}}`,
			request, class, domain, profile))
	}
	slices.Sort(requests)
	l.must(l.ApplyText(l.ctx, fmt.Sprintf("{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: %s, namespace: %s}, spec: {spec: {devices: {requests: [%s]%s}}}}",
		name, l.namespace, strings.Join(requests, ", "), more)))
}

// onInstances are the instances of a node that processes use, by the simulated driver, such as 1g.5gb@0.
func onInstances(n *cluster.Machine, l *lab) ([]string, error) {
	report, err := n.Oracle(l.ctx)
	if err != nil {
		return nil, err
	}
	var used []string
	for _, g := range report.GPUs {
		if g.MIG == nil {
			continue
		}
		for _, i := range g.MIG.Instances {
			if i.Used >= 64*mib {
				used = append(used, fmt.Sprintf("%s@%d", i.Profile, i.Start))
			}
		}
	}
	slices.Sort(used)
	return used, nil
}

// uses waits until processes use just so many instances of each profile on a node.
func (l *lab) uses(n *cluster.Machine, want ...string) {
	l.t.Helper()
	l.eventually("instances are used", func() string {
		used, err := onInstances(n, l)
		if err != nil {
			return err.Error()
		}
		var profiles []string
		for _, u := range used {
			profile, _, _ := strings.Cut(u, "@")
			profiles = append(profiles, profile)
		}
		if !slices.Equal(profiles, want) {
			return fmt.Sprintf("used are %v, want %v", used, want)
		}
		return ""
	})
}

// nvidiasInstances is NVIDIA's example of instances of one GPU for the containers of a pod
// (kubernetes-sigs/dra-driver-nvidia-gpu, demo/specs/quickstart/v1/gpu-test4.yaml), with the layout that goes with it
// (demo/specs/quickstart/mig-parted-config.yaml).
func nvidiasInstances(l *lab) {
	n := l.Nodes[0]
	l.offers(n)
	l.lay(n, "[0]", `"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1`)
	profiles := map[string]string{"mig-1g-5gb-0": "1g.5gb", "mig-1g-5gb-1": "1g.5gb", "mig-2g-10gb": "2g.10gb", "mig-3g-20gb": "3g.20gb"}
	l.template("mig-devices", v1alpha1.ClassNVIDIAMIG, v1alpha1.NVIDIADriver, profiles, `, constraints: [{requests: [], matchAttribute: "gpu.nvidia.com/parentUUID"}]`)
	l.run(ofInstances("four", "mig-devices", "mig-1g-5gb-0", "mig-1g-5gb-1", "mig-2g-10gb", "mig-3g-20gb"))
	l.uses(n, "1g.5gb", "1g.5gb", "2g.10gb", "3g.20gb")
	l.agree()
	// Each container sees its own instance alone, and gets no more memory than that has.
	if f := l.fill("four", "mig-1g-5gb-0", 0); f.Result != "CUDA_ERROR_OUT_OF_MEMORY" || f.Allocated > 4864*mib {
		l.t.Errorf("beside what is held %d bytes were allocated in an instance of 4864 MiB: %s", f.Allocated, f.Result)
	}
	l.create(ofInstances("fifth", "mig-devices", "mig-1g-5gb-0", "mig-1g-5gb-1", "mig-2g-10gb", "mig-3g-20gb"))
	l.event("fifth", "NoShareFits")
	l.pending("fifth")
	l.remove("four")
	l.running("fifth")
	l.remove("fifth")
	l.uses(n)
}

// instances has claims for 1g and 3g on GPUs that come into MIG mode.
func instances(l *lab) {
	n := l.Nodes[1]
	l.lay(n, "[0]", `"1g.18gb": 1, "3g.71gb": 1`)
	l.eventually("n2 publishes two instances", func() string {
		names, counters, err := l.devicesOf(n)
		if err != nil || len(names) != 2 || counters {
			return fmt.Sprintf("%v, %t, %v", names, counters, err)
		}
		return ""
	})
	l.template("small", v1alpha1.ClassMIG, v1alpha1.Driver, map[string]string{"one": "1g.18gb"}, "")
	l.template("large", v1alpha1.ClassMIG, v1alpha1.Driver, map[string]string{"one": "3g.71gb"}, "")
	l.run(on(n, ofInstances("small", "small", "one")))
	l.run(on(n, ofInstances("large", "large", "one")))
	l.uses(n, "1g.18gb", "3g.71gb")
	l.agree()
	l.remove("small", "large")
	l.uses(n)
}

// instancesInterrupted has instances held while agent, kubelet and containerd of a node end.
func instancesInterrupted(l *lab) {
	n := l.Nodes[1]
	l.run(on(n, ofInstances("small", "small", "one")))
	l.uses(n, "1g.18gb")
	before, err := n.Oracle(l.ctx)
	l.must(err)
	l.must(n.KillKubelet(l.ctx))
	l.must(n.KillContainerd(l.ctx))
	l.signalAgent(n, "KILL")
	l.must(n.StartContainerd(l.ctx))
	l.must(n.StartKubelet(l.ctx))
	l.eventually("an agent serves "+n.Name, func() string {
		if l.agentPID(n) == 0 {
			return "none does"
		}
		return ""
	})
	l.ready()
	l.agree()
	after, err := n.Oracle(l.ctx)
	l.must(err)
	if had, has := computesOf(before), computesOf(after); !slices.Equal(had, has) {
		l.t.Errorf("the node had the instances %v and has %v", had, has)
	}
	l.running("small")
	l.uses(n, "1g.18gb")
	l.remove("small")
	l.uses(n)
}

// computesOf are the compute instances of a machine.
func computesOf(r *simgpu.Report) (all []string) {
	for _, g := range r.GPUs {
		if g.MIG == nil {
			continue
		}
		for _, i := range g.MIG.Instances {
			for _, c := range i.Computes {
				all = append(all, c.UUID)
			}
		}
	}
	return all
}

// instancesMade has instances made for claims where the layout may change, and taken away after them. Those of a layout stay.
func instancesMade(l *lab) {
	n := l.Nodes[1]
	l.installMIG("agent.backends.mig.gpus={0}", "agent.backends.mig.layout=dynamic")
	l.eventually("n2 publishes all places of a GPU", func() string {
		names, counters, err := l.devicesOf(n)
		if err != nil || len(names) != 25 || !counters {
			return fmt.Sprintf("%d of 25, %t, %v", len(names), counters, err)
		}
		return ""
	})
	l.template("made", v1alpha1.ClassMIG, v1alpha1.Driver, map[string]string{"one": "2g.35gb"}, "")
	l.run(on(n, ofInstances("made", "made", "one")))
	l.uses(n, "2g.35gb")
	l.agree()
	l.remove("made")
	l.eventually("the instance is gone", func() string {
		report, err := n.Oracle(l.ctx)
		if err != nil {
			return err.Error()
		}
		if all := computesOf(report); len(all) != 2 {
			return fmt.Sprintf("there are %v", all)
		}
		return ""
	})
}
