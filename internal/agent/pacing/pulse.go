package pacing

import (
	"errors"

	"github.com/divvy-gpu/divvy/internal/page"
)

// linkPulses puts the pulse page of each online share into the directories of
// the offline ones on the same GPU, and takes away what is not needed any more.
func (g *gpuTime) linkPulses() error {
	var faults []error
	online := map[string]*shareTime{}
	offline := false
	for _, s := range g.shares {
		switch {
		case s.tenant.time.Adopted:
		case s.terms.Offline:
			offline = true
		default:
			online[s.key] = s
		}
	}
	for key, s := range online {
		if !offline {
			break
		}
		if err := s.tenant.time.MakePulse(s.device, s.tenant.uid); err != nil {
			faults = append(faults, err)
			delete(online, key)
		}
	}
	for _, s := range g.shares {
		wanted := online
		if !s.terms.Offline || s.tenant.time.Adopted {
			wanted = nil
		}
		faults = append(faults, s.link(wanted))
	}
	return errors.Join(faults...)
}

// link makes the share's links lead to the wanted shares and to no others. The
// budget tells readers of a change: after a page was added, and before one is
// removed.
func (s *shareTime) link(wanted map[string]*shareTime) error {
	if s.budget.Pulses != 0 && s.beats == [page.Pulses]string{} {
		s.adopt(wanted)
	}
	linked, fault := s.unlink(wanted)
	faults := []error{fault}
	came := false
	for key, other := range wanted {
		k := s.freeBeat()
		if linked[key] || k < 0 {
			continue // further pages than there is room for: the rates divide alone
		}
		err := s.tenant.time.LinkBeat(s.device, k, other.tenant.time, other.device)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		s.beats[k], s.budget.Pulses, came = key, s.budget.Pulses|1<<k, true
	}
	if came {
		s.budget.PulseChanges++
	}
	return errors.Join(faults...)
}

// unlink removes the links to all but the wanted shares, and returns which of these
// have a link.
func (s *shareTime) unlink(wanted map[string]*shareTime) (linked map[string]bool, err error) {
	linked = map[string]bool{}
	var gone []int
	for k := range s.beats {
		bit := uint32(1) << k
		if key := s.beats[k]; key != "" && wanted[key] != nil {
			linked[key] = true
			s.budget.Pulses |= bit
			continue
		}
		if s.beats[k] != "" || s.budget.Pulses&bit != 0 {
			gone = append(gone, k)
		}
		s.beats[k], s.budget.Pulses = "", s.budget.Pulses&^bit
	}
	if len(gone) == 0 {
		return linked, nil
	}
	s.budget.PulseChanges++
	faults := []error{s.tenant.time.Budgets.Write(s.device, s.budget)}
	for _, k := range gone {
		faults = append(faults, s.tenant.time.UnlinkBeat(s.device, k))
	}
	return linked, errors.Join(faults...)
}

func (s *shareTime) freeBeat() int {
	for k, key := range s.beats {
		if key == "" {
			return k
		}
	}
	return -1
}

// adopt recognises the links that an earlier agent made.
func (s *shareTime) adopt(wanted map[string]*shareTime) {
	for k := range s.beats {
		for key, other := range wanted {
			same, err := s.tenant.time.HasBeat(s.device, k, other.tenant.time, other.device)
			if err == nil && same {
				s.beats[k] = key
			}
		}
	}
}
