package layouts

import "slices"

// Mix learns what is asked for and how much of it, and keeps the policy for that. Only one goroutine at a time may use
// it.
type Mix struct {
	model  *Model
	counts []int64
	recent [window]Arrival // a ring
	seen   int
	// held is the sum of what the recent arrivals found, and fitted how many of them fitted.
	held, fitted int64
	// changed counts the requests since the policy was computed.
	changed int
	policy  *Policy
}

// Arrival is a request and what it found.
type Arrival struct {
	Profile int `json:"profile"`
	// Held is how many instances a GPU of the model had, in the mean of all such GPUs, in thousandths.
	Held int64 `json:"held,omitempty"`
	// Fitted tells that one of them had room.
	Fitted bool `json:"fitted,omitempty"`
}

const (
	// window is how many requests are remembered: enough for the proportions, and few enough to follow a change.
	window = 128
	// prior is the weight of what is assumed before any request, equal for all profiles, against that of one request.
	prior, request = 1, 4
	// expected is the load that is assumed before any request, with the weight of so many requests.
	expected, expectedWeight Load = 8 * 4, 16
	// early and late are after how many requests the policy is computed anew, until the window is full and then. The
	// first requests change the mix the most. Before the first time it is [Model.Roomiest].
	early, late = 8, 32
)

// NewMix makes a mix that has seen nothing.
func NewMix(m *Model) *Mix {
	return &Mix{model: m, counts: make([]int64, len(m.profiles))}
}

// MixOf makes a mix that has seen some requests, the oldest first. What is no request of the model's is left out.
func MixOf(m *Model, seen []Arrival) *Mix {
	x := NewMix(m)
	for _, a := range seen[max(0, len(seen)-window):] {
		if a.Profile >= 0 && a.Profile < len(x.counts) && a.Held >= 0 {
			x.recent[x.seen] = a
			x.count(a, 1)
			x.seen++
		}
	}
	return x
}

// Seen are the requests that the mix remembers, the oldest first.
func (x *Mix) Seen() []Arrival {
	if x.seen <= window {
		return slices.Clone(x.recent[:x.seen])
	}
	at := x.seen % window
	return slices.Concat(x.recent[at:], x.recent[:at])
}

// Model is that of the mix.
func (x *Mix) Model() *Model { return x.model }

// Observe learns one request, whether it fits or not. It forgets the one that was window requests ago.
func (x *Mix) Observe(a Arrival) {
	if a.Profile < 0 || a.Profile >= len(x.counts) {
		return
	}
	before := x.policy
	if x.seen >= early {
		before = x.Policy()
	}
	at := x.seen % window
	if x.seen >= window {
		x.count(x.recent[at], -1)
	}
	x.recent[at] = a
	x.count(a, 1)
	x.seen++
	x.changed++
	refresh := late
	if x.seen < window {
		refresh = early
	}
	if x.seen >= early && x.changed >= refresh {
		x.policy, x.changed = x.model.Solve(x.Weights(), x.Load(), before), 0
	}
}

func (x *Mix) count(a Arrival, by int64) {
	x.counts[a.Profile] += by
	x.held += by * a.Held
	if a.Fitted {
		x.fitted += by
	}
}

// Weights are what the policy is computed for.
func (x *Mix) Weights() []int64 {
	weights := make([]int64, len(x.counts))
	for i, n := range x.counts {
		weights[i] = prior + request*n
	}
	return weights
}

// Load is how much is asked for. Arrivals at random times find the mean number of instances, and that is the load times
// the part that fits (Little's law). So no clock is needed.
func (x *Mix) Load() Load {
	return (Load(x.held)*8/1000 + expected*expectedWeight) / (Load(x.fitted) + expectedWeight)
}

// Policy is the best one for what had been seen after the last few requests, and [Model.Roomiest] before. It is computed in
// some tens of milliseconds, by Observe or, of a mix that was made with what another one had seen, before that, so that it
// depends on what was observed and not on who asked for it.
func (x *Mix) Policy() *Policy {
	if x.seen < early {
		return x.model.Roomiest()
	}
	if x.policy == nil {
		x.policy = x.model.Solve(x.Weights(), x.Load(), nil)
	}
	return x.policy
}
