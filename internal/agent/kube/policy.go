package kube

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/deviceplugin"
	"github.com/divvy-gpu/divvy/internal/pluginfile"
)

// policyLabel names the configuration of a node, as NVIDIA's device plugin reads it.
const policyLabel = "nvidia.com/device-plugin.config"

// defaultPolicy is the configuration of nodes without the label, where there are several.
const defaultPolicy = "default"

// errNoPolicy is returned where a node has no configuration.
var errNoPolicy = errors.New("no configuration")

const (
	// freeInterval is the time between looks whether a GPU is free that is to be divided otherwise.
	freeInterval = time.Second
	// givenTime is how long a replica counts as used after the kubelet was told of it: the time in which its container is
	// made and has a share.
	givenTime = time.Minute
)

// policy divides the node's GPUs by the configuration of NVIDIA's device plugin that the node's label chooses. A GPU is
// divided otherwise only when nothing uses it; until then it keeps what it has, and nothing new comes to it.
type policy struct {
	// files are the named configurations, a file each.
	files fs.FS
	nodes nodes
	node  string
	gpus  []pluginfile.GPU
	// used reports which GPUs have shares, by UUID.
	used func() map[string]bool
	// told is called for every fault that is new, with its reason as an event has it.
	told func(reason, text string)
	log  *slog.Logger
	now  func() time.Time

	mu sync.Mutex
	// name and config are what is in force; config is nil until a configuration was read.
	name   string
	config *pluginfile.Config
	fault  string
	// divided and wanted are by UUID; a GPU of which both differ is withdrawn.
	divided, wanted map[string]part
	given           map[string]time.Time
	changed         chan struct{}
}

// part is how a GPU is divided; the zero part is a whole GPU.
type part struct {
	backend         v1alpha1.Backend
	replicas        int
	renamed, single bool
}

func newPolicy(files fs.FS, nodes nodes, node string, gpus []pluginfile.GPU, log *slog.Logger) *policy {
	return &policy{
		files: files, nodes: nodes, node: node, gpus: gpus, log: log, now: time.Now,
		used: func() map[string]bool { return nil }, told: func(string, string) {},
		divided: map[string]part{}, wanted: map[string]part{}, given: map[string]time.Time{}, changed: make(chan struct{}),
	}
}

// run follows the node's label and the files until ctx is done.
func (p *policy) run(ctx context.Context) error {
	next := time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(next):
		}
		p.follow(ctx)
		for next = labelInterval; p.divide() && next > 0; next -= freeInterval {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(freeInterval):
			}
		}
	}
}

// follow reads the label and the file. While either cannot be read, or the file is faulty, what is in force stays.
func (p *policy) follow(ctx context.Context) {
	asked, cancel := context.WithTimeout(ctx, pause)
	defer cancel()
	node, err := p.nodes.Get(asked, p.node, metav1.GetOptions{ResourceVersion: "0"}) // 0 is what the API server has in memory
	if err != nil {
		if ctx.Err() == nil {
			p.fail("NoNode", fmt.Sprintf("cannot read the node's labels: %v", err), false)
		}
		return
	}
	name, config, err := chosen(p.files, node.Labels[policyLabel])
	if err == nil {
		err = p.want(name, config)
	}
	switch {
	case errors.Is(err, errNoPolicy):
		p.fail("UnknownDevicePluginConfig", err.Error(), true)
	case err != nil:
		p.fail("InvalidDevicePluginConfig", err.Error(), true)
	default:
		p.mu.Lock()
		p.fault = ""
		p.mu.Unlock()
	}
}

// fail says what is wrong once.
func (p *policy) fail(reason, text string, event bool) {
	p.mu.Lock()
	said := p.fault == text
	kept := p.name
	p.fault = text
	p.mu.Unlock()
	if said {
		return
	}
	if kept != "" {
		text += "; configuration " + kept + " stays in force"
	}
	p.log.Error("device-plugin configuration", "error", text)
	if event {
		p.told(reason, text)
	}
}

