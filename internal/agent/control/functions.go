package control

import (
	"context"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/claims"
)

// MethodSetFunctions changes how many virtual functions a device has.
const MethodSetFunctions Method = "set-functions" // SetFunctionsParams → Functions

// SetFunctionsParams enables virtual functions of a device that has none, or takes away those that Divvy enabled.
type SetFunctionsParams struct {
	// GPU is the index or the UUID of a GPU, PCI the address of any PCI function. There is one of them.
	GPU string       `json:"gpu,omitempty"`
	PCI *pci.Address `json:"pci,omitempty"`
	// Count is how many there are to be: 0 for none, [pci.AllFunctions] for as many as there can be.
	Count int `json:"count"`
}

// Functions are virtual functions that Divvy enabled on a device.
type Functions struct {
	Device pci.Address `json:"device"`
	// Index is that of the GPU, nil for what is no GPU that the agent serves now.
	Index *int `json:"index,omitempty"`
	Count int  `json:"count"`
	// Phase is how far they are, in the words of claims; empty once they are taken away.
	Phase claims.Phase `json:"phase,omitempty"`
	// Fault says what keeps them from being enabled or taken away; empty where nothing does.
	Fault string `json:"fault,omitempty"`
	// Left is what somebody else changed meanwhile, and what was left therefore.
	Left []string `json:"left,omitempty"`
}

// State is a word about them.
func (f *Functions) State() string {
	switch {
	case f.Fault != "" && f.Phase != claims.Held:
		return "stuck"
	case f.Fault != "":
		return "fault"
	}
	return string(f.Phase)
}

// SetFunctions changes how many virtual functions a device has.
func (c *Client) SetFunctions(ctx context.Context, p SetFunctionsParams) (*Functions, error) {
	var f Functions
	if err := c.call(ctx, MethodSetFunctions, p, &f); err != nil {
		return nil, err
	}
	return &f, nil
}
