package control

import "context"

// MIGModeParams turn the MIG mode of a GPU on or off.
type MIGModeParams struct {
	// GPU is an index or a UUID, as a request names them.
	GPU string `json:"gpu"`
	On  bool   `json:"on"`
	// Wait waits until nothing uses the GPU; no new share begins there meanwhile.
	Wait bool `json:"wait,omitempty"`
}

// LayoutParams give a GPU a layout. What shares and processes use stays where it is.
type LayoutParams struct {
	// GPU is an index or a UUID, as a request names them.
	GPU string `json:"gpu"`
	// On is the MIG mode, and Instances how many instances there are of each profile.
	On        bool           `json:"on"`
	Instances map[string]int `json:"instances,omitempty"`
	// Dry works out what there is to do, and changes nothing.
	Dry bool `json:"dry,omitempty"`
}

// Rearrangement is what gives a GPU a layout: first Remove is taken away, then the mode changes, then Add is made.
type Rearrangement struct {
	Index int    `json:"index"`
	UUID  string `json:"uuid"`
	// Mode is the MIG mode that the GPU gets, nil where it stays.
	Mode   *bool       `json:"mode,omitempty"`
	Remove []Placement `json:"remove,omitempty"`
	Add    []Placement `json:"add,omitempty"`
}

// Empty reports whether the GPU has the layout already.
func (r Rearrangement) Empty() bool { return r.Mode == nil && len(r.Remove)+len(r.Add) == 0 }

// Placement is where an instance is or will be.
type Placement struct {
	// UUID is that of an instance that is there, empty for one that is not.
	UUID    string `json:"uuid,omitempty"`
	Profile string `json:"profile"`
	// Start is its first memory slice, -1 where the driver tells the places of profiles only after the mode changed.
	Start int `json:"start"`
}

// MIGMode turns the MIG mode of a GPU on or off and returns what the GPU is then. Told, which may be nil, is called when it
// begins to wait and whenever the reason changes.
func (c *Client) MIGMode(ctx context.Context, p MIGModeParams, told func(Awaited)) (*Formed, error) {
	return c.changeGPU(ctx, MethodMIGMode, p, told)
}

// Layout gives a GPU a layout and returns what that took.
func (c *Client) Layout(ctx context.Context, p LayoutParams) (*Rearrangement, error) {
	var r Rearrangement
	if err := c.call(ctx, MethodLayout, p, &r); err != nil {
		return nil, err
	}
	return &r, nil
}
