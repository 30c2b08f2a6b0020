package agentconfig

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// leastTime is the shortest time limit: the agent looks once a second.
const leastTime = time.Second

// limits reads the limits of one user or group.
func (r *reader) limits(node *yaml.Node, path string) (l Limits) {
	place := func(n *yaml.Node, field string) { r.config.places[field] = n.Line }
	r.Fields(node, path, known{
		"memory": func(n *yaml.Node, f string) { l.Memory = r.bytes(n, f); place(n, f) },
		"gpus":   func(n *yaml.Node, f string) { l.GPUs = r.number(n, f, 0); place(n, f) },
		"cores":  func(n *yaml.Node, f string) { l.Cores = r.number(n, f, 0); place(n, f) },
		"time":   func(n *yaml.Node, f string) { l.Time = r.duration(n, f, leastTime) },
		"weight": func(n *yaml.Node, f string) { l.Weight = r.number(n, f, v1alpha1.MaxWeight) },
		"swapMemory": func(n *yaml.Node, f string) {
			l.SwapMemory = r.bytesFor(n, f, hostMemory)
			place(n, f)
		},
	})
	return l
}

// scalar is the text of a value of one word.
func (r *reader) scalar(node *yaml.Node, field, wanted string) (string, bool) {
	if node.Kind != yaml.ScalarNode || node.Tag == "!!null" || node.Value == "" {
		r.Fault(node, field, "must be %s; for no limit leave the field out", wanted)
		return "", false
	}
	return node.Value, true
}

// number reads a whole number from 1 to most; most 0 is no bound.
func (r *reader) number(node *yaml.Node, field string, most int) int {
	wanted := "a whole number from 1 on"
	if most > 0 {
		wanted = fmt.Sprintf("a whole number from 1 to %d", most)
	}
	text, ok := r.scalar(node, field, wanted)
	if !ok {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || most > 0 && n > most {
		r.Fault(node, field, "%q is not %s", text, wanted)
		return 0
	}
	return n
}

// bytes reads an amount of memory that is no part of a GPU.
func (r *reader) bytes(node *yaml.Node, field string) uint64 {
	return r.bytesFor(node, field, "this is the sum of shares that may be on several GPUs")
}

// bytesFor is bytes with what the amount is, for who writes a part of a GPU.
func (r *reader) bytesFor(node *yaml.Node, field, what string) uint64 {
	amount, ok := r.memory(node, field)
	if ok && amount.InBytes() == 0 {
		r.Fault(node, field, "%q: give an amount such as 48Gi: %s", node.Value, what)
	}
	return amount.InBytes()
}

func (r *reader) memory(node *yaml.Node, field string) (v1alpha1.Memory, bool) {
	text, ok := r.scalar(node, field, "an amount of memory such as 48Gi")
	if !ok {
		return v1alpha1.Memory{}, false
	}
	amount, err := v1alpha1.ParseMemory(text)
	if err != nil {
		r.Fault(node, field, "%v", err)
		return v1alpha1.Memory{}, false
	}
	return amount, true
}

func (r *reader) defaultMemory(node *yaml.Node, field string) {
	r.config.defaultMemory, _ = r.memory(node, field)
	r.config.places[field] = node.Line
}

func (r *reader) swapMemory(node *yaml.Node, field string) {
	r.config.swapMemory = r.bytesFor(node, field, hostMemory)
}

// hostMemory is what the amounts of swapMemory are.
const hostMemory = "this is host memory, for shares on any GPU"

func (r *reader) duration(node *yaml.Node, field string, least time.Duration) time.Duration {
	text, ok := r.scalar(node, field, "a duration such as 90m or 72h")
	if !ok {
		return 0
	}
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		r.Fault(node, field, "%q is not a duration such as 90m or 72h", text)
		return 0
	case d < least:
		r.Fault(node, field, "%q is too short: give at least %s", text, least)
		return 0
	}
	return d
}

