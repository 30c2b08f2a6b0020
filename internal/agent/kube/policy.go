package kube

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/internal/backend"
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
	// divisions tells how GPUs are divided by MIG.
	divisions divisions
	// seen is what it told last; run alone uses it.
	seen map[string]backend.Division
	// used reports which GPUs and MIG instances have shares, by [place].
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
	// divided and wanted are by UUID of a GPU or of a MIG instance; one of which both differ is withdrawn. There are those
	// that the driver has.
	divided, wanted map[string]part
	there           map[string]bool
	given           map[string]time.Time
	changed         chan struct{}
}

func newPolicy(files fs.FS, nodes nodes, node string, gpus []pluginfile.GPU, log *slog.Logger) *policy {
	return &policy{
		files: files, nodes: nodes, node: node, gpus: gpus, log: log, now: time.Now,
		divisions: undivided, used: func() map[string]bool { return nil }, told: func(string, string) {},
		divided: map[string]part{}, wanted: map[string]part{}, given: map[string]time.Time{}, changed: make(chan struct{}),
	}
}

// run follows the node's label, the files and the MIG instances until ctx is done.
func (p *policy) run(ctx context.Context) error {
	for ctx.Err() == nil {
		p.rest(ctx, p.follow(ctx))
	}
	return nil
}

// rest divides GPUs as they become free, until the label is to be read again or the instances change.
func (p *policy) rest(ctx context.Context, changed <-chan struct{}) {
	again := time.After(labelInterval)
	for {
		var look <-chan time.Time
		if p.divide() {
			look = time.After(freeInterval)
		}
		select {
		case <-ctx.Done():
			return
		case <-again:
			return
		case <-changed:
			// It is closed for more than instances.
			var found map[string]backend.Division
			if found, changed = p.divisions(); !reflect.DeepEqual(found, p.seen) {
				return
			}
		case <-look:
		}
	}
}

// follow reads the label, the file and the instances. While the label or the file cannot be read, or the file is faulty or
// does not fit the node, what is in force stays. The channel is closed when the instances change.
func (p *policy) follow(ctx context.Context) (changed <-chan struct{}) {
	gpus, changed := p.look()
	asked, cancel := context.WithTimeout(ctx, pause)
	defer cancel()
	node, err := p.nodes.Get(asked, p.node, metav1.GetOptions{ResourceVersion: "0"}) // 0 is what the API server has in memory
	if err != nil {
		if ctx.Err() == nil {
			p.fail("NoNode", fmt.Sprintf("cannot read the node's labels: %v", err), false)
		}
		return changed
	}
	name, config, err := chosen(p.files, node.Labels[policyLabel])
	if err == nil {
		err = p.want(name, config, gpus)
	}
	switch {
	case errors.Is(err, errNoPolicy):
		p.fail("UnknownDevicePluginConfig", err.Error(), true)
	case errors.Is(err, pluginfile.ErrStrategy):
		p.fail("UnsatisfiedMIGStrategy", err.Error(), true)
	case err != nil:
		p.fail("InvalidDevicePluginConfig", err.Error(), true)
	default:
		p.mu.Lock()
		p.fault = ""
		p.mu.Unlock()
	}
	return changed
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