// chosen reads the configuration that a label names. Without a label that is the one named default, or the only one.
func chosen(files fs.FS, label string) (name string, config *pluginfile.Config, err error) {
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		return "", nil, fmt.Errorf("read the configurations: %w", err)
	}
	var names []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") { // Kubernetes' own, of mounted ConfigMaps
			names = append(names, e.Name())
		}
	}
	name = label
	switch {
	case name == "" && len(names) == 1:
		name = names[0]
	case name == "":
		name = defaultPolicy
	}
	if !slices.Contains(names, name) {
		if label == "" {
			return "", nil, fmt.Errorf("%w: the node has no label %s, and none is named %s; there are: %s", errNoPolicy, policyLabel, defaultPolicy, strings.Join(names, ", "))
		}
		return "", nil, fmt.Errorf("%w named %s, as the node's label %s says; there are: %s", errNoPolicy, name, policyLabel, strings.Join(names, ", "))
	}
	text, err := fs.ReadFile(files, name)
	if err != nil {
		return "", nil, fmt.Errorf("read configuration %s: %w", name, err)
	}
	if config, err = pluginfile.Parse(name, text); err != nil {
		return "", nil, err
	}
	if err := config.Err(name); err != nil {
		return "", nil, err
	}
	return name, config, nil
}

// want takes a configuration. GPUs that it divides as before stay as they are.
func (p *policy) want(name string, config *pluginfile.Config) error {
	entries, absent, err := config.Resolve(p.gpus)
	if err != nil {
		return fmt.Errorf("configuration %s: %w", name, err)
	}
	wanted := map[string]part{}
	for i, e := range entries {
		if e != nil {
			wanted[p.gpus[i].UUID] = part{e.Backend, e.Replicas, e.Renamed, e.Single}
		} else {
			wanted[p.gpus[i].UUID] = part{}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	first := p.config == nil
	if !first && name == p.name && maps.Equal(wanted, p.wanted) {
		p.config = config
		return nil
	}
	p.log.Info("device-plugin configuration", "name", name, "absent", absent)
	p.name, p.config, p.wanted = name, config, wanted
	p.tell()
	return nil
}

// divide gives free GPUs the parts that are wanted, and reports whether others wait.
func (p *policy) divide() (waiting bool) {
	used := p.used()
	p.mu.Lock()
	defer p.mu.Unlock()
	changed := false
	for uuid, want := range p.wanted {
		have, known := p.divided[uuid]
		switch {
		case known && have == want:
		case used[uuid] || p.now().Sub(p.given[uuid]) < givenTime:
			waiting = true
		default:
			p.divided[uuid], changed = want, true
		}
	}
	if changed {
		p.tell()
	}
	return waiting
}

// tell wakes those who look at the units. p.mu is held.
func (p *policy) tell() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// gave notes that the kubelet was told of replicas, which have no shares yet.
func (p *policy) gave(replicas []v1alpha1.Replica) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range replicas {
		p.given[r.UUID] = p.now()
	}
}

// units are what the kubelet counts, and a channel that is closed when that changes. Faulty are the GPUs that take
// nothing new. A GPU that is to be divided otherwise and is used is faulty as it is.
func (p *policy) units(faulty map[string]bool) ([]deviceplugin.Unit, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []deviceplugin.Unit
	for _, gpu := range p.gpus {
		have, known := p.divided[gpu.UUID]
		if !known {
			continue
		}
		unit := deviceplugin.Unit{
			Replica: v1alpha1.Replica{UUID: gpu.UUID, Of: have.replicas, Backend: have.backend}, Resource: pluginfile.GPUResource,
			Single: have.single, Faulty: faulty[gpu.UUID] || have != p.wanted[gpu.UUID],
		}
		if have.renamed {
			unit.Resource = pluginfile.SharedResource
		}
		for i := range max(have.replicas, 1) {
			unit.Number = i
			all = append(all, unit)
		}
	}
	return all, p.changed
}

// packed reports whether replicas are to fill a GPU before another one is used.
func (p *policy) packed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.config != nil && p.config.Packed
}

// part is how a GPU is divided.
func (p *policy) part(uuid string) part {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.divided[uuid]
}
