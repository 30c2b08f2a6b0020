// Package queue divides a cluster's GPUs among queues. It knows who holds and who wants how much, says what each queue is
// entitled to, in which order queues are served, and what may start. It is pure: it knows no cluster and has no clock.
package queue

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Spec is a queue as it was written.
type Spec struct {
	Name string
	v1alpha1.QueueSpec
	// Fault says why the rest is not known, in one line; empty for a queue that was read.
	Fault string
}

// Dimension is what amounts are of: GPUs of a model, in a unit. Without a model it is all GPUs.
type Dimension struct {
	Model string
	Unit  v1alpha1.QueueUnit
}

// String names what amounts count, and the model.
func (d Dimension) String() string {
	unit := map[v1alpha1.QueueUnit]string{
		v1alpha1.UnitGPUs: "GPUs", v1alpha1.UnitCores: "percent of GPU time", v1alpha1.UnitMemory: "of GPU memory",
	}[d.Unit]
	if d.Model != "" {
		unit += " (" + d.Model + ")"
	}
	return unit
}

// one reports whether an amount is one GPU.
func (d Dimension) one(n int64) bool { return d.Unit == v1alpha1.UnitGPUs && d.Format(n) == "1" }

// of is what stands behind an amount: as [Dimension.String], of one GPU in the singular.
func (d Dimension) of(n int64) string {
	if d.one(n) {
		return strings.Replace(d.String(), "GPUs", "GPU", 1)
	}
	return d.String()
}

// Format writes an amount as users write it.
func (d Dimension) Format(n int64) string { return d.Unit.Format(n) }

// Vector has an amount for each dimension of a [Tree], in the order of [Tree.Dimensions].
type Vector []int64

// Charge is an amount of GPUs of some models: what is held of one model, or what a pod that accepts several models asks.
type Charge struct {
	// Models are as the driver names them. A dimension of a model counts the charge if it means all of them; without any,
	// only dimensions of all models count it.
	Models []string
	// GPUs is in thousandths of a GPU, Cores in percent, Memory in MiB.
	GPUs, Cores, Memory int64
}

// Share is the charge for a part of a GPU of some memory, all in bytes but cores, which are in percent. It takes of the GPU
// the greater of its parts, rounded up.
func Share(model string, memory, capacity uint64, cores int) Charge {
	c := Charge{Models: []string{model}, Cores: int64(cores), Memory: int64((memory + 1<<20 - 1) >> 20)}
	if capacity > 0 {
		c.GPUs = int64((memory*1000 + capacity - 1) / capacity)
	}
	c.GPUs = max(c.GPUs, int64(cores)*10)
	return c
}

// amount is that of a unit.
func (c *Charge) amount(u v1alpha1.QueueUnit) int64 {
	switch u {
	case v1alpha1.UnitCores:
		return c.Cores
	case v1alpha1.UnitMemory:
		return c.Memory
	}
	return c.GPUs
}

// counts reports whether a dimension counts a charge.
func (d *Dimension) counts(c *Charge) bool {
	if d.Model == "" {
		return true
	}
	for _, m := range c.Models {
		if !v1alpha1.ModelMatches(d.Model, m) {
			return false
		}
	}
	return len(c.Models) > 0
}

// ConditionType is what is said of a queue.
type ConditionType string

// The conditions. A queue with one of the first three has no guarantee and lets nothing start, nor do the queues below it;
// what runs there stays.
const (
	// ConditionInvalid marks a specification that contradicts itself.
	ConditionInvalid ConditionType = "Invalid"
	// ConditionCycle marks queues that are their own ancestors.
	ConditionCycle ConditionType = "Cycle"
	// ConditionNoParent marks a queue whose parent is not there.
	ConditionNoParent ConditionType = "NoParent"
	// ConditionScaled marks a queue whose guarantee is smaller in effect, because there is less than is guaranteed to it
	// and its siblings.
	ConditionScaled ConditionType = "Scaled"
	// ConditionNoGPUs marks a queue that names a model of which there is no GPU.
	ConditionNoGPUs ConditionType = "NoGPUs"
	// ConditionNamespace marks queues that want to be that of one namespace. It has the first by name.
	ConditionNamespace ConditionType = "NamespaceTaken"
)

// Condition is said of a queue.
type Condition struct {
	Queue   string
	Type    ConditionType
	Message string
}

// String is one line.
func (c Condition) String() string {
	return fmt.Sprintf("queue %s: %s: %s", c.Queue, c.Type, c.Message)
}

func compareConditions(x, y *Condition) int {
	return cmp.Or(strings.Compare(x.Queue, y.Queue), strings.Compare(string(x.Type), string(y.Type)))
}
