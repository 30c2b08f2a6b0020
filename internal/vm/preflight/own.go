package preflight

import (
	"fmt"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/pci"
)

// Own is what Divvy itself has done to the devices of a host. The zero value is nothing, as of a recorded host.
type Own struct {
	Claims []Claim
	// Functions are the devices of which Divvy enabled the virtual functions.
	Functions []pci.Address
	// Shares are the names of shares on each GPU that has some, by its UUID.
	Shares map[string][]string
	// Agent is true where an agent serves the host, Processes are its own, which let go of a GPU for a claim.
	Agent     bool
	Processes []int
	// Unknown says why none of this is known, "" where it is.
	Unknown string
}

// Claim is a device that Divvy gave to a virtual machine, or is about to.
type Claim struct {
	Name, Form string
	// Device is what was asked for, Members are the functions that were given: of a vGPU the one on which it lies.
	Device  pci.Address
	Members []pci.Address
	// Mediated is the UUID of a mediated device.
	Mediated string
	// Cluster is true for one that a cluster releases by itself.
	Cluster bool
}

const formVGPU = "vgpu"

// hasWhole tells whether the claim has a function as a whole, and not a part of it.
func (c Claim) hasWhole(at pci.Address) bool {
	return c.Form != formVGPU && (c.Device == at || slices.Contains(c.Members, at))
}

// makes tells whether a vGPU is the claim's: a mediated device by its UUID, a function with a type by its address.
func (c Claim) makes(uuid string, function pci.Address) bool {
	return c.Form == formVGPU && c.Mediated == uuid && (uuid != "" || slices.Contains(c.Members, function))
}

// release says how the claim ends, and what to type for that. A name that others chose is typed only where it is a word.
func (c Claim) release() (remedy, command string) {
	isWord := c.Name != "" && !strings.ContainsFunc(c.Name, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.", r)
	})
	switch {
	case c.Cluster:
		return "end its pod: the cluster releases it then", "divvy vm ls"
	case !isWord:
		return "release it once its virtual machine has ended", "divvy vm ls"
	}
	return "release it once its virtual machine has ended", "divvy vm release " + c.Name
}

// owner is the claim that has a function as a whole, or as a vGPU where the function is asked for by itself; nil where none has.
func (l look) owner(at pci.Address) *Claim {
	for i := range l.ask.Own.Claims {
		c := &l.ask.Own.Claims[i]
		if c.hasWhole(at) || at == l.device.Address && l.device.Virtual && c.Form == formVGPU && slices.Contains(c.Members, at) {
			return c
		}
	}
	return nil
}

// claimed tells that Divvy has given the device to a virtual machine, and who has it open then.
func (l look) claimed() []Finding {
	for _, m := range l.along() {
		c := l.owner(m.Address)
		if c == nil {
			continue
		}
		evidence := fmt.Sprintf("claim %s has %s for a virtual machine (%s)", c.Name, m.Address, c.Form)
		if held := l.heldBy(); len(held) > 0 {
			evidence += ", and " + strings.Join(held, ", ")
		}
		remedy, command := c.release()
		return one("claimed", Fail, evidence, remedy, command)
	}
	return nil
}

// shares tells of shares on the GPU, with which no claim takes it.
func (l look) shares() []Finding {
	const most = 5
	for _, m := range l.along() {
		if names := l.ask.Own.Shares[m.UUID]; m.UUID != "" && len(names) > 0 {
			text := strings.Join(names[:min(len(names), most)], ", ")
			if more := len(names) - most; more > 0 {
				text += fmt.Sprintf(", %d more", more)
			}
			return one("shares", Fail, fmt.Sprintf("%s has shares of Divvy's: %s", m.Address, text), "end them first: a claim refuses a GPU with shares", "divvy ls")
		}
	}
	return nil
}
