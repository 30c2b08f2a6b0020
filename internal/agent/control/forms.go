package control

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/backend"
)

// FormParams gives a GPU a form.
type FormParams struct {
	// GPU is an index or a UUID, as a request names them.
	GPU string `json:"gpu"`
	// Form is what it is given, the zero form for none.
	Form agentconfig.Form `json:"form"`
	// Wait waits until nothing uses the GPU; no new share begins there meanwhile.
	Wait bool `json:"wait,omitempty"`
}

// Forms are the forms of an agent's GPUs.
type Forms struct {
	Info Info     `json:"info"`
	GPUs []Formed `json:"gpus"`
}

// Formed is the form of one GPU.
type Formed struct {
	Index int    `json:"index"`
	UUID  string `json:"uuid"`
	Name  string `json:"name"`
	// DeviceID is the device's PCI id with the vendor's in the low half, such as 0x233010DE; 0 where it is not known.
	DeviceID uint32 `json:"deviceID,omitempty"`
	// Form is the backend of its shares, or the one that it is given; empty where its first share decides.
	Form v1alpha1.Backend `json:"form,omitempty"`
	// Given says what gives it the form; where that is nothing, its shares have it.
	Given Given `json:"given,omitempty"`
	// Slice, Replicas, MultiUser and Layout are what it is given with the form, see [agentconfig.Form].
	Slice     string `json:"slice,omitempty"`
	Replicas  int    `json:"replicas,omitempty"`
	MultiUser bool   `json:"multiUser,omitempty"`
	Layout    string `json:"layout,omitempty"`
	// Modes are those that forms change.
	Modes []GPUMode `json:"modes,omitempty"`
	// Shares are those on it, and Outside the processes that the driver has on it without one.
	Shares  []FormedShare `json:"shares,omitempty"`
	Outside []Outside     `json:"outside,omitempty"`
	// MIG is how a GPU that has MIG is divided, nil for any other.
	MIG *Divided `json:"mig,omitempty"`
	// Fault says why it does not have the form that it should, or takes no new shares.
	Fault string `json:"fault,omitempty"`
}

// Divided is how a GPU is divided by MIG.
type Divided struct {
	// On is whether it is in MIG mode, and Pending whether it will be after its next reset.
	On      bool `json:"on"`
	Pending bool `json:"pending"`
	// Profiles are what it can have, with the places at which an instance could be made beside those that are there.
	Profiles []Profile `json:"profiles,omitempty"`
	// Instances are those that it has, by place.
	Instances []Instance `json:"instances,omitempty"`
	// Unknown says why none of this is known, empty where it is.
	Unknown string `json:"unknown,omitempty"`
}

// Profile is a MIG profile of a GPU.
type Profile struct {
	Name string `json:"name"`
	// Bytes is an instance's memory, Multiprocessors its SMs, Size its memory slices.
	Bytes           uint64 `json:"bytes"`
	Multiprocessors int    `json:"multiprocessors"`
	Size            int    `json:"size"`
	// Free are the memory slices at which an instance could begin.
	Free []int `json:"free,omitempty"`
}

// Instance is a MIG instance of a GPU.
type Instance struct {
	backend.Part
	// Backend is how its shares divide it, [v1alpha1.BackendMIG] where one has it whole, empty where it has none.
	Backend v1alpha1.Backend `json:"backend,omitempty"`
	Shares  []FormedShare    `json:"shares,omitempty"`
	// Outside are processes that the driver has on it without a share.
	Outside []Outside `json:"outside,omitempty"`
	// Used is its memory in use by all processes, in bytes; nil where the driver does not tell.
	Used *uint64 `json:"used,omitempty"`
}

// FormedShare is a share of a GPU.
type FormedShare struct {
	Name string `json:"name"`
	User string `json:"user"`
}

// FullName is the share's name with that of its user. That of a pod's share has its namespace.
func (s FormedShare) FullName() string {
	if s.User == "" || strings.HasPrefix(s.Name, s.User+"/") {
		return s.Name
	}
	return s.User + "/" + s.Name
}

// GPUMode is a mode of a GPU.
type GPUMode struct {
	Mode string `json:"mode"`
	// Value is what it is; empty where the driver does not tell, and Unknown says why.
	Value   string `json:"value,omitempty"`
	Unknown string `json:"unknown,omitempty"`
	// Made is what Divvy made it, and Before what it was before; both are empty where Divvy did not change it.
	Made   string `json:"made,omitempty"`
	Before string `json:"before,omitempty"`
}

// Foreign reports whether somebody changed the mode after Divvy did.
func (m GPUMode) Foreign() bool { return m.Made != "" && m.Value != "" && m.Made != m.Value }

// Forms lists the forms of GPUs.
func (c *Client) Forms(ctx context.Context) (*Forms, error) {
	var f Forms
	if err := c.call(ctx, MethodForms, nil, &f); err != nil {
		return nil, err
	}
	return &f, nil
}

// Awaited says for what the change of a GPU waits.
type Awaited struct {
	Reason string `json:"reason"`
}

// GiveForm gives a GPU a form and returns what it has then. Told, which may be nil, is called when it begins to wait and
// whenever the reason changes.
func (c *Client) GiveForm(ctx context.Context, p FormParams, told func(Awaited)) (*Formed, error) {
	return c.changeGPU(ctx, MethodGiveForm, p, told)
}

// changeGPU asks for a change of a GPU, for which the agent may wait, and returns what the GPU is then.
func (c *Client) changeGPU(ctx context.Context, method Method, params any, told func(Awaited)) (*Formed, error) {
	var f Formed
	progress := func(data json.RawMessage) {
		var awaited Awaited
		if err := json.Unmarshal(data, &awaited); err == nil && told != nil {
			told(awaited)
		}
	}
	if err := c.callTold(ctx, method, params, &f, progress); err != nil {
		return nil, err
	}
	return &f, nil
}
