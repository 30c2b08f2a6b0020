package control

import "time"

// TurnState is where the memory of a swap share is.
type TurnState string

// The states of a turn.
const (
	TurnOut      TurnState = "out"
	TurnEntering TurnState = "entering"
	TurnIn       TurnState = "in"
	TurnLeaving  TurnState = "leaving"
)

// Turns is what is known of a swap share, whose memory has turns on its GPU. Bytes and times are the word of its own
// processes; times are in ns, since the share began.
type Turns struct {
	State TurnState `json:"state"`
	// Waits is whether a call of it waits for the share's turn.
	Waits bool `json:"waits,omitempty"`
	// Until is when its turn ends at the soonest, or its next one begins at the latest, as far as time alone decides; nil
	// where nobody waits.
	Until *time.Time `json:"until,omitempty"`
	// Swapped is memory that can leave the GPU, OnGPU the part of it that is there, and Room what a turn can hold.
	Swapped uint64 `json:"swapped"`
	OnGPU   uint64 `json:"onGPU"`
	Room    uint64 `json:"room"`
	// Turns counts those that began since the agent started.
	Turns    uint64 `json:"turns"`
	MovedIn  uint64 `json:"movedIn"`
	MovedOut uint64 `json:"movedOut"`
	Moving   uint64 `json:"movingNanoseconds"`
	// Held is real time in which some call waited for the share's turn.
	Held uint64 `json:"heldNanoseconds"`
	// Late is whether its work had not ended when others had its room.
	Late bool `json:"late,omitempty"`
	// Thrashing says that its memory moves for longer than it is used, else empty.
	Thrashing string `json:"thrashing,omitempty"`
	// Fault says why its pages cannot be read or written, else empty.
	Fault string `json:"fault,omitempty"`
}
