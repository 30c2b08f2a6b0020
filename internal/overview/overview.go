// Package overview describes what the GPUs of a cluster or of one machine are, what of them is granted, and who waits:
// nodes, their GPUs, and the shares of each. The web pages show it, the controller offers it as JSON at /cluster.json, and
// the agent at /overview.json.
//
// An overview is made for one reader. What the reader may not see is left out of it, and only counted: the sums of a GPU
// are those of all its shares, also of those that are not listed.
package overview

import (
	"errors"
	"fmt"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Kind is that of an [Overview], whose version is [v1alpha1.APIVersion]. A field that is added changes neither; a reader
// ignores fields that it does not know. What would be misunderstood gets another version.
const Kind = "Overview"

// Overview is what one reader may see. Lists are in the order of their names, GPUs in that of their indexes, and
// waiting requests with the longest wait first.
type Overview struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Time is when it was found out.
	Time time.Time `json:"time"`
	// Reader is who reads it, "" for anybody.
	Reader string `json:"reader,omitempty"`
	// Hidden says what the reader may not see, "" for nothing: a sentence for people.
	Hidden string `json:"hidden,omitempty"`
	// Nodes are those with GPUs of Divvy's; null where the reader may see none.
	Nodes []Node `json:"nodes"`
	// Waiting are those that wait for GPUs, as far as the reader may see them.
	Waiting []Waiting `json:"waiting"`
	// WaitingUnseen counts the others.
	WaitingUnseen int `json:"waitingUnseen,omitempty"`
}

// New is an overview without content.
func New(now time.Time) *Overview {
	return &Overview{APIVersion: v1alpha1.APIVersion, Kind: Kind, Time: now, Nodes: []Node{}, Waiting: []Waiting{}}
}

// Node is a machine with GPUs.
type Node struct {
	Name string `json:"name"`
	GPUs []GPU  `json:"gpus"`
	// Outside are processes on its GPUs that are in no share, as far as the reader may see them.
	Outside []Outside `json:"outside,omitempty"`
	// Notes are what people should know of the node, such as GPUs that are left out.
	Notes []string `json:"notes,omitempty"`
}

// GPU is one GPU, or one MIG instance of a cluster's, of which a claim has all or nothing. Memory is in bytes; cores are
// percent of the GPU's time.
type GPU struct {
	// Index is the driver's, nil where it is not known.
	Index *int   `json:"index,omitempty"`
	UUID  string `json:"uuid,omitempty"`
	// Device is the cluster's name of it, "" on a machine without one.
	Device string `json:"device,omitempty"`
	// Model is the driver's name of the GPU; Profile that of a MIG instance.
	Model   string `json:"model,omitempty"`
	Profile string `json:"profile,omitempty"`
	// Form is the backend of its shares, "" where its first share decides.
	Form v1alpha1.Backend `json:"form,omitempty"`
	// Capacity is what it has for shares, and Granted the sum of what all shares may have.
	Capacity uint64 `json:"capacity"`
	Granted  uint64 `json:"granted"`
	// Used is what is in use by anybody, nil where that is not known: of a cluster's GPUs nobody tells the controller.
	Used *uint64 `json:"used,omitempty"`
	// Cores is the sum of guaranteed cores of all shares.
	Cores int `json:"cores"`
	// Utilisation is the part of the driver's last window in which anything executed, in percent; Temperature is in degrees
	// Celsius and Milliwatts the draw. Each is nil where it is not known.
	Utilisation *int    `json:"utilisation,omitempty"`
	Temperature *int    `json:"temperature,omitempty"`
	Milliwatts  *uint64 `json:"milliwatts,omitempty"`
	// Count is how many shares it has, also those that the reader may not see.
	Count int `json:"count"`
	// Shares are those that the reader may see.
	Shares []Share `json:"shares,omitempty"`
	// Fault says why it takes no new shares, "" while it does.
	Fault string `json:"fault,omitempty"`
}

