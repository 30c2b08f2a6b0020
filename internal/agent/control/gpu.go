package control

import (
	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/nvml"
)

// GPU is one GPU and what has been granted of it. Amounts are bytes.
type GPU struct {
	Index int    `json:"index"`
	UUID  string `json:"uuid"`
	Name  string `json:"name"`
	// PCI is the bus address, such as 00000000:3B:00.0.
	PCI      string `json:"pci,omitempty"`
	Total    uint64 `json:"total"`
	Reserved uint64 `json:"reserved"`
	// Capacity is what the GPU has for tenants: Total less Reserved.
	Capacity uint64 `json:"capacity"`
	// Granted is the sum of the shares' limits, but for swap shares of what they keep and the room for their turns.
	Granted uint64 `json:"granted"`
	// TurnRoom is the part of Granted in which swap shares take turns, and Swapped the sum of what they do not keep.
	TurnRoom uint64 `json:"turnRoom,omitempty"`
	Swapped  uint64 `json:"swapped,omitempty"`
	// Used is what the driver says is in use, by anybody; nil where it does not tell.
	Used *uint64 `json:"used,omitempty"`
	// Reading is what the driver tells of what the GPU does and how it is set, at most a second before the listing; nil where
	// it does not answer.
	Reading *nvml.Reading `json:"reading,omitempty"`
	// Cores is the sum of guaranteed cores, in percent.
	Cores int `json:"cores"`
	// ContextBytes is what one process's context takes, measured once.
	ContextBytes uint64 `json:"contextBytes"`
	// Hidden says why nobody compares what the processes of a share hold with its
	// grant, empty where that is compared.
	Hidden string `json:"hidden,omitempty"`
	// Excess says what is in use beyond what anybody may hold, else empty.
	Excess string `json:"excess,omitempty"`
	// Thrashing says that memory of swap shares moves there for most of the time, else empty.
	Thrashing string `json:"thrashing,omitempty"`
	// Misgiven says that its MIG mode does not fit the form that it is given, for which it takes no new shares.
	Misgiven string `json:"misgiven,omitempty"`
	// Fault says why the GPU takes no new shares, as because the driver is silent about it, empty while it does.
	Fault string `json:"fault,omitempty"`
	// Form is the backend of the GPU's shares, or the one that it is given; empty where its first share decides.
	Form v1alpha1.Backend `json:"form,omitempty"`
	// Replicas is how many shares it is given at most; 0 for as many as fit.
	Replicas int `json:"replicas,omitempty"`
	// MIG is true for a GPU in MIG mode, and Instances are its instances, by place.
	MIG       bool       `json:"mig,omitempty"`
	Instances []Instance `json:"instances,omitempty"`
	// Open are the claims of the cluster whose containers have the GPU without a share, as
	// namespace/name.
	Open []string `json:"open,omitempty"`
	// Unwatched says why nobody notices who takes more of the GPU's time than
	// its share, empty where that is noticed.
	Unwatched string `json:"unwatched,omitempty"`
}

// Given says what gives a GPU its form.
type Given string

// The ways.
const (
	// GivenNone is a GPU whose form follows from its first share.
	GivenNone Given = ""
	// GivenByFile is the agent's configuration.
	GivenByFile Given = "configuration"
	// GivenByHand is `divvy gpu set`.
	GivenByHand Given = "set"
	// GivenByDefault is that other GPUs are given forms by hand: one that is given none has backend slice then.
	GivenByDefault Given = "default"
)
