package e2e

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/test/e2e/cluster"
)

// amount is a part of a GPU: memory and cores.
type amount struct {
	memory uint64 // bytes; a whole GPU's is not looked at
	kept   uint64 // bytes, of a swap share's memory
	cores  int    // percent
	whole  bool
}

// holdings are amounts by node, claim and GPU, as text that compares and prints.
type holdings map[string]amount

func (h holdings) add(node, claim, uuid string, a amount) {
	key := node + " " + claim + " " + uuid
	sum := h[key]
	sum.memory += a.memory
	sum.kept += a.kept
	sum.cores += a.cores
	sum.whole = sum.whole || a.whole
	if sum.whole {
		sum.memory = 0
	}
	h[key] = sum
}

// agree waits until all records of shares agree: the API server's claims, the
// agents' tenants, the oracle's processes and the nodes' disks. It fails at once
// if more is used or granted than there is.
func (l *lab) agree() {
	l.t.Helper()
	l.eventually("claims, agents, GPUs and disks agree", func() string {
		l.t.Helper()
		return l.difference()
	})
}

// free waits until no record holds a share.
func (l *lab) free() {
	l.t.Helper()
	l.agree()
	l.eventually("everything is free", func() string {
		claims, _, err := l.claimed()
		if err != nil {
			return err.Error()
		}
		for key := range claims {
			return key + " is allocated"
		}
		for _, n := range l.Nodes {
			report, err := n.Oracle(l.ctx)
			if err != nil {
				return err.Error()
			}
			for _, gpu := range report.GPUs {
				if gpu.Used != 0 {
					return fmt.Sprintf("%d bytes of GPU %d of node %s are used", gpu.Used, gpu.Index, n.Name)
				}
			}
		}
		return ""
	})
}

