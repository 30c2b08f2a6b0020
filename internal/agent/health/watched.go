package health

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/nvml"
)

// watched is what is known of one GPU's health. Only look changes it.
type watched struct {
	xids    map[uint64]uint64 // how often each XID was reported
	lastXID uint64
	gpu     backend.GPU
	fault   *Fault
	// clean counts the looks in a row that found nothing; unanswered those without an answer.
	clean, unanswered int
	// relapses counts how often the GPU fell ill again soon after it was well.
	relapses int
	wellAt   time.Time
	// uncorrected is the driver's count of memory errors in its last answer; known is false before the first.
	uncorrected uint64
	known       bool
}

const (
	// recovery is the number of looks in a row that must find no fault before the GPU takes tenants again. It doubles
	// with every relapse within relapseTime, up to mostDoublings times: a GPU is back ten seconds after a passing error,
	// and one that fails again and again is back after ten minutes without an error.
	recovery      = 10
	relapseTime   = time.Hour
	mostDoublings = 6
	// silentLooks is the number of looks in a row without an answer that count as a fault; a busy driver may miss one.
	silentLooks = 3
	// silent is the reason of a GPU about which the driver does not answer at all.
	silent = "silent"
	// afterReset says what a reset is followed by: see firstReopen and recovery.
	afterReset = "; after a reset it is served again by itself, within a minute as a rule"
	// fellOff is the XID of a GPU that has fallen off the bus.
	fellOff = 79
)

// harmless are the XIDs that faulty programs cause and that indicate no fault of the GPU: 13 graphics engine exception,
// 31 memory page fault, 43 stopped processing, 45 preemptive cleanup, 68 video processor exception, 109 context switch
// timeout. NVIDIA's own device plugin ignores the same ones.
// https://docs.nvidia.com/deploy/xid-errors/
var harmless = []uint64{13, 31, 43, 45, 68, 109}

// look takes in the result of one look. A fault is replaced by the one found last, and ends after enough looks in a row
// without any.
func (p *watched) look(now time.Time, c nvml.Condition, err error) {
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
		if p.clean++; p.clean >= p.probation() {
			p.fault, p.wellAt = nil, now
		} else if p.fault.Reason == silent {
			p.fault = &Fault{Reason: silent, Text: "the driver answers about it again, after it fell silent more than once: it takes new shares when it has answered for a while"}
		}
	}
}

// probation is the number of looks in a row that must find no fault before the fault is over. A driver that answers again
// after silence has lost nothing, so that is over at once unless the GPU falls silent again and again.
func (p *watched) probation() int {
	if p.fault.Reason == silent && p.relapses == 0 {
		return 1
	}
	return recovery << p.relapses
}

// relapse notes that a fault begins, and whether the GPU had recovered from one a short while ago.
func (p *watched) relapse(now time.Time) {
	if !p.wellAt.IsZero() && now.Sub(p.wellAt) < relapseTime {
		p.relapses = min(p.relapses+1, mostDoublings)
	} else {
		p.relapses = 0
	}
}

// diagnose returns the gravest fault found now, nil if there is none.
func (p *watched) diagnose(c nvml.Condition, err error) *Fault {
	grown := p.known && c.Uncorrected > p.uncorrected
	if err == nil {
		p.uncorrected, p.known, p.unanswered = c.Uncorrected, true, 0
	}
	p.count(c.XIDs)
	xid, ill := gravest(c.XIDs)
	switch {
	case errors.Is(err, nvml.ErrLost), ill && xid == fellOff:
		return &Fault{Reason: "lost", Lost: true, Text: "the driver lost contact with it: reset it (`nvidia-smi --gpu-reset`) or restart the machine" + afterReset}
	case errors.Is(err, nvml.ErrVanished):
		return &Fault{Reason: "vanished", Lost: true, Text: "the driver no longer lists it"}
	case errors.Is(err, nvml.ErrReset):
		return &Fault{Reason: "reset-required", Lost: true, Text: "the driver requires a reset: `nvidia-smi --gpu-reset`" + afterReset}
	case errors.Is(err, nvml.ErrLetGo):
		return nil // the agent does not ask
	case errors.Is(err, nvml.ErrSilent):
		return &Fault{Reason: silent, Text: "its figures are not known: " + err.Error()}
	case ill:
		return &Fault{Reason: fmt.Sprintf("xid-%d", xid), Text: fmt.Sprintf("the driver reported error (XID) %d", xid)}
	case err != nil:
		if p.unanswered++; p.unanswered >= silentLooks || !p.known && errors.Is(err, nvml.ErrResult) {
			return &Fault{Reason: "no-answer", Text: "the driver does not answer questions about it: " + err.Error()}
		}
		return nil
	}
	return p.reported(c, grown)
}

// reported returns the gravest fault that the driver's answer tells, besides XIDs; grown says that it counts more
// memory errors than before.
func (p *watched) reported(c nvml.Condition, grown bool) *Fault {
	switch {
	case c.RemapFailed:
		return &Fault{Reason: "row-remap-failed", Text: "remapping a faulty memory row failed: the GPU needs service"}
	case c.Recovery != "":
		return &Fault{Reason: "needs-" + c.Recovery, Text: "the driver requires this action before the GPU is used again: " + c.Recovery}
	case c.RemapPending:
		return &Fault{Reason: "row-remap-pending", Text: "a faulty memory row will be remapped when the GPU is reset"}
	case c.RetirementPending:
		return &Fault{Reason: "page-retirement-pending", Text: "faulty memory pages will be retired when the GPU is reset"}
	case grown:
		return &Fault{Reason: "ecc", Text: fmt.Sprintf("%d uncorrectable memory errors since the driver was loaded", c.Uncorrected)}
	case c.MIG:
		return &Fault{Reason: MIGMode, Text: fmt.Sprintf("it is in MIG mode, and this agent cannot tell how it is divided: end the mode (`nvidia-smi -i %d -mig 0`), or leave the GPU to others", p.gpu.Index)}
	}
	return nil
}

// mostKinds bounds how many kinds of XIDs are counted of a GPU; there are fewer than 200.
const mostKinds = 200

// count counts the errors that the driver reported.
func (p *watched) count(xids []uint64) {
	for _, xid := range xids {
		if _, known := p.xids[xid]; !known && len(p.xids) >= mostKinds {
			continue
		}
		if p.xids == nil {
			p.xids = map[uint64]uint64{}
		}
		p.xids[xid]++
		p.lastXID = xid
	}
}

// gravest returns the last XID that indicates a fault of the GPU; fellOff precedes all others. ill is false without any.
func gravest(xids []uint64) (xid uint64, ill bool) {
	for _, n := range xids {
		if !slices.Contains(harmless, n) && xid != fellOff {
			xid, ill = n, true
		}
	}
	return xid, ill
}

// MIGMode is the reason of a GPU that is in MIG mode and has no other fault. It is none for an agent that knows how the GPU
// is divided.
const MIGMode = "mig-mode"