// choice reads one of some words.
func choice[W ~string](r *reader, node *yaml.Node, field string, words ...W) W {
	if node.Kind == yaml.ScalarNode && slices.Contains(words, W(node.Value)) {
		return W(node.Value)
	}
	var names []string
	for _, word := range words {
		names = append(names, string(word))
	}
	if node.Kind != yaml.ScalarNode {
		r.Fault(node, field, "must be one word of %s", strings.Join(names, ", "))
		return ""
	}
	r.Fault(node, field, "%q is not one of %s", node.Value, strings.Join(names, ", "))
	return ""
}

// Machine is what limits are compared with. Amounts are bytes.
type Machine struct {
	GPUs int
	// Named are those of them that are known.
	Named []GPU
	// Memory is that of all GPUs together, with what the driver keeps for itself.
	Memory uint64
	// Largest is the most that one GPU has for tenants.
	Largest uint64
	// Context is the least that the context of a process takes of a GPU, 0 where that is
	// not known. A limit that is no greater allows no share.
	Context uint64
}

// Check returns an error for every limit that the machine cannot reach, which would
// limit nothing, and for every one that leaves no room for a program. Either is a mistake
// or the file of another machine.
func (c *Config) Check(m Machine) error {
	if c == nil {
		return nil
	}
	return inOrder(c.compare(m))
}

// compare returns the faults of Check.
func (c *Config) compare(m Machine) (faults []error) {
	fault := func(field, format string, args ...any) {
		faults = append(faults, &Fault{Kind: ErrConfig, File: c.file, Line: c.places[field], Field: field, Problem: fmt.Sprintf(format, args...)})
	}
	if c.defaultMemory.InBytes() > m.Largest {
		fault("defaultMemory", "%s is more than a GPU of this machine has for tenants, %s", c.defaultMemory, v1alpha1.FormatBytes(m.Largest))
	}
	const small = "%s leaves nothing to a program: the context of one process takes %s of a GPU"
	if !c.defaultMemory.IsZero() && c.defaultMemory.Of(m.Largest) <= m.Context {
		fault("defaultMemory", small, c.defaultMemory, v1alpha1.FormatBytes(m.Context))
	}
	if c.turnMemory.InBytes() >= m.Largest && m.Largest > 0 {
		fault("turnMemory", "%s leaves nothing of a GPU of this machine to what swap shares keep there: each has %s at most for tenants", c.turnMemory, v1alpha1.FormatBytes(m.Largest))
	}
	c.compareBackends(m, fault)
	for _, e := range c.entries() {
		if e.limits.Memory > 0 && e.limits.Memory <= m.Context {
			fault(e.field+".memory", small, v1alpha1.FormatBytes(e.limits.Memory), v1alpha1.FormatBytes(m.Context))
		}
		if e.limits.Memory > m.Memory {
			fault(e.field+".memory", "%s is more than the GPUs of this machine have together, %s",
				v1alpha1.FormatBytes(e.limits.Memory), v1alpha1.FormatBytes(m.Memory))
		}
		if own := e.limits.SwapMemory; own > c.swapMemory && c.swapMemory > 0 {
			fault(e.field+".swapMemory", "%s is more than all shares have together by swapMemory, %s",
				v1alpha1.FormatBytes(own), v1alpha1.FormatBytes(c.swapMemory))
		}
		if e.limits.GPUs > m.GPUs {
			fault(e.field+".gpus", "%d is more than this machine has, %d", e.limits.GPUs, m.GPUs)
		}
		if all := m.GPUs * v1alpha1.MaxCores; e.limits.Cores > all {
			fault(e.field+".cores", "%d is more than the GPUs of this machine have together, %d", e.limits.Cores, all)
		}
	}
	return faults
}

// inOrder joins faults in the order of the file.
func inOrder(faults []error) error {
	slices.SortStableFunc(faults, func(x, y error) int { return lineOf(x) - lineOf(y) })
	return errors.Join(faults...)
}

func lineOf(err error) int {
	var fault *Fault
	if errors.As(err, &fault) {
		return fault.Line
	}
	return 0
}

// entries are those of all users, groups and others.
func (c *Config) entries() []entry {
	var all []entry
	for _, of := range []map[int]entry{c.users, c.groups} {
		for _, e := range of {
			all = append(all, e)
		}
	}
	if c.others != nil {
		all = append(all, *c.others)
	}
	return all
}