// difference lists where the records disagree, one line for each place.
func (l *lab) difference() string {
	claims, specs, err := l.claimed()
	if err != nil {
		return err.Error()
	}
	var lines []string
	held := holdings{}
	for _, n := range l.Nodes {
		before, err := l.used(n)
		if err != nil {
			return err.Error()
		}
		listing, err := l.listing(n)
		if err != nil {
			return err.Error()
		}
		after, err := l.used(n)
		if err != nil {
			return err.Error()
		}
		lines = append(lines, counted(n, listing, before, after)...)
		for i := range listing.Tenants {
			t := &listing.Tenants[i]
			for _, s := range t.Shares {
				has := amount{memory: s.Limit, cores: s.Cores, whole: s.Whole}
				if s.Swap != nil {
					has.kept = s.Swap.Kept
				}
				if s.Instance != nil {
					has = placedAt(s.Instance.Start)
				}
				held.add(n.Name, t.Namespace+"/"+t.Claim, s.UUID, has)
			}
		}
		lines = append(lines, l.sums(n, listing)...)
		lines = append(lines, l.usage(n, listing)...)
		lines = append(lines, l.disk(n, listing, specs[n.Name])...)
	}
	for _, key := range slices.Sorted(maps.Keys(claims)) {
		if got, ok := held[key]; !ok || got != claims[key] {
			lines = append(lines, fmt.Sprintf("%s: %+v is allocated, the agent has %+v", key, claims[key], got))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(held)) {
		if _, ok := claims[key]; !ok {
			lines = append(lines, key+": the agent has a tenant, and nothing is allocated")
		}
	}
	return strings.Join(lines, "\n")
}

// claimed returns what the API server has allocated, and the names of the claims' CDI specifications by node. Admin access
// takes nothing, and has a specification.
func (l *lab) claimed() (holdings, map[string][]string, error) {
	claims, specs := holdings{}, map[string][]string{}
	list, err := l.Client().ResourceV1().ResourceClaims(metav1.NamespaceAll).List(l.ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return claims, specs, nil // before Kubernetes 1.34 nothing can be claimed
	}
	if err != nil {
		return nil, nil, err
	}
	specify := func(node, name string) {
		if !slices.Contains(specs[node], name) {
			specs[node] = append(specs[node], name)
		}
	}
	for i := range list.Items {
		c := &list.Items[i]
		if c.Status.Allocation == nil {
			continue
		}
		for _, r := range c.Status.Allocation.Devices.Results {
			if r.Driver != v1alpha1.Driver {
				continue
			}
			if ptr.Deref(r.AdminAccess, false) {
				specify(r.Pool, "admin."+v1alpha1.Driver+"-"+string(c.UID)+".json")
				continue
			}
			if own := ownSpecs(c, &r); own != nil {
				for _, name := range own {
					specify(r.Pool, name)
				}
				continue
			}
			a, uuid, err := allotted(c, &r)
			if err != nil {
				return nil, nil, fmt.Errorf("claim %s/%s: %w", c.Namespace, c.Name, err)
			}
			claims.add(r.Pool, c.Namespace+"/"+c.Name, uuid, a)
			specify(r.Pool, v1alpha1.Driver+"-"+string(c.UID)+".json")
		}
	}
	return claims, specs, nil
}

// ownSpecs are the CDI specifications of a claim for a card, or for a device of a virtual machine, which take nothing of GPUs; nil for
// other devices.
func ownSpecs(c *resourcev1.ResourceClaim, r *resourcev1.DeviceRequestAllocationResult) []string {
	if _, card := pool.IsNIC(r.Device); card {
		return []string{"nic." + v1alpha1.Driver + "-" + string(c.UID) + ".json"}
	}
	if _, machines := pool.ParseFunction(r.Device); machines {
		request, _, _ := strings.Cut(r.Request, "/")
		return []string{
			"machine." + v1alpha1.Driver + "-" + string(c.UID) + ".json",
			fmt.Sprintf("%s_metadata_%s_%s.json", v1alpha1.Driver, c.UID, request), // with the file that tells of it
		}
	}
	return nil
}

func allotted(c *resourcev1.ResourceClaim, r *resourcev1.DeviceRequestAllocationResult) (amount, string, error) {
	uuid, form, ok := pool.Parse(r.Device)
	if !ok {
		return amount{}, "", fmt.Errorf("device %s has no GPU's name", r.Device)
	}
	if form == pool.Whole {
		return amount{whole: true}, uuid, nil
	}
	if _, start, ok := pool.ParseInstance(r.Device); ok {
		return placedAt(start), uuid, nil
	}
	memory, cores := r.ConsumedCapacity[v1alpha1.CapacityMemory], r.ConsumedCapacity[v1alpha1.CapacityCores]
	whole := slices.ContainsFunc(c.Spec.Devices.Requests, func(asked resourcev1.DeviceRequest) bool {
		name, way, _ := strings.Cut(r.Request, "/")
		return asked.Name == name && (asked.Exactly != nil && asked.Exactly.DeviceClassName == v1alpha1.ClassWhole ||
			slices.ContainsFunc(asked.FirstAvailable, func(s resourcev1.DeviceSubRequest) bool {
				return s.Name == way && s.DeviceClassName == v1alpha1.ClassWhole
			}))
	})
	if whole {
		return amount{cores: int(cores.Value()), whole: true}, uuid, nil
	}
	if swap := r.ConsumedCapacity[v1alpha1.CapacitySwapMemory]; !swap.IsZero() {
		return amount{memory: uint64(swap.Value()), kept: uint64(memory.Value()), cores: int(cores.Value())}, uuid, nil
	}
	return amount{memory: uint64(memory.Value()), cores: int(cores.Value())}, uuid, nil
}

// placedAt stands for a MIG instance: the allocation names no amounts, and sums of these tell places apart.
func placedAt(start int) amount { return amount{memory: 1 << start} }

// sums checks that no GPU is granted beyond its size, which holds at every moment.
func (l *lab) sums(n *cluster.Machine, listing *control.Listing) []string {
	l.t.Helper()
	var lines []string
	for _, gpu := range listing.GPUs {
		var memory uint64
		cores, whole, all := 0, 0, 0
		for i := range listing.Tenants {
			if isOff(&listing.Tenants[i]) {
				continue // others may have its room
			}
			for _, s := range listing.Tenants[i].Shares {
				if s.UUID != gpu.UUID {
					continue
				}
				if s.Swap != nil {
					memory += s.Swap.Kept
				} else {
					memory += s.Limit
				}
				cores += s.Cores
				all++
				if s.Whole {
					whole++
				}
			}
		}
		if memory > gpu.Capacity || cores > 100 || whole > 0 && all > 1 {
			l.t.Fatalf("GPU %d of node %s: %d of %d bytes and %d percent are given to %d tenants, %d of them have all of it",
				gpu.Index, n.Name, memory, gpu.Capacity, cores, all, whole)
		}
		memory += gpu.TurnRoom
		if gpu.Granted != memory {
			lines = append(lines, fmt.Sprintf("GPU %d of node %s: %d bytes are granted, and shares have %d", gpu.Index, n.Name, gpu.Granted, memory))
		}
	}
	return lines
}

// isOff reports whether a tenant has nothing on its GPUs and keeps no room there.
func isOff(t *control.Tenant) bool {
	return t.Suspended != nil && (t.Suspended.State == control.SuspensionOut || t.Suspended.State == control.SuspensionWaiting)
}

// usage compares with the oracle: every process on a GPU belongs to a tenant of it,
// and no tenant ever had more than its share.
func (l *lab) usage(n *cluster.Machine, listing *control.Listing) []string {
	l.t.Helper()
	report, err := n.Oracle(l.ctx)
	if err != nil {
		return []string{err.Error()}
	}
	var lines []string
	limits := map[string]uint64{}
	for i := range listing.Tenants {
		t := &listing.Tenants[i]
		for _, s := range t.Shares {
			limits[tenantOn(t.Dir, s.Index)] = s.Limit
		}
	}
	for _, p := range report.Processes {
		for _, g := range p.GPUs {
			if g.Used == 0 {
				continue
			}
			limit, ok := limits[tenantOn(p.Tenant, g.Index)]
			switch {
			case !ok && l.outsider(p.Command):
			case !ok:
				lines = append(lines, fmt.Sprintf("node %s: process %d (%s) of tenant %q uses GPU %d and is no tenant of it", n.Name, p.PID, p.Command, p.Tenant, g.Index))
			case g.Used > limit:
				l.t.Fatalf("node %s: process %d of tenant %s has %d bytes of GPU %d, the share is %d", n.Name, p.PID, p.Tenant, g.Used, g.Index, limit)
			}
		}
	}
	for _, t := range report.Tenants {
		for _, g := range t.GPUs {
			if limit, ok := limits[tenantOn(t.Tenant, g.Index)]; ok && g.Peak > limit {
				l.t.Fatalf("node %s: tenant %s had %d bytes of GPU %d, the share is %d", n.Name, t.Tenant, g.Peak, g.Index, limit)
			}
		}
	}
	return lines
}

// used returns how much of each GPU each tenant of a node has, by the oracle.
func (l *lab) used(n *cluster.Machine) (map[string]uint64, error) {
	report, err := n.Oracle(l.ctx)
	if err != nil {
		return nil, err
	}
	used := map[string]uint64{}
	for _, t := range report.Tenants {
		for _, g := range t.GPUs {
			used[tenantOn(t.Tenant, g.Index)] = g.Used
		}
	}
	return used, nil
}

// counted compares the agent's figures with the oracle's. It leaves out tenants whose
// use changed while the agent was asked.
func counted(n *cluster.Machine, listing *control.Listing, before, after map[string]uint64) []string {
	var lines []string
	for i := range listing.Tenants {
		t := &listing.Tenants[i]
		for _, s := range t.Shares {
			key := tenantOn(t.Dir, s.Index)
			// What is off the GPU is in use, and on no GPU.
			if s.Swap == nil && t.Suspended == nil && before[key] == after[key] && s.Used != after[key] {
				lines = append(lines, fmt.Sprintf("node %s: %s uses %d bytes of GPU %d, the agent says %d", n.Name, t.Name, after[key], s.Index, s.Used))
			}
		}
	}
	return lines
}

// outsider reports whether a process may use a GPU without a share: the agent,
// which measures what a context takes.
func (l *lab) outsider(command string) bool {
	return filepath.Base(command) == "divvy"
}

// tenantOn returns a tenant's key on one GPU, made from its directory's name.
func tenantOn(dir string, index int) string {
	return fmt.Sprintf("%s %d", filepath.Base(cmp.Or(dir, "nobody")), index)
}

// tenantsDir returns the folder of the tenants of containers on a node.
const tenantsDir = "/dev/shm/divvy-0/tenants/containers"

// disk compares the files on a node with the tenants that exist.
func (l *lab) disk(n *cluster.Machine, listing *control.Listing, specs []string) []string {
	var dirs []string
	for i := range listing.Tenants {
		dirs = append(dirs, filepath.Base(listing.Tenants[i].Dir))
	}
	return append(l.files(n, "CDI specifications", "/var/run/cdi", specs), l.files(n, "tenants' directories", tenantsDir, dirs)...)
}

func (l *lab) files(n *cluster.Machine, what, dir string, want []string) []string {
	text, err := n.Exec(l.ctx, "sh", "-c", "ls "+dir+" 2>/dev/null || test ! -e "+dir)
	if err != nil {
		return []string{err.Error()}
	}
	got := strings.Fields(text)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		return []string{fmt.Sprintf("node %s: %s are %v, should be %v", n.Name, what, got, want)}
	}
	return nil
}

// gpuTime is the GPU time that all tenants of a node have had, in nanoseconds. It
// needs no API server.
func (l *lab) gpuTime(ctx context.Context, n *cluster.Machine) (uint64, error) {
	report, err := n.Oracle(ctx)
	if err != nil {
		return 0, err
	}
	var sum uint64
	for _, t := range report.Tenants {
		for _, g := range t.GPUs {
			sum += g.GPUNs
		}
	}
	return sum, nil
}