// Share is what a tenant is granted of one GPU.
type Share struct {
	// Name is that of the tenant on its machine; in a cluster that of its claim.
	Name string `json:"name"`
	// User is whose it is, "" in a cluster.
	User string `json:"user,omitempty"`
	// Namespace, Pods and Container are those of a cluster.
	Namespace string   `json:"namespace,omitempty"`
	Pods      []string `json:"pods,omitempty"`
	Container string   `json:"container,omitempty"`
	// Command is what was started, "" where that is not known.
	Command string `json:"command,omitempty"`
	// Since is when it began, zero where that is not known.
	Since time.Time `json:"since,omitzero"`
	// Whole is true where no other share may be on the GPU.
	Whole bool `json:"whole,omitempty"`
	// Memory is the most that it may have, in bytes, and Used what it has, nil where that is not known.
	Memory uint64  `json:"memory"`
	Used   *uint64 `json:"used,omitempty"`
	// Cores are guaranteed, 0 for none, in percent of the GPU's time. Percent is what it used of that time lately, and
	// HeldBack for how long its launches were held back in all, in nanoseconds; both are nil where they are not known.
	Cores    int            `json:"cores"`
	Percent  *float64       `json:"percent,omitempty"`
	HeldBack *time.Duration `json:"heldBack,omitempty"`
	// Refused counts its refused allocations.
	Refused uint64 `json:"refused,omitempty"`
	// Policy, Class and Weight are empty where they are not known.
	Policy v1alpha1.Policy `json:"policy,omitempty"`
	Class  v1alpha1.Class  `json:"class,omitempty"`
	Weight int             `json:"weight,omitempty"`
	// Notes are what its owner should know, such as that it takes more than it may.
	Notes []string `json:"notes,omitempty"`
}

// Waiting is who waits for GPUs: a pod, or a request of a user of a machine.
type Waiting struct {
	// Namespace and Name are those of a pod, User and Name those of a request; a request needs no name.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	User      string `json:"user,omitempty"`
	// Since is since when, zero where that is not known.
	Since time.Time `json:"since,omitzero"`
	// Reason says what it waits for, "" where nobody has said.
	Reason string `json:"reason,omitempty"`
}

// Outside is a process that uses a GPU without a share.
type Outside struct {
	PID     int     `json:"pid"`
	User    string  `json:"user,omitempty"`
	Command string  `json:"command,omitempty"`
	GPU     int     `json:"gpu"`
	Used    *uint64 `json:"used,omitempty"`
}

// ErrVersion is returned for an overview of a version that this program does not read.
var ErrVersion = errors.New("another version of Divvy wrote the overview")

// Check reports whether a decoded overview is of a kind and version that this program reads. The error is an [ErrVersion].
func (o *Overview) Check() error {
	if o.APIVersion != v1alpha1.APIVersion || o.Kind != Kind {
		return fmt.Errorf("%w: it is %.100q %.100q and not %s %s", ErrVersion, o.APIVersion, o.Kind, v1alpha1.APIVersion, Kind)
	}
	return nil
}

// Totals are sums over GPUs. MIG instances count as GPUs.
type Totals struct {
	Nodes, GPUs, Faulty, Shares int
	Capacity, Granted           uint64
	// Used is the sum of what is known, and Known of how many GPUs.
	Used  uint64
	Known int
	// Cores are granted, in percent of one GPU's time.
	Cores int
	// Utilisation is the mean of the Measured GPUs that tell it.
	Utilisation float64
	Measured    int
}

// Totals are the sums of a node.
func (n *Node) Totals() Totals {
	t := Totals{Nodes: 1}
	busy := 0
	for i := range n.GPUs {
		g := &n.GPUs[i]
		t.GPUs++
		t.Shares += g.Count
		t.Capacity, t.Granted, t.Cores = t.Capacity+g.Capacity, t.Granted+g.Granted, t.Cores+g.Cores
		if g.Fault != "" {
			t.Faulty++
		}
		if g.Used != nil {
			t.Used, t.Known = t.Used+*g.Used, t.Known+1
		}
		if g.Utilisation != nil {
			busy, t.Measured = busy+*g.Utilisation, t.Measured+1
		}
	}
	if t.Measured > 0 {
		t.Utilisation = float64(busy) / float64(t.Measured)
	}
	return t
}

// Totals are the sums of all nodes.
func (o *Overview) Totals() Totals {
	var all Totals
	busy := 0.0
	for i := range o.Nodes {
		t := o.Nodes[i].Totals()
		all.Nodes, all.GPUs, all.Faulty, all.Shares = all.Nodes+1, all.GPUs+t.GPUs, all.Faulty+t.Faulty, all.Shares+t.Shares
		all.Capacity, all.Granted, all.Cores = all.Capacity+t.Capacity, all.Granted+t.Granted, all.Cores+t.Cores
		all.Used, all.Known, all.Measured = all.Used+t.Used, all.Known+t.Known, all.Measured+t.Measured
		busy += t.Utilisation * float64(t.Measured)
	}
	if all.Measured > 0 {
		all.Utilisation = busy / float64(all.Measured)
	}
	return all
}

// Node returns a node by its name, nil where there is none that the reader may see.
func (o *Overview) Node(name string) *Node {
	for i := range o.Nodes {
		if o.Nodes[i].Name == name {
			return &o.Nodes[i]
		}
	}
	return nil
}
