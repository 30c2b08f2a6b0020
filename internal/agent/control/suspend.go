package control

import (
	"context"
	"encoding/json"
	"time"
)

// SuspendParams takes a tenant's processes off their GPUs.
type SuspendParams struct {
	// Tenant is an id, a name of one of the asker's shares, or USER/NAME.
	Tenant string `json:"tenant"`
	// Hold keeps them out until somebody resumes the tenant; otherwise its programs' next call does.
	Hold bool `json:"hold,omitempty"`
}

// ResumeParams brings a tenant's processes back to their GPUs.
type ResumeParams struct {
	// Tenant is an id, a name of one of the asker's shares, or USER/NAME.
	Tenant string `json:"tenant"`
}

// Returning tells who waits for a tenant's return, before the answer.
type Returning struct {
	// Reason is what it waits for, empty while it waits for nothing.
	Reason string `json:"reason,omitempty"`
}

// Suspended is how far the suspension of a tenant is.
type Suspended struct {
	State Suspension `json:"state"`
	// Since is when somebody wanted it there, and By why, for people.
	Since time.Time `json:"since"`
	By    string    `json:"by"`
	// Hold is true for one whose programs' calls do not bring it back.
	Hold bool `json:"hold,omitempty"`
	// For is for whom the cluster's scheduler has it stay out, empty for a suspension by anybody else. Then nobody else brings it back.
	For string `json:"for,omitempty"`
	// Reason is what its return waits for, empty where it does not wait.
	Reason string `json:"reason,omitempty"`
	// Bytes are what its processes had on their GPUs, which is in host memory once they are off them.
	Bytes uint64 `json:"bytes,omitempty"`
}

// Suspension is a state of a tenant that is not as usual on its GPUs.
type Suspension string

// The states.
const (
	// SuspensionLeaving is a tenant whose processes are being taken off their GPUs.
	SuspensionLeaving Suspension = "leaving"
	// SuspensionOut is one whose processes have nothing on a GPU, and whose room others may have.
	SuspensionOut Suspension = "suspended"
	// SuspensionWaiting is one that is to come back and waits for room.
	SuspensionWaiting Suspension = "waiting"
	// SuspensionReturning is one whose processes are being brought back.
	SuspensionReturning Suspension = "resuming"
)

// Suspend takes a tenant off its GPUs and returns when it is.
func (c *Client) Suspend(ctx context.Context, p SuspendParams) (*Tenant, error) {
	var t Tenant
	if err := c.call(ctx, MethodSuspend, p, &t); err != nil {
		return nil, err
	}
	return &t, nil
}

// Resume brings a tenant back to its GPUs and returns when its processes run. Told, which may be nil, is called when it
// begins to wait for something, or for nothing any more.
func (c *Client) Resume(ctx context.Context, p ResumeParams, told func(Returning)) (*Tenant, error) {
	var t Tenant
	progress := func(data json.RawMessage) {
		var r Returning
		if err := json.Unmarshal(data, &r); err == nil && told != nil {
			told(r)
		}
	}
	if err := c.callTold(ctx, MethodResume, p, &t, progress); err != nil {
		return nil, err
	}
	return &t, nil
}
