package health

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/nvml"
)

// patient is what is known of one GPU's health. It is changed by what a look found, and by nothing else.
type patient struct {
	gpu   backend.GPU
	fault *Fault
	// clean counts the looks in a row that found nothing; silent those without an answer.
	clean, silent int
	// relapses counts how often the GPU fell ill again soon after it was well.
	relapses int
	wellAt   time.Time
	// uncorrected is the driver's count of memory errors when it was asked last; known from the first answer on.
	uncorrected uint64
	known       bool
}

const (
	// recovery is how many looks in a row must find nothing before a GPU is offered again, doubled with every
	// relapse within relapseTime, up to mostDoublings times: after a passing error it is back in ten seconds, and one
	// that fails again and again is not offered for more than ten minutes at a time.
	recovery      = 10
	relapseTime   = time.Hour
	mostDoublings = 6
	// silentLooks is how many looks without an answer are a fault; a busy driver may miss one.
	silentLooks = 3
	// fellOff is the XID of a GPU that is not on the bus any more.
	fellOff = 79
)

// harmless are the XIDs that programs cause by their own faults, and which say nothing of the GPU: 13 graphics engine
// exception, 31 memory page fault, 43 stopped processing, 45 preemptive cleanup, 68 video processor exception, 109
// context switch timeout. NVIDIA's own device plugin leaves out the same.
// https://docs.nvidia.com/deploy/xid-errors/
var harmless = []uint64{13, 31, 43, 45, 68, 109}

// look takes in what one look found. A fault is replaced by what was found last; it is over when enough looks in a row
// found nothing.
func (p *patient) look(now time.Time, c nvml.Condition, err error) {
	found := p.diagnose(c, err)
	switch {
	case found != nil:
		if p.fault == nil {
			p.relapse(now)
		}
		p.fault, p.clean = found, 0
	case err != nil:
		p.clean = 0
	case p.fault != nil:
		if p.clean++; p.clean >= recovery<<p.relapses {
			p.fault, p.wellAt = nil, now
		}
	}
}

func (p *patient) relapse(now time.Time) {
	if !p.wellAt.IsZero() && now.Sub(p.wellAt) < relapseTime {
		p.relapses = min(p.relapses+1, mostDoublings)
	} else {
		p.relapses = 0
	}
}

// diagnose says what is wrong now, nil for nothing. The gravest comes first.
func (p *patient) diagnose(c nvml.Condition, err error) *Fault {
	grown := p.known && c.Uncorrected > p.uncorrected
	if err == nil {
		p.uncorrected, p.known, p.silent = c.Uncorrected, true, 0
	}
	xid, ill := gravest(c.XIDs)
	switch {
	case errors.Is(err, nvml.ErrLost), ill && xid == fellOff:
		return &Fault{Reason: "lost", Lost: true, Text: "the driver cannot reach it any more: reset it (`nvidia-smi --gpu-reset`) or restart the machine"}
	case errors.Is(err, nvml.ErrVanished):
		return &Fault{Reason: "vanished", Lost: true, Text: "the driver does not list it any more"}
	case errors.Is(err, nvml.ErrReset):
		return &Fault{Reason: "reset-required", Lost: true, Text: "the driver wants it reset: `nvidia-smi --gpu-reset`"}
	case ill:
		return &Fault{Reason: fmt.Sprintf("xid-%d", xid), Text: fmt.Sprintf("the driver reported error (XID) %d", xid)}
	case err != nil:
		if p.silent++; p.silent >= silentLooks {
			return &Fault{Reason: "no-answer", Text: "the driver does not answer for it: " + err.Error()}
		}
		return nil
	case c.RemapFailed:
		return &Fault{Reason: "row-remap-failed", Text: "a broken row of its memory cannot be replaced: the GPU needs service"}
	case c.Recovery != "":
		return &Fault{Reason: "needs-" + c.Recovery, Text: "the driver wants this done before it is used again: " + c.Recovery}
	case c.RemapPending:
		return &Fault{Reason: "row-remap-pending", Text: "a broken row of its memory is replaced when the GPU is reset"}
	case c.RetirementPending:
		return &Fault{Reason: "page-retirement-pending", Text: "broken pages of its memory are retired when the GPU is reset"}
	case grown:
		return &Fault{Reason: "ecc", Text: fmt.Sprintf("its memory had errors that could not be corrected: %d since the driver was loaded", c.Uncorrected)}
	}
	return nil
}

// gravest is the last XID that says something of the GPU, but one that it fell off the bus first of all.
func gravest(xids []uint64) (xid uint64, ill bool) {
	for _, n := range xids {
		if !slices.Contains(harmless, n) && xid != fellOff {
			xid, ill = n, true
		}
	}
	return xid, ill
}
